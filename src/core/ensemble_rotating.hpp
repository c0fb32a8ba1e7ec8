    // Part of Ensemble (ensemble.hpp): members whose eigenframe turns.

    /// Turning members pool u C, or correct their planes and eigenvalues by it.
    void learn_turning(Track t, double u, double m, bool single) {
        Head& h = t.head;
        const Member* first = members.get() + (k_ - plan.n_turning);
        const Member* end = members.get() + k_;
        if (!t.pooling()) {
            for (auto law = first; law < end; ++law)
                correct_turning(t, turned(t, *law), u, m, single);
            return;
        }
        h.pooled += 1.0;
        int channels = 0;
        for (int i = 0; i < d; ++i) channels += t.has(i);
        for (auto law = first; law < end; ++law) {
            double* pool = turned(t, *law).pool();
            for (int p = 0; p < n; ++p) pool[p] += (u * mean[p] + rest[p] - pool[p]) / h.pooled;
        }
        if (h.pooled * m < POOL_SAMPLES * channels) return;
        for (auto law = first; law < end; ++law)
            start_turning(t, turned(t, *law), *law, m, law == first);
        h.pooled = -1.0;
    }

    /// One Kalman step per plane, one random-walk step per log eigenvalue.
    void correct_turning(Track t, Turned own, double u, double m, bool single) {
        open(own.frame, frame);
        if (single) {  // Q^T (x/E) of the sample
            for (int i = 0; i < d; ++i) column[i] = x[i] / t.units[i];
            for (int j = 0; j < frame.stride(); j += W) {
                vec acc{};
                for (int i = 0; i < d; ++i) acc += column[i] * load(frame[i] + j);
                store(y + j, acc);
            }
            clear(body), add_outer(body, y, u);
        } else {
            Matrix<S> whole = turn.a, half = turn.b;
            for (int i = 0; i < d; ++i)
                for (int j = 0; j <= i; ++j)
                    whole[i][j] = whole[j][i] =
                        (u * mean[pair(i, j)] + rest[pair(i, j)]) / (t.units[i] * t.units[j]);
            multiply(half, whole, frame);
            multiply_transposed(body, frame, half);
        }
        for (int i = 0; i < d; ++i) lam[i] = own.lam[i], inverse_lam[i] = 1.0 / own.lam[i];
        const Planes planes{share, gap, weight};
        compare(planes, m);
        correct(own, plan.planes, planes);
        const double gain = own.lam_var / (own.lam_var + 2.0 / m);
        own.lam_var *= 1.0 - gain;
        for (int i = 0; i < d; ++i) own.lam[i] += gain * (body[i][i] - own.lam[i]);
        keep_above(t, own);
        turn_frame(frame, share, 1.0, turn);
        if (static_cast<std::int64_t>(t.head.count) % POLISH_EVERY == 0)
            polish(frame, turn.a, turn.b);
        close(frame, own.frame);
    }
    void compare(Planes to, double m) { ::compare(to, body, lam, inverse_lam, m); }

    /// lam_i >= phi^2 max(lam_max, L_i/E_i^2).
    void keep_above(Track t, Turned own) {
        double most = 0.0;
        for (int i = 0; i < d; ++i)
            most = std::max({most, own.lam[i], t.level[i] / (t.units[i] * t.units[i])});
        for (int i = 0; i < d; ++i) own.lam[i] = std::max(own.lam[i], FLOOR * FLOOR * most);
    }

    /// One eigendecomposition of the pooled covariance; the first member sets the units of all.
    void start_turning(Track t, Turned own, const Member& law, double m, bool first) {
        Matrix<S> a = turn.a, v = turn.b;
        const double count = t.head.pooled;
        scaled(own.pool(), total, count / (count + 1.0), 1.0, d);
        unpack(total, a);
        double low = HUGE_VAL, high = 0.0;
        for (int i = 0; i < d; ++i)
            if (t.has(i)) low = std::min(low, a[i][i]), high = std::max(high, a[i][i]);
        for (int i = 0; first && i < d; ++i)
            t.units[i] = t.has(i) && high > UNLIKE * low ? std::sqrt(a[i][i]) : 1.0;
        clear(v);
        for (int i = 0; i < d; ++i) {
            for (int j = 0; j < d; ++j) a[i][j] /= t.units[i] * t.units[j];
            v[i][i] = 1.0;
        }
        jacobi(a, v);
        const double sign = sort_rows(a, v);
        for (int i = 0; i < d; ++i) {
            own.lam[i] = a[i][i];
            for (int k = 0; k < d; ++k) own.frame[k * d + i] = (i == d - 1 ? sign : 1.0) * v[i][k];
        }
        fill(own.velocity, plan.planes, 0.0), fill(own.p11, plan.planes, ANGLE_VARIANCE_LIMIT);
        fill(own.p12, plan.planes, 0.0), fill(own.p22, plan.planes, law.law.rate_prior);
        own.lam_var = 2.0 / (count * m);
        keep_above(t, own);
    }
