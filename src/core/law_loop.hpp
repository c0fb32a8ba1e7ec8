// The loop of a single law over lines of covariances or rotations; blocks of a bank side by side.
#pragma once
#include "law_block.hpp"
#include "quaternion.hpp"
#include <memory>

namespace {

template <int S>
class Law : public Loop, LawMoves<double, Matrix<S>> {
    using Moves = LawMoves<double, Matrix<S>>;
    using Moves::angles, Moves::body, Moves::d, Moves::frame, Moves::inverse, Moves::lam, Moves::law,
        Moves::list, Moves::n, Moves::part, Moves::plan, Moves::power, Moves::seen, Moves::turn;
    using Track = LawTrack<double>;

    // What an observation says of every plane: see `Contrast`.
    Room share{list}, second{list}, gap{list}, weight{list};
    std::unique_ptr<LawBlocks> blocks{make_blocks(Moves::plan)};

  public:
    explicit Law(const LawPlan& plan) : Moves(plan, std::size_t(padded(plan.d)) * padded(plan.d)) {}

    void run(const Lines& lines) override {
        const LawLines& l = static_cast<const LawLines&>(lines);
        std::int64_t alone = 0;  // up to here lines go one by one
        for (std::int64_t i = 0; i < l.n; ++i) {
            if (blocks && i >= alone && i + W <= l.n) {
                i = blocks->run(l, i);
                alone = i + W;
                if (i == l.n) return;
            }
            const std::int64_t track = l.track_index[i];
            double* row = l.rows + track * plan.size;
            if (i + 1 < l.n)
                for (int p = 0; p < plan.size; p += 8)
                    __builtin_prefetch(l.rows + l.track_index[i + 1] * plan.size + p, 1);
            Status found = Status::missing;
            if (l.counts[i] > 0.0) {
                const double* x = l.values + i * d * d;
                found = plan.rotation ? take_rotation(x, l.tolerance)
                                      : take_covariance(x, seen, part, l.tolerance);
            }
            l.status[i] = static_cast<std::int8_t>(found);
            if (found != Status::invalid && l.counts[i] >= 0.0)
                step(Track(row, plan), track, found == Status::observed,
                     plan.rotation ? 1.0 / l.strength[i] : l.strength[i], l.steps[l.interval[i]]);
            if (l.records) copy(row, l.records + i * l.record_width, int(l.record_width));
        }
    }

  private:
    /// One line of one track; m: samples behind a matrix, 1 over the noise variance of a rotation.
    void step(Track t, std::int64_t track, bool there, double m, const LawStep& over) {
        LawHead& h = t.head;
        const bool pooling = !plan.rotation && pools(h, law), started = !std::isnan(h.seen);
        h.time += over.dt;
        h.nis = h.log_likelihood = Moves::NOTHING;
        if (there) h.seen = h.time;
        if (pooling) {
            if (there) pool(t, track, m);
            return;
        }
        if (plan.rotation && there && !started) return begin_rotation(t, m);
        if (!started && (plan.rotation || !there)) return;
        open(t.frame, frame);
        // A track with a matrix to start from does not drift to its first observation.
        if (started) Moves::drift(t, frame, over, there ? over.keep : over.coast);
        if (there && plan.rotation) {
            h.log_likelihood = -0.5 * (compare_rotation(t, m) + n * LOG_TWO_PI);
            correct(t, track);
        } else if (there) {
            h.log_likelihood = -0.5 * m * Moves::measure(t, frame);
            if (plan.information) compare(m);
            correct(t, track);
            Moves::adapt(t, m);
        }
        close(frame, t.frame);
    }

    /// Cold start: the eigendecomposition of the mean of all samples so far.
    void pool(Track t, std::int64_t track, double m) {
        LawHead& h = t.head;
        const double count = h.pooled_samples + m, *known = plan.spectrum_of(track);
        double* p = t.pool;
        clear(turn.x);
        for (int i = 0; i < d; ++i) {
            turn.x[i][i] = 1.0;
            for (int j = 0; j <= i; ++j, ++p) {
                *p += m / count * (seen[i][j] - *p);
                body[i][j] = body[j][i] = *p;
            }
        }
        jacobi(body, turn.x);
        const double sign = sort_rows(body, turn.x), lowest = SMALLEST_SPECTRUM * body[0][0];
        for (int i = 0; i < d; ++i) {
            const double own = body[i][i] - law.noise_floor;
            t.spectrum[i] = law.known != 0.0 ? known[i] : own > lowest ? own : lowest;
            t.spectrum_var[i] = 2.0 / count;
            for (int j = 0; j < d; ++j)
                t.frame[j * d + i] = turn.x[i][j] * (i == d - 1 ? sign : 1.0);
        }
        h.pooled_samples = count;
        h.pooled_steps += 1.0;
    }

