"""Self-tuning: many laws side by side, weighed by what they would have forecast.

The forecast is S = sum_k w_k S_k. Each member k follows the covariance by a law of its own:

- average: B <- B + (C e^{-s} - B)/V, mass V <- 1 + retention V, S_k = e^s D B D; with a clock for
  the overall size, s <- retention s + log1p(gain (z - 1)), z = tr(S_k^{-1} C)/d, and one for the
  deviation of each channel, D_i^2 *= 1 + gain (C_ii e^{-s}/D_i^2 - 1);
- information: S_k = e^s Q diag(d) Q^T with an angle and a velocity per plane (:mod:`kgmrf.step`);
- kinetic average: an average carried along by the angular velocity of its own eigenframe.

Two sets of weights are learnt. The *posterior* is Bayes', log w_k += log p_k(C); for the blend a
copy of it in which no frame counts more than ``clip`` nats, so that one outlier cannot decide for
ever. The *blend* follows the gradient of the log-likelihood of the Gaussian with covariance S,
g_k = (m/2) <S^{-1} C S^{-1} - S^{-1}, S_k>: it averages covariances, so that members which are
useless alone can help. A mixture of the two, again by their likelihood, makes the forecast.

What holds for every stream, counted from the first frame after the pool, without forgetting: the
log-density of Bayes' mixture of K members (`Trace.log_bayes`) is within log K nats of the best
member's, in sum; that of the mixture with the better of both sets of weights
(`Trace.log_mixture`) within log 2K. The single Gaussian (`Trace.log_density`) has no such
guarantee, nor has anything with forgetting < 1.

Gross outliers: the Gaussian is widened by 1 + their mean size (`Trace.allowance`), as far as that
has paid so far; on a stream without any it is exactly 1.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from kgmrf._types import Numbers
from kgmrf.gains import ANGLE_VARIANCE_LIMIT, InformationGains
from kgmrf.kernels import members as places
from kgmrf.kernels.engine import loops

__all__ = [
    "Bank",
    "MixtureState",
    "Settings",
    "Trace",
    "bank",
    "default_members",
    "effective_half_life",
    "ema_member",
    "follow",
    "fresh_row",
    "information_member",
    "kinetic_member",
    "read",
    "state_of",
]

USUAL_SURPRISE = 10.0
"""Members with a clock or a velocity scale a frame down to this many times its forecast size: the
clock takes the jump, the shape survives it."""

POOL_SAMPLES = 5
"""Samples per dimension that are pooled before the members start."""

RELATIVE_FLOOR = 1e-8
"""Smallest variance of a channel, relative to what it was in the pool."""


class Settings(NamedTuple):
    """How the members are weighed.

    forgetting: log w <- forgetting log w + log-likelihood; 1 keeps the guarantee.
    blend_rate: step along the gradient of the blend, divided by d; 0 leaves Bayes' weights alone.
    share: part of the blend's weight that is spread evenly each frame: no member is ever dead.
    clip: nats that a member can lose in one frame; also the limit of a step of the blend.
    top_share: as share, between the two sets of weights.
    """

    forgetting: float = 1.0
    blend_rate: float = 0.7
    share: float = 0.001
    clip: float = 8.0
    top_share: float = 0.001


# ----------------------------------------------------------------------- members


def ema_member(
    half_life: float,
    *,
    channel_half_life: float | None = None,
    scale_gain: float = 0.0,
    scale_retention: float = 0.98,
    surprise_limit: float | None = None,
) -> Numbers:
    """B <- (1 - a) B + a C, a = 1 - 2^(-1/half_life), with a bias-corrected start, ``(12,)``.

    channel_half_life, scale_gain: the clocks of the module's docstring; None and 0 leave them out.
    surprise_limit: default 10 with a clock of the size, infinite without.

    >>> ema_member(1.0)[:2].round(3).tolist()
    [0.0, -0.693]
    """
    row = np.zeros(places.N_PARAMETERS)
    row[places.KIND] = places.EMA
    row[places.DECAY] = _decay(half_life, "half_life")
    if channel_half_life is not None:
        row[places.CHANNEL_DECAY] = _decay(channel_half_life, "channel_half_life")
    row[places.SCALE_GAIN] = scale_gain
    row[places.SCALE_RETENTION] = scale_retention
    row[places.RETENTION] = 1.0
    usual = USUAL_SURPRISE if scale_gain > 0 else np.inf
    row[places.SURPRISE_LIMIT] = usual if surprise_limit is None else surprise_limit
    return row


def information_member(
    acceleration: float,
    *,
    angle_noise: float = 0.0,
    retention: float = 1.0,
    rate_prior: float = InformationGains().rate_prior,
    spectrum_rate: float = 1e-4,
    scale_gain: float = 0.0,
    scale_retention: float = 0.98,
) -> Numbers:
    """Q <- Q Exp(W), W <- W + noise: information gains with these settings, ``(12,)``.

    >>> information_member(1e-7)[5]
    np.float64(1e-07)
    """
    row = np.zeros(places.N_PARAMETERS)
    row[places.KIND] = places.INFORMATION
    row[places.SCALE_GAIN] = scale_gain
    row[places.SCALE_RETENTION] = scale_retention
    row[places.ACCELERATION] = acceleration
    row[places.ANGLE_NOISE] = angle_noise
    row[places.RETENTION] = retention
    row[places.SPECTRUM_RATE] = spectrum_rate
    row[places.RATE_PRIOR] = rate_prior
    row[places.SURPRISE_LIMIT] = USUAL_SURPRISE
    return row


def kinetic_member(
    half_life: float,
    *,
    velocity_gain: float,
    retention: float = 1.0,
    scale_gain: float = 0.0,
    scale_retention: float = 0.98,
) -> Numbers:
    """(1 - a) diag(lam) + a C~ = J diag(lam) J^T, Q <- Q J, W += velocity_gain log(J)/a, ``(12,)``.

    With velocity_gain 0 it is the average of that half-life.

    >>> kinetic_member(8.0, velocity_gain=0.0)[9]
    np.float64(0.0)
    """
    row = ema_member(half_life, scale_gain=scale_gain, scale_retention=scale_retention)
    row[places.KIND] = places.KINETIC
    row[places.RETENTION] = retention
    row[places.VELOCITY_GAIN] = velocity_gain
    if velocity_gain > 0:
        row[places.SURPRISE_LIMIT] = USUAL_SURPRISE
    return row


def default_members(d: int) -> Numbers:
    """The members of the default bank, ``(K, 12)``: K = 17, and 12 for d = 1.

    >>> default_members(3).shape
    (17, 12)
    """
    rows = [ema_member(h) for h in (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0)]
    rows.append(ema_member(1024.0, surprise_limit=USUAL_SURPRISE))
    short, long = max(64.0, 4.0 * d), max(256.0, 16.0 * d)
    for h in (short, long):
        rows += [ema_member(h, scale_gain=gain) for gain in (0.1, 0.6)]
    if d > 1:
        rows += [ema_member(h, channel_half_life=8.0, scale_gain=0.3) for h in (short, long)]
        rows.append(information_member(1e-8))
        rows.append(information_member(1e-6))
        rows.append(information_member(3e-5, retention=0.95, scale_gain=0.1))
    return np.array(rows)


def effective_half_life(table: Numbers, weights: Numbers) -> Numbers:
    """exp(sum_k w_k log h_k / sum_k w_k) over the averages; NaN where they have no weight.

    Shapes: table ``(K, 12)``, weights ``(..., K)`` -> ``(...)``.

    >>> table = np.array([ema_member(4.0), ema_member(16.0), information_member(1e-6)])
    >>> effective_half_life(table, np.array([0.4, 0.4, 0.2])).round(9).item()
    8.0
    """
    average = table[:, places.DECAY] < 0
    mine = weights[..., average]
    total = mine.sum(-1)
    logs = np.log(-math.log(2.0) / table[average, places.DECAY])
    there = total > 0
    return np.where(there, np.exp(mine @ logs / np.where(there, total, 1.0)), np.nan)


def _decay(half_life: float, name: str) -> float:
    if not 0.0 < half_life < np.inf:
        raise ValueError(f"{name} must be a positive time, got {half_life!r}")
    return -math.log(2.0) / half_life


# ----------------------------------------------------------------------- state


class MixtureState(NamedTuple):
    """All that a bank remembers of one track; a row of numbers holds it, these are its parts.

    head: time, time of the last observation, frames, pooled samples and frames, whether started,
    samples of the last observation. Members: see :mod:`kgmrf.kernels.mixture`.
    """

    head: Numbers  # (7,)
    floor: Numbers  # (d,) smallest variances
    pool: Numbers  # (d, d) sum of the first samples' squares
    reference: Numbers  # (d, d) where the search for the blend's eigenframe begins
    log_posterior: Numbers  # (K,)
    log_robust: Numbers  # (K,)
    log_blend: Numbers  # (K,)
    log_top: Numbers  # (2, 2) blend against posterior: as Gaussians, as mixtures
    gross: Numbers  # (3,) summed size of gross outliers, frames, log odds that widening pays
    scale: Numbers  # (K,) log size
    mass: Numbers  # (K,) effective number of frames
    spectrum: Numbers  # (K, d)
    spectrum_var: Numbers  # (K, d)
    frame: Numbers  # (K, d, d)
    matrix: Numbers  # (K, d, d)
    planes: Numbers  # (information members, 3, d, d)


class Bank(NamedTuple):
    """Members, settings and dimension, as the compiled loop wants them; see `bank`."""

    d: int
    table: Numbers
    settings: Numbers
    offsets: Numbers


def bank(d: int, table: Any = None, settings: Settings | None = None) -> Bank:
    """A bank for dimension d of the members ``table`` (K, 12), default `default_members`.

    >>> bank(3).table.shape
    (17, 12)
    """
    rows = default_members(d) if table is None else np.array(table, dtype=float, order="C", ndmin=2)
    if rows.ndim != 2 or rows.shape[0] < 1 or rows.shape[1] != places.N_PARAMETERS:
        raise ValueError(
            f"members must be a table of shape (K, {places.N_PARAMETERS}), got {rows.shape}; "
            "stack rows of ema_member, information_member or kinetic_member"
        )
    numbers = np.array(Settings() if settings is None else settings, dtype=float)
    return Bank(d, rows, numbers, places.offsets(rows, d))


def fresh_row(kind: Bank) -> Numbers:
    """A track that has seen nothing, as a row of numbers.

    >>> state_of(fresh_row(bank(2)), bank(2)).head[0].item()
    0.0
    """
    row = np.zeros(int(kind.offsets[-1]))
    row[places.SEEN] = np.nan
    row[places.LAST_SAMPLES] = 1.0
    return row


def state_of(row: Numbers, kind: Bank) -> MixtureState:
    """The parts of a row ``(..., size)``, as views.

    >>> state_of(fresh_row(bank(2)), bank(2)).frame.shape
    (17, 2, 2)
    """
    return MixtureState(**places.views(row, kind.table, kind.d))


def _start(state: MixtureState, kind: Bank) -> None:
    """Every member from the pooled samples."""
    d, table = kind.d, kind.table
    n_samples, n_frames = state.head[places.POOL_SAMPLES], state.head[places.POOL_FRAMES]
    base = state.pool / n_samples
    variances = np.diag(base)
    floor = RELATIVE_FLOOR * np.maximum(variances, 1e-4 * variances.mean()) + 1e-300
    state.floor[:] = floor
    # With fewer than 2 d samples lean on the diagonal, as far as they are missing.
    poor = max(0.0, 1.0 - n_samples / (2.0 * d))
    base = (1.0 - poor) * (base + np.diag(floor)) + poor * np.diag(variances + floor)
    values, vectors = np.linalg.eigh(base)
    values, vectors = np.maximum(values[::-1], floor.min()), vectors[:, ::-1].copy()
    if np.linalg.det(vectors) < 0:
        vectors[:, -1] *= -1
    state.reference[:] = vectors
    slot, off = 0, 1.0 - np.eye(d)
    for k, law in enumerate(table):
        keep = math.exp(law[places.DECAY])
        state.mass[k] = (1.0 - keep**n_frames) / (1.0 - keep) if keep < 1 else 1.0
        if law[places.KIND] == places.EMA:
            clock = law[places.CHANNEL_DECAY] != 0
            deviations = np.sqrt(np.diag(base)) if clock else np.ones(d)
            state.spectrum[k] = deviations
            state.matrix[k] = base / np.outer(deviations, deviations)
            state.frame[k] = np.linalg.cholesky(state.matrix[k]).T
            continue
        state.frame[k], state.spectrum[k] = vectors, values
        if law[places.KIND] == places.INFORMATION:
            state.planes[slot, 0] = ANGLE_VARIANCE_LIMIT * off
            state.planes[slot, 2] = law[places.RATE_PRIOR] * off
            slot += 1
    state.spectrum_var[:] = 2.0 / max(n_samples, 1.0)
    prior = -math.log(len(table))
    state.log_posterior[:] = state.log_robust[:] = state.log_blend[:] = prior
    state.gross[:] = (0.0, 0.0, -2.0)
    state.head[places.STARTED] = 1.0


def _pool(row: Numbers, kind: Bank, seen: Numbers, brought: Numbers, record: Numbers) -> None:
    """Take in a frame before there is enough to start from; the estimate is the pooled mean."""
    state, d, n = state_of(row, kind), kind.d, len(kind.table)
    head = state.head
    head[places.TIME] += brought[places.DT]
    if brought[places.OBSERVED]:
        m = brought[places.SAMPLES]
        state.pool[:] += 0.5 * m * (seen + seen.T)
        head[places.POOL_SAMPLES] += m
        head[places.POOL_FRAMES] += 1.0
        head[places.COUNT] += 1.0
        head[places.LAST_SAMPLES] = m
        head[places.SEEN] = head[places.TIME]
    known = head[places.POOL_SAMPLES] > 0
    record[:] = np.nan
    record[places.R_TIME], record[places.R_SEEN] = head[places.TIME], head[places.SEEN]
    first = places.N_NUMBERS + 2 * n
    record[places.N_NUMBERS : places.N_NUMBERS + n] = 1.0 / n
    details = record[first + d * d :]
    details[: d * d] = (ANGLE_VARIANCE_LIMIT * (1.0 - np.eye(d))).ravel()[: details.size]
    if known:
        record[first : first + d * d] = (state.pool / head[places.POOL_SAMPLES]).ravel()
        details[d * d :] = 0.0
    if head[places.POOL_SAMPLES] >= POOL_SAMPLES * d:
        _start(state, kind)


def follow(
    kind: Bank, row: Numbers, sequence: Numbers, brought: Numbers, *, detailed: bool = True
) -> Numbers:
    """Take a track through a sequence, in place; returns the records of its frames, ``(T, size)``.

    Shapes: row `fresh_row`, sequence ``(T, d, d)``, brought ``(T, 3)``: the time since the frame
    before, the samples behind the matrix, and whether it is there at all. `read` tells what is in
    a record; angles, velocity and nis are only in detailed ones, which take longer.

    >>> kind = bank(2)
    >>> frames = np.tile(np.diag([2.0, 0.5]), (9, 1, 1))
    >>> records = follow(kind, fresh_row(kind), frames, np.tile([1.0, 8.0, 1.0], (9, 1)))
    >>> read(records, kind).covariance[-1].round(6).tolist()
    [[2.0, 0.0], [0.0, 0.5]]
    """
    size = places.record_size(len(kind.table), kind.d, detailed=detailed)
    records = np.empty((len(brought), size))
    begin = 0
    while begin < len(brought) and not row[places.STARTED]:
        _pool(row, kind, sequence[begin], brought[begin], records[begin])
        begin += 1
    if begin < len(brought):
        loops("mixture").run(
            row,
            kind.offsets,
            kind.table,
            kind.settings,
            _own(sequence[begin:]),
            _own(brought[begin:]),
            records[begin:],
        )
    return records


def _own(array: Numbers) -> Numbers:
    """The array as compiled signatures ask for it: contiguous, writeable, float64."""
    array = np.asarray(array, dtype=np.float64)
    return array if array.flags.carray else array.copy()


# ----------------------------------------------------------------------- what comes out


class Trace(NamedTuple):
    """What is in the records ``(..., size)`` of frames."""

    time: Numbers  # (...)
    seen: Numbers  # (...) time of the last observation
    covariance: Numbers  # (..., d, d) the blend after the frame
    weights: Numbers  # (..., K) its weights
    log_density: Numbers  # (...) of the frame under one Gaussian, forecast before it was seen
    log_mixture: Numbers  # (...) under the mixture with the better weights
    log_bayes: Numbers  # (...) under Bayes' mixture
    member_log_density: Numbers  # (..., K) under every member
    allowance: Numbers  # (...) widening of the Gaussian for gross outliers, >= 1
    nis: Numbers | None  # (...) detailed records only, as those below
    angle_var: Numbers | None  # (..., d, d) by descending eigenvalue
    spatial_velocity: Numbers | None  # (..., d, d) skew


def read(records: Numbers, kind: Bank) -> Trace:
    """Records ``(..., size)`` by name, as views."""
    n, d, lead = len(kind.table), kind.d, records.shape[:-1]
    first = places.N_NUMBERS + 2 * n

    def square(start: int) -> Numbers:
        return records[..., start : start + d * d].reshape(*lead, d, d)

    detailed = records.shape[-1] > first + d * d
    return Trace(
        time=records[..., places.R_TIME],
        seen=records[..., places.R_SEEN],
        covariance=square(first),
        weights=records[..., places.N_NUMBERS : places.N_NUMBERS + n],
        log_density=records[..., places.DENSITY],
        log_mixture=records[..., places.MIXTURE],
        log_bayes=records[..., places.BAYES],
        member_log_density=records[..., places.N_NUMBERS + n : first],
        allowance=records[..., places.ALLOWANCE],
        nis=records[..., places.NIS] if detailed else None,
        angle_var=square(first + d * d) if detailed else None,
        spatial_velocity=square(first + 2 * d * d) if detailed else None,
    )
