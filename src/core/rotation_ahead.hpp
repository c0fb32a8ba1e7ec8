// What forecasts of the rotation engine earned, FORECAST_LAGS units ahead; the formulas are in
// kgmrf.readable.rotation_ahead, under the same names.
#pragma once
#include "isotropic.hpp"
#include <iterator>

namespace {

class Ahead {
  public:
    static constexpr int LAGS = std::size(FORECAST_LAGS), WAITING = PENDING_FORECASTS;
    static_assert(LAGS == 2);

    Ahead(const RotationPlan& plan, const Isotropic& isotropic, const Dense& dense)
        : isotropic(isotropic), dense(dense) {
        for (int j = 0; j < LAGS; ++j) over[j].take(plan.isotropic, FORECAST_LAGS[j]);
    }

    /// Nothing is known of how the rotation moves; what forecasts earned before stays.
    static void begin(RotationTrack t) {
        std::copy_n(t.frame, 4, t.origin);
        std::copy_n(t.frame, 4, t.usual);
        fill(t.usual_rate, AXES, 0.0);
        t.head.followed = 1.0;
        forget_pending(t);
    }

    /// The unit of time becomes f times what it was.
    static void rescale(RotationTrack t, double f) {
        if (f == 1.0) return;
        for (int a = 0; a < AXES; ++a) t.usual_rate[a] *= f;
        forget_pending(t);
    }

    /// Z was taken in, ``since`` units after the observation before; x: dense members in use, if any.
    void observe(RotationTrack t, const DenseTrack* x, Quaternion<double> z, double rel, double since) {
        for (int j = 0; j < LAGS; ++j) learn(t, j, z, rel);
        if (since > 0.0) keep_usual(t, since);
        for (int j = 0; j < LAGS; ++j) issue(t, x, j);
    }

    struct Applied {
        Vector3<double> turn;
        double spread;
    };

    /// What was learned says of a forecast for the time since the last observation: a further turn,
    /// and a factor of its covariance. shown: what the members forecast.
    static Applied applied(RotationTrack t, Quaternion<double> shown) {
        constexpr double first = FORECAST_LAGS[0], last = FORECAST_LAGS[1];
        const double h = (t.head.time - t.head.seen) / t.head.unit;
        const double spreads[2] = {t.earned[0].log_spread, t.earned[1].log_spread};
        double factors[2], spread;  // of what each lag earned
        if (h < first) {
            factors[0] = std::max(std::log(std::max(h, 1.0)) / std::log(first), 0.0);
            factors[1] = 0.0;
            const double one = FIRST_SPREAD * std::max(spreads[0], 0.0);  // of one unit
            spread = std::min(h, 1.0) * one + factors[0] * (spreads[0] - one);
        } else {
            factors[1] = std::min(std::log(h / first) / std::log(last / first), 1.0);
            factors[0] = 1.0 - factors[1];
            spread = spreads[0] + factors[1] * (spreads[1] - spreads[0]);
        }
        for (int j = 0; j < LAGS; ++j) factors[j] *= gate(t.earned[j]);
        const auto change = [&](double Earned::*of) {
            return factors[0] * t.earned[0].*of + factors[1] * t.earned[1].*of;
        };
        const Quaternion<double> origin = quaternion_at(t.origin);
        const Vector3<double> x1 = between(origin, shown).vector;
        const Vector3<double> x3 = between(origin, quaternion_at(t.usual)).vector;
        const double f1 = change(&Earned::first) * std::min(last / h, 1.0);
        const double f2 = change(&Earned::second) * std::min(h, last);
        const double f3 = change(&Earned::third) * near(x3);
        const Turning<double> by = turning(x1);
        double sum[AXES], turn[AXES] = {};
        for (int a = 0; a < AXES; ++a) sum[a] = f1 * x1[a] + f2 * t.usual_rate[a] + f3 * x3[a];
        for (int a = 0; a < AXES; ++a)
            for (int b = 0; b < AXES; ++b) turn[a] += near(x1) * by.jacobian[a][b] * sum[b];
        return {{turn[0], turn[1], turn[2]}, std::exp(spread)};
    }

