// The way back through the members whose eigenframe turns (ensemble_rotating.hpp).
#pragma once
#include "ensemble_adjoint_room.hpp"

namespace {

using namespace kgmrf;

template <int S>
class TurningAdjoint {
  public:
    explicit TurningAdjoint(AdjointRoom<S>& own) : own(own) {}

    /// Back through S_k of member k: E Q diag(lam) Q^T E, or the pooled covariance.
    void hold(Track t, Track bar, int k) {
        const Turned now = f.turned(t, f.members[k]), now_bar = f.turned(bar, f.members[k]);
        const double* from = own.part_bar(k);
        if (t.pooling()) {
            const double off = t.head.pooled / (t.head.pooled + 1.0);
            for (int i = 0, p = 0; i < d; ++i)
                for (int j = 0; j <= i; ++j, ++p) now_bar.pool()[p] += (i == j ? 1.0 : off) * from[p];
            return;
        }
        spread(from, a);
        open(now.frame, frame);
        for (int i = 0; i < d; ++i)
            for (int k = 0; k < d; ++k) e[i][k] = t.units[i] * frame[i][k];
        // bar_E_i = 2 sum_j bar_ij S_ij/E_i with S = (E Q) diag(lam) (E Q)^T
        multiply(b, a, e);
        for (int i = 0; i < d; ++i) {
            double sum = 0.0;
            for (int k = 0; k < d; ++k) sum += b[i][k] * now.lam[k] * e[i][k];
            bar.units[i] += 2.0 * sum / t.units[i];
        }
        multiply_transposed(c, e, b);
        for (int i = 0; i < d; ++i) {
            now_bar.lam[i] += c[i][i];
            for (int j = 0; j < d; ++j) now_bar.frame[i * d + j] += c[i][j] * (now.lam[j] - now.lam[i]);
        }
    }

    /// Back through the turn of member k by dt W and the widening of P.
    void drift(Track before_all, Track bar_all, int k, double dt) {
        const Turned before = f.turned(before_all, f.members[k]), bar = f.turned(bar_all, f.members[k]);
        const MemberLine& law = f.members[k].law;
        MemberLine& law_bar = own.table_bar(k);
        open(bar.frame, turning.z);
        const LawStep step{dt, 1.0, 1.0, law.acceleration * dt * dt * dt / 3.0,
                           law.acceleration * dt * dt / 2.0, law.acceleration * dt, dt};
        LawStep step_bar{};
        for (int i = 0, p = 0; i < d; ++i)
            for (int j = 0; j < i; ++j, ++p)
                turning.x[i][j] = dt * before.velocity[p], turning.x[j][i] = -dt * before.velocity[p];
        for (int i = 0; i < d; ++i) turning.x[i][i] = 0.0;
        turning.unturn();
        for (int i = 0, p = 0; i < d; ++i)
            for (int j = 0; j < i; ++j, ++p) {
                bar.velocity[p] += dt * (turning.x_bar[i][j] - turning.x_bar[j][i]);
                unwiden({before.p11[p], before.p12[p], before.p22[p]}, 1.0, step,
                        {bar.p11[p], bar.p12[p], bar.p22[p]}, step_bar, RATE_VARIANCE_LIMIT);
            }
        close(turning.z, bar.frame);
        law_bar.acceleration += dt * (step_bar.angle * dt * dt / 3.0 + step_bar.cross * dt / 2.0 +
                                      step_bar.rate);
        law_bar.spectrum_rate += dt * bar.lam_var;
    }

    /// Back through `learn_turning`.
    void learn(Track t, Track after, Track bar, Learnt& s, double m) {
        const int k_ = own.k_, first = k_ - own.plan.n_turning;
        if (!t.pooling()) {
            for (int k = first; k < k_; ++k) correct(t, after, bar, k, s, m);
            return;
        }
        const double pooled = t.head.pooled + 1.0, part = 1.0 / pooled;
        if (!after.pooling()) {
            for (int k = k_; k-- > first;) start(t, after, bar, k, s, pooled);
            double* pool_bar = f.turned(bar, f.members[first]).pool();
            for (int i = 0; i < d; ++i) {
                if (after.units[i] != 1.0)
                    pool_bar[pair(i, i)] += 0.5 * bar.units[i] / after.units[i];
                bar.units[i] = 0.0;
            }
        }
        for (int k = first; k < k_; ++k) {
            double* pool_bar = f.turned(bar, f.members[k]).pool();
            for (int p = 0; p < n; ++p) {
                const double from = part * pool_bar[p];
                s.u_bar += from * f.mean[p];
                own.mean_bar[p] += from * s.u;
                own.rest_bar[p] += from;
                pool_bar[p] -= from;
            }
        }
    }

