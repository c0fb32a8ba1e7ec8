"""How a state looks from outside: sorted, as the fields of an `Estimate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from kgmrf._types import Numbers
from kgmrf.gains import FixedGains, Gains
from kgmrf.geometry import orbit
from kgmrf.kernels.engine import compose
from kgmrf.kernels.layout import Record
from kgmrf.results import Values
from kgmrf.step import State, Surprise


def rotation_view(state: State, surprise: Surprise, gains: Gains) -> Values:
    """The fields of a rotation's estimate; NaN before the first observation."""
    unseen = np.isnan(state.seen)
    return {
        **_times(state, surprise),
        "rotation": _hide(state.frame, unseen),
        "velocity": _hide(state.velocity, unseen),
        "angle_std": _angle_std(state.uncertainty, gains),
    }


def covariance_view(state: State, surprise: Surprise, gains: Gains) -> Values:
    """The fields of a covariance's estimate, eigenvalues descending; NaN before the first frame.

    Inside a track the frame is never re-sorted; here columns, velocity and angle_std are permuted
    together, and one column changes sign where the permutation would turn the frame left-handed.
    """
    order = np.argsort(-state.spectrum, axis=-1, kind="stable")
    frame = np.take_along_axis(state.frame, order[..., None, :], axis=-1)
    hand = np.ones_like(state.spectrum)
    hand[..., -1] = np.where(np.linalg.det(frame) < 0, -1.0, 1.0)
    frame = frame * hand[..., None, :]
    size = np.exp(state.log_scale)[..., None]
    spectrum = np.take_along_axis(state.spectrum, order, axis=-1) * size
    velocity = _permute(state.velocity, order) * hand[..., :, None] * hand[..., None, :]
    unseen = np.isnan(spectrum[..., 0])
    return {
        **_times(state, surprise),
        "covariance": orbit.compose(state.frame, state.spectrum * size),
        "frame": _hide(frame, unseen),
        "spectrum": spectrum,
        "velocity": _hide(velocity, unseen),
        "angle_std": _permute(_angle_std(state.uncertainty, gains), order),
    }


class RecordView(Mapping[str, Numbers]):
    """The fields of an estimate from the record of a compiled loop, each made when asked for."""

    def __init__(self, record: Record, *, rotation: bool) -> None:
        self._record = record
        self._made: Values = {}
        kind = ("rotation",) if rotation else ("covariance", "frame", "spectrum")
        always = ("time", "age", "nis", "log_likelihood")
        self._names = (*always, *kind, "velocity", "angle_std")

    def __getitem__(self, name: str) -> Numbers:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = self._make(name)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _make(self, name: str) -> Numbers:
        record = self._record
        if name in ("time", "nis", "log_likelihood"):
            return record.clock(name)
        if name == "age":
            return record.clock("time") - record.clock("seen")
        if name == "spectrum":
            return record.spectrum
        if name == "covariance":
            if record.numbers.ndim == 1:
                return orbit.compose(record.frame, record.spectrum)
            return compose(record.numbers, record.d)
        if name == "angle_std":
            return np.sqrt(record.angle_var)
        matrices = record.velocity if name == "velocity" else record.frame
        unseen = np.isnan(
            record.clock("seen") if "rotation" in self._names else record.spectrum[..., 0]
        )
        return _hide(matrices, unseen) if unseen.any() else matrices


def _times(state: State, surprise: Surprise) -> Values:
    return {
        "time": state.time,
        "age": state.time - state.seen,
        "nis": surprise.nis,
        "log_likelihood": surprise.log_likelihood,
    }


def _angle_std(uncertainty: Numbers, gains: Gains) -> Numbers:
    if isinstance(gains, FixedGains):
        return np.full_like(uncertainty[..., 0, :, :], np.nan)
    return np.sqrt(uncertainty[..., 0, :, :])


def _hide(array: Numbers, where: Numbers) -> Numbers:
    return np.where(where[..., None, None], np.nan, array)


def _permute(matrices: Numbers, order: Numbers) -> Numbers:
    rows = np.take_along_axis(matrices, order[..., :, None], axis=-2)
    return np.take_along_axis(rows, order[..., None, :], axis=-1)
