// Which instructions this processor has: 4 (x86-64-v4, AVX-512), 3 (x86-64-v3, AVX2 and FMA) or 0.
// By cpuid itself: __builtin_cpu_supports needs a library that not every compiler links.
#pragma once

#if defined(__x86_64__) || defined(_M_X64)
#include <cpuid.h>

namespace kgmrf {

inline int processor_level() {
    unsigned a, b, c, d, saved = 0, high;
    const auto bit = [](unsigned word, int k) { return (word >> k & 1) != 0; };
    if (!__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27) || !bit(c, 28) || !bit(c, 12)) return 0;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));  // registers that the system saves
    if ((saved & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
    if (!bit(b, 5) || !bit(b, 3) || !bit(b, 8)) return 0;
    const bool avx512 = bit(b, 16) && bit(b, 17) && bit(b, 28) && bit(b, 30) && bit(b, 31);
    return (saved & 0xe6) == 0xe6 && avx512 ? 4 : 3;
}

}  // namespace kgmrf
#else
namespace kgmrf {
inline int processor_level() { return 0; }
}  // namespace kgmrf
#endif