  private:
    AdjointRoom<S>& own;
    Ensemble<S>& f = own.f;
    TurnBack<S>& turning = own.turning;
    const int d = own.d, n = own.n;
    Matrix<S> a = own.a, b = own.b, c = own.c, e = own.e;
    Room spaces[3] = {Room(own.square), Room(own.square), Room(own.square)};
    Matrix<S> frame{spaces[0], d}, body{spaces[1], d}, body_bar{spaces[2], d};
    double *y = own.y, *packed = own.packed;
    Room lam_bar{own.vector};

    /// Back through `keep_above` of these eigenvalues; lam_bar becomes that by them.
    void keep_above(Track after, Track bar, const double* lam) {
        double most = 0.0, kept = 0.0;
        int top = 0;
        bool level = false;
        for (int i = 0; i < d; ++i) {
            const double floor = after.level[i] / (after.units[i] * after.units[i]);
            if (lam[i] > most) most = lam[i], top = i, level = false;
            if (floor > most) most = floor, top = i, level = true;
        }
        for (int i = 0; i < d; ++i)
            if (lam[i] < FLOOR * FLOOR * most)
                kept += FLOOR * FLOOR * lam_bar[i], lam_bar[i] = 0.0;
        if (kept == 0.0) return;
        const double E = after.units[top];
        if (level)
            bar.level[top] += kept / (E * E), bar.units[top] -= 2.0 * kept * most / E;
        else
            lam_bar[top] += kept;
    }

    /// Back through `correct_turning`.
    void correct(Track t, Track after, Track bar, int k, Learnt& s, double m) {
        const Turned now = f.turned(t, f.members[k]), bar_of = f.turned(bar, f.members[k]);
        open(now.frame, frame);
        for (int i = 0, p = 0; i < d; ++i)
            for (int j = 0; j <= i; ++j, ++p)
                e[i][j] = e[j][i] = (s.u * f.mean[p] + f.rest[p]) / (t.units[i] * t.units[j]);
        multiply(a, e, frame);
        multiply_transposed(body, frame, a);
        const double noise = 2.0 / m, gain = now.lam_var / (now.lam_var + noise);
        double* lam = y;
        for (int i = 0; i < d; ++i) {
            lam[i] = now.lam[i] + gain * (body[i][i] - now.lam[i]);
            lam_bar[i] = bar_of.lam[i];
        }
        keep_above(after, bar, lam);
        double gain_bar = -bar_of.lam_var * now.lam_var;
        for (int i = 0; i < d; ++i) {
            gain_bar += lam_bar[i] * (body[i][i] - now.lam[i]);
            body_bar[i][i] = gain * lam_bar[i];
            bar_of.lam[i] = (1.0 - gain) * lam_bar[i];
        }
        const double whole = now.lam_var + noise;
        bar_of.lam_var = bar_of.lam_var * (1.0 - gain) + gain_bar * noise / (whole * whole);
        for (int i = 0, p = 0; i < d; ++i) {
            turning.x[i][i] = 0.0;
            for (int j = 0; j < i; ++j, ++p) {
                const double gap = now.lam[j] - now.lam[i];
                const double weight = m * gap / (now.lam[i] * now.lam[j]);
                Spread<double> P{now.p11[p], now.p12[p], now.p22[p]};
                const double angle = P.correct(body[i][j] * weight, gap * weight).angle;
                turning.x[i][j] = angle, turning.x[j][i] = -angle;
            }
        }
        open(bar_of.frame, turning.z);
        turning.unturn();
        for (int i = 0, p = 0; i < d; ++i)
            for (int j = 0; j < i; ++j, ++p) {
                const double gap = now.lam[j] - now.lam[i], product = now.lam[i] * now.lam[j];
                const Uncorrected back(now.p11[p], now.p12[p], gap, product / m, body[i][j],
                                       turning.x_bar[i][j] - turning.x_bar[j][i], bar_of.velocity[p],
                                       0.0, {bar_of.p11[p], bar_of.p12[p], bar_of.p22[p]});
                bar_of.lam[i] += back.noise * now.lam[j] / m - back.gap;
                bar_of.lam[j] += back.noise * now.lam[i] / m + back.gap;
                body_bar[i][j] = body_bar[j][i] = 0.5 * back.r;
            }
        turning.bracket(body, body_bar, turning.term, turning.z, 1.0);
        close(turning.z, bar_of.frame);
        transpose(frame, a);
        multiply(b, body_bar, a);
        multiply(c, frame, b);  // by e
        divide(t.units, e, c, bar.units);
        for (int i = 0; i < d; ++i)
            for (int j = 0; j < d; ++j) c[i][j] /= t.units[i] * t.units[j];
        fill(packed, n, 0.0);
        gather(c, packed, 1.0);
        s.u_bar += dot(packed, f.mean, n);
        for (int p = 0; p < n; ++p)
            own.mean_bar[p] += s.u * packed[p], own.rest_bar[p] += packed[p];
    }

