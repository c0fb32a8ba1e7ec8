// The members of the low-rank ensemble: what one of them holds, forecasts and learns.
//
// A member is a covariance of few factors plus a diagonal,
//
//     S_k = e^s [D U^T Lam U D + diag psi]
//
// with axes U (r, d), U U^T = I, that turn by a Kalman filter whose covariance P all channels share:
// (r, r), or (2 r, 2 r) for axes that keep turning with a velocity V (r, d), U V^T = 0.
#pragma once
#include "linear.hpp"
#include "low_rank_row.hpp"
#include "storage.hpp"

namespace {

using namespace kgmrf;

/// One sample beside a forecast: x is 0 and here 0 where a cell is missing or its channel is absent.
struct Sample {
    const double *x, *here;
    int n;         // channels that are here
    double share;  // n over the number of all channels
};

/// U and V of a member, as rows.
inline Rows axes_of(Factors f, int s) { return {f.axes, f.rank, s}; }
inline Rows velocity_of(Factors f, int s) { return {f.velocity, f.states - f.rank, s}; }

/// Gram-Schmidt, in place. An axis of which nothing is left becomes that of a channel, or zero where
/// there are fewer channels than axes.
inline void polish(Rows axes, const double* level, int d) {
    for (int j = 0; j < axes.n; ++j) {
        double* axis = axes[j];
        double least = LOW_RANK_LOST * dot(axis, axis, axes.s), length = 0.0;
        for (int channel = -1; channel < d; ++channel) {
            if (channel >= 0) {
                if (level[channel] == 0.0) continue;
                fill(axis, axes.s, 0.0);
                axis[channel] = 1.0;
                least = 0.5 / axes.n;
            }
            for (int k = 0; k < j; ++k) {
                const double along = dot(axes[k], axis, axes.s);
                for (int p = 0; p < axes.s; p += W)
                    store(axis + p, load(axis + p) - along * load(axes[k] + p));
            }
            length = dot(axis, axis, axes.s);
            if (length > least) break;
        }
        const double scale = length > least ? 1.0 / std::sqrt(length) : 0.0;
        for (int p = 0; p < axes.s; p += W) store(axis + p, scale * load(axis + p));
    }
}

class LowRankMembers {
  public:
    explicit LowRankMembers(const LowRankPlan& plan) : plan(plan) {}

    /// s <- .98^decays s; n <- 2^(-dt/h) n, not below 8; P <- P + a^2 dt/d I, diagonal <= 1/d. Axes with a
    /// velocity have gone on before that.
    void drift(LowRankTrack t, const LowRankMember& m, double dt, double decays) {
        Factors f(t.row, m, s);
        const double noise = m.law.noise_half_life;
        f.numbers.size *= std::pow(SIZE_RETENTION, decays);
        keep(f.numbers.noise_rows, dt / noise);
        keep(f.numbers.metric_rows, dt / std::max(LOW_RANK_METRIC_HALF_LIFE, noise));
        keep(f.numbers.spectrum_rows, dt / m.law.spectrum_half_life);
        dt = std::min(dt, LOW_RANK_LONGEST);
        if (m.states > m.rank && t.live(m)) coast(f, m, dt);
        const int n = m.states;
        double* P = f.angle_var;
        for (int i = 0; i < n; ++i) {
            if (i < m.rank) P[i * n + i] += m.law.angle_noise * m.law.angle_noise * dt / d;
            // Whole rows and columns shrink: cutting a variance alone could make P indefinite.
            const double cut = std::sqrt(1.0 / (d * std::max(P[i * n + i], 1e-300)));
            if (cut >= 1.0) continue;
            for (int j = 0; j < n; ++j) P[i * n + j] *= cut, P[j * n + i] *= cut;
        }
    }

    /// sqrt(share) F = e^(s/2) D U^T Lam^(1/2), transposed, and the noise e^s psi >= phi L.
    void hold(LowRankTrack t, const LowRankMember& m, double share, double* factors,
              double* noise) {
        const Factors f(t.row, m, s);
        const double grow = std::exp(f.numbers.size);
        for (int p = 0; p < s; p += W)
            store(noise + p, larger(grow * load(f.noise + p), FLOOR * load(t.level + p)));
        const Rows to{factors, m.rank, s};
        if (!t.live(m)) return clear_rows(to);
        Matrix<0> L{root, m.rank};
        open(f.spectrum, L);
        cholesky(L, column);
        for (int p = 0; p < s; p += W) store(z + p, ::root(share * grow * load(f.metric + p)));
        combine(
            m.rank, [&](int i, int k) { return L[k][i]; }, [&](int) { return m.rank; },
            axes_of(f, s), [&](int i, int j, vec v) { store(to[i] + j, load(z + j) * v); });
    }

