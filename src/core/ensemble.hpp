// The self-tuned ensemble: one Student-t forecast from K members, weighted by the gradient of its
// own likelihood. kgmrf/readable/ensemble.py tells the formulas under the same names.
//
//     drift     every member moves on by dt
//     hold      S_k, the covariance that member k forecasts
//     blend     S = sum_k w_k S_k
//     compare   the observation beside S; missing cells are filled
//     score     tails, kappa and weights learn from it; u weighs the observation
//     learn     every member takes in u C
#pragma once
#include "entering.hpp"
#include "horizon.hpp"
#include "loops.hpp"
#include "observe.hpp"
#include "row.hpp"
#include "score.hpp"
#include "spread.hpp"
#include "storage.hpp"
#include "top_clock.hpp"
#include "rotating.hpp"
#include "youth.hpp"
#include <limits>
#include <memory>

namespace {

using namespace kgmrf;

constexpr double NOTHING = std::numeric_limits<double>::quiet_NaN();
/// One line of one track: m samples, or a matrix over m samples. m = 0: no observation.
struct Seen {
    const double* x;
    std::int64_t samples;
    double m;
    bool matrix;
};

/// What an observation says beside its forecast. m counts samples with a value that is there.
struct Compared {
    double values = 0.0, distance = 0.0, log_det = 0.0, m = 0.0;
    bool holes = false;
    Along top;
};

template <int S>
struct AdjointRoom;
template <int S>
class AverageAdjoint;
template <int S>
class CompareAdjoint;
template <int S>
class EnsembleAdjoint;
template <int S>
class LearnAdjoint;
template <int S>
class TurningAdjoint;

template <int S>
class Ensemble : public Loop {
  public:
    explicit Ensemble(const EnsemblePlan& plan)
        : plan(plan), d(plan.d), n(plan.pairs), k_(static_cast<int>(plan.members.size())) {
        for (int i = 0; i < k_; ++i) members[i] = plan.members[i];
    }
    void run(const Lines& lines) override;

  private:
    friend struct AdjointRoom<S>;
    friend class AverageAdjoint<S>;
    friend class CompareAdjoint<S>;
    friend class EnsembleAdjoint<S>;
    friend class LearnAdjoint<S>;
    friend class TurningAdjoint<S>;

    const EnsemblePlan& plan;
    const int d, n, k_;  // channels, pairs of them, members
    const int room = padded(n) + 8, list = padded(plan.planes) + 8, vector = padded(d) + 8;
    std::unique_ptr<Member[]> members{new Member[k_]()};
    Learning learning{plan.learning};

    // Numbers of each member.
    Room fade{k_ + 0u}, channel_gain{k_ + 0u}, exp_size{k_ + 0u}, weights{k_ + 0u},
        gradient{k_ + 0u}, z{padded(k_) + 8u};
    double last_dt = NOTHING, last_age = NOTHING, age = 0.0, size_keep = 1.0, top_keep = 1.0;
    double newest = 0.0;  // 1 over the rows since the last channel came
    TailLogs tail_logs;
    Horizon horizon{plan.members};
    Wander wander;
    TopClock<S> top{d};
    // Packed matrices; parts has one for each member.
    Room parts{std::size_t(k_) * room}, total{room + 0u}, slope{room + 0u}, mean{room + 0u},
        rest{room + 0u}, own{room + 0u};
    // Vectors and lists of planes.
    Room x{vector + 0u}, y{vector + 0u}, lam{vector + 0u}, inverse_lam{vector + 0u},
        column{vector + 0u}, guess{vector + 0u};
    Room share{list + 0u}, gap{list + 0u}, weight{list + 0u};
    Room cells{vector + 0u};  // observed values of each channel
    Room entered{vector + 0u};  // variance of those that come; 0: others
    Room newness{vector + 0u}, keep_of{vector + 0u}, gain_of{vector + 0u};
    std::unique_ptr<bool[]> there{new bool[d]}, hidden{new bool[d]};
    Room side{std::size_t(W) * (n + d)};  // W packed matrices and vectors side by side

