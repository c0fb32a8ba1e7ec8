// W tracks side by side: number k of all of them is vector k. A matrix is d x d such vectors.
#pragma once
#include "matrix.hpp"
#include <utility>

namespace {

template <int D>
struct Side {
    using number = vec;
    static constexpr int d = D;
    double* p;
    Side(double* p, int) : p(p) {}
    static constexpr int size() { return D * D * W; }
    double* at(int i, int j) const { return p + W * (i * D + j); }
    vec get(int i, int j) const { return load(at(i, j)); }
    void set(int i, int j, vec x) const { store(at(i, j), x); }
};

/// Rows i to i + Rows of C = share PLUS + A B, A given by its entries; all sums stay in registers.
template <int Rows, int D, class A>
void side_rows(int i, Side<D> c, A a, Side<D> b, Side<D> plus, double share) {
    vec acc[Rows][D];
    for (int r = 0; r < Rows; ++r)
        for (int j = 0; j < D; ++j) acc[r][j] = share == 0.0 ? vec{} : share * plus.get(i + r, j);
    for (int k = 0; k < D; ++k) {
        vec left[Rows];
        for (int r = 0; r < Rows; ++r) left[r] = a(i + r, k);
        for (int j = 0; j < D; ++j) {
            const vec right = b.get(k, j);
            for (int r = 0; r < Rows; ++r) acc[r][j] = madd(left[r], right, acc[r][j]);
        }
    }
    for (int r = 0; r < Rows; ++r)
        for (int j = 0; j < D; ++j) c.set(i + r, j, acc[r][j]);
}

template <int D, class A>
void side_product(Side<D> c, A a, Side<D> b, Side<D> plus, double share) {
    constexpr int ROWS = W == 8 ? 2 : 1;  // as many sums as there are registers
    int i = 0;
    for (; i + ROWS <= D; i += ROWS) side_rows<ROWS>(i, c, a, b, plus, share);
    for (; i < D; ++i) side_rows<1>(i, c, a, b, plus, share);
}

template <int D>
void multiply(Side<D> c, Side<D> a, Side<D> b) {
    side_product(c, [&](int i, int k) { return a.get(i, k); }, b, b, 0.0);
}
template <int D>
void multiply_add(Side<D> c, Side<D> a, Side<D> b, Side<D> plus, double share = 1.0) {
    side_product(c, [&](int i, int k) { return a.get(i, k); }, b, plus, share);
}
template <int D>
void multiply_transposed(Side<D> c, Side<D> a, Side<D> b) {
    side_product(c, [&](int i, int k) { return a.get(k, i); }, b, b, 0.0);
}

template <int D>
void scale(Side<D> a, double share) {
    for (int p = 0; p < a.size(); p += W) store(a.p + p, share * load(a.p + p));
}
template <int D>
void copy(Side<D> a, Side<D> b) {
    copy(a.p, b.p, a.size());
}
template <int D>
void copy_where(mask here, Side<D> from, Side<D> to) {
    for (int p = 0; p < to.size(); p += W)
        store(to.p + p, choose(here, load(from.p + p), load(to.p + p)));
}

// ---------------------------------------------------------------------------------- sums

/// A sum over a list of n numbers, in the order of `dot`, whether its numbers or tracks of them lie
/// side by side: both give the same bits.
struct SideSum {
    int whole;  // numbers that fill vectors
    vec parts[W] = {}, rest = {};
    explicit SideSum(int n) : whole(n / W * W) {}
    void add(int p, vec a, vec b) {
        vec& to = p < whole ? parts[p % W] : rest;
        to = madd(a, b, to);
    }
    vec total() const {
        vec s = parts[0];
        for (int l = 1; l < W; ++l) s += parts[l];
        return s + rest;
    }
};

template <>
inline vec squares<vec>(const double* x, int n) {
    SideSum sum(n);
    for (int p = 0; p < n; ++p, x += W) sum.add(p, load(x), load(x));
    return sum.total();
}

// ---------------------------------------------------------------------------------- transposing

template <int H, bool Second, std::size_t... L>
vec mixed(vec a, vec b, std::index_sequence<L...>) {
    if constexpr (Second)
        return __builtin_shufflevector(a, b, (L & H ? W + L : L + H)...);
    else
        return __builtin_shufflevector(a, b, (L & H ? W + L - H : L)...);
}

/// A W x W block: lane l of vector k becomes lane k of vector l; in registers, so always inline.
template <int H = 1>
__attribute__((always_inline)) inline void transpose(vec* v) {
    if constexpr (H < W) {
        for (int k = 0; k < W; ++k)
            if (!(k & H)) {
                const vec a = v[k], b = v[k + H];
                v[k] = mixed<H, false>(a, b, std::make_index_sequence<W>());
                v[k + H] = mixed<H, true>(a, b, std::make_index_sequence<W>());
            }
        transpose<2 * H>(v);
    }
}

/// The first n >= W numbers of W rows, ``apart`` from each other, side by side.
inline void gather(const double* rows, std::int64_t apart, int n, double* to) {
    for (int k = 0; k < n; k += W) {
        if (k + W > n) k = n - W;
        vec v[W];
        for (int r = 0; r < W; ++r) v[r] = load(rows + r * apart + k);
        transpose(v);
        for (int c = 0; c < W; ++c) store(to + W * (k + c), v[c]);
    }
}

/// The inverse.
inline void scatter(const double* from, int n, double* rows, std::int64_t apart) {
    for (int k = 0; k < n; k += W) {
        if (k + W > n) k = n - W;
        vec v[W];
        for (int c = 0; c < W; ++c) v[c] = load(from + W * (k + c));
        transpose(v);
        for (int r = 0; r < W; ++r) store(rows + r * apart + k, v[r]);
    }
}

}  // namespace
