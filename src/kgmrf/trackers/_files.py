"""Trackers from files: what is built, and what is checked before it is used."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from kgmrf import _check, _npz
from kgmrf._types import Mask, Numbers
from kgmrf.step import Model, State, warming
from kgmrf.trackers._contract import Tracker


def load(path: str | Path, named: type[Tracker] | None = None) -> Any:
    """Read any tracker that `save` wrote; refuses files that are damaged or are something else.

    Only trackers that kgmrf itself defines are built from a file, and ``named``, if the caller
    names a class: ``MyTracker.load(path)`` reads what a ``MyTracker`` saved.

    >>> import tempfile, os
    >>> from kgmrf import KGMRF, load
    >>> tracker = KGMRF(n_samples=8)
    >>> _ = tracker.update([[2.0, 0.1], [0.1, 0.5]])
    >>> path = os.path.join(tempfile.mkdtemp(), "state.npz")
    >>> tracker.save(path)
    >>> load(path).forecast(1).covariance.shape
    (2, 2)
    """
    header, memory = _npz.read(path)
    try:
        if "tracker" not in header:
            raise ValueError(f"it holds a {str(header.get('kind', 'something else'))[:40]}")
        tracker = rebuilt(header, named)
        tracker.d = header["d"]
        if header["batch_shape"] is not None:
            batch = tuple(int(n) for n in header["batch_shape"])
            shape = (*batch, *(tracker.d,) * tracker._axes)
            # Before room is made for it.
            if _least(tracker, shape) > sum(array.nbytes for array in memory.values()):
                raise ValueError(f"it is too small for a state of shape {shape}")
            tracker._start(shape)
            expected = tracker._memory()
            if set(memory) != set(expected):
                raise ValueError(f"it holds {', '.join(sorted(memory))[:80]}")
            for name, array in expected.items():
                if memory[name].shape != array.shape or memory[name].dtype != array.dtype:
                    raise ValueError(f"{name} has shape {memory[name].shape}, not {array.shape}")
                if array.dtype.kind == "f" and (np.isinf(memory[name]) & ~np.isinf(array)).any():
                    raise ValueError(f"{name} is infinite")
            tracker._remember(memory)
            check_estimate(tracker)
    except (*_npz.DAMAGE, AttributeError, AssertionError) as error:
        raise ValueError(f"{path} is not a kgmrf state file: {_npz.told(error)}") from error
    return tracker


def rebuilt(table: dict[str, Any], named: type[Tracker] | None = None) -> Tracker:
    """The tracker that ``{"tracker": its class, "settings": its arguments}`` describes.

    The class is one that kgmrf defines, whatever else was imported, or ``named``.
    """
    word = table["tracker"]
    if named is not None and named.__name__ == word:
        return named(**table["settings"])
    classes = [Tracker]
    for kind in classes:  # grows as it goes
        classes += kind.__subclasses__()
        own = kind.__module__.partition(".")[0] == __name__.partition(".")[0]
        if own and kind.__name__ == word and word in Tracker.registry:
            return kind(**table["settings"])
    raise ValueError(f"it holds a {str(word)[:40]!r}, which kgmrf does not define")


def _least(tracker: Tracker, shape: tuple[int, ...]) -> int:
    """Bytes that a state has at least: one array of this shape, one for each observation that is
    kept, and a d x d matrix for each component."""
    sizes = [8 * math.prod(shape) * max(1, getattr(tracker, "patience", 1))]
    for name, part in getattr(tracker, "components", {}).items():
        batch = getattr(tracker, "_pending", {}).get(name, shape)
        for d in (part.d, tracker.d):
            sizes.append(8 * math.prod(batch) * (d or 1) ** 2)
    return max(sizes)


def check_estimate(tracker: Tracker) -> None:
    """Refuses a state whose estimate, now or one step ahead, is not what it should be."""
    with np.errstate(all="ignore"):
        tracker._check_memory()
    for part in getattr(tracker, "components", {}).values():
        check_estimate(part)
    if hasattr(tracker, "components"):
        return
    with np.errstate(all="ignore"):
        for values in (tracker._look(), tracker._ahead(1.0)):
            for name, value in values.items():
                if np.isinf(value).any():
                    raise ValueError(f"its {name} is infinite")
            if "rotation" in values:
                _estimate_of(values["rotation"], _check.rotations)
            elif "covariance" in values and tracker._stays_positive:
                _estimate_of(values["covariance"], _check.covariances)


def _estimate_of(matrices: Numbers, check: Any) -> None:
    nan = np.isnan(matrices)
    # Channels that were never seen are absent, rows and columns alike.
    absent = np.diagonal(nan, axis1=-2, axis2=-1)
    if (nan != (absent[..., None, :] | absent[..., :, None])).any():
        raise ValueError("its estimate is partly NaN")
    there: Mask = np.asarray(~absent.all(axis=-1))
    filled = np.where(nan, 0.0, matrices)
    size = np.abs(filled).max(axis=(-2, -1), initial=0.0)
    filled += np.eye(matrices.shape[-1]) * np.where(absent, size[..., None], 0.0)[..., None]
    # Of nothing but zeros there is an estimate too: zero.
    check(filled, there & (size > _check.SMALLEST), "its estimate", "raise", True)


def check_state(state: State, model: Model, *, rotation: bool, slack: float = 1e-6) -> None:
    """Raise ValueError unless a tracker could have come to this state.

    Finite, frames orthonormal, velocities skew, variances and counts not negative.
    """
    begun = ~np.isnan(state.seen)
    counts = (state.pool_samples, state.pool_frames, state.steps, state.scale_var)
    if not all((part >= 0.0).all() and np.isfinite(part).all() for part in counts):
        raise ValueError("a count or a variance is negative or not finite")
    clocks = (state.time, state.log_scale, state.seen[begun])
    if not all(np.isfinite(part).all() for part in clocks) or (np.abs(state.log_scale) > 345).any():
        raise ValueError("a clock or a scale is not finite")
    if not rotation:
        pools = state.pool[begun]
        if (np.isnan(pools) | (np.abs(pools) > _check.LARGEST)).any():
            raise ValueError("a mean of first observations is not finite")
        begun &= ~np.asarray(warming(state, model))
    parts = [np.asarray(part)[begun] for part in state[:5]]
    if any((np.isnan(part) | (np.abs(part) > _check.LARGEST)).any() for part in parts):
        raise ValueError("a track holds numbers that are not finite")
    frame, spectrum, velocity, uncertainty, spectrum_var = parts
    if not frame.size:
        return
    back = np.swapaxes(frame, -1, -2)
    if np.abs(back @ frame - np.eye(frame.shape[-1])).max() > slack:
        raise ValueError("an eigenframe is not orthonormal")
    if not rotation and not (spectrum > 0.0).all():
        raise ValueError("an eigenvalue is not positive")
    fastest = np.abs(velocity).max()
    if (
        fastest > _check.FASTEST
        or np.abs(velocity + np.swapaxes(velocity, -1, -2)).max() > 1e-3 * fastest
    ):
        raise ValueError("an angular velocity is not skew, or too fast")
    p11, p12, p22 = uncertainty[:, 0], uncertainty[:, 1], uncertainty[:, 2]
    if (p11 < 0).any() or (p22 < 0).any() or (p12**2 > (1 + slack) * p11 * p22 + 1e-12).any():
        raise ValueError("an uncertainty is not positive semidefinite")
    if (spectrum_var < 0).any():
        raise ValueError("a variance of a log eigenvalue is negative")
