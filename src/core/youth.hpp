// How little a young track knows: what its density has to be wider for.
// kgmrf/youth.py tells the formulas.
#pragma once
#include "declared.hpp"
#include <algorithm>
#include <cmath>

namespace kgmrf {
namespace {

/// 1 over the degrees of freedom that n samples leave in d channels; 0 from 5 (d + 2) samples on.
inline double doubt_of(double n, double d) {
    const auto one = [](double rows) { return 1.0 / (YOUTH_RATE * std::max(rows, 1.0) - (YOUTH_RATE - 1.0)); };
    return std::max(one(n) - one(YOUTH_ENDS * (d + 2.0)), 0.0);
}

/// What the scale is multiplied by, of a density over this many channels that are there.
inline double widening(double doubt, double there) {
    return doubt > 0.0 ? 1.0 + 0.5 * std::pow(doubt, YOUTH_POWER) * (there - 1.0 - doubt) : 1.0;
}

}  // namespace
}  // namespace kgmrf
