    // Part of Ensemble (ensemble.hpp): the first observation, and channels that come.

    /// Marks channels that come with this observation, and their variances; power is C_ii. In the
    /// first rows they come with their first value other than zero, later once they have had five.
    bool arrive(Track t, const double* power, double m) {
        bool any_new = false;
        int k = 0;
        for (int i = 0; i < d; ++i)
            if (t.has(i)) column[k++] = forecast[i][i];
        for (int i = 0; i < d; ++i) {
            hidden[i] = false;
            if (t.has(i) || !(power[i] > SMALLEST)) continue;
            if (t.head.count < ENTER_SAMPLES) {
                entered[i] = (1.0 + 1.0 / m) * power[i];
                t.age_of[i] = std::max(t.head.count, 1.0);
            } else {
                t.waiting[i] += m * as_absolute(power[i], m), t.age_of[i] += m;
                if (t.age_of[i] < ENTER_SAMPLES) continue;
                const Entering found =
                    first_scale(t.waiting[i], t.age_of[i], t.tails, t.head.kappa, column, k);
                entered[i] = found.variance, t.age_of[i] = std::max(found.values / m, 1.0), t.waiting[i] = 0.0;
            }
            any_new = hidden[i] = true;
        }
        return any_new;
    }

    void add_channels(Track t, const double* power, double m) {
        Head& h = t.head;
        if (!arrive(t, power, m)) return;
        if (!t.pooling()) {  // turning members pool again from what they hold
            hold(t);
            for (int k = k_ - plan.n_turning; k < k_; ++k)
                for (int i = 0; i < d; ++i)
                    for (int j = 0; j <= i; ++j)
                        t.of(members[k].turned)[pair(i, j)] =
                            hidden[i] || hidden[j] ? 0.0 : part(k)[pair(i, j)];
        }
        h.pooled = 1.0;
        const bool first = h.count == 0.0;
        if (first) h.count = 1.0, h.samples = m;
        for (int k = 0; k < k_; ++k) {
            const Member& law = members[k];
            if (first && law.mass >= 0) t.row[law.mass] = 1.0;
            for (int i = 0; i < d; ++i) {
                if (!hidden[i]) continue;
                const double level = entered[i];
                if (law.kind == Kind::turning) turned(t, law).pool()[pair(i, i)] = level;
                double variance = law.size < 0 ? level : std::exp(-t.row[law.size]) * level;
                if (double* deviation = t.of(law.deviation))
                    deviation[i] = std::sqrt(variance), variance = 1.0;
                if (double* B = t.of(law.body)) B[pair(i, i)] = variance;
            }
        }
        for (int i = 0; i < d; ++i)
            if (hidden[i]) t.level[i] = entered[i];
    }

    /// The top direction begins with the signs of one row of the first C, that of the channel which
    /// is correlated most: so signs and order of channels do not matter.
    void point(Track t) {
        double most = -1.0;
        int row = 0;
        for (int i = 0; i < d; ++i) {
            if (!t.has(i)) continue;
            double sum = 0.0;
            for (int j = 0; j < d; ++j)
                if (t.has(j)) sum += std::fabs(outer[i][j]) / std::sqrt(outer[i][i]) / std::sqrt(outer[j][j]);
            if (sum > most * (1.0 + 1e-9)) most = sum, row = i;
        }
        double square = 0.0;
        for (int j = 0; j < d; ++j) {
            const double v = t.has(j) ? outer[row][j] : 0.0;
            t.top[j] = double(v > 0.0) - double(v < 0.0);
            square += t.top[j] * t.top[j];
        }
        for (int j = 0; j < d; ++j) t.top[j] /= std::sqrt(square);
    }

    /// The first observation C: B = C with the diagonal (1 + 1/m) C_ii.
    void start(Track t, const Seen& seen) {
        clear(outer);
        if (seen.matrix) copy(observed, outer);
        for (std::int64_t r = 0; !seen.matrix && r < seen.samples; ++r) {
            for (int i = 0; i < d; ++i)
                x[i] = std::isnan(seen.x[r * d + i]) ? 0.0 : seen.x[r * d + i];
            add_outer(outer, x, 1.0 / seen.m);
        }
        for (int i = 0; i < d; ++i) y[i] = outer[i][i];
        add_channels(t, y, seen.m);
        if (t.head.count == 0.0) return;
        point(t);
        for (int k = 0; k < k_; ++k) {
            const Member& law = members[k];
            const double* deviation = t.of(law.deviation);
            double* to = law.kind == Kind::turning ? turned(t, law).pool() : t.of(law.body);
            for (int i = 0; to && i < d; ++i)
                for (int j = 0; j < i; ++j) {
                    const double units = deviation ? deviation[i] * deviation[j] : 1.0;
                    to[pair(i, j)] = t.has(i) && t.has(j) ? outer[i][j] / units : 0.0;
                }
        }
    }
