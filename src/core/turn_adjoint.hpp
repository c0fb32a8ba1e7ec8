// The way back through what turns a frame: derivatives by P of a plane, and by the turn itself.
//
// ``bar`` after a name means the derivative of a loss by it. That by a frame Q is taken along the
// rotations: the skew Z with dL = sum Z_ij (Q^T dQ)_ij, which a polish does not change.
#pragma once
#include "matrix.hpp"
#include "storage.hpp"
#include "rotating.hpp"
#include <algorithm>
#include <cmath>

namespace {

using namespace kgmrf;

/// P of one plane after a drift: as computed, then brought within the circle; by what p12 was shrunk
/// for p11 and p22, and for the correlation.
struct Widened {
    double p11, p12, p22, near11, near12, near22, share = 1.0, back = 1.0;

    Widened(Spread<double> P, double decay, const LawStep& step, double rate_limit = HUGE_VAL) {
        P.widen(step.turn, decay, step.angle, step.cross, step.rate);
        p11 = P.p11, p12 = P.p12, p22 = P.p22;
        if (p11 > ANGLE_VARIANCE_LIMIT) share = std::sqrt(ANGLE_VARIANCE_LIMIT / p11);
        if (p22 > rate_limit) share *= std::sqrt(rate_limit / p22);
        near11 = std::min(p11, ANGLE_VARIANCE_LIMIT), near22 = std::min(p22, rate_limit);
        near12 = share * p12;
        const double most = MOST_CORRELATED * near11 * near22;
        if (near12 * near12 > most) back = std::sqrt(most / (near12 * near12));
        near12 *= back;
    }
};

/// Derivatives by P of one plane.
struct SpreadBar {
    double &b11, &b12, &b22;
};

/// Back through a drift of P: bars become those by P before; derivatives by the interval are added.
inline double unwiden(Spread<double> P, double decay, const LawStep& step, SpreadBar bar,
                      LawStep& step_bar, double rate_limit = HUGE_VAL) {
    const double turn = step.turn, reach = P.p12 + turn * P.p22;
    const Widened w(P, decay, step, rate_limit);
    double b11 = bar.b11, b12 = bar.b12, b22 = bar.b22;
    if (w.back < 1.0) {  // near12 is +- sqrt(most)
        b11 += 0.5 * b12 * w.near12 / w.near11;
        b22 += w.near22 > 0.0 ? 0.5 * b12 * w.near12 / w.near22 : 0.0;
        b12 = 0.0;
    }
    const double shrunk = -0.5 * b12 * w.share * w.p12;
    if (w.near11 < w.p11) b11 = shrunk / w.p11;
    if (w.near22 < w.p22) b22 = shrunk / w.p22;
    b12 *= w.share;
    step_bar.angle += b11, step_bar.cross += b12, step_bar.rate += b22;
    step_bar.turn += 2.0 * b11 * reach + b12 * decay * P.p22;
    bar.b11 = b11;
    bar.b12 = 2.0 * turn * b11 + decay * b12;
    bar.b22 = turn * turn * b11 + decay * turn * b12 + decay * decay * b22;
    return b12 * reach + 2.0 * b22 * decay * P.p22;  // by decay
}

/// Back through information gains in one plane, or in several side by side: derivatives by P before,
/// by the gap, the noise and the residual r, from those by P after, by the angle, the kick and nis.
template <class V>
struct Uncorrected {
    V gap, noise, r, b11, b12, b22;

