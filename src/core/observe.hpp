// The check of an observation before any of it is taken in.
#pragma once
#include "matrix.hpp"
#include "loops.hpp"
#include "storage.hpp"

namespace {

using namespace kgmrf;

/// C, d x d without gaps, into ``seen``, symmetrised: OBSERVED, MISSING (all NaN) or INVALID.
/// A negative tolerance trusts it; otherwise asymmetry and negative eigenvalues up to tolerance
/// times the largest entry pass: C + tolerance I must have positive pivots.
template <int S>
Status take_covariance(const double* c, Matrix<S> seen, Matrix<S> work, double tolerance) {
    const int d = seen.d;
    double fault = 0.0, largest = 0.0, skewness = 0.0;
    for (int i = 0; i < d; ++i)
        for (int j = 0; j <= i; ++j) {
            const double v = c[i * d + j], other = c[j * d + i], mean = 0.5 * v + 0.5 * other;
            seen[i][j] = seen[j][i] = mean;
            fault += 0.0 * mean;  // NaN where one is not finite
            const double most = v > other ? v : other, least = v > other ? other : v;
            const double size = most > -least ? most : -least, skew = most - least;
            largest = size > largest ? size : largest;
            skewness = skew > skewness ? skew : skewness;
        }
    if (tolerance < 0.0) return std::isnan(c[0]) ? Status::missing : Status::observed;
    if (std::isnan(fault)) {
        for (int k = 0; k < d * d; ++k)
            if (!std::isnan(c[k])) return Status::invalid;
        return Status::missing;
    }
    if (!(SMALLEST <= largest && largest <= LARGEST) || skewness > tolerance * largest)
        return Status::invalid;
    copy(seen, work);
    for (int i = 0; i < d; ++i) work[i][i] += tolerance * largest;
    for (int k = 0; k < d; ++k) {
        const double pivot = work[k][k];
        if (!(pivot > 0.0)) return Status::invalid;
        const double inverse = -1.0 / pivot;
        for (int i = k + 1; i < d; ++i) {
            const double factor = work[i][k] * inverse;
            for (int j = k / W * W; j < seen.stride(); j += W)
                store(work[i] + j, madd(factor, load(work[k] + j), load(work[i] + j)));
        }
    }
    return Status::observed;
}

/// How many samples have a value; negative if one is too large to square.
inline double count_samples(const double* x, std::int64_t samples, int d) {
    double count = 0.0;
    for (std::int64_t r = 0; r < samples; ++r, x += d) {
        bool here = false;
        for (int i = 0; i < d; ++i) {
            if (std::isnan(x[i])) continue;
            if (!(x[i] * x[i] <= LARGEST)) return -1.0;
            here = true;
        }
        count += here;
    }
    return count;
}

/// Status of every matrix (n, d, d), as an observation would have it.
inline void inspect_matrices(const double* matrices, std::int64_t n, int d, double tolerance,
                             std::int8_t* status) {
    const std::size_t square = std::size_t(padded(d)) * padded(d);
    Room seen(square), work(square);
    for (std::int64_t k = 0; k < n; ++k)
        status[k] = static_cast<std::int8_t>(
            take_covariance<0>(matrices + k * d * d, {seen, d}, {work, d}, tolerance));
}

}  // namespace
