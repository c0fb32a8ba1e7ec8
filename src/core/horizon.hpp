// Beyond one step: what the time since the last observation does to the weights of the members, and
// how far the size of the forecast wanders. kgmrf/engines/horizon.py tells the formulas.
#pragma once
#include "declared.hpp"
#include "elementary.hpp"
#include "row.hpp"
#include "storage.hpp"
#include <algorithm>

namespace {

using namespace kgmrf;

constexpr int N_LAGS = sizeof WANDER_LAGS / sizeof *WANDER_LAGS;

/// g = a - 1 beyond one unit after the last observation; 0 before the first.
inline double beyond_one(double age) { return age - 1.0 > LEAST_GAP ? age - 1.0 : 0.0; }

/// Weights w -> w(g), and derivatives by them.
class Horizon {
  public:
    template <class Members>
    explicit Horizon(const Members& members) : n(static_cast<int>(members.size())) {
        for (int k = 0; k < n; ++k) {
            lasts[k] = members[k].law.horizon;
            if (members[k].law.heir == HEIR) first = k;
            if (members[k].law.heir == LAST) last = k;
        }
    }

    /// keep_k = exp(-(g/(4 eta_k))^2); e_k = keep_k at A, the rest of 1 at B.
    void look(double age) {
        const double g = beyond_one(age);
        if (g == beyond) return;
        beyond = g;
        for (int k = 0; k < n; ++k) {
            const double share = g / (HORIZON_REACH * lasts[k]);
            keep[k] = std::exp(-share * share), heir[k] = 0.0;
        }
        if (first >= 0) heir[first] = keep[first];
        if (last >= 0) heir[last] = first >= 0 ? 1.0 - keep[first] : 1.0;
    }

    /// w(g) = (1.05 keep w + .05 lost e)/(1.05 - lost), in place; w stays at hand.
    void carry(double* w) {
        for (int k = 0; k < n; ++k) now[k] = w[k];
        if (beyond == 0.0) return;
        double left = 0.0;
        for (int k = 0; k < n; ++k) left += keep[k] * w[k];
        const double lost = 1.0 - left, whole = left + HORIZON_SHARE;
        for (int k = 0; k < n; ++k)
            w[k] = ((1.0 + HORIZON_SHARE) * keep[k] * w[k] + HORIZON_SHARE * lost * heir[k]) / whole;
    }

    /// g_k by w(g) -> G + keep_k 1.05/(1.05 - lost) (g_k - G), by w, in place.
    void pull_back(double* gradient) const {
        if (beyond == 0.0) return;
        double left = 0.0, mean = 0.0;
        for (int k = 0; k < n; ++k) {
            left += keep[k] * now[k];
            mean += (keep[k] * now[k] + HORIZON_SHARE * heir[k]) * gradient[k];
        }
        const double whole = left + HORIZON_SHARE;
        mean /= whole;
        for (int k = 0; k < n; ++k)
            gradient[k] = mean + keep[k] * (1.0 + HORIZON_SHARE) / whole * (gradient[k] - mean);
    }

    /// Back through `pull_back` of these raw derivatives: bar, by what it gives, becomes that by the
    /// raw ones; adds to that by w.
    void back(const double* raw, double* bar, double* weights_bar) const {
        if (beyond == 0.0) return;
        double left = 0.0, mean = 0.0, whole_bar = 0.0, mean_bar = 0.0;
        for (int k = 0; k < n; ++k) {
            left += keep[k] * now[k];
            mean += (keep[k] * now[k] + HORIZON_SHARE * heir[k]) * raw[k];
        }
        const double whole = left + HORIZON_SHARE;
        mean /= whole;
        for (int k = 0; k < n; ++k) {
            const double share = keep[k] * (1.0 + HORIZON_SHARE) / whole;
            mean_bar += bar[k] * (1.0 - share);
            whole_bar -= bar[k] * (raw[k] - mean) * share / whole;
            bar[k] *= share;
        }
        whole_bar -= mean_bar * mean / whole;
        for (int k = 0; k < n; ++k) {
            bar[k] += mean_bar * (keep[k] * now[k] + HORIZON_SHARE * heir[k]) / whole;
            weights_bar[k] += keep[k] * (mean_bar * raw[k] / whole + whole_bar);
        }
    }

    /// The weights that `carry` was given.
    const double* weights() const { return now; }
    double gap() const { return beyond; }

  private:
    const int n;
    int first = -1, last = -1;
    double beyond = 0.0;
    Room lasts{n + 0u}, keep{n + 0u}, heir{n + 0u}, now{n + 0u};
};

/// Averages of the log size of forecasts over three lags, and its variances about them.
class Wander {
  public:
    /// mu_j += gain_j (l - mu_j), gain_j = max(1 - (1 - 1/(2 lambda_j))^age, 1/(n + 1)); v_j takes in
    /// (l - mu_j)^2, at most 16 times what it is, as one of n rows, at most 1000. The n-th row.
    void learn(double* state, double l, double n, double age) {
        if (!std::isfinite(l)) return;
        if (age != last_age) {
            last_age = age;
            for (int j = 0; j < N_LAGS; ++j)
                gain[j] = 1.0 - std::pow(1.0 - 0.5 / WANDER_LAGS[j], age);
        }
        double *mean = state, *variance = state + N_LAGS;
        const double part = 1.0 / std::min(n, WANDER_MEMORY);
        for (int j = 0; j < N_LAGS; ++j) {
            if (n == 1.0) mean[j] = l;
            const double e = l - mean[j];
            const double most = WANDER_CLIP * std::max(variance[j], WANDER_LEAST);
            variance[j] += (std::min(e * e, most) - variance[j]) * part;
            mean[j] += std::max(gain[j], 1.0 / (n + 1.0)) * e;
        }
    }

    /// sigma at g: sigma^2 linear in log(1 + g) between 0, v_1, max(v_1, v_2), max(v_1, v_2, v_3) at
    /// the lags, times 1.5.
    static double size_std(const double* state, double g) {
        if (g == 0.0) return 0.0;
        const double* variance = state + N_LAGS;
        const double x = std::log1p(g);
        double found = 0.0, knot = 0.0, most = 0.0;
        for (int j = 0; j < N_LAGS; ++j) {
            const double next = std::log1p(WANDER_LAGS[j]), rise = std::max(variance[j] - most, 0.0);
            found += rise * std::clamp((x - knot) / (next - knot), 0.0, 1.0);
            most += rise, knot = next;
        }
        return std::sqrt(std::min(WANDER_WIDENING * found, WANDER_MOST));
    }

  private:
    double last_age = -1.0, gain[N_LAGS] = {};
};

/// The factor of the covariance that a size of this deviation brings: (2 + cosh(sqrt 3 sigma))/3.
inline double widened(double size_std) {
    return (2.0 + std::cosh(SIZE_NODES[2] * size_std)) / 3.0;
}

/// sum_i n_i log L_i, of channels that were seen n_i times; L may be 0 where n_i is.
inline double sum_of_logs(const double* seen, const double* level, int d) {
    double total = 0.0;
    each(d, [&]<class V>(int p) {
        const V n = load<V>(seen + p), L = load<V>(level + p);
        const V logs = n * log_of<V>(pick<V>(n > splat<V>(0.0), L, splat<V>(1.0)));
        total += sum_of<V>(logs);
    });
    return total;
}

}  // namespace
