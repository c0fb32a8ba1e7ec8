// The loop for many channels: forecast, judge and learn, one sample at a time; linear in d.
// kgmrf/readable/low_rank.py tells the formulas under the same names.
//
//     drift     s, the counts, U, V and P move on by dt
//     hold      S_k = F_k F_k^T + diag N_k
//     blend     S = sum_k w_k S_k, again factors plus a diagonal
//     score     tails, kappa and w learn from how well the forecast did
//     learn     noise, spectrum, axes and size of every member
//     add_channels     channels come; start_axes: axes from the first rows by singular values
#pragma once
#include "horizon.hpp"
#include "loops.hpp"
#include "low_rank_start.hpp"
#include "observe.hpp"
#include "score.hpp"
#include <memory>

namespace {

using namespace kgmrf;

class LowRank : public Loop {
  public:
    explicit LowRank(const LowRankPlan& plan)
        : plan(plan), k_(static_cast<int>(plan.members.size())), members(plan), start(plan) {}

    void run(const Lines& lines) override {
        const std::int64_t length = lines.samples * d;
        for (std::int64_t i = 0; i < lines.n; ++i) {
            const double* samples = lines.values + i * length;
            LowRankTrack t(lines.rows + lines.track_index[i] * plan.size, plan);
            double m = 0.0;
            if (lines.counts[i] > 0.0) m = count_samples(samples, lines.samples, d);
            const Status found = m < 0.0   ? Status::invalid
                                 : m > 0.0 ? Status::observed
                                           : Status::missing;
            lines.status[i] = static_cast<std::int8_t>(found);
            if (found != Status::invalid && lines.counts[i] >= 0.0) {
                begin(t, lines.dt[i], m > 0.0);
                for (std::int64_t l = 0; m > 0.0 && l < lines.samples; ++l) step(t, samples + l * d);
            }
            if (lines.records) write_record(t, lines.records + i * lines.record_width, lines.record_width);
        }
    }

  private:
    const LowRankPlan& plan;
    const int k_, d = plan.d, s = plan.stride, c = plan.columns;
    LowRankMembers members;
    LowRankStart start;
    TailLogs tail_logs;
    Horizon horizon{plan.members};
    Wander wander;
    double age = 0.0;  // since the last observation when this one came

    Room weights{k_ + 0u}, gradient{k_ + 0u}, outer{k_ + 0u}, trace{k_ + 0u};
    // Factors of the blend, member k times sqrt(w_k); the same times the inverse noise.
    Room factors{std::size_t(c) * s}, half{std::size_t(c) * s}, noises{std::size_t(k_) * s};
    // Vectors over channels.
    Room x{s + 0u}, here{s + 0u}, noise{s + 0u}, inverse{s + 0u}, beside{s + 0u}, explained{s + 0u},
        power{s + 0u};
    // Vectors over columns, and I + F^T N^-1 F with the inverse of its root.
    Room b{padded(c) + 0u}, out{padded(c) + 0u}, kept{padded(c) + 0u}, column{2u * padded(c)};
    Room inner{std::size_t(padded(c)) * padded(c)}, left{std::size_t(padded(c)) * padded(c)};

    /// Time goes on by dt, up to the observations of a line.
    void begin(LowRankTrack t, double dt, bool seen) {
        Head& h = t.head;
        const double was = t.age();
        h.time += dt;
        age = was + dt;
        if (h.count > 0.0)
            for (const LowRankMember& m : plan.members)
                members.drift(t, m, dt, std::fmin(age, SIZE_DECAYS) - std::fmin(was, SIZE_DECAYS));
        horizon.look(t.age());
        if (seen) h.seen = h.time;
        h.likelihood = h.distance = h.values = std::numeric_limits<double>::quiet_NaN();
        h.size_std = h.doubt = 0.0;
    }

    /// Weights w; F (columns, s) with member k times sqrt(w_k); N_k of each; noise = sum_k w_k N_k.
    void blend(LowRankTrack t, bool sharp) {
        blend_weights(t.roots, k_, sharp, weights);
        horizon.carry(weights);
        int first = 0;
        for (int k = 0; k < k_; ++k) {
            const LowRankMember& m = plan.members[k];
            members.hold(t, m, weights[k], factors + std::int64_t(first) * s, noises + k * s);
            first += m.rank;
        }
        along(weights, {noises, k_, s}, noise);
    }

