// A sequence of covariance steps of one law backwards: derivatives of a loss by all that went in.
//
// Walks the steps from the last to the first and turns the derivatives by a state into those by the
// state before. It needs nothing but the states: what a step computed in between is computed again.
// ``bar`` after a name means the derivative of the loss by it. That by a frame Q is taken along the
// rotations: the skew Z with dL = sum Z_ij (Q^T dQ)_ij, which a polish does not change. The scale
// clock and pooling are not covered. kgmrf.model.step through torch's own derivatives is the readable twin.
#pragma once
#include "adjoint_row.hpp"
#include "turn_adjoint.hpp"
#include <algorithm>
#include <cmath>
#include <numbers>

namespace {

using namespace kgmrf;

template <int S>
class Adjoint {
  public:
    explicit Adjoint(const Unrolled& u)
        : u(u), d(int(u.d)), information(u.law.information != 0.0) {}

    void run() {
        for (std::int64_t i = 0; i < u.n; ++i)
            for (std::int64_t t = u.n_frames; t-- > 0;) step(t, i);
    }

  private:
    const Unrolled& u;
    const int d;
    const bool information;
    const std::size_t square = std::size_t(padded(d)) * padded(d);
    Room full[5] = {Room(square), Room(square), Room(square), Room(square), Room(square)};
    Matrix<S> matrix(int k) { return {full[k], d}; }
    Matrix<S> frame = matrix(0), seen = matrix(1), body = matrix(2), body_bar = matrix(3),
              flipped = matrix(4);
    TurnBack<S> back{d};
    Matrix<S> x = back.x, x_bar = back.x_bar, z = back.z, term = back.term;
    Turn<Matrix<S>> turn = back.turn;
    Room p11{square}, p12{square};  // of every plane, as the correction finds them
    Room planes{std::size_t(d) * d + 8};
    const std::size_t vector = std::size_t(d) + 8;
    Room level{vector}, power{vector}, power_bar{vector}, updated{vector};
    Room lam_bar{vector}, var_bar{vector}, level_bar{vector};

    static void read(const double* from, Matrix<S> to) {
        for (int i = 0; i < to.d; ++i) copy(from + i * to.d, to[i], to.d);
    }

    /// Back through the spectrum's filter: lam_bar is spent, the level carries it on; var_bar
    /// becomes that by the variance before. Returns the derivative by m.
    double unadapt(const double* var, double wider, double m) {
        const double noise = 2.0 / m, floor = u.law.noise_floor;
        int top = 0;
        for (int i = 0; i < d; ++i) {
            const double v = var[i] + wider;
            updated[i] = level[i] + v / (v + noise) * (power[i] - level[i]);
            if (updated[i] > updated[top]) top = i;
        }
        double kept = 0.0, noise_bar = 0.0;
        for (int i = 0; i < d; ++i)
            if (updated[i] - floor < SMALLEST_SPECTRUM * updated[top])
                kept += SMALLEST_SPECTRUM * lam_bar[i], lam_bar[i] = 0.0;
        lam_bar[top] += kept;
        for (int i = 0; i < d; ++i) {
            const double v = var[i] + wider, whole = v + noise, gain = v / whole, new_bar = lam_bar[i];
            const double gain_bar = new_bar * (power[i] - level[i]) - var_bar[i] * v;
            lam_bar[i] = 0.0;
            var_bar[i] = (1.0 - gain) * var_bar[i] + gain_bar * noise / (whole * whole);
            level_bar[i] += (1.0 - gain) * new_bar;
            power_bar[i] += gain * new_bar;
            noise_bar -= gain_bar * v / (whole * whole);
        }
        return -noise_bar * noise / m;
    }

