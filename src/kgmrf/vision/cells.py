"""Cells of an image window as SPD matrices, and their divergence from a model at every shift.

A cell is a square of pixels. Its Gaussian is embedded as one SPD matrix, the mean of z z^T with
z = (1, x, y, f): x and y have zero mean and unit variance over the cell, so the leading 3 x 3 block
of an observed cell is the identity and its determinant is that of the features' covariance about
the best plane through them. What is stored per place are the other entries, d means, 2 d slopes and
d (d+1)/2 second moments, as planes (P, rows, columns): plane sums, products and factorisations then
run over whole rows at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kgmrf.kernels.compile import compiled

__all__ = ["cell_moments", "colour_and_gradient", "place_costs"]

Maps = NDArray[np.float32]
fast = compiled(fastmath=True)


@fast
def _moments(features, cell, tops, lefts, ridge):  # type: ignore[no-untyped-def]
    """Entries of mean(z z^T) of the cells whose upper left corners are ``tops`` x ``lefts``.

    ``features`` (d, H, W) float32; ``ridge`` is added to the second moments of the features.
    Returns (3 d + d(d+1)/2, tops, lefts): means, slopes along x, slopes along y, then second
    moments packed by rows of the lower triangle.
    """
    d, _, width = features.shape
    high, wide = len(tops), len(lefts)
    out = np.empty((3 * d + d * (d + 1) // 2, high, wide), np.float32)
    deviation = np.sqrt((cell * cell - 1) / 12.0)
    ramp = ((np.arange(cell) - (cell - 1) / 2) / deviation).astype(np.float32)
    inverse = np.float32(1.0 / (cell * cell))
    line = np.empty(width, np.float32)
    sloped = np.empty(width, np.float32)
    free = width - cell + 1
    sums = np.empty((3, free), np.float32)
    for i in range(high):
        top = tops[i]
        for a in range(d):
            line[:] = 0
            sloped[:] = 0
            for k in range(cell):
                source, g = features[a, top + k], ramp[k]
                for j in range(width):
                    line[j] += source[j]
                    sloped[j] += g * source[j]
            sums[:] = 0
            for k in range(cell):
                g = ramp[k]
                for j in range(free):
                    sums[0, j] += line[j + k]
                    sums[1, j] += g * line[j + k]
                    sums[2, j] += sloped[j + k]
            for r in range(3):
                target, source = out[r * d + a, i], sums[r]
                for j in range(wide):
                    target[j] = source[lefts[j]] * inverse
        p = 3 * d
        for a in range(d):
            for b in range(a + 1):
                line[:] = 0
                for k in range(cell):
                    u, v = features[a, top + k], features[b, top + k]
                    for j in range(width):
                        line[j] += u[j] * v[j]
                total = sums[0]
                total[:] = 0
                for k in range(cell):
                    for j in range(free):
                        total[j] += line[j + k]
                start = np.float32(ridge) if a == b else np.float32(0)
                target = out[p, i]
                for j in range(wide):
                    target[j] = total[lefts[j]] * inverse + start
                p += 1
    return out


@fast
def cell_moments(features, cell, stride, ridge):  # type: ignore[no-untyped-def]
    """Entries of mean(z z^T) of every cell at multiples of ``stride``, as `_moments` gives them."""
    _, height, width = features.shape
    tops = np.arange(0, height - cell + 1, stride)
    return _moments(features, cell, tops, np.arange(0, width - cell + 1, stride), ridge)


@fast
def _log(x, n):  # type: ignore[no-untyped-def]
    # log of positive float32 numbers in place, by exponent and atanh series: a library call here
    # would stop the loop from being vectorised (error below 5e-7)
    bits = x.view(np.int32)
    for i in range(n):
        v = bits[i]
        exponent = np.float32((v >> 23) - 127)
        bits[i] = (v & 0x7FFFFF) | 0x3F800000
        m = x[i]
        large = m > np.float32(1.4142135)
        m = m * np.float32(0.5) if large else m
        exponent = exponent + (np.float32(1) if large else np.float32(0))
        s = (m - np.float32(1)) / (m + np.float32(1))
        q = s * s
        series = np.float32(1 / 7) + q * np.float32(1 / 9)
        series = np.float32(1) + q * (np.float32(1 / 3) + q * (np.float32(0.2) + q * series))
        x[i] = np.float32(2) * s * series + exponent * np.float32(0.6931471805599453)


@fast
def _log_det(packed, d, n, product, out):  # type: ignore[no-untyped-def]
    # square-root-free Cholesky of n matrices side by side; ``packed`` (d(d+1)/2, n) is destroyed
    for j in range(n):
        out[j] = 0
    held = 0
    for k in range(d):
        pivot = packed[k * (k + 1) // 2 + k]
        if held == 0:
            for j in range(n):
                product[j] = pivot[j]
        else:
            for j in range(n):
                product[j] *= pivot[j]
        held += 1
        if held == 4 or k == d - 1:  # four pivots at most: more could overflow float32
            _log(product, n)
            for j in range(n):
                out[j] += product[j]
            held = 0
        if k < d - 1:
            for j in range(n):
                pivot[j] = np.float32(1) / pivot[j]
            # last row first: a row may be scaled in place once no later row needs it as it was
            for r in range(d - 1, k, -1):
                row, target = packed[r * (r + 1) // 2 + k], packed[r * (r + 1) // 2 + r]
                for j in range(n):
                    scaled = row[j] * pivot[j]
                    target[j] -= row[j] * scaled
                    row[j] = scaled
                for c in range(k + 1, r):
                    other, target = packed[c * (c + 1) // 2 + k], packed[r * (r + 1) // 2 + c]
                    for j in range(n):
                        target[j] -= row[j] * other[j]


@fast
def log_determinants(maps, d):  # type: ignore[no-untyped-def]
    """log det of every cell matrix of ``maps`` (P, h, w) with ``d`` features: (h, w) float32."""
    _, high, wide = maps.shape
    out = np.empty((high, wide), np.float32)
    packed = np.empty((d * (d + 1) // 2, wide), np.float32)
    product = np.empty(wide, np.float32)
    for i in range(high):
        q = 0
        for a in range(d):
            for b in range(a + 1):
                target, moment = packed[q], maps[3 * d + q, i]
                m0, n0 = maps[a, i], maps[b, i]
                m1, n1 = maps[d + a, i], maps[d + b, i]
                m2, n2 = maps[2 * d + a, i], maps[2 * d + b, i]
                for j in range(wide):
                    target[j] = moment[j] - m0[j] * n0[j] - m1[j] * n1[j] - m2[j] * n2[j]
                q += 1
        _log_det(packed, d, wide, product, out[i])
    return out


@fast
def cost_map(maps, log_dets, models, model_log_dets, weights, nx, ny, step, softness):  # type: ignore[no-untyped-def]
    """Sum over cells k of w_k phi(JBLD(C_k, M_k)), phi(t) = t / (1 + softness t), at every shift.

    ``maps``, ``log_dets`` from :func:`cell_moments`, :func:`log_determinants`; ``models`` (ny nx,
    d+3, d+3) float32 any SPD matrices with their log determinants; neighbouring cells are ``step``
    places apart. Returns (h - (ny-1) step, w - (nx-1) step) float32. One factorisation of (C + M)/2
    per place and cell: that of C is shared by all cells that land on it.
    """
    size = models.shape[1]
    d = size - 3
    _, high, wide = maps.shape
    nv, nu = high - (ny - 1) * step, wide - (nx - 1) * step
    out = np.zeros((nv, nu), np.float32)
    # lanes: whole rows of shifts, some 128 at a time, so that the work stays in the first cache
    rows = max(1, min(nv, 128 // nu))
    n = rows * nu
    packed = np.empty((d * (d + 1) // 2, n), np.float32)
    cross = np.empty((3 * d, n), np.float32)
    product = np.empty(n, np.float32)
    log_det = np.empty(n, np.float32)
    half, one = np.float32(0.5), np.float32(1)
    soft = np.float32(softness)
    for k in range(ny * nx):
        g = weights[k]
        if g == 0:
            continue
        ky, kx = k // nx, k % nx
        m = models[k]
        # Cholesky of the leading block (I + M)/2, the same for every shift
        l00 = np.float32(np.sqrt(half * (one + m[0, 0])))
        l10 = half * m[1, 0] / l00
        l20 = half * m[2, 0] / l00
        l11 = np.float32(np.sqrt(half * (one + m[1, 1]) - l10 * l10))
        l21 = (half * m[2, 1] - l20 * l10) / l11
        l22 = np.float32(np.sqrt(half * (one + m[2, 2]) - l20 * l20 - l21 * l21))
        constant = np.float32(2 * np.log(l00 * l11 * l22)) - half * model_log_dets[k]
        i0, i1, i2 = one / l00, one / l11, one / l22
        o = kx * step
        for v in range(0, nv, rows):
            count = min(rows, nv - v)
            n = count * nu
            for a in range(d):
                c0, c1, c2 = m[3 + a, 0], m[3 + a, 1], m[3 + a, 2]
                for r in range(count):
                    i = v + r + ky * step
                    s0, s1, s2 = maps[a, i], maps[d + a, i], maps[2 * d + a, i]
                    t0 = cross[a, r * nu : (r + 1) * nu]
                    t1 = cross[d + a, r * nu : (r + 1) * nu]
                    t2 = cross[2 * d + a, r * nu : (r + 1) * nu]
                    for j in range(nu):
                        x0 = half * (s0[j + o] + c0) * i0
                        x1 = (half * (s1[j + o] + c1) - l10 * x0) * i1
                        t0[j] = x0
                        t1[j] = x1
                        t2[j] = (half * (s2[j + o] + c2) - l20 * x0 - l21 * x1) * i2
            q = 0
            for a in range(d):
                for b in range(a + 1):
                    c0, target = m[3 + a, 3 + b], packed[q]
                    for r in range(count):
                        moment = maps[3 * d + q, v + r + ky * step]
                        part = target[r * nu : (r + 1) * nu]
                        for j in range(nu):
                            part[j] = half * (moment[j + o] + c0)
                    y0, y1, y2 = cross[a], cross[d + a], cross[2 * d + a]
                    z0, z1, z2 = cross[b], cross[d + b], cross[2 * d + b]
                    for j in range(n):
                        target[j] -= y0[j] * z0[j] + y1[j] * z1[j] + y2[j] * z2[j]
                    q += 1
            _log_det(packed, d, n, product, log_det)
            for r in range(count):
                observed, target = log_dets[v + r + ky * step], out[v + r]
                for j in range(nu):
                    t = log_det[r * nu + j] - half * observed[j + o] + constant
                    t = t if t > 0 else np.float32(0)
                    target[j] += g * t / (one + soft * t)
    return out


@fast
def place_costs(patch, cell, stride, ridge, models, model_log_dets, weights, nx, ny, softness):  # type: ignore[no-untyped-def]
    """:func:`cost_map` of standardised features (d, H, W), at every ``stride``-th shift.

    A stride above 1 must divide ``cell``; with 1 the window is the box and some samples around it.
    """
    d = patch.shape[0]
    if stride > 1:
        maps, step = cell_moments(patch, cell, stride, ridge), cell // stride
    else:
        # only where the cells of the box land: place k step + i is cell k shifted by i
        step = patch.shape[1] - ny * cell + 1
        i, j = np.arange(ny * step), np.arange(nx * step)
        tops, lefts = i // step * cell + i % step, j // step * cell + j % step
        maps = _moments(patch, cell, tops, lefts, ridge)
    log_dets = log_determinants(maps, d)
    return cost_map(maps, log_dets, models, model_log_dets, weights, nx, ny, step, softness)


@fast
def colour_and_gradient(planes, offset, gain):  # type: ignore[no-untyped-def]
    """(f - offset) gain of the features of planes (C, H, W), without the outermost samples.

    The features are the channels and the absolute central differences of their mean along x and y:
    (C+2, H-2, W-2).
    """
    channels, height, width = planes.shape
    out = np.empty((channels + 2, height - 2, width - 2), np.float32)
    half = np.float32(0.5 / channels)
    grey = planes[0].copy()
    for c in range(1, channels):
        grey += planes[c]
    o, g, p, q = offset[channels], gain[channels], offset[channels + 1], gain[channels + 1]
    for i in range(height - 2):
        for c in range(channels):
            source, target = planes[c, i + 1], out[c, i]
            for j in range(width - 2):
                target[j] = (source[j + 1] - offset[c]) * gain[c]
        above, middle, below = grey[i], grey[i + 1], grey[i + 2]
        along_x, along_y = out[channels, i], out[channels + 1, i]
        for j in range(width - 2):
            along_x[j] = (abs(half * (middle[j + 2] - middle[j])) - o) * g
            along_y[j] = (abs(half * (below[j + 1] - above[j + 1])) - p) * q
    return out
