// The dense members of the rotation engine: constant velocity and oscillators. Each axis of the
// body frame carries a velocity v, its quadrature u and a log frequency l:
//
//     v + i u  <-  z^h (v + i u),   z = exp(-i e^l),   angle += Re[(1 - z^h)/(1 - z) (v + i u)]
//
// so that over one unit of time the angle moves by exactly v; at frequency 0 this is constant
// velocity. A member is an extended Kalman filter of (angle, v, u, l), three numbers each, with its
// own frame. Q members are worked at side by side.
#pragma once
#include "quaternion.hpp"
#include "rotation_row.hpp"
#include "storage.hpp"
#include <algorithm>

namespace {

using namespace kgmrf;

constexpr int STATES = 12;
constexpr double LOG_2PI = 1.8378770664093453;
constexpr int under(int i, int j) { return i >= j ? i * (i + 1) / 2 + j : j * (j + 1) / 2 + i; }

class Dense {
  public:
    static constexpr int D = DENSE_MEMBERS;
    static_assert(D % Q == 0);

    explicit Dense(const RotationPlan& plan) : law(plan.dense) {}

    /// Member n starts at the common frame with the common velocity and its own prior.
    void start(RotationTrack t, DenseTrack x, int n, double noise) {
        for (int i = 0; i < 78; ++i) x.spread[D * i + n] = 0.0;
        for (int i = 0; i < 4; ++i) x.quaternion[D * i + n] = t.frame[i];
        for (int a = 0; a < AXES; ++a) {
            const int K = ROTATION_MEMBERS;
            const double frequency = law.frequency[a][n];
            x.motion[D * a + n] = dot(t.weight + K * a, t.rate + K * a, K);
            x.motion[D * (3 + a) + n] = 0.0;
            x.motion[D * (6 + a) + n] = frequency > 0.0 ? std::log(frequency) : 0.0;
            x.spread[D * under(a, a) + n] = noise;
            x.spread[D * under(3 + a, 3 + a) + n] = law.rate[a][n];
            x.spread[D * under(6 + a, 6 + a) + n] = law.rate[a][n];
            x.spread[D * under(9 + a, 9 + a) + n] = law.log_std[n] * law.log_std[n];
        }
        x.age[n] = 0.0;
    }

    /// All members there, with their prior weights.
    void start_all(RotationTrack t, DenseTrack x) {
        for (int n = 0; n < D; ++n) start(t, x, n, t.head.noise), x.share[n] = law.prior[n];
    }

    /// The unit of time becomes f times what it was.
    void rescale(DenseTrack x, double f) {
        for (int n = 0; n < D; ++n) {
            for (int a = 0; a < 6; ++a) x.motion[D * a + n] *= f;
            for (int a = 6; a < 9; ++a) x.motion[D * a + n] += std::log(f);
            for (int i = 0; i < STATES; ++i)
                for (int j = 0; j <= i; ++j)
                    x.spread[D * under(i, j) + n] *=
                        (3 <= i && i < 9 ? f : 1.0) * (3 <= j && j < 9 ? f : 1.0);
        }
    }

    /// All members over h, in pieces of about one unit.
    void drift(RotationTrack t, DenseTrack x, double h) {
        if (h > LONGEST_GAP) {
            for (int n = 0; n < D; ++n) start(t, x, n, DENSE_WIDEST_ANGLE);
            return;
        }
        const int pieces = std::max(int(std::ceil(h - 0.5)), 1);
        for (int n = 0; n < D; n += Q)
            for (int k = 0; k < pieces; ++k) drift_piece(x, n, h / pieces);
    }

