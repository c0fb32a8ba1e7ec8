"""Validation on input: every message names the value, the shape and the remedy.

NaN or None always means "no observation"; anything else that cannot be used raises
:class:`ObservationError`, unless the caller chose to skip or repair invalid observations.
"""

from __future__ import annotations

import math
from typing import Any, Literal, TypeAlias

import numpy as np

from kgmrf._types import Mask, Numbers
from kgmrf.constants import FASTEST as FASTEST
from kgmrf.constants import FEWEST_SAMPLES, MOST_SAMPLES
from kgmrf.constants import LARGEST as LARGEST
from kgmrf.constants import LARGEST_SAMPLE as LARGEST_SAMPLE
from kgmrf.constants import SMALLEST as SMALLEST
from kgmrf.constants import SYMMETRY_TOLERANCE as SYMMETRY_TOLERANCE

OnInvalid: TypeAlias = Literal["raise", "skip", "repair"]


class ObservationError(ValueError):
    """An observation that is not what it should be; the tracker has not changed."""


def real_array(value: Any, name: str) -> Numbers:
    """``value`` as a float64 array; refuses complex numbers, text and objects.

    What numpy masks is not observed: NaN. So is None in a list of frames.
    """
    try:
        array = np.asarray(fill_masked(value))
    except ValueError as error:
        fault = f"not a rectangular array of numbers: {error}"
        if hasattr(value, "ch_names"):
            fault = f"a {type(value).__name__}, a whole recording; give it to filter"
        raise ObservationError(f"{name} is {fault}") from None
    except (RuntimeError, TypeError) as error:
        remedy = "detach() it" if getattr(value, "requires_grad", False) else "convert it yourself"
        raise ObservationError(
            f"{name} is a {type(value).__name__} that does not become a numpy array "
            f"({error}); {remedy} first, or use kgmrf.torch, which keeps gradients"
        ) from None
    if array.dtype.kind == "O" and array.ndim:
        array = _numbers(array)
    if array.dtype.kind not in "fiub":
        if value is None:
            raise ObservationError(f"{name} is None, where there should be numbers")
        raise ObservationError(
            f"{name} has dtype {array.dtype}, expected real numbers; {_remedy(array)}"
        )
    return array.astype(np.float64, copy=False)


def some_frames(sequence: Any) -> None:
    """Refuses a sequence without frames, whatever else its shape."""
    shape = getattr(sequence, "shape", None)
    if not (len(sequence) if isinstance(sequence, (list, tuple)) else shape[0] if shape else 1):
        raise ObservationError(
            f"sequence is empty (shape {np.shape(sequence)}): it has no frames; give at least 1"
        )


def are_samples(sequence: Any, samples: bool | None) -> bool:
    """Whether a sequence holds raw samples: if nobody says so, ``(T, d)`` or a list of rows."""
    some_frames(sequence)
    if samples is not None:
        return samples
    if isinstance(sequence, (list, tuple)):
        return next((np.ndim(frame) == 1 for frame in sequence if frame is not None), False)
    return np.ndim(sequence) == 2


LAYOUTS = ("channels_last", "channels_first")
"""How samples lie in an array: ``(time, channel)``, or ``(channel, time)`` as in MNE."""


def oriented(value: Any, layout: str | None) -> Any:
    """Samples with the channels last; ``layout`` says how they come, None: as they should."""
    if layout is None or choice(layout, LAYOUTS, "layout") == "channels_last":
        return value
    return np.swapaxes(real_array(value, "sequence"), -1, -2)


def refuse_transposed(samples: Any, name: str) -> None:
    """Refuses samples with far more channels than times: their axes are likely swapped."""
    shape = getattr(samples, "shape", (0, 0))  # lists are short, and may hold None
    rows, channels = shape[-2:]
    if channels > 64 and channels > 4 * rows:
        raise ObservationError(
            f"{name} of shape {shape} would be {rows} samples of {channels} channels; if its rows "
            f'are the channels, as in MNE and pyRiemann, say layout="channels_first" (or transpose '
            f'it); if it really has {channels} channels, say layout="channels_last"'
        )


def finite(array: Numbers, name: str, limit: float = LARGEST) -> None:
    """Refuses infinities and what is larger than ``limit``; NaN may stay."""
    if (np.abs(array) > limit).any():
        where = _first(np.abs(array) > limit)
        found = array[where]
        if np.isinf(found):
            raise ObservationError(
                f"{name} contains an infinity at index {where} (shape {array.shape}); "
                "mark missing observations with NaN or None, or remove the value"
            )
        raise ObservationError(
            f"{name} is {found:.3g} at index {where} (shape {array.shape}), beyond the "
            f"{limit:g} that can be squared safely; use larger units (divide by a typical value)"
        )


