// The way back through the comparison of an observation with its forecast (ensemble.hpp, compare).
// ``bar`` after a name means the derivative of a loss by it; that by a full symmetric matrix is
// symmetric.
#pragma once
#include "ensemble.hpp"
#include "top_adjoint.hpp"

namespace {

using namespace kgmrf;

/// A of derivatives by packed numbers.
template <int S>
void spread(const double* packed, Matrix<S> a) {
    for (int i = 0; i < a.d; ++i)
        for (int j = 0; j <= i; ++j, ++packed)
            a[i][j] = a[j][i] = i == j ? *packed : 0.5 * *packed;
}

/// Derivatives by packed numbers += share times those by the full matrix A.
template <int S>
void gather(Matrix<S> a, double* packed, double share) {
    for (int i = 0; i < a.d; ++i)
        for (int j = 0; j <= i; ++j)
            *packed++ += share * (i == j ? a[i][i] : a[i][j] + a[j][i]);
}

template <int S>
class CompareAdjoint {
    const int d;
    const std::size_t square = std::size_t(padded(d)) * padded(d);
    const std::size_t vector = std::size_t(padded(d)) + 8;
    Room full[7] = {Room(square), Room(square), Room(square), Room(square),
                    Room(square), Room(square), Room(square)};
    Matrix<S> matrix(int k) { return {full[k], d}; }
    Matrix<S> a = matrix(4), b = matrix(5), apart = matrix(6);
    Room x{vector}, filled{vector}, y{vector}, y_bar{vector}, pull{vector}, fill_bar{vector},
        guess{vector}, x_bar{vector};

  public:
    explicit CompareAdjoint(int d) : d(d) {}

    /// Derivatives by what `compare` found: mean, outer and precision, and by the sum over samples of
    /// the conditional covariances.
    Matrix<S> mean = matrix(0), outer = matrix(1), precision = matrix(2), rest = matrix(3);
    double distance = 0.0, log_det = 0.0;
    Along along;
    TopAdjoint<S> top{d};

    /// Back through `compare`: adds to derivatives by S and by the values (samples, d).
    template <class E>
    void back(E& f, Track t, const Seen& seen, double m, Matrix<S> total_bar, double* values_bar) {
        double complete = 0.0;
        bool same = false;
        for (std::int64_t r = 0; r < seen.samples; ++r) {
            const double* sample = seen.x + r * d;
            int known = 0, gone = 0;
            for (int i = 0; i < d; ++i) {
                const bool nan = std::isnan(sample[i]), here = t.has(i) && !nan;
                x[i] = here ? sample[i] : 0.0, f.hidden[i] = t.has(i) && nan;
                known += here, gone += f.hidden[i];
            }
            if (known == 0) continue;
            if (gone > 0) {
                for (int i = 0; i < d; ++i) f.there[i] = t.has(i) && !f.hidden[i];
                f.invert_forecast();
                f.mark_present(t), same = false;
            } else {
                if (!same) f.invert_forecast(), same = true;
                complete += 1.0;
            }
            apply(f.inverse, x, y);
            copy(x, filled, d);
            fill(x_bar, d, 0.0);
            double q_bar = distance;
            apply(outer, y, y_bar);
            for (int i = 0; i < d; ++i) y_bar[i] *= 2.0;
            if (gone > 0) {
                top.back_part(along, f.inverse, y, x_bar, total_bar);
                q_bar += back_fill(f, known, m, total_bar);
                back_precision(f.inverse, 1.0, total_bar);
            } else {
                top.back_sample(along, x, x_bar);
                apply(mean, filled, fill_bar);
                for (int i = 0; i < d; ++i) fill_bar[i] *= 2.0 / m;
            }
            apply(f.inverse, y_bar, pull);
            add_both(total_bar, pull, y, -1.0);
            add_both(total_bar, y, y, -q_bar);
            for (int i = 0; i < d; ++i)
                if (t.has(i) && !f.hidden[i])
                    values_bar[r * d + i] += x_bar[i] + pull[i] + 2.0 * q_bar * y[i] + fill_bar[i];
        }
        if (complete == 0.0) return;
        if (!same) f.invert_forecast();
        back_precision(f.inverse, complete, total_bar);
    }

    /// Back through `compare_matrix`.
    template <class E>
    void back_matrix(E& f, double m, Matrix<S> total_bar, double* values_bar) {
        top.back_matrix(along, f.mean_full, m, mean);
        back_precision(f.inverse, m, total_bar);
        multiply(a, f.inverse, outer);
        multiply(b, a, f.inverse);  // V = A O_bar A
        add(mean, b, m);
        add(mean, f.inverse, m * distance);
        multiply(a, b, f.mean_full);
        multiply(b, a, f.inverse);  // V C A
        multiply(a, f.inverse, f.mean_full);
        multiply(apart, a, f.inverse);
        for (int i = 0; i < d; ++i)
            for (int j = 0; j < d; ++j) {
                total_bar[i][j] -= m * (b[i][j] + b[j][i] + distance * apart[i][j]);
                if (f.there[i] && f.there[j]) values_bar[i * d + j] += 0.5 * (mean[i][j] + mean[j][i]);
            }
    }

  private:
    /// Back through log |S| and S^-1, each n times.
    void back_precision(Matrix<S> inverse, double n, Matrix<S> total_bar) {
        multiply(a, inverse, precision);
        multiply(b, a, inverse);
        add(total_bar, b, -n);
        add(total_bar, inverse, n * log_det);
    }

    /// Back through `fill_cells`: fill_bar becomes the derivative by the known values of the mean;
    /// adds to y_bar and those by S. Returns that by q.
    template <class E>
    double back_fill(E& f, int known, double m, Matrix<S> total_bar) {
        const Matrix<S> total = f.forecast;
        const double q = dot(x, y, d), far = q / (FILL_LIMIT * known);
        const double portion = 1.0 / std::sqrt(std::max(far, 1.0));
        apply(total, y, guess);
        double portion_bar = 0.0;
        for (int i = 0; i < d; ++i)
            if (f.hidden[i]) filled[i] = portion * guess[i];
        apply(mean, filled, fill_bar);
        for (int i = 0; i < d; ++i) {
            fill_bar[i] *= 2.0 / m;
            if (f.hidden[i]) portion_bar += fill_bar[i] * guess[i];
            guess[i] = f.hidden[i] ? portion * fill_bar[i] : 0.0;
        }
        add_both(total_bar, guess, y, 1.0);
        apply(total, guess, pull);
        for (int i = 0; i < d; ++i) y_bar[i] += pull[i];
        // Rest = E^T S E with E = I_H - S_oo^-1 S_oH.
        multiply(a, f.inverse, total);
        for (int i = 0; i < d; ++i)
            for (int j = 0; j < d; ++j) apart[i][j] = f.hidden[j] ? (i == j) - a[i][j] : 0.0;
        multiply(a, apart, rest);
        for (int i = 0; i < d; ++i)
            for (int j = 0; j < d; ++j) total_bar[i][j] += dot(a[i], apart[j], d);
        return far > 1.0 ? -0.5 * portion_bar * portion / q : 0.0;
    }
};

}  // namespace
