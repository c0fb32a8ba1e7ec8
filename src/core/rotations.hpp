// The self-tuned rotation filter: one loop over lines of observations. Isotropic members
// (isotropic.hpp) with weights for all axes together and for each axis, and dense members
// (dense.hpp) are three experts; kgmrf.readable.rotations tells the formulas under the same names.
#pragma once
#include "rotation_ahead.hpp"
#include <limits>

namespace {

class Rotations : public Loop {
  public:
    static constexpr int K = ROTATION_MEMBERS, D = DENSE_MEMBERS;

    explicit Rotations(const RotationPlan& plan)
        : plan(plan), isotropic(plan), dense(plan), ahead(plan, isotropic, dense), motion(std::size_t(plan.size)), outlier(std::size_t(plan.size)),
          record(std::size_t(plan.record.end)) {}
    void run(const Lines& lines) override;

  private:
    const RotationPlan& plan;
    Isotropic isotropic;
    Dense dense;
    Ahead ahead;
    Room motion, outlier;  // a row as it is if the open observation was motion, if it was none
    Room record;           // of the less probable of both
    Room away{AXES * D};   // angles of the dense members, seen from the common frame

    static constexpr double NOTHING = std::numeric_limits<double>::quiet_NaN();

    struct Observation {
        Quaternion<double> z;
        double noise;  // relative
    };

    /// What became of an observation, and what it said.
    struct Said {
        int status = MISSING;
        double log_likelihood = NOTHING, nis = NOTHING, outlier = NOTHING;
        int before = MISSING;  // what became of an observation that was open until now
    };

    /// What the members say of an observation.
    struct Verdict {
        Logarithm<double> e;
        double evidence[3], posterior[3];  // of the experts
        double likelihood, outlier, nis;   // log densities over the group
        bool lost;
    };

    /// An observation as motion and as an outlier: log weights of both.
    struct Choice {
        int mode;  // TAKE, START or START_FAST
        double motion, outlier;

        double both() const { return add_logs(motion, outlier); }
    };

