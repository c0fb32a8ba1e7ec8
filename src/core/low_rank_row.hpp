// Where the numbers of a track of many channels lie in its row, by the names of
// kgmrf.engines.low_rank_layout. Vectors over channels have ``stride`` numbers, d rounded up to a
// multiple of eight; what fills them up are channels that were never seen.
#pragma once
#include "declared.hpp"
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace kgmrf {

constexpr int N_STAGES = 4;

/// A law of few factors, and where its numbers begin in a row.
struct LowRankMember {
    FactorsLine law;
    int rank, states, stages[N_STAGES];
    std::int64_t noise, metric, axes, angle_var, spectrum, numbers;
};

/// The members of a track of d channels and the places of its parts.
struct LowRankPlan {
    int d, stride, columns = 0, most_rank = 0, most_states = 0, buffer_rows;
    std::vector<LowRankMember> members;
    std::int64_t tails, wander, roots, level, counts, first, buffer, size;

    /// places: where the parts begin, from kgmrf.engines.low_rank_layout.
    template <class Places>
    LowRankPlan(int d, const double* table, int n, const Places& places)
        : d(d),
          stride((d + 7) / 8 * 8),
          buffer_rows(static_cast<int>(places.at("buffer_rows"))),
          tails(places.at("tails")),
          wander(places.at("wander")),
          roots(places.at("roots")),
          level(places.at("level")),
          counts(places.at("counts")),
          first(places.at("first")),
          buffer(places.at("buffer")),
          size(places.at("end")) {
        const auto* lines = reinterpret_cast<const FactorsLine*>(table);
        for (int k = 0; k < n; ++k) {
            const FactorsLine& law = lines[k];
            const auto at = [&](const char* part) {
                return std::int64_t(places.at(std::to_string(k) + "." + part));
            };
            const int rank = static_cast<int>(law.rank), states = static_cast<int>(law.states);
            members.push_back({law,
                               rank,
                               states,
                               {static_cast<int>(law.stage_1), static_cast<int>(law.stage_2),
                                static_cast<int>(law.stage_3), static_cast<int>(law.stage_4)},
                               at("noise"),
                               at("metric"),
                               at("axes"),
                               at("angle_var"),
                               at("spectrum"),
                               at("numbers")});
            columns += rank;
            most_rank = std::max(most_rank, rank);
            most_states = std::max(most_states, states);
            const LowRankMember& m = members.back();
            const std::int64_t wide = stride, r = rank, both = states;
            const bool fits = 1 <= rank && rank <= d && (states == rank || states == 2 * rank) &&
                              rank < m.stages[0] && m.stages[N_STAGES - 1] <= buffer_rows &&
                              inside(m.noise, wide) && inside(m.metric, wide) &&
                              inside(m.axes, both * wide) && inside(m.angle_var, both * both) &&
                              inside(m.spectrum, r * r) && inside(m.numbers, 4);
            if (!fits) throw std::invalid_argument("a member does not fit into the row");
        }
        if (!inside(level, stride) || !inside(counts, stride) || !inside(first, stride) ||
            !inside(buffer, std::int64_t(buffer_rows) * stride) || !inside(roots, n))
            throw std::invalid_argument("the parts do not fit into the row");
    }

  private:
    bool inside(std::int64_t begin, std::int64_t count) const {
        return begin >= 0 && begin + count <= size;
    }
};

/// The numbers of one member, by name; nothing is copied.
struct Factors {
    int rank, states;
    double *noise, *metric;        // psi and D^2
    double *axes, *velocity;       // U and V (r, stride), V only with ``states`` = 2 r
    double *angle_var, *spectrum;  // P (states, states) and Lam (r, r)
    FactorsNumbers& numbers;

    Factors(double* row, const LowRankMember& at, int stride)
        : rank(at.rank),
          states(at.states),
          noise(row + at.noise),
          metric(row + at.metric),
          axes(row + at.axes),
          velocity(axes + std::int64_t(at.rank) * stride),
          angle_var(row + at.angle_var),
          spectrum(row + at.spectrum),
          numbers(*reinterpret_cast<FactorsNumbers*>(row + at.numbers)) {}
};

/// One row, by name; nothing is copied.
struct LowRankTrack {
    double* row;
    Head& head;
    double *tails, *before, *wander, *roots, *level, *counts, *first, *buffer;

    LowRankTrack(double* row, const LowRankPlan& at)
        : row(row),
          head(*reinterpret_cast<Head*>(row)),
          tails(row + at.tails),
          before(tails + sizeof TAILS / sizeof *TAILS),
          wander(row + at.wander),
          roots(row + at.roots),
          level(row + at.level),
          counts(row + at.counts),
          first(row + at.first),
          buffer(row + at.buffer) {}

    bool has(int channel) const { return level[channel] > 0.0; }
    double age() const { return head.time - head.seen; }
    double& buffered() const { return head.pooled; }
    /// Whether a member has axes yet; before, it is a diagonal.
    bool live(const LowRankMember& m) const { return buffered() >= m.stages[0]; }
};

}  // namespace kgmrf