    /// Moments of the turn over h, seen from the common frame, are added: share times the mean, the
    /// sum of squares of all axes. To first order in what is uncertain, and each axis by itself.
    void ahead(RotationTrack t, DenseTrack x, double h, double share, double mean[AXES],
               double& square) const {
        for (int n = 0; n < D; n += Q) {
            const quad portion = share * load<quad>(x.share + n);
            const mask_of<quad> there = portion > splat<quad>(1e-12);
            if (!some<quad>(there)) continue;
            const Vector3<quad> away =
                between(same<quad>(quaternion_at(t.frame)), quaternion_at<quad>(x.quaternion + n, D))
                    .vector;
            quad variance = load<quad>(law.acceleration + n) * (h * h * h), far{};
            for (int a = 0; a < AXES; ++a) {
                const Axis m = follow(x, n, a, h);
                const quad slope[4] = {splat<quad>(1.0), m.by_v, m.by_u, m.by_l};
                for (int i = 0; i < 4; ++i) {
                    quad row = 0.5 * slope[i] * spread(x, n, 3 * i + a, 3 * i + a);
                    for (int j = 0; j < i; ++j) row += slope[j] * spread(x, n, 3 * i + a, 3 * j + a);
                    variance += 2.0 * slope[i] * row;
                }
                const quad y = away[a] + m.step;
                far += y * y;
                mean[a] += sum_of(pick<quad>(there, portion * y, quad{}));
            }
            const quad most = splat<quad>(3.0 * WIDEST_ANGLE);
            variance = pick<quad>(variance < most, variance, most);
            square += sum_of(pick<quad>(there, portion * (variance + far), quad{}));
        }
    }

    /// Log evidence of all members for Z with noise r I; what it takes to take Z in stays here.
    /// Densities are with respect to volume on the group. A member that cannot be used any more (a
    /// variance that is not positive, half a turn per unit) starts again first.
    double score(RotationTrack t, DenseTrack x, Quaternion<double> z, double r) {
        double top = -1e300;
        for (int n = 0; n < D; n += Q) {
            restart_unsound(t, x, n, r);
            store(evidence + n, score_part(x, n, z, r));
            for (int l = n; l < n + Q; ++l) {
                if (!(evidence[l] > -1e12)) evidence[l] = -1e12;  // NaN too
                top = std::max(top, evidence[l]);
            }
        }
        double total = 0.0;
        for (int n = 0; n < D; n += Q) {
            quad w = (1.0 - MEMBER_SWITCHING) * load<quad>(x.share + n) +
                     MEMBER_SWITCHING * load<quad>(law.prior + n);
            w *= exp_of<quad>(load<quad>(evidence + n) - top);
            store(share + n, w);
            total += sum_of(w);
        }
        for (int n = 0; n < D; n += Q) store(share + n, load<quad>(share + n) / total);
        return top + std::log(total);
    }

    /// Kalman corrections by the observation that was scored last.
    /// A member whose past weighs less than what the sharing grants it anyway starts again.
    void take(RotationTrack t, DenseTrack x, double r) {
        for (int n = 0; n < D; n += Q) take_part(x, n, r);
        for (int n = 0; n < D; ++n)
            if (x.age[n] > 30.0 &&
                x.share[n] * t.experts[2] < 1e-3 * MEMBER_SWITCHING * law.prior[n])
                start(t, x, n, r);
    }

  private:
    const decltype(RotationPlan::dense)& law;
    // Of the observation that was scored last, for every member: log evidence, then weights;
    // e = Log(Q^T Z), S^-1 e, S^-1.
    Room evidence{D}, share{D}, innovation{3 * D}, scaled{3 * D}, inverse{9 * D};

    /// How the motion of one axis goes on over h; derivatives of the angle by v, u and l, of the
    /// turned (v, u) by l; its frequency, and (v, u) after it.
    struct Axis {
        quad c, s, step, by_v, by_u, by_l, v_by_l, u_by_l, w, v, u;
    };

    static quad spread(DenseTrack x, int n, int i, int j) {
        return load<quad>(x.spread + D * under(i, j) + n);
    }

