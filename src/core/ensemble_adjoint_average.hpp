// The way back through averages and diagonals (ensemble.hpp: hold, learn_average).
#pragma once
#include "ensemble_adjoint_room.hpp"
#include <numbers>
#include <tuple>

namespace {

using namespace kgmrf;

/// Rows that a channel is old when it learns; given.
inline double age_of(Track t, int i) { return t.age_of[i] + 1.0; }

/// What an entry of an average keeps and takes in, and derivatives of both by 1/V.
struct EntryGains {
    double keep, take, keep_by_part, take_by_part;

    EntryGains(Track t, int i, int j, double mass) {
        const double part = 1.0 / mass;
        const bool young_i = t.has(i) && age_of(t, i) < mass, young_j = t.has(j) && age_of(t, j) < mass;
        const double a = young_i ? 1.0 / age_of(t, i) : part, b = young_j ? 1.0 / age_of(t, j) : part;
        keep = std::sqrt((1.0 - a) * (1.0 - b)), take = std::sqrt(a * b);
        const int parts = !young_i + !young_j;  // of a and b that are 1/V
        keep_by_part = parts == 0 ? 0.0 : parts == 2 ? -1.0 : -0.5 * keep / (1.0 - part);
        take_by_part = parts == 0 ? 0.0 : parts == 2 ? 1.0 : 0.5 * take / part;
    }
};

template <int S>
class AverageAdjoint {
  public:
    explicit AverageAdjoint(AdjointRoom<S>& own) : own(own) {}

    /// Back through S_k of member k; spends its derivatives.
    void hold(Track t, Track bar, int k) {
        const Member& m = f.members[k];
        const double* deviation = t.of(m.deviation);
        const bool average = m.kind == Kind::average;
        const double size = average && m.size >= 0 ? std::exp(t.row[m.size]) : 1.0;
        const double rho = average ? SHRINKAGE / (t.row[m.mass] + SHRINKAGE) : 0.0;
        const double* body = average ? t.of(m.body) : nullptr;
        double *from = own.part_bar(k), on_sum = 0.0;
        for (int i = 0; i < d; ++i) {
            const int p = pair(i, i);
            const double units = deviation ? deviation[i] * deviation[i] : 1.0;
            const double base = body ? body[p] : 1.0, whole = size * units * base;
            from[p] *= t.has(i) ? 1.0 + 1e-9 : 0.0;
            if (whole < FLOOR * t.level[i]) bar.level[i] += FLOOR * from[p], from[p] = 0.0;
            on_sum += from[p] * units * base;
            if (!body && deviation && whole > 0.0)
                bar.of(m.deviation)[i] += 2.0 * from[p] * whole / deviation[i];
        }
        if (!body) return;
        double* body_bar = bar.of(m.body);
        if (deviation) outer_packed(deviation, units_of, d);
        if (deviation)
            each(n, [&]<class V>(int p) {
                store(from + p, load<V>(from + p) * load<V>(units_of + p));
            });
        // whole_ij = size (1 - rho) E_i E_j B_ij, on the diagonal size E_i^2 B_ii
        const double off = size * (1.0 - rho), off_sum = dot(from, body, n) - on_sum;
        if (deviation) {
            double* deviation_bar = bar.of(m.deviation);
            fill(y, d, 0.0);
            for (int i = 0, p = 0; i < d; ++i)
                for (int j = 0; j <= i; ++j, ++p) {
                    const double whole = (i == j ? size : off) * from[p] * body[p];
                    y[i] += whole, y[j] += whole;
                }
            for (int i = 0; i < d; ++i)
                if (deviation[i] > 0.0) deviation_bar[i] += y[i] / deviation[i];
        }
        each(n, [&]<class V>(int p) {
            store(body_bar + p, load<V>(body_bar + p) + off * load<V>(from + p));
        });
        for (int i = 0; i < d; ++i) body_bar[pair(i, i)] += (size - off) * from[pair(i, i)];
        if (m.size >= 0) bar.row[m.size] += off * off_sum + size * on_sum;
        bar.row[m.mass] += size * off_sum * rho / (t.row[m.mass] + SHRINKAGE);
    }

