// The isotropic members of the rotation engine, the levels of the noise and the weights:
//
//     begin     the frame at Z
//     predict   members and frame move on
//     score     what Z says of members, noise and experts
//     take      Kalman step, weights, noise; then the frame moves to the mean of the members
//
// Variances are in units of that of the noise, r. Names are those of kgmrf.readable.rotations.
#pragma once
#include "dense.hpp"
#include <numbers>

namespace {

/// What h makes of the decay of every member: k = exp(-g h), beta = (1 - k)/g, and its noise q over
/// lambda.
struct Interval {
    static constexpr int K = ROTATION_MEMBERS;

    Room keep{K}, beta{K}, q0{K}, q2{K};

    void take(const decltype(RotationPlan::isotropic)& law, double h) {
        if (h == last) return;
        last = h;
        for (int k = 0; k < K; ++k) {
            const double g = law.decay[k];
            if (k > 0 && g == law.decay[k - 1]) {  // members are sorted by their decay
                keep[k] = keep[k - 1], beta[k] = beta[k - 1], q0[k] = q0[k - 1], q2[k] = q2[k - 1];
                continue;
            }
            const double x = g * h;
            keep[k] = std::exp(-x);
            beta[k] = g > 0.0 ? -std::expm1(-x) / g : h;
            q0[k] = g > 0.0 ? -std::expm1(-2.0 * x) / (2.0 * g) : h;
            q2[k] = x < 0.02 ? h * h * h * (1.0 / 3.0 - x * (0.25 - x * (7.0 / 60.0 - x / 24.0)))
                             : (h - 2.0 * beta[k] + q0[k]) / (g * g);
        }
    }

  private:
    double last = -1.0;
};

class Isotropic {
  public:
    static constexpr int K = ROTATION_MEMBERS, L = NOISE_LEVELS;
    static_assert(K % W == 0 && 2 * L % Q == 0);

    explicit Isotropic(const RotationPlan& plan) : law(plan.isotropic) {}

    /// All members at Z for the first time: Q = Z, delta = 0, v = 0, P = diag(1 + rho, c).
    void begin(RotationTrack t, Quaternion<double> z, const NoiseLevels& levels) {
        double log_noise = 0.0;
        for (int m = 0; m < levels.n; ++m)
            log_noise += levels.prior[m] * std::log(levels.variance[m]);
        t.head.noise = std::exp(log_noise);
        t.head.base = -1.0;
        t.head.young = YOUNG;
        t.head.precision = 0.0;
        fill(t.level, 2 * L, 1.0 / L);
        fill(t.p11, K, 0.0);
        begin_again(t, z, 0.0);
        std::copy_n(EXPERT_PRIORS, 3, t.experts);
        fill(t.rate, 3 * K, 0.0);
        for (int a = 0; a < AXES; ++a) std::copy_n(law.each, K, t.weight + K * a);
        for (int m = 0; m < 4 * L; ++m) std::copy_n(m < L ? law.joint : law.each, K, t.tables + K * m);
    }

    /// Q = Z, delta = 0, P = diag(1 + rho, P11 + c + fast). Velocities, weights and noise stay.
    void begin_again(RotationTrack t, Quaternion<double> z, double fast) {
        put(t.frame, z);
        for (int k = 0; k < K; ++k) {
            t.p00[k] = 1.0 + law.jitter[k];
            t.p01[k] = 0.0;
            t.p11[k] += law.rate_prior[k] + fast;
        }
        fill(t.delta, 3 * K, 0.0);
    }

    /// The unit of time becomes f times what it was.
    void rescale(RotationTrack t, double f) {
        for (int k = 0; k < K; ++k) t.p01[k] *= f, t.p11[k] *= f * f;
        for (int k = 0; k < 3 * K; ++k) t.rate[k] *= f;
    }

