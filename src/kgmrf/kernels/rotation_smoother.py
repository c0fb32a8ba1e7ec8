"""The compiled Gauss-Newton smoother on SO(3): forward and backward about a nominal track.

The chain is linearised about a nominal trajectory; the linear problem is solved by a Kalman pass
and the backward pass of Rauch, Tung and Striebel in its adjoint form (Bryson and Frazier), which
inverts only 3 x 3 innovation covariances: a constant velocity (no process noise) and models with
fewer states need no special case. Repeated, this is Gauss-Newton: its fixed point is the MAP.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf.kernels.compile import compiled, jit
from kgmrf.kernels.rotation3 import (
    exp3,
    polish3,
    relative_log3,
    right_jacobian3,
    turn3,
)
from kgmrf.kernels.rotation_chain import (
    add_process_noise,
    advance,
    carry,
    conjugate,
    correct_member,
    drift_member,
    start_members,
    substeps,
)


@jit
def _sandwich(n: int, f: Any, p: Any, half: Any, out: Any, transposed: bool) -> None:
    """out = f p f^T, or f^T p f when transposed."""
    for i in range(n):
        for j in range(n):
            s = 0.0
            for k in range(n):
                s += (f[k, i] if transposed else f[i, k]) * p[k, j]
            half[i, j] = s
    for i in range(n):
        for j in range(i, n):
            s = 0.0
            for k in range(n):
                s += half[i, k] * (f[k, j] if transposed else f[j, k])
            out[i, j] = s
            out[j, i] = s


@jit
def _transition(
    n: int,
    frame: Any,
    motion: Any,
    law: Any,
    dt: float,
    f: Any,
    q: Any,
    work: Any,
) -> None:
    """Move (frame, motion) by dt; f = its Jacobian, q = the noise collected, over all substeps."""
    f[:] = 0.0
    q[:] = 0.0
    for i in range(12):
        f[i, i] = 1.0
    if dt <= 0.0:
        return
    n_sub = substeps(dt)
    h = dt / n_sub
    for _ in range(n_sub):
        advance(frame, motion, law, h, work)
        carry(n, work, f, work[5])
        for i in range(n):
            for j in range(n):
                f[i, j] = work[5, i, j]
        conjugate(n, work, q, work[5], work[3])
        add_process_noise(n, law, h, q)


@jit
def _inverse3(a: Any, out: Any) -> None:
    """out = a^-1 by cofactors."""
    c00 = a[1, 1] * a[2, 2] - a[1, 2] * a[2, 1]
    c01 = a[1, 2] * a[2, 0] - a[1, 0] * a[2, 2]
    c02 = a[1, 0] * a[2, 1] - a[1, 1] * a[2, 0]
    d = 1.0 / (a[0, 0] * c00 + a[0, 1] * c01 + a[0, 2] * c02)
    out[0, 0] = c00 * d
    out[1, 0] = c01 * d
    out[2, 0] = c02 * d
    out[0, 1] = (a[0, 2] * a[2, 1] - a[0, 1] * a[2, 2]) * d
    out[1, 1] = (a[0, 0] * a[2, 2] - a[0, 2] * a[2, 0]) * d
    out[2, 1] = (a[0, 1] * a[2, 0] - a[0, 0] * a[2, 1]) * d
    out[0, 2] = (a[0, 1] * a[1, 2] - a[0, 2] * a[1, 1]) * d
    out[1, 2] = (a[0, 2] * a[1, 0] - a[0, 0] * a[1, 2]) * d
    out[2, 2] = (a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0]) * d


@jit
def _on_angles(n: int, t: Any, p: Any, half: Any) -> None:
    """p <- T p T^T with T = t on the angle block, identity elsewhere."""
    for i in range(n):
        for j in range(n):
            half[i, j] = p[i, j]
    for k in range(n):
        for a in range(3):
            p[a, k] = t[a, 0] * half[0, k] + t[a, 1] * half[1, k] + t[a, 2] * half[2, k]
    for k in range(n):
        p0 = p[k, 0]
        p1 = p[k, 1]
        p2 = p[k, 2]
        for a in range(3):
            p[k, a] = t[a, 0] * p0 + t[a, 1] * p1 + t[a, 2] * p2


@compiled(
    "int64(int64, float64[:, :, ::1], float64[:, ::1], float64[:, ::1], float64[::1],"
    " float64[:, ::1], float64[:, :, ::1], boolean[::1], float64[::1], float64[::1], float64[::1],"
    " float64[:, ::1], int64, float64, float64[:, :, ::1])",
)
def smooth_window(
    n: int,
    frames: Any,
    motions: Any,
    prior_frame: Any,
    prior_motion: Any,
    prior_cov: Any,
    observations: Any,
    present: Any,
    noise_var: Any,
    dt: Any,
    law: Any,
    extra: Any,
    n_iterations: int,
    tolerance: float,
    covs: Any,
) -> int:
    """argmax p(R_0..R_T, motion | prior on state 0, observations 1..T); frames, motions in place.

    ``frames`` (T+1, 3, 3) and ``motions`` (T+1, 9) hold the nominal trajectory and receive the
    result; ``covs`` (T+1, 12, 12) receives its covariances. The prior speaks of state 0 with the
    observation there already counted. ``extra`` (T+1, 6) is added to the process noise of velocity
    and quadrature. Returns the number of passes made.
    """
    size = len(frames)
    work = np.zeros((6, 12, 12))
    fs = np.zeros((size, 12, 12))
    pred = np.zeros((size, 12, 12))
    post = np.zeros((size, 12, 12))
    means = np.zeros((size, 12))
    s_inv = np.zeros((size, 3, 3))
    innov = np.zeros((size, 3))
    f = np.zeros((12, 12))
    q = np.zeros((12, 12))
    half = np.zeros((12, 12))
    m = np.zeros(12)
    gap = np.zeros(3)
    jac = np.zeros((3, 3))
    turn = np.zeros((3, 3))
    frame = np.empty((3, 3))
    motion = np.empty(9)
    adj = np.zeros(12)
    adj_new = np.zeros(12)
    big = np.zeros((12, 12))
    big_new = np.zeros((12, 12))
    passes = 0
    for _ in range(n_iterations):
        passes += 1
        relative_log3(frames[0], prior_frame, gap)
        m[:] = 0.0
        m[:3] = gap
        for k in range(3, n):
            m[k] = prior_motion[k - 3] - motions[0, k - 3]
        # nominal Exp(d) = prior Exp(x), x ~ N(0, P)  =>  d = gap + Jr(-gap) x, to first order
        right_jacobian3(-gap[0], -gap[1], -gap[2], turn)
        for i in range(n):
            for j in range(n):
                post[0, i, j] = prior_cov[i, j]
        _on_angles(n, turn, post[0], half)
        means[0] = m
        for t in range(1, size):
            frame[:] = frames[t - 1]
            motion[:] = motions[t - 1]
            _transition(n, frame, motion, law, dt[t], f, q, work)
            for k in range(3, min(n, 9)):
                q[k, k] += extra[t, k - 3]
            # where the model goes from nominal t-1, seen from nominal t: s = Log(f(N)^T N_t)
            relative_log3(frame, frames[t], gap)
            exp3(-gap[0], -gap[1], -gap[2], turn)
            right_jacobian3(gap[0], gap[1], gap[2], jac)
            for k in range(n):
                p0 = f[0, k]
                p1 = f[1, k]
                p2 = f[2, k]
                for a in range(3):
                    f[a, k] = turn[a, 0] * p0 + turn[a, 1] * p1 + turn[a, 2] * p2
            fs[t] = f
            _on_angles(n, jac, q, half)
            _sandwich(n, f, post[t - 1], half, pred[t], False)
            for i in range(n):
                for j in range(n):
                    pred[t, i, j] += q[i, j]
            for i in range(n):
                s = 0.0
                for k in range(n):
                    s += f[i, k] * means[t - 1, k]
                m[i] = s + (-gap[i] if i < 3 else motion[i - 3] - motions[t, i - 3])
            means[t] = m
            post[t] = pred[t]
            if present[t]:
                relative_log3(frames[t], observations[t], gap)
                # d is observed as gap with noise Jl(gap) eps
                right_jacobian3(-gap[0], -gap[1], -gap[2], jac)
                for i in range(3):
                    innov[t, i] = gap[i] - m[i]
                    for j in range(3):
                        r = 0.0
                        for k in range(3):
                            r += jac[i, k] * jac[j, k]
                        turn[i, j] = pred[t, i, j] + noise_var[t] * r
                _inverse3(turn, s_inv[t])
                for i in range(n):
                    for j in range(3):
                        half[i, j] = (
                            pred[t, i, 0] * s_inv[t, 0, j]
                            + pred[t, i, 1] * s_inv[t, 1, j]
                            + pred[t, i, 2] * s_inv[t, 2, j]
                        )
                    means[t, i] += (
                        half[i, 0] * innov[t, 0]
                        + half[i, 1] * innov[t, 1]
                        + half[i, 2] * innov[t, 2]
                    )
                for i in range(n):
                    for j in range(n):
                        post[t, i, j] = pred[t, i, j] - (
                            half[i, 0] * pred[t, 0, j]
                            + half[i, 1] * pred[t, 1, j]
                            + half[i, 2] * pred[t, 2, j]
                        )
        # backward: adjoint of the state and its information, after (adj, big) each observation
        adj[:] = 0.0
        big[:] = 0.0
        change = 0.0
        for t in range(size - 1, -1, -1):
            # smoothed error and covariance from the filtered ones
            for i in range(n):
                s = means[t, i]
                for k in range(n):
                    s -= post[t, i, k] * adj[k]
                m[i] = s
            _sandwich(n, post[t], big, half, covs[t], False)
            for i in range(n):
                for j in range(n):
                    covs[t, i, j] = post[t, i, j] - covs[t, i, j]
            for i in range(3):
                change = max(change, abs(m[i]))
            exp3(m[0], m[1], m[2], turn)
            turn3(frames[t], turn, jac)
            polish3(frames[t], turn, jac)
            for k in range(3, n):
                motions[t, k - 3] += m[k]
            # covariance of the error counted from the new nominal
            right_jacobian3(m[0], m[1], m[2], jac)
            _on_angles(n, jac, covs[t], half)
            if t == 0:
                break
            if present[t]:
                # adj <- (I - K H)^T adj - H^T S^-1 innovation, and its information likewise
                for k in range(3):
                    y = 0.0
                    for j in range(n):
                        y += pred[t, k, j] * adj[j]
                    gap[k] = innov[t, k] + y
                for k in range(3):
                    adj[k] -= (
                        s_inv[t, k, 0] * gap[0] + s_inv[t, k, 1] * gap[1] + s_inv[t, k, 2] * gap[2]
                    )
                # C = I - K H with K = pred[:, :3] S^-1: only its first three columns differ from I
                for i in range(n):
                    for j in range(n):
                        f[i, j] = 1.0 if i == j else 0.0
                    for j in range(3):
                        f[i, j] -= (
                            pred[t, i, 0] * s_inv[t, 0, j]
                            + pred[t, i, 1] * s_inv[t, 1, j]
                            + pred[t, i, 2] * s_inv[t, 2, j]
                        )
                _sandwich(n, f, big, half, big_new, True)
                for i in range(n):
                    for j in range(n):
                        big[i, j] = big_new[i, j]
                for i in range(3):
                    for j in range(3):
                        big[i, j] += s_inv[t, i, j]
            for i in range(n):
                s = 0.0
                for k in range(n):
                    s += fs[t, k, i] * adj[k]
                adj_new[i] = s
            adj[:] = adj_new
            _sandwich(n, fs[t], big, half, big_new, True)
            for i in range(n):
                for j in range(n):
                    big[i, j] = big_new[i, j]
        if change < tolerance:
            break
    return passes


@compiled(
    "void(int64, float64[:, :, ::1], float64[:, ::1], float64[:, :, ::1], float64[:, :, ::1],"
    " boolean[::1], float64[::1], float64[::1], float64[::1], float64[:, ::1])",
)
def track_member(
    n: int,
    frames: Any,
    motions: Any,
    covs: Any,
    observations: Any,
    present: Any,
    noise_var: Any,
    dt: Any,
    law: Any,
    extra: Any,
) -> None:
    """Filtered trajectory of one member from its start at the first observation.

    ``extra`` receives the diffusion that the filter added to velocity and quadrature.
    """
    work = np.zeros((6, 12, 12))
    start_members(
        observations[0], noise_var[0], law.reshape((1, 12)), frames[:1], motions[:1], covs[:1]
    )
    for t in range(1, len(frames)):
        frames[t] = frames[t - 1]
        motions[t] = motions[t - 1]
        covs[t] = covs[t - 1]
        if dt[t] > 0.0:
            n_sub = substeps(dt[t])
            for _ in range(n_sub):
                drift_member(frames[t], motions[t], covs[t], n, law, dt[t] / n_sub, work)
                if n == 12:
                    for a in range(3):
                        extra[t, a] += work[4, 0, a]
                        extra[t, 3 + a] += work[4, 1, a]
        if present[t]:
            correct_member(
                frames[t], motions[t], covs[t], n, law, observations[t], noise_var[t], work
            )


@compiled(
    "void(int64, float64[:, :, ::1], float64[:, ::1], float64[:, :, ::1], float64[:, :, ::1],"
    " boolean[::1], float64[::1], float64[::1], float64[::1], float64[:, ::1], int64, int64,"
    " float64, float64[:, :, ::1], float64[:, ::1], float64[:, :, ::1])",
)
def smooth_lagged(
    n: int,
    frames: Any,
    motions: Any,
    covs: Any,
    observations: Any,
    present: Any,
    noise_var: Any,
    dt: Any,
    law: Any,
    extra: Any,
    lag: int,
    n_iterations: int,
    tolerance: float,
    out_frames: Any,
    out_motions: Any,
    out_covs: Any,
) -> None:
    """p(state t | observations up to t + lag): the filtered state is the prior of its window."""
    size = len(frames)
    for t in range(size):
        end = min(t + lag, size - 1) + 1
        fr = frames[t:end].copy()
        mo = motions[t:end].copy()
        co = np.zeros((end - t, 12, 12))
        smooth_window(
            n,
            fr,
            mo,
            frames[t],
            motions[t],
            covs[t],
            observations[t:end],
            present[t:end],
            noise_var[t:end],
            dt[t:end],
            law,
            extra[t:end],
            n_iterations,
            tolerance,
            co,
        )
        out_frames[t] = fr[0]
        out_motions[t] = mo[0]
        out_covs[t] = co[0]
