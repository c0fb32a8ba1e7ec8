// The way back through the members whose eigenframe turns (ensemble_rotating.hpp).
#pragma once
#include "elementary.hpp"
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
        copy(now.lam, lam, d);
        for (int i = 0; i < d; ++i)
            for (int j = 0; j < e.stride(); j += W) store(e[i] + j, t.units[i] * load(frame[i] + j));
        // bar_E_i = 2 sum_j bar_ij S_ij/E_i with S = (E Q) diag(lam) (E Q)^T
        multiply(b, a, e);
        for (int i = 0; i < d; ++i) {
            vec along{};
            for (int j = 0; j < e.stride(); j += W)
                along += load(b[i] + j) * load(lam + j) * load(e[i] + j);
            bar.units[i] += 2.0 * sum(along) / t.units[i];
        }
        multiply_transposed(c, e, b);
        for (int i = 0; i < d; ++i) {
            now_bar.lam[i] += c[i][i];
            each(d, [&]<class V>(int j) {
                double* to = now_bar.frame + i * d + j;
                store(to, load<V>(to) + load<V>(c[i] + j) * (load<V>(lam + j) - lam[i]));
            });
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
        take_turn(before.velocity, dt);
        turning.unturn();
        for (int i = 0, p = 0; i < d; ++i)
            for (int j = 0; j < i; ++j, ++p) bar.velocity[p] += 2.0 * dt * turning.x_bar[i][j];
        close(turning.z, bar.frame);
        each(own.plan.planes, [&]<class V>(int p) { unwiden_planes<V>(before, bar, p, step, step_bar); });
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
    const std::size_t list = std::size_t(padded(own.plan.planes)) + 8;
    Room lam{own.vector}, lam_bar{own.vector}, inverse_units{own.vector};
    Room gap{list}, product{list}, pull{list}, angle{list};  // of every plane

    /// X of a turn by share times these planes.
    void take_turn(const double* planes, double share) {
        for (int i = 0; i < d; ++i) {
            turning.x[i][i] = 0.0;
            for (int j = 0; j < i; ++j, ++planes)
                turning.x[i][j] = share * *planes, turning.x[j][i] = -share * *planes;
        }
    }

    /// `unwiden` of the planes from p on; one at a time where a variance was limited.
    template <class V>
    static void unwiden_planes(Turned before, Turned bar, int p, const LawStep& step,
                               LawStep& step_bar) {
        const auto of = [&](Turned row) {
            return Spread<V>{load<V>(row.p11 + p), load<V>(row.p12 + p), load<V>(row.p22 + p)};
        };
        const double dt = step.turn;
        Spread<V> P = of(before);
        P.widen(dt, 1.0, step.angle, step.cross, step.rate);
        if (any((P.p11 > ANGLE_VARIANCE_LIMIT) | (P.p22 > RATE_VARIANCE_LIMIT) |
                (P.p12 * P.p12 > MOST_CORRELATED * P.p11 * P.p22))) {
            for (int l = p; l < p + lanes_of<V>; ++l)
                unwiden({before.p11[l], before.p12[l], before.p22[l]}, 1.0, step,
                        {bar.p11[l], bar.p12[l], bar.p22[l]}, step_bar, RATE_VARIANCE_LIMIT);
            return;
        }
        const Spread<V> b = of(bar);
        step_bar.angle += sum_of<V>(b.p11), step_bar.cross += sum_of<V>(b.p12);
        step_bar.rate += sum_of<V>(b.p22);
        store(bar.p12 + p, 2.0 * dt * b.p11 + b.p12);
        store(bar.p22 + p, dt * dt * b.p11 + dt * b.p12 + b.p22);
    }

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
        copy(now.lam, lam, d);
        for (int i = 0; i < d; ++i) inverse_units[i] = 1.0 / t.units[i];
        for (int i = 0; i < d; ++i)
            for (int j = 0; j < e.stride(); j += W) {
                const vec seen = s.u * load(f.mean_full[i] + j) + load(f.rest_full[i] + j);
                store(e[i] + j, inverse_units[i] * load(inverse_units + j) * seen);
            }
        multiply(a, e, frame);
        multiply_transposed(body, frame, a);
        const double noise = 2.0 / m, gain = now.lam_var / (now.lam_var + noise);
        for (int i = 0; i < d; ++i) {
            y[i] = now.lam[i] + gain * (body[i][i] - now.lam[i]);
            lam_bar[i] = bar_of.lam[i];
        }
        keep_above(after, bar, y);
        double gain_bar = -bar_of.lam_var * now.lam_var;
        for (int i = 0; i < d; ++i) {
            gain_bar += lam_bar[i] * (body[i][i] - now.lam[i]);
            body_bar[i][i] = gain * lam_bar[i];
            bar_of.lam[i] = (1.0 - gain) * lam_bar[i];
        }
        const double whole = now.lam_var + noise;
        bar_of.lam_var = bar_of.lam_var * (1.0 - gain) + gain_bar * noise / (whole * whole);
        for (int i = 0, p = 0; i < d; p += i++)
            for (int j = 0; j < i; j += W) {  // what a row writes too far, the next one overwrites
                const vec other = load(lam + j);
                store(gap + p + j, other - lam[i]);
                store(product + p + j, (lam[i] / m) * other);
                store(pull + p + j, load(body[i] + j));
            }
        each(own.plan.planes, [&]<class V>(int p) {
            Spread<V> P{load<V>(now.p11 + p), load<V>(now.p12 + p), load<V>(now.p22 + p)};
            const V g = load<V>(gap + p), weight = g / load<V>(product + p);
            store(angle + p, P.correct(load<V>(pull + p) * weight, g * weight).angle);
        });
        take_turn(angle, 1.0);
        open(bar_of.frame, turning.z);
        turning.unturn();
        for (int i = 0, p = 0; i < d; p += i++)
            for (int j = 0; j < i; j += W) store(angle + p + j, 2.0 * load(turning.x_bar[i] + j));
        each(own.plan.planes, [&]<class V>(int p) {
            const Uncorrected<V> back(
                load<V>(now.p11 + p), load<V>(now.p12 + p), load<V>(gap + p), load<V>(product + p),
                load<V>(pull + p), load<V>(angle + p), load<V>(bar_of.velocity + p), V{},
                {load<V>(bar_of.p11 + p), load<V>(bar_of.p12 + p), load<V>(bar_of.p22 + p)});
            store(bar_of.p11 + p, back.b11), store(bar_of.p12 + p, back.b12);
            store(gap + p, back.gap), store(product + p, back.noise / m), store(pull + p, back.r);
        });
        for (int i = 0, p = 0; i < d; ++i)
            for (int j = 0; j < i; ++j, ++p) {
                bar_of.lam[i] += product[p] * lam[j] - gap[p];
                bar_of.lam[j] += product[p] * lam[i] + gap[p];
                body_bar[i][j] = body_bar[j][i] = 0.5 * pull[p];
            }
        turning.bracket(body, body_bar, turning.term, turning.z, 1.0);
        close(turning.z, bar_of.frame);
        transpose(frame, a);
        multiply(b, body_bar, a);
        multiply(c, frame, b);  // by e
        divide(t.units, e, c, bar.units);
        for (int i = 0, p = 0; i < d; p += ++i) {
            for (int j = 0; j <= i; j += W)
                store(packed + p + j,
                      2.0 * inverse_units[i] * load(inverse_units + j) * load(c[i] + j));
            packed[p + i] *= 0.5;
        }
        s.u_bar += dot(packed, f.mean, n);
        each(n, [&]<class V>(int p) {
            const V from = load<V>(packed + p);
            store(own.mean_bar + p, load<V>(own.mean_bar + p) + s.u * from);
            store(own.rest_bar + p, load<V>(own.rest_bar + p) + from);
        });
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