    /// Step t of item i.
    void step(std::int64_t t, std::int64_t i) {
        const std::int64_t dd = std::int64_t(d) * d, at = t * u.n + i, next = at + u.n;
        const std::int64_t interval = std::min(t, u.step_frames - 1) * u.step_items +
                                      std::min(i, u.step_items - 1);
        const LawStep& step = reinterpret_cast<const LawStep*>(u.steps)[interval];
        LawStep& step_bar = reinterpret_cast<LawStep*>(u.steps_bar)[interval];
        const bool here = u.observed[at] != 0, moves = u.moving[at] != 0;
        const double* velocity = u.velocities + at * dd;
        const double* old = u.spreads + at * 3 * dd;
        const double *lam = u.vectors + at * 2 * d, *var = lam + d;
        double* velocity_bar = u.velocity_bars + next * dd;
        double* spread_bar = u.spread_bars + i * 3 * dd;
        const double decay = here ? step.keep : step.coast;
        const double wider = moves ? u.law.spectrum_rate * step.dt : 0.0;
        const auto bar_of = [&](int k) {
            return SpreadBar{spread_bar[k], spread_bar[dd + k], spread_bar[2 * dd + k]};
        };
        const auto spread_of = [&](int k) {
            return Spread<double>{old[k], old[dd + k], old[2 * dd + k]};
        };

        for (int k = 0; k < d; ++k) {
            lam_bar[k] = u.vector_bars[next * 2 * d + k];
            var_bar[k] = u.vector_bars[next * 2 * d + d + k];
            level_bar[k] = 0.0;
        }
        read(u.frame_bars + next * dd, z);
        read(u.frames + at * dd, frame);
        // Forwards once more, as far as the way back needs it.
        copy(old, p11, int(dd)), copy(old + dd, p12, int(dd));
        if (moves) {
            double* p = planes;
            for (int k = 0; k < d; ++k)
                for (int j = 0; j < k; ++j) *p++ = velocity[k * d + j];
            turn_frame(frame, planes, step.turn, turn);
            for (int k = 0; information && k < dd; ++k) {
                if (k % (d + 1) == 0) continue;  // the diagonal
                const Widened w(spread_of(k), decay, step);
                p11[k] = w.near11, p12[k] = w.near12;
            }
        }
        if (here) unobserve(at, i, lam, var, wider, velocity_bar, bar_of);
        if (moves) {
            for (int k = 0; k < d; ++k)
                for (int j = 0; j < d; ++j) x[k][j] = step.turn * velocity[k * d + j];
            back.unturn();
            double decay_bar = 0.0, var_bars = 0.0;
            for (int k = 0; k < d; ++k) {
                for (int j = 0; j < d; ++j) {
                    const int p = k * d + j;
                    decay_bar += velocity_bar[p] * velocity[p];
                    step_bar.turn += x_bar[k][j] * velocity[p];
                    velocity_bar[p] = decay * velocity_bar[p] + step.turn * x_bar[k][j];
                    if (information && j != k)
                        decay_bar += unwiden(spread_of(p), decay, step, bar_of(p), step_bar);
                }
                var_bars += var_bar[k];
            }
            (here ? step_bar.keep : step_bar.coast) += decay_bar;
            u.law_bar.spectrum_rate += step.dt * var_bars;
            step_bar.dt += u.law.spectrum_rate * var_bars;
        }
        for (int k = 0; k < d; ++k)
            for (int j = 0; j < d; ++j) u.frame_bars[at * dd + k * d + j] += z[k][j];
        for (int k = 0; k < dd; ++k) u.velocity_bars[at * dd + k] += velocity_bar[k];
        for (int k = 0; k < d; ++k) {
            u.vector_bars[at * 2 * d + k] += lam_bar[k];
            u.vector_bars[at * 2 * d + d + k] += var_bar[k];
        }
    }

