// How tracks of many channels start: channels come, and axes are found in the first rows.
#pragma once
#include "low_rank_members.hpp"

namespace {

using namespace kgmrf;

class LowRankStart {
  public:
    explicit LowRankStart(const LowRankPlan& plan) : plan(plan) {}

    /// Channels whose first value other than zero is in this sample.
    ///
    /// Their variances are guessed from log x^2, drawn together as far as chance alone explains how
    /// different they are: channels of one unit share a guess, channels of unlike units do not.
    void add_channels(LowRankTrack t, const double* sample) {
        const auto is_new = [&](int i) { return !t.has(i) && sample[i] * sample[i] > 0.0; };
        int n = 0;
        bool first = true;
        double mean = 0.0, apart = 0.0;
        for (int i = 0; i < d; ++i) {
            first = first && !t.has(i);
            if (is_new(i)) ++n, mean += std::log(sample[i] * sample[i]);
        }
        if (n == 0) return;
        mean /= n;
        for (int i = 0; i < d; ++i)
            if (is_new(i)) {
                const double off = std::log(sample[i] * sample[i]) - mean;
                apart += off * off;
            }
        const double chance = LOG_SQUARE_VAR * (1.0 + 2.0 * std::sqrt(LOG_SQUARE_SPREAD / n));
        apart = std::max(apart / n - chance, 0.0);
        const double keep = apart / (apart + LOG_SQUARE_VAR);
        for (const LowRankMember& m : plan.members) {
            Factors f(t.row, m, s);
            if (first) f.numbers.noise_rows = f.numbers.metric_rows = 1.0 + LOW_RANK_PRIOR_ROWS;
        }
        for (int i = 0; i < d; ++i) {
            if (!is_new(i)) continue;
            const double power = sample[i] * sample[i];
            const double guess = std::max(
                std::exp(mean - LOG_SQUARE_MEAN + keep * (std::log(power) - mean)), SMALLEST);
            const double own = (power + LOW_RANK_PRIOR_ROWS * guess) / (1.0 + LOW_RANK_PRIOR_ROWS);
            t.level[i] = t.first[i] = guess;
            t.counts[i] = 1.0;
            for (const LowRankMember& m : plan.members) {
                Factors f(t.row, m, s);
                f.noise[i] = f.metric[i] = std::exp(-f.numbers.size) * own;
                for (int a = 0; a < m.states; ++a) axes_and_velocity(f)[a][i] = 0.0;
            }
        }
    }

    /// Axes and spectrum from the singular values of the first n rows, x/sqrt(v).
    void start_axes(LowRankTrack t, const LowRankMember& m, int n) {
        Factors f(t.row, m, s);
        const int r = m.rank, present = standardize(t, n);
        const Rows z{rows, n, s}, axes = axes_of(f, s), before{found, r, s};
        Matrix<0> A{a, n}, V{vectors, n};
        clear(A);
        gram(z, z, A, true);
        mirror(A);
        double power = 0.0, taken = 0.0;
        for (int i = 0; i < n; ++i) power += A[i][i];
        eigen(A, V, values, r, work);
        for (int k = 0; k < r; ++k) {
            taken += values[k];
            const bool there = values[k] > LOW_RANK_FOUND * std::max(values[0], 1e-300);
            scale[k] = there ? 1.0 / std::sqrt(values[k]) : 0.0;
        }
        // The noise level is what the first r values leave over, spread over the other rows.
        const double rest = std::max(power - taken, 0.0) / (double(n - r) * present);
        const double level = std::min(std::max(rest, LOW_RANK_SMALLEST_NOISE), 1.0);
        for (int k = 0; k < r; ++k)
            spikes[k] = spike(values[k] / (n * level), double(present) / n) * level;
        fill(share, s, 0.0);
        combine(
            r, [&](int i, int k) { return scale[i] * V[i][k]; }, [&](int) { return n; }, z,
            [&](int i, int j, vec u) {
                store(before[i] + j, u);
                store(share + j, load(share + j) + spikes[i] * u * u);
            });
        const double grow = std::exp(-f.numbers.size);
        for (int i = 0; i < s; ++i) {
            const double p = std::max(1.0 - share[i], LOW_RANK_SMALLEST_NOISE);
            f.noise[i] = f.metric[i] = t.has(i) ? grow * t.level[i] * p : 0.0;
            for (int k = 0; k < r; ++k)
                axes[k][i] = before[k][i] = t.has(i) ? before[k][i] / std::sqrt(p) : 0.0;
        }
        polish(axes, t.level, d);
        start_spectrum(f, axes, before);
        const double still = m.law.acceleration * m.law.acceleration / (2.0 * LOW_RANK_DECAY * d);
        fill(f.velocity, (m.states - r) * s, 0.0);
        fill(f.angle_var, m.states * m.states, 0.0);
        for (int i = 0; i < m.states; ++i)  // of a velocity as it is in the end
            f.angle_var[std::int64_t(i) * m.states + i] =
                i >= r ? still
                       : std::min(1.0 / (n * std::max(spikes[i], LOW_RANK_SMALLEST_FACTOR)), 1.0 / d);
        const double noise = m.law.noise_half_life;
        const auto known = [](double rows, double half_life) {
            return std::min(rows, LOW_RANK_MEMORY * half_life);
        };
        f.numbers.noise_rows = known(n + LOW_RANK_PRIOR_ROWS, noise);
        f.numbers.metric_rows =
            known(n + LOW_RANK_PRIOR_ROWS, std::max(LOW_RANK_METRIC_HALF_LIFE, noise));
        f.numbers.spectrum_rows = known(n, m.law.spectrum_half_life);
    }