    // Full matrices.
    const std::size_t square = std::size_t(padded(d)) * padded(d);
    Room full[14] = {Room(square), Room(square), Room(square), Room(square), Room(square),
                     Room(square), Room(square), Room(square), Room(square), Room(square),
                     Room(square), Room(square), Room(square), Room(square)};
    Matrix<S> matrix(int k) { return {full[k], d}; }
    Matrix<S> observed = matrix(0), inverse = matrix(1), outer = matrix(2), precision = matrix(3);
    Matrix<S> mean_full = matrix(4), rest_full = matrix(5), forecast = matrix(6), frame = matrix(7),
              body = matrix(8);
    Turn<Matrix<S>> turn{matrix(9), matrix(10), matrix(11), matrix(12), matrix(13)};

    double* part(int k) const { return parts + std::size_t(k) * room; }
    TopNumbers top_of(Track t) const { return {t.top, d}; }
    Scatter& scatter_in(Track t) const { return *reinterpret_cast<Scatter*>(t.of(plan.scatter)); }
    Turned turned(Track t, const Member& m) const { return {t.of(m.turned), d, plan.planes}; }

    // ------------------------------------------------------------------------ drift and hold

    /// What dt does to every clock, unless it is known already; was: time since the last
    /// observation when it begins.
    void take_interval(double dt, double was) {
        age = was + dt;
        if (dt == last_dt && was == last_age) return;
        last_dt = dt, last_age = was;
        const double decays = std::fmin(age, SIZE_DECAYS) - std::fmin(was, SIZE_DECAYS);
        size_keep = std::pow(SIZE_RETENTION, decays);
        top_keep = decays == dt ? size_keep : std::pow(SIZE_RETENTION, dt);
        for (int k = 0; k < k_; ++k) {
            const Member& m = members[k];
            fade[k] = m.kind == Kind::average ? std::exp2(-dt / m.law.half_life) : 1.0;
            channel_gain[k] = m.deviation < 0 ? 0.0 : 1.0 - std::exp2(-age / m.law.channel_half_life);
        }
    }

    /// s <- .98^dt s in the first unit of time after an observation, V <- 2^(-dt/h) V; turning
    /// members turn on and widen.
    void drift(Track t, double dt) {
        take_interval(dt, t.age());
        t.head.time += dt;
        top.drift(top_of(t), top_keep);
        for (int k = 0; k < k_; ++k) {
            const Member& m = members[k];
            if (m.mass >= 0) t.row[m.mass] *= fade[k];
            if (m.size >= 0) t.row[m.size] *= size_keep;
            if (m.kind != Kind::turning || t.pooling()) continue;
            Turned own = turned(t, m);
            open(own.frame, frame);
            turn_frame(frame, own.velocity, dt, turn);
            close(frame, own.frame);
            widen(own, plan.planes, m.law.acceleration, dt);
            own.lam_var += m.law.spectrum_rate * dt;
        }
    }

    /// S_k of every member, packed, into its part.
    void hold(Track t) {
        for (int k = 0; k < k_; ++k) {
            const Member& m = members[k];
            double* to = part(k);
            if (m.kind == Kind::turning) {
                hold_turning(t, turned(t, m), to);
                continue;
            }
            if (m.kind == Kind::average) {
                exp_size[k] = m.size < 0 ? 1.0 : std::exp(t.row[m.size]);
                const double rho = SHRINKAGE / (t.row[m.mass] + SHRINKAGE);
                scaled(t.of(m.body), to, exp_size[k] * (1.0 - rho), exp_size[k], d);
            } else {
                fill(to, n, 0.0);
                for (int i = 0; i < d; ++i) to[pair(i, i)] = 1.0;
            }
            if (const double* deviation = t.of(m.deviation))
                for (int i = 0; i < d; ++i)
                    for (int j = 0; j <= i; ++j) to[pair(i, j)] *= deviation[i] * deviation[j];
            for (int i = 0; i < d; ++i) {
                double& v = to[pair(i, i)];
                v = t.has(i) ? std::max(v, FLOOR * t.level[i]) * (1.0 + 1e-9) : 0.0;
            }
        }
    }

    /// E Q diag(lam) Q^T E, or the pooled covariance with its off-diagonal times n/(n + 1).
    void hold_turning(Track t, Turned own, double* to) {
        if (t.pooling()) {
            scaled(own.pool(), to, t.head.pooled / (t.head.pooled + 1.0), 1.0, d);
            return;
        }
        Matrix<S> right = turn.a, left = turn.b, whole = turn.c;
        for (int i = 0; i < d; ++i)
            for (int k = 0; k < d; ++k) right[k][i] = t.units[i] * own.frame[i * d + k];
        for (int k = 0; k < d; ++k)
            for (int j = 0; j < right.stride(); j += W)
                store(left[k] + j, own.lam[k] * load(right[k] + j));
        multiply_transposed(whole, left, right);
        pack(whole, to);
    }