    /// One member takes in a sample: noise, spectrum, axes, size.
    void learn(LowRankTrack t, const LowRankMember& m, const Sample& seen) {
        Factors f(t.row, m, s);
        const int r = m.rank;
        const Rows axes = axes_of(f, s);
        const bool started = t.live(m);
        const double size = f.numbers.size, shrink = std::exp(-0.5 * size);
        const double least = std::exp(-size) * FLOOR;
        for (int p = 0; p < s; p += W) {  // z, and what its noise says of it
            const vec here = load(seen.here + p);
            const mask known = here > 0.0;
            const vec unit = choose(known, load(f.metric + p), all(1.0));
            const vec noise = larger(load(f.noise + p), least * load(t.level + p));
            const vec own = shrink * load(seen.x + p) / ::root(unit);
            const vec weight = here * unit / choose(known, noise, all(1.0));
            store(z + p, own), store(precision + p, weight), store(scaled + p, own * weight);
        }
        double square = std::min(dot(scaled, z, s), LOW_RANK_LARGEST);
        Matrix<0> G{gram_of, r};
        fill(explained, s, 0.0), fill(spread, s, 0.0);
        if (started) {
            const Rows wide{wide_rows, r, s};
            times(axes, precision, wide);
            gram(wide, axes, G, true);
            mirror(G);
            apply(axes, scaled, b);
            Matrix<0> H{inner_inverse, r};
            weigh_factors(f.spectrum, G, H);
            square -= dot(b, scores, r);
            add_squares(r, [&](int i, int k) { return H[i][k]; }, [&](int) { return r; }, axes, spread);
            scores_of(f.spectrum, 1.0, G, g);  // dead factors come back
            along(g, axes, explained);
        }
        const double limit = std::sqrt(std::min(1.0, LOW_RANK_LIMIT * seen.n / std::max(square, 1e-300)));
        f.numbers.noise_rows += 1.0, f.numbers.metric_rows += 1.0, f.numbers.spectrum_rows += 1.0;
        for (int p = 0; p < s; p += W) {
            const vec here = load(seen.here + p), metric = load(f.metric + p);
            const vec e = limit * here * (load(z + p) - load(explained + p));
            const vec target = metric * (e * e + load(spread + p));
            const vec lowest = least * load(t.level + p);
            const vec rows = load(t.counts + p) + LOW_RANK_PRIOR_ROWS;
            store(error + p, e);
            store(f.noise + p, averaged(load(f.noise + p), target, f.numbers.noise_rows, rows, lowest, here));
            store(f.metric + p, averaged(metric, target, f.numbers.metric_rows, rows, lowest, here));
        }
        if (started) {
            learn_spectrum(f, limit);
            turn(f, limit, seen.share);
            if (std::fmod(t.head.count, LOW_RANK_POLISH_EVERY) == 0.0) {
                polish(axes, t.level, d);
                const Rows velocity = velocity_of(f, s);
                for (int a = 0; a < velocity.n; ++a) {
                    apply(axes, velocity[a], b);
                    for (int k = 0; k < r; ++k) add_outer({velocity[a], 1, s}, &(b[k] = -b[k]), axes[k]);
                }
            }
        }
        const double grown = std::min(square / seen.n, LOW_RANK_LIMIT) - 1.0;
        f.numbers.size = std::clamp(size + std::log1p(m.law.size_gain * grown), -LOW_RANK_LARGEST_LOG,
                                    LOW_RANK_LARGEST_LOG);
    }

  private:
    const LowRankPlan& plan;
    const int d = plan.d, s = plan.stride, most = plan.most_states;
    const std::size_t square = std::size_t(padded(most)) * padded(most);
    // Vectors over channels.
    Room z{s + 0u}, precision{s + 0u}, scaled{s + 0u}, explained{s + 0u}, spread{s + 0u}, error{s + 0u},
        way{s + 0u}, back{s + 0u}, forth{s + 0u};
    Room wide_rows{std::size_t(most) * s};  // as many rows as a member has
    // Vectors over factors, or over factors and velocities.
    Room b{padded(most) + 0u}, scores{padded(most) + 0u}, g{padded(most) + 0u},
        gain{padded(most) + 0u}, column{2u * padded(most)}, eigen_work{4u * padded(most)};
    // Matrices of factors, or of factors and velocities.
    Room root{square}, gram_of{square}, inner{square}, half{square}, inner_inverse{square},
        inverse{square}, move{square}, whole{square};

