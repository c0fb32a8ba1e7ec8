// One gain law: drift, measure, correct, adapt. kgmrf.model.step tells the formulas under the same names;
// kgmrf.readable.law runs them.
//
// Every formula stands once, for a number V of one track or of W tracks side by side (law_block.hpp):
// both take every sum in the same order and round alike (law.cpp is compiled without contraction),
// so a bank gives the bits of its tracks.
#pragma once
#include "law_row.hpp"
#include "observe.hpp"
#include "side.hpp"
#include "rotating.hpp"
#include <limits>

namespace {

using namespace kgmrf;

constexpr double LOG_TWO_PI = 1.8378770664093453;

/// f of every track.
template <class F>
double of_each(double x, F&& f) {
    return f(x);
}
template <class F>
vec of_each(vec x, F&& f) {
    for (int l = 0; l < W; ++l) x[l] = f(x[l]);
    return x;
}

/// f<U>(p) at the places of n numbers: several numbers of one track, or one number of several.
template <class V, class F>
void along(int n, F&& f) {
    if constexpr (sizeof(V) == sizeof(double))
        each(n, f);
    else
        for (int p = 0; p < n * W; p += W) f.template operator()<vec>(p);
}

/// What an observation says of a plane: r/d_i, m r/d_j, G/d_i and m G/d_j for the residual r and the
/// sensitivity G. Products of two eigenvalues are not formed: they may underflow.
template <class U>
struct Contrast {
    U share, second, gap, weight;

    template <class X>
    static Contrast of(U r, U gap, X own, U other) {
        const U share = r * own, g = gap * own;
        return {share, r * other, g, gap * other};
    }
    /// The angle to turn by, the kick of the velocity and the share of nis; P after them.
    auto correct(Spread<U>& P) const { return P.correct(share * weight, gap * weight); }
};

/// The parts of a step, with the space that they work in; V: one track or several, M: its matrices.
template <class V, class M>
class LawMoves {
  public:
    static constexpr int L = sizeof(V) / sizeof(double);
    static constexpr double NOTHING = std::numeric_limits<double>::quiet_NaN();

    LawMoves(const LawPlan& plan, std::size_t square)
        : plan(plan), law(plan.law), d(plan.d), n(plan.planes), square(square) {}

    const LawPlan& plan;
    const LawSettings& law;
    const int d, n;
    const std::size_t square;
    const std::size_t vector = std::size_t(L) * (padded(d) + 8), list = std::size_t(L) * (padded(n) + 8);

    // Eigenvalues of the observations, 1 over them, C~_ii; eigenvalues with room for a vector more.
    Room level{vector}, inverse{vector}, power{vector}, lam{vector};
    Room angles{list};
    Room full[9] = {Room(square), Room(square), Room(square), Room(square), Room(square),
                    Room(square), Room(square), Room(square), Room(square)};
    M matrix(int k) { return M{full[k], d}; }
    M frame = matrix(0), seen = matrix(1), body = matrix(2), part = matrix(3);
    Turn<M> turn{matrix(4), matrix(5), matrix(6), matrix(7), matrix(8)};

    /// Q <- Q Exp(turn W), W <- decay W, P <- F P F^T + noise; clocks widen.
    void drift(LawTrack<V> t, M q, const LawStepOf<V>& over, V decay) {
        LawHeadOf<V>& h = t.head;
        turn_frame(q, t.velocity, over.turn, turn);
        if (any(decay != 1.0))
            along<V>(n, [&]<class U>(int p) {
                store(t.velocity + p, decay * load<U>(t.velocity + p));
            });
        if (plan.information)
            along<V>(n, [&]<class U>(int p) {
                Spread<U> P{load<U>(t.p11 + p), load<U>(t.p12 + p), load<U>(t.p22 + p)};
                P.widen(over.turn, decay, over.angle, over.cross, over.rate);
                P.keep_within(law.rate_limit);
                store(t.p11 + p, P.p11), store(t.p12 + p, P.p12), store(t.p22 + p, P.p22);
            });
        if (law.spectrum_rate != 0.0)
            along<V>(d, [&]<class U>(int p) {
                store(t.spectrum_var + p,
                      madd(law.spectrum_rate, over.dt, load<U>(t.spectrum_var + p)));
            });
        if (law.scale_rate != 0.0) {
            const V keep = of_each(over.dt, [&](double dt) { return std::pow(law.scale_retention, dt); });
            h.log_scale *= keep;
            h.scale_var = madd(keep * keep, h.scale_var, law.scale_rate * over.dt);
        }
        const V advanced = choose(over.dt > 0.0, 1.0 + V{}, V{});
        h.steps += advanced;
        const V due = advanced * of_each(h.steps, [](double steps) {
            return std::fmod(steps, POLISH_EVERY) == 0.0 ? 1.0 : 0.0;
        });
        if (any(due > 0.0)) polish(q, turn.a, turn.b, due > 0.0);
    }

