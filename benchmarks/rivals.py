"""Rivals, each at its best documented use. One that is not there says why."""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.measure import Contender

GAIN = 0.1


def attempt(name: str, build: Callable[[], Contender], absent: dict[str, str]) -> list[Contender]:
    """The contender, tried once; or nothing, with the reason noted in ``absent``."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            contender = build()
            contender.run()
    except Exception as error:  # a rival may fail in any way; the benchmark goes on
        absent[name] = f"{type(error).__name__}: {error}"[:200]
        return []
    contender.name = name
    return [contender]


def version(package: str) -> str:
    """The installed version, or "absent"."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "absent"


# ----------------------------------------------------------------------- one covariance at a time


def pyriemann_step(frames: Any, backend: str = "numpy") -> Contender:
    """Geodesic exponential moving average, one frame at a time."""
    from pyriemann.geometry.geodesic import geodesic_riemann

    frames = list(_as(backend, frames))

    def run() -> None:
        mean = frames[0]
        for frame in frames[1:]:
            mean = geodesic_riemann(mean, frame, GAIN)

    return Contender("", run, units=len(frames) - 1)


def numpy_ema(frames: Any) -> Contender:
    """Entrywise moving average, in place."""
    frames = list(frames)

    def run() -> None:
        mean = frames[0].copy()
        for frame in frames[1:]:
            mean += GAIN * (frame - mean)

    return Contender("", run, units=len(frames) - 1)


def _vech_model(d: int) -> tuple[Any, Any, Any, Any, Any]:
    p = d * (d + 1) // 2
    eye, zero = np.eye(p), np.zeros((p, p))
    F = np.block([[eye, eye], [zero, eye]])
    H = np.block([[eye, zero]])
    Q = np.block([[eye / 3, eye / 2], [eye / 2, eye]]) * 1e-4
    return F, H, Q, eye, np.tril_indices(d)


def filterpy_step(frames: Any) -> Contender:
    """Constant-velocity Kalman filter on the entries of the covariance."""
    from filterpy.kalman import KalmanFilter

    F, H, Q, R, low = _vech_model(frames.shape[-1])
    vectors = [np.ascontiguousarray(frame[low]) for frame in frames]
    kalman = KalmanFilter(dim_x=F.shape[0], dim_z=H.shape[0])
    kalman.F, kalman.H, kalman.Q, kalman.R = F, H, Q, R

    def run() -> None:
        for vector in vectors:
            kalman.predict()
            kalman.update(vector)

    return Contender("", run, units=len(vectors))


def simdkalman_sequence(frames: Any) -> Contender:
    """The same filter over a whole sequence in one call."""
    import simdkalman

    F, H, Q, R, low = _vech_model(frames.shape[-1])
    kalman = simdkalman.KalmanFilter(F, Q, H, R)
    vectors = frames[:, low[0], low[1]][None]

    def run() -> None:
        kalman.compute(vectors, 0, filtered=True, smoothed=False)

    return Contender("", run, units=frames.shape[0])


def skfolio_step(samples: Any) -> Contender:
    """Exponentially weighted covariance, one sample at a time."""
    from skfolio.moments import EWCovariance

    model = EWCovariance(half_life=16, nearest=False)
    model.partial_fit(samples[:50])
    rows = [row[None] for row in samples[:40]]

    def run() -> None:
        for row in rows:
            model.partial_fit(row)

    return Contender("", run, units=len(rows))


def precise_step(samples: Any) -> Contender:
    """Exponentially weighted covariance, one sample at a time."""
    from precise import EwaCovariance

    model = EwaCovariance(r=0.05)
    rows = list(samples[:100])

    def run() -> None:
        for row in rows:
            model.partial_fit(row)

    return Contender("", run, units=len(rows))


def cvxcovariance_sequence(samples: Any) -> Contender:
    """CM-IEWMA: combined iterated moving averages, over a whole sequence."""
    import pandas as pd
    from cvx.covariance.combination import from_ewmas

    table = pd.DataFrame(samples[:80])
    combination = from_ewmas(table, [(10, 21), (21, 63)], min_periods_vola=10, min_periods_cov=10)

    def run() -> None:
        list(combination.solve(window=10))

    return Contender("", run, units=len(table) - 20)


