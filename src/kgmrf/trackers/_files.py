"""Trackers from files: what is built, and what is checked before it is used."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from kgmrf import _check, _npz
from kgmrf._types import Mask, Numbers
from kgmrf.engines.low_rank import LowRank
from kgmrf.results import Estimate
from kgmrf.trackers._contract import Tracker


def load(path: str | Path, named: type[Tracker] | None = None) -> Any:
    """Read any tracker that `save` wrote; refuses files that are damaged or are something else.

    Only trackers that kgmrf itself defines are built from a file, and ``named``, if the caller
    names a class: ``MyTracker.load(path)`` reads what a ``MyTracker`` saved.

    Parameters
    ----------
    path : str or Path
        File that `save` wrote.
    named : type[Tracker], default None
        A class of the caller's own that may be built; None allows those of kgmrf only, because a
        file must not choose what code runs.

    Examples
    --------
    >>> import tempfile, os
    >>> from kgmrf import KGMRF, load
    >>> tracker = KGMRF(n_samples=8)
    >>> _ = tracker.update([[2.0, 0.1], [0.1, 0.5]])
    >>> path = os.path.join(tempfile.mkdtemp(), "state.npz")
    >>> tracker.save(path)
    >>> load(path).forecast(1).covariance.shape
    (2, 2)
    """
    header, state = _npz.read(path)
    try:
        if "tracker" not in header:
            if header.get("kind") == "bank":
                raise ValueError("it holds a bank; read it with TrackerBank.load")
            raise ValueError(f"it holds a {str(header.get('kind', 'something else'))[:40]}")
        tracker = rebuilt(header, named)
        if header["channels"] is not None:
            tracker.channels = tuple(str(name) for name in header["channels"])
        until = header.get("until")
        if until is not None:
            if type(until) not in (int, float) or not abs(until) < 2.0**63:
                raise ValueError(f"its last row is at {str(until)[:20]!r}")
            tracker.until = until
        if header["batch_shape"] is not None:
            batch = tuple(int(n) for n in header["batch_shape"])
            shape = (*batch, *(header["d"],) * tracker.axes)
            tracker.prepare(state)
            # Before room is made for it.
            if _least(tracker, shape) > sum(array.nbytes for array in state.values()):
                raise ValueError(f"it is too small for a state of shape {shape}")
            tracker.allocate(shape)
            expected = tracker.state_dict()
            if set(state) != set(expected):
                raise ValueError(f"it holds {', '.join(sorted(state))[:80]}")
            for name, array in expected.items():
                if state[name].shape != array.shape or state[name].dtype != array.dtype:
                    raise ValueError(f"{name} has shape {state[name].shape}, not {array.shape}")
                if array.dtype.kind == "f" and (np.isinf(state[name]) & ~np.isinf(array)).any():
                    raise ValueError(f"{name} is infinite")
            tracker.load_state_dict(state)
            check_estimate(tracker)
    except (*_npz.DAMAGE, AttributeError, AssertionError) as error:
        raise ValueError(f"{path} is not a kgmrf state file: {_npz.reason_of(error)}") from error
    return tracker


def rebuilt(table: dict[str, Any], named: type[Tracker] | None = None) -> Tracker:
    """The tracker that ``{"tracker": its class, "settings": its arguments, "d": ...}`` describes.

    The class is one that kgmrf defines, whatever else was imported, or ``named``.
    """
    word: str = table["tracker"]
    classes = [*([] if named is None else [named]), *Tracker.__subclasses__()]
    for kind in classes:  # grows as it goes
        classes += kind.__subclasses__()
        own = kind.__module__.partition(".")[0] == __name__.partition(".")[0]
        if kind.__name__ == word and (kind is named or (own and not word.startswith("_"))):
            tracker = kind(**table["settings"])
            tracker.d = table["d"]
            return tracker
    raise ValueError(f"it holds a {str(word)[:40]!r}, which kgmrf does not define")


def _least(tracker: Any, shape: tuple[int, ...]) -> int:
    """Bytes that a state has at least: one array of this shape, and a d x d matrix for each
    component; of many channels sixteen numbers for each."""
    if getattr(tracker, "_raw", False) and isinstance(tracker.engine(shape[:-2]), LowRank):
        return 128 * math.prod(shape[:-1])
    sizes = [8 * math.prod(shape)]
    for part in getattr(tracker, "components", {}).values():
        batch = math.prod(shape[: len(shape) - tracker.axes])
        sizes += [8 * batch * (d or 1) ** 2 for d in (part.d, tracker.d)]
    return max(sizes)


def check_estimate(tracker: Tracker) -> None:
    """Refuses a state whose estimate, now or one step ahead, is not what it should be."""
    with np.errstate(all="ignore"):
        tracker.check_state()
    for part in getattr(tracker, "components", {}).values():
        check_estimate(part)
    if hasattr(tracker, "components"):
        return
    with np.errstate(all="ignore"):
        for values in (tracker.current_values(), tracker.predicted_values(1.0)):
            for name, value in values.items():
                if name != "half_life" and np.isinf(value).any():  # nothing forgotten yet
                    raise ValueError(f"its {name} is infinite")
            if "rotation" in values:
                _estimate_of(values["rotation"], _check.rotations)
            elif tracker.axes == 2 and tracker.always_psd:
                _estimate_of(Estimate(values).covariance, _check.covariances)


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
