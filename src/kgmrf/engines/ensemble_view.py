"""How the records of an ensemble look from outside.

How fast the eigenframe turns and how sure that is, is worked out from rows when somebody asks;
vectorised over tracks and steps.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import ANGLE_VARIANCE_LIMIT, SMALLEST_SPECTRUM
from kgmrf.engines import View
from kgmrf.engines.layout import (
    AVERAGE,
    COUNT,
    HALF_LIFE,
    KIND,
    POOLED,
    SAMPLES,
    SEEN,
    TIME,
    TURNING,
    VALUES,
    Turned,
    folded,
    track,
    turned,
    unpack,
)
from kgmrf.geometry import orbit
from kgmrf.model.density import components
from kgmrf.model.factors import heaviness
from kgmrf.model.tail import tail_probability

NAMES: tuple[str, ...] = (
    "time",
    "age",
    "covariance",
    "frame",
    "spectrum",
    "velocity",
    "angle_std",
    "nis",
    "log_likelihood",
    "p_value",
    "scale",
    "tails",
    "size_std",
    "doubt",
    "dof",
    "weights",
    "half_life",
    "is_initial",
)

SMALL = (
    *("time", "age", "nis", "log_likelihood", "p_value"),
    *("tails", "size_std", "doubt", "dof", "weights", "half_life", "is_initial"),
)
"""Fields that a record without its matrix can show."""


class EnsembleView(View):
    """The fields of estimates of a self-tuned engine."""

    _part_of: tuple[EnsembleView, int | slice] | None = None

    def at(self, frame: int | slice) -> Self:
        """The view of some steps alone."""
        part = super().at(frame)
        if callable(self._rows):  # the rows of one step cost a run over all
            part._part_of = (self, frame)
        return part

    def _make(self, name: str) -> dict[str, Numbers]:
        if name == "covariance":
            if self._engine.noise_floor:
                return {name: orbit.compose(self["frame"], self["spectrum"])}
            return {name: self._raw()}
        record = self._engine.read(self._records)
        if name in ("time", "log_likelihood", "tails", "size_std"):
            return {name: getattr(record, name)}
        if name == "doubt":
            return {name: self._engine.doubt(record)}
        if name == "weights":
            return {name: self._engine.weights(record)}
        if name == "age":
            return {name: record.time - record.seen}
        if name == "half_life":
            return {name: self._engine.half_life(self["weights"])}
        if name == "is_initial":
            return {name: record.samples < self._engine.start_up}
        if name == "dof":
            grow = heaviness(record.tails, record.size_std)
            return {name: 2.0 * grow / (grow - 1.0)}
        if name == "p_value":
            return {name: p_value(record)}
        if name == "nis":
            return {name: self._surprise()}
        if name == "scale":
            return {name: self._scale()}
        if name == "effective_samples":
            return {name: self._all_of_a_record()[..., -1]}
        if name in ("frame", "spectrum"):
            return self._eigen()
        return self._moving()

    def _raw(self) -> Numbers:
        """Covariance of the forecast, noise floor included."""
        engine, records = self._engine, self._records
        if records.shape[-1] == engine.small:
            records = self._whole(self._rows)
        whole = records[..., engine.small : engine.dense]
        return whole.reshape(*records.shape[:-1], engine.d, engine.d)

    def _scale(self) -> Numbers:
        engine = self._engine
        return unpack(self._all_of_a_record()[..., engine.dense : engine.scaled], engine.d)

    def _all_of_a_record(self) -> Numbers:
        short = self._records.shape[-1] <= self._engine.dense
        return self._whole(self._rows) if short else self._records

    def _eigen(self) -> dict[str, Numbers]:
        frame, spectrum = orbit.decompose(self._raw())
        least = SMALLEST_SPECTRUM * spectrum[..., :1]
        spectrum = np.maximum(spectrum - self._engine.noise_floor, least)
        return {"frame": frame, "spectrum": spectrum}

    def _surprise(self) -> Numbers:
        """The chi-squared value that is as improbable as the observation under its forecast."""
        from scipy import special  # slow to import, and only this needs it

        tail, d = self["p_value"], self._engine.d
        if d == 1:
            return np.full(np.shape(tail), np.nan)
        return special.chdtri(d * (d - 1) / 2.0, tail)

    def _velocity(self, rows: Numbers, frame: Numbers, spectrum: Numbers) -> Any:
        return velocity_and_angle_var(self._engine, rows, frame, spectrum)

    def _moving(self) -> dict[str, Numbers]:
        if self._part_of is not None:
            whole, steps = self._part_of
            return {name: whole[name][steps] for name in ("velocity", "angle_std")}
        engine, frame, spectrum = self._engine, self["frame"], self["spectrum"]
        unknown = np.isnan(spectrum[..., :1])[..., None]
        frame = np.where(unknown, np.eye(engine.d), frame)
        spectrum = np.where(unknown[..., 0], 1.0, spectrum)

        def work(rows: Numbers, at: Any) -> tuple[Numbers, Numbers]:
            return self._velocity(rows, frame[at], spectrum[at])

        velocity, variance = self._worked_out(work, frame.shape, frame.shape)
        return {"velocity": np.where(unknown, np.nan, velocity), "angle_std": np.sqrt(variance)}


def p_value(record: Any) -> Numbers:
    """Of the last observation under its forecast; one step ahead whatever stands beside it."""

    def tail(size_std: Any) -> Numbers:
        # The distance is that from a density as wide as its doubt makes it.
        parts = components(record.before, size_std, 1.0, record.seen_doubt)
        return tail_probability(record.distance, record.values, *parts)

    found, wide = tail(0.0), record.seen_size_std > 0.0
    return np.where(wide, tail(record.seen_size_std), found)[()] if wide.any() else found


def held(engine: Any, rows: Numbers) -> Numbers:
    """Covariances of the members, ``(..., K, d, d)``: of rows in which one has all the weight."""
    d, n, lead = engine.d, len(engine.members), rows.shape[:-1]
    out, only = np.empty((*lead, n, d, d)), rows.reshape(-1, engine.size).copy()
    only[:, SEEN] = only[:, TIME]  # at a later time nothing has all the weight
    track(only, engine.plan).top[:, d:] = 1.0, 0.0, 0.0
    for k, weights in enumerate(np.eye(n)):
        engine.read(only).roots[:] = weights
        scale = unpack(engine.records_of(only)[:, engine.dense : engine.scaled], d)
        out[..., k, :, :] = scale.reshape(*lead, d, d)
    heavy = heaviness(engine.read(rows).tails) * np.exp(track(rows, engine.plan).bias[..., 0])
    return out * heavy[..., None, None, None]


def velocity_and_angle_var(
    engine: Any, rows: Numbers, frame: Numbers, spectrum: Numbers
) -> tuple[Numbers, Numbers]:
    """Angular velocity of the eigenframe, body frame, skew, and variance of its angles.

    Shapes: rows ``(..., size)``, frame ``(..., d, d)`` and spectrum ``(..., d)`` of the blend ->
    both ``(..., d, d)``. Omega = sum_k w_k Q_k W_k Q_k^T. The variance is that of a mixture: what
    each member is unsure of, and how far the members are apart.
    """
    d, plan, parts = engine.d, engine.plan, track(rows, engine.plan)
    weights = engine.weights(engine.read(rows), ~np.isnan(parts.head[..., VALUES]))
    m = np.maximum(parts.head[..., SAMPLES] / np.maximum(parts.head[..., COUNT], 1.0), 1e-9)
    back = np.swapaxes(frame, -1, -2)
    apart = back[..., None, :, :] @ held(engine, rows) @ frame[..., None, :, :]
    entries = np.einsum("...k,...kij->...ij", weights, apart**2)
    spatial = np.zeros_like(frame)
    live = (parts.head[..., POOLED] < 0.0)[..., None, None]
    gap2 = (spectrum[..., :, None] - spectrum[..., None, :]) ** 2
    product = spectrum[..., :, None] * spectrum[..., None, :]
    own = np.zeros(m.shape)
    average, turning = 0, 0
    for k, law in enumerate(plan.table):
        w = weights[..., k]
        if law[KIND] == AVERAGE:
            own = own + w / (m * effective(parts.mass[..., average], law[HALF_LIFE]))
            average += 1
        elif law[KIND] == TURNING:
            member: Turned = turned(parts.turning[..., turning, :], d)
            q = np.where(live, member.frame, np.eye(d))
            turn = np.where(live, folded(member.velocity, d, -1.0), 0.0)
            spatial = spatial + w[..., None, None] * (q @ turn @ np.swapaxes(q, -1, -2))
            p11 = np.where(live, folded(member.p11, d, 1.0), ANGLE_VARIANCE_LIMIT)
            entries = entries + w[..., None, None] * gap2 * _seen_from(p11, q, frame)
            turning += 1
    entries = entries + own[..., None, None] * product
    off = 1.0 - np.eye(d)
    known = gap2 > 0.0
    variance = np.where(known, entries / np.where(known, gap2, 1.0), ANGLE_VARIANCE_LIMIT)
    body = back @ spatial @ frame
    return 0.5 * (body - np.swapaxes(body, -1, -2)), off * np.minimum(
        variance, ANGLE_VARIANCE_LIMIT
    )


def effective(mass: Numbers, half: float) -> Numbers:
    """Observations that an average of mass V is worth: V^2 over the sum of squared weights."""
    a = -np.expm1(-np.log(2.0) / half)
    rest = np.maximum(1.0 - mass * a, 0.0)
    weighed = mass * mass * a * (2.0 - a) / np.maximum(1.0 - rest * rest, 1e-12)
    return np.maximum(weighed, 1e-9)


def _seen_from(p11: Numbers, q: Numbers, frame: Numbers) -> Numbers:
    """Variances of a member's planes in the planes of another frame."""
    d = p11.shape[-1]
    share = (np.swapaxes(q, -1, -2) @ frame) ** 2
    mean = p11.sum(axis=-1) / max(d - 1, 1)
    known = p11 + mean[..., :, None] * np.eye(d)
    return np.swapaxes(share, -1, -2) @ known @ share