    /// C~ = u Q^T C Q / e^s into ``body``, its diagonal and the eigenvalues beside it; u <= 1 shrinks
    /// an observation whose z = sum C~_ii / d_i is beyond LIMIT times d. Returns log |S| + z + d log 2 pi.
    V measure(LawTrack<V> t, M q) {
        const LawHeadOf<V>& h = t.head;
        multiply(part, seen, q);
        multiply_transposed(body, q, part);
        along<V>(d, [&]<class U>(int p) {
            const U v = load<U>(t.spectrum + p);
            store(lam + p, v);
            store(level + p, v + law.noise_floor);
            store(inverse + p, 1.0 / (v + law.noise_floor));
        });
        V shrink = 1.0 + V{}, z{}, logs{}, product = 1.0 + V{};
        if (any(h.log_scale != 0.0))
            shrink = of_each(-h.log_scale, [](double s) { return std::exp(s); });
        for (int i = 0; i < d; ++i) {
            const V own = shrink * body.get(i, i);
            store(power + L * i, own);
            z = madd(own, load<V>(inverse + L * i), z);
            product *= load<V>(level + L * i);
            const auto far = !((product > 1e-100) & (product < 1e100));
            if (!any(far)) continue;
            const V one = 1.0 + V{};
            logs += of_each(choose(far, product, one), [](double x) { return std::log(x); });
            product = choose(far, one, product);
        }
        logs += of_each(product, [](double x) { return std::log(x); });
        const V most = law.limit * d + V{}, wide = choose(z > most, z, most);
        const V u = most < HUGE_VAL ? V(most / wide) : V(1.0 + V{}), share = u * shrink;
        if (any(share != 1.0)) {
            along<V>(d, [&]<class U>(int p) { store(power + p, u * load<U>(power + p)); });
            scale_by(body, share);
        }
        return logs + z + d * (LOG_TWO_PI + h.log_scale);
    }

    /// log d_i += log1p(k (C~_ii / d_i - 1)): a scalar Kalman filter per eigenvalue; one for all of
    /// them likewise.
    void adapt(LawTrack<V> t, V m) {
        LawHeadOf<V>& h = t.head;
        if (law.scale_rate != 0.0) {
            V ratio{};
            for (int i = 0; i < d; ++i) ratio += load<V>(power + L * i) / load<V>(lam + L * i);
            const V gain = h.scale_var / (h.scale_var + 2.0 / (m * d));
            h.log_scale += of_each(gain * (ratio / d - 1.0), [](double x) { return std::log1p(x); });
            h.scale_var *= 1.0 - gain;
        }
        if (law.spectrum_rate == 0.0) return;
        const V noise = 2.0 / m;
        along<V>(d, [&]<class U>(int p) {
            const U wide = load<U>(t.spectrum_var + p), gain = wide / (wide + noise);
            const U relative = madd(load<U>(power + p), load<U>(inverse + p), -1.0);
            store(level + p, load<U>(level + p) * madd(gain, relative, 1.0));
            store(t.spectrum_var + p, (1.0 - gain) * wide);
        });
        V most{};
        for (int i = 0; i < d; ++i) {
            const V v = load<V>(level + L * i);
            most = choose(v > most, v, most);
        }
        const V least = SMALLEST_SPECTRUM * most;
        along<V>(d, [&]<class U>(int p) {
            const U v = load<U>(level + p) - law.noise_floor, low = least + U{};
            store(t.spectrum + p, choose(v > low, v, low));
        });
    }

  private:
    template <int S>
    static void scale_by(Matrix<S> a, double share) {
        scale(a, share);
    }
    template <int D>
    static void scale_by(Side<D> a, vec share) {
        for (int p = 0; p < a.size(); p += W) store(a.p + p, share * load(a.p + p));
    }
};

}  // namespace