    /// The weights at the time that it is; total = sum_k w_k S_k.
    void blend(Track t, bool sharp) {
        blend_weights(t.roots, k_, sharp, weights);
        horizon.look(t.age());
        horizon.carry(weights);
        for (int p = 0; p < n; p += W) {
            vec acc{};
            for (int k = 0; k < k_; ++k) acc += weights[k] * load(part(k) + p);
            store(total + p, acc);
        }
        unpack(total, forecast);
        top.aim(top_of(t), forecast);
    }

    // ------------------------------------------------------------------------ compare

    /// inverse = S^-1 on the channels of ``there``, 0 elsewhere; returns log |S| of them.
    double invert_forecast() {
        copy(forecast, inverse);
        for (int i = 0; i < d; ++i)
            if (!there[i]) {
                for (int j = 0; j < d; ++j) inverse[i][j] = inverse[j][i] = 0.0;
                inverse[i][i] = 1.0;
            }
        const double logs = invert(inverse, column);
        for (int i = 0; i < d; ++i)
            if (!there[i]) inverse[i][i] = 0.0;
        return logs;
    }

    void mark_present(Track t) {
        for (int i = 0; i < d; ++i) there[i] = t.has(i);
    }

    Compared compare(Track t, const Seen& seen) {
        Compared c;
        clear(mean_full), clear(outer), clear(precision), clear(rest_full);
        fill(cells, d, 0.0);
        double complete = 0.0, silent = 0.0, common = 0.0;
        bool same = false;  // inverse is that of all channels that are there
        for (std::int64_t r = 0; r < seen.samples; ++r) {
            const double* sample = seen.x + r * d;
            int known = 0, gone = 0;
            bool empty = true;
            for (int i = 0; i < d; ++i) {
                const bool nan = std::isnan(sample[i]), here = t.has(i) && !nan;
                x[i] = here ? sample[i] : 0.0;
                hidden[i] = t.has(i) && nan;
                known += here, gone += hidden[i], cells[i] += here;
                empty = empty && nan;
            }
            if (known == 0) {
                silent += !empty;
                continue;
            }
            double log_det;
            if (gone > 0) {
                for (int i = 0; i < d; ++i) there[i] = t.has(i) && !hidden[i];
                log_det = invert_forecast();
                mark_present(t), same = false;
            } else {
                if (!same) common = invert_forecast(), same = true;
                log_det = common;
                complete += 1.0;
            }
            apply(inverse, x, y);
            const double q = dot(x, y, d);
            c.values += known, c.distance += q, c.log_det += log_det;
            add_outer(outer, y, 1.0);
            if (gone > 0) {
                top.add_part(c.top, inverse, y);
                // What is surprising in one channel must not make another surprising that nobody
                // saw.
                fill_cells(1.0 / std::sqrt(std::max(q / (FILL_LIMIT * known), 1.0)));
                add(precision, inverse, 1.0);
                c.holes = true;
            } else {
                const double along = top.along(x);
                top.add(c.top, along * along, 1.0);
            }
            add_outer(mean_full, x, 1.0 / seen.m);
        }
        if (complete > 0.0) {
            if (!same) invert_forecast();
            add(precision, inverse, complete);
        }
        c.m = seen.m - silent;
        if (silent > 0.0 && c.m > 0.0) scale(mean_full, seen.m / c.m);
        return c;
    }

    /// Missing cells of x by a share of their expectation; their covariance is added to rest_full.
    void fill_cells(double portion) {
        for (int i = 0; i < d; ++i) {
            if (!hidden[i]) continue;
            apply(inverse, forecast[i], column);
            guess[i] = portion * dot(forecast[i], y, d);
            for (int j = 0; j < d; ++j)
                if (hidden[j]) rest_full[i][j] += forecast[i][j] - dot(forecast[j], column, d);
        }
        for (int i = 0; i < d; ++i)
            if (hidden[i]) x[i] = guess[i];
    }

