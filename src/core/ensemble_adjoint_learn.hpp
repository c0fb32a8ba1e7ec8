    // Part of EnsembleAdjoint (ensemble_adjoint.hpp): back through one observation.

    void back_step(Track t, Track after, Track bar, const Seen& seen, double likelihood_bar,
                   double* values_bar) {
        f.mark_present(t);
        const int n_there = static_cast<int>(std::count(f.there.get(), f.there.get() + d, true));
        back_entered(t, after, bar);
        const Compared c = seen.matrix ? f.compare_matrix(n_there, seen.m) : f.compare(t, seen);
        if (!(c.values > 0.0)) return;
        // Forwards once more, as `judge` and `learn`.
        const Head& h = t.head;
        const double kappa = h.kappa, doubt = doubt_of(h.samples, d);
        const double log_wide = std::log(widening(doubt, n_there));
        const double shrunk = std::exp(-kappa - log_wide), grown = c.values * (kappa + log_wide);
        pack(f.mean_full, f.mean);
        const double apart = c.holes ? std::exp(kappa) / c.m : 0.0;
        scale(f.rest_full, apart), pack(f.rest_full, f.rest);
        const double size_std = Wander::size_std(t.wander, f.horizon.gap());
        f.tail_logs.take(c.values, doubt);
        const double q = std::fmin(shrunk * c.distance, FARTHEST);
        const double q_top = std::fmin(shrunk * (c.distance - c.top.distance), FARTHEST);
        const double log_det = c.log_det + c.top.log_det + grown;
        const Mixed found = mix_tails(t.tails, f.tail_logs, q, c.log_det + grown, size_std);
        const Mixed told = mix_tails(t.tails, f.tail_logs, q_top, log_det, size_std);
        const double log_size =
            (log_det - sum_of_logs(f.cells, t.level, d)) / c.values - log_wide;
        const double factor = found.u * shrunk;
        for (int i = 0, p = 0; i < d; ++i)
            for (int j = 0; j <= i; ++j, ++p)
                slope[p] = (i == j ? 0.5 : 1.0) * (factor * f.outer[i][j] - f.precision[i][j]);
        for (int k = 0; k < k_; ++k) f.gradient[k] = raw[k] = dot(slope, f.part(k), n);
        f.horizon.pull_back(f.gradient);
        const bool early = h.samples + c.m <= EARLY;
        const double far = OUTLIER * c.values;

        // Back through `learn`.
        Learnt s{early ? 1.0 : found.u, early ? 1.0 : far / std::max(q, far),
                 double(n_there), early, 0.0, 0.0};
        fill(mean_bar, n, 0.0), fill(rest_bar, n, 0.0);
        if (plan.n_turning > 0) back_turning(t, after, bar, s, c.m);
        for (int k = 0; k < k_; ++k)
            if (f.members[k].kind != Kind::turning) back_average(t, after, bar, k, s);
        for (int i = 0; i < d; ++i) {
            if (!t.has(i)) continue;
            const int p = pair(i, i);
            const double gain = 1.0 / std::min(age_of(t, i), LEVEL_MEMORY);
            const double level = t.level[i] + gain * (s.u * f.mean[p] + f.rest[p] - t.level[i]);
            const double level_bar = level > SMALLEST ? bar.level[i] : 0.0;
            s.u_bar += level_bar * gain * f.mean[p];
            mean_bar[p] += level_bar * gain * s.u;
            rest_bar[p] += level_bar * gain;
            bar.level[i] = (1.0 - gain) * level_bar;
        }
        double q_bar = !early && q > far ? -s.limited_bar * s.limited / q : 0.0;

        // Back through `judge`.
        double kappa_bar = 0.0;
        Mixed found_bar{}, told_bar{};
        told_bar.log_p = likelihood_bar;
        found_bar.u = early ? 0.0 : s.u_bar;
        const double rate = plan.learning.kappa_gain, ratio = found.u * q / c.values - 1.0;
        const double inside = 1.0 + rate * ratio, moved = kappa + std::log1p(rate * ratio);
        if (q <= far && std::fabs(moved) < KAPPA_LIMIT) {
            kappa_bar = bar.head.kappa;
            learning_bar().kappa_gain += kappa_bar * ratio / inside;
            found_bar.u += kappa_bar * rate * q / (c.values * inside);
            q_bar += kappa_bar * rate * found.u / (c.values * inside);
        }
        fill(gradient_bar, k_, 0.0);
        back_weights(
            t.roots, k_, f.horizon.weights(), f.gradient, c.m / c.values, plan.learning.blend_rate,
            q > far, bar.roots, weights_bar, gradient_bar,
            [&](int k) -> double& { return table_bar(k).root; }, learning_bar().blend_rate);
        f.horizon.back(raw, gradient_bar, weights_bar);
        fill(packed, n, 0.0);
        for (int k = 0; k < k_; ++k)
            for (int p = 0; p < n; ++p) {
                packed[p] += gradient_bar[k] * f.part(k)[p];
                part_bar(k)[p] += gradient_bar[k] * slope[p];
            }
        unpack(packed, a);
        const double factor_bar = 0.5 * dot(a.p, f.outer.p, a.size());
        copy(a, compared.outer), scale(compared.outer, 0.5 * factor);
        copy(a, compared.precision), scale(compared.precision, -0.5);
        found_bar.u += factor_bar * shrunk;
        kappa_bar -= factor_bar * factor;
        for (int j = 0; j < N_TAILS; ++j)
            found_bar.share[j] = (1.0 - TAIL_SHARE) * bar.tails[j], bar.tails[j] = 0.0;
        const double z = shrunk * c.top.share / c.m;
        const auto learnt = compared.top.back_learn(f.top_of(t), f.top_of(bar), z, c.m, told.u,
                                                    heaviness(t.tails), f.age);
        told_bar.u += learnt.u;
        kappa_bar -= learnt.z * z;
        const double size_bar =
            back_wander(t.wander, bar.wander, log_size, h.count, f.age) / c.values;
        for (int i = 0; i < d; ++i)
            if (t.has(i)) bar.level[i] -= size_bar * f.cells[i] / t.level[i];
        MixtureBar by_found, by_told;
        by_found.q = q_bar;
        back_mixture(t.tails, f.tail_logs, q, size_std, found_bar, by_found);
        back_mixture(t.tails, f.tail_logs, q_top, size_std, told_bar, by_told);
        by_told.log_det += size_bar;
        for (int j = 0; j < N_TAILS; ++j)
            bar.tails[j] += by_found.tails[j] + by_told.tails[j] +
                            learnt.heavy * (TAILS[j] / (TAILS[j] - 2.0));
        back_size_std(t.wander, bar.wander, f.horizon.gap(), by_found.size_std + by_told.size_std);
        compared.distance = shrunk * (by_found.q + by_told.q);
        compared.log_det = by_found.log_det + by_told.log_det;
        compared.along = {learnt.z * shrunk / c.m, -shrunk * by_told.q, by_told.log_det};
        kappa_bar += c.values * compared.log_det - by_found.q * q - by_told.q * q_top;
        kappa_bar += dot(rest_bar, f.rest, n);
        bar.head.kappa = kappa_bar;

        // Back through `compare`.
        spread(mean_bar, compared.mean);
        spread(rest_bar, compared.rest), scale(compared.rest, apart);
        if (seen.matrix)
            f.mark_present(t), f.invert_forecast(),
                compared.back_matrix(f, seen.m, total_bar, values_bar);
        else
            compared.back(f, t, seen, c.m, total_bar, values_bar);
    }

    /// Rows that a channel is old when it learns; given.
    static double age_of(Track t, int i) { return t.age_of[i] + 1.0; }

    /// What one observation says to all members, and derivatives by u and by the limited weight.
    struct Learnt {
        double u, limited, n_there;
        bool early;
        double u_bar, limited_bar;
    };

    /// Numbers of channels that came at the end of a step are given: no derivatives by them.
    void back_entered(Track t, Track after, Track bar) {
        bool any = false;
        for (int i = 0; i < d; ++i) {
            if (t.has(i) || !after.has(i)) continue;
            any = true;
            bar.level[i] = 0.0;
            for (int k = 0; k < k_; ++k) {
                const Member& m = f.members[k];
                if (double* deviation = bar.of(m.deviation)) deviation[i] = 0.0;
                double* packed_bar = m.kind == Kind::turning ? bar.of(m.turned) : bar.of(m.body);
                for (int j = 0; packed_bar && j < d; ++j)
                    packed_bar[pair(std::max(i, j), std::min(i, j))] = 0.0;
            }
        }
        if (!any || t.pooling()) return;
        for (int k = k_ - plan.n_turning; k < k_; ++k)
            fill(bar.of(f.members[k].turned), d * d + 4 * plan.planes + d + 1, 0.0);
    }

    /// What an entry of an average keeps and takes in, and derivatives of both by 1/V.
    struct Gains {
        double keep, take, keep_by_part, take_by_part;
    };
    static Gains gains(Track t, int i, int j, double mass) {
        const double part = 1.0 / mass;
        const bool young_i = t.has(i) && age_of(t, i) < mass, young_j = t.has(j) && age_of(t, j) < mass;
        if (!young_i && !young_j) return {1.0 - part, part, -1.0, 1.0};
        const double a = young_i ? 1.0 / age_of(t, i) : part, b = young_j ? 1.0 / age_of(t, j) : part;
        const double keep = std::sqrt((1.0 - a) * (1.0 - b)), take = std::sqrt(a * b);
        if (young_i && young_j) return {keep, take, 0.0, 0.0};
        return {keep, take, -0.5 * keep / (1.0 - part), 0.5 * take / part};
    }

    /// Back through `learn_average` of member k.
    void back_average(Track t, Track after, Track bar, int k, Learnt& s) {
        const Member& m = f.members[k];
        const bool limited = m.law.limited > 0.0, clock = m.size >= 0;
        double heavy = limited ? s.limited : s.u, size = 1.0, size_bar = 0.0;
        double z = 0.0, spare = 0.0, grown = 1.0;
        const double far = OUTLIER * s.n_there;
        if (clock) {
            std::tie(z, spare) = f.size_of(k);  // leaves S_k^-1 in `inverse`
            copy(f.inverse, e);
            heavy = limited ? far / std::max(z, far) : s.u;
            grown = 1.0 + m.law.size_gain * ((heavy * z + spare) / s.n_there - 1.0);
            if (s.early) heavy = grown = 1.0;
            size = std::exp(-t.row[m.size]) / grown;
        }
        for (int p = 0; p < n; ++p) own[p] = heavy * f.mean[p] + f.rest[p];
        const double* deviation = after.of(m.deviation);
        for (int i = 0; i < d; ++i) y[i] = deviation && deviation[i] > 0.0 ? 1.0 / deviation[i] : 1.0;
        fill(own_bar, n, 0.0);
        fill(y_bar, d, 0.0);
        if (m.kind == Kind::average) {
            const double mass = t.row[m.mass] + 1.0, part = 1.0 / mass;
            const double* B = t.of(m.body);
            double *B_bar = bar.of(m.body), part_sum = 0.0;
            for (int i = 0, p = 0; i < d; ++i)
                for (int j = 0; j <= i; ++j, ++p) {
                    const double inner = own[p] * y[i] * y[j];
                    const Gains g = gains(t, i, j, mass);
                    part_sum += B_bar[p] * (g.take_by_part * size * inner + g.keep_by_part * B[p]);
                    size_bar += g.take * B_bar[p] * inner;
                    const double inner_bar = g.take * size * B_bar[p];
                    own_bar[p] = inner_bar * y[i] * y[j];
                    y_bar[i] += inner_bar * own[p] * y[j];
                    y_bar[j] += inner_bar * own[p] * y[i];
                    B_bar[p] *= g.keep;
                }
            bar.row[m.mass] -= part_sum * part * part;
        }
        if (deviation) {
            const double* old = t.of(m.deviation);
            double *old_bar = bar.of(m.deviation), gain_bar = 0.0;
            for (int i = 0; i < d; ++i) {
                if (!t.has(i)) continue;
                const int p = pair(i, i);
                const double gain = std::max(f.channel_gain[k], 1.0 / age_of(t, i));
                const double by = (old_bar[i] - y_bar[i] * y[i] * y[i]) * 0.5 * y[i];
                const double square = old[i] * old[i], whole = square + gain * (size * own[p] - square);
                old_bar[i] = 0.0;
                if (whole < FLOOR * after.level[i]) {
                    bar.level[i] += FLOOR * by;
                    continue;
                }
                old_bar[i] = 2.0 * by * (1.0 - gain) * old[i];
                if (f.channel_gain[k] > 1.0 / age_of(t, i)) gain_bar += by * (size * own[p] - square);
                size_bar += by * gain * own[p];
                own_bar[p] += by * gain * size;
            }
            const double half = m.law.channel_half_life;
            table_bar(k).channel_half_life -=
                gain_bar * (1.0 - f.channel_gain[k]) * std::numbers::ln2 * f.age / (half * half);
        }
        double heavy_bar = dot(own_bar, f.mean, n);
        for (int p = 0; p < n; ++p) {
            mean_bar[p] += heavy * own_bar[p];
            rest_bar[p] += own_bar[p];
        }
        if (!clock) {
            (limited ? s.limited_bar : s.u_bar) += heavy_bar;
            return;
        }
        const double log_bar = bar.row[m.size] - size_bar * size;  // by log grown
        bar.row[m.size] = log_bar;
        if (s.early) return;
        const double grown_bar = log_bar / grown;
        const double share = grown_bar * m.law.size_gain / s.n_there;
        table_bar(k).size_gain += grown_bar * ((heavy * z + spare) / s.n_there - 1.0);
        heavy_bar += share * z;
        double z_bar = share * heavy;
        if (!limited)
            s.u_bar += heavy_bar;
        else if (z > far)
            z_bar -= heavy_bar * heavy / z;
        // z = tr(S_k^-1 C), spare = tr(S_k^-1 rest)
        for (int i = 0, p = 0; i < d; ++i)
            for (int j = 0; j <= i; ++j, ++p) {
                const double entry = (i == j ? 1.0 : 2.0) * e[i][j];
                mean_bar[p] += z_bar * entry;
                rest_bar[p] += share * entry;
                packed[p] = z_bar * f.mean[p] + share * f.rest[p];
            }
        unpack(packed, a);
        multiply(b, e, a);
        multiply(c, b, e);
        gather(c, part_bar(k), -1.0);
    }

    /// Back through `start`, the first observation.
    void back_start(Track after, Track bar, const Seen& seen, double* values_bar) {
        fill(y, d, 0.0);  // by the levels
        fill(packed, n, 0.0);
        for (int i = 0; i < d; ++i) y[i] = bar.level[i];
        for (int k = 0; k < k_; ++k) {
            const Member& m = f.members[k];
            const double* deviation = after.of(m.deviation);
            const double* from = m.kind == Kind::turning ? bar.of(m.turned) : bar.of(m.body);
            const double* body_of = m.kind == Kind::turning ? after.of(m.turned) : after.of(m.body);
            double* units_bar = y_bar;
            for (int i = 0; i < d; ++i) units_bar[i] = deviation ? bar.of(m.deviation)[i] : 0.0;
            for (int i = 0; from && i < d; ++i) {
                if (!deviation) y[i] += from[pair(i, i)];
                for (int j = 0; j < i; ++j) {
                    const int p = pair(i, j);
                    if (!after.has(i) || !after.has(j)) continue;
                    packed[p] += deviation ? from[p] / (deviation[i] * deviation[j]) : from[p];
                    if (!deviation) continue;
                    units_bar[i] -= from[p] * body_of[p] / deviation[i];
                    units_bar[j] -= from[p] * body_of[p] / deviation[j];
                }
            }
            for (int i = 0; deviation && i < d; ++i)
                if (after.has(i)) y[i] += 0.5 * units_bar[i] / deviation[i];
        }
        for (int i = 0; i < d; ++i)
            packed[pair(i, i)] = after.has(i) ? (1.0 + 1.0 / seen.m) * y[i] : 0.0;
        spread(packed, a);
        for (int i = 0; seen.matrix && i < d; ++i)
            for (int j = 0; j < d; ++j) values_bar[i * d + j] += a[i][j];
        for (std::int64_t r = 0; !seen.matrix && r < seen.samples; ++r) {
            const double* sample = seen.x + r * d;
            for (int i = 0; i < d; ++i) {
                if (std::isnan(sample[i])) continue;
                double sum = 0.0;
                for (int j = 0; j < d; ++j)
                    if (!std::isnan(sample[j])) sum += a[i][j] * sample[j];
                values_bar[r * d + i] += 2.0 / seen.m * sum;
            }
        }
        // Before it only tails and roots stand.
        copy(bar.tails, y, N_TAILS), copy(bar.roots, raw, k_);
        fill(bar.row, static_cast<int>(plan.size), 0.0);
        copy(y, bar.tails, N_TAILS), copy(raw, bar.roots, k_);
    }
