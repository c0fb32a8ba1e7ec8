// The way back through one observation: what a track learns from it (ensemble.hpp: compare, judge,
// learn, start).
#pragma once
#include "ensemble_adjoint_average.hpp"
#include "ensemble_adjoint_rotating.hpp"
#include "score_adjoint.hpp"

namespace {

using namespace kgmrf;

template <int S>
class LearnAdjoint {
  public:
    LearnAdjoint(AdjointRoom<S>& own, AverageAdjoint<S>& averages, TurningAdjoint<S>& turning)
        : own(own), averages(averages), turning(turning) {}

    /// Back through `observe`: derivatives by the row after it become those by the row before it,
    /// and by S_k, the weights and S.
    void observe(Track t, Track after, Track bar, const Seen& seen, double likelihood_bar,
                 double* values_bar) {
        f.mark_present(t);
        const int n_there = static_cast<int>(std::count(f.there.get(), f.there.get() + d, true));
        entered(t, after, bar);
        const Compared c = seen.matrix ? f.compare_matrix(n_there, seen.m) : f.compare(t, seen);
        if (!(c.values > 0.0)) return;
        // Forwards once more, as `score` and `learn`.
        const Head& h = t.head;
        const double kappa = h.kappa, doubt = doubt_of(h.samples, d);
        const double log_wide = std::log(widening(doubt, n_there));
        const double shrunk = std::exp(-kappa - log_wide), grown = c.values * (kappa + log_wide);
        pack(f.mean_full, f.mean);
        const double apart = c.holes ? std::exp(kappa) / c.m : 0.0;
        scale(f.rest_full, apart), pack(f.rest_full, f.rest);
        const double size_std = Wander::size_std(t.wander, f.horizon.gap());
        f.tail_logs.take(c.values, doubt);
        const double q = std::fmin(shrunk * c.distance, FARTHEST);
        const double q_top = std::fmin(shrunk * (c.distance - c.top.distance), FARTHEST);
        const double log_det = c.log_det + c.top.log_det + grown;
        const Mixed found = mix_tails(t.tails, f.tail_logs, q, c.log_det + grown, size_std);
        const Mixed mixed = mix_tails(t.tails, f.tail_logs, q_top, log_det, size_std);
        const double log_size =
            (log_det - sum_of_logs(f.cells, t.level, d)) / c.values - log_wide;
        const double factor = found.u * shrunk;
        for (int i = 0, p = 0; i < d; ++i)
            for (int j = 0; j <= i; ++j, ++p)
                slope[p] = (i == j ? 0.5 : 1.0) * (factor * f.outer[i][j] - f.precision[i][j]);
        for (int k = 0; k < k_; ++k) f.gradient[k] = raw[k] = dot(slope, f.part(k), n);
        f.horizon.pull_back(f.gradient);
        const bool early = h.samples + c.m <= EARLY;
        const double far = OUTLIER * c.values;

        // Back through `learn`.
        const bool single = !seen.matrix && seen.samples == 1 && !c.holes;
        const bool in_full = early || (doubt > 0.0 && found.u > 1.0);
        Learnt s{in_full ? 1.0 : found.u, early ? 1.0 : far / std::max(q, far),
                 double(n_there), early, single, 0.0, 0.0};
        fill(mean_bar, n, 0.0), fill(rest_bar, n, 0.0), fill(own.x_bar, d, 0.0);
        if (own.plan.n_turning > 0) turning.learn(t, after, bar, s, c.m);
        if (single) averages.solve_clocks();
        for (int k = 0; k < k_; ++k)
            if (f.members[k].kind != Kind::turning) averages.learn(t, after, bar, k, s);
        for (int i = 0; i < d; ++i) {
            if (!t.has(i)) continue;
            const int p = pair(i, i);
            const double gain = 1.0 / std::min(age_of(t, i), LEVEL_MEMORY);
            const double level = t.level[i] + gain * (s.u * f.mean[p] + f.rest[p] - t.level[i]);
            const double level_bar = level > SMALLEST ? bar.level[i] : 0.0;
            s.u_bar += level_bar * gain * f.mean[p];
            mean_bar[p] += level_bar * gain * s.u;
            rest_bar[p] += level_bar * gain;
            bar.level[i] = (1.0 - gain) * level_bar;
        }
        double q_bar = !early && q > far ? -s.limited_bar * s.limited / q : 0.0;

        // Back through `score`.
        double kappa_bar = 0.0;
        Mixed found_bar{}, told_bar{};
        told_bar.log_p = likelihood_bar;
        found_bar.u = in_full ? 0.0 : s.u_bar;
        const double rate = own.plan.learning.kappa_gain, ratio = found.u * q / c.values - 1.0;
        const double inside = 1.0 + rate * ratio, shifted = kappa + std::log1p(rate * ratio);
        if (q <= far && std::fabs(shifted) < KAPPA_LIMIT) {
            kappa_bar = bar.head.kappa;
            own.learning_bar().kappa_gain += kappa_bar * ratio / inside;
            found_bar.u += kappa_bar * rate * q / (c.values * inside);
            q_bar += kappa_bar * rate * found.u / (c.values * inside);
        }
        fill(gradient_bar, k_, 0.0);
        back_weights(
            t.roots, k_, f.horizon.weights(), f.gradient, c.m / c.values, own.plan.learning.blend_rate,
            q > far, bar.roots, weights_bar, gradient_bar,
            [&](int k) -> double& { return own.table_bar(k).root; }, own.learning_bar().blend_rate);
        f.horizon.back(raw, gradient_bar, weights_bar);
        fill(packed, n, 0.0);
        for (int k = 0; k < k_; ++k) {
            const double *part = f.part(k), share = gradient_bar[k];
            double* part_bar = own.part_bar(k);
            each(n, [&]<class V>(int p) {
                store(packed + p, load<V>(packed + p) + share * load<V>(part + p));
                store(part_bar + p, load<V>(part_bar + p) + share * load<V>(slope + p));
            });
        }
        unpack(packed, a);
        const double factor_bar = 0.5 * dot(a.p, f.outer.p, a.size());
        copy(a, compared.outer), scale(compared.outer, 0.5 * factor);
        copy(a, compared.precision), scale(compared.precision, -0.5);
        found_bar.u += factor_bar * shrunk;
        kappa_bar -= factor_bar * factor;
        for (int j = 0; j < N_TAILS; ++j) {
            tail_of(own.learning_bar(), j) += TAIL_SHARE * bar.tails[j];
            found_bar.share[j] = (1.0 - TAIL_SHARE) * bar.tails[j], bar.tails[j] = 0.0;
        }
        const double z = shrunk * c.top.share / c.m;
        const double heavy = heaviness(t.tails);
        auto learnt = compared.top.back_learn(f.top_of(t), f.top_of(bar), z, c.m, mixed.u, heavy, f.age);
        told_bar.u += learnt.u;
        kappa_bar -= learnt.z * z;
        const double size_bar =
            back_wander(t.wander, bar.wander, log_size, h.count, f.age) / c.values;
        for (int i = 0; i < d; ++i)
            if (t.has(i)) bar.level[i] -= size_bar * f.cells[i] / t.level[i];
        MixtureBar by_found, by_told;
        by_found.q = q_bar;
        back_mixture(t.tails, f.tail_logs, q, size_std, found_bar, by_found);
        back_mixture(t.tails, f.tail_logs, q_top, size_std, told_bar, by_told);
        by_told.log_det += size_bar;
        const double wide = widened(size_std);
        const Bias learned(t.bias, q_top / (c.values * heavy * wide), c.m, h.count);
        if (std::fabs(learned.unclipped) >= BIAS_LIMIT) {
            bar.bias = 0.0;
        } else if (learned.size < OUTLIER) {
            // By log r.
            const double log_bar = bar.bias * learned.gain * learned.size / learned.grown;
            const double reach = SIZE_NODES[2];
            bar.bias -= log_bar;
            by_told.q += q_top > 0.0 ? log_bar / q_top : 0.0;
            by_told.size_std -= log_bar * reach * std::sinh(reach * size_std) / (3.0 * wide);
            learnt.heavy -= log_bar / heavy;
        }
        for (int j = 0; j < N_TAILS; ++j)
            bar.tails[j] += by_found.tails[j] + by_told.tails[j] +
                            learnt.heavy * (TAILS[j] / (TAILS[j] - 2.0));
        back_size_std(t.wander, bar.wander, f.horizon.gap(), by_found.size_std + by_told.size_std);
        compared.distance = shrunk * (by_found.q + by_told.q);
        compared.log_det = by_found.log_det + by_told.log_det;
        compared.along = {learnt.z * shrunk / c.m, -shrunk * by_told.q, by_told.log_det};
        kappa_bar += c.values * compared.log_det - by_found.q * q - by_told.q * q_top;
        kappa_bar += dot(rest_bar, f.rest, n);
        bar.head.kappa = kappa_bar;

        // Back through `compare`.
        spread(mean_bar, compared.mean);
        spread(rest_bar, compared.rest), scale(compared.rest, apart);
        if (seen.matrix)
            f.mark_present(t), f.invert_forecast(),
                compared.back_matrix(f, seen.m, own.total_bar, values_bar);
        else
            compared.back(f, t, seen, c.m, own.total_bar, values_bar);
        for (int i = 0; single && i < d; ++i)
            if (f.there[i]) values_bar[i] += own.x_bar[i];
    }