    Compared compare_matrix(int n_there, double m) {
        for (int i = 0; i < d; ++i) cells[i] = there[i] ? m : 0.0;
        for (int i = 0; i < d; ++i)
            for (int j = 0; j < d; ++j)
                mean_full[i][j] = there[i] && there[j] ? observed[i][j] : 0.0;
        const double logs = invert_forecast();
        multiply(turn.a, inverse, mean_full);
        multiply(outer, turn.a, inverse);
        const double q = dot(inverse.p, mean_full.p, inverse.size());
        copy(inverse, precision);
        scale(precision, m), scale(outer, m);
        Compared c{m * n_there, m * q, m * logs, m, false, {}};
        apply(mean_full, top.direction(), column);
        top.add(c.top, m * top.along(column), m);
        return c;
    }

    /// What was seen counts as many samples as such observations were worth before; whether this one
    /// scatters as they did is learned. One with missing cells says nothing of it.
    void take_worth(Scatter& known, Compared& c, int n_there) {
        const double m = known.worth(c.m, n_there), share = m / c.m;
        if (c.m > 1.0 && n_there > 1 && !c.holes) {
            multiply(turn.a, inverse, mean_full);
            double trace = 0.0, square = 0.0;
            for (int i = 0; i < d; ++i) {
                trace += turn.a[i][i];
                for (int j = 0; j < d; ++j) square += turn.a[i][j] * turn.a[j][i];
            }
            const double scatter = scatter_of(trace, square, n_there);
            if (std::isfinite(scatter)) learn_spread(known.judged, known.spread, scatter);
        }
        known.samples = known.worth(c.m, n_there);
        c.m = m, c.values *= share, c.distance *= share, c.log_det *= share;
        c.top.share *= share, c.top.distance *= share, c.top.log_det *= share;
        scale(outer, share), scale(precision, share), scale(rest_full, share);
        for (int i = 0; i < d; ++i) cells[i] *= share;
    }

    // ------------------------------------------------------------------------ score

    /// The weight of an observation, and its squared distance from the forecast S.
    struct Judged {
        double u, q;
    };

    /// log p(x) of the observation under S'; tails, weights and kappa learn from it as if it had been
    /// forecast by S. The density of a young track is wider.
    Judged score(Track t, const Compared& c, double n_there) {
        Head& h = t.head;
        const double doubt = doubt_of(h.samples, d), log_wide = std::log(widening(doubt, n_there));
        const double shrunk = std::exp(-h.kappa - log_wide), grown = c.values * (h.kappa + log_wide);
        const double size_std = Wander::size_std(t.wander, horizon.gap());
        tail_logs.take(c.values, doubt);
        // NaN where squares overflowed
        const double q = std::fmin(shrunk * c.distance, FARTHEST);
        const Mixed found = mix_tails(t.tails, tail_logs, q, c.log_det + grown, size_std);
        const double q_top = std::fmin(shrunk * (c.distance - c.top.distance), FARTHEST);
        const double log_det = c.log_det + c.top.log_det + grown;
        const Mixed mixed =
            top.idle() ? found : mix_tails(t.tails, tail_logs, q_top, log_det, size_std);
        tell(h, mixed.log_p, q_top, c.values, size_std, doubt);
        const double log_size = (log_det - sum_of_logs(cells, t.level, d)) / c.values - log_wide;
        wander.learn(t.wander, log_size, h.count, age);
        const double heavy = heaviness(t.tails);
        top.learn(top_of(t), shrunk * c.top.share / c.m, c.m, mixed.u, heavy, age);
        const double size = q_top / (c.values * heavy * widened(size_std));
        t.bias = Bias(t.bias, size, c.m, h.count).value();
        score_tails(t, found, [&](int j) { return tail_of(learning, j); });
        const double factor = found.u * shrunk;
        for (int i = 0, p = 0; i < d; p += ++i) {  // off-diagonal entries count double
            for (int j = 0; j <= i; ++j) slope[p + j] = factor * outer[i][j] - precision[i][j];
            slope[p + i] *= 0.5;
        }
        for (int k = 0; k < k_; ++k) gradient[k] = dot(slope, part(k), n);
        horizon.pull_back(gradient);
        score_weights(t, k_, horizon.weights(), gradient, c.m / c.values, plan.learning.blend_rate);
        score_size(t, k_, found.u, q, c.values, [&](int k) { return members[k].law.root; },
                   plan.learning.kappa_gain);
        return {found.u, q};
    }

    // ------------------------------------------------------------------------ learn