    /// How one axis goes on over h.
    Axis follow(DenseTrack x, int n, int a, double h) const {
        const quad v = load<quad>(x.motion + D * a + n), u = load<quad>(x.motion + D * (3 + a) + n);
        const quad l = load<quad>(x.motion + D * (6 + a) + n);
        const quad w = pick<quad>(load<quad>(law.frequency[a] + n) > quad{}, exp_of<quad>(l), quad{});
        const quad wh = w * h;
        const auto [s, c] = sin_cos<quad>(wh);
        Axis out{c, s, {}, splat<quad>(h), {}, {}, {}, {}, w, {}, {}};
        quad g_l{}, f_l{};
        if (std::fabs(h - 1.0) < 1e-5) {
            out.by_v = splat<quad>(1.0);
        } else {
            // (1 - z^h)/(1 - z) = g - i f, its derivative by l (h z^h - (g - i f) z)/(1 - z) i w
            const auto [s1, c1] = sin_cos<quad>(w);
            const mask_of<quad> turns = w > splat<quad>(1e-4);
            const quad re = 1.0 - c1, im = s1;  // 1 - z
            const quad size = pick<quad>(turns, re * re + im * im, splat<quad>(1.0));
            const quad g = ((1.0 - c) * re + s * im) / size, minus_f = (s * re - (1.0 - c) * im) / size;
            const quad top_re = h * c - (g * c1 + minus_f * s1);
            const quad top_im = -h * s - (minus_f * c1 - g * s1);
            const quad ratio_re = (top_re * re + top_im * im) / size;
            const quad ratio_im = (top_im * re - top_re * im) / size;
            out.by_v = pick<quad>(turns, g, out.by_v);
            out.by_u = pick<quad>(turns, -minus_f, quad{});
            g_l = pick<quad>(turns, -w * ratio_im, quad{});
            f_l = pick<quad>(turns, -w * ratio_re, quad{});
        }
        const quad v2 = c * v + s * u, u2 = c * u - s * v;
        out.v = v2, out.u = u2;
        out.step = out.by_v * v + out.by_u * u;
        out.by_l = g_l * v + f_l * u;
        out.v_by_l = wh * u2;
        out.u_by_l = -wh * v2;
        return out;
    }

    /// Means of one axis over h <= 1; ``noise`` is that of v and u.
    ///
    /// The frequency multiplies the amplitude. While both are uncertain a first-order step would be
    /// far too sure of the phase, so the mean takes its second-order term and the covariance a
    /// diffusion w h var(l) var(amplitude): the error of the frequency is coherent over about one
    /// radian.
    Axis drift_axis(DenseTrack x, int n, int a, double h, quad noise[2]) const {
        const Axis out = follow(x, n, a, h);
        const quad c = out.c, s = out.s, wh = h * out.w;
        const quad pv = spread(x, n, 9 + a, 3 + a), pu = spread(x, n, 9 + a, 6 + a);
        store(x.motion + D * a + n, out.v + wh * (c * pu - s * pv));
        store(x.motion + D * (3 + a) + n, out.u - wh * (c * pv + s * pu));
        const quad diffusion = wh * spread(x, n, 9 + a, 9 + a), q = load<quad>(law.acceleration + n);
        noise[0] = diffusion * spread(x, n, 6 + a, 6 + a) + q * h;
        noise[1] = diffusion * spread(x, n, 3 + a, 3 + a) + q * h;
        return out;
    }

    /// F of Q members: (angle, v, u, l) <- F (angle, v, u, l).
    struct Transition {
        Axis axis[AXES];
        Turning<quad> turning;