    /// Variance of a factor behind a sample eigenvalue l, with d/n channels per row, noise 1.
    ///
    /// l = (1 + lam)(1 + ratio/lam) above (1 + sqrt(ratio))^2, where factors begin to show.
    static double spike(double value, double ratio) {
        const double b = value + 1.0 - ratio, edge = 1.0 + std::sqrt(ratio);
        if (!(value > edge * edge)) return std::sqrt(ratio);
        const double part = std::sqrt(std::max(b * b - 4.0 * value, 0.0));
        return std::max(0.5 * (b + part) - 1.0, LOW_RANK_SMALLEST_FACTOR);
    }

  private:
    const LowRankPlan& plan;
    const int d = plan.d, s = plan.stride, most = plan.buffer_rows, ranks = plan.most_rank;
    const std::size_t square = std::size_t(padded(most)) * padded(most);
    Room rows{std::size_t(most) * s}, found{std::size_t(ranks) * s};
    Room variance{s + 0u}, share{s + 0u};
    Room a{square}, vectors{square}, mixing{std::size_t(padded(ranks)) * padded(ranks)};
    Room values{padded(most) + 0u}, sizes{padded(most) + 0u}, work{4u * padded(most)};
    Room scale{padded(ranks) + 0u}, spikes{padded(ranks) + 0u};

    Rows axes_and_velocity(Factors f) const { return {f.axes, f.states, s}; }

    /// rows = x/sqrt(v) of the first n; v becomes the level. Returns how many channels are present.
    int standardize(LowRankTrack t, int n) {
        const Rows to{rows, n, s}, from{t.buffer, n, s};
        int present = 0;
        for (int i = 0; i < d; ++i) present += t.has(i);
        // A row far beyond the usual size counts as one at the limit, also if it was the first.
        for (int l = 0; l < n; ++l) {
            values[l] = 0.0;
            for (int i = 0; i < d; ++i)
                if (t.has(i)) values[l] += from[l][i] * from[l][i] / t.level[i];
            sizes[l] = values[l] /= present;
        }
        std::nth_element(sizes + 0, sizes + n / 2, sizes + n);
        const double usual = LOW_RANK_LIMIT * sizes[n / 2];
        fill(variance, s, 0.0);
        for (int l = 0; l < n; ++l) {
            const double part = usual > 0.0 ? std::sqrt(usual / std::max(values[l], usual)) : 1.0;
            for (int p = 0; p < s; p += W) {
                const vec x = part * load(from[l] + p);
                store(to[l] + p, x);
                store(variance + p, load(variance + p) + x * x);
            }
        }
        for (int i = 0; i < s; ++i) {
            const double power = variance[i];
            const double guess =
                power > 0.0 ? std::min(t.first[i], LOW_RANK_LIMIT * power / n) : t.first[i];
            const double v =
                (power + LOW_RANK_PRIOR_ROWS * guess) / (t.counts[i] + LOW_RANK_PRIOR_ROWS);
            if (t.has(i)) t.level[i] = std::max(v, SMALLEST);
            variance[i] = t.has(i) ? std::sqrt(t.level[i]) : 1.0;
        }
        for (int l = 0; l < n; ++l)
            for (int p = 0; p < s; p += W)
                store(to[l] + p, load(to[l] + p) / load(variance + p));
        return present;
    }

    /// Lam = M diag(spikes) M^T with what makes the axes of those before them, M = U U_before^T.
    void start_spectrum(Factors f, Rows axes, Rows before) {
        const int r = f.rank;
        Matrix<0> M{mixing, r};
        clear(M);
        gram(axes, before, M, false);
        for (int k = 0; k < r; ++k)
            if (dot(before[k], before[k], s) == 0.0) M[k][k] += 1.0;
        for (int i = 0; i < r; ++i)
            for (int j = 0; j < r; ++j) {
                double sum = 0.0;
                for (int k = 0; k < r; ++k) sum += M[i][k] * spikes[k] * M[j][k];
                f.spectrum[std::int64_t(i) * r + j] = sum;
            }
    }
};

}  // namespace
