// Sequences of the ensemble forwards, keeping the row before each step, and backwards: derivatives of
// a loss by observations, members and settings.
//
// The way back needs only the rows: it computes each step again and turns the derivatives by the row
// after it into those by the row before it. They lie in a row of the same layout, but for the frames
// of turning members: there is the skew Z with dL = sum Z_ij (Q^T dQ)_ij (turn_adjoint.hpp). ``bar``
// after a name means the derivative by it. That by a full symmetric matrix is symmetric, with
// dL = sum bar_ij dS_ij; that by a packed one has one number for each number.
//
// Clips and guards pass derivatives as their branches do. What a channel brings with it that comes
// late counts as given.
#pragma once
#include "ensemble_adjoint_learn.hpp"

namespace {

using namespace kgmrf;

template <int S>
class EnsembleAdjoint {
  public:
    explicit EnsembleAdjoint(const EnsembleUnrolled& given) : given(given), own(given) {}

    /// Rows of all steps, and what they give.
    void forwards() {
        const auto &out = given.out;
        for (std::int64_t i = 0; i < given.n; ++i)
            for (std::int64_t step = 0; step < given.n_frames; ++step) {
                const std::int64_t line = i * given.n_frames + step;
                double* row = row_of(i, step);
                if (given.keep) row = copy_row(row, row + plan.size);
                Track t(row, plan);
                const Seen seen = seen_of(line);
                double *forecast = out.forecast + line * n, *estimate = out.covariance + line * n;
                f.advance(t, given.dt[line]);
                const bool fresh = t.head.count == 0.0;
                look(t, false, forecast, out.scale + line * n);
                copy(t.tails, out.tails + line * N_TAILS, N_TAILS);
                out.size_std[line] = fresh ? 0.0 : Wander::size_std(t.wander, f.horizon.gap());
                f.mark_present(t);
                const auto there = std::count(f.there.get(), f.there.get() + d, true);
                out.youth[2 * line] = doubt_of(t.head.samples, d);
                out.youth[2 * line + 1] = widening(out.youth[2 * line], double(there));
                if (seen.m > 0.0) f.observe(t, seen);
                out.log_prob[line] = t.head.likelihood;
                if (seen.m > 0.0)
                    look(t, !std::isnan(t.head.values), estimate, nullptr);
                else
                    copy(forecast, estimate, n);
                // Those of the filtered row without the sharper blend of the estimate.
                blend_weights(t.roots, k_, false, f.weights);
                f.horizon.look(t.age());
                f.horizon.carry(f.weights);
                copy(f.weights, out.weights + line * k_, k_);
            }
    }

    /// All derivatives.
    void backwards() {
        const int size = static_cast<int>(plan.size);
        for (std::int64_t i = 0; i < given.n; ++i) {
            bar_row = given.start_bar + i * plan.size;
            fill(bar_row, size, 0.0);
            for (std::int64_t step = given.n_frames; step-- > 0;) {
                back(i, step);
                if (given.reach > 0 && step > 0 && step % given.reach == 0) fill(bar_row, size, 0.0);
            }
        }
    }

  private:
    const EnsembleUnrolled& given;
    AdjointRoom<S> own;
    AverageAdjoint<S> averages{own};
    TurningAdjoint<S> turning{own};
    LearnAdjoint<S> learnt{own, averages, turning};
    Ensemble<S>& f = own.f;
    CompareAdjoint<S>& compared = own.compared;
    const EnsemblePlan& plan = given.plan;
    const int d = own.d, n = own.n, k_ = own.k_;
    double *packed = own.packed, *weights_bar = own.weights_bar;
    double* bar_row = nullptr;
    Room drifted{std::size_t(plan.size) + 8}, blended_bar{k_ + 0u};

    double* row_of(std::int64_t track, std::int64_t step) const {
        return given.rows + (given.keep ? track * (given.n_frames + 1) + step : track) * plan.size;
    }
    double* copy_row(const double* from, double* to) const {
        std::memcpy(to, from, sizeof(double) * std::size_t(plan.size));
        return to;
    }