  private:
    const Isotropic& isotropic;
    const Dense& dense;
    Interval over[LAGS];

    /// Share of what the regression says that counts: as far as it was right so far.
    static double gate(const Earned& of) {
        return std::clamp(of.agreed / (of.offered + FORECAST_GATE), 0.0, 1.0);
    }

    static void forget_pending(RotationTrack t) {
        std::fill_n(t.pending, LAGS * WAITING, PendingForecast{});
    }

    /// 1 up to a quarter turn, 0 at half a turn: beyond, turns by logarithms mean nothing.
    static double near(Vector3<double> turn) {
        return std::clamp(2.0 - 2.0 * std::sqrt(turn.square()) / std::numbers::pi, 0.0, 1.0);
    }

    /// The usual velocity and rotation of late, as means that forget.
    static void keep_usual(RotationTrack t, double since) {
        RotationHead& h = t.head;
        h.followed += 1.0;
        const Quaternion<double> frame = quaternion_at(t.frame), usual = quaternion_at(t.usual);
        const Vector3<double> turn = between(quaternion_at(t.origin), frame).vector;
        const double fast = std::max(-std::expm1(-since / USUAL_RATE_MEMORY), 1.0 / (h.followed - 1.0));
        for (int a = 0; a < AXES; ++a) t.usual_rate[a] += fast * (turn[a] / since - t.usual_rate[a]);
        const double slow = std::max(-std::expm1(-since / USUAL_MEMORY), 1.0 / h.followed);
        put(t.usual, turned(usual, slow * between(usual, frame).vector));
        std::copy_n(t.frame, 4, t.origin);
    }

    /// Forecasts that are due are compared with Z; then their places are free.
    static void learn(RotationTrack t, int j, Quaternion<double> z, double rel) {
        const double lag = FORECAST_LAGS[j];
        Earned& earned = t.earned[j];
        for (int i = 0; i < WAITING; ++i) {
            PendingForecast& p = t.pending[WAITING * j + i];
            const double age = (t.head.time - p.time) / t.head.unit;
            if (!(p.variance > 0.0) || age < lag - 0.5) continue;
            const double variance = p.variance, f = age / lag;
            p.variance = 0.0;
            const Vector3<double> found = between({p.w, p.x, p.y, p.z}, z).vector;
            const Vector3<double> x[3] = {{f * p.turn_x, f * p.turn_y, f * p.turn_z},
                                          {f * p.rate_x, f * p.rate_y, f * p.rate_z},
                                          {p.back_x, p.back_y, p.back_z}};
            double weight = near(found) * near(x[0]);
            if (age > 1.5 * lag || !(weight > 0.0)) continue;
            double wrong[AXES], square = 0.0, agreed = 0.0, offered = 0.0;
            const double share = gate(earned);
            for (int a = 0; a < AXES; ++a) {
                wrong[a] = found[a] - x[0][a];
                const double offer =
                    earned.first * x[0][a] + earned.second * x[1][a] + earned.third * x[2][a];
                const double e = wrong[a] - share * offer;
                square += e * e, agreed += wrong[a] * offer, offered += offer * offer;
            }
            const double total = variance * std::exp(earned.log_spread) + t.head.noise * rel;
            square /= total;
            const double step = (square > REGION_SQUARE) - REGION_MISSED;
            earned.log_spread = std::clamp(earned.log_spread + SPREAD_STEP * step,
                                           std::log(LEAST_SPREAD), std::log(WIDEST_SPREAD));
            weight *= std::min(1.0, FAR_FORECAST / square);
            earned.agreed = FORECAST_MEMORY * earned.agreed + weight * agreed / total;
            earned.offered = FORECAST_MEMORY * earned.offered + weight * offered / total;
            add(earned, x, wrong, weight / variance);
            solve(earned, FORECAST_RIDGE / earned.count);
        }
    }