def sample_sizes(array: Numbers, name: str, *, whole: bool) -> None:
    """Refuses samples whose second moments would leave `SMALLEST` to `LARGEST`; NaN may stay.

    whole: all samples of a sequence. A single one may be as small as it likes.
    """
    finite(array, name, LARGEST_SAMPLE)
    size = float(np.fmax.reduce(np.abs(array), axis=None)) if whole and array.size else 0.0
    if 0.0 < size < 1.0 / LARGEST_SAMPLE:
        raise ObservationError(
            f"{name} of shape {array.shape} has no value larger than {size:.3g}, below the "
            f"{1.0 / LARGEST_SAMPLE:g} that can be squared safely; use smaller units (divide by a "
            "typical value)"
        )


def square(array: Numbers, name: str, d: int | None) -> None:
    """Refuses what are no ``(..., d, d)`` matrices."""
    if array.ndim == 1:
        raise ObservationError(
            f"{name} has shape {array.shape}: one raw sample goes to partial_fit(x); many samples "
            "of one channel are a column, filter(x[:, None])"
        )
    if array.ndim < 2 or array.shape[-1] != array.shape[-2]:
        raise ObservationError(
            f"{name} must be square matrices of shape (..., d, d), got shape {array.shape}; "
            "for raw samples use partial_fit(samples), or filter(..., samples=True) for blocks "
            "(T, samples, channels); epochs (T, channels, samples) as in MNE and pyRiemann also "
            'need layout="channels_first"'
        )
    if array.shape[-1] == 0:
        raise ObservationError(f"{name} has shape {array.shape}: d must be at least 1")
    dimension(array, name, d)


def dimension(array: Numbers, name: str, d: int | None) -> None:
    """Refuses a last axis that is not d, if that is known."""
    if d is not None and array.shape[-1] != d:
        raise ObservationError(
            f"{name} has d = {array.shape[-1]} (shape {array.shape}), "
            f"but this tracker has d = {d}; use a new tracker for another dimension"
        )


def present(array: Numbers, name: str) -> Mask:
    """Which matrices of ``(..., d, d)`` are observed; refuses matrices that are partly NaN."""
    nan = np.isnan(array)
    missing: Mask = np.all(nan, axis=(-2, -1))
    partly = nan.any(axis=(-2, -1)) & ~missing
    if partly.any():
        raise ObservationError(
            f"{name}{_at(_first(partly))} is partly NaN (shape {array.shape}); a missing matrix is "
            "all NaN. If single channels are missing, give the raw samples to partial_fit instead"
        )
    return ~missing


def covariances(
    array: Numbers,
    observed: Mask,
    name: str,
    on_invalid: OnInvalid,
    is_float32: bool = False,
    tolerance: float | None = None,
) -> tuple[Numbers, Mask]:
    """Symmetric, positive semidefinite, not zero; returns (matrices, observed)."""
    used = np.where(observed[..., None, None], array, 0.0)
    size = np.abs(used).max(axis=(-2, -1))
    skewness = np.abs(used - np.swapaxes(used, -1, -2)).max(axis=(-2, -1))
    tolerance = tolerance or (1e-4 if is_float32 else SYMMETRY_TOLERANCE)
    lowest = np.zeros_like(size)
    good = observed & (size > 0)
    if good.any():
        lowest[good] = np.linalg.eigvalsh(used[good])[..., 0]
    hopeless = observed & ((size == 0) | (size > LARGEST) | (size < SMALLEST))
    asymmetric = good & (skewness > tolerance * size)
    invalid = hopeless | asymmetric | (good & (lowest < -tolerance * size))
    if invalid.any() and on_invalid == "raise":
        which = _first(invalid)
        large, low = size[which], lowest[which]
        if large == 0:
            fault = "is the zero matrix, which no covariance is; mark missing data with NaN or None"
        elif hopeless[which]:
            fault = (
                f"has entries of {large:.3g} at most, beyond the {SMALLEST:g} to {LARGEST:g} whose "
                "squares are numbers; use other units (divide all by a typical value)"
            )
        elif asymmetric[which]:
            fault = (
                f"is not symmetric: entries differ by up to {skewness[which]:.3g} where the "
                f"largest is {large:.3g}; symmetrise it with (C + C.T) / 2"
            )
        else:
            fault = (
                f"has a negative eigenvalue {low:.3g} (largest entry {large:.3g}), so it is not a "
                "covariance; project it or pass on_invalid='repair'"
            )
        raise ObservationError(f"{name}{_at(which)} of shape {array.shape} {fault}")
    if invalid.any() and on_invalid == "repair":
        mendable = invalid & ~hopeless
        values, vectors = np.linalg.eigh(_symmetric(used[mendable]))
        raised = vectors * np.maximum(values, 0.0)[..., None, :]
        used[mendable] = raised @ np.swapaxes(vectors, -1, -2)
        invalid = hopeless | (mendable & (np.abs(used).max(axis=(-2, -1)) == 0))
    return _symmetric(used), observed & ~invalid