    /// Members move by d_k = beta v_k, the frame by their mean m; P <- F P F^T + lambda q.
    ///
    /// F = [[1, beta], [0, keep]], keep = exp(-g h), beta = (1 - keep)/g;
    /// delta_k <- Exp(-m) delta_k + Exp(-m/2) (d_k - m).
    void predict(RotationTrack t, double h) {
        now.take(law, h);
        const double *keep = now.keep, *beta = now.beta, *q0 = now.q0, *q2 = now.q2;
        const double most = 1e6 * WIDEST_ANGLE / t.head.noise;
        vec mean[AXES] = {};
        for (int k = 0; k < K; k += W) {
            const vec b = load(beta + k), stay = load(keep + k), noise = load(law.acceleration + k);
            const vec p00 = load(t.p00 + k), p01 = load(t.p01 + k), p11 = load(t.p11 + k);
            vec p = p00 + b * (2.0 * p01 + b * p11) + noise * load(q2 + k);
            vec c = stay * (p01 + b * p11) + noise * 0.5 * b * b;
            const mask wide = p > all(most);
            if (some<vec>(wide)) {  // nothing is known of this angle any more
                c *= square_root<vec>(pick<vec>(wide, most / p, all(1.0)));
                p = pick<vec>(wide, all(most), p);
            }
            store(t.p00 + k, p), store(t.p01 + k, c);
            store(t.p11 + k, stay * stay * p11 + noise * load(q0 + k));
            for (int a = 0; a < AXES; ++a) {
                double* rate = t.rate + K * a + k;
                const vec move = b * load(rate);
                store(moves + K * a + k, move), store(rate, stay * load(rate));
                mean[a] += load(t.weight + K * a + k) * move;
            }
        }
        const Vector3<double> m{sum_of(mean[0]), sum_of(mean[1]), sum_of(mean[2])};
        put(t.frame, turned(quaternion_at(t.frame), m));
        shift(t, m, true);
    }

    /// The body has turned by ``by``, as was measured; walk: variance of what was not.
    /// Q <- Q by, delta_k <- by^T delta_k, P00 <- P00 + walk/r.
    void turn(RotationTrack t, Quaternion<double> by, double walk) {
        put(t.frame, (quaternion_at(t.frame) * by).normalised());
        const Turning<double> back = turning(-1.0 * logarithm(by).vector);
        const double wider = walk / t.head.noise;
        for (int k = 0; k < K; k += W) {
            vec d[AXES];
            for (int a = 0; a < AXES; ++a) d[a] = load(t.delta + K * a + k);
            for (int a = 0; a < AXES; ++a) {
                vec y{};
                for (int b = 0; b < AXES; ++b) y += back.exp[a][b] * d[b];
                store(t.delta + K * a + k, y);
            }
            store(t.p00 + k, load(t.p00 + k) + wider);
        }
    }

    /// Moments of the turn over an interval, seen from the common frame, are added: share times the
    /// mean, the sum of squares of all axes.
    void ahead(RotationTrack t, const Interval& over, double share, double mean[AXES],
               double& square) const {
        vec turns[AXES] = {}, squares{};
        const double r = t.head.noise;
        for (int k = 0; k < K; k += W) {
            const vec b = load(over.beta + k);
            const vec free = r * (load(t.p00 + k) + b * (2.0 * load(t.p01 + k) + b * load(t.p11 + k)) +
                                  load(law.acceleration + k) * load(over.q2 + k));
            const vec p = pick<vec>(free < all(WIDEST_ANGLE), free, all(WIDEST_ANGLE));
            for (int a = 0; a < AXES; ++a) {
                const int j = K * a + k;
                const vec turn = load(t.delta + j) + b * load(t.rate + j), f = load(t.weight + j);
                turns[a] += f * turn;
                squares += f * (p + turn * turn);
            }
        }
        for (int a = 0; a < AXES; ++a) mean[a] += share * sum_of(turns[a]);
        square += share * sum_of(squares);
    }

    struct Evidence {
        double joint, each;  // logs
    };