    /// Back through `start`, the first observation.
    void start(Track after, Track bar, const Seen& seen, double* values_bar) {
        fill(y, d, 0.0);  // by the levels
        fill(packed, n, 0.0);
        for (int i = 0; i < d; ++i) y[i] = bar.level[i];
        for (int k = 0; k < k_; ++k) {
            const Member& m = f.members[k];
            const double* deviation = after.of(m.deviation);
            const double* from = m.kind == Kind::turning ? bar.of(m.turned) : bar.of(m.body);
            const double* body_of = m.kind == Kind::turning ? after.of(m.turned) : after.of(m.body);
            double* units_bar = y_bar;
            for (int i = 0; i < d; ++i) units_bar[i] = deviation ? bar.of(m.deviation)[i] : 0.0;
            for (int i = 0; from && i < d; ++i) {
                if (!deviation) y[i] += from[pair(i, i)];
                for (int j = 0; j < i; ++j) {
                    const int p = pair(i, j);
                    if (!after.has(i) || !after.has(j)) continue;
                    packed[p] += deviation ? from[p] / (deviation[i] * deviation[j]) : from[p];
                    if (!deviation) continue;
                    units_bar[i] -= from[p] * body_of[p] / deviation[i];
                    units_bar[j] -= from[p] * body_of[p] / deviation[j];
                }
            }
            for (int i = 0; deviation && i < d; ++i)
                if (after.has(i)) y[i] += 0.5 * units_bar[i] / deviation[i];
        }
        for (int i = 0; i < d; ++i)
            packed[pair(i, i)] = after.has(i) ? (1.0 + 1.0 / seen.m) * y[i] : 0.0;
        spread(packed, a);
        for (int i = 0; seen.matrix && i < d; ++i)
            for (int j = 0; j < d; ++j) values_bar[i * d + j] += a[i][j];
        for (std::int64_t r = 0; !seen.matrix && r < seen.samples; ++r) {
            const double* sample = seen.x + r * d;
            for (int i = 0; i < d; ++i) {
                if (std::isnan(sample[i])) continue;
                double sum = 0.0;
                for (int j = 0; j < d; ++j)
                    if (!std::isnan(sample[j])) sum += a[i][j] * sample[j];
                values_bar[r * d + i] += 2.0 / seen.m * sum;
            }
        }
        // Before it only tails and roots stand.
        copy(bar.tails, y, N_TAILS), copy(bar.roots, raw, k_);
        fill(bar.row, static_cast<int>(own.plan.size), 0.0);
        copy(y, bar.tails, N_TAILS), copy(raw, bar.roots, k_);
    }

