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
#include "adjoint_parts.hpp"
#include "compare_adjoint.hpp"
#include "score_adjoint.hpp"
#include "turn_adjoint.hpp"
#include <numbers>
#include <tuple>

namespace {

using namespace kgmrf;

template <int S>
class EnsembleAdjoint {
  public:
    explicit EnsembleAdjoint(const EnsembleUnrolled& given)
        : given(given), plan(given.plan), d(plan.d), n(plan.pairs), k_(f.k_) {}

    /// Rows and records of all steps.
    void forwards() {
        for (std::int64_t i = 0; i < given.n; ++i)
            for (std::int64_t step = 0; step < given.n_frames; ++step) {
                const std::int64_t line = i * given.n_frames + step;
                double* before = row_of(i, step);
                double* now = before + plan.size;
                copy(before, now, static_cast<int>(plan.size));
                Track t(now, plan);
                f.step(t, Seen{nullptr, 0, 0.0, false}, given.dt[line]);
                f.note(t, given.forecasts + line * given.width, given.width);
                f.step(t, seen_of(line), 0.0);
                f.note(t, given.records + line * given.width, given.width);
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
    const EnsemblePlan& plan;
    Ensemble<S> f{given.plan};  // forwards
    const int d, n, k_;
    const int room = padded(n) + 8;
    CompareAdjoint<S> compared{plan.d};
    TurnBack<S> turning{plan.d};

    double* bar_row = nullptr;
    Room drifted{std::size_t(plan.size) + 8};
    Room parts_bar{std::size_t(f.k_) * room}, slope{room + 0u}, mean_bar{room + 0u},
        rest_bar{room + 0u}, own{room + 0u}, own_bar{room + 0u}, packed{room + 0u};
    Room weights_bar{f.k_ + 0u}, blended_bar{f.k_ + 0u}, raw{f.k_ + 0u}, gradient_bar{f.k_ + 0u};
    const std::size_t vector = std::size_t(padded(plan.d)) + 8;
    Room y{vector}, y_bar{vector}, lam_bar{vector};
    const std::size_t square = std::size_t(padded(plan.d)) * padded(plan.d);
    Room full[8] = {Room(square), Room(square), Room(square), Room(square),
                    Room(square), Room(square), Room(square), Room(square)};
    Matrix<S> matrix(int k) { return {full[k], d}; }
    Matrix<S> total_bar = matrix(0), a = matrix(1), b = matrix(2), c = matrix(3), e = matrix(4),
              frame = matrix(5), body = matrix(6), body_bar = matrix(7);

    double* row_of(std::int64_t track, std::int64_t step) const {
        return given.rows + (track * (given.n_frames + 1) + step) * plan.size;
    }
    double* part_bar(int k) const { return parts_bar + std::size_t(k) * room; }
    MemberLine& table_bar(int k) const {
        return reinterpret_cast<MemberLine*>(given.table_bar)[k];
    }
    Learning& learning_bar() const { return *reinterpret_cast<Learning*>(given.learning_bar); }

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

    // ------------------------------------------------------------------------ one step

    void back(std::int64_t i, std::int64_t step) {
        const std::int64_t line = i * given.n_frames + step;
        Track before(row_of(i, step), plan), after(row_of(i, step + 1), plan), bar(bar_row, plan);
        const auto one = [&](const double* bars, std::int64_t size) {
            return bars ? bars + line * size : nullptr;
        };
        if (const double* roots = one(given.roots_bar, k_))
            for (int k = 0; k < k_; ++k) bar.roots[k] += roots[k];
        const double* estimate = one(given.estimate_bar, n);
        if (estimate && after.head.count > 0.0) {
            const bool sharp = !std::isnan(after.head.values);
            look(after, sharp);
            back_record(after, bar, sharp, estimate, nullptr);
            back_forecast(after, bar, sharp);
        }
        copy(before.row, drifted, static_cast<int>(plan.size));
        Track t(drifted, plan);
        const bool fresh = t.head.count == 0.0;
        if (fresh)
            t.head.time += given.dt[line];
        else
            f.drift(t, given.dt[line]);
        const Seen seen = seen_of(line);
        double* values_bar = given.values_bar + line * given.samples * d;
        if (fresh) {
            if (after.head.count > 0.0) back_start(after, bar, seen, values_bar);
            return;
        }
        look(t, false);
        if (seen.m > 0.0) {
            const double* likelihood = one(given.likelihood_bar, 1);
            back_step(t, after, bar, seen, likelihood ? *likelihood : 0.0, values_bar);
        }
        back_record(t, bar, false, one(given.covariance_bar, n), one(given.scale_bar, n));
        if (const double* tails = one(given.tails_bar, N_TAILS))
            for (int j = 0; j < N_TAILS; ++j) bar.tails[j] += tails[j];
        if (const double* size = one(given.size_bar, 1))
            back_size_std(t.wander, bar.wander, f.horizon.gap(), *size);
        back_forecast(t, bar, false);
        back_drift(before, bar, given.dt[line]);
    }

    /// S_k, weights and S of a row; no derivatives by them yet.
    void look(Track t, bool sharp) {
        f.hold(t);
        f.blend(t, sharp);
        compared.top.aim(f.top_of(t), f.forecast);
        compared.top.begin();
        clear(total_bar);
        fill(parts_bar, k_ * room, 0.0);
        fill(weights_bar, k_, 0.0);
    }

    /// Back through `note`, from derivatives by the packed covariance and scale of a record.
    void back_record(Track t, Track bar, bool sharp, const double* covariance,
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
                part_bar(steady)[p] += heavy * share * cov;
                kappa_bar += whole_bar * whole;
                packed[p] = scale * whole_bar;
            }
        spread(packed, a);
        compared.top.back_extra(a);
        add(total_bar, a, 1.0);
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
        compared.top.back_aim(f.top_of(t), f.top_of(bar), f.forecast, total_bar);
        fill(packed, n, 0.0);
        gather(total_bar, packed, 1.0);
        for (int k = 0; k < k_; ++k) {
            blended_bar[k] = dot(packed, f.part(k), n);
            for (int p = 0; p < n; ++p) part_bar(k)[p] += f.weights[k] * packed[p];
        }
        f.horizon.pull_back(blended_bar);
        for (int k = 0; k < k_; ++k) weights_bar[k] += blended_bar[k];
        back_blend(t.roots, f.horizon.weights(), weights_bar, k_, sharp, bar.roots);
        back_hold(t, bar);
    }

    void back_hold(Track t, Track bar) {
        for (int k = 0; k < k_; ++k) {
            const Member& m = f.members[k];
            double* from = part_bar(k);
            if (m.kind == Kind::turning) {
                back_hold_turning(t, f.turned(t, m), f.turned(bar, m), bar, from);
                continue;
            }
            const double* deviation = t.of(m.deviation);
            const bool average = m.kind == Kind::average;
            const double size = average && m.size >= 0 ? std::exp(t.row[m.size]) : 1.0;
            const double rho = average ? SHRINKAGE / (t.row[m.mass] + SHRINKAGE) : 0.0;
            double size_bar = 0.0, rho_bar = 0.0;
            for (int i = 0, p = 0; i < d; ++i)
                for (int j = 0; j <= i; ++j, ++p) {
                    const double units = deviation ? deviation[i] * deviation[j] : 1.0;
                    const double factor = size * units * (i == j ? 1.0 : 1.0 - rho);
                    const double base = average ? t.of(m.body)[p] : i == j ? 1.0 : 0.0;
                    const double whole = factor * base;
                    double whole_bar = from[p];
                    if (i == j) {
                        const double least = FLOOR * t.level[i];
                        if (!t.has(i)) whole_bar = 0.0;
                        whole_bar *= 1.0 + 1e-9;
                        if (whole < least) bar.level[i] += FLOOR * whole_bar, whole_bar = 0.0;
                    } else {
                        rho_bar -= whole_bar * size * units * base;
                    }
                    size_bar += whole_bar * whole;
                    if (average) bar.of(m.body)[p] += whole_bar * factor;
                    if (!deviation || whole == 0.0) continue;
                    bar.of(m.deviation)[i] += whole_bar * whole / deviation[i];
                    bar.of(m.deviation)[j] += whole_bar * whole / deviation[j];
                }
            if (!average) continue;
            if (m.size >= 0) bar.row[m.size] += size_bar;
            bar.row[m.mass] -= rho_bar * rho / (t.row[m.mass] + SHRINKAGE);
        }
    }

    void back_drift(Track before, Track bar, double dt) {
        TopNumbers top = f.top_of(bar);
        top.variance *= f.top_keep;
        for (int k = 0; k < k_; ++k) {
            const Member& m = f.members[k];
            if (m.mass >= 0) {
                double& mass_bar = bar.row[m.mass];
                table_bar(k).half_life += mass_bar * before.row[m.mass] * f.fade[k] *
                                          std::numbers::ln2 * dt /
                                          (m.law.half_life * m.law.half_life);
                mass_bar *= f.fade[k];
            }
            if (m.size >= 0) bar.row[m.size] *= f.size_keep;
            if (m.kind == Kind::turning && !before.pooling())
                back_drift_turning(f.turned(before, m), f.turned(bar, m), k, dt);
        }
    }

#include "ensemble_adjoint_learn.hpp"
#include "ensemble_adjoint_turning.hpp"
};

}  // namespace
