// Alarms on p-values: CUSUMs of -log p, restarted when an alarm ends. See kgmrf.alerts.thresholds
// for the formulas and kgmrf.readable.alarm for the twin.
#pragma once
#include "declared.hpp"
#include <algorithm>
#include <cmath>
#include <cstdint>

namespace kgmrf {
namespace {

enum class AlarmStatus : std::int8_t {
    quiet = ALARM_QUIET,
    begins = ALARM_BEGINS,
    lasts = ALARM_LASTS,
    ends = ALARM_ENDS,
};

/// S_k <- max(0, S_k - log p - r_k); an alarm begins at S_k >= h_k and ends once all S_k, held at
/// most at h_k, are at half of it. The evidence is max S_k/h_k before that limit. The first lines of
/// a track, as many as ``warm_up``, count as without a p-value.
inline AlarmStatus follow_alarm(AlarmRow& t, double p, const double* references,
                                const double* thresholds, double warm_up, double& evidence) {
    double* sums = &t.sum_1;
    double* starts = &t.start_1;
    const bool inside = t.inside > 0.0;
    t.count += 1.0;
    const bool known = !std::isnan(p) && t.count > warm_up;
    evidence = 0.0;
    int best = 0;
    const double surprise = known ? -std::log(std::max(p, ALARM_LEAST)) : 0.0;
    for (int k = 0; k < ALARM_BETS; ++k) {
        if (known) {
            if (sums[k] == 0.0) starts[k] = t.count;
            sums[k] = std::max(0.0, sums[k] + surprise - references[k]);
        }
        const double share = sums[k] / thresholds[k];
        if (share > evidence) evidence = share, best = k;
    }
    if (!inside && evidence < 1.0) return AlarmStatus::quiet;
    for (int k = 0; k < ALARM_BETS; ++k) sums[k] = std::min(sums[k], thresholds[k]);
    if (evidence >= 1.0) t.last = t.count;
    if (!inside) {
        t.inside = 1.0;
        t.onset = starts[best];
        return AlarmStatus::begins;
    }
    if (evidence > ALARM_CALM) return AlarmStatus::lasts;
    t.inside = 0.0;
    for (int k = 0; k < ALARM_BETS; ++k) sums[k] = 0.0;
    return AlarmStatus::ends;
}

}  // namespace
}  // namespace kgmrf