    /// Back through measure, correct and adapt.
    template <class Bar>
    void unobserve(std::int64_t at, std::int64_t item, const double* lam, const double* var,
                   double wider, double* velocity_bar, Bar bar_of) {
        const std::int64_t dd = std::int64_t(d) * d;
        const double m = u.counts[at], nis_bar = u.surprise_bars[2 * at];
        const double ridge = u.law.ridge;
        const double* gains = u.tables + std::min(item, u.n_tables - 1) * 2 * dd;
        double m_bar = 0.0;
        read(u.sequence + at * dd, seen);
        multiply(turn.a, seen, frame);
        multiply_transposed(body, frame, turn.a);
        for (int k = 0; k < d; ++k)
            level[k] = lam[k] + u.law.noise_floor, power[k] = body[k][k], power_bar[k] = 0.0;
        // And back: first what looks at the diagonal alone.
        if (u.law.spectrum_rate != 0.0) m_bar += unadapt(var, wider, m);
        const double share = -0.5 * u.surprise_bars[2 * at + 1];
        for (int k = 0; share != 0.0 && k < d; ++k) {
            const double ratio = power[k] / level[k];
            power_bar[k] += share * m / level[k];
            level_bar[k] += share * m * (1.0 - ratio) / level[k];
            m_bar += share * (std::log(2.0 * std::numbers::pi * level[k]) + ratio);
        }
        for (int k = 0; k < d; ++k)
            for (int j = 0; j < d; ++j) {
                const double gap = lam[k] - lam[j];
                double gain = gains[k * d + j], weight = gap / (gap * gap + ridge);
                if (information) {
                    weight = gap * m / (level[k] * level[j]);
                    gain = p11[k * d + j] / (1.0 + p11[k * d + j] * gap * weight);
                }
                x[k][j] = k == j ? 0.0 : -gain * weight * body[k][j];
            }
        back.unturn();
        for (int k = 0; k < d; ++k)
            for (int j = 0; j < d; ++j) {
                if (k == j) continue;
                const int p = k * d + j;
                const double gap = lam[k] - lam[j], r = -body[k][j];
                const double pull = x_bar[k][j], kick = velocity_bar[p];
                double r_bar, gap_bar;
                if (information) {
                    const double noise = level[k] * level[j] / m;
                    const SpreadBar bar = bar_of(p);
                    const Uncorrected<double> back(p11[p], p12[p], gap, noise, r, pull, kick, nis_bar,
                                                   {bar.b11, bar.b12, bar.b22});
                    bar.b11 = back.b11, bar.b12 = back.b12;
                    r_bar = back.r, gap_bar = back.gap;
                    level_bar[k] += back.noise * level[j] / m;
                    level_bar[j] += back.noise * level[k] / m;
                    m_bar -= back.noise * noise / m;
                } else {
                    const double stiffness = gap * gap + ridge, weight = gap / stiffness;
                    u.tables_bar[p] += pull * r * weight;
                    u.tables_bar[dd + p] += kick * r * weight;
                    const double weight_bar = pull * gains[p] + kick * gains[dd + p];
                    r_bar = weight_bar * weight;
                    u.law_bar.ridge -= r_bar * r / stiffness;
                    gap_bar = weight_bar * r / stiffness - 2.0 * r_bar * r * weight;
                }
                lam_bar[k] += gap_bar;
                lam_bar[j] -= gap_bar;
                body_bar[k][j] = -r_bar;
            }
        u.counts_bar[at] += m_bar;
        for (int k = 0; k < d; ++k) {
            lam_bar[k] += level_bar[k];
            body_bar[k][k] = power_bar[k];
            for (int j = 0; j < k; ++j)
                body_bar[k][j] = body_bar[j][k] = 0.5 * (body_bar[k][j] + body_bar[j][k]);
        }
        // C~ = Q^T C Q.
        back.bracket(body, body_bar, term, z, 1.0);
        transpose(frame, flipped);
        multiply(turn.a, body_bar, flipped);
        multiply_transposed(seen, flipped, turn.a);
        for (int k = 0; k < d; ++k) copy(seen[k], u.sequence_bar + at * dd + k * d, d);
    }
};

inline void pull_back(const Unrolled& u) {
    if (u.d <= 8)
        Adjoint<8>(u).run();
    else if (u.d <= 16)
        Adjoint<16>(u).run();
    else
        Adjoint<0>(u).run();
}

}  // namespace
