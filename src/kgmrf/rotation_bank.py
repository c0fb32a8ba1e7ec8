"""Self-tuning on SO(3): motion models side by side, weighted by one-step-ahead likelihood.

The state is a NamedTuple of arrays. `filter_bank` and `forecast_bank` return new arrays;
`advance_bank` works in place, for online use.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kgmrf import _check
from kgmrf._types import Mask, Numbers
from kgmrf.kernels.engine import loops
from kgmrf.motion import MotionModels, default_models

# A record, in order: rotation (9), velocity (3), covariance (36), and numbers; weights follow.
_VELOCITY, _COVARIANCE, _NIS, _LIKELIHOOD, _TIME, _SEEN, _GAIN, _WEIGHTS = (
    9, 12, 48, 49, 50, 51, 52, 53,
)  # fmt: skip


class BankState(NamedTuple):
    """What a bank of K members remembers of one track."""

    frames: Numbers  # (K, 3, 3)
    motions: Numbers  # (K, 9) velocity, quadrature, log frequency
    covariances: Numbers  # (K, 12, 12) of (angle, velocity, quadrature, log frequency)
    log_weight: Numbers  # (K,)
    clock: Numbers  # (3,) time, time of the last observation (NaN before the first), its gain


class BankResult(NamedTuple):
    """Mixture estimates with any leading axes; what is not known yet or not observed is NaN."""

    rotation: Numbers  # (..., 3, 3)
    velocity: Numbers  # (..., 3) body frame, rad per unit time
    covariance: Numbers  # (..., 6, 6) of (angle, velocity), body frame
    nis: Numbers  # (...) mean of the members' normalised innovation squared (3 expected)
    log_likelihood: Numbers  # (...) log density of the mixture, one step ahead
    time: Numbers  # (...)
    seen: Numbers  # (...) time of the last observation
    half_life: Numbers  # (...) of the memory, unit time, at the last observation
    weights: Numbers  # (..., K) after the update


def compiled_models(models: MotionModels) -> Numbers:
    """The models as one table ``(K, 12)`` for the compiled loops.

    >>> compiled_models(default_models()).shape
    (74, 12)
    """
    columns = (
        models.frequency,
        models.frequency_std[:, None],
        models.rate_prior,
        -np.log(models.retention)[:, None],
        models.acceleration[:, None],
        models.jitter[:, None],
        models.frequency_noise[:, None],
        (models.log_weight - np.logaddexp.reduce(models.log_weight))[:, None],
    )
    return np.ascontiguousarray(np.concatenate(columns, axis=1), dtype=float)


def record_size(n_models: int) -> int:
    """How many numbers a record of one frame holds.

    >>> record_size(36)
    89
    """
    return _WEIGHTS + n_models


def new_bank(models: MotionModels | None = None, batch: tuple[int, ...] = ()) -> BankState:
    """A bank that has seen nothing; with ``batch``, one per item, as leading axes.

    >>> new_bank(batch=(5,)).frames.shape
    (5, 74, 3, 3)
    """
    models = default_models() if models is None else models
    k = models.n_models
    prior = models.log_weight - np.logaddexp.reduce(models.log_weight)
    return BankState(
        np.tile(np.eye(3), (*batch, k, 1, 1)),
        np.zeros((*batch, k, 9)),
        np.zeros((*batch, k, 12, 12)),
        np.tile(prior, (*batch, 1)),
        np.tile(np.array([0.0, np.nan, np.nan]), (*batch, 1)),
    )


def unfold(record: Numbers, frame_interval: float = 1.0) -> BankResult:
    """Records ``(..., record_size)`` by name; velocities and half-lives in units of time.

    >>> unfold(np.ones((4, record_size(36)))).weights.shape
    (4, 36)
    """
    batch = record.shape[:-1]
    gain = record[..., _GAIN]
    with np.errstate(divide="ignore"):
        life = -math.log(2.0) / np.log1p(-np.minimum(gain, 1.0))
    covariance = record[..., _COVARIANCE:_NIS].reshape((*batch, 6, 6))
    if frame_interval != 1.0:
        unit = np.repeat([1.0, 1.0 / frame_interval], 3)
        covariance = covariance * unit * unit[:, None]
    return BankResult(
        record[..., :_VELOCITY].reshape((*batch, 3, 3)),
        record[..., _VELOCITY:_COVARIANCE] / frame_interval,
        covariance,
        record[..., _NIS],
        record[..., _LIKELIHOOD],
        record[..., _TIME],
        record[..., _SEEN],
        life * frame_interval,
        record[..., _WEIGHTS:],
    )


def advance_bank(
    state: BankState,
    table: Numbers,
    observation: Numbers,
    noise_var: float,
    record: Numbers,
    work: Numbers,
    *,
    dt: float = 1.0,
    frame_interval: float = 1.0,
    switching: float = 1e-3,
    forgetting: float = 1.0,
    tolerance: float = -1.0,
) -> int:
    """One online update, in place and without copies; the estimate goes into ``record``.

    table: from `compiled_models`. work: ``(6, 12, 12)`` scratch. tolerance: how far R^T R may be
    from I; -1 trusts the observation, -2 says that there is none. Returns 1 if observed, 0 if
    missing, 2 if the matrix is no rotation (then nothing has changed).

    >>> models = default_models()
    >>> state, record = new_bank(models), np.empty(record_size(models.n_models))
    >>> table, work = compiled_models(models), np.zeros((6, 12, 12))
    >>> advance_bank(state, table, np.eye(3), 0.05**2, record, work)
    1
    >>> unfold(record).rotation.trace().item()
    3.0
    """
    return int(
        loops("rotation_bank").advance_bank(
            *state,
            table,
            observation,
            tolerance,
            noise_var,
            dt,
            frame_interval,
            switching,
            forgetting,
            record,
            work,
        )
    )


def run_bank(
    state: BankState,
    table: Numbers,
    observations: Numbers,
    present: Mask,
    noise_var: Numbers,
    dt: Numbers,
    *,
    frame_interval: float = 1.0,
    switching: float = 1e-3,
    forgetting: float = 1.0,
) -> tuple[Numbers, Numbers]:
    """A whole sequence through one track's state, in place; (records, members' log densities).

    >>> models = default_models()
    >>> z, ones = np.tile(np.eye(3), (5, 1, 1)), np.ones(5)
    >>> args = new_bank(models), compiled_models(models), z, ones > 0, 0.01 * ones, ones
    >>> run_bank(*args)[0].shape
    (5, 127)
    """
    n, k = len(observations), len(table)
    records = np.empty((n, record_size(k)))
    members = np.full((n, k), np.nan)
    loops("rotation_bank").filter_bank(
        *state,
        table,
        _own(observations, (n, 3, 3)),
        np.array(np.broadcast_to(present, (n,)), dtype=np.bool_),
        _own(noise_var, (n,)),
        _own(dt, (n,)),
        frame_interval,
        switching,
        forgetting,
        records,
        members,
    )
    return records, members


def filter_bank(
    observations: Any,
    noise_std: Any,
    *,
    dt: Any = 1.0,
    present: Any = None,
    models: MotionModels | None = None,
    state: BankState | None = None,
    switching: float = 1e-3,
    forgetting: float = 1.0,
) -> tuple[BankState, BankResult, Numbers]:
    """p(R_t | Z_1..Z_t) under a mixture of motion models; (T, 3, 3) rotations in, estimates out.

    ``noise_std`` in radians, scalar or per observation. ``dt`` is the time since the previous row,
    in frames. Missing rows: NaN, or ``present`` False. With ``switching`` = s > 0 the weights share
    a little with their prior before each observation (a chance s per observation that another model
    takes over); the cumulative log density of the mixture over n observations is then at least that
    of member k plus log(prior_k) + n log(1 - s), for every k and every data set. ``forgetting`` < 1
    (a power on the weights) has no such guarantee. Returns the state after the last row, the
    estimates, and the members' log densities ``(T, K)``; the input state is left alone.

    >>> z = np.tile(np.eye(3), (5, 1, 1))
    >>> state, result, members = filter_bank(z, 0.05)
    >>> bool(np.allclose(result.rotation, z))
    True
    """
    models = default_models() if models is None else models
    new = new_bank(models) if state is None else BankState(*(a.copy() for a in state))
    z = _check.real_array(observations, "observations")
    seen: Mask = ~np.any(np.isnan(z), axis=(1, 2))
    if present is not None:
        seen &= np.asarray(present, dtype=bool)
    noise_var = np.asarray(noise_std, dtype=float) ** 2
    records, members = run_bank(
        new,
        compiled_models(models),
        z,
        seen,
        noise_var,
        np.asarray(dt, dtype=float),
        switching=switching,
        forgetting=forgetting,
    )
    return new, unfold(records), members


def coast_bank(state: BankState, table: Numbers, dt: float, frame_interval: float = 1.0) -> Numbers:
    """The record of a state ``dt`` later without observations; the state is left alone.

    >>> models = default_models()
    >>> record = coast_bank(new_bank(models), compiled_models(models), 2.0)
    >>> bool(np.isnan(unfold(record).rotation).all())
    True
    """
    later = BankState(*(np.array(a, order="C") for a in state))
    record = np.empty(record_size(len(table)))
    loops("rotation_bank").coast_bank(*later, table, float(dt), float(frame_interval), record)
    return record


def forecast_bank(
    state: BankState, steps: float, *, models: MotionModels | None = None
) -> BankResult:
    """The mixture estimate ``steps`` frames ahead; the state is left alone.

    >>> state, _, _ = filter_bank(np.tile(np.eye(3), (3, 1, 1)), 0.05)
    >>> bool(np.allclose(forecast_bank(state, 2.5).rotation, np.eye(3)))
    True
    """
    models = default_models() if models is None else models
    return unfold(coast_bank(state, compiled_models(models), steps))


def _own(array: Any, shape: tuple[int, ...]) -> Numbers:
    """An array as the compiled signatures ask: contiguous and writable."""
    full = np.broadcast_to(np.asarray(array, dtype=np.float64), shape)
    return full if full.flags.carray else full.copy()
