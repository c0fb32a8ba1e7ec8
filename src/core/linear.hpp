// A few long rows at a time, and decompositions of the small matrices between them.
#pragma once
#include "matrix.hpp"
#include <algorithm>

namespace {

/// A view of n rows of s numbers, s a multiple of eight.
struct Rows {
    double* p;
    int n, s;
    double* operator[](int i) const { return p + std::int64_t(i) * s; }
};

// ---------------------------------------------------------------------------------- rows

/// The sums over k < depth of a(i, k) B_k of Count rows from i, Columns vectors from j: to put.
template <int Count, int Columns, class A, class F>
void combine_tile(int i, int j, A&& a, int depth, Rows b, F&& put) {
    vec acc[Count][Columns] = {};
    for (int k = 0; k < depth; ++k) {
        vec right[Columns];
        for (int c = 0; c < Columns; ++c) right[c] = load(b[k] + j + c * W);
        for (int r = 0; r < Count; ++r)
            for (int c = 0; c < Columns; ++c) acc[r][c] += a(i + r, k) * right[c];
    }
    for (int r = 0; r < Count; ++r)
        for (int c = 0; c < Columns; ++c) put(i + r, j + c * W, acc[r][c]);
}

template <int Columns, class A, class D, class F>
void combine_strip(int n, int j, A&& a, D&& depth, Rows b, F&& put) {
    int i = 0;
    for (; i + 4 <= n; i += 4) combine_tile<4, Columns>(i, j, a, depth(i + 4), b, put);
    if (i + 2 <= n) combine_tile<2, Columns>(i, j, a, depth(i + 2), b, put), i += 2;
    if (i < n) combine_tile<1, Columns>(i, j, a, depth(n), b, put);
}

/// put(i, j, vector at j) of row i < n of A B; depth(end): columns of A that rows before end need.
template <class A, class D, class F>
void combine(int n, A&& a, D&& depth, Rows b, F&& put) {
    for (int j = 0; j < b.s;) {
        const int left = (b.s - j) / W;
        if (left >= 3 && left != 4)
            combine_strip<3>(n, j, a, depth, b, put), j += 3 * W;
        else if (left >= 2)
            combine_strip<2>(n, j, a, depth, b, put), j += 2 * W;
        else
            combine_strip<1>(n, j, a, depth, b, put), j += W;
    }
}

/// sums_j += sum_i ((A B)_ij)^2 for n rows of A; depth as for `combine`.
template <class A, class D>
void add_squares(int n, A&& a, D&& depth, Rows b, double* sums) {
    combine(n, a, depth, b, [&](int, int j, vec v) { store(sums + j, load(sums + j) + v * v); });
}

/// G_ij = A_i B_j^T of the rows i of A and j of B; with ``lower`` only for j <= i.
inline void gram(Rows a, Rows b, Matrix<0> g, bool lower) {
    constexpr int STRIP = 256;  // numbers of a row that stay in the cache
    for (int i = 0; i < a.n; ++i) fill(g[i], b.n, 0.0);
    const auto tile = [&]<int M, int N>(int i, int j, int begin, int end) {
        vec acc[M][N] = {};
        for (int p = begin; p < end; p += W) {
            vec right[N];
            for (int c = 0; c < N; ++c) right[c] = load(b[j + c] + p);
            for (int r = 0; r < M; ++r) {
                const vec left = load(a[i + r] + p);
                for (int c = 0; c < N; ++c) acc[r][c] += left * right[c];
            }
        }
        for (int r = 0; r < M; ++r)
            for (int c = 0; c < N; ++c) g[i + r][j + c] += sum(acc[r][c]);
    };
    for (int begin = 0; begin < a.s; begin += STRIP) {
        const int end = std::min(a.s, begin + STRIP);
        int i = 0;
        for (; i + 4 <= a.n; i += 4) {
            const int most = lower ? std::min(b.n, i + 4) : b.n;
            int j = 0;
            for (; j + 4 <= most; j += 4) tile.template operator()<4, 4>(i, j, begin, end);
            for (; j < most; ++j) tile.template operator()<4, 1>(i, j, begin, end);
        }
        for (; i < a.n; ++i) {
            const int most = lower ? i + 1 : b.n;
            int j = 0;
            for (; j + 4 <= most; j += 4) tile.template operator()<1, 4>(i, j, begin, end);
            for (; j < most; ++j) tile.template operator()<1, 1>(i, j, begin, end);
        }
    }
}

/// y_i = A_i x.
inline void apply(Rows a, const double* x, double* y) {
    int i = 0;
    for (; i + 4 <= a.n; i += 4) {
        vec acc[4] = {};
        for (int p = 0; p < a.s; p += W) {
            const vec right = load(x + p);
            for (int r = 0; r < 4; ++r) acc[r] += load(a[i + r] + p) * right;
        }
        for (int r = 0; r < 4; ++r) y[i + r] = sum(acc[r]);
    }
    for (; i < a.n; ++i) y[i] = dot(a[i], x, a.s);
}

/// y = sum_i x_i A_i.
inline void along(const double* x, Rows a, double* y) {
    combine(1, [&](int, int k) { return x[k]; }, [&](int) { return a.n; }, a,
            [&](int, int j, vec v) { store(y + j, v); });
}

/// A_i += x_i y.
inline void add_outer(Rows a, const double* x, const double* y) {
    for (int i = 0; i < a.n; ++i)
        for (int p = 0; p < a.s; p += W) store(a[i] + p, load(a[i] + p) + x[i] * load(y + p));
}

/// B_i = A_i o x.
inline void times(Rows a, const double* x, Rows b) {
    for (int i = 0; i < a.n; ++i)
        for (int p = 0; p < a.s; p += W) store(b[i] + p, load(a[i] + p) * load(x + p));
}

inline vec larger(vec a, vec b) { return choose(a > b, a, b); }

// ---------------------------------------------------------------------------------- triangles

/// The upper half of a symmetric matrix from its lower.
inline void mirror(Matrix<0> a) {
    for (int i = 0; i < a.d; ++i)
        for (int j = 0; j < i; ++j) a[j][i] = a[i][j];
}

/// A = L L^T in place, zeros above; returns log |A|. column: room for a row and as much again.
inline double cholesky(Matrix<0> a, double* column) {
    const int n = a.d, s = a.stride();
    double logs = 0.0, *least = column + s;
    for (int j = 0; j < n; ++j) least[j] = std::max(1e-14 * a[j][j], 1e-300);
    for (int j = 0; j < n; ++j) {
        const double pivot = std::sqrt(std::max(a[j][j], least[j]));  // rounding may leave nothing
        const double inverse = 1.0 / pivot;
        logs += std::log(pivot);
        for (int i = 0; i < j; ++i) column[i] = 0.0;
        for (int i = j; i < n; ++i) column[i] = a[i][j] * inverse;
        for (int i = n; i < s; ++i) column[i] = 0.0;
        for (int i = j + 1; i < n; ++i) {
            for (int k = (j + 1) / W * W; k <= i; k += W)
                store(a[i] + k, load(a[i] + k) - column[i] * load(column + k));
            a[i][j] = column[i];
        }
        a[j][j] = pivot;
    }
    for (int i = 0; i < n; ++i) fill(a[i] + i + 1, s - i - 1, 0.0);
    return 2.0 * logs;
}

/// B = L^-1 of a lower L.
inline void invert_lower(Matrix<0> a, Matrix<0> b) {
    for (int i = 0; i < a.d; ++i) {
        const double inverse = 1.0 / a[i][i];
        for (int j = 0; j < a.stride(); j += W) {
            vec acc{};
            for (int k = j; k < i; ++k) acc += a[i][k] * load(b[k] + j);
            store(b[i] + j, -inverse * acc);
        }
        b[i][i] = inverse;
    }
}

/// L y = x and then L^T x = y, in place.
inline void solve_lower(Matrix<0> a, double* x) {
    for (int i = 0; i < a.d; ++i) {
        for (int k = 0; k < i; ++k) x[i] -= a[i][k] * x[k];
        x[i] /= a[i][i];
    }
}
inline void solve_upper(Matrix<0> a, double* x) {
    for (int i = a.d - 1; i >= 0; --i) {
        x[i] /= a[i][i];
        for (int k = 0; k < i; ++k) x[k] -= a[i][k] * x[i];
    }
}

// ---------------------------------------------------------------------------------- eigen

/// (x, y) <- (c x + s y, c y - s x).
inline void rotate(double* x, double* y, double c, double s, int n) {
    for (int p = 0; p < n; p += W) {
        const vec u = load(x + p), v = load(y + p);
        store(x + p, c * u + s * v);
        store(y + p, c * v - s * u);
    }
}

/// A = V^T diag(values) V of a positive A, values descending, the first ``wanted`` rows of V there.
/// A keeps reflections; work: four padded rows.
///
/// Householder reflections make A tridiagonal, T; shifted QR steps make T diagonal; the reflections
/// take the eigenvectors of T back.
inline void eigen(Matrix<0> a, Matrix<0> v, double* values, int wanted, double* work) {
    const int n = a.d, s = a.stride();
    double *off = work, *beta = off + s, *x = beta + s, *y = x + s, scale = 0.0;
    for (int i = 0; i < n; ++i) scale = std::max(scale, std::fabs(a[i][i]));
    for (int k = 0; k < n; ++k) {  // H = I - beta x x^T takes column k below the diagonal to one
        fill(x, s, 0.0);           // number
        for (int i = k + 1; i < n; ++i) x[i] = a[i][k];
        values[k] = a[k][k], off[k] = k + 1 < n ? x[k + 1] : 0.0, beta[k] = 0.0;
        if (k + 2 >= n) continue;
        const double length = std::sqrt(dot(x, x, s));
        if (!(length > 1e-20 * scale)) {  // rounding, of which no reflection can be made
            off[k] = 0.0;
            continue;
        }
        const double head = off[k];
        off[k] = head > 0.0 ? -length : length;
        x[k + 1] -= off[k];
        beta[k] = 1.0 / (length * (length + std::fabs(head)));
        fill(y, s, 0.0);
        for (int i = k + 1; i < n; ++i) y[i] = beta[k] * dot(a[i], x, s);
        const double half = 0.5 * beta[k] * dot(y, x, s);
        for (int p = 0; p < s; p += W) store(y + p, load(y + p) - half * load(x + p));
        for (int i = k + 1; i < n; ++i)
            for (int p = k / W * W; p < s; p += W)
                store(a[i] + p, load(a[i] + p) - x[i] * load(y + p) - y[i] * load(x + p));
        copy(x, a[k], s);
    }
    clear(v);
    for (int i = 0; i < n; ++i) v[i][i] = 1.0;
    const auto small = [&](int k) {
        const double around = std::fabs(values[k]) + std::fabs(values[k + 1]);
        return std::fabs(off[k]) <= 1e-16 * around + 1e-30 * scale;
    };
    for (int high = n - 1, left = 60 * n; high > 0 && left > 0;) {
        int low = high;
        while (low > 0 && !small(low - 1)) --low;
        if (low == high) {
            --high;
            continue;
        }
        --left;
        // The eigenvalue of the last two rows that is nearer to the last number.
        const double e = off[high - 1], gap = 0.5 * (values[high - 1] - values[high]);
        const double shift =
            values[high] - e * e / (gap + std::copysign(std::sqrt(gap * gap + e * e), gap));
        double first = values[low] - shift, second = off[low];
        for (int k = low; k < high; ++k) {
            const double length = std::sqrt(first * first + second * second);
            const double c = length > 0.0 ? first / length : 1.0;
            const double sn = length > 0.0 ? second / length : 0.0;
            if (k > low) off[k - 1] = length;
            const double p = values[k], q = values[k + 1], cross = off[k];
            values[k] = c * c * p + 2.0 * c * sn * cross + sn * sn * q;
            values[k + 1] = sn * sn * p - 2.0 * c * sn * cross + c * c * q;
            off[k] = c * sn * (q - p) + (c * c - sn * sn) * cross;
            if (k + 1 < high) first = off[k], second = sn * off[k + 1], off[k + 1] *= c;
            rotate(v[k], v[k + 1], c, sn, s);
        }
    }
    for (int i = 0; i < wanted; ++i) {
        const int best = static_cast<int>(std::max_element(values + i, values + n) - values);
        if (best != i) {
            std::swap(values[i], values[best]);
            std::swap_ranges(v[i], v[i] + s, v[best]);
        }
        for (int k = n - 3; k >= 0; --k) {
            if (beta[k] == 0.0) continue;
            const double share = beta[k] * dot(a[k], v[i], s);
            for (int p = 0; p < s; p += W)
                store(v[i] + p, load(v[i] + p) - share * load(a[k] + p));
        }
    }
}

}  // namespace
