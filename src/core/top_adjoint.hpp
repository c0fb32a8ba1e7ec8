// The way back through the clock of the top direction (top_clock.hpp). ``bar`` after a name means the
// derivative of a loss by it; that by a symmetric matrix is symmetric, with dL = sum bar_ij dS_ij.
#pragma once
#include "top_clock.hpp"

namespace {

using namespace kgmrf;

/// A += share (x y^T + y x^T)/2.
template <int S>
void add_both(Matrix<S> a, const double* x, const double* y, double share) {
    for (int i = 0; i < a.d; ++i)
        for (int j = 0; j < a.d; ++j) a[i][j] += 0.5 * share * (x[i] * y[j] + y[i] * x[j]);
}

template <int S>
class TopAdjoint : public TopClock<S> {
    using Base = TopClock<S>;
    using Base::beta, Base::d, Base::inverse_sd, Base::next, Base::room, Base::v, Base::w, Base::y;

  public:
    explicit TopAdjoint(int d) : Base(d) {}

    /// No derivatives yet.
    void begin() {
        beta_bar = v_bar = 0.0;
        for (double* one : {w_bar.data(), y_bar.data(), next_bar.data()}) fill(one, d, 0.0);
    }

    /// From derivatives by what the top direction adds, S' - S.
    void back_extra(Matrix<S> bar) {
        if (beta == 0.0 && !(v > 0.0)) return;
        apply(bar, y, work);
        const double along = dot(y, work, d);
        beta_bar += along / v;
        v_bar -= beta * along / (v * v);
        for (int i = 0; i < d; ++i) y_bar[i] += 2.0 * beta / v * work[i];
    }

    /// Back through `add` of n samples with this mean square; returns the derivative by the square.
    double back_add(const Along& bar, double square, double n) {
        if (!(v > 0.0)) return 0.0;
        const double one = 1.0 + beta;
        const double ratio_bar = bar.share + beta / one * bar.distance;
        beta_bar += bar.distance * square / (v * one * one) + n * bar.log_det / one;
        v_bar -= ratio_bar * square / (v * v);
        return ratio_bar / v;
    }

    /// Back through a complete sample x; that by x is added to x_bar.
    void back_sample(const Along& bar, const double* x, double* x_bar) {
        const double t = dot(w, x, d), t_bar = 2.0 * t * back_add(bar, t * t, 1.0);
        for (int i = 0; i < d; ++i) w_bar[i] += t_bar * x[i], x_bar[i] += t_bar * w[i];
    }

    /// Back through a matrix M over m samples: adds to derivatives by M.
    void back_matrix(const Along& bar, Matrix<S> mean, double m, Matrix<S> mean_bar) {
        apply(mean, w, work);
        const double share = m * back_add(bar, m * dot(w, work, d), m);
        add_both(mean_bar, w, w, share);
        for (int i = 0; i < d; ++i) w_bar[i] += 2.0 * share * work[i];
    }

    /// Back through `add_part`; adds to derivatives by S and by the values x.
    void back_part(const Along& bar, Matrix<S> inverse, const double* solved, double* x_bar,
                   Matrix<S> total_bar) {
        if (!(v > 0.0)) return;
        apply(inverse, y, work);
        const double t = dot(y, solved, d), r = dot(y, work, d), square = t * t;
        if (!(r > 0.0)) return;
        const double whole = v + beta * r, rise = bar.log_det / (1.0 + beta * r / v);
        const double t_bar = 2.0 * t * (bar.share / r + bar.distance * beta / whole);
        const double r_bar = -bar.share * square / (r * r) -
                             bar.distance * beta * beta * square / (whole * whole) + rise * beta / v;
        v_bar -= bar.distance * beta * square / (whole * whole) + rise * beta * r / (v * v);
        beta_bar += bar.distance * square * v / (whole * whole) + rise * r / v;
        for (int i = 0; i < d; ++i) {
            y_bar[i] += t_bar * solved[i] + 2.0 * r_bar * work[i];
            x_bar[i] += t_bar * work[i];
        }
        add_both(total_bar, work, solved, -t_bar);
        add_both(total_bar, work, work, -r_bar);
    }