    Seen seen_of(std::int64_t line) {
        const std::int64_t length = given.samples * d;
        Seen seen{given.values + line * length, given.samples, 0.0, given.matrix};
        if (!(given.counts[line] > 0.0)) return seen;
        if (!given.matrix)
            seen.m = std::max(count_samples(seen.x, given.samples, d), 0.0);
        else if (take_covariance(seen.x, f.observed, f.turn.a, -1.0) == Status::observed)
            seen.m = given.counts[line];
        return seen;
    }

    /// Holds and blends; its covariance and, where asked for, its scale. Channels that were never
    /// seen are independent, of variance 1.
    void look(Track t, bool sharp, double* covariance, double* scale) {
        if (t.head.count > 0.0) f.hold(t), f.blend(t, sharp);
        const auto write = [&](int i, int j, double v, double whole) {
            const double alone = i == j ? 1.0 : 0.0;
            covariance[pair(i, j)] = std::isnan(v) ? alone : v;
            if (scale) scale[pair(i, j)] = std::isnan(whole) ? alone : whole;
        };
        f.report(t, sharp, write);
    }

    // ------------------------------------------------------------------------ one step back

    void back(std::int64_t i, std::int64_t step) {
        const std::int64_t line = i * given.n_frames + step;
        const double dt = given.dt[line];
        Track before(row_of(i, step), plan), after(row_of(i, step + 1), plan), bar(bar_row, plan);
        const auto at = [&](const double* bars, std::int64_t size) {
            return bars ? bars + line * size : nullptr;
        };
        if (const double* weights = at(given.bar.weights, k_)) back_shown(after, bar, weights);
        const double* estimate = at(given.bar.covariance, n);
        if (estimate && after.head.count > 0.0) {
            const bool sharp = !std::isnan(after.head.values);
            take_up(after, sharp);
            back_report(after, bar, sharp, estimate, nullptr);
            back_forecast(after, bar, sharp);
        }
        Track t(copy_row(before.row, drifted), plan);
        f.advance(t, dt);
        const Seen seen = seen_of(line);
        double* values_bar = given.values_bar + line * given.samples * d;
        const double* tails = at(given.bar.tails, N_TAILS);
        if (t.head.count == 0.0) {
            if (after.head.count > 0.0) learnt.start(after, bar, seen, values_bar);
            for (int j = 0; tails && j < N_TAILS; ++j) bar.tails[j] += tails[j];
            return;
        }
        take_up(t, false);
        if (seen.m > 0.0) {
            const double* log_prob = at(given.bar.log_prob, 1);
            learnt.observe(t, after, bar, seen, log_prob ? *log_prob : 0.0, values_bar);
        }
        back_report(t, bar, false, at(given.bar.forecast, n), at(given.bar.scale, n));
        for (int j = 0; tails && j < N_TAILS; ++j) bar.tails[j] += tails[j];
        if (const double* size = at(given.bar.size_std, 1))
            back_size_std(t.wander, bar.wander, f.horizon.gap(), *size);
        back_forecast(t, bar, false);
        back_drift(before, bar, dt);
    }

    /// Back through the weights that are shown after a step.
    void back_shown(Track t, Track bar, const double* weights) {
        blend_weights(t.roots, k_, false, f.weights);
        f.horizon.look(t.age());
        f.horizon.carry(f.weights);
        copy(weights, blended_bar, k_);
        f.horizon.pull_back(blended_bar);
        back_blend(t.roots, f.horizon.weights(), blended_bar, k_, false, bar.roots);
    }

    /// S_k, weights and S of a row; no derivatives by them yet.
    void take_up(Track t, bool sharp) {
        f.hold(t);
        f.blend(t, sharp);
        compared.top.aim(f.top_of(t), f.forecast);
        compared.top.begin();
        clear(own.total_bar);
        fill(own.parts_bar, k_ * own.room, 0.0);
        fill(weights_bar, k_, 0.0);
    }

