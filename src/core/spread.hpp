// How many samples matrices are worth, by how they scatter about their forecast.
//
//     r = |W - I|^2,  W = S^-1/2 C S^-1/2 of trace n;   v <- v + max(.02, 1/c)(min(r, 4 v) - v)
//     m = (n - 1)(n + 2)/v
//
// The size of C is divided out, and C may be singular.
#pragma once
#include "declared.hpp"
#include <algorithm>

namespace kgmrf {
namespace {

/// r, with the trace of S^-1 C and that of its square.
inline double scatter_of(double trace, double square, double n) {
    return square * (n / trace) * (n / trace) - n;
}

/// c matrices are judged so far, v is their usual r.
inline void learn_spread(double& judged, double& spread, double scatter) {
    judged += 1.0;
    if (judged > SPREAD_START) scatter = std::min(scatter, SPREAD_LIMIT * spread);
    spread += std::max(SPREAD_GAIN, 1.0 / judged) * (scatter - spread);
}

/// m of matrices over n channels; one channel has nothing but its size.
inline double samples_of(double spread, double n) {
    return n > 1.0 ? (n - 1.0) * (n + 2.0) / std::max(spread, 1e-300) : 2.0;
}

/// The numbers of a row that learn it.
struct Scatter {
    double judged, spread, samples;

    /// How many samples an observation is worth that is said to be of ``claimed``; 2 n before
    /// anything is known. Of few samples r is n (n - 1)(n + 2)/(m n + 2) in the mean, exactly.
    double worth(double claimed, double n) const {
        const double m = judged > 0.0 ? samples_of(spread, n) - 2.0 / n : 2.0 * n;
        return std::min(std::max(m, 1.0), claimed);
    }
};

}  // namespace
}  // namespace kgmrf
