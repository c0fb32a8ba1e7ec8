// A mean that is linear in the last rows, by weighted recursive least squares and a gate. See
// kgmrf.readable.linear_mean for the formulas and the twin.
#pragma once
#include "declared.hpp"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace kgmrf {
namespace {

/// Tracks of d channels with some lags, one at a time, and the space that a step works in.
class LinearMean {
  public:
    LinearMean(int d, int lags)
        : d_(d), n_(d * lags), z_(n_), direction_(n_), guess_(d), left_(d) {}

    /// The track of this row is the one that steps are of.
    void open(double* row) {
        head_ = reinterpret_cast<LinearMeanHead*>(row);
        level_ = row + sizeof(LinearMeanHead) / sizeof(double);
        noise_ = level_ + d_;
        mean_ = noise_ + d_;
        lags_ = mean_ + d_;
        slopes_ = lags_ + n_;
        spread_ = slopes_ + std::int64_t(n_) * d_;
    }

    static std::int64_t size(std::int64_t d, std::int64_t lags) {
        const std::int64_t n = d * lags;
        return sizeof(LinearMeanHead) / sizeof(double) + 3 * d + n + n * d + n * n;
    }

    /// mu before the row x, and the row; NaN where nothing was seen.
    void step(const double* x, double* mu) {
        predict();
        const double a = share();
        for (int i = 0; i < d_; ++i) mu[i] = mean_[i] = a * guess_[i];
        if (!std::all_of(x, x + d_, [](double v) { return std::isnan(v); })) learn(x);
        std::copy_backward(lags_, lags_ + (n_ - d_), lags_ + n_);
        for (int i = 0; i < d_; ++i) lags_[i] = std::isnan(x[i]) ? guess_[i] : x[i];
    }

  private:
    /// a, the part of the linear forecast that has proved itself.
    double share() const {
        return std::clamp(head_->slope / (head_->gate + MEAN_GATE_RIDGE), 0.0, 1.0);
    }

    /// z = clip(lags/sqrt(L)), zero for channels that were never seen.
    void scale_lags() {
        for (int k = 0; k < n_; ++k) {
            const double level = level_[k % d_];
            z_[k] = level > 0.0 ? std::clamp(lags_[k] / std::sqrt(level), -MEAN_LAG_LIMIT,
                                             MEAN_LAG_LIMIT)
                                : 0.0;
        }
    }

    /// mu^ = sqrt(L) o B^T z.
    void predict() {
        scale_lags();
        std::fill(guess_.begin(), guess_.end(), 0.0);
        for (int k = 0; k < n_; ++k)
            for (int i = 0; i < d_; ++i) guess_[i] += slopes_[k * d_ + i] * z_[k];
        for (int i = 0; i < d_; ++i) guess_[i] *= std::sqrt(level_[i]);
    }

    /// L, V, the gate and the regression take in what was seen.
    void learn(const double* x) {
        const double a = share();
        double n = 0.0, size = 0.0, power = 0.0, along = 0.0;
        for (int i = 0; i < d_; ++i) {
            left_[i] = std::isnan(x[i]) ? 0.0 : x[i] - a * guess_[i];
            if (std::isnan(x[i]) || !(noise_[i] > 0.0)) continue;
            n += 1.0;
            size += left_[i] * left_[i] / noise_[i];
            power += guess_[i] * guess_[i] / noise_[i];
            along += guess_[i] * x[i] / noise_[i];
        }
        const double u = (MEAN_NU + n) / (MEAN_NU + size);
        const double keep = std::exp2(-1.0 / MEAN_GATE_HALF_LIFE);
        head_->count += 1.0;
        head_->gate = keep * head_->gate + u * power;
        head_->slope = keep * head_->slope + u * along;
        const double gain = 1.0 / std::min(head_->count, LEVEL_MEMORY);
        const double quick =
            std::max(1.0 - std::exp2(-1.0 / MEAN_NOISE_HALF_LIFE), 1.0 / head_->count);
        for (int i = 0; i < d_; ++i) {
            if (std::isnan(x[i])) continue;
            take(level_[i], std::min(u, 1.0) * x[i] * x[i], x[i], gain);
            take(noise_[i], u * left_[i] * left_[i], x[i], quick);
        }
        if (head_->count > 1.0) regress(x, u);
    }

    static void take(double& total, double value, double x, double gain) {
        total = total == 0.0 ? x * x : total + gain * (value - total);
    }

    /// B <- B + f P z e^T,  P <- P - f P z z^T P,  f = u/(lam + u z^T P z); then P forgets.
    void regress(const double* x, double u) {
        const double keep = std::exp2(-1.0 / MEAN_HALF_LIFE);
        scale_lags();
        double length = 0.0, largest = 0.0;
        for (int k = 0; k < n_; ++k) {
            double sum = 0.0;
            for (int j = 0; j < n_; ++j) sum += spread_[k * n_ + j] * z_[j];
            direction_[k] = sum;
            length += sum * z_[k];
        }
        const double factor = u / (keep + u * length);
        for (int i = 0; i < d_; ++i)
            left_[i] = std::isnan(x[i]) || !(level_[i] > 0.0)
                           ? 0.0
                           : (x[i] - guess_[i]) / std::sqrt(level_[i]);
        for (int k = 0; k < n_; ++k) {
            const double f = factor * direction_[k];
            for (int i = 0; i < d_; ++i) slopes_[k * d_ + i] += f * left_[i];
            for (int j = 0; j < n_; ++j) spread_[k * n_ + j] -= f * direction_[j];
            largest = std::max(largest, spread_[k * n_ + k]);
        }
        largest *= MEAN_RIDGE;
        if (!(largest < 1.0)) return;
        const double grow = std::min(1.0 / keep, 1.0 / std::max(largest, 1e-300));
        for (std::int64_t k = 0; k < std::int64_t(n_) * n_; ++k) spread_[k] *= grow;
    }

    const int d_, n_;
    LinearMeanHead* head_ = nullptr;
    double *level_ = nullptr, *noise_ = nullptr, *mean_ = nullptr, *lags_ = nullptr, *slopes_ = nullptr,
           *spread_ = nullptr;
    std::vector<double> z_, direction_, guess_, left_;
};

}  // namespace
}  // namespace kgmrf
