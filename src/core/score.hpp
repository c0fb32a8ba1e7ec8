// How a track learns from its own likelihood: tails, kappa and weights. A track has head, tails,
// before and roots.
#pragma once
#include "lanes.hpp"
#include "declared.hpp"
#include <algorithm>
#include <limits>
#include <numbers>

namespace {

using namespace kgmrf;

/// The degrees of freedom nu, and the part of log t_nu of N values that depends on N alone.
struct TailLogs {
    static constexpr int N = sizeof TAILS / sizeof *TAILS;
    double values = std::numeric_limits<double>::quiet_NaN(), doubt = 0.0, nu[N] = {}, rise[N] = {};

    /// doubt: of a young track, which makes every nu smaller (youth.hpp).
    void take(double count, double unsure) {
        if (count == values && unsure == doubt) return;
        values = count, doubt = unsure;
        for (int j = 0; j < N; ++j) {
            nu[j] = doubt > 0.0 ? TAILS[j] / (1.0 + doubt * TAILS[j]) : TAILS[j];
            rise[j] = std::lgamma(0.5 * (nu[j] + values)) - std::lgamma(0.5 * nu[j]) -
                      0.5 * values * std::log(std::numbers::pi * nu[j]);
        }
    }
};

/// What a density says of an observation: log p(x), the weight u of x, the share of each tail in it.
struct Mixed {
    double log_p, u, share[TailLogs::N];
};

/// Of values at x^T Sigma^-1 x = q, log_det = log |Sigma|:
///
///     p(x) = sum_ij omega_i pi_j t_j(x; e^(z_i size_std) Sigma)
///
/// and one size alone where size_std is 0.
inline Mixed mix_tails(const double* tails, const TailLogs& given, double q, double log_det,
                       double size_std) {
    constexpr int N = TailLogs::N, N_NODES = sizeof SIZE_NODES / sizeof *SIZE_NODES;
    const int nodes = size_std > 0.0 ? N_NODES : 1;
    const double values = given.values;
    double share[N_NODES * N], size[N_NODES] = {1.0}, top = -HUGE_VAL, whole = 0.0;
    Mixed found{};
    for (int i = 0; i < nodes; ++i) {
        const double log_size = nodes > 1 ? size_std * SIZE_NODES[i] : 0.0;
        if (nodes > 1) size[i] = std::exp(log_size);
        for (int j = 0; j < N; ++j) {
            double& log = share[i * N + j];
            log = given.rise[j] - 0.5 * (given.nu[j] + values) * std::log1p(q / (given.nu[j] * size[i]));
            if (nodes > 1) log -= 0.5 * values * log_size;
            top = std::max(top, log);
        }
    }
    for (int i = 0; i < nodes; ++i)
        for (int j = 0; j < N; ++j) {
            const double omega = nodes > 1 ? SIZE_SHARES[i] : 1.0;
            whole += share[i * N + j] = omega * tails[j] * std::exp(share[i * N + j] - top);
        }
    for (int j = 0; j < N; ++j)
        for (int i = 0; i < nodes; ++i) {
            const double part = share[i * N + j] / whole;
            found.u += part * (given.nu[j] + values) / (given.nu[j] * size[i] + q);
            found.share[j] += part;
        }
    found.log_p = top + std::log(whole) - 0.5 * log_det;
    return found;
}

/// What the probabilities of the tails return to where nothing else is asked for.
inline double usual_tail(int) { return 1.0 / TailLogs::N; }

/// The tails learn from their shares; what they were is kept beside them.
template <class T, class Prior = double (*)(int)>
void score_tails(T t, const Mixed& found, Prior prior = usual_tail) {
    for (int j = 0; j < TailLogs::N; ++j) {
        t.before[j] = t.tails[j];
        t.tails[j] = (1.0 - TAIL_SHARE) * found.share[j] + TAIL_SHARE * prior(j);
    }
}

/// What is known of an observation.
inline void tell(Head& h, double log_p, double q, double values, double size_std, double doubt) {
    h.likelihood = log_p, h.distance = q, h.values = values, h.size_std = size_std, h.doubt = doubt;
}

/// sum_j pi_j nu_j/(nu_j - 2): the second moment of the density over its scale.
inline double heaviness(const double* tails) {
    double whole = 0.0;
    for (int j = 0; j < TailLogs::N; ++j) whole += tails[j] * (TAILS[j] / (TAILS[j] - 2.0));
    return whole;
}

/// b <- b + log(1 + g (1 - 1/m)(min(r e^-b, 20) - 1)), g = max(.002, 1/(n + 50)), r the size of the
/// n-th observation, of m samples, over what was expected of it. The tails promise a mean size that they need not have: where sizes
/// vary by themselves it is learned. One sample says nothing.
struct Bias {
    double gain, size, grown, unclipped;

    Bias(double bias, double r, double m, double n)
        : gain(std::max(BIAS_GAIN, 1.0 / (n + BIAS_START)) * std::max(1.0 - 1.0 / m, 0.0)),
          size(r * std::exp(-bias)),
          grown(1.0 + gain * (std::fmin(size, OUTLIER) - 1.0)),
          unclipped(bias + std::log(grown)) {}
    double value() const { return std::clamp(unclipped, -BIAS_LIMIT, BIAS_LIMIT); }
};

/// r_k prop to r_k exp(clip(rate (g_k - sum w g))); then a fixed share.
template <class T>
void score_weights(T t, int n, const double* weights, const double* gradient, double rate,
                   double blend_rate = BLEND_RATE) {
    double average = 0.0, whole = 0.0;
    for (int k = 0; k < n; ++k) average += weights[k] * gradient[k];
    if (!std::isfinite(average)) return;  // so far from the forecast that it says nothing
    for (int k = 0; k < n; ++k) {
        const double step = std::clamp(rate * (gradient[k] - average), -BLEND_LIMIT, BLEND_LIMIT);
        whole += t.roots[k] *= std::exp(blend_rate * step);
    }
    for (int k = 0; k < n; ++k)
        t.roots[k] = (1.0 - BLEND_SHARE) * t.roots[k] / whole + BLEND_SHARE / n;
}

/// Kappa follows u q/n; after an observation beyond all tails half of the start comes back.
template <class T, class Root>
void score_size(T t, int n, double u, double q, double values, Root start,
                double kappa_gain = KAPPA_GAIN) {
    Head& h = t.head;
    const double kappa = h.kappa + std::log1p(kappa_gain * (u * q / values - 1.0));
    h.kappa = std::clamp(kappa, -KAPPA_LIMIT, KAPPA_LIMIT);
    if (q <= OUTLIER * values) return;
    h.kappa = 0.0;
    for (int k = 0; k < n; ++k) t.roots[k] = (1.0 - RETURN) * t.roots[k] + RETURN * start(k);
}

/// w_k = r_k^2 / sum r^2, or where sharp r_k^6 / sum r^6.
inline void blend_weights(const double* roots, int n, bool sharp, double* weights) {
    const double top = *std::max_element(roots, roots + n);
    double whole = 0.0;
    for (int k = 0; k < n; ++k) {
        const double w = (roots[k] / top) * (roots[k] / top);
        whole += weights[k] = sharp ? w * w * w : w;
    }
    for (int k = 0; k < n; ++k) weights[k] /= whole;
}

}  // namespace