    /// Back through `report`, from derivatives by the covariance and scale.
    void back_report(Track t, Track bar, bool sharp, const double* covariance,
                     const double* scaled) {
        if (!covariance && !scaled) return;
        const bool known = t.head.count > 1.0;
        const double size_std = Wander::size_std(t.wander, f.horizon.gap());
        const double scale = known ? std::exp(t.head.kappa) : 1.0;
        const double moment = heaviness(t.tails), wide = widened(size_std);
        const double heavy = known ? moment * wide * std::exp(t.bias) : 1.0;
        const double share = sharp || plan.steady < 0 || !known ? 0.0 : STEADY_SHARE;
        const int steady = std::max(plan.steady, 0);
        double heavy_bar = 0.0, kappa_bar = 0.0;
        for (int i = 0, p = 0; i < d; ++i)
            for (int j = 0; j <= i; ++j, ++p) {
                packed[p] = 0.0;
                if (!t.has(i) || !t.has(j)) continue;
                const double whole = scale * (f.total[p] + compared.top.extra(i, j));
                const double cov = covariance ? covariance[p] : 0.0;
                const double whole_bar = heavy * (1.0 - share) * cov + (scaled ? scaled[p] : 0.0);
                heavy_bar += cov * ((1.0 - share) * whole + share * f.part(steady)[p]);
                own.part_bar(steady)[p] += heavy * share * cov;
                kappa_bar += whole_bar * whole;
                packed[p] = scale * whole_bar;
            }
        spread(packed, own.a);
        compared.top.back_extra(own.a);
        add(own.total_bar, own.a, 1.0);
        if (!known) return;
        bar.head.kappa += kappa_bar;
        bar.bias += heavy_bar * heavy;
        heavy_bar *= std::exp(t.bias);
        for (int j = 0; j < N_TAILS; ++j)
            bar.tails[j] += heavy_bar * wide * (TAILS[j] / (TAILS[j] - 2.0));
        const double reach = SIZE_NODES[2];
        const double size_bar = heavy_bar * moment * reach * std::sinh(reach * size_std) / 3.0;
        back_size_std(t.wander, bar.wander, f.horizon.gap(), size_bar);
    }

    /// Back through the top direction, `blend` and `hold`.
    void back_forecast(Track t, Track bar, bool sharp) {
        compared.top.back_aim(f.top_of(t), f.top_of(bar), f.forecast, own.total_bar);
        fill(packed, n, 0.0);
        gather(own.total_bar, packed, 1.0);
        for (int k = 0; k < k_; ++k) {
            blended_bar[k] = dot(packed, f.part(k), n);
            const double share = f.weights[k];
            double* part_bar = own.part_bar(k);
            each(n, [&]<class V>(int p) {
                store(part_bar + p, load<V>(part_bar + p) + share * load<V>(packed + p));
            });
        }
        f.horizon.pull_back(blended_bar);
        for (int k = 0; k < k_; ++k) weights_bar[k] += blended_bar[k];
        back_blend(t.roots, f.horizon.weights(), weights_bar, k_, sharp, bar.roots);
        for (int k = 0; k < k_; ++k)
            if (f.members[k].kind == Kind::turning)
                turning.hold(t, bar, k);
            else
                averages.hold(t, bar, k);
    }

    void back_drift(Track before, Track bar, double dt) {
        TopNumbers top = f.top_of(bar);
        top.variance *= f.top_keep;
        for (int k = 0; k < k_; ++k) {
            const Member& m = f.members[k];
            if (m.mass >= 0) {
                double& mass_bar = bar.row[m.mass];
                own.table_bar(k).half_life += mass_bar * before.row[m.mass] * f.fade[k] *
                                              std::numbers::ln2 * dt /
                                              (m.law.half_life * m.law.half_life);
                mass_bar *= f.fade[k];
            }
            if (m.size >= 0) bar.row[m.size] *= f.size_keep;
            if (m.kind == Kind::turning && !before.pooling()) turning.drift(before, bar, k, dt);
        }
    }
};

}  // namespace
