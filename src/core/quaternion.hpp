// Rotations as unit quaternions (w, x, y, z), one at a time or several side by side. A quaternion
// that has been normalised is a rotation, whatever was added to it: nothing drifts off the group.
#pragma once
#include "elementary.hpp"
#include "loops.hpp"

namespace {

using namespace kgmrf;

template <class V>
struct Vector3 {
    V x, y, z;
    V& operator[](int a) { return a == 0 ? x : a == 1 ? y : z; }
    V operator[](int a) const { return a == 0 ? x : a == 1 ? y : z; }
    V square() const { return x * x + y * y + z * z; }
};

template <class V>
Vector3<V> operator*(V f, Vector3<V> v) {
    return {f * v.x, f * v.y, f * v.z};
}

template <class V>
struct Quaternion {
    V w, x, y, z;

    Quaternion normalised() const {
        const V f = 1.0 / square_root<V>(w * w + x * x + y * y + z * z);
        return {f * w, f * x, f * y, f * z};
    }
    Quaternion inverse() const { return {w, -x, -y, -z}; }
};

template <class V>
Quaternion<V> operator*(Quaternion<V> p, Quaternion<V> q) {
    return {p.w * q.w - p.x * q.x - p.y * q.y - p.z * q.z,
            p.w * q.x + p.x * q.w + p.y * q.z - p.z * q.y,
            p.w * q.y - p.x * q.z + p.y * q.w + p.z * q.x,
            p.w * q.z + p.x * q.y - p.y * q.x + p.z * q.w};
}

/// Quaternions side by side, their numbers ``stride`` apart.
template <class V>
Quaternion<V> quaternion_at(const double* p, int stride) {
    return {load<V>(p), load<V>(p + stride), load<V>(p + 2 * stride), load<V>(p + 3 * stride)};
}
template <class V>
void put(double* p, int stride, Quaternion<V> q) {
    store(p, q.w), store(p + stride, q.x), store(p + 2 * stride, q.y), store(p + 3 * stride, q.z);
}
inline Quaternion<double> quaternion_at(const double* p) { return quaternion_at<double>(p, 1); }
inline void put(double* p, Quaternion<double> q) { put<double>(p, 1, q); }

template <class V>
Quaternion<V> same(Quaternion<double> q) {
    return {splat<V>(q.w), splat<V>(q.x), splat<V>(q.y), splat<V>(q.z)};
}

/// Q Exp(v), normalised.
template <class V>
Quaternion<V> turned(Quaternion<V> q, Vector3<V> v) {
    const V square = v.square();
    const mask_of<V> large = square > splat<V>(1e-6);
    const V t = square_root<V>(pick<V>(large, square, splat<V>(1.0)));
    const SinCos<V> half = sin_cos<V>(0.5 * t);
    const V f = pick<V>(large, half.sin / t, 0.5 - square / 48.0);
    const V c = pick<V>(large, half.cos, 1.0 - square / 8.0);
    return (q * Quaternion<V>{c, f * v.x, f * v.y, f * v.z}).normalised();
}

/// The rotation vector of a quaternion of any length, principal, and its angle.
template <class V>
struct Logarithm {
    Vector3<V> vector;
    V angle;
};

template <class V>
Logarithm<V> logarithm(Quaternion<V> q) {
    const V n = square_root<V>(q.x * q.x + q.y * q.y + q.z * q.z), w = magnitude(q.w);
    const V angle = 2.0 * angle_of<V>(n, w);
    const mask_of<V> there = n > splat<V>(1e-150);
    const V one = splat<V>(1.0);
    V f = pick<V>(there, angle / pick<V>(there, n, one), 2.0 / pick<V>(there, one, w));
    f = pick<V>(q.w < splat<V>(0.0), -f, f);
    return {f * Vector3<V>{q.x, q.y, q.z}, angle};
}

/// Log(P^T Q), principal.
template <class V>
Logarithm<V> between(Quaternion<V> p, Quaternion<V> q) {
    return logarithm(p.inverse() * q);
}

/// The matrix Exp(v) = I + s N + b N^2 and its right Jacobian I - b N + c N^2, N = hat(v).
template <class V>
struct Turning {
    V exp[3][3], jacobian[3][3];
};

template <class V>
Turning<V> turning(Vector3<V> v) {
    const V square = v.square();
    const mask_of<V> large = square > splat<V>(1e-5);
    const V safe = pick<V>(large, square, splat<V>(1.0)), t = square_root<V>(safe);
    const SinCos<V> whole = sin_cos<V>(t);
    const V s = pick<V>(large, whole.sin / t, 1.0 - square / 6.0);
    const V b = pick<V>(large, (1.0 - whole.cos) / safe, 0.5 - square / 24.0);
    const V c = pick<V>(large, (1.0 - s) / safe, 1.0 / 6.0 - square / 120.0);
    Turning<V> out;
    for (int i = 0; i < 3; ++i)
        for (int j = 0; j < 3; ++j) {
            V outer = v[i] * v[j], hat = splat<V>(0.0);
            if (i == j)
                outer = outer - square;
            else
                hat = j == (i + 1) % 3 ? -v[3 - i - j] : v[3 - i - j];
            const double one = i == j;
            out.exp[i][j] = one + s * hat + b * outer;
            out.jacobian[i][j] = one - b * hat + c * outer;
        }
    return out;
}

// ---------------------------------------------------------------------------------- matrices

/// The quaternion of a rotation matrix, rows one after the other. The largest of its numbers picks
/// the row of 4 q q^T, so that nothing cancels.
inline Quaternion<double> quaternion_of(const double* m) {
    const double trace = m[0] + m[4] + m[8];
    const double ww = 1 + trace, xx = 1 + 2 * m[0] - trace, yy = 1 + 2 * m[4] - trace,
                 zz = 1 + 2 * m[8] - trace;
    const double wx = m[7] - m[5], wy = m[2] - m[6], wz = m[3] - m[1];
    const double xy = m[1] + m[3], xz = m[2] + m[6], yz = m[5] + m[7];
    Quaternion<double> q{wz, xz, yz, zz};
    if (ww >= xx && ww >= yy && ww >= zz)
        q = {ww, wx, wy, wz};
    else if (xx >= yy && xx >= zz)
        q = {wx, xx, xy, xz};
    else if (yy >= zz)
        q = {wy, xy, yy, yz};
    return q.normalised();
}

/// missing if all of the D x D matrix is NaN, invalid if it is no rotation: R^T R further than the
/// tolerance from I, or a reflection. A negative tolerance trusts it.
template <int D>
Status inspect_rotation(const double* m, double tolerance) {
    bool missing = true;
    for (int k = 0; k < D * D; ++k) missing = missing && std::isnan(m[k]);
    if (missing) return Status::missing;
    if (tolerance < 0.0) return Status::observed;
    for (int i = 0; i < D; ++i)
        for (int j = 0; j <= i; ++j) {
            double dot = 0.0;
            for (int k = 0; k < D; ++k) dot += m[D * k + i] * m[D * k + j];
            if (!(std::fabs(dot - (i == j)) <= tolerance)) return Status::invalid;  // NaN too
        }
    double det = 0.0;
    if constexpr (D == 2) det = m[0] * m[3] - m[1] * m[2];
    for (int i = 0; D == 3 && i < 3; ++i) {
        const int j = (i + 1) % 3, k = (i + 2) % 3;
        det += m[i] * (m[3 + j] * m[6 + k] - m[3 + k] * m[6 + j]);
    }
    return det < 0.0 ? Status::invalid : Status::observed;
}

}  // namespace
