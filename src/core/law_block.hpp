// Information gains for W tracks of a bank side by side: the step of law.hpp, faster.
//
// Most tracks of a bank move by the same step: running, observed, few channels. What is not plain in
// a block, law_loop.hpp takes alone. Of two or three channels matrices are too small to transpose,
// of many they do not fit into the nearest cache.
#pragma once
#include "law.hpp"

namespace {

/// Whether a track has seen too little to start.
inline bool pools(const LawHead& h, const LawSettings& law) {
    return h.pooled_samples < law.pool_samples && h.pooled_steps < law.pool_steps;
}

struct LawBlocks {
    virtual ~LawBlocks() = default;
    /// Take in lines from ``i`` on, W at a time, up to one that has to go alone; returns where.
    virtual std::int64_t run(const LawLines& l, std::int64_t i) = 0;
};

template <int D>
class LawBlock : public LawBlocks, LawMoves<vec, Side<D>> {
    using Moves = LawMoves<vec, Side<D>>;
    using Moves::angles, Moves::body, Moves::inverse, Moves::lam, Moves::law, Moves::n, Moves::part,
        Moves::plan, Moves::seen, Moves::turn;

    Room rows{std::size_t(W) * Moves::plan.pool};  // all of W rows but their pools
    Room observed{std::size_t(W) * D * D};

  public:
    explicit LawBlock(const LawPlan& plan) : Moves(plan, std::size_t(W) * D * D) {}

    std::int64_t run(const LawLines& l, std::int64_t i) override {
        for (; i + W <= l.n && alike(l, i); i += W) {
            gather(l.values + i * D * D, D * D, D * D, seen.p);
            if (!are_covariances(l.tolerance)) break;
            double* row = l.rows + l.track_index[i] * plan.size;
            gather(row, plan.size, int(plan.pool), rows);
            step(l, i);
            scatter(rows, int(plan.pool), row, plan.size);
            for (int k = 0; k < W; ++k) {
                l.status[i + k] = OBSERVED;
                if (l.records)
                    copy(row + k * plan.size, l.records + (i + k) * l.record_width,
                         int(l.record_width));
            }
        }
        return i;
    }

  private:
    /// Whether W lines are of tracks that lie one after the other, all running and observed.
    bool alike(const LawLines& l, std::int64_t i) const {
        for (int k = 0; k < W; ++k) {
            const std::int64_t track = l.track_index[i] + k;
            if (l.track_index[i + k] != track || !(l.counts[i + k] > 0.0)) return false;
            const LawTrack<double> t(l.rows + track * plan.size, plan);
            if (pools(t.head, law) || std::isnan(t.head.seen)) return false;
        }
        return true;
    }

    void step(const LawLines& l, std::int64_t i) {
        LawTrack<vec> t(rows, plan);
        LawStepOf<vec> over;
        const vec m = load(l.strength + i);
        for (int k = 0; k < W; ++k) {
            const LawStep& one = l.steps[l.interval[i + k]];
            over.turn[k] = one.turn, over.keep[k] = one.keep, over.angle[k] = one.angle;
            over.cross[k] = one.cross, over.rate[k] = one.rate, over.dt[k] = one.dt;
        }
        t.head.time += over.dt;
        t.head.seen = t.head.time;
        const Side<D> q(t.frame, D);
        Moves::drift(t, q, over, over.keep);
        t.head.log_likelihood = -0.5 * m * Moves::measure(t, q);
        correct(t, m);
        turn_frame(q, angles, 1.0 + vec{}, turn);
        Moves::adapt(t, m);
    }

    /// W and P of every plane; the angles to turn by.
    void correct(LawTrack<vec> t, vec m) {
        SideSum nis(n);
        int at = 0;
        for (int i = 0; i < D; ++i) {
            const vec level = load(lam + W * i), own = load(inverse + W * i);
            for (int j = 0; j < i; ++j, at += W) {
                const vec gap = load(lam + W * j) - level;  // the sign of -C~ G
                const auto c =
                    Contrast<vec>::of(body.get(i, j), gap, own, m * load(inverse + W * j));
                Spread<vec> P{load(t.p11 + at), load(t.p12 + at), load(t.p22 + at)};
                const auto move = c.correct(P);
                nis.add(at / W, c.share * c.second, move.rest);
                store(angles + at, move.angle);
                store(t.velocity + at, load(t.velocity + at) + move.kick);
                store(t.p11 + at, P.p11), store(t.p12 + at, P.p12), store(t.p22 + at, P.p22);
            }
        }
        t.head.nis = nis.total();
    }

    /// Whether W matrices would all be OBSERVED, as `take_covariance` says; symmetrises them.
    bool are_covariances(double tolerance) {
        vec fault{}, largest{}, skewness{};
        for (int i = 0; i < D; ++i)
            for (int j = 0; j <= i; ++j) {
                const vec v = seen.get(i, j), other = seen.get(j, i), mean = 0.5 * v + 0.5 * other;
                seen.set(i, j, mean), seen.set(j, i, mean);
                fault += 0.0 * mean;
                const vec most = choose(v > other, v, other), least = choose(v > other, other, v);
                const vec size = choose(most > -least, most, -least), skew = most - least;
                largest = choose(size > largest, size, largest);
                skewness = choose(skew > skewness, skew, skewness);
            }
        if (any(fault != 0.0)) return false;  // NaN too
        if (tolerance < 0.0) return true;
        if (any((largest < SMALLEST) | (largest > LARGEST) | (skewness > tolerance * largest)))
            return false;
        copy(seen, part);
        for (int i = 0; i < D; ++i) part.set(i, i, part.get(i, i) + tolerance * largest);
        for (int k = 0; k < D; ++k) {
            const vec pivot = part.get(k, k);
            if (any(!(pivot > 0.0))) return false;
            const vec inverse_pivot = -1.0 / pivot;
            for (int i = k + 1; i < D; ++i) {
                const vec factor = part.get(i, k) * inverse_pivot;
                for (int j = k + 1; j < D; ++j)
                    part.set(i, j, madd(factor, part.get(k, j), part.get(i, j)));
            }
        }
        return true;
    }
};

inline LawBlocks* make_blocks(const LawPlan& plan) {
    if (!plan.information || plan.rotation) return nullptr;
    switch (plan.d) {
        case 4: return new LawBlock<4>(plan);
        case 5: return new LawBlock<5>(plan);
        case 6: return new LawBlock<6>(plan);
        case 7: return new LawBlock<7>(plan);
        case 8: return new LawBlock<8>(plan);
        default: return nullptr;
    }
}

}  // namespace