    void learn(Track t, const Seen& seen, const Compared& c, int n_there) {
        Head& h = t.head;
        pack(mean_full, mean);
        if (c.holes)
            scale(rest_full, std::exp(h.kappa) / c.m), pack(rest_full, rest);
        else
            fill(rest, n, 0.0);
        auto [u, q] = score(t, c, n_there);
        h.count += 1.0;
        h.samples += c.m;
        grow_older(t);
        const bool early = h.samples <= EARLY;  // counts in full, and no size clock moves
        if (early || (h.doubt > 0.0 && u > 1.0)) u = 1.0;  // of a young track at most in full
        for (int i = 0; i < d; ++i) {
            if (!t.has(i)) continue;
            const double gain = std::max(newness[i], 1.0 / LEVEL_MEMORY);
            const double target = u * mean[pair(i, i)] + rest[pair(i, i)];
            t.level[i] = std::max(t.level[i] + gain * (target - t.level[i]), SMALLEST);
        }
        const double limited =
            early ? 1.0 : OUTLIER * c.values / std::max(q, OUTLIER * c.values);
        const bool single = !seen.matrix && seen.samples == 1 && !c.holes;
        if (single) sizes_of_one();
        for (int k = 0; k < k_; ++k)
            if (members[k].kind != Kind::turning)
                learn_average(t, k, u, limited, n_there, single, early);
        if (plan.n_turning > 0) learn_turning(t, u, c.m, single);
    }

    /// Size clock, deviations and average of member k take in what was seen.
    void learn_average(Track t, int k, double u, double limited, double n_there, bool single,
                       bool early) {
        const Member& m = members[k];
        double heavy = m.law.clip_outliers > 0.0 ? limited : u, size = 1.0;
        if (m.size >= 0) {
            auto [own_z, spare] = single ? std::pair{z[k], 0.0} : size_of(k);
            own_z = std::fmin(own_z, FARTHEST);
            heavy = m.law.clip_outliers > 0.0 ? OUTLIER * n_there / std::max(own_z, OUTLIER * n_there) : u;
            double grown = 1.0 + m.law.size_gain * ((heavy * own_z + spare) / n_there - 1.0);
            if (early) heavy = grown = 1.0;
            t.row[m.size] += std::log(grown);
            size = 1.0 / (exp_size[k] * grown);
        }
        each(n, [&]<class V>(int p) {
            store(own + p, heavy * load<V>(mean + p) + load<V>(rest + p));
        });
        if (double* deviation = t.of(m.deviation)) {
            for (int i = 0; i < d; ++i) {
                if (!t.has(i)) continue;
                const double gain = std::max(channel_gain[k], newness[i]);
                const double old = deviation[i] * deviation[i];
                deviation[i] = std::sqrt(
                    std::max(old + gain * (size * own[pair(i, i)] - old), FLOOR * t.level[i]));
            }
            for (int i = 0; i < d; ++i) y[i] = deviation[i] > 0.0 ? 1.0 / deviation[i] : 1.0;
            for (int i = 0; i < d; ++i)
                for (int j = 0; j <= i; ++j) own[pair(i, j)] *= y[i] * y[j];
        }
        if (m.kind != Kind::average) return;
        const double mass = t.row[m.mass] += 1.0, keep = 1.0 - 1.0 / mass, gain = size / mass;
        double* B = t.of(m.body);
        if (newest > 1.0 / mass) return learn_young(B, 1.0 / mass, size);
        each(n, [&]<class V>(int p) {
            store(B + p, keep * load<V>(B + p) + gain * load<V>(own + p));
        });
    }

    /// Every channel that is there is a row older: 1/n, 0 for those that are absent, and the largest.
    void grow_older(Track t) {
        newest = 0.0;
        each(d, [&]<class V>(int p) {
            const V one = splat<V>(1.0), there = load<V>(t.level + p) > V{} ? one : V{};
            const V age = load<V>(t.age_of + p) + there;
            const V own = there / (age > one ? age : one);
            store(t.age_of + p, age), store(newness + p, own);
            newest = std::max(newest, largest_of<V>(own));
        });
    }

    /// Where channels came late: the variance of one that is n rows old takes in 1/min(n, V), entries
    /// sqrt(a_i a_j), and keep sqrt((1 - a_i)(1 - a_j)), so that B stays positive.
    void learn_young(double* B, double part, double size) {
        for (int i = 0; i < d; ++i) {
            const double a = newness[i] > 0.0 ? std::max(newness[i], part) : 0.0;
            keep_of[i] = std::sqrt(1.0 - a), gain_of[i] = std::sqrt(size * a);
        }
        for (int i = 0, p = 0; i < d; ++i)
            for (int j = 0; j <= i; ++j, ++p)
                B[p] = keep_of[i] * keep_of[j] * B[p] + gain_of[i] * gain_of[j] * own[p];
    }

