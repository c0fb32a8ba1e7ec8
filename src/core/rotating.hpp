// An eigenframe that turns: in each plane a Kalman filter of an angle and its velocity.
#pragma once
#include "matrix.hpp"
#include "row.hpp"
#include <algorithm>

namespace {

using namespace kgmrf;

constexpr double MOST_CORRELATED = kgmrf::CORRELATION_LIMIT * kgmrf::CORRELATION_LIMIT;

/// var(angle), cov(angle, velocity), var(velocity) of one plane, or of several side by side.
template <class V>
struct Spread {
    V p11, p12, p22;

    /// P <- F P F^T + noise with F = [[1, turn], [0, keep]].
    template <class X>
    void widen(X turn, X keep, X angle, X cross, X rate) {
        const V reach = madd(turn, p22, p12);
        p11 = madd(turn, p12 + reach, p11) + angle;
        p12 = madd(keep, reach, cross - V{});
        p22 = madd(keep * keep, p22, rate - V{});
    }

    /// p <= most, p12 shrunk alike: clipping a variance alone would make P indefinite.
    void limit(V& p, double most) {
        const V top = most + V{};
        if (!any(p > top)) return;
        p12 = root(top / choose(p > top, p, top)) * p12;
        p = choose(p > top, top, p);
    }

    /// An angle no wider than the circle, a velocity that does not alias, a correlation below 1.
    void keep_within(double rate_limit) {
        limit(p11, ANGLE_VARIANCE_LIMIT);
        limit(p22, rate_limit);
        const V most = MOST_CORRELATED * p11 * p22, square = p12 * p12;
        if (any(square > most))
            p12 = choose(square > most, root(most / choose(square > most, square, 1.0 + V{})),
                         1.0 + V{}) *
                  p12;
    }

    struct Move {
        V angle, kick, rest;
    };

    /// The gains p11/den and p12/den of a pull, den = 1 + p11 information; P after them; 1/den.
    Move correct(V pull, V information) {
        const V rest = 1.0 / madd(p11, information, 1.0 + V{}), scaled = pull * rest;
        const Move move{p11 * scaled, p12 * scaled, rest};
        const V left = madd(-p12 * p12 * information, rest, p22);
        p22 = choose(left > V{}, left, V{});  // below by rounding only
        p11 = p11 * rest;
        p12 = p12 * rest;
        return move;
    }
};

/// P of every plane after a time dt.
inline void widen(Turned own, int n, double noise, double dt) {
    const double angle = noise * dt * dt * dt / 3.0, cross = noise * dt * dt / 2.0;
    each(n, [&]<class V>(int p) {
        Spread<V> P{load<V>(own.p11 + p), load<V>(own.p12 + p), load<V>(own.p22 + p)};
        P.widen(dt, 1.0, angle, cross, noise * dt);
        P.keep_within(RATE_VARIANCE_LIMIT);
        store(own.p11 + p, P.p11), store(own.p12 + p, P.p12), store(own.p22 + p, P.p22);
    });
}

/// What an observation says of every plane: C~_ij/d_i and m G/d_j of its planes i > j, and G/d_i.
/// Products of two eigenvalues are not formed: they may underflow.
struct Planes {
    double *share, *gap, *weight;  // each with room for a vector more
};

template <int S>
void compare(Planes to, Matrix<S> body, const double* lam, const double* inverse, double m) {
    int p = 0;
    for (int i = 0; i < body.d; p += i++)
        for (int j = 0; j < i; j += W) {  // what a row writes too far, the next one overwrites
            const vec gap = load(lam + j) - lam[i];  // the sign of -C~ G
            store(to.share + p + j, inverse[i] * load(body[i] + j));
            store(to.gap + p + j, inverse[i] * gap);
            store(to.weight + p + j, m * gap * load(inverse + j));
        }
}

/// W and P of every plane learn from that; the angles to turn by take the place of the shares.
inline void correct(Turned own, int n, Planes seen) {
    each(n, [&]<class V>(int p) {
        Spread<V> P{load<V>(own.p11 + p), load<V>(own.p12 + p), load<V>(own.p22 + p)};
        const V weight = load<V>(seen.weight + p);
        const auto move =
            P.correct(load<V>(seen.share + p) * weight, load<V>(seen.gap + p) * weight);
        store(seen.share + p, move.angle);
        store(own.velocity + p, load<V>(own.velocity + p) + move.kick);
        store(own.p11 + p, P.p11), store(own.p12 + p, P.p12), store(own.p22 + p, P.p22);
    });
}

/// Q of a row, d x d without gaps, into a padded matrix, and back.
template <int S>
void open(const double* q, Matrix<S> frame) {
    for (int i = 0; i < frame.d; ++i) copy(q + i * frame.d, frame[i], frame.d);
}
template <int S>
void close(Matrix<S> frame, double* q) {
    for (int i = 0; i < frame.d; ++i) copy(frame[i], q + i * frame.d, frame.d);
}

}  // namespace