    /// What Z says of members, levels and weights, e = Log(Q^T Z); it stays here for ``take``.
    ///
    /// At a level r of the noise y_k = e - delta_k is N(0, r S_k), S_k = P00_k + rho_k + rel. Each
    /// level has weights of its own, for all axes together and for each axis.
    Evidence score(RotationTrack t, Vector3<double> e, double rel, const NoiseLevels& levels) {
        if (t.head.base < 0.0) place(t, e, levels);
        for (int k = 0; k < K; k += W) {
            const vec s = load(t.p00 + k) + rel + load(law.jitter + k);
            vec whole{};
            for (int a = 0; a < AXES; ++a) {
                const vec y = e[a] - load(t.delta + K * a + k), square = y * y / s;
                store(squares + K * (a + 1) + k, square);
                whole += square;
            }
            store(squares + k, whole);
            store(logs + k, log_of<vec>(s));
        }
        return {score_expert(t, 0, levels), score_expert(t, 1, levels)};
    }

    /// Squared distance of what was scored last, over its variance.
    double distance(RotationTrack t) const {
        vec nis{};
        for (int j = 0; j < 3 * K; j += W) nis += load(t.weight + j) * load(squares + K + j);
        return sum_of(nis) / t.head.noise;
    }

    /// Log density of what was scored last as an outlier, o(e), over the group; volume: that of e.
    ///
    /// Any rotation, or nearer ones more likely; or off about one axis i while the two others say
    /// what they would of a motion, f_jm at level m of the noise, so that quiet axes speak for
    /// neither. With d the deviation of the forecast, L = log(1 + pi/d), L3 = max(L - 1.5, 1):
    ///
    ///     o = s0 / 8 pi^2 + s1 / (4 pi (|e| + d)^3 L3)
    ///         + sum_i (s2 / 2 pi + s3 / (2 (|e_i| + d) L)) sum_m level_m prod_{j != i} f_jm / 3
    double outlier(RotationTrack t, Vector3<double> e, double volume, const NoiseLevels& levels) {
        constexpr double pi = std::numbers::pi;
        vec spread{};
        for (int k = 0; k < K; k += W) {
            const vec weight = load(t.weight + k) + load(t.weight + K + k) + load(t.weight + 2 * K + k);
            spread += weight * load(logs + k);
        }
        const double d = std::sqrt(t.head.noise) * std::exp(sum_of(spread) / 6.0);
        const double l = std::log1p(pi / d), l3 = std::max(l - 1.5, 1.0);
        const double far = std::sqrt(e.square()) + d;
        double density = OUTLIER_SHARES[1] / (4.0 * pi * far * far * far * l3);
        const double* level = t.level + L;
        for (int i = 0; i < AXES; ++i) {
            double others = 0.0;
            for (int m = 0; m < levels.in_use(); ++m) {
                const double f = axes[L * ((i + 1) % 3) + m] + axes[L * ((i + 2) % 3) + m];
                others += level[m] * std::exp(f - LOG_2PI);
            }
            const double one = OUTLIER_SHARES[2] / (2.0 * pi) +
                               OUTLIER_SHARES[3] / (2.0 * (std::fabs(e[i]) + d) * l);
            density += one * others / 3.0;
        }
        return std::log(OUTLIER_SHARES[0] / (8.0 * pi * pi) + density * std::exp(-volume));
    }

    /// Kalman step and weights of every member from what was scored last. An exact repeat says
    /// nothing of the noise.
    void take(RotationTrack t, Vector3<double> e, double rel, bool repeat, const NoiseLevels& levels) {
        vec gain{};
        learn(t, repeat, levels);
        for (int k = 0; k < K; k += W) {
            const vec own = rel + load(law.jitter + k), p00 = load(t.p00 + k), s = p00 + own;
            const vec p01 = load(t.p01 + k), k0 = p00 / s, k1 = p01 / s;
            for (int a = 0; a < AXES; ++a) {
                const int j = K * a + k;
                const vec y = e[a] - load(t.delta + j);
                store(t.delta + j, load(t.delta + j) + k0 * y);
                store(t.rate + j, load(t.rate + j) + k1 * y);
                gain += load(t.weight + j) * k0;
            }
            // Not below what the correlation with the angle needs: the difference cancels.
            const vec least = own * (p00 > vec{} ? k1 * (p01 / p00) : vec{}) + 1e-300;
            const vec p11 = load(t.p11 + k) - k1 * p01;
            store(t.p11 + k, pick<vec>(p11 > least, p11, least));
            store(t.p00 + k, own * k0), store(t.p01 + k, own * k1);
        }
        t.head.gain = sum_of(gain) / 3.0;
        recentre(t);
    }