    /// z_k = x^T S_k^-1 x of the members with a size clock.
    void sizes_of_one() {
        each_clock([&](const int* who, int lanes, vec found) {
            for (int l = 0; l < lanes; ++l) z[who[l]] = found[l];
        });
    }

    /// take(members, number of them, x^T S_k^-1 x of each) for members with a size clock, W of them
    /// side by side.
    template <class Take>
    void each_clock(Take take) {
        for (int begin = 0; begin < k_;) {
            int who[W], lanes = 0;
            for (; begin < k_ && lanes < W; ++begin)
                if (members[begin].size >= 0) who[lanes++] = begin;
            if (lanes == 0) return;
            for (int l = 0; l < W; ++l) {  // lanes to spare repeat the last one
                const double* from = part(who[std::min(l, lanes - 1)]);
                for (int p = 0; p < n; ++p) side[W * p + l] = from[p];
                for (int i = 0; i < d; ++i)
                    if (!there[i]) side[W * pair(i, i) + l] = 1.0;
            }
            take(who, lanes, distances(side, side + W * n));
        }
    }

    /// x^T A^-1 x of packed matrices A side by side, by elimination.
    vec distances(double* a, double* b) {
        auto A = [&](int i, int j) { return a + W * pair(i, j); };
        for (int i = 0; i < d; ++i) store(b + W * i, all(x[i]));
        vec out{};
        for (int k = 0; k < d; ++k) {
            const vec inverse = 1.0 / load(A(k, k)), v = load(b + W * k);
            out += v * inverse * v;
            for (int i = k + 1; i < d; ++i) {
                const vec factor = -load(A(i, k)) * inverse;
                store(b + W * i, load(b + W * i) + factor * v);
                for (int j = k + 1; j <= i; ++j)
                    store(A(i, j), load(A(i, j)) + factor * load(A(j, k)));
            }
        }
        return out;
    }

    /// b <- A^-1 x, from what `distances` left of them.
    void substitute(const double* a, double* b) {
        for (int k = d; k-- > 0;) {
            vec v = load(b + W * k);
            for (int i = k + 1; i < d; ++i) v -= load(a + W * pair(i, k)) * load(b + W * i);
            store(b + W * k, v / load(a + W * pair(k, k)));
        }
    }

    /// tr(S_k^-1 C) of what was seen, and of the conditional covariance of missing cells.
    std::pair<double, double> size_of(int k) {
        unpack(part(k), inverse);
        for (int i = 0; i < d; ++i)
            if (!there[i]) inverse[i][i] = 1.0;
        invert(inverse, column);
        double own_z = 0.0, spare = 0.0;
        for (int i = 0; i < d; ++i)
            for (int j = 0; j <= i; ++j) {
                const double v = (i == j ? 1.0 : 2.0) * inverse[i][j];
                own_z += v * mean[pair(i, j)];
                spare += v * rest[pair(i, j)];
            }
        return {own_z, spare};
    }

#include "ensemble_rotating.hpp"
#include "ensemble_enter.hpp"

    // ------------------------------------------------------------------------ one step

    void step(Track t, const Seen& seen, double dt) {
        advance(t, dt);
        if (seen.m == 0.0) return;
        if (t.head.count > 0.0) hold(t), blend(t, false);
        observe(t, seen);
    }

    /// A time dt later; nothing is observed yet.
    void advance(Track t, double dt) {
        Head& h = t.head;
        h.likelihood = h.distance = h.values = NOTHING;
        h.size_std = h.doubt = 0.0;
        if (h.count == 0.0)
            h.time += dt;
        else
            drift(t, dt);
    }