    /// log p(x) of the sample; the tails, kappa and the weights learn from it.
    ///
    /// The weights follow <S^-1 x x^T S^-1, S_k> and <S^-1, S_k>, where
    /// F^T S^-1 F = I - (I + F^T N^-1 F)^-1.
    void score(LowRankTrack t, int n) {
        blend(t, false);
        const Rows F{factors, c, s}, H{half, c, s};
        Matrix<0> A{inner, c}, L{left, c};
        double log_det = 0.0, product = 1.0;
        for (int i = 0; i < s; ++i) {
            inverse[i] = here[i] > 0.0 ? 1.0 / noise[i] : 0.0;
            if (!(here[i] > 0.0)) continue;
            product *= noise[i];
            if (!(1e-100 < product && product < 1e100)) log_det += std::log(product), product = 1.0;
        }
        times(F, inverse, H);
        gram(H, F, A, true);
        for (int i = 0; i < c; ++i) A[i][i] += 1.0;
        log_det += std::log(product) + cholesky(A, column);
        invert_lower(A, L);
        ::apply(H, x, b);
        for (int i = c - 1; i >= 0; --i) b[i] = dot(L[i], b, i + 1);
        along(b, {left, c, padded(c)}, out);  // F^T S^-1 x
        along(out, H, explained);
        fill(beside, s, 0.0), fill(kept, padded(c), 0.0);
        const auto lower = [&](int i, int k) { return L[i][k]; };
        add_squares(c, lower, [](int end) { return end; }, H, beside);
        for (int i = 0; i < c; ++i)
            for (int k = 0; k <= i; ++k) kept[k] += L[i][k] * L[i][k];
        double distance = 0.0;
        for (int p = 0; p < s; p += W) {
            const vec solved = load(x + p) * load(inverse + p) - load(explained + p);
            const vec square = solved * solved;
            store(explained + p, solved);
            store(power + p, choose(square < LOW_RANK_LARGEST, square, all(LOW_RANK_LARGEST)));
            store(inverse + p, load(inverse + p) - load(beside + p));  // now diag S^-1
        }
        distance = std::clamp(dot(x, explained, s), 0.0, LOW_RANK_LARGEST);
        const double grow = std::exp(-t.head.kappa);
        tail_logs.take(n, 0.0);  // the start is wide enough
        const double log_size = (log_det - sum_of_logs(here, t.level, s)) / n + t.head.kappa;
        const double size_std = Wander::size_std(t.wander, horizon.gap());
        const double q = grow * distance;
        const Mixed found = mix_tails(t.tails, tail_logs, q, log_det + n * t.head.kappa, size_std);
        const double u = found.u;
        score_tails(t, found);
        tell(t.head, found.log_p, q, n, size_std, 0.0);
        ::apply(Rows{noises, k_, s}, power, outer);
        ::apply(Rows{noises, k_, s}, inverse, trace);
        for (int k = 0, a = 0; k < k_; ++k) {
            for (int r = 0; r < plan.members[k].rank; ++r, ++a) {
                outer[k] += out[a] * out[a] / weights[k];
                trace[k] += (1.0 - kept[a]) / weights[k];
            }
            gradient[k] = 0.5 * (u * grow * outer[k] - trace[k]);
        }
        horizon.pull_back(gradient);
        score_weights(t, k_, horizon.weights(), gradient, 1.0 / std::sqrt(double(n)));
        wander.learn(t.wander, log_size, t.head.count, age);
        score_size(t, k_, u, q, n, [&](int k) { return plan.members[k].law.root; });
    }

    /// One sample of one track, at the time it has.
    void step(LowRankTrack t, const double* sample) {
        Head& h = t.head;
        int n = 0, there = 0;
        bool any_new = false;
        for (int i = 0; i < d; ++i) {
            const bool seen = !std::isnan(sample[i]), known = seen && t.has(i);
            x[i] = known ? sample[i] : 0.0, here[i] = known;
            n += known, there += t.has(i);
            any_new |= seen && !t.has(i) && sample[i] * sample[i] > 0.0;
        }
        double limit = 1.0;
        if (n == 0 && !(h.count == 0.0 && any_new)) {
            if (any_new) start.add_channels(t, sample);
            return;
        }
        if (n > 0) {
            const double before = h.likelihood, distance = h.distance, values = h.values,
                         size_std = h.size_std;
            score(t, n);
            limit = std::min(1.0, LOW_RANK_LIMIT * n / std::max(h.distance, 1e-300));
            if (!std::isnan(before))  // of the samples of this line that came before
                h.likelihood += before, h.distance += distance, h.values += values,
                    h.size_std = size_std;
            for (int i = 0; i < d; ++i) {
                if (!(here[i] > 0.0)) continue;
                t.counts[i] += 1.0;
                const double gain = 1.0 / std::min(t.counts[i] + LOW_RANK_PRIOR_ROWS, LEVEL_MEMORY);
                t.level[i] = std::max(t.level[i] + gain * (limit * x[i] * x[i] - t.level[i]), SMALLEST);
            }
        }
        horizon.look(age = 0.0);  // further samples of the line come at the same time
        h.count += 1.0;
        h.samples += 1.0;
        if (n > 0)
            for (const LowRankMember& m : plan.members)
                members.learn(t, m, {x, here, n, double(n) / there});
        const int filled = remember(t, sample, limit);
        if (any_new) start.add_channels(t, sample);
        for (const LowRankMember& m : plan.members)
            if (std::find(m.stages, m.stages + N_STAGES, filled) != m.stages + N_STAGES)
                start.start_axes(t, m, filled);
    }

    /// The sample goes into the buffer of the first rows; how many there are now, 0 once it is full.
    int remember(LowRankTrack t, const double* sample, double limit) {
        const int filled = static_cast<int>(t.buffered());
        if (filled >= plan.buffer_rows) return 0;
        double* to = t.buffer + std::int64_t(filled) * s;
        for (int i = 0; i < d; ++i) to[i] = std::isnan(sample[i]) ? 0.0 : std::sqrt(limit) * sample[i];
        t.buffered() = filled + 1.0;
        return filled + 1;
    }

    /// The head, tails and weights of a row and, where there is room, its factors and noise.
    void write_record(LowRankTrack t, double* record, std::int64_t room_for) {
        const std::int64_t small = plan.roots + k_;
        copy(t.row, record, static_cast<int>(std::min(small, room_for)));
        if (room_for <= small) return;
        record += small;
        horizon.look(t.age());
        blend(t, !std::isnan(t.head.values));
        for (int i = 0; i < d; ++i, record += c) {
            const double* from = factors + i;
            for (int a = 0; a < c; ++a)
                record[a] = t.has(i) ? from[std::int64_t(a) * s] : std::numeric_limits<double>::quiet_NaN();
        }
        for (int i = 0; i < d; ++i)
            record[i] = t.has(i) ? double(noise[i]) : std::numeric_limits<double>::quiet_NaN();
    }
};

}  // namespace