# ----------------------------------------------------------------------- many at once


def pyriemann_many(matrices: Any, backend: str = "numpy") -> Contender:
    """The geodesic step for a whole batch in one call."""
    from pyriemann.geometry.geodesic import geodesic_riemann

    mean, seen = _as(backend, matrices[::-1].copy()), _as(backend, matrices)
    return Contender("", lambda: geodesic_riemann(mean, seen, GAIN), units=len(matrices))


def numpy_ema_many(matrices: Any) -> Contender:
    """Entrywise moving average of a whole batch, in place."""
    mean = matrices.copy()

    def run() -> None:
        mean.__imul__(1.0 - GAIN).__iadd__(GAIN * matrices)

    return Contender("", run, units=len(matrices))


def simdkalman_many(matrices: Any) -> Contender:
    """One predict-update of the constant-velocity filter for many tracks at once."""
    import simdkalman

    F, H, Q, R, low = _vech_model(matrices.shape[-1])
    kalman = simdkalman.KalmanFilter(F, Q, H, R)
    vectors = matrices[:, low[0], low[1]]
    mean = np.zeros((len(matrices), F.shape[0], 1))
    spread = np.tile(np.eye(F.shape[0]), (len(matrices), 1, 1))

    def run() -> None:
        predicted = kalman.predict_next(mean, spread)
        kalman.update(*predicted, vectors[:, :, None])

    return Contender("", run, units=len(matrices))


# ----------------------------------------------------------------------- rotations


def scipy_rotations(rotations: Any) -> Contender:
    """R <- R exp(v); e = log(R^T Z); R <- R exp(a e); v += b e, in batches."""
    from scipy.spatial.transform import Rotation

    seen = Rotation.from_matrix(rotations)
    state = [Rotation.identity(len(rotations)), np.zeros((len(rotations), 3))]

    def run() -> None:
        frame, velocity = state
        frame = frame * Rotation.from_rotvec(velocity)
        error = (frame.inv() * seen).as_rotvec()
        state[:] = frame * Rotation.from_rotvec(0.1 * error), velocity + 0.005 * error

    return Contender("", run, units=len(rotations))


def jaxlie_rotations(rotations: Any) -> Contender:
    """The same, compiled by JAX for the whole batch, in double precision."""
    import jax

    jax.config.update("jax_enable_x64", True)
    import jax.numpy as jnp
    import jaxlie

    seen = jaxlie.SO3.from_matrix(jnp.asarray(rotations))

    @jax.jit
    def step(frame: Any, velocity: Any, seen: Any) -> Any:
        frame = frame @ jaxlie.SO3.exp(velocity)
        error = (frame.inverse() @ seen).log()
        return frame @ jaxlie.SO3.exp(0.1 * error), velocity + 0.005 * error

    n = len(rotations)
    state = [jaxlie.SO3.identity((n,)), jnp.zeros((n, 3))]

    def run() -> None:
        state[:] = step(*state, seen)
        state[1].block_until_ready()

    return Contender("", run, units=n)


def gtsam_rotations(rotations: Any) -> Contender:
    """The same with GTSAM's Rot3, one after the other (it has no batches)."""
    import gtsam

    seen = [gtsam.Rot3(R) for R in rotations[:300]]
    state: list[Any] = [gtsam.Rot3(), np.zeros(3)]

    def run() -> None:
        frame, velocity = state
        for rotation in seen:
            frame = frame.compose(gtsam.Rot3.Expmap(velocity))
            error = gtsam.Rot3.Logmap(frame.between(rotation))
            frame = frame.compose(gtsam.Rot3.Expmap(0.1 * error))
            velocity = velocity + 0.005 * error
        state[:] = frame, 0.0 * velocity

    return Contender("", run, units=len(seen))


def _as(backend: str, array: Any) -> Any:
    if backend == "torch":
        import torch

        torch.set_num_threads(1)
        return torch.from_numpy(array)
    return array