    /// Back through whole_ij/(E_i E_j) = given_ij: adds to derivatives by E.
    void divide(const double* units, Matrix<S> scaled_by, Matrix<S> bar_of, double* units_bar) {
        for (int i = 0; i < d; ++i)
            units_bar[i] -= 2.0 * dot(bar_of[i], scaled_by[i], d) / units[i];
    }

    /// Back through `start_turning` of member k: its derivatives become those by its pool.
    void start(Track t, Track after, Track bar, int k, const Learnt& s, double pooled) {
        const Member& member = f.members[k];
        const Turned now = f.turned(after, member), now_bar = f.turned(bar, member);
        const double* before = f.turned(t, member).pool();
        const double off = pooled / (pooled + 1.0);
        for (int i = 0, p = 0; i < d; ++i)
            for (int j = 0; j <= i; ++j, ++p) {
                const double pool = before[p] + (s.u * f.mean[p] + f.rest[p] - before[p]) / pooled;
                e[i][j] = e[j][i] = (i == j ? 1.0 : off) * pool / (after.units[i] * after.units[j]);
            }
        open(now.frame, frame);
        multiply(a, e, frame);
        multiply_transposed(body, frame, a);
        double most = 0.0;
        for (int i = 0; i < d; ++i) {
            y[i] = body[i][i], lam_bar[i] = now_bar.lam[i];
            most = std::max(most, y[i]);
        }
        keep_above(after, bar, y);
        // Q^T dA Q = dlam on the diagonal, (Q^T dQ)_ij (lam_j - lam_i) beside it; equal eigenvalues
        // have no frame to turn.
        for (int i = 0; i < d; ++i)
            for (int j = 0; j < d; ++j) {
                const double gap = y[j] - y[i];
                const bool apart = std::fabs(gap) > RELATIVE_RIDGE * most;
                body_bar[i][j] = i == j ? lam_bar[i] : apart ? now_bar.frame[i * d + j] / gap : 0.0;
            }
        for (int i = 0; i < d; ++i)
            for (int j = 0; j < i; ++j)
                body_bar[i][j] = body_bar[j][i] = 0.5 * (body_bar[i][j] + body_bar[j][i]);
        transpose(frame, a);
        multiply(b, body_bar, a);
        multiply(c, frame, b);  // by e
        divide(after.units, e, c, bar.units);
        for (int i = 0; i < d; ++i)
            for (int j = 0; j < d; ++j)
                c[i][j] *= (i == j ? 1.0 : off) / (after.units[i] * after.units[j]);
        for (int p = 0; p < own.plan.planes; ++p) own.table_bar(k).rate_prior += now_bar.p22[p];
        fill(bar.of(member.turned), d * d + 4 * own.plan.planes + d + 1, 0.0);
        gather(c, now_bar.pool(), 1.0);
    }
};

}  // namespace
