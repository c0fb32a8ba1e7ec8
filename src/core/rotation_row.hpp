// Where the numbers of a rotation's track lie in its row and record, by the names of
// kgmrf.engines.rotation_row, and the laws of its members.
#pragma once
#include "loops.hpp"

namespace kgmrf {

inline constexpr int AXES = 3;

/// Lines of rotations, with the settings of each row, or one for all.
struct RotationLines : Lines {
    const double* rates;  // (n, 4), a rate and its deviation, NaN where none was measured; or nullptr
    const double* settings;
    std::int64_t n_settings, settings_width;
};

struct RotationPlan {
    static constexpr int K = ROTATION_MEMBERS, D = DENSE_MEMBERS;

    int d = AXES;
    bool oscillations;
    std::int64_t size, gaps, experts, evidence, frame, last, omega, turned, origin, usual, usual_rate,
        pending, earned, delta, rate, p00, p01, p11, level,
        tables, weight, first = 0, quaternion = 0, motion = 0, share = 0, age = 0, spread = 0;
    struct {
        std::int64_t quaternion, velocity, omega, angle, cross, rate, off, nis, log_likelihood, time, seen,
            noise_std, gain, unit, status, outlier, before, shown, weights, end;
    } record;
    // Laws of the members, number by number.
    struct {
        double acceleration[K], decay[K], rate_prior[K], jitter[K], joint[K], each[K];
    } isotropic;
    struct {
        double frequency[AXES][D], log_std[D], rate[AXES][D], acceleration[D], prior[D];
    } dense;

    template <class Places>
    RotationPlan(const double* isotropic_laws, const double* dense_laws, const Places& places)
        : oscillations(places.count("spread") > 0),
          size(places.at("end")),
          gaps(places.at("gaps")),
          experts(places.at("experts")),
          evidence(places.at("evidence")),
          frame(places.at("frame")),
          last(places.at("last")),
          omega(places.at("omega")),
          turned(places.at("turned")),
          origin(places.at("origin")),
          usual(places.at("usual")),
          usual_rate(places.at("usual_rate")),
          pending(places.at("pending")),
          earned(places.at("earned")),
          delta(places.at("delta")),
          rate(places.at("rate")),
          p00(places.at("p00")),
          p01(places.at("p01")),
          p11(places.at("p11")),
          level(places.at("level")),
          tables(places.at("tables")),
          weight(places.at("weight")) {
        if (oscillations) {
            first = places.at("first"), quaternion = places.at("quaternion");
            motion = places.at("motion"), share = places.at("share");
            age = places.at("age"), spread = places.at("spread");
        }
        record = {places.at("record_quaternion"), places.at("record_velocity"),
                  places.at("record_omega"),
                  places.at("record_angle"),      places.at("record_cross"),
                  places.at("record_rate"),       places.at("record_off"),
                  places.at("record_nis"),        places.at("record_log_likelihood"),
                  places.at("record_time"),       places.at("record_seen"),
                  places.at("record_noise_std"),  places.at("record_gain"),
                  places.at("record_unit"),       places.at("record_status"),
                  places.at("record_outlier_probability"),
                  places.at("record_before"),     places.at("record_shown"),
                  places.at("record_weights"),    places.at("record_end")};
        const auto* one = reinterpret_cast<const IsotropicLaw*>(isotropic_laws);
        for (int k = 0; k < K; ++k, ++one) {
            isotropic.acceleration[k] = one->acceleration, isotropic.decay[k] = one->decay;
            isotropic.rate_prior[k] = one->rate_prior, isotropic.jitter[k] = one->jitter;
            isotropic.joint[k] = one->joint, isotropic.each[k] = one->each;
        }
        const auto* two = reinterpret_cast<const DenseLaw*>(dense_laws);
        for (int n = 0; n < D; ++n, ++two) {
            const double frequency[] = {two->frequency_x, two->frequency_y, two->frequency_z},
                         rates[] = {two->rate_x, two->rate_y, two->rate_z};
            for (int a = 0; a < AXES; ++a)
                dense.frequency[a][n] = frequency[a], dense.rate[a][n] = rates[a];
            dense.log_std[n] = two->log_std, dense.acceleration[n] = two->acceleration;
            dense.prior[n] = two->prior;
        }
    }
};

/// The isotropic members of a row, and what all members share; nothing is copied.
struct RotationTrack {
    RotationHead& head;
    double *gaps, *experts, *evidence, *frame, *last, *omega, *turned, *origin, *usual, *usual_rate;
    PendingForecast* pending;  // PENDING_FORECASTS of each lag
    Earned* earned;            // of each lag
    double *delta, *rate, *p00, *p01, *p11, *level, *tables, *weight;

    RotationTrack(double* row, const RotationPlan& at)
        : head(*reinterpret_cast<RotationHead*>(row)),
          gaps(row + at.gaps),
          experts(row + at.experts),
          evidence(row + at.evidence),
          frame(row + at.frame),
          last(row + at.last),
          omega(row + at.omega),
          turned(row + at.turned),
          origin(row + at.origin),
          usual(row + at.usual),
          usual_rate(row + at.usual_rate),
          pending(reinterpret_cast<PendingForecast*>(row + at.pending)),
          earned(reinterpret_cast<Earned*>(row + at.earned)),
          delta(row + at.delta),
          rate(row + at.rate),
          p00(row + at.p00),
          p01(row + at.p01),
          p11(row + at.p11),
          level(row + at.level),
          tables(row + at.tables),
          weight(row + at.weight) {}

    bool unseen() const { return head.seen != head.seen; }
};

/// The dense members of a row, side by side: number i of member n is at [D i + n].
struct DenseTrack {
    double *first, *quaternion, *motion, *share, *age, *spread;

    DenseTrack(double* row, const RotationPlan& at)
        : first(row + at.first),
          quaternion(row + at.quaternion),
          motion(row + at.motion),
          share(row + at.share),
          age(row + at.age),
          spread(row + at.spread) {}
};

/// Settings of one row.
struct NoiseLevels {
    const RotationSettings& head;
    const double *variance, *prior, *fading;  // fading: prior^NOISE_FORGETTING
    int n;

    explicit NoiseLevels(const double* settings)
        : head(*reinterpret_cast<const RotationSettings*>(settings)),
          variance(settings + sizeof head / sizeof(double)),
          prior(variance + int(head.n_levels)),
          fading(prior + int(head.n_levels)),
          n(int(head.n_levels)) {}
    bool given() const { return n == 1; }
    int in_use() const { return n < NOISE_LEVELS ? n : NOISE_LEVELS; }
};

}  // namespace kgmrf