        /// The first ``n`` of F p, n = 3, 6, 9 or 12.
        void apply(const quad p[STATES], quad to[STATES], int n) const {
            quad move[AXES];
            for (int a = 0; a < AXES; ++a) {
                const Axis& m = axis[a];
                move[a] = m.by_v * p[3 + a] + m.by_u * p[6 + a] + m.by_l * p[9 + a];
                if (n > 3) to[3 + a] = m.c * p[3 + a] + m.s * p[6 + a] + m.v_by_l * p[9 + a];
                if (n > 6) to[6 + a] = m.c * p[6 + a] - m.s * p[3 + a] + m.u_by_l * p[9 + a];
                if (n > 9) to[9 + a] = p[9 + a];
            }
            for (int a = 0; a < AXES; ++a) {
                quad y{};
                for (int b = 0; b < AXES; ++b)
                    y += turning.exp[b][a] * p[b] + turning.jacobian[a][b] * move[b];
                to[a] = y;
            }
        }
    };

    /// Mean and covariance of members n to n + Q over h <= 1: P <- F P F^T + noise.
    void drift_piece(DenseTrack x, int n, double h) const {
        Transition f;
        quad noise[AXES][2];
        for (int a = 0; a < AXES; ++a) f.axis[a] = drift_axis(x, n, a, h, noise[a]);
        const Vector3<quad> step{f.axis[0].step, f.axis[1].step, f.axis[2].step};
        put<quad>(x.quaternion + n, D, turned(quaternion_at<quad>(x.quaternion + n, D), step));
        f.turning = turning(step);

        quad half[STATES][STATES];  // (F P)^T, then P
        for (int j = 0; j < STATES; ++j) {
            quad column[STATES];
            for (int i = 0; i < STATES; ++i) column[i] = spread(x, n, i, j);
            quad mapped[STATES];
            f.apply(column, mapped, STATES);
            for (int i = 0; i < STATES; ++i) half[i][j] = mapped[i];
        }
        quad p[STATES][STATES];
        for (int i = 0; i < STATES; ++i) f.apply(half[i], p[i], i / 3 * 3 + 3);

        const quad q = load<quad>(law.acceleration + n);
        for (int a = 0; a < AXES; ++a) {
            p[a][a] += q * (h * h * h / 3.0);
            p[3 + a][a] += q * (h * h / 2.0);
            p[3 + a][3 + a] += noise[a][0];
            p[6 + a][6 + a] += noise[a][1];
        }
        for (int a = 0; a < AXES; ++a) {  // row and column, so that P stays definite
            const quad most = splat<quad>(DENSE_WIDEST_ANGLE);
            const mask_of<quad> wide = p[a][a] > most;
            if (!some<quad>(wide)) continue;
            const quad shrink =
                pick<quad>(wide, square_root<quad>(most / pick<quad>(wide, p[a][a], most)),
                           splat<quad>(1.0));
            for (int j = 0; j < a; ++j) p[a][j] *= shrink;
            for (int i = a; i < STATES; ++i) p[i][a] *= shrink;
            p[a][a] *= shrink;
        }
        for (int i = 0; i < STATES; ++i)
            for (int j = 0; j <= i; ++j) store(x.spread + D * under(i, j) + n, p[i][j]);
    }

    void restart_unsound(RotationTrack t, DenseTrack x, int n, double r) {
        mask_of<quad> sound = quad{} <= splat<quad>(0.0);
        for (int i = 0; i < STATES; ++i) {
            const quad p = spread(x, n, i, i);
            sound &= (p >= quad{}) & (p < splat<quad>(1e12));
        }
        for (int a = 0; a < AXES; ++a)
            sound &= magnitude(load<quad>(x.motion + D * a + n)) < splat<quad>(std::numbers::pi);
        if (!some<quad>(~sound)) return;
        for (int l = 0; l < Q; ++l)
            if (!sound[l]) start(t, x, n + l, r);
    }

