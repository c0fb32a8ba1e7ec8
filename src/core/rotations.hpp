// The self-tuned rotation filter: one loop over lines of observations. Isotropic members
// (isotropic.hpp) with weights for all axes together and for each axis, and dense members
// (dense.hpp) are three experts; kgmrf.readable.rotations tells the formulas under the same names.
#pragma once
#include "isotropic.hpp"
#include <limits>

namespace {

class Rotations : public Loop {
  public:
    static constexpr int K = ROTATION_MEMBERS, D = DENSE_MEMBERS;

    explicit Rotations(const RotationPlan& plan) : plan(plan), isotropic(plan), dense(plan) {}
    void run(const Lines& lines) override;

  private:
    const RotationPlan& plan;
    Isotropic isotropic;
    Dense dense;

    static constexpr double NOTHING = std::numeric_limits<double>::quiet_NaN();

    struct Observation {
        Quaternion<double> z;
        double noise;  // relative
    };

    /// What became of an observation, and what it said.
    struct Said {
        int status = MISSING;
        double log_likelihood = NOTHING, nis = NOTHING;
    };

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
        if (plan.oscillations) dense.rescale({row, plan}, f);
    }

    /// Whether dense members are: not before FIRST_START observations where the noise is learned.
    bool dense_in_use(RotationTrack t, const NoiseLevels& levels) const {
        return plan.oscillations && (levels.given() || t.head.stored >= FIRST_START);
    }

    /// All members over dt, in units of the stamps.
    void drift(RotationTrack t, double* row, double dt, bool with_dense) {
        t.head.time += dt;
        if (!(dt > 0.0) || t.unseen()) return;
        const double h = std::min(dt / t.head.unit, LONGEST_STEP);
        t.head.now = 0.0;
        // In pieces of about one unit, so that coasting over several is forecasting them.
        const int pieces = std::max(int(std::ceil(std::min(h, LONGEST_GAP) - 0.5)), 1);
        for (int k = 0; k < pieces; ++k) isotropic.predict(t, h / pieces);
        if (with_dense) dense.drift(t, {row, plan}, h);
    }

    // ------------------------------------------------------------------------ observations

    /// Z came last, with this noise, or was refused (0).
    static void remember(RotationTrack t, Quaternion<double> z, double noise) {
        t.head.now = noise;
        put(t.last, z);
    }

    /// The experts' probabilities, divided by their sum and never zero.
    static void settle(RotationTrack t) {
        const double total = t.experts[0] + t.experts[1] + t.experts[2];
        for (int a = 0; a < 3; ++a) t.experts[a] = std::max(t.experts[a] / total, 1e-300);
    }

    void start(RotationTrack t, double* row, const Observation& seen, const NoiseLevels& levels) {
        isotropic.begin(t, seen.z, levels, false);
        remember(t, seen.z, seen.noise);
        if (!plan.oscillations) return;
        dense.start_all(t, {row, plan});
        keep_first(t, row, seen);
    }

