// The way back through what a track learns from its likelihood (score.hpp, horizon.hpp). ``bar``
// after a name means the derivative of a loss by it.
#pragma once
#include "horizon.hpp"
#include "score.hpp"

namespace {

using namespace kgmrf;

/// Derivatives by what a mixture is given.
struct MixtureBar {
    double q = 0.0, log_det = 0.0, size_std = 0.0, tails[TailLogs::N] = {};
};

/// Back through `mix_tails`, from derivatives by log p, u and the shares; adds to ``to``.
inline void back_mixture(const double* tails, const TailLogs& given, double q, double size_std,
                         const Mixed& bar, MixtureBar& to) {
    constexpr int N = TailLogs::N, N_NODES = sizeof SIZE_NODES / sizeof *SIZE_NODES;
    const int nodes = size_std > 0.0 ? N_NODES : 1;
    const double values = given.values;
    double share[N_NODES * N], pull[N_NODES * N], top = -HUGE_VAL, whole = 0.0, mean = 0.0;
    const auto log_size = [&](int i) { return nodes > 1 ? size_std * SIZE_NODES[i] : 0.0; };
    for (int i = 0; i < nodes; ++i)
        for (int j = 0; j < N; ++j) {
            const double reach = given.nu[j] * std::exp(log_size(i));
            share[i * N + j] = given.rise[j] - 0.5 * values * log_size(i) -
                               0.5 * (given.nu[j] + values) * std::log1p(q / reach);
            top = std::max(top, share[i * N + j]);
        }
    for (int i = 0; i < nodes; ++i)
        for (int j = 0; j < N; ++j) {
            const double omega = nodes > 1 ? SIZE_SHARES[i] : 1.0;
            whole += share[i * N + j] = omega * tails[j] * std::exp(share[i * N + j] - top);
            pull[i * N + j] = (given.nu[j] + values) / (given.nu[j] * std::exp(log_size(i)) + q);
        }
    for (int k = 0; k < nodes * N; ++k) {
        share[k] /= whole;
        mean += share[k] * (bar.u * pull[k] + bar.share[k % N]);
    }
    for (int i = 0; i < nodes; ++i)
        for (int j = 0; j < N; ++j) {
            const int k = i * N + j;
            const double part = share[k], reach = given.nu[j] * std::exp(log_size(i));
            const double log_bar = part * (bar.log_p + bar.u * pull[k] + bar.share[j] - mean);
            const double pull_bar = -bar.u * part * pull[k] / (reach + q);
            to.tails[j] += log_bar / tails[j];
            to.q += pull_bar - 0.5 * log_bar * pull[k];
            if (nodes == 1) continue;
            to.size_std += SIZE_NODES[i] * (log_bar * 0.5 * (pull[k] * q - values) + pull_bar * reach);
        }
    to.log_det -= 0.5 * bar.log_p;
}

/// Back through w_k = r_k^p / sum r^p: adds to derivatives by the roots.
inline void back_blend(const double* roots, const double* weights, const double* bar, int n,
                       bool sharp, double* roots_bar) {
    const double mean = dot(weights, bar, n);
    for (int k = 0; k < n; ++k)
        roots_bar[k] += (sharp ? 6.0 : 2.0) * weights[k] * (bar[k] - mean) / roots[k];
}

/// Back through `score_weights` and the prior weights that come back after an outlier. roots_bar:
/// by the roots after, becomes that by the roots before; adds to derivatives by weights, gradient,
/// prior roots and the blend rate.
template <class Prior>
void back_weights(const double* roots, int n, const double* weights, const double* gradient,
                  double rate, double blend_rate, bool returned, double* roots_bar,
                  double* weights_bar, double* gradient_bar, Prior prior, double& blend_rate_bar) {
    double average = 0.0, whole = 0.0, mean = 0.0, total = 0.0;
    for (int k = 0; k < n; ++k) {
        if (!returned) continue;
        prior(k) += RETURN * roots_bar[k];
        roots_bar[k] *= 1.0 - RETURN;
    }
    for (int k = 0; k < n; ++k) average += weights[k] * gradient[k];
    if (!std::isfinite(average)) return;
    const auto step = [&](int k) {
        return std::clamp(rate * (gradient[k] - average), -BLEND_LIMIT, BLEND_LIMIT);
    };
    for (int k = 0; k < n; ++k) {
        const double grown = roots[k] * std::exp(blend_rate * step(k));
        whole += grown, mean += grown * roots_bar[k];
    }
    mean /= whole;
    for (int k = 0; k < n; ++k) {
        const double up = std::exp(blend_rate * step(k)), grown = roots[k] * up;
        const double grown_bar = (1.0 - BLEND_SHARE) * (roots_bar[k] - mean) / whole;
        roots_bar[k] = grown_bar * up;
        blend_rate_bar += grown_bar * grown * step(k);
        const double far = rate * (gradient[k] - average);
        if (!(std::fabs(far) < BLEND_LIMIT)) continue;
        const double pull = grown_bar * grown * blend_rate * rate;
        gradient_bar[k] += pull, total += pull;
    }
    for (int k = 0; k < n; ++k) {
        gradient_bar[k] -= weights[k] * total;
        weights_bar[k] -= gradient[k] * total;
    }
}

/// Back through `Wander::learn`: bars of the row become those before it; the derivative by l.
inline double back_wander(const double* state, double* bar, double l, double n, double age) {
    if (!std::isfinite(l)) return 0.0;
    const double *mean = state, *variance = state + N_LAGS;
    const double part = 1.0 / std::min(n, WANDER_MEMORY);
    double found = 0.0;
    for (int j = 0; j < N_LAGS; ++j) {
        double &mean_bar = bar[j], &variance_bar = bar[N_LAGS + j];
        if (n == 1.0) {
            found += mean_bar, mean_bar = 0.0, variance_bar *= 1.0 - part;
            continue;
        }
        const double gain = 1.0 - std::pow(1.0 - 0.5 / WANDER_LAGS[j], age);
        const double e = l - mean[j], most = WANDER_CLIP * std::max(variance[j], WANDER_LEAST);
        double e_bar = mean_bar * std::max(gain, 1.0 / (n + 1.0)), kept = 1.0 - part;
        if (e * e < most)
            e_bar += 2.0 * variance_bar * part * e;
        else if (variance[j] > WANDER_LEAST)
            kept += part * WANDER_CLIP;
        variance_bar *= kept;
        mean_bar -= e_bar;
        found += e_bar;
    }
    return found;
}

/// Back through `Wander::size_std`: adds to the bars of the variances.
inline void back_size_std(const double* state, double* bar, double g, double size_std_bar) {
    const double size_std = Wander::size_std(state, g);
    if (size_std == 0.0 || size_std * size_std >= WANDER_MOST) return;
    const double* variance = state + N_LAGS;
    const double x = std::log1p(g), share = 0.5 * WANDER_WIDENING * size_std_bar / size_std;
    double knot = 0.0;
    int most = -1;
    for (int j = 0; j < N_LAGS; ++j) {
        const double next = std::log1p(WANDER_LAGS[j]);
        const double along = std::clamp((x - knot) / (next - knot), 0.0, 1.0);
        knot = next;
        if (variance[j] <= (most < 0 ? 0.0 : variance[most])) continue;
        bar[N_LAGS + j] += share * along;
        if (most >= 0) bar[N_LAGS + most] -= share * along;
        most = j;
    }
}

}  // namespace