    // ------------------------------------------------------------------------ correct

    /// Of every plane what C~ says.
    void compare(double m) {
        int p = 0;
        for (int i = 0; i < d; p += i++)
            for (int j = 0; j < i; j += W) {  // what a row writes too far, the next one overwrites
                const vec levels = load(lam + j) - lam[i];  // the sign of -C~ G
                const auto c = Contrast<vec>::of(load(body[i] + j), levels, inverse[i],
                                                 m * load(inverse + j));
                store(share + p + j, c.share), store(second + p + j, c.second);
                store(gap + p + j, c.gap), store(weight + p + j, c.weight);
            }
    }

    /// Q <- Q Exp(A w), W <- W + B w, and P.
    void correct(Track t, std::int64_t track) {
        t.head.nis = plan.information ? correct_planes(t) : pull_planes(t, plan.gains(track));
        turn_frame(frame, angles, 1.0, turn);
    }

    /// W and P of every plane; the angles to turn by; returns nis.
    double correct_planes(Track t) {
        vec whole{};
        double rest = 0.0;
        each(n, [&]<class U>(int p) {
            const Contrast<U> c{load<U>(share + p), load<U>(second + p), load<U>(gap + p),
                                load<U>(weight + p)};
            Spread<U> P{load<U>(t.p11 + p), load<U>(t.p12 + p), load<U>(t.p22 + p)};
            const auto move = c.correct(P);
            if constexpr (sizeof(U) > sizeof(double))
                whole = madd(c.share * c.second, move.rest, whole);
            else
                rest = madd(c.share * c.second, move.rest, rest);
            store(angles + p, move.angle);
            store(t.velocity + p, load<U>(t.velocity + p) + move.kick);
            store(t.p11 + p, P.p11), store(t.p12 + p, P.p12), store(t.p22 + p, P.p22);
        });
        return sum(whole) + rest;
    }

    /// Fixed gains A and B: W += B w, the angles A w; there is no nis.
    double pull_planes(Track t, const double* gains) {
        double ridge = law.ridge;
        if (!plan.rotation && std::isnan(ridge)) {
            const auto [low, high] = std::minmax_element(t.spectrum, t.spectrum + d);
            ridge = RELATIVE_RIDGE * (*high - *low) * (*high - *low);
        }
        for (int i = 0, p = 0; i < d; ++i)
            for (int j = 0; j < i; ++j, ++p) {
                double innovation = body[i][j];
                if (!plan.rotation) {
                    const double gaps = t.spectrum[j] - t.spectrum[i], stiff = gaps * gaps + ridge;
                    innovation *= gaps / (stiff > 0.0 ? stiff : 1.0);
                }
                angles[p] = gains[i * d + j] * innovation;
                t.velocity[p] += gains[(d + i) * d + j] * innovation;
            }
        return Moves::NOTHING;
    }

    // ------------------------------------------------------------------------ rotations

    /// R, d = 2 or 3, into ``seen``, projected.
    Status take_rotation(const double* x, double tolerance) {
        const Status found = d == 3 ? inspect_rotation<3>(x, tolerance) : inspect_rotation<2>(x, tolerance);
        if (found == Status::observed) {
            open(x, seen);
            for (int k = 0; k < 2; ++k) polish(seen, turn.a, turn.b);
        }
        return found;
    }

    /// The first rotation of a track is where it begins, as uncertain as that observation.
    void begin_rotation(Track t, double precision) {
        close(seen, t.frame);
        const double variance = 1.0 / precision;
        for (int p = 0; plan.information && p < n; ++p)
            t.p11[p] = variance < ANGLE_VARIANCE_LIMIT ? variance : ANGLE_VARIANCE_LIMIT;
    }

    /// Log(Q^T R) into ``body`` and the lists of planes; returns log |var| + sum r^2/var.
    double compare_rotation(Track t, double precision) {
        multiply_transposed(body, frame, seen);
        if (d == 2) {
            body[1][0] = std::atan2(body[1][0] - body[0][1], body[0][0] + body[1][1]);
        } else {
            double m[9];
            for (int i = 0; i < 9; ++i) m[i] = body[i / 3][i % 3];
            const auto v = logarithm(quaternion_of(m)).vector;
            body[1][0] = v.z, body[2][0] = -v.y, body[2][1] = v.x;
        }
        double terms = 0.0;
        for (int i = 0, p = 0; i < d; ++i)
            for (int j = 0; j < i; ++j, ++p) {
                const double r = body[i][j];
                const double variance = 1.0 / precision + (plan.information ? t.p11[p] : 0.0);
                terms += std::log(variance) + r * r / variance;
                share[p] = r, second[p] = r * precision, gap[p] = 1.0, weight[p] = precision;
            }
        return terms;
    }
};

}  // namespace
