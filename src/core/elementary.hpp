// Elementary functions of W numbers at a time, or of any other number of lanes, to about one ulp;
// of a single number they are those of the standard library.
#pragma once
#include "lanes.hpp"
#include <cstdint>
#include <numbers>
#include <type_traits>

namespace {

/// Four lanes, or as many as the processor has: for lists that eight do not divide.
constexpr int Q = W < 4 ? W : 4;
template <int N>
struct Lanes {
    typedef double type __attribute__((vector_size(8 * N)));
};
using quad = Lanes<Q>::type;

template <class V>
constexpr bool scalar = std::is_same_v<V, double>;
template <class V>
constexpr int lanes_of = static_cast<int>(sizeof(V) / sizeof(double));
template <class V>
using mask_of = decltype(V{} > V{});

template <class V>
V splat(double x) {
    if constexpr (scalar<V>)
        return x;
    else
        return x - V{};
}

template <class V>
V pick(mask_of<V> m, V a, V b) {
    return m ? a : b;
}

template <class V>
bool some(mask_of<V> m) {
    if constexpr (scalar<V>) {
        return m;
    } else {
        long found = 0;
        for (int l = 0; l < lanes_of<V>; ++l) found |= m[l];
        return found != 0;
    }
}

/// f(a, f(b, ...)) over all lanes, halves first.
template <class F, class V>
double fold(V v, F&& f) {
    if constexpr (lanes_of<V> == 1) {
        if constexpr (scalar<V>)
            return v;
        else
            return v[0];
    } else if constexpr (lanes_of<V> == 2) {
        return f(v[0], v[1]);
    } else {
        using Half = typename Lanes<lanes_of<V> / 2>::type;
        Half a, b;
        std::memcpy(&a, &v, sizeof a);
        std::memcpy(&b, reinterpret_cast<const char*>(&v) + sizeof a, sizeof b);
        return fold(f(a, b), f);
    }
}

template <class V>
double sum_of(V v) {
    return fold(v, [](auto a, auto b) { return a + b; });
}
template <class V>
double largest_of(V v) {
    return fold(v, [](auto a, auto b) { return a > b ? a : b; });
}

template <class V>
V magnitude(V x) {
    return pick<V>(x < splat<V>(0.0), -x, x);
}

template <class V>
V square_root(V x) {
    if constexpr (scalar<V>) {
        return std::sqrt(x);
    } else {
        for (int l = 0; l < lanes_of<V>; ++l) x[l] = std::sqrt(x[l]);
        return x;
    }
}

/// ((c_n x + c_{n-1}) x + ...) + c_0
template <class V, std::size_t N>
V polynomial(V x, const double (&c)[N]) {
    V y = splat<V>(c[N - 1]);
    for (int n = int(N) - 2; n >= 0; --n) y = y * x + c[n];
    return y;
}

constexpr double ROUND = 0x1.8p52;  // x + ROUND - ROUND is x rounded; its low bits are that number
constexpr double LN2_HIGH = 0x1.62e42fefa3800p-1, LN2_LOW = 0x1.ef35793c76730p-45;

/// e^x = 2^k e^r with |r| <= ln(2)/2 by its series; 0 below -708, e^709 above 709.
template <class V>
V exp_of(V x) {
    if constexpr (scalar<V>) {
        return std::exp(x);
    } else {
        constexpr double C[] = {1.0,
                                1.0,
                                1.0 / 2,
                                1.0 / 6,
                                1.0 / 24,
                                1.0 / 120,
                                1.0 / 720,
                                1.0 / 5040,
                                1.0 / 40320,
                                1.0 / 362880,
                                1.0 / 3628800,
                                1.0 / 39916800,
                                1.0 / 479001600};
        using I = mask_of<V>;
        const V low = splat<V>(-708.0), high = splat<V>(709.0);
        const V y = pick<V>(x > low, pick<V>(x < high, x, high), low);  // so that k is an exponent
        const V shifted = y * std::numbers::log2e + ROUND, k = shifted - ROUND;
        const V r = (y - k * LN2_HIGH) - k * LN2_LOW;
        const V scale = (V)(((I)shifted << 52) + (std::int64_t(1023) << 52));
        return pick<V>(x > low, polynomial(r, C) * scale, V{});
    }
}

/// log x = e ln(2) + 2 artanh((m - 1)/(m + 1)) with x = 2^e m, m within a root of 2 of 1.
template <class V>
V log_of(V x) {
    if constexpr (scalar<V>) {
        return std::log(x);
    } else {
        if (some<V>(!((x > splat<V>(1e-300)) & (x < splat<V>(1e300))))) {
            for (int l = 0; l < lanes_of<V>; ++l) x[l] = std::log(x[l]);
            return x;
        }
        constexpr double C[] = {1.0,      1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9, 1.0 / 11,
                                1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
        using I = mask_of<V>;
        I bits = (I)x;
        I exponent = (bits >> 52) - 1023;
        V m = (V)((bits & 0xfffffffffffffL) | (std::int64_t(1023) << 52));
        const I above = m > splat<V>(std::numbers::sqrt2);
        m = pick<V>(above, 0.5 * m, m);
        exponent -= above;
        const V e = (V)(exponent + (I)splat<V>(ROUND)) - ROUND;
        const V s = (m - 1.0) / (m + 1.0);
        return e * LN2_HIGH + (2.0 * s * polynomial(s * s, C) + e * LN2_LOW);
    }
}

template <class V>
struct SinCos {
    V sin, cos;
};

/// By quarters of a turn; |x| beyond 1e5 one at a time.
template <class V>
SinCos<V> sin_cos(V x) {
    if constexpr (scalar<V>) {
        return {std::sin(x), std::cos(x)};
    } else {
        if (some<V>(!(magnitude(x) < splat<V>(1e5)))) {
            SinCos<V> out{};
            for (int l = 0; l < lanes_of<V>; ++l)
                out.sin[l] = std::sin(x[l]), out.cos[l] = std::cos(x[l]);
            return out;
        }
        constexpr double P1 = 0x1.921fb54400000p+0, P2 = 0x1.0b4611a600000p-34,
                         P3 = 0x1.3198a2e037073p-69;
        constexpr double S[] = {1.0,          -1.0 / 6,         1.0 / 120,          -1.0 / 5040,
                                1.0 / 362880, -1.0 / 39916800., 1.0 / 6227020800., -1.0 / 1307674368000.};
        constexpr double C[] = {1.0,         -1.0 / 2,         1.0 / 24,
                                -1.0 / 720,  1.0 / 40320,      -1.0 / 3628800,
                                1.0 / 479001600, -1.0 / 87178291200., 1.0 / 20922789888000.};
        using I = mask_of<V>;
        const V shifted = x * (2.0 / std::numbers::pi) + ROUND, k = shifted - ROUND;
        const V r = ((x - k * P1) - k * P2) - k * P3, square = r * r;
        const V s = r * polynomial(square, S), c = polynomial(square, C);
        const I quarter = (I)shifted, odd = (quarter & 1) != 0;
        const V a = pick<V>(odd, c, s), b = pick<V>(odd, s, c);
        return {pick<V>((quarter & 2) != 0, -a, a), pick<V>(((quarter + 1) & 2) != 0, -b, b)};
    }
}

/// The angle of (x, y) with x, y >= 0: from the nearest of 0, pi/8, pi/4, and by its complement.
template <class V>
V angle_of(V y, V x) {
    if constexpr (scalar<V>) {
        return std::atan2(y, x);
    } else {
        constexpr double EIGHTH = 0.41421356237309504880;  // tan(pi/8)
        constexpr double C[] = {1.0,      -1.0 / 3, 1.0 / 5,   -1.0 / 7, 1.0 / 9,   -1.0 / 11,
                                1.0 / 13, -1.0 / 15, 1.0 / 17, -1.0 / 19, 1.0 / 21, -1.0 / 23};
        const mask_of<V> steep = y > x;
        const V low = pick<V>(steep, x, y), high = pick<V>(steep, y, x);
        const mask_of<V> far = low > high * 0.66817863791929892,   // tan(3 pi/16)
            near = low < high * 0.19891236737965801;               // tan(pi/16)
        const V from = pick<V>(near, V{}, pick<V>(far, splat<V>(1.0), splat<V>(EIGHTH)));
        const V base = pick<V>(near, V{}, pick<V>(far, splat<V>(std::numbers::pi / 4),
                                                  splat<V>(std::numbers::pi / 8)));
        const V t = (low - from * high) / (high + from * low);
        const V angle = base + t * polynomial(t * t, C);
        return pick<V>(steep, std::numbers::pi / 2 - angle, angle);
    }
}

}  // namespace