    static void keep(double& n, double half_lives) {
        n = std::max(n * std::exp2(-half_lives), std::min(n, LOW_RANK_LEAST_ROWS));
    }
    static void clear_rows(Rows a) { fill(a.p, a.n * a.s, 0.0); }

    /// A matrix of a row, without gaps, into a padded one; extra is added to its diagonal.
    static void open(const double* from, Matrix<0> to, double extra = 0.0) {
        clear(to);
        for (int i = 0; i < to.d; ++i) {
            copy(from + std::int64_t(i) * to.d, to[i], to.d);
            to[i][i] += extra;
        }
    }

    /// old + (target - old)/min(most, rows), not below lowest; old where nothing is here.
    static vec averaged(vec old, vec target, double most, vec rows, vec lowest, vec here) {
        const vec count = choose(rows < most, rows, all(most));
        return choose(here > 0.0, larger(old + (target - old) / count, lowest), old);
    }

    /// root = Lam'^(1/2) and inner = I + root^T G root = L L^T, for Lam' = Lam + extra I.
    void factorize(const double* spectrum, double extra, Matrix<0> G) {
        const int r = G.d;
        Matrix<0> R{root, r}, A{inner, r}, B{half, r};
        open(spectrum, R, extra);
        cholesky(R, column);
        multiply(B, G, R);
        multiply_transposed(A, R, B);
        for (int i = 0; i < r; ++i) A[i][i] += 1.0;
        cholesky(A, column);
    }

    /// The scores (Lam'^-1 + G)^-1 b = root (L L^T)^-1 root^T b.
    void scores_of(const double* spectrum, double extra, Matrix<0> G, double* to) {
        const int r = G.d;
        factorize(spectrum, extra, G);
        Matrix<0> R{root, r};
        fill(to, padded(r), 0.0);
        for (int i = 0; i < r; ++i)
            for (int k = 0; k <= i; ++k) to[k] += R[i][k] * b[i];
        solve_lower({inner, r}, to);
        solve_upper({inner, r}, to);
        for (int i = r - 1; i >= 0; --i) {
            double sum = 0.0;
            for (int k = 0; k <= i; ++k) sum += R[i][k] * to[k];
            to[i] = sum;
        }
    }

    /// H = L^-1 root^T, inverse = (Lam^-1 + G)^-1 = H^T H, scores = inverse b.
    void weigh_factors(const double* spectrum, Matrix<0> G, Matrix<0> H) {
        const int r = G.d;
        factorize(spectrum, 0.0, G);
        Matrix<0> L{half, r}, R{root, r}, right{whole, r};
        invert_lower({inner, r}, L);
        clear(right);
        for (int i = 0; i < r; ++i)
            for (int k = 0; k <= i; ++k) right[k][i] = R[i][k];
        multiply(H, L, right);
        multiply_transposed({inverse, r}, H, H);
        ::apply(Matrix<0>{inverse, r}, b, scores);
    }

    /// Lam += (f f^T + (Lam^-1 + G)^-1 - Lam)/n, for the scores f; its diagonal stays above a least.
    void learn_spectrum(Factors f, double limit) {
        const Matrix<0> A{inverse, f.rank};
        const double part = 1.0 / f.numbers.spectrum_rows;
        for (int a = 0; a < f.rank; ++a) {
            double* lam = f.spectrum + std::int64_t(a) * f.rank;
            for (int k = 0; k < f.rank; ++k)
                lam[k] += part * (limit * limit * scores[a] * scores[k] + A[a][k] - lam[k]);
            lam[a] = std::max(lam[a], LOW_RANK_DEAD);
        }
    }