    static double add_logs(double a, double b) {
        return std::max(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
    }

    // ------------------------------------------------------------------------ time

    /// The unit of time is the median of the first positive intervals, unless it is given.
    void keep_unit(RotationTrack t, double* row, double dt, const NoiseLevels& levels) {
        RotationHead& h = t.head;
        if (h.intervals >= INTERVALS || !(dt > 0.0) || levels.head.unit > 0.0) return;
        int n = int(h.intervals);
        for (; n > 0 && t.gaps[n - 1] > dt; --n) t.gaps[n] = t.gaps[n - 1];  // they stay in order
        t.gaps[n] = dt;
        h.intervals += 1.0;
        n = int(h.intervals);
        const double f = 0.5 * (t.gaps[(n - 1) / 2] + t.gaps[n / 2]) / h.unit;
        h.unit *= f;
        if (t.unseen() || n == 1) return;
        isotropic.rescale(t, f);
        ahead.rescale(t, f);
        if (plan.oscillations) dense.rescale({row, plan}, f);
    }

    static bool unit_known(RotationTrack t, const NoiseLevels& levels) {
        return levels.head.unit > 0.0 || t.head.intervals > 0.0;
    }

    /// Whether dense members are: not before FIRST_START observations where the noise is learned.
    bool dense_in_use(RotationTrack t, const NoiseLevels& levels) const {
        return plan.oscillations && (levels.given() || t.head.stored >= FIRST_START);
    }

    /// How the body turned over dt by the rate, and the variance of what is not known of it.
    ///
    /// Between two rates it is their mean; without a new one the last is held, of which the
    /// variance after h is u h^3/3, with u the unrest, |change|^2/3 per unit of time.
    struct Turn {
        Quaternion<double> by{1.0, 0.0, 0.0, 0.0};
        double walk = 0.0;
    };

    static Turn measure(RotationTrack t, const double* rate, double dt) {
        RotationHead& h = t.head;
        const Quaternion<double> none{1.0, 0.0, 0.0, 0.0};
        const Vector3<double> last{t.omega[0], t.omega[1], t.omega[2]};
        if (!rate || std::isnan(rate[0])) {
            if (h.held < 0.0) return {};
            const double before = h.held;
            h.held += dt;
            const double cubes = h.held * h.held * h.held - before * before * before;
            return {turned(none, dt * last), h.unrest * cubes / 3.0};
        }
        const Vector3<double> now{rate[0], rate[1], rate[2]};
        Vector3<double> mean = now;
        if (h.held >= 0.0) {
            const Vector3<double> change{now.x - last.x, now.y - last.y, now.z - last.z};
            mean = {now.x - 0.5 * change.x, now.y - 0.5 * change.y, now.z - 0.5 * change.z};
            const double over = h.held + dt;
            if (over > 0.0) {
                const double found = change.square() / (3.0 * over);
                h.unrest = h.unrest > 0.0 ? found + UNREST_MEMORY * (h.unrest - found) : found;
            }
        }
        h.held = 0.0;
        for (int a = 0; a < AXES; ++a) t.omega[a] = now[a];
        return {turned(none, dt * mean), rate[3] * rate[3] * dt * dt};
    }

    /// The row as it stands when its last observation was left open, brought to now.
    void catch_up(RotationTrack t, double* row, const NoiseLevels& levels) {
        if (levels.head.rated > 0.0) isotropic.turn(t, quaternion_at(t.turned), t.head.walk);
        drift(t, row, t.head.behind, levels);
    }

    /// All members over dt, in units of the stamps.
    void drift(RotationTrack t, double* row, double dt, const NoiseLevels& levels) {
        if (!(dt > 0.0)) return;
        const double h = std::min(dt / t.head.unit, LONGEST_STEP);
        t.head.now = 0.0;
        // In pieces of about one unit, so that coasting over several is forecasting them.
        const int pieces = std::max(int(std::ceil(std::min(h, LONGEST_GAP) - 0.5)), 1);
        for (int k = 0; k < pieces; ++k) isotropic.predict(t, h / pieces);
        if (dense_in_use(t, levels)) dense.drift(t, {row, plan}, h);
    }

    // ------------------------------------------------------------------------ observations

    /// The experts' probabilities, divided by their sum and never zero.
    static void normalise(RotationTrack t) {
        const double total = t.experts[0] + t.experts[1] + t.experts[2];
        for (int a = 0; a < 3; ++a) t.experts[a] = std::max(t.experts[a] / total, 1e-300);
    }

    void start(RotationTrack t, double* row, const Observation& seen, const NoiseLevels& levels) {
        isotropic.begin(t, seen.z, levels);
        ahead.begin(t);
        t.head.now = seen.noise, t.head.seen = t.head.time;
        put(t.last, seen.z);
        if (!plan.oscillations) return;
        dense.start_all(t, {row, plan});
        keep_first(t, row, seen);
    }

    /// While the noise is young: store Z; after 8 and 16 run the dense members again.
    void keep_first(RotationTrack t, double* row, const Observation& seen) {
        DenseTrack x(row, plan);
        int n = int(t.head.stored);
        if (n >= LONGEST_START) return;
        const auto kept = [&](int j) { return x.first + 6 * j; };
        kept(n)[0] = t.head.time, kept(n)[1] = seen.noise;
        put(kept(n) + 2, seen.z);
        t.head.stored = ++n;
        if (n != FIRST_START && n != LONGEST_START) return;
        dense.start_all(t, x);
        for (int i = 0; i < D; ++i) {
            for (int a = 0; a < 4; ++a) x.quaternion[D * a + i] = kept(0)[2 + a];
            for (int a = 0; a < AXES; ++a) x.motion[D * a + i] = 0.0;
        }
        double evidence[3] = {t.evidence[0], t.evidence[1], 0.0};
        for (int j = 1; j < n; ++j) {
            const double dt = kept(j)[0] - kept(j - 1)[0], r = t.head.noise * kept(j)[1];
            if (dt > 0.0) dense.drift(t, x, dt / t.head.unit);
            evidence[2] += dense.score(t, x, quaternion_at(kept(j) + 2), r);
            dense.take(t, x, r);
        }
        const double top = std::max({evidence[0], evidence[1], evidence[2]});
        for (int a = 0; a < 3; ++a) t.experts[a] = EXPERT_PRIORS[a] * std::exp(evidence[a] - top);
        normalise(t);
    }

    /// What the members of a row say of Z.
    Verdict score(RotationTrack t, double* row, const Observation& seen, const NoiseLevels& levels) {
        Verdict v{between(quaternion_at(t.frame), seen.z), {0.0, 0.0, -1e300}, {}, 0.0, 0.0, 0.0,
                  isotropic.lost(t)};
        const bool with_dense = dense_in_use(t, levels);
        if (with_dense)
            v.evidence[2] = dense.score(t, {row, plan}, seen.z, t.head.noise * seen.noise);
        const auto [joint, each] = isotropic.score(t, v.e.vector, seen.noise, levels);
        // Densities with respect to volume on the group.
        const double half = 0.5 * v.e.angle;
        const double volume = half > 1e-6 ? 2.0 * std::log(std::sin(half) / half) : 0.0;
        v.evidence[0] = joint - volume, v.evidence[1] = each - volume;

        const double top = std::max({v.evidence[0], v.evidence[1], v.evidence[2]});
        double total = 0.0, known = 0.0;
        for (int a = 0; a < (with_dense ? 3 : 2); ++a) {
            const double prior =
                (1.0 - EXPERT_SWITCHING) * t.experts[a] + EXPERT_SWITCHING * EXPERT_PRIORS[a];
            known += prior;
            total += v.posterior[a] = prior * std::exp(v.evidence[a] - top);
        }
        if (!with_dense) v.posterior[2] = total;
        v.likelihood = top + std::log(total / known);
        v.outlier = isotropic.outlier(t, v.e.vector, volume, levels);
        v.nis = isotropic.distance(t);
        return v;
    }

    /// Motion or an outlier: (1 - p) f and p o, with p the share of outliers so far. Where Z agrees
    /// with the observation that was refused before, that one does not count and this is a jump
    /// rather, o JUMP_RATE, than one more outlier.
    static Choice posterior(RotationTrack t, const Verdict& v, Quaternion<double> z) {
        const RotationHead& h = t.head;
        const bool agree = h.refused > 0.0 && between(quaternion_at(t.last), z).angle <
                                                  std::min(1.0, 0.5 * v.e.angle);
        const double outliers = OUTLIERS_BEFORE + h.outliers - agree;
        const double p = outliers / (OBSERVED_BEFORE + h.observed);
        Choice found{TAKE, std::log1p(-p) + v.likelihood, std::log(p) + v.outlier};
        if (v.lost) return {START, found.motion, -1e300};
        const double jump = v.outlier + std::log(JUMP_RATE);
        if (agree && found.motion < jump) found.motion = jump, found.mode = START_FAST;
        return found;
    }

    /// Take in what was judged last; when: its time.
    void take(RotationTrack t, double* row, const Observation& seen, const Verdict& v, int mode,
              double when, const NoiseLevels& levels) {
        RotationHead& h = t.head;
        const double time = h.time;
        const bool repeat = repeats(t, seen.z);
        const double since = (when - h.seen) / h.unit;
        h.open = h.refused = 0.0;
        h.now = seen.noise, h.seen = h.time = when;
        put(t.last, seen.z);
        if (mode == TAKE) {
            std::copy_n(v.posterior, 3, t.experts);
            normalise(t);
            const double r = h.noise * seen.noise;
            isotropic.take(t, v.e.vector, seen.noise, repeat, levels);
            if (v.evidence[2] > -1e300) dense.take(t, {row, plan}, r);
            if (levels.head.rated == 0.0) {
                const DenseTrack x(row, plan);
                ahead.observe(t, dense_in_use(t, levels) ? &x : nullptr, seen.z, seen.noise, since);
            }
        } else {
            const double fast = mode == START_FAST ? v.e.angle * v.e.angle / (3.0 * h.noise) : 0.0;
            isotropic.begin_again(t, seen.z, fast);
            ahead.begin(t);
            if (dense_in_use(t, levels)) dense.start_all(t, {row, plan});
        }
        if (plan.oscillations && !levels.given() && h.stored < LONGEST_START) {
            if (mode == TAKE) {
                t.evidence[0] += v.evidence[0], t.evidence[1] += v.evidence[1];
            } else {
                h.stored = t.evidence[0] = t.evidence[1] = 0.0;
            }
            keep_first(t, row, seen);
        }
        h.time = time;
    }

    /// The row as it is now if the open observation was motion.
    void follow_motion(const double* row, const NoiseLevels& levels) {
        std::copy_n(row, plan.size, motion.data());
        RotationTrack t(motion.data(), plan);
        const double mode = t.head.open;
        const Observation seen{quaternion_at(t.last), t.head.open_noise};
        fill(t.last, 4, 0.0);  // refused if it was an outlier; here it is taken in
        take(t, motion.data(), seen, score(t, motion.data(), seen, levels), int(mode),
             t.head.time - t.head.behind, levels);
        catch_up(t, motion.data(), levels);
    }

    /// The next observation says whether the open one was motion or an outlier.
    Said close(RotationTrack t, double* row, const Observation& seen, const NoiseLevels& levels) {
        const double odds = t.head.odds;
        const int mode = int(t.head.open);
        follow_motion(row, levels);
        t.head.open = 0.0;
        t.head.outliers += 1.0;
        catch_up(t, row, levels);
        const double as_outlier = posterior(t, score(t, row, seen, levels), seen.z).both() + odds;
        RotationTrack other(motion.data(), plan);
        const double as_motion =
            posterior(other, score(other, motion.data(), seen, levels), seen.z).both();
        Said said;
        said.before = as_outlier > as_motion ? REFUSED : mode == TAKE ? OBSERVED : RESTARTED;
        if (said.before != REFUSED) std::copy_n(motion.data(), plan.size, row);
        return said;
    }

    /// Whether Z is the last observation once more, but for rounding.
    static bool repeats(RotationTrack t, Quaternion<double> z) {
        const double q[4] = {z.w, z.x, z.y, z.z};
        double apart = 0.0, opposite = 0.0;
        for (int a = 0; a < 4; ++a) {
            apart = std::max(apart, std::fabs(q[a] - t.last[a]));
            opposite = std::max(opposite, std::fabs(q[a] + t.last[a]));
        }
        return std::min(apart, opposite) < REPEAT_ROUNDING;
    }

    /// Whether Z is an exact repeat of the last observation that says nothing new.
    ///
    /// A source that is slower than its stamps repeats poses, a few times in a row and often. So
    /// does one at rest whose quantum is larger than its noise, but then runs are long.
    static bool stale(RotationTrack t, Quaternion<double> z, const NoiseLevels& levels) {
        RotationHead& h = t.head;
        const bool repeat = repeats(t, z);
        h.repeats = repeat ? h.repeats + 1.0 : 0.0;
        const double share = std::max(1.0 - REPEAT_MEMORY, 1.0 / (2.0 + h.observed));
        h.repeated += share * (repeat - h.repeated);
        h.longest = std::max(REST_MEMORY * h.longest, h.repeats);
        if (!repeat || h.repeats > LONGEST_REPEAT) return false;
        if (levels.head.repeats == REPEATS_TAKEN) return false;
        const bool frequent = h.observed < FIRST_REPEATS || h.repeated > FREQUENT_REPEATS;
        return levels.head.repeats == REPEATS_MISSING || (frequent && h.longest <= LONGEST_REPEAT);
    }

    /// One observation: motion, a jump, an outlier, or left open for the next to say.
    Said observe(RotationTrack t, double* row, const Observation& seen, const NoiseLevels& levels) {
        RotationHead& h = t.head;
        Said said;
        if (stale(t, seen.z, levels)) {
            said.status = STALE;
            return said;
        }
        if (h.open > 0.0) said = close(t, row, seen, levels);
        const Verdict v = score(t, row, seen, levels);
        const Choice choice = posterior(t, v, seen.z);
        h.observed += 1.0;
        const double odds = choice.outlier - choice.motion;
        said.log_likelihood = v.likelihood, said.nis = v.nis;
        said.outlier = 1.0 / (1.0 + std::exp(-odds));
        said.status = odds > 0.0 ? REFUSED : choice.mode == TAKE ? OBSERVED : RESTARTED;
        if (odds < std::log(DOUBT)) {
            take(t, row, seen, v, choice.mode, h.time, levels);
            return said;
        }
        h.refused = 1.0, h.now = 0.0;
        put(t.last, seen.z);
        if (odds > -std::log(DOUBT)) {
            h.outliers += 1.0;
        } else {
            h.open = choice.mode, h.odds = odds, h.open_noise = seen.noise;
            h.behind = h.walk = 0.0;
            put(t.turned, Quaternion<double>{1.0, 0.0, 0.0, 0.0});
        }
        return said;
    }

    // ------------------------------------------------------------------------ records

    /// Share of Z itself in what is shown after it, where the noise is learned.
    ///
    /// Noise and white jitter of the rotation look alike. To take jitter for noise can be wrong by
    /// any factor; to take noise for jitter loses what smoothing gains, 1/sqrt(left), with ``left``
    /// the variance over that of Z. So Z is shown if ``left`` is above exp(-jitter/r), r the least
    /// noise of late, but never where smoothing gains much. While the noise is young more is shown.
    static double seen_share(RotationTrack t, double left, bool young, const NoiseLevels& levels) {
        const RotationHead& h = t.head;
        if (levels.head.jitter == 0.0 || h.precision == 0.0) return 0.0;
        double bar = std::max(std::exp(-levels.head.jitter * h.precision / h.now), SMOOTHING_GAIN);
        if (young) bar = std::min(bar, YOUNG_GAIN);
        return std::clamp(0.5 + 5.0 * (left / bar - 1.0), 0.0, 1.0);
    }

    /// Moments of the mixture of all members: of Log(Q^T R) and of the velocity, about zero until
    /// ``centred``.
    struct Moments {
        double mean[AXES] = {}, velocity[AXES] = {}, angle[AXES] = {}, cross[AXES] = {},
               rate[AXES] = {}, off[AXES] = {}, left = 0.0;
    };

    void add_dense(RotationTrack t, DenseTrack x, double share, Moments& out, double* weights,
                   bool centred) {
        for (int n = 0; n < D; n += Q) {
            const quad portion = share * load<quad>(x.share + n);
            const mask_of<quad> there = portion > splat<quad>(1e-12);
            if (!some<quad>(there)) continue;
            const quad f = pick<quad>(there, portion, quad{});
            store(weights + n, f);
            const auto add = [&](double& to, quad value) {
                to += sum_of(pick<quad>(there, f * value, quad{}));
            };
            const auto p = [&](int i, int j) { return load<quad>(x.spread + D * under(i, j) + n); };
            if (!centred) {
                const Quaternion<quad> own = quaternion_at<quad>(x.quaternion + n, D);
                const Vector3<quad> v = between(same<quad>(quaternion_at(t.frame)), own).vector;
                for (int a = 0; a < AXES; ++a) store(away + D * a + n, v[a]);
            }
            const auto angle = [&](int a) { return load<quad>(away + D * a + n); };
            const auto y = [&](int a) { return angle(a) - out.mean[a]; };
            for (int a = 0; a < AXES; ++a) {
                const quad rate = load<quad>(x.motion + D * a + n);
                if (!centred) {
                    add(out.mean[a], angle(a)), add(out.velocity[a], rate), add(out.left, p(a, a));
                    continue;
                }
                const int b = (a + 1) % 3, c = (a + 2) % 3;
                const quad v = rate - out.velocity[a];
                add(out.angle[a], p(a, a) + y(a) * y(a));
                add(out.cross[a], p(3 + a, a) + y(a) * v);
                add(out.rate[a], p(3 + a, 3 + a) + v * v);
                add(out.off[a], p(b, c) + y(b) * y(c));
            }
        }
    }

    void add_isotropic(RotationTrack t, Vector3<double> seen, double share, Moments& out,
                       double* weights, bool centred) {
        const double r = t.head.noise, now = t.head.now;
        vec sums[3 * AXES] = {}, left{};
        for (int k = 0; k < K; k += W) {
            // Jitter of the rotation itself: R = S Exp(j), j of variance own. Given S and Z it is
            // (1 - kept) (Z - S) with variance own kept.
            const vec own = load(plan.isotropic.jitter + k), p00 = load(t.p00 + k);
            const vec kept = now > 0.0 ? now / (now + own) : all(1.0);
            const vec free = r * p00;
            const vec narrow = pick<vec>(free < all(WIDEST_ANGLE), free, all(WIDEST_ANGLE));
            const vec cross = kept * load(t.p01 + k) * square_root<vec>(r * narrow / p00);
            const vec angle = kept * kept * narrow + r * own * kept;
            vec whole{};
            for (int a = 0; a < AXES; ++a) {
                const int j = K * a + k;
                const vec f = share * load(t.weight + j), rate = load(t.rate + j);
                const vec y = kept * load(t.delta + j) + (1.0 - kept) * seen[a];
                if (!centred) {
                    sums[a] += f * y, sums[AXES + a] += f * rate, left += f * angle, whole += f;
                    continue;
                }
                const vec away = y - out.mean[a], v = rate - out.velocity[a];
                sums[a] += f * (angle + away * away);
                sums[AXES + a] += f * (cross + away * v);
                sums[2 * AXES + a] += f * (r * load(t.p11 + k) + v * v);
            }
            if (!centred) store(weights + k, whole / 3.0);
        }
        for (int a = 0; a < AXES; ++a) {
            if (!centred) {
                out.mean[a] += sum_of(sums[a]), out.velocity[a] += sum_of(sums[AXES + a]);
                continue;
            }
            out.angle[a] += sum_of(sums[a]), out.cross[a] += sum_of(sums[AXES + a]);
            out.rate[a] += sum_of(sums[2 * AXES + a]);
        }
        if (!centred) out.left += sum_of(left);
    }

    /// What an estimate shows: the moments of the mixture of all members, into a record. NaN before
    /// the first observation.
    void write_record(RotationTrack t, double* row, const Said& said, const NoiseLevels& levels, double* out) {
        const RotationHead& h = t.head;
        const auto& at = plan.record;
        fill(out, int(at.end), t.unseen() ? NOTHING : 0.0);
        out[at.time] = h.time, out[at.seen] = h.seen, out[at.unit] = h.unit;
        out[at.nis] = said.nis, out[at.log_likelihood] = said.log_likelihood;
        out[at.status] = said.status, out[at.outlier] = said.outlier, out[at.before] = said.before;
        if (t.unseen()) return;
        const bool with_dense = dense_in_use(t, levels);
        const double share = with_dense ? t.experts[2] : 0.0;
        const Quaternion<double> frame = quaternion_at(t.frame);
        const Vector3<double> seen = between(frame, quaternion_at(t.last)).vector;
        Moments moments;
        for (const bool centred : {false, true}) {
            if (with_dense)
                add_dense(t, {row, plan}, share, moments, out + at.weights + K, centred);
            add_isotropic(t, seen, 1.0 - share, moments, out + at.weights, centred);
            if (centred || !(h.now > 0.0)) continue;
            const double left = moments.left / (3.0 * h.noise * h.now);
            const double own = seen_share(t, left, h.young > 0.0, levels);
            out[at.shown] = seen_share(t, left, false, levels);  // by those who look back
            for (int a = 0; a < AXES; ++a) moments.mean[a] += own * (seen[a] - moments.mean[a]);
        }
        Quaternion<double> shown =
            turned(frame, Vector3<double>{moments.mean[0], moments.mean[1], moments.mean[2]});
        double spread = 1.0;
        if (levels.head.rated == 0.0 && h.now == 0.0 && h.time > h.seen) {
            const Ahead::Applied more = Ahead::applied(t, shown);
            shown = turned(shown, more.turn), spread = more.spread;
        }
        put(out + at.quaternion, shown);
        for (int a = 0; a < AXES; ++a) {
            out[at.velocity + a] = moments.velocity[a] / h.unit;
            out[at.angle + a] = spread * moments.angle[a];
            out[at.cross + a] = std::sqrt(spread) * moments.cross[a] / h.unit;
            out[at.rate + a] = moments.rate[a] / (h.unit * h.unit);
            out[at.off + a] = spread * moments.off[a];
            if (h.held < 0.0) continue;
            out[at.omega + a] = t.omega[a];
            out[at.rate + a] += h.unrest * h.held;
        }
        out[at.noise_std] = std::sqrt(h.noise);
        out[at.gain] = h.gain;
    }

    /// While an observation is open the more probable of both ways is shown; its covariance is that
    /// of both: sum w P + w_other d d^T, d from the one to the other.
    void note_open(double* row, const Said& said, const NoiseLevels& levels, double* out) {
        std::copy_n(row, plan.size, outlier.data());
        RotationTrack without(outlier.data(), plan);
        catch_up(without, outlier.data(), levels);
        follow_motion(row, levels);
        const RotationTrack with(motion.data(), plan);
        const double share = 1.0 / (1.0 + std::exp(-without.head.odds));
        const bool refused = share > 0.5;
        write_record(with, motion.data(), said, levels, refused ? record.data() : out);
        write_record(without, outlier.data(), said, levels, refused ? out : record.data());
        const double f = refused ? 1.0 - share : share;  // of the other
        const auto& at = plan.record;
        const double* other = record.data();
        const Vector3<double> d =
            between(quaternion_at(out + at.quaternion), quaternion_at(other + at.quaternion)).vector;
        for (int a = 0; a < AXES; ++a) {
            const double v = other[at.velocity + a] - out[at.velocity + a];
            const auto mix = [&](std::int64_t place, double apart) {
                out[place + a] += f * (other[place + a] - out[place + a] + apart);
            };
            mix(at.angle, d[a] * d[a]), mix(at.cross, d[a] * v), mix(at.rate, v * v);
            mix(at.off, d[(a + 1) % 3] * d[(a + 2) % 3]);
        }
    }
};

inline void Rotations::run(const Lines& every) {
    const auto& l = static_cast<const RotationLines&>(every);
    for (std::int64_t i = 0; i < l.n; ++i) {
        const std::int64_t track = l.track_index[i];
        double* row = l.rows + track * plan.size;
        RotationTrack t(row, plan);
        const NoiseLevels levels(l.settings + std::min(track, l.n_settings - 1) * l.settings_width);
        const double* z = l.values + 9 * i;
        Status found = Status::missing;
        if (l.counts[i] > 0.0) found = inspect_rotation<3>(z, l.tolerance);
        l.status[i] = static_cast<std::int8_t>(found);
        Said said{int(found)};
        if (l.counts[i] >= 0.0 && found != Status::invalid) {
            const double dt = l.dt[i];
            t.head.time += dt;
            double over = dt;
            if (levels.head.rated == 0.0) {
                keep_unit(t, row, dt, levels);
            } else if (found == Status::observed && !t.unseen()) {
                const double since = t.head.time - t.head.seen;
                if (!unit_known(t, levels)) over = since;
                keep_unit(t, row, since, levels);
            } else if (!unit_known(t, levels)) {
                over = 0.0;  // until the second observation says the unit
            }
            const Turn turn = measure(t, l.rates ? l.rates + 4 * i : nullptr, dt);
            if (t.head.open > 0.0) {
                t.head.behind += dt, t.head.walk += turn.walk;
                put(t.turned, (quaternion_at(t.turned) * turn.by).normalised());
            } else if (!t.unseen()) {
                if (levels.head.rated > 0.0) isotropic.turn(t, turn.by, turn.walk);
                drift(t, row, over, levels);
            }
            if (found == Status::observed) {
                const Observation seen{quaternion_of(z),
                                       std::clamp(1.0 / l.counts[i], LEAST_RELATIVE_NOISE,
                                                  MOST_RELATIVE_NOISE)};
                if (t.unseen())
                    start(t, row, seen, levels);
                else
                    said = observe(t, row, seen, levels);
            }
        } else {
            said.status = MISSING;
        }
        if (!l.records) continue;
        double* out = l.records + i * l.record_width;
        if (t.head.open > 0.0)
            note_open(row, said, levels, out);
        else
            write_record(t, row, said, levels, out);
    }
}

}  // namespace