    static void add(Earned& to, const Vector3<double> x[3], const double wrong[AXES],
                    double weight) {
        constexpr double keep = FORECAST_MEMORY;
        double *normal = reinterpret_cast<double*>(&to), *right = normal + 6;
        for (int i = 0, place = 0; i < 3; ++i) {
            for (int j = i; j < 3; ++j, ++place) {
                const double product = x[i].x * x[j].x + x[i].y * x[j].y + x[i].z * x[j].z;
                normal[place] = keep * normal[place] + weight * product;
            }
            const double product = x[i].x * wrong[0] + x[i].y * wrong[1] + x[i].z * wrong[2];
            right[i] = keep * right[i] + weight * product;
        }
        to.count = keep * to.count + 1.0;
    }

    /// (A + ridge diag A)^-1 b, in units in which A has ones; 0 where A is.
    static void solve(Earned& of, double ridge) {
        const double diagonal[3] = {of.a11, of.a22, of.a33}, right[3] = {of.b1, of.b2, of.b3};
        double scale[3], y[3], low[3][3] = {{}, {of.a12}, {of.a13, of.a23}};
        for (int i = 0; i < 3; ++i) {
            scale[i] = diagonal[i] > 0.0 ? 1.0 / std::sqrt(diagonal[i]) : 0.0;
            for (int j = 0; j < i; ++j) low[i][j] *= scale[i] * scale[j];
            low[i][i] = 1.0 + ridge;
            y[i] = scale[i] * right[i];
        }
        for (int i = 0; i < 3; ++i) {  // Cholesky, and forward
            for (int j = 0; j < i; ++j) {
                for (int k = 0; k < j; ++k) low[i][j] -= low[i][k] * low[j][k];
                low[i][j] /= low[j][j];
                low[i][i] -= low[i][j] * low[i][j];
                y[i] -= low[i][j] * y[j];
            }
            low[i][i] = std::sqrt(low[i][i]);
            y[i] /= low[i][i];
        }
        double* out = reinterpret_cast<double*>(&of) + 10;  // first, second, third
        for (int i = 2; i >= 0; --i) {
            for (int j = i + 1; j < 3; ++j) y[i] -= low[j][i] * y[j];
            y[i] /= low[i][i];
            out[i] = std::clamp(scale[i] * y[i], -MOST_EARNED, MOST_EARNED);
        }
    }

    /// Into a free place, unless another forecast of this lag is young.
    void issue(RotationTrack t, const DenseTrack* x, int j) {
        const double lag = FORECAST_LAGS[j], unit = t.head.unit;
        const double young = (FORECAST_EVERY - 0.5) * unit;
        PendingForecast* free = nullptr;
        for (int i = WAITING - 1; i >= 0; --i) {
            PendingForecast& p = t.pending[WAITING * j + i];
            if (!(p.variance > 0.0))
                free = &p;
            else if (t.head.time - p.time < young)
                return;
        }
        if (!free) return;
        const double share = x ? t.experts[2] : 0.0;
        double mean[AXES] = {}, square = 0.0;
        isotropic.ahead(t, over[j], 1.0 - share, mean, square);
        if (x) dense.ahead(t, *x, lag, share, mean, square);
        const double turn = mean[0] * mean[0] + mean[1] * mean[1] + mean[2] * mean[2];
        const Vector3<double> away = between(quaternion_at(t.frame), quaternion_at(t.usual)).vector;
        const Vector3<double> back = near(away) * away;
        const double *q = t.frame, *v = t.usual_rate;
        *free = {t.head.time, q[0], q[1], q[2], q[3], mean[0], mean[1], mean[2],
                 lag * v[0], lag * v[1], lag * v[2], back.x, back.y, back.z,
                 std::max((square - turn) / 3.0, 1e-300)};
    }
};

}  // namespace