def rotations(
    array: Numbers,
    observed: Mask,
    name: str,
    on_invalid: OnInvalid,
    is_float32: bool = False,
    tolerance: float | None = None,
) -> tuple[Numbers, Mask]:
    """Orthogonal with determinant +1; returns (matrices, observed), not yet projected."""
    eye = np.eye(array.shape[-1])
    used = np.where(observed[..., None, None], array, eye)
    defect = np.abs(np.swapaxes(used, -1, -2) @ used - eye).max(axis=(-2, -1))
    tolerance = tolerance or (1e-3 if is_float32 else 1e-6)
    bent = observed & (defect > tolerance)
    invalid = bent | (observed & (np.linalg.det(used) < 0))
    if invalid.any() and on_invalid == "raise":
        which = _first(invalid)
        fault = "has determinant -1, so it is a reflection; check the handedness of the axes"
        if bent[which]:
            fault = (
                f"is not orthogonal: |R^T R - I| is {defect[which]:.3g}; project it with "
                "kgmrf.geometry.so.project or pass on_invalid='repair'"
            )
        raise ObservationError(f"{name}{_at(which)} of shape {array.shape} {fault}")
    if invalid.any() and on_invalid == "skip":
        observed = observed & ~invalid
        used = np.where(observed[..., None, None], used, eye)
    return used, observed


def positive(value: Any, name: str, remedy: str) -> Numbers:
    """``value`` as an array of positive finite numbers."""
    array = real_array(value, name)
    if not ((array > 0) & np.isfinite(array)).all():
        raise ObservationError(f"{name} must be positive and finite, got {_shown(value)}; {remedy}")
    return array


def sample_counts(value: Any) -> Numbers:
    """How many samples are behind each matrix, as an array."""
    remedy = "it counts the samples behind each matrix, 1 or more"
    array = positive(value, "n_samples", remedy)
    if not ((array >= FEWEST_SAMPLES) & (array <= MOST_SAMPLES)).all():
        raise ObservationError(
            f"n_samples must lie between {FEWEST_SAMPLES:g} and {MOST_SAMPLES:g}, "
            f"got {_shown(value)}; {remedy}"
        )
    return array


def choice(value: str, allowed: tuple[str, ...], name: str) -> str:
    """``value`` if it is one of the allowed words, in British or in American spelling.

    >>> choice("recentered", ("estimate", "recentred"), "output")
    'recentred'
    """
    word = str(value)
    for american, british in (("centered", "centred"), ("center", "centre"), ("color", "colour")):
        word = word.replace(american, british)
    if word not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return word


def whole(value: Any, name: str) -> int:
    """A setting that is a whole number of at least 1."""
    if not isinstance(value, (int, np.integer)) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def in_range(value: float, name: str, low: float, high: float, open_low: bool = False) -> float:
    """``value`` as a number between ``low`` and ``high``."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, got {value!r}") from None
    inside = low < number if open_low else low <= number
    if not (inside and number <= high and math.isfinite(number)):
        bracket = "(" if open_low else "["
        end = "inf)" if high == math.inf else f"{high:g}]"
        raise ValueError(f"{name} must lie in {bracket}{low:g}, {end}, got {value!r}")
    return number


def _shown(value: Any) -> str:
    return repr(value.item() if isinstance(value, np.generic) else value)


def fill_masked(value: Any) -> Any:
    """NaN in place of what a numpy mask hides, and of None among frames."""
    if isinstance(value, np.ma.MaskedArray):
        if value.dtype.kind not in "fiub":
            return value.data
        return np.ma.filled(value.astype(np.float64), np.nan)
    if not isinstance(value, (list, tuple)):
        return value
    gaps = any(frame is None for frame in value)
    if not gaps and not any(isinstance(frame, np.ma.MaskedArray) for frame in value):
        return value
    frames = [fill_masked(frame) for frame in value]
    shape = next((np.shape(frame) for frame in frames if frame is not None), ())
    return [np.full(shape, np.nan) if frame is None else frame for frame in frames]


def _numbers(array: Any) -> Any:
    """Objects that are numbers or nothing (None, pandas.NA) as float64; others as they are."""
    nothing = np.asarray([x is None or type(x).__name__ == "NAType" for x in array.flat], bool)
    nothing = nothing.reshape(array.shape)
    if not all(isinstance(x, (int, float, np.number)) for x in array[~nothing]):
        return array
    return np.where(nothing, np.nan, array).astype(np.float64)


def _remedy(array: Any) -> str:
    return {
        "m": "count in the usual interval: divide it by, say, np.timedelta64(1, 's')",
        "U": "it is text: read it as numbers with .astype(float)",
        "M": "dates are no observations",
        "c": "take its .real part, or stack real and imaginary parts as channels",
    }.get(array.dtype.kind.replace("S", "U"), "convert it with .astype(float)")


def _first(fault: Mask) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(fault)[0])


def _at(which: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, which))}]" if which else ""


def _symmetric(matrices: Numbers) -> Numbers:
    return 0.5 * (matrices + np.swapaxes(matrices, -1, -2))
