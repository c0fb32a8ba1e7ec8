// Where the numbers of an ensemble's track lie in its row, by the names of kgmrf.engines.layout.
#pragma once
#include "declared.hpp"
#include <cstdint>
#include <utility>
#include <vector>

namespace kgmrf {

constexpr int N_TAILS = sizeof TAILS / sizeof *TAILS;

/// Marks in the column ``heir`` of a table of members, as in kgmrf.engines.horizon.
constexpr double HEIR = 1.0, LAST = 2.0;

/// What the probability of tail j returns to.
inline double& tail_of(Learning& learning, int j) {
    return j == 0 ? learning.tail_1 : j == 1 ? learning.tail_2 : j == 2 ? learning.tail_3 : learning.tail_4;
}

enum class Kind { average, diagonal, turning };

/// A law of the ensemble, and where its numbers lie in a row (-1: it has none).
struct Member {
    Kind kind;
    MemberLine law;
    std::int64_t size = -1, mass = -1, deviation = -1, body = -1, turned = -1;
};

/// The members of a track of d channels and the places of its parts.
struct EnsemblePlan {
    Learning learning;
    int d, pairs, planes;
    std::vector<Member> members;  // averages, then diagonals, then turning ones
    int n_turning = 0;
    int steady = -1;  // the plain average of the longest half-life
    std::int64_t tails, wander, roots, level, units, top, entry, bias, scatter, size;

    /// Whether tracks learn how many samples an observation is worth.
    bool learns_samples() const { return size > scatter; }

    /// places: where the parts begin, from kgmrf.engines.layout.
    template <class Places>
    EnsemblePlan(int d, const double* table, int n, const Places& places, Learning learning)
        : learning(learning),
          d(d),
          pairs(d * (d + 1) / 2),
          planes(d * (d - 1) / 2),
          tails(places.at("tails")),
          wander(places.at("wander")),
          roots(places.at("roots")),
          level(places.at("level")),
          units(places.at("units")),
          top(places.at("top")),
          entry(places.at("entry")),
          bias(places.at("bias")),
          scatter(places.at("scatter")),
          size(places.at("end")) {
        std::int64_t fast_scale = places.at("size"), mass = places.at("mass"),
                     deviation = places.at("deviation"), body = places.at("body"),
                     turned = places.at("turning");
        const auto* lines = reinterpret_cast<const MemberLine*>(table);
        for (int k = 0; k < n; ++k) {
            Member m{static_cast<Kind>(static_cast<int>(lines[k].kind)), lines[k]};
            if (m.law.size_gain > 0.0) m.size = fast_scale++;
            if (m.law.channel_half_life > 0.0) m.deviation = std::exchange(deviation, deviation + d);
            if (m.kind == Kind::average) m.mass = mass++, m.body = std::exchange(body, body + pairs);
            if (m.kind == Kind::turning)
                m.turned = std::exchange(turned, turned + d * d + 4 * planes + d + 1), ++n_turning;
            if (m.law.heir == LAST) steady = k;
            members.push_back(m);
        }
    }
};

/// One row, by name; nothing is copied.
struct Track {
    double* row;
    Head& head;
    double *tails, *before, *wander, *roots, *level, *units, *top, *age_of, *waiting;
    double& bias;

    Track(double* row, const EnsemblePlan& at)
        : row(row),
          head(*reinterpret_cast<Head*>(row)),
          tails(row + at.tails),
          before(tails + N_TAILS),
          wander(row + at.wander),
          roots(row + at.roots),
          level(row + at.level),
          units(row + at.units),
          top(row + at.top),
          age_of(row + at.entry),
          waiting(age_of + at.d),
          bias(row[at.bias]) {}

    double* of(std::int64_t place) const { return place < 0 ? nullptr : row + place; }
    bool pooling() const { return head.pooled >= 0.0; }
    double age() const { return head.time - head.seen; }
    bool has(int channel) const { return level[channel] > 0.0; }
};

/// A turning member: an eigenframe, W and P of its planes i > j, eigenvalues and their variance.
/// While members pool, the lower triangle of the pooled covariance lies in the frame.
struct Turned {
    double *frame, *velocity, *p11, *p12, *p22, *lam, &lam_var;

    Turned(double* q, int d, int planes)
        : frame(q),
          velocity(q + d * d),
          p11(velocity + planes),
          p12(p11 + planes),
          p22(p12 + planes),
          lam(p22 + planes),
          lam_var(lam[d]) {}
    double* pool() const { return frame; }
};

}  // namespace kgmrf