  private:
    AdjointRoom<S>& own;
    AverageAdjoint<S>& averages;
    TurningAdjoint<S>& turning;
    Ensemble<S>& f = own.f;
    CompareAdjoint<S>& compared = own.compared;
    const int d = own.d, n = own.n, k_ = own.k_;
    Matrix<S> a = own.a;
    double *packed = own.packed, *y = own.y, *y_bar = own.y_bar;
    double *mean_bar = own.mean_bar, *rest_bar = own.rest_bar, *weights_bar = own.weights_bar;
    Room slope{own.room + 0u}, raw{k_ + 0u}, gradient_bar{k_ + 0u};

    /// Numbers of channels that came at the end of a step are given: no derivatives by them.
    void entered(Track t, Track after, Track bar) {
        bool any = false;
        for (int i = 0; i < d; ++i) {
            if (t.has(i) || !after.has(i)) continue;
            any = true;
            bar.level[i] = 0.0;
            for (int k = 0; k < k_; ++k) {
                const Member& m = f.members[k];
                if (double* deviation = bar.of(m.deviation)) deviation[i] = 0.0;
                double* packed_bar = m.kind == Kind::turning ? bar.of(m.turned) : bar.of(m.body);
                for (int j = 0; packed_bar && j < d; ++j)
                    packed_bar[pair(std::max(i, j), std::min(i, j))] = 0.0;
            }
        }
        if (!any || t.pooling()) return;
        for (int k = k_ - own.plan.n_turning; k < k_; ++k)
            fill(bar.of(f.members[k].turned), d * d + 4 * own.plan.planes + d + 1, 0.0);
    }
};

}  // namespace