    /// z_k = x^T S_k^-1 x and S_k^-1 x of a single sample x, for all members with a size clock.
    void solve_clocks() {
        f.each_clock([&](const int* who, int lanes, vec found) {
            f.substitute(f.side, f.side + W * n);
            for (int l = 0; l < lanes; ++l) {
                distance[who[l]] = found[l];
                double* to = solved + who[l] * own.vector;
                for (int i = 0; i < d; ++i) to[i] = f.side[W * (n + i) + l];
            }
        });
    }

    /// Back through `learn_average` of member k.
    void learn(Track t, Track after, Track bar, int k, Learnt& s) {
        const Member& m = f.members[k];
        const bool limited = m.law.clip_outliers > 0.0, clock = m.size >= 0;
        const double* deviation = after.of(m.deviation);
        double heavy = limited ? s.limited : s.u, size = 1.0, size_bar = 0.0;
        double z = 0.0, spare = 0.0, grown = 1.0;
        const double far = OUTLIER * s.n_there;
        if (clock) {
            if (s.single)
                z = distance[k];
            else
                std::tie(z, spare) = f.size_of(k);  // leaves S_k^-1 in `inverse`
            heavy = limited ? far / std::max(z, far) : s.u;
            grown = 1.0 + m.law.size_gain * ((heavy * z + spare) / s.n_there - 1.0);
            if (s.early) heavy = grown = 1.0;
            size = std::exp(-t.row[m.size]) / grown;
        }
        // What was seen in units of the deviations, inner = (heavy mean + rest)/(E E^T), and its bar.
        if (deviation) {
            for (int i = 0; i < d; ++i) y[i] = deviation[i] > 0.0 ? 1.0 / deviation[i] : 1.0;
            outer_packed(y, units_of, d);
        }
        each(n, [&]<class V>(int p) {
            V v = heavy * load<V>(f.mean + p) + load<V>(f.rest + p);
            if (deviation) v *= load<V>(units_of + p);
            store(inner + p, v), store(seen_bar + p, V{});
        });
        if (m.kind == Kind::average) size_bar = learn_body(t, bar, m, size);
        if (deviation) {
            fill(y_bar, d, 0.0);
            for (int i = 0, p = 0; m.kind == Kind::average && i < d; ++i)
                for (int j = 0; j <= i; ++j, ++p) {
                    const double both = seen_bar[p] * inner[p];
                    y_bar[i] += both, y_bar[j] += both;
                }
            each(n, [&]<class V>(int p) {
                store(seen_bar + p, load<V>(seen_bar + p) * load<V>(units_of + p));
            });
            size_bar += learn_deviation(t, after, bar, k, heavy, size);
        }
        double heavy_bar = dot(seen_bar, f.mean, n);
        each(n, [&]<class V>(int p) {
            const V v = load<V>(seen_bar + p);
            store(own.mean_bar + p, load<V>(own.mean_bar + p) + heavy * v);
            store(own.rest_bar + p, load<V>(own.rest_bar + p) + v);
        });
        if (!clock) {
            (limited ? s.limited_bar : s.u_bar) += heavy_bar;
            return;
        }
        const double log_bar = bar.row[m.size] - size_bar * size;  // by log grown
        bar.row[m.size] = log_bar;
        if (s.early) return;
        const double grown_bar = log_bar / grown;
        const double share = grown_bar * m.law.size_gain / s.n_there;
        own.table_bar(k).size_gain += grown_bar * ((heavy * z + spare) / s.n_there - 1.0);
        heavy_bar += share * z;
        double z_bar = share * heavy;
        if (!limited)
            s.u_bar += heavy_bar;
        else if (z > far)
            z_bar -= heavy_bar * heavy / z;
        if (s.single)
            back_distance(k, z_bar);
        else
            back_traces(k, z_bar, share);
    }

  private:
    AdjointRoom<S>& own;
    Ensemble<S>& f = own.f;
    const int d = own.d, n = own.n;
    double *y = own.y, *y_bar = own.y_bar;
    Room units_of{own.room + 0u}, inner{own.room + 0u}, seen_bar{own.room + 0u};
    Room distance{own.k_ + 0u}, solved{own.k_ * own.vector};