    struct Learned {
        double z, u, heavy;
    };

    /// Back through `learn`: bars of the row become those before it; derivatives by z, u and heavy.
    Learned back_learn(TopNumbers now, TopNumbers bar, double z, double samples, double u,
                       double heavy, double age) {
        for (int i = 0; i < d; ++i) next_bar[i] += bar.u[i], bar.u[i] = 0.0;
        if (!(v > 0.0 && std::isfinite(z))) return {0.0, 0.0, 0.0};
        const double keep = std::exp2(-age / TOP_GATE_HALF_LIFE);
        const double rate = 1.0 - std::exp2(-std::fmin(age, 1.0) / TOP_HALF_LIFE);
        const double apart = now.variance - 1.0, said = u * z, part = z / heavy;
        Learned found{0.0, 0.0, 0.0};
        double apart_bar = 2.0 * bar.square * samples * apart +
                           bar.gain * samples * (std::fmin(said, TOP_LIMIT) - 1.0);
        if (said < TOP_LIMIT) {
            const double said_bar = bar.gain * samples * apart;
            found.z += said_bar * u, found.u += said_bar * z;
        }
        if (part < TOP_LIMIT) {
            const double part_bar = bar.variance * rate;
            found.z += part_bar / heavy, found.heavy -= part_bar * part / heavy;
        }
        bar.square *= keep, bar.gain *= keep;
        bar.variance = (1.0 - rate) * bar.variance + apart_bar;
        return found;
    }

    /// Back through `aim`: adds to the bars of the row and to derivatives by S.
    void back_aim(TopNumbers now, TopNumbers bar, Matrix<S> total, Matrix<S> total_bar) {
        if (v > 0.0) {
            const double gate = now.gain / (now.square + TOP_RIDGE);
            const double inside = std::clamp(gate, 0.0, 1.0);
            bar.variance += beta_bar * inside;
            if (0.0 < gate && gate < 1.0) {
                const double gate_bar = beta_bar * (now.variance - 1.0) / (now.square + TOP_RIDGE);
                bar.gain += gate_bar, bar.square -= gate_bar * gate;
            }
        }
        for (int i = 0; i < d; ++i) w_bar[i] += v_bar * y[i], y_bar[i] += v_bar * w[i];
        add_both(total_bar, y_bar, w, 1.0);
        apply(total, y_bar, work);
        double along = 0.0, squares = 0.0;
        for (int i = 0; i < d; ++i) {
            w_bar[i] += work[i];
            next_bar[i] += inverse_sd[i] * w_bar[i];
            sd_bar[i] = next[i] * w_bar[i];
            first[i] = inverse_sd[i] * now.u[i];
            along += next[i] * next_bar[i];
        }
        apply(total, first, work);
        for (int i = 0; i < d; ++i) squares += work[i] * inverse_sd[i] * work[i] * inverse_sd[i];
        const double length = std::sqrt(squares);
        if (!(length > 0.0)) {
            for (int i = 0; i < d; ++i) bar.u[i] += next_bar[i];
            return;
        }
        for (int i = 0; i < d; ++i) {
            const double grown_bar = (next_bar[i] - next[i] * along) / length;
            sd_bar[i] += work[i] * grown_bar;
            y_bar[i] = inverse_sd[i] * grown_bar;
        }
        add_both(total_bar, y_bar, first, 1.0);
        apply(total, y_bar, work);
        for (int i = 0; i < d; ++i) {
            bar.u[i] += inverse_sd[i] * work[i];
            sd_bar[i] += now.u[i] * work[i];
            const double s = inverse_sd[i];
            total_bar[i][i] -= 0.5 * s * s * s * sd_bar[i];
        }
    }

  private:
    double beta_bar = 0.0, v_bar = 0.0;
    Room w_bar{room}, y_bar{room}, next_bar{room}, sd_bar{room}, first{room}, work{room};
};

}  // namespace