    /// Take in what was seen; S_k and S are at hand, but for a track that begins.
    void observe(Track t, const Seen& seen) {
        Head& h = t.head;
        const bool fresh = h.count == 0.0;
        h.seen = h.time;
        if (fresh) {
            start(t, seen);
            if (plan.learns_samples()) {
                mark_present(t);
                const auto n_there = std::count(there.get(), there.get() + d, true);
                h.samples = scatter_in(t).worth(h.samples, double(n_there));
                scatter_in(t).samples = h.samples;
            }
            return;
        }
        mark_present(t);
        const int n_there = static_cast<int>(std::count(there.get(), there.get() + d, true));
        Compared c = seen.matrix ? compare_matrix(n_there, seen.m) : compare(t, seen);
        if (plan.learns_samples() && c.values > 0.0) take_worth(scatter_in(t), c, n_there);
        if (c.values > 0.0) learn(t, seen, c, n_there);
        if (n_there == d) return;
        for (int i = 0; i < d; ++i) {
            y[i] = seen.matrix ? observed[i][i] : 0.0;
            for (std::int64_t r = 0; !seen.matrix && r < seen.samples; ++r)
                if (const double v = seen.x[r * d + i]; !std::isnan(v)) y[i] += v * v / seen.m;
        }
        add_channels(t, y, seen.m);
    }

    /// The head, tails and weights of a row and, where there is room, its filtered covariance
    ///
    ///     h (.99 e^kappa S' + .01 S_B)
    ///
    /// with the heaviness h of the density, times e^b (see Bias), and the steadiest average B, and the
    /// scale e^kappa S'. An estimate at the time of an observation has nothing of B, which would blur
    /// its axes.
    void write_record(Track t, double* record, std::int64_t room_for) {
        const std::int64_t small = plan.roots + k_;
        copy(t.row, record, static_cast<int>(std::min(small, room_for)));
        if (room_for <= small) return;
        record += small;
        if (t.head.count == 0.0) return fill(record, static_cast<int>(room_for - small), NOTHING);
        if (room_for > small + d * d + n) record[d * d + n] = scatter_in(t).samples;
        const bool sharp = !std::isnan(t.head.values);
        hold(t);
        blend(t, sharp);
        double* packed = room_for >= small + d * d + n ? record + d * d : nullptr;
        report(t, sharp, [&](int i, int j, double v, double whole) {
            record[i * d + j] = record[j * d + i] = v;
            if (packed) packed[pair(i, j)] = whole;
        });
    }

    /// Entries of the covariance and of the scale, of what is held and blended: put(i, j, v, whole);
    /// NaN where a channel is absent.
    template <class Put>
    void report(Track t, bool sharp, Put put) {
        double heavy = 1.0, scale = 1.0;  // before the second observation nothing is known of them
        if (t.head.count > 1.0) {
            scale = std::exp(t.head.kappa);
            heavy = heaviness(t.tails) * widened(Wander::size_std(t.wander, horizon.gap()));
            heavy *= std::exp(t.bias);
        }
        const double share = sharp || plan.steady < 0 || t.head.count <= 1.0 ? 0.0 : STEADY_SHARE;
        const double* steady = part(std::max(plan.steady, 0));
        for (int i = 0; i < d; ++i)
            for (int j = 0; j <= i; ++j) {
                const bool known = t.has(i) && t.has(j);
                const double whole = scale * (total[pair(i, j)] + top.extra(i, j));
                const double v = heavy * ((1.0 - share) * whole + share * steady[pair(i, j)]);
                put(i, j, known ? v : NOTHING, known ? whole : NOTHING);
            }
    }
};

template <int S>
void Ensemble<S>::run(const Lines& l) {
    const std::int64_t length = l.samples * d;
    for (std::int64_t i = 0; i < l.n; ++i) {
        double* row = l.rows + l.track_index[i] * plan.size;
        if (i + 1 < l.n)
            for (int p = 0; p < plan.size; p += 8)
                __builtin_prefetch(l.rows + l.track_index[i + 1] * plan.size + p, 1);
        Seen seen{l.values + i * length, l.samples, 0.0, l.matrix};
        Status found = Status::missing;
        if (l.counts[i] > 0.0) {
            if (l.matrix) {
                found = take_covariance(seen.x, observed, turn.a, l.tolerance);
                seen.m = found == Status::observed ? l.counts[i] : 0.0;
            } else {
                seen.m = count_samples(seen.x, l.samples, d);
                found = seen.m < 0.0   ? Status::invalid
                        : seen.m > 0.0 ? Status::observed
                                       : Status::missing;
            }
        }
        l.status[i] = static_cast<std::int8_t>(found);
        Track t(row, plan);
        if (found != Status::invalid && l.counts[i] >= 0.0) step(t, seen, l.dt[i]);
        if (found != Status::invalid && l.records) write_record(t, l.records + i * l.record_width, l.record_width);
    }
}

}  // namespace