    /// Back through B <- keep B + take size inner; returns the derivative by the size.
    double learn_body(Track t, Track bar, const Member& m, double size) {
        const double mass = t.row[m.mass] + 1.0, part = 1.0 / mass;
        const double* B = t.of(m.body);
        double *B_bar = bar.of(m.body), part_sum = 0.0, size_bar = 0.0;
        bool young = false;
        for (int i = 0; i < d; ++i) young = young || (t.has(i) && age_of(t, i) < mass);
        if (young) {
            for (int i = 0, p = 0; i < d; ++i)
                for (int j = 0; j <= i; ++j, ++p) {
                    const EntryGains g(t, i, j, mass);
                    part_sum +=
                        B_bar[p] * (g.take_by_part * size * inner[p] + g.keep_by_part * B[p]);
                    size_bar += g.take * B_bar[p] * inner[p];
                    seen_bar[p] = g.take * size * B_bar[p];
                    B_bar[p] *= g.keep;
                }
        } else {
            const double along = dot(B_bar, inner, n);
            part_sum = size * along - dot(B_bar, B, n), size_bar = part * along;
            each(n, [&]<class V>(int p) {
                const V v = load<V>(B_bar + p);
                store(seen_bar + p, part * size * v), store(B_bar + p, (1.0 - part) * v);
            });
        }
        bar.row[m.mass] -= part_sum * part * part;
        return size_bar;
    }

    /// Back through the deviations, from derivatives y_bar of what they divide; adds to seen_bar,
    /// returns the derivative by the size.
    double learn_deviation(Track t, Track after, Track bar, int k, double heavy, double size) {
        const Member& m = f.members[k];
        const double* old = t.of(m.deviation);
        double *old_bar = bar.of(m.deviation), gain_bar = 0.0, size_bar = 0.0;
        for (int i = 0; i < d; ++i) {
            if (!t.has(i)) continue;
            const int p = pair(i, i);
            const double seen = heavy * f.mean[p] + f.rest[p], young = 1.0 / age_of(t, i);
            const double gain = std::max(f.channel_gain[k], young);
            const double by = (old_bar[i] - y_bar[i] * y[i]) * 0.5 * y[i];
            const double square = old[i] * old[i], whole = square + gain * (size * seen - square);
            old_bar[i] = 0.0;
            if (whole < FLOOR * after.level[i]) {
                bar.level[i] += FLOOR * by;
                continue;
            }
            old_bar[i] = 2.0 * by * (1.0 - gain) * old[i];
            if (f.channel_gain[k] > young) gain_bar += by * (size * seen - square);
            size_bar += by * gain * seen;
            seen_bar[p] += by * gain * size;
        }
        const double half = m.law.channel_half_life;
        own.table_bar(k).channel_half_life -=
            gain_bar * (1.0 - f.channel_gain[k]) * std::numbers::ln2 * f.age / (half * half);
        return size_bar;
    }

    /// Back through z = x^T S_k^-1 x of a single sample.
    void back_distance(int k, double z_bar) {
        const double* from = solved + k * own.vector;
        double* part_bar = own.part_bar(k);
        outer_packed(from, units_of, d);
        each(n, [&]<class V>(int p) {
            store(part_bar + p, load<V>(part_bar + p) - 2.0 * z_bar * load<V>(units_of + p));
        });
        for (int i = 0; i < d; ++i) {
            part_bar[pair(i, i)] += z_bar * from[i] * from[i];
            own.x_bar[i] += 2.0 * z_bar * from[i];
        }
    }

    /// Back through z = tr(S_k^-1 C) and spare = tr(S_k^-1 rest), S_k^-1 in `inverse`.
    void back_traces(int k, double z_bar, double spare_bar) {
        double* packed = own.packed;
        for (int i = 0, p = 0; i < d; ++i)
            for (int j = 0; j <= i; ++j, ++p) {
                const double entry = (i == j ? 1.0 : 2.0) * f.inverse[i][j];
                own.mean_bar[p] += z_bar * entry;
                own.rest_bar[p] += spare_bar * entry;
                packed[p] = z_bar * f.mean[p] + spare_bar * f.rest[p];
            }
        unpack(packed, own.a);
        multiply(own.b, f.inverse, own.a);
        multiply(own.c, own.b, f.inverse);
        gather(own.c, own.part_bar(k), -1.0);
    }
};

}  // namespace
