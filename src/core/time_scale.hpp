// The covariance of signals whose rows predict each other, judged H rows ahead: two averages of
// half-life tau = H/2 and 1024 tau. See kgmrf.readable.time_scale for the formulas and the twin.
#pragma once
#include "declared.hpp"
#include "spread.hpp"
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace kgmrf {
namespace {

/// Full matrices of n x n numbers, row by row.
using Square = std::vector<double>;

/// One track of d channels and the space that a step works in.
class TimeScale {
  public:
    TimeScale(double* row, int d)
        : d_(d),
          pairs_(d * (d + 1) / 2),
          head_(*reinterpret_cast<TimeScaleHead*>(row)),
          short_(row + sizeof(TimeScaleHead) / sizeof(double)),
          long_(short_ + pairs_),
          frozen_short_(long_ + pairs_),
          frozen_long_(frozen_short_ + pairs_),
          mean_(frozen_long_ + pairs_),
          total_(d * d),
          inverse_(d * d),
          relative_(d * d),
          work_(d * d),
          seen_(pairs_),
          x_(d),
          y_(d),
          o_(d) {}

    static std::int64_t size(int d) {
        return sizeof(TimeScaleHead) / sizeof(double) + 5 * (std::int64_t(d) * (d + 1) / 2);
    }

    /// One row; NaN where nothing was seen.
    void step(const double* x, double dt) {
        const double tau = 0.5 * head_.horizon;
        head_.mass_short *= std::exp2(-dt / tau);
        head_.mass_long *= std::exp2(-dt / (tau * TIME_SCALE_LONG));
        if (std::all_of(x, x + d_, [](double v) { return std::isnan(v); })) return;
        expect(x);
        head_.count += 1.0;
        head_.gathered += 1.0;
        take(short_, head_.mass_short += 1.0);
        take(long_, head_.mass_long += 1.0);
        take(mean_, head_.gathered);
        if (head_.gathered < head_.horizon) return;
        if (head_.count > head_.gathered) score();
        std::copy_n(short_, 2 * pairs_, frozen_short_);
        std::fill_n(mean_, pairs_, 0.0);
        head_.gathered = 0.0;
    }

    /// Effective samples of H rows, and S = w B_1 + (1 - w) B_2.
    void write(double* record) {
        record[0] = head_.samples;
        blend(short_, long_);
        for (int i = 0; i < d_; ++i)
            for (int j = 0; j < d_; ++j)
                record[1 + i * d_ + j] = total_[i * d_ + i] > 0.0 && total_[j * d_ + j] > 0.0
                                             ? total_[i * d_ + j]
                                             : std::numeric_limits<double>::quiet_NaN();
    }

  private:
    static int pair(int i, int j) { return i >= j ? i * (i + 1) / 2 + j : j * (j + 1) / 2 + i; }
    double& at(Square& a, int i, int j) { return a[i * d_ + j]; }

    /// B <- B + (u E - B)/V.
    void take(double* B, double mass) {
        const double gain = 1.0 / mass;
        for (int p = 0; p < pairs_; ++p) B[p] += gain * (seen_[p] - B[p]);
    }

    /// S of two packed matrices.
    void blend(const double* a, const double* b) {
        const double w = head_.weight;
        for (int i = 0; i < d_; ++i)
            for (int j = 0; j <= i; ++j)
                at(total_, i, j) = at(total_, j, i) =
                    w * a[pair(i, j)] + (1.0 - w) * b[pair(i, j)];
    }

    /// u x x^T into seen_; missing cells by their expectation, with its covariance.
    void expect(const double* x) {
        blend(short_, long_);
        int n = 0;
        bool hidden = false;
        double size = 0.0;
        for (int i = 0; i < d_; ++i) {
            const bool known = !std::isnan(x[i]), there = at(total_, i, i) > 0.0;
            o_[i] = known && there;
            hidden |= !known && there;
            x_[i] = known ? x[i] : 0.0;
            if (o_[i]) ++n, size += x[i] * x[i] / at(total_, i, i);
        }
        const double u = n > 0 ? OUTLIER * n / std::max(size, OUTLIER * n) : 1.0;
        if (hidden) fill(x, n);
        for (int i = 0; i < d_; ++i)
            for (int j = 0; j <= i; ++j) {
                const bool both = hidden && std::isnan(x[i]) && std::isnan(x[j]);
                seen_[pair(i, j)] = u * x_[i] * x_[j] + (both ? at(work_, i, j) : 0.0);
            }
    }

    /// Missing cells of x_ by a share of their expectation; their covariance into work_.
    void fill(const double* x, int n) {
        invert(TIME_SCALE_RIDGE + SHRINKAGE / (head_.count + SHRINKAGE));
        double apart = 0.0;
        for (int i = 0; i < d_; ++i) {
            y_[i] = 0.0;
            for (int j = 0; j < d_; ++j) y_[i] += at(inverse_, i, j) * x_[j];
            apart += x_[i] * y_[i];
        }
        const double portion = 1.0 / std::sqrt(std::max(apart / (FILL_LIMIT * std::max(n, 1)), 1.0));
        multiply(inverse_, total_, relative_);
        multiply(total_, relative_, work_);
        for (int i = 0; i < d_; ++i)
            for (int j = 0; j < d_; ++j) at(work_, i, j) = at(total_, i, j) - at(work_, i, j);
        for (int i = 0; i < d_; ++i) {
            if (!std::isnan(x[i])) continue;
            double guess = 0.0;
            for (int j = 0; j < d_; ++j) guess += at(total_, i, j) * y_[j];
            x_[i] = portion * guess;
        }
    }

    /// The inverse of total_ over the channels of o_, zero elsewhere: Gauss and Jordan.
    void invert(double ridge) {
        for (int i = 0; i < d_; ++i)
            for (int j = 0; j < d_; ++j)
                at(inverse_, i, j) = o_[i] && o_[j] ? at(total_, i, j) : 0.0;
        for (int i = 0; i < d_; ++i)
            at(inverse_, i, i) = o_[i] ? at(total_, i, i) * (1.0 + ridge) : 1.0;
        for (int k = 0; k < d_; ++k) {
            const double pivot = 1.0 / at(inverse_, k, k);
            at(inverse_, k, k) = 1.0;
            for (int j = 0; j < d_; ++j) at(inverse_, k, j) *= pivot;
            for (int i = 0; i < d_; ++i) {
                if (i == k) continue;
                const double factor = at(inverse_, i, k);
                at(inverse_, i, k) = 0.0;
                for (int j = 0; j < d_; ++j) at(inverse_, i, j) -= factor * at(inverse_, k, j);
            }
        }
        for (int i = 0; i < d_; ++i)
            if (!o_[i]) at(inverse_, i, i) = 0.0;
    }

    void multiply(Square& a, Square& b, Square& to) {
        for (int i = 0; i < d_; ++i)
            for (int j = 0; j < d_; ++j) {
                double sum = 0.0;
                for (int k = 0; k < d_; ++k) sum += at(a, i, k) * at(b, k, j);
                at(to, i, j) = sum;
            }
    }

    /// The mean of the last H rows beside the averages before them: m and w learn.
    void score() {
        blend(frozen_short_, frozen_long_);
        int channels = 0;
        for (int i = 0; i < d_; ++i) channels += o_[i] = at(total_, i, i) > 0.0;
        invert(TIME_SCALE_RIDGE);
        for (int i = 0; i < d_; ++i)
            for (int j = 0; j < d_; ++j) at(work_, i, j) = mean_[pair(i, j)];
        multiply(inverse_, work_, relative_);  // S^-1 C
        double trace = 0.0, square = 0.0;
        for (int i = 0; i < d_; ++i) {
            trace += at(relative_, i, i);
            for (int j = 0; j < d_; ++j) square += at(relative_, i, j) * at(relative_, j, i);
        }
        if (channels == 0 || !(trace > 0.0)) return;
        const double n = channels;
        learn_spread(head_.judged, head_.spread, scatter_of(trace, square, n));
        const double m = head_.samples =
            std::min(std::max(samples_of(head_.spread, n), 1.0), head_.horizon);
        const double u = (MEAN_NU + m * n) / (MEAN_NU + m * trace);
        multiply(relative_, inverse_, work_);  // S^-1 C S^-1
        double g[2] = {0.0, 0.0};
        for (int i = 0; i < d_; ++i)
            for (int j = 0; j < d_; ++j) {
                const double slope = u * at(work_, i, j) - at(inverse_, i, j);
                g[0] += slope * frozen_short_[pair(i, j)];
                g[1] += slope * frozen_long_[pair(i, j)];
            }
        const double w[2] = {head_.weight, 1.0 - head_.weight};
        const double average = 0.5 * m * (w[0] * g[0] + w[1] * g[1]);
        double raised[2];
        for (int k = 0; k < 2; ++k) {
            const double excess = (0.5 * m * g[k] - average) / n;
            raised[k] = w[k] * std::exp(BLEND_RATE * std::clamp(excess, -BLEND_LIMIT, BLEND_LIMIT));
        }
        head_.weight =
            (1.0 - BLEND_SHARE) * raised[0] / (raised[0] + raised[1]) + 0.5 * BLEND_SHARE;
    }

    const int d_, pairs_;
    TimeScaleHead& head_;
    double *short_, *long_, *frozen_short_, *frozen_long_, *mean_;
    Square total_, inverse_, relative_, work_;
    std::vector<double> seen_, x_, y_;
    std::vector<char> o_;
};

}  // namespace
}  // namespace kgmrf