    /// Whether nothing is known of the angle any more, as after a long gap.
    bool lost(RotationTrack t) const {
        vec total{};
        for (int k = 0; k < K; k += W) {
            const vec p = load(t.p00 + k) * t.head.noise;
            const vec known = pick<vec>(p < all(WIDEST_ANGLE), p, all(WIDEST_ANGLE));
            for (int a = 0; a < AXES; ++a) total += load(t.weight + K * a + k) * known;
        }
        return sum_of(total) > 2.9 * WIDEST_ANGLE;
    }

  private:
    const decltype(RotationPlan::isotropic)& law;
    Interval now;
    Room moves{3 * K};                      // how far members move
    Room squares{4 * K}, logs{K};           // |y|^2/S of all axes and of each, log S
    Room found{2 * L}, tables{4 * L * K};   // new probabilities of levels, and weights
    Room axes{3 * L};                       // log evidence of each axis at each level, less constants

    /// delta <- Exp(-m) delta + Exp(-m/2) (moves - m), or without ``whole`` Exp(-m/2) (moves - m);
    /// angles stay principal.
    void shift(RotationTrack t, Vector3<double> m, bool whole) {
        const Turning<double> all_of = turning(-1.0 * m), half = turning(-0.5 * m);
        for (int k = 0; k < K; k += W) {
            vec u[AXES], d[AXES], far{};
            for (int a = 0; a < AXES; ++a) {
                u[a] = whole ? load(t.delta + K * a + k) : vec{};
                d[a] = load(moves + K * a + k) - m[a];
            }
            for (int a = 0; a < AXES; ++a) {
                vec y{};
                for (int b = 0; b < AXES; ++b)
                    y += all_of.exp[a][b] * u[b] + half.exp[a][b] * d[b];
                store(t.delta + K * a + k, y);
                far += y * y;
            }
            if (!some<vec>(far > all(WIDEST_ANGLE))) continue;
            for (int l = 0; l < W; ++l)
                if (far[l] > WIDEST_ANGLE) make_principal(t.delta + k + l);
        }
    }

    static void make_principal(double* delta) {
        const Quaternion<double> one{1.0, 0.0, 0.0, 0.0};
        const Quaternion<double> q =
            turned(one, Vector3<double>{delta[0], delta[K], delta[2 * K]});
        const Vector3<double> v = logarithm(q).vector;
        delta[0] = v.x, delta[K] = v.y, delta[2 * K] = v.z;
    }

    // ------------------------------------------------------------------------ levels of the noise

    static void normalise(double* p, int n) {
        double total = 0.0;
        for (int m = 0; m < n; ++m) total += p[m];
        for (int m = 0; m < n; ++m) p[m] /= total;
    }

    /// The first innovation says which levels of the noise are tabulated: up to its square.
    void place(RotationTrack t, Vector3<double> e, const NoiseLevels& levels) {
        int base = 0;
        while (base + L < levels.n && levels.variance[base + L - 2] < e.square()) ++base;
        t.head.base = base;
        for (int j = 0; j < 2; ++j) {
            for (int m = 0; m < L; ++m)
                t.level[L * j + m] = m < levels.n ? levels.prior[base + m] : 0.0;
            normalise(t.level + L * j, L);
        }
    }

    /// The tabulated levels follow the noise; one that enters is as likely as its neighbour.
    void slide(RotationTrack t, const NoiseLevels& levels) {
        if (levels.n < L) return;
        double middle = 0.0;
        for (int m = 0; m < 2 * L; ++m) middle += 0.5 * (m % L) * t.level[m];
        const int base = int(t.head.base);
        const int wanted = int(std::nearbyint(middle - 0.5 * (L - 1)));
        const int steps = std::min(std::max(wanted, -base), levels.n - L - base);
        if (steps == 0) return;
        t.head.base += steps;
        const auto move = [&](double* first, int size) {
            for (int i = 0; i < L; ++i) {
                const int m = steps > 0 ? i : L - 1 - i, from = std::clamp(m + steps, 0, L - 1);
                std::copy_n(first + size * from, size, first + size * m);
            }
        };
        for (int j = 0; j < 2; ++j) move(t.level + L * j, 1);
        for (int j = 0; j < 4; ++j) move(t.tables + L * K * j, K);
        for (int j = 0; j < 2; ++j) normalise(t.level + L * j, L);
    }

