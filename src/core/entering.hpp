// A channel that comes late: its first variance, from a few values and from the other channels.
// kgmrf/readable/entering.py tells the formulas.
#pragma once
#include "declared.hpp"
#include <cmath>

namespace {

using namespace kgmrf;

/// sqrt(C_ii) of m samples, as |x| of one of them would be: E sqrt(chi^2_m/m) over that of m = 1.
inline double as_absolute(double power, double m) {
    const double mean = std::sqrt(2.0 / m) * std::exp(std::lgamma(0.5 * (m + 1.0)) - std::lgamma(0.5 * m));
    return std::sqrt(power) * TAIL_ABS[3] / mean;
}

/// What is known of the scale of a late channel: its variance, and how many values that is worth.
struct Entering {
    double variance, values;
};

/// The variance ((mean |x|)/sum_j pi_j E_j|x|)^2 e^-kappa of n values, drawn in the logarithm towards
/// that of the k other channels, as far as these are alike: their mean is worth (2 pi - 4)/spread
/// values, spread = var (1 + 1/k) + .05.
inline Entering first_scale(double absolute, double n, const double* tails, double kappa,
                            const double* others, int k) {
    double heavy = 0.0, mean = 0.0, var = 0.0;
    for (int j = 0; j < int(sizeof TAIL_ABS / sizeof *TAIL_ABS); ++j) heavy += tails[j] * TAIL_ABS[j];
    const double log = 2.0 * std::log(absolute / n / heavy) + 0.5 * ENTER_SPREAD / n - kappa;
    for (int j = 0; j < k; ++j) mean += std::log(others[j]) / k;
    for (int j = 0; j < k; ++j) {
        const double apart = std::log(others[j]) - mean;
        var += apart * apart / (k - 1.0);
    }
    const double spread = var * (1.0 + 1.0 / k) + ENTER_LEAST, apart = log - mean;
    if (k < 2 || !(apart * apart < ENTER_CONFLICT * (spread + ENTER_SPREAD / n))) return {std::exp(log), n};
    const double more = ENTER_SPREAD / spread;
    return {std::exp((n * log + more * mean) / (n + more)), n + more};
}

}  // namespace
