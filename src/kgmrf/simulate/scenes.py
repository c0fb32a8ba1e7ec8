"""Whole scenes: truth and observations from one random generator.

The truth is drawn before the observations: the same seed gives the same motion with any noise.
``frame[t+1] = frame[t] Exp(velocity[t])``: ``velocity[t]`` is what a tracker should estimate after
it has seen frame t.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.geometry import orbit, so
from kgmrf.model import wishart
from kgmrf.simulate import motion, observe


class CovarianceScene(NamedTuple):
    """A covariance that moves, and what was seen of it; time first.

    Parameters
    ----------
    times : array
        ``(T,)``, one per frame.
    covariance : array
        M ``(T, d, d)`` without the noise floor.
    frame : array
        Its eigenvectors ``(T, d, d)``, one per column.
    spectrum : array
        Its eigenvalues ``(T, d)``.
    velocity : array
        ``(T, d, d)`` in the body frame, radians per frame.
    observations : array
        ``(T, d, d)``; they scatter about M + noise_floor I, NaN where not seen.
    observed : array of bool
        ``(T,)``, where there is an observation.
    n_samples : int
        Samples behind each observation; None: no noise.
    noise_floor : float
        Variance of the measurement noise.
    """

    times: Numbers
    covariance: Numbers
    frame: Numbers
    spectrum: Numbers
    velocity: Numbers
    observations: Numbers
    observed: Mask
    n_samples: int | None
    noise_floor: float


class RotationScene(NamedTuple):
    """A rotation that moves, and what was seen of it; time first.

    Parameters
    ----------
    times : array
        ``(T,)``, one per frame.
    rotation : array
        R ``(T, d, d)``.
    velocity : array
        ``(T, d, d)`` in the body frame, radians per frame.
    observations : array
        ``(T, d, d)``, NaN where not seen.
    observed : array of bool
        ``(T,)``, where there is an observation.
    noise_std : float
        Radians per axis.
    """

    times: Numbers
    rotation: Numbers
    velocity: Numbers
    observations: Numbers
    observed: Mask
    noise_std: float


def _hidden(observations: Numbers, observed: Mask | None) -> tuple[Numbers, Mask]:
    """C_t or NaN: unseen frames blanked out, and the mask; None means all is seen."""
    n = observations.shape[0]
    mask = np.ones(n, dtype=np.bool_) if observed is None else np.array(observed, dtype=np.bool_)
    if mask.shape != (n,):
        raise ValueError(f"observed must have shape ({n},), one entry per frame; got {mask.shape}")
    return np.where(mask[:, None, None], observations, np.nan), mask


def _covariance_scene(
    spectrum: Numbers,
    velocity: Numbers,
    start: Numbers | None,
    n_samples: int | None,
    noise_floor: float,
    observed: Mask | None,
    rng: np.random.Generator,
) -> CovarianceScene:
    frame = motion.frames(velocity, start)
    spectrum = np.tile(spectrum, (len(frame), 1))
    truth = orbit.compose(frame, spectrum)
    if n_samples is None:
        seen = truth + noise_floor * np.eye(truth.shape[-1])
    else:
        seen = wishart.sample(truth, n_samples, rng, noise_floor=noise_floor)
    seen, mask = _hidden(seen, observed)
    times = np.arange(len(frame), dtype=np.float64)
    parts = (times, truth, frame, spectrum, velocity, seen, mask)
    return CovarianceScene(*parts, n_samples, noise_floor)


def ellipse(
    rate: float = 0.08,
    *,
    n_frames: int = 400,
    spectrum: Sequence[float] = (2.0, 0.5),
    n_samples: int | None = 8,
    noise_floor: float = 0.1,
    start_angle: float = 0.0,
    observed: Mask | None = None,
    rng: np.random.Generator | int = 0,
) -> CovarianceScene:
    """M_t = R(theta_t) diag(lam) R(theta_t)^T, theta_t = start_angle + rate t: a turning ellipse.

    The paper's tables fit n_samples of about 1280 (main) and 3750 (rate sweep), not the printed 8.

    Parameters
    ----------
    rate : float, default 0.08
        Radians per frame; 0.08 as in the paper's main table.
    n_frames : int, default 400
        Number of frames T.
    spectrum : Sequence[float], default (2.0, 0.5)
        The two eigenvalues.
    n_samples : int, default 8
        Samples behind each observation; None shows the covariance without noise.
    noise_floor : float, default 0.1
        Variance of the measurement noise, added to both eigenvalues.
    start_angle : float, default 0.0
        Angle of the major axis at the start, radians.
    observed : array of bool, default None
        Mask ``(n_frames,)`` of the frames that are seen; None shows all.
    rng : np.random.Generator or int, default 0
        Generator or seed; a fixed seed by default, so that a scene can be repeated.

    Examples
    --------
    >>> ellipse(0.1, n_frames=5).observations.shape
    (5, 2, 2)
    """
    if len(spectrum) != 2:
        raise ValueError(f"an ellipse has two eigenvalues, got {len(spectrum)}")
    unit: Numbers = so.hat(np.ones(1))
    velocity = motion.velocities(unit, rate, n_frames, 0)
    lam = np.asarray(spectrum, dtype=np.float64)
    start: Numbers = so.exp(start_angle * unit)
    generator = np.random.default_rng(rng)
    return _covariance_scene(lam, velocity, start, n_samples, noise_floor, observed, generator)


def rotating_covariance(
    d: int = 3,
    *,
    rate: float = 0.02,
    acceleration_std: float = 0.0,
    spectrum: Sequence[float] | None = None,
    n_frames: int = 400,
    n_samples: int | None = 8,
    noise_floor: float = 0.1,
    start: Numbers | None = None,
    observed: Mask | None = None,
    rng: np.random.Generator | int = 0,
) -> CovarianceScene:
    """M_t = Q_t diag(lam_t) Q_t^T with Q_{t+1} = Q_t Exp(W_t), in any dimension.

    W turns in a random combination of planes with |W|_F / sqrt 2 = ``rate``; with an
    ``acceleration_std`` it drifts by that much per frame and plane. Without a ``spectrum``, every
    eigenvalue is twice the next. Draws, in order: direction, velocity, observations.

    Parameters
    ----------
    d : int, default 3
        Dimension.
    rate : float, default 0.02
        Angular speed, radians per frame.
    acceleration_std : float, default 0.0
        Drift of the velocity per frame and plane, radians; 0 keeps it constant.
    spectrum : Sequence[float], default None
        The d eigenvalues; None: each is twice the next.
    n_frames : int, default 400
        Number of frames T.
    n_samples : int, default 8
        Samples behind each observation; None shows the covariance without noise.
    noise_floor : float, default 0.1
        Variance of the measurement noise, added to all eigenvalues.
    start : array, default None
        Eigenframe ``(d, d)`` at the start; None is the identity.
    observed : array of bool, default None
        Mask ``(n_frames,)`` of the frames that are seen; None shows all.
    rng : np.random.Generator or int, default 0
        Generator or seed; a fixed seed by default, so that a scene can be repeated.

    Examples
    --------
    >>> rotating_covariance(4).covariance.shape
    (400, 4, 4)
    """
    if d < 1:
        raise ValueError(f"d must be at least 1, got {d}")
    lam = np.asarray(
        2.0 ** (d // 2 + 1 - np.arange(d)) if spectrum is None else spectrum, dtype=np.float64
    )
    if lam.shape != (d,) or np.any(lam <= 0):
        raise ValueError(f"spectrum must be {d} positive numbers, got {spectrum}")
    generator = np.random.default_rng(rng)
    unit = motion.direction(d, generator)
    w = motion.velocities(unit, rate, n_frames, generator, acceleration_std)
    return _covariance_scene(lam, w, start, n_samples, noise_floor, observed, generator)


def rotating_frame(
    d: int = 3,
    *,
    rate: float = 0.02,
    acceleration_std: float = 0.0,
    n_frames: int = 400,
    noise_std: float = 0.05,
    start: Numbers | None = None,
    observed: Mask | None = None,
    rng: np.random.Generator | int = 0,
) -> RotationScene:
    """R_{t+1} = R_t Exp(W_t), Z_t = R_t Exp(noise_std N(0, 1) per plane), in any dimension.

    The motion is that of :func:`rotating_covariance`. Draws, in order: direction, velocity, noise.

    Parameters
    ----------
    d : int, default 3
        Dimension, 2 or more.
    rate : float, default 0.02
        Angular speed, radians per frame.
    acceleration_std : float, default 0.0
        Drift of the velocity per frame and plane, radians; 0 keeps it constant.
    n_frames : int, default 400
        Number of frames T.
    noise_std : float, default 0.05
        Noise of the observations, radians per plane.
    start : array, default None
        Rotation ``(d, d)`` at the start; None is the identity.
    observed : array of bool, default None
        Mask ``(n_frames,)`` of the frames that are seen; None shows all.
    rng : np.random.Generator or int, default 0
        Generator or seed; a fixed seed by default, so that a scene can be repeated.

    Examples
    --------
    >>> rotating_frame(5, n_frames=10).observations.shape
    (10, 5, 5)
    """
    if d < 2:
        raise ValueError(f"rotations need d >= 2, got {d}")
    generator = np.random.default_rng(rng)
    unit = motion.direction(d, generator)
    w = motion.velocities(unit, rate, n_frames, generator, acceleration_std)
    noise = noise_std * generator.standard_normal((n_frames, d * (d - 1) // 2))
    return _rotation_scene(w, start, noise, noise_std, observed)


def _rotation_scene(
    velocity: Numbers,
    start: Numbers | None,
    noise: Numbers,
    noise_std: float,
    observed: Mask | None,
) -> RotationScene:
    truth = motion.frames(velocity, start)
    seen, mask = _hidden(truth @ so.exp(so.hat(noise)), observed)
    times = np.arange(truth.shape[0], dtype=np.float64)
    return RotationScene(times, truth, velocity, seen, mask, noise_std)


def camera_shake(
    seed: int, dropout_probability: float = 0.0, *, n_frames: int = 200, noise_std: float = 0.05
) -> RotationScene:
    """Omega_t = a sin(2 pi f t + phi) per axis: a shaken camera, frames lost independently.

    The paper's stabilisation protocol as its text has it. From one generator, in this order:
    a ~ U(.05, .15), f ~ U(.01, .05), phi ~ U(0, 2 pi) (three each), the noise (T, 3), the dropout
    (T,). The same seed moves the same way at every dropout probability. Scored by the angle.

    Parameters
    ----------
    seed : int
        Seed of everything that is drawn.
    dropout_probability : float, default 0.0
        Probability that a frame is lost.
    n_frames : int, default 200
        Number of frames T; the paper's.
    noise_std : float, default 0.05
        Noise of the observations, radians per axis; the paper's.

    Examples
    --------
    >>> camera_shake(0, 0.3).rotation.shape
    (200, 3, 3)
    """
    g = np.random.default_rng(seed)
    amplitude = g.uniform(0.05, 0.15, 3)
    frequency = g.uniform(0.01, 0.05, 3)
    phase = g.uniform(0.0, 2 * np.pi, 3)
    noise = g.normal(0.0, noise_std, (n_frames, 3))
    observed = observe.iid(n_frames, dropout_probability, g)
    t = np.arange(n_frames)[:, None]
    velocity: Numbers = so.hat(amplitude * np.sin(2 * np.pi * frequency * t + phase))
    return _rotation_scene(velocity, None, noise, noise_std, observed)


def steady_camera(
    seed: int,
    dropout_probability: float = 0.0,
    *,
    n_frames: int = 200,
    rate: float = 0.022,
    noise_std: float = 0.05,
    gap: int = 9,
) -> RotationScene:
    """Omega = rate * n, constant, n a random axis; gaps of 9 frames *start* with the probability.

    The reading of the paper's protocol that gives its table. Axis and noise come from the seed, the
    mask from (seed, round(100 p)); the missing share is 50, 69, 79, 86, 90 % for p = .1 to .5. The
    paper's table scores |Log|_F, which is sqrt 2 times the angle.

    Parameters
    ----------
    seed : int
        Seed of everything that is drawn.
    dropout_probability : float, default 0.0
        Probability that a gap starts at a frame that is seen.
    n_frames : int, default 200
        Number of frames T; the paper's.
    rate : float, default 0.022
        Angular speed, radians per frame.
    noise_std : float, default 0.05
        Noise of the observations, radians per axis; the paper's.
    gap : int, default 9
        Frames of a gap.

    Examples
    --------
    >>> steady_camera(0, 0.1).rotation.shape
    (200, 3, 3)
    """
    g = np.random.default_rng(seed)
    axis = g.normal(size=3)
    axis = axis / np.linalg.norm(axis)
    noise = g.normal(0.0, noise_std, (n_frames, 3))
    mask_seed = [seed, round(100 * dropout_probability)]
    observed = observe.bursts(n_frames, dropout_probability, mask_seed, length=gap)
    velocity = motion.velocities(so.hat(axis), rate, n_frames, 0)
    return _rotation_scene(velocity, None, noise, noise_std, observed)
