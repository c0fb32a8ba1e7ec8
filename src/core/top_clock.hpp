// A clock for the variance of the top direction of the correlation: what moves all channels at once
// changes faster than the rest. kgmrf/readable/top_clock.py tells the formulas.
//
//     u <- R u/|R u|, R the correlation of S;  w = u/sd, y = S w, v = w^T y
//     S' = S + beta y y^T/v,  beta = a (m - 1)
//
// m is the variance along w over what S says of it, a in [0, 1] the slope of its gains in likelihood.
#pragma once
#include "declared.hpp"
#include "matrix.hpp"
#include "storage.hpp"
#include <algorithm>

namespace {

using namespace kgmrf;

/// The numbers of a row: u of every channel, then m and the sums of the gate.
struct TopNumbers {
    double *u, &variance, &square, &gain;

    TopNumbers(double* numbers, int d)
        : u(numbers), variance(numbers[d]), square(numbers[d + 1]), gain(numbers[d + 2]) {}
};

/// What observations say along the top direction: sums over samples of the surprise t^2/r there,
/// and of what beta takes from the squared distance and adds to log |S|.
struct Along {
    double share = 0.0, distance = 0.0, log_det = 0.0;
};

template <int S>
class TopClock {
  public:
    explicit TopClock(int d) : d(d) {}

    /// m <- 1 + .98^dt (m - 1)
    static void drift(TopNumbers now, double keep) { now.variance = 1.0 + keep * (now.variance - 1.0); }

    /// w, y, v and beta beside S.
    void aim(TopNumbers now, Matrix<S> total) {
        for (int i = 0; i < d; ++i) work[i] = total[i][i];
        each(d, [&]<class V>(int p) {  // 0 for channels that are absent
            const V v = load<V>(work + p), one = v - v + 1.0;
            const V own = choose(v > 0.0, one / root(choose(v > 0.0, v, one)), V{});
            store(inverse_sd + p, own), store(w + p, own * load<V>(now.u + p));
        });
        apply(total, w, y);
        each(d, [&]<class V>(int p) {
            store(next + p, load<V>(y + p) * load<V>(inverse_sd + p));
        });
        const double length = dot(next, next, d);
        if (length > 0.0) {
            const double scale = 1.0 / std::sqrt(length);
            each(d, [&]<class V>(int p) {
                const V own = scale * load<V>(next + p);
                store(next + p, own), store(w + p, own * load<V>(inverse_sd + p));
            });
            apply(total, w, y);
        } else {
            copy(now.u, next, d);
        }
        v = dot(w, y, d);
        const double gate = std::clamp(now.gain / (now.square + TOP_RIDGE), 0.0, 1.0);
        beta = v > 0.0 ? gate * (now.variance - 1.0) : 0.0;
    }

    /// One sample x of all channels that are there, or of n samples with a mean square along w.
    void add(Along& to, double square, double n) const {
        if (!(v > 0.0)) return;
        to.share += square / v;
        to.distance += beta / (1.0 + beta) * square / v;
        to.log_det += n * std::log1p(beta);
    }

    /// A sample with missing cells: solved is S_oo^-1 x_o, inverse S_oo^-1, both 0 elsewhere. y_o and
    /// r = y_o^T S_oo^-1 y_o take the places of y and v.
    void add_part(Along& to, Matrix<S> inverse, const double* solved) {
        if (!(v > 0.0)) return;
        apply(inverse, y, work);
        const double t = dot(y, solved, d), r = dot(y, work, d);
        if (!(r > 0.0)) return;
        to.share += t * t / r;
        to.distance += beta * t * t / (v + beta * r);
        to.log_det += std::log1p(beta * r / v);
    }

    /// g <- k g + m_s (m - 1)^2, b <- k b + m_s (m - 1)(min(u z, 9) - 1), k = 2^(-age/200); then m
    /// learns from z/h. z: the mean surprise of m_s samples, u: weight of the observation, h:
    /// heaviness of the tails.
    void learn(TopNumbers now, double z, double samples, double u, double heavy, double age) {
        copy(next, now.u, d);
        if (!(v > 0.0 && std::isfinite(z))) return;
        if (age != last_age) {
            last_age = age;
            keep = std::exp2(-age / TOP_GATE_HALF_LIFE);
            rate = 1.0 - std::exp2(-std::fmin(age, 1.0) / TOP_HALF_LIFE);
        }
        const double apart = now.variance - 1.0;
        now.square = keep * now.square + samples * apart * apart;
        now.gain = keep * now.gain + samples * apart * (std::fmin(u * z, TOP_LIMIT) - 1.0);
        now.variance += rate * (std::fmin(z / heavy, TOP_LIMIT) - now.variance);
    }

    /// S' is S.
    bool idle() const { return beta == 0.0; }
    /// w^T x
    double along(const double* x) const { return dot(w, x, d); }
    const double* direction() const { return w; }
    /// Entry i, j of S' - S.
    double extra(int i, int j) const { return beta == 0.0 ? 0.0 : beta / v * y[i] * y[j]; }

  protected:
    const int d;
    double v = 0.0, beta = 0.0, last_age = -1.0, keep = 1.0, rate = 0.0;
    const std::size_t room = std::size_t(padded(d)) + 8;
    Room inverse_sd{room}, next{room}, w{room}, y{room}, work{room};
};

}  // namespace
