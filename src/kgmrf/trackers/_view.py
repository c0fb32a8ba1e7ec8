"""How a state looks from outside: sorted, as the fields of an `Estimate`."""

from __future__ import annotations

import numpy as np

from kgmrf._types import Numbers
from kgmrf.gains import FixedGains, Gains
from kgmrf.geometry import orbit
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
        "covariance": orbit.compose(frame, spectrum),
        "frame": _hide(frame, unseen),
        "spectrum": spectrum,
        "velocity": _hide(velocity, unseen),
        "angle_std": _permute(_angle_std(state.uncertainty, gains), order),
    }


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