    /// U <- U + gain e_perp and V <- V + kick e_perp, both carried along a great circle; P learns.
    void turn(Factors f, double limit, double share) {
        const int r = f.rank, n = f.states;
        const Rows axes = axes_of(f, s), velocity = velocity_of(f, s);
        double c = 1.0, size = 0.0;
        for (int i = 0; i < n; ++i) gain[i] = limit * dot(f.angle_var + std::int64_t(i) * n, g, r);
        for (int i = 0; i < r; ++i) c += share * limit * g[i] * gain[i];
        for (int i = 0; i < n; ++i) {
            double* P = f.angle_var + std::int64_t(i) * n;
            const double part = share * gain[i] / c;
            for (int j = 0; j < n; ++j) P[j] -= part * gain[j];
        }
        for (int i = 0; i < n; ++i) gain[i] /= c;
        for (int i = 0; i < r; ++i) size += gain[i] * gain[i];
        apply(axes, error, b);
        along(b, axes, way);
        for (int p = 0; p < s; p += W) store(error + p, load(error + p) - load(way + p));
        const double length = std::sqrt(dot(error, error, s));
        size = std::sqrt(size);
        if (!(length * size > 0.0)) return;
        const double rise = std::sin(length * size), fall = std::cos(length * size) - 1.0;
        along(gain, axes, forth);
        for (int p = 0; p < s; p += W) {
            const vec unit = load(error + p) / length, ahead = load(forth + p) / size;
            store(way + p, (fall * ahead + rise * unit) / size);
            store(back + p, (fall * unit - rise * ahead) / length);
        }
        if (n > r) {
            add_outer(velocity, gain + r, error);
            apply(velocity, error, b);
            add_outer(velocity, b, back);
            slow_down(velocity);
        }
        add_outer(axes, gain, way);
    }

    /// No axis turns faster than LOW_RANK_FASTEST.
    static void slow_down(Rows velocity) {
        for (int a = 0; a < velocity.n; ++a) {
            const double speed = std::sqrt(dot(velocity[a], velocity[a], velocity.s));
            if (!(speed > LOW_RANK_FASTEST)) continue;
            for (int p = 0; p < velocity.s; p += W)
                store(velocity[a] + p, LOW_RANK_FASTEST / speed * load(velocity[a] + p));
        }
    }

    /// Axes go on along their geodesic, [U; V] <- M [U; V]; P <- M P M^T + noise.
    ///
    /// M = exp(t [[0, I], [-K, 0]]), K = V V^T; a velocity that decays at the rate c leads as far as
    /// one that does not would in t = (1 - exp(-c dt))/c.
    void coast(Factors f, const LowRankMember& m, double dt) {
        const int r = m.rank, n = m.states;
        const double keep = std::exp(-LOW_RANK_DECAY * dt), t = (1.0 - keep) / LOW_RANK_DECAY,
                     rate = (1.0 - keep * keep) / (2.0 * LOW_RANK_DECAY);
        const double angle = (dt - 2.0 * t + rate) / (LOW_RANK_DECAY * LOW_RANK_DECAY);
        Matrix<0> K{gram_of, r}, E{inner, r}, M{move, n}, P{whole, n}, Q{inner_inverse, n};
        clear(K);
        gram(velocity_of(f, s), velocity_of(f, s), K, true);
        mirror(K);
        eigen(K, E, scores, r, eigen_work);
        clear(M);
        for (int k = 0; k < r; ++k) {  // M += its part in the plane of one eigenvector
            const double speed = std::sqrt(std::max(scores[k], 0.0));
            const double cos = std::cos(t * speed), sin = std::sin(t * speed);
            const double over = t * speed > 1e-8 ? sin / speed : t;
            for (int i = 0; i < r; ++i)
                for (int j = 0; j < r; ++j) {
                    const double both = E[k][i] * E[k][j];
                    M[i][j] += cos * both, M[i][r + j] += over * both;
                    M[r + i][j] -= keep * speed * sin * both, M[r + i][r + j] += keep * cos * both;
                }
        }
        const Rows states{f.axes, n, s}, turned{wide_rows, n, s};
        combine(
            n, [&](int i, int k) { return M[i][k]; }, [&](int) { return n; }, states,
            [&](int i, int j, vec v) { store(turned[i] + j, v); });
        std::memcpy(states.p, turned.p, sizeof(double) * n * s);
        open(f.angle_var, P);
        multiply(Q, M, P);
        const double q = m.law.acceleration * m.law.acceleration / d;
        const double noise[2][2] = {{q * angle, q * 0.5 * t * t}, {q * 0.5 * t * t, q * rate}};
        for (int i = 0; i < n; ++i)
            for (int j = 0; j < n; ++j)
                f.angle_var[std::int64_t(i) * n + j] =
                    dot(Q[i], M[j], n) + (i % r == j % r ? noise[i / r][j / r] : 0.0);
    }
};

}  // namespace