    /// While the noise is young: store Z; after 8 and 16 run the dense members anew.
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
        settle(t);
    }

    /// One observation: score it, refuse it or take it in.
    Said observe(RotationTrack t, double* row, const Observation& seen, bool with_dense,
                 const NoiseLevels& levels) {
        RotationHead& h = t.head;
        const Logarithm<double> e = between(quaternion_at(t.frame), seen.z);
        const double half = 0.5 * e.angle, r = h.noise * seen.noise;
        double evidence[3] = {0.0, 0.0, -1e300};
        if (with_dense) evidence[2] = dense.score(t, {row, plan}, seen.z, r);
        const auto [joint, each] = isotropic.score(t, e.vector, seen.noise, levels);
        // Densities with respect to volume on the group.
        const double volume = half > 1e-6 ? 2.0 * std::log(std::sin(half) / half) : 0.0;
        evidence[0] = joint - volume, evidence[1] = each - volume;

        const double top = std::max({evidence[0], evidence[1], evidence[2]});
        double posterior[3] = {}, total = 0.0, known = 0.0;
        for (int a = 0; a < (with_dense ? 3 : 2); ++a) {
            const double prior =
                (1.0 - EXPERT_SWITCHING) * t.experts[a] + EXPERT_SWITCHING * EXPERT_PRIORS[a];
            known += prior;
            total += posterior[a] = prior * std::exp(evidence[a] - top);
        }
        Said said{OBSERVED, top + std::log(total / known)};
        bool again = isotropic.lost(t);
        if (said.log_likelihood < bar(levels) && h.accept == 0.0 && !again) {
            if (h.rejected > 0.0)
                again = between(quaternion_at(t.last), seen.z).angle < std::min(1.0, half);
            if (!again) {
                h.rejected = 1.0;
                remember(t, seen.z, 0.0);
                said.status = REFUSED;
                return said;
            }
        }
        remember(t, seen.z, seen.noise);
        h.rejected = 0.0;
        h.accept = again;
        if (again) {
            restart(t, row, seen, with_dense, levels);
            said.status = RESTARTED;
            return said;
        }
        for (int a = 0; a < 3; ++a) t.experts[a] = a < 2 || with_dense ? posterior[a] : total;
        settle(t);
        said.nis = isotropic.take(t, e.vector, seen.noise, levels);
        if (with_dense) dense.take(t, {row, plan}, r);
        if (plan.oscillations && !levels.given()) {
            t.evidence[0] += evidence[0], t.evidence[1] += evidence[1];
            keep_first(t, row, seen);
        }
        return said;
    }

    /// Log density below which an observation is refused.
    static double bar(const NoiseLevels& levels) {
        constexpr double LOG_UNIFORM = -4.368898870735508;  // -log(8 pi^2): nothing is known
        return LOG_UNIFORM + std::log(levels.given() ? REFUSAL_GIVEN : REFUSAL_LEARNED);
    }

    void restart(RotationTrack t, double* row, const Observation& seen, bool with_dense,
                 const NoiseLevels& levels) {
        isotropic.begin(t, seen.z, levels, true);
        if (with_dense) dense.start_all(t, {row, plan});
        if (!plan.oscillations || t.head.stored >= LONGEST_START) return;
        t.head.stored = 0.0;
        t.evidence[0] = t.evidence[1] = 0.0;
        keep_first(t, row, seen);
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
            const Vector3<quad> away =
                between(same<quad>(quaternion_at(t.frame)), quaternion_at<quad>(x.quaternion + n, D))
                    .vector;
            const auto y = [&](int a) { return away[a] - out.mean[a]; };
            for (int a = 0; a < AXES; ++a) {
                const quad rate = load<quad>(x.motion + D * a + n);
                if (!centred) {
                    add(out.mean[a], away[a]), add(out.velocity[a], rate), add(out.left, p(a, a));
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
    void note(RotationTrack t, double* row, const Said& said, const NoiseLevels& levels, double* out) {
        const RotationHead& h = t.head;
        const auto& at = plan.record;
        fill(out, int(at.end), t.unseen() ? NOTHING : 0.0);
        out[at.time] = h.time, out[at.seen] = h.seen, out[at.unit] = h.unit;
        out[at.nis] = said.nis, out[at.log_likelihood] = said.log_likelihood;
        out[at.status] = said.status;
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
        put(out + at.quaternion,
            turned(frame, Vector3<double>{moments.mean[0], moments.mean[1], moments.mean[2]}));
        for (int a = 0; a < AXES; ++a) {
            out[at.velocity + a] = moments.velocity[a] / h.unit;
            out[at.angle + a] = moments.angle[a];
            out[at.cross + a] = moments.cross[a] / h.unit;
            out[at.rate + a] = moments.rate[a] / (h.unit * h.unit);
            out[at.off + a] = moments.off[a];
        }
        out[at.noise_std] = std::sqrt(h.noise);
        out[at.gain] = h.gain;
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
            keep_unit(t, row, l.dt[i], levels);
            const bool with_dense = dense_in_use(t, levels);
            drift(t, row, l.dt[i], with_dense);
            if (found == Status::observed) {
                const Observation seen{quaternion_of(z),
                                       std::clamp(1.0 / l.counts[i], LEAST_RELATIVE_NOISE,
                                                  MOST_RELATIVE_NOISE)};
                if (t.unseen())
                    start(t, row, seen, levels);
                else
                    said = observe(t, row, seen, with_dense, levels);
                if (said.status != REFUSED) t.head.seen = t.head.time;
            }
        } else {
            said.status = MISSING;
        }
        if (l.records) note(t, row, said, levels, l.records + i * l.record_width);
    }
}

}  // namespace