    /// -(3 log 2 pi + log |S| + e^T S^-1 e)/2 with S = P + r I of the angles, over the group.
    quad score_part(DenseTrack x, int n, Quaternion<double> z, double r) {
        const Logarithm<quad> e = between(quaternion_at<quad>(x.quaternion + n, D), same<quad>(z));
        quad s[AXES][AXES], cofactor[AXES][AXES];
        for (int a = 0; a < AXES; ++a)
            for (int b = 0; b < AXES; ++b) s[a][b] = spread(x, n, a, b) + (a == b ? r : 0.0);
        for (int a = 0; a < AXES; ++a)
            for (int i = 0; i < AXES; ++i) {
                const int b = (a + 1) % 3, c = (a + 2) % 3, j = (i + 1) % 3, k = (i + 2) % 3;
                cofactor[a][i] = s[b][j] * s[c][k] - s[b][k] * s[c][j];
            }
        quad det{}, nis{};
        for (int i = 0; i < AXES; ++i) det += s[0][i] * cofactor[0][i];
        for (int a = 0; a < AXES; ++a) {
            quad y{};
            for (int b = 0; b < AXES; ++b) {
                const quad v = cofactor[a][b] / det;
                store(inverse + D * (3 * a + b) + n, v);
                y += v * e.vector[b];
            }
            nis += e.vector[a] * y;
            store(scaled + D * a + n, y);
            store(innovation + D * a + n, e.vector[a]);
        }
        const mask_of<quad> definite = det > quad{};
        const quad logs = log_of<quad>(pick<quad>(definite, det, splat<quad>(1.0)));
        const quad half = 0.5 * e.angle;
        const mask_of<quad> wide = half > splat<quad>(1e-6);
        const quad safe = pick<quad>(wide, half, splat<quad>(1.0));
        const quad volume = pick<quad>(
            wide, 2.0 * log_of<quad>(sin_cos<quad>(safe).sin / safe), quad{});
        const quad value = -0.5 * (3.0 * LOG_2PI + logs + nis) - volume;
        return pick<quad>(definite, value, splat<quad>(-1e12));
    }

    void take_part(DenseTrack x, int n, double r) {
        store(x.share + n, load<quad>(share + n));
        store(x.age + n, load<quad>(x.age + n) + 1.0);
        quad gain[AXES][STATES];  // S^-1 P of the angles' rows
        quad step[STATES];
        for (int k = 0; k < STATES; ++k) {
            quad p[AXES];
            step[k] = quad{};
            for (int a = 0; a < AXES; ++a) {
                p[a] = spread(x, n, a, k);
                step[k] += p[a] * load<quad>(scaled + D * a + n);
            }
            for (int a = 0; a < AXES; ++a) {
                gain[a][k] = quad{};
                for (int b = 0; b < AXES; ++b)
                    gain[a][k] += load<quad>(inverse + D * (3 * a + b) + n) * p[b];
            }
        }
        for (int i = 3; i < STATES; ++i)
            for (int j = 3; j <= i; ++j) {
                double* to = x.spread + D * under(i, j) + n;
                quad v = load<quad>(to);
                for (int a = 0; a < AXES; ++a) v -= spread(x, n, a, i) * gain[a][j];
                store(to, v);
            }
        for (int i = 0; i < STATES; ++i)  // P - K S K^T is r S^-1 P here, without cancellation
            for (int j = 0; j <= i && j < 3; ++j)
                store(x.spread + D * under(i, j) + n, r * gain[j][i]);
        put<quad>(x.quaternion + n, D,
                  turned(quaternion_at<quad>(x.quaternion + n, D),
                         Vector3<quad>{step[0], step[1], step[2]}));
        for (int k = 0; k < 9; ++k) {
            quad v = load<quad>(x.motion + D * k + n) + step[3 + k];
            if (k >= 6) {
                const quad low = splat<quad>(std::log(LOWEST_FREQUENCY)),
                           high = splat<quad>(std::log(HIGHEST_FREQUENCY));
                v = pick<quad>(v < low, low, pick<quad>(v > high, high, v));
            }
            store(x.motion + D * k + n, v);
        }
    }
};

}  // namespace