    // ------------------------------------------------------------------------ weights

    /// Log evidence of an expert: 0 with weights of all axes together, 1 with those of each axis.
    double score_expert(RotationTrack t, int expert, const NoiseLevels& levels) {
        const double *level = t.level + L * expert, *variance = levels.variance + int(t.head.base);
        double *to = found + L * expert, top = -HUGE_VAL, total = 0.0;
        const int n = levels.in_use();
        for (int m = 0; m < n; ++m) {
            const double near =
                level[m] + level[std::max(m - 1, 0)] + level[std::min(m + 1, n - 1)];
            to[m] = -HUGE_VAL;
            const bool likely = near > UNLIKELY_LEVEL;
            if (likely) to[m] = std::log(level[m]);
            for (int j = 0; j < 2 * expert + 1; ++j) {
                const double one = likely ? score_level(t, variance[m], expert + j, m) : -HUGE_VAL;
                to[m] += one;
                if (expert == 1) axes[L * j + m] = one;
            }
            top = std::max(top, to[m]);
        }
        for (int m = 0; m < n; ++m) total += to[m] = std::exp(to[m] - top);
        for (int m = 0; m < n; ++m) to[m] /= total;
        return top + std::log(total) - 1.5 * LOG_2PI;
    }

    /// New weights at level m of the noise, r, of all axes (j = 0) or one; their log evidence.
    double score_level(RotationTrack t, double r, int j, int m) {
        const double size = j == 0 ? 3.0 : 1.0, *prior = j == 0 ? law.joint : law.each;
        const double* old = t.tables + K * (L * j + m);
        double* to = tables + K * (L * j + m);
        vec value[K / W], highest = all(-HUGE_VAL), whole{};
        for (int k = 0; k < K; k += W) {
            const vec v = -0.5 * (size * load(logs + k) + load(squares + K * j + k) * (1.0 / r));
            value[k / W] = pick<vec>(load(prior + k) > vec{}, v, all(-1e300));
            highest = pick<vec>(value[k / W] > highest, value[k / W], highest);
        }
        const double top = largest_of(highest);
        for (int k = 0; k < K; k += W) {
            const vec weight =
                (1.0 - MEMBER_SWITCHING) * load(old + k) + MEMBER_SWITCHING * load(prior + k);
            const vec v = weight * exp_of<vec>(value[k / W] - top);
            store(to + k, v);
            whole += v;
        }
        const double total = sum_of(whole), rest = 1.0 / total;
        for (int k = 0; k < K; k += W) store(to + k, load(to + k) * rest);
        return top + std::log(total) - 0.5 * size * std::log(r);
    }

    /// Take over weights and noise; what is known of the noise fades.
    void learn(RotationTrack t, bool repeat, const NoiseLevels& levels) {
        if (repeat) forget_levels(t, levels.in_use());
        const int base = int(t.head.base), n = levels.in_use();
        const double joint = t.experts[0] / (t.experts[0] + t.experts[1]);
        vec weight[AXES][K / W] = {};
        double noise = 0.0;
        for (int expert = 0; expert < 2; ++expert) {
            const double share = expert == 0 ? joint : 1.0 - joint;
            for (int m = 0; m < n; ++m) {
                const double portion = found[L * expert + m];
                noise += share * portion * levels.variance[base + m];
                if (!(portion > 0.0)) continue;
                for (int j = expert; j <= 3 * expert; ++j)
                    copy(tables + K * (L * j + m), t.tables + K * (L * j + m), K);
                for (int a = 0; a < AXES; ++a)
                    for (int k = 0; k < K; k += W)
                        weight[a][k / W] += share * portion *
                                            load(tables + K * (L * (a + 1) * expert + m) + k);
            }
            if (!repeat) fade(t, expert, levels.fading + base, n);
        }
        for (int a = 0; a < AXES; ++a)
            for (int k = 0; k < K; k += W) store(t.weight + K * a + k, weight[a][k / W]);
        t.head.noise = noise;
        if (repeat) return;
        slide(t, levels);
        t.head.young = std::max(t.head.young - 1.0, 0.0);
        if (levels.head.jitter > 0.0) keep_least(t, levels);
    }