    Uncorrected(V p11, V p12, V g, V noise_, V r_, V angle_bar, V kick_bar, V nis_bar, Spread<V> bar)
        : b22(bar.p22) {
        const V precise = 1.0 / noise_, weight = g * precise, information = g * weight;
        const V rest = 1.0 / (1.0 + p11 * information), square = p12 * p12;
        const V from11 = bar.p11 + angle_bar * r_ * weight, from12 = bar.p12 + kick_bar * r_ * weight;
        const V rest_bar = from11 * p11 + from12 * p12 - b22 * square * information +
                           0.5 * nis_bar * r_ * r_ * precise;
        const V predicted_bar = -rest_bar * rest * rest;
        const V information_bar = predicted_bar * p11 - b22 * square * rest;
        const V pull_bar = (angle_bar * p11 + kick_bar * p12) * rest;
        const V weight_bar = pull_bar * r_ + information_bar * g;
        const V surprise = nis_bar * r_ * rest * precise;
        b11 = from11 * rest + predicted_bar * information;
        b12 = (from12 - 2.0 * b22 * p12 * information) * rest;
        gap = information_bar * weight + weight_bar * precise;
        noise = -(weight_bar * weight + 0.5 * r_ * surprise) * precise;
        r = pull_bar * weight + surprise;
    }
};

/// B = A^T.
template <int S>
void transpose(Matrix<S> a, Matrix<S> b) {
    for (int i = 0; i < a.d; ++i)
        for (int j = 0; j < a.d; ++j) b[j][i] = a[i][j];
}

/// The matrices that the way back through Q Exp(X) needs.
template <int S>
class TurnBack {
    const int d;
    const std::size_t square = std::size_t(padded(d)) * padded(d);
    Room full[11] = {Room(square), Room(square), Room(square), Room(square), Room(square), Room(square),
                     Room(square), Room(square), Room(square), Room(square), Room(square)};
    Matrix<S> matrix(int k) { return {full[k], d}; }

  public:
    explicit TurnBack(int d) : d(d) {}

    Matrix<S> x = matrix(0), x_bar = matrix(1), z = matrix(2), term = matrix(3), total = matrix(4),
              next = matrix(10);
    Turn<Matrix<S>> turn{matrix(5), matrix(6), matrix(7), matrix(8), matrix(9)};

    /// C = share (A B - B A) for A, B both skew or both symmetric; TOTAL += C. C is neither.
    void bracket(Matrix<S> a, Matrix<S> b, Matrix<S> c, Matrix<S> sum, double share) {
        multiply(turn.a, a, b);
        if constexpr (S == W) {  // quicker than to transpose it
            product(c, [&](int i, int k) { return -b[i][k]; }, a, turn.a, 1.0);
        } else {
            transpose(turn.a, turn.b);
            for (int p = 0; p < c.size(); p += W)
                store(c.p + p, load(turn.a.p + p) - load(turn.b.p + p));
        }
        for (int p = 0; p < c.size(); p += W) {
            const vec v = share * load(c.p + p);
            store(c.p + p, v);
            store(sum.p + p, load(sum.p + p) + v);
        }
    }

    /// Back through Q Exp(X): X_BAR = phi(ad_X) Z, then Z <- Exp(X) Z Exp(X)^T; X is used up.
    ///
    /// d Exp(X) = Exp(X) phi(-ad_X) dX with phi(z) = (e^z - 1) / z. X is taken in n small parts:
    /// phi(n z) = (1 + e^z + ... + e^((n - 1) z)) phi(z) / n, and e^z = 1 + z phi(z).
    void unturn() {
        double squares = 0.0;
        for (int i = 0; i < d; ++i)
            for (int j = 0; j < i; ++j) squares += x[i][j] * x[i][j];
        const double size = std::sqrt(squares);  // at least the largest angle; |ad_X| at most twice
        const int n = size < HUGE_VAL ? int(std::min(size, 2000.0)) + 1 : 1;
        scale(x, 1.0 / n);
        clear(x_bar);
        for (int part = 0; part < n; ++part) {
            copy(z, term);
            copy(z, total);
            double left = 1.0;
            for (int k = 2; left > 1e-13 && k <= 25; ++k) {
                left *= 2.0 * size / (double(n) * k);
                bracket(x, term, next, total, 1.0 / k);
                std::swap(term.p, next.p);
            }
            add(x_bar, total, 1.0 / n);
            bracket(x, total, next, z, 1.0);
        }
    }
};

}  // namespace