    /// The levels that were scored, as probable as before.
    void forget_levels(RotationTrack t, int n) {
        for (int expert = 0; expert < 2; ++expert) {
            double *to = found + L * expert, total = 0.0;
            for (int m = 0; m < n; ++m)
                total += to[m] = to[m] > 0.0 ? t.level[L * expert + m] : 0.0;
            for (int m = 0; m < n; ++m) to[m] /= total;
        }
    }

    /// level prop to (level^(1 - tau) found^tau)^(1 - f) prior^f, f = NOISE_FORGETTING. One
    /// observation says little of the noise, tau = LEVEL_LEARNING: members at different levels do
    /// not err alike. While the noise is young it counts in full.
    void fade(RotationTrack t, int expert, const double* fading, int n) {
        double* level = t.level + L * expert;
        const double tau = t.head.young > 0.0 ? 1.0 : LEVEL_LEARNING;
        for (int m = 0; m < n; ++m) {
            const double before = std::log(std::max(level[m], LEAST_LEVEL));
            const double now = std::log(std::max(found[L * expert + m], LEAST_LEVEL));
            level[m] = std::exp((1.0 - NOISE_FORGETTING) * (before + tau * (now - before))) * fading[m];
        }
        normalise(level, n);
    }

    /// The least noise of late as a precision: noise of a sensor is steady, jitter comes in bursts.
    /// By the harmonic mean of the levels, which counts errors relative to the noise.
    void keep_least(RotationTrack t, const NoiseLevels& levels) {
        double here = 0.0;
        for (int m = 0; m < 2 * L; ++m)
            here += 0.5 * t.level[m] / levels.variance[int(t.head.base) + m % L];
        const double old = t.head.young > 0.0 ? 0.0 : LEAST_NOISE_MEMORY * t.head.precision;
        t.head.precision = std::max(here, old);
    }

    // ------------------------------------------------------------------------ the frame

    /// The frame moves to the mean of the members, m; delta <- Exp(-m/2) (delta - m).
    /// A member that ran away starts again there, with their mean velocity.
    void recentre(RotationTrack t) {
        vec mean[AXES] = {};
        for (int a = 0; a < AXES; ++a)
            for (int k = 0; k < K; k += W) {
                const int j = K * a + k;
                const vec w = load(t.weight + j), delta = load(t.delta + j);
                mean[a] += pick<vec>(w > all(1e-12), w * delta, vec{});
                store(moves + j, delta);
            }
        const Vector3<double> m{sum_of(mean[0]), sum_of(mean[1]), sum_of(mean[2])};
        put(t.frame, turned(quaternion_at(t.frame), m));
        shift(t, m, false);
        for (int k = 0; k < K; k += W) {
            vec far{}, fast{};
            for (int a = 0; a < AXES; ++a) {
                const vec delta = load(t.delta + K * a + k), rate = load(t.rate + K * a + k);
                far += delta * delta, fast += rate * rate;
            }
            const mask well = (far < all(0.99 * WIDEST_ANGLE)) & (fast < all(WIDEST_ANGLE));
            if (!some<vec>(~well)) continue;
            for (int l = 0; l < W; ++l)
                if (!well[l]) restart_member(t, k + l);
        }
    }

    void restart_member(RotationTrack t, int k) {
        t.p00[k] = 1.0 + law.jitter[k];
        t.p01[k] = 0.0;
        t.p11[k] = law.rate_prior[k];
        for (int a = 0; a < AXES; ++a) {
            const double *weight = t.weight + K * a, *rate = t.rate + K * a;
            double v = 0.0;
            for (int i = 0; i < K; ++i)
                if (std::fabs(rate[i]) < 4.0) v += weight[i] * rate[i];
            t.delta[K * a + k] = 0.0;
            t.rate[K * a + k] = v;
        }
    }
};

}  // namespace
