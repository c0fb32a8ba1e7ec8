"""The contract of a tracker as checks: run them on a tracker of your own.

    from kgmrf.testing import check_tracker

    check_tracker(lambda: MyTracker(gain=0.2))

Every check takes a function that makes a new tracker, a sequence of observations of it and a folder
for files. It raises an AssertionError that names the step or the field.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

import kgmrf
from kgmrf import simulate
from kgmrf._types import Mask, Numbers
from kgmrf.results import join

Make = Callable[[], Any]
Check = Callable[[Make, Numbers, Path], None]

REFUSED: tuple[tuple[Any, str], ...] = (
    (np.ones((3, 2)), "square"),
    (np.eye(4), "d = 4"),
    (np.full((3, 3), np.inf), "infinity"),
    (np.array([[1.0, np.nan, 0.0], [np.nan, 1.0, 0.0], [0.0, 0.0, 1.0]]), "partly NaN"),
    (np.eye(3, dtype=complex), "complex"),
    ([["a", "b"], ["c", "d"]], "dtype"),
    ([[1.0, 2.0], [3.0]], "rectangular"),
    (np.zeros((3, 3)), "zero|orthogonal"),
    (np.array([[1.0, 0.5, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]), "symmetric|orthogonal"),
    (np.diag([1.0, 1.0, -1.0]), "negative eigenvalue|determinant"),
    (np.ones((2, 3, 3)), "batch"),
)
"""Observations of a tracker of 3 x 3 matrices that an ObservationError refuses, and its words."""


def check_tracker(make: Make, sequence: Any = None, *, checks: Iterable[str] | None = None) -> None:
    """Run the contract of all trackers of this library on one; raises AssertionError.

    make: a function without arguments that returns a new tracker of 3 x 3 covariances or rotations.
    sequence: what it follows, ``(T, 3, 3)`` with T of 40 or more, NaN where nothing was observed;
    None (the default) simulates it by the tracker's ``kind``. checks: names of `CHECKS`, for a
    part of them; None runs all.

    >>> check_tracker(lambda: kgmrf.EuclideanEMA(gain=0.2, n_samples=12), checks=["a copy"])
    """
    steps = observations(make().kind) if sequence is None else np.asarray(sequence, dtype=float)
    names = list(CHECKS if checks is None else checks)
    unknown = [name for name in names if name not in CHECKS]
    if unknown:
        raise ValueError(f"no checks {unknown}; there are {list(CHECKS)}")
    if steps.ndim != 3 or steps.shape[1:] != (3, 3) or len(steps) < 40:
        raise ValueError(f"sequence has shape {steps.shape}, expected (T, 3, 3) with T >= 40")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            try:
                CHECKS[name](make, steps, Path(folder))
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from error


def observations(kind: str, n_steps: int = 40, rng: int = 0) -> Numbers:
    """A moving truth of 3 x 3 seen with noise and gaps; kind: "covariance" or "rotation"."""
    seen = np.ones(n_steps, dtype=bool)
    seen[[17, 18, 19, 30]] = False
    if kind == "rotation":
        return simulate.rotating_frame(n_frames=n_steps, observed=seen, rng=rng).observations
    return simulate.rotating_covariance(
        3, n_frames=n_steps, n_samples=12, observed=seen, rng=rng
    ).observations


def assert_same(a: Any, b: Any, tolerance: float = 1e-11) -> None:
    """Two estimates or results have the same fields, within the tolerance."""
    assert a.fields() == b.fields(), f"{a.fields()} are not {b.fields()}"
    for field in a.fields():
        _close(getattr(a, field), getattr(b, field), tolerance, field, relative=tolerance)


def _close(
    a: Numbers, b: Numbers, tolerance: float, words: str = "", relative: float = 1e-7
) -> None:
    np.testing.assert_allclose(a, b, atol=tolerance, rtol=relative, err_msg=words)


def _refused(call: Callable[[], Any], words: str = "") -> None:
    said = None
    try:
        call()
    except kgmrf.ObservationError as error:
        said = str(error)
    assert said is not None, f"no ObservationError{f' about {words!r}' if words else ''}"
    assert re.search(words, said), f"{words!r} is not in {said!r}"


def _matrix(tracker: Any) -> str:
    return "rotation" if tracker.kind == "rotation" else "covariance"


# ---------------------------------------------------------------------- one way is the other


def filter_is_updates(make: Make, steps: Numbers, folder: Path) -> None:
    """`filter` is `update` after `update`; None and NaN are no observation."""
    whole, tracker = make().filter(steps), make()
    for k, step in enumerate(steps):
        estimate = tracker.update(None if k and np.isnan(step).any() else step)
        assert_same(estimate, whole[k], 1e-9)
    assert_same(make().filter([None if np.isnan(s).any() else s for s in steps]), whole)


def chunked_is_whole(make: Make, steps: Numbers, folder: Path) -> None:
    """Cut anywhere, also inside the start and a gap, and through a file."""
    n = len(steps)
    times = np.cumsum(np.linspace(0.5, 1.5, n))
    whole, tracker, pieces = make().filter(steps, times=times), make(), []
    for low, high in ((0, 1), (1, 3), (3, 18), (18, 19), (19, n)):
        pieces.append(tracker.filter(steps[low:high], times=times[low:high]))
        tracker.save(folder / "state.npz")
        tracker = type(tracker).load(folder / "state.npz")
    assert_same(join(pieces), whole)


def batch_is_its_items(make: Make, steps: Numbers, folder: Path) -> None:
    """A batch of sequences with gaps of their own equals its sequences."""
    sequences = np.stack([steps, np.roll(steps, 5, axis=0), steps[::-1]], axis=1)
    sequences[7:9, 1] = np.nan
    sequences[0, 2] = np.nan
    batch = make().filter(sequences)
    for item in range(3):
        single = make().filter(sequences[:, item])
        for field in batch.fields():
            _close(getattr(batch, field)[:, item], getattr(single, field), 1e-9, field)


def coasting_is_forecasting(make: Make, steps: Numbers, folder: Path) -> None:
    """Three steps without observation end where `forecast` of three steps does."""
    tracker = make()
    tracker.filter(steps[:16])
    ahead = tracker.forecast(3)
    for _ in range(3):
        coasted = tracker.update(None)
    matrix = _matrix(tracker)
    _close(getattr(coasted, matrix), getattr(ahead, matrix), 1e-11, matrix)
    assert float(coasted.age) == float(ahead.age) == 3.0, f"age {coasted.age}, {ahead.age}"
    assert float(coasted.time) == float(ahead.time), f"time {coasted.time}, {ahead.time}"


# ---------------------------------------------------------------------- state


def forecast_changes_nothing(make: Make, steps: Numbers, folder: Path) -> None:
    """`forecast` looks at the state and leaves it."""
    tracker, twin = make(), make()
    tracker.filter(steps[:20])
    twin.filter(steps[:20])
    tracker.forecast(5)
    assert_same(tracker.update(steps[20]), twin.update(steps[20]))


def copies_are_independent(make: Make, steps: Numbers, folder: Path) -> None:
    """What a copy takes in leaves the tracker as it was."""
    tracker = make()
    tracker.filter(steps[:20])
    before = tracker.forecast(1)
    tracker.copy().filter(steps[20:])
    assert_same(tracker.forecast(1), before)


def settings_rebuild(make: Make, steps: Numbers, folder: Path) -> None:
    """`settings` are the arguments that make the same tracker."""
    tracker = make()
    twin = type(tracker)(**tracker.settings())
    assert repr(twin) == repr(tracker), f"{twin!r} is not {tracker!r}"
    assert_same(tracker.filter(steps), twin.filter(steps))


def damaged_files_are_refused(make: Make, steps: Numbers, folder: Path) -> None:
    """A state file that is cut, or holds anything else, is a ValueError."""
    tracker, path = make(), folder / "state.npz"
    tracker.filter(steps[:10])
    tracker.save(path)
    data = path.read_bytes()
    for end in (0, 10, len(data) // 2, len(data) - 5):
        path.write_bytes(data[:end])
        _unreadable(tracker, path)
    np.savez(path, header=np.array([{"a": 1}], dtype=object))
    _unreadable(tracker, path)


def _unreadable(tracker: Any, path: Path) -> None:
    said = "it was read"
    try:
        type(tracker).load(path)
    except ValueError as error:
        said = str(error)
    size = path.stat().st_size
    assert "not a kgmrf state file" in said, f"a damaged file of {size} bytes: {said}"


# ---------------------------------------------------------------------- what is estimated


def estimates_are_on_the_manifold(make: Make, steps: Numbers, folder: Path) -> None:
    """Rotations are orthonormal; covariances have the spectrum and frame beside them, sorted."""
    tracker = make()
    result = tracker.filter(steps)
    if tracker.kind == "rotation":
        R = result.rotation
        _close(R @ R.swapaxes(-1, -2), np.eye(3) + 0 * R, 1e-12, "R R^T")
        _close(np.linalg.det(R), np.ones(len(R)), 1e-12, "det R")
        return
    values = np.linalg.eigvalsh(result.covariance)[:, ::-1]
    scale = values.max()
    _close(values, result.spectrum, 1e-12 * scale, "spectrum")
    _close(np.linalg.det(result.frame), np.ones(len(values)), 1e-12, "det of the frame")
    assert (np.diff(result.spectrum, axis=-1) <= 0).all(), "the spectrum is not descending"
    rebuilt = (result.frame * result.spectrum[:, None, :]) @ result.frame.swapaxes(-1, -2)
    _close(rebuilt, result.covariance, 1e-11 * scale, "frame diag(spectrum) frame^T")


def gaps_before_the_first_do_not_matter(make: Make, steps: Numbers, folder: Path) -> None:
    """Steps without observation before the first are NaN unless a start was given."""
    tracker = make()
    late = tracker.filter(np.concatenate([np.full((3, 3, 3), np.nan), steps]))
    matrix = _matrix(tracker)
    if tracker.settings().get("initial") is None:
        assert np.isnan(getattr(late, matrix)[:3]).all(), f"{matrix} before any observation"
    assert np.isnan(late.age[:3]).all(), "age before any observation"
    _close(getattr(late, matrix)[3:], getattr(make().filter(steps), matrix), 1e-10, matrix)


def masks_hide(make: Make, steps: Numbers, folder: Path) -> None:
    """What a mask hides is not looked at, whatever it holds."""
    mask: Mask = np.asarray(np.isfinite(steps).all(axis=(1, 2)))
    mask[5] = False
    hidden, broken = steps.copy(), steps.copy()
    hidden[5], broken[5] = np.nan, np.inf
    assert_same(make().filter(broken, mask=mask), make().filter(hidden))


# ---------------------------------------------------------------------- bad input


def bad_observations_change_nothing(make: Make, steps: Numbers, folder: Path) -> None:
    """An observation that makes no sense is refused, and the state stays."""
    tracker = make()
    tracker.filter(steps[:20])
    before = tracker.forecast(1)
    for bad, words in REFUSED:
        _refused(lambda bad=bad: tracker.update(bad), words)  # type: ignore[misc]
        assert_same(tracker.forecast(1), before)
    broken = steps[20:].copy()
    broken[4] = REFUSED[8][0]
    _refused(lambda: tracker.filter(broken), r"sequence\[4\]")
    assert_same(tracker.forecast(1), before)


def bad_arguments_change_nothing(make: Make, steps: Numbers, folder: Path) -> None:
    """Times, masks, counts and intervals that make no sense are refused, and the state stays."""
    tracker = make()
    tracker.filter(steps[:20])
    before, three = tracker.forecast(1), steps[:3]
    calls: tuple[Callable[[], Any], ...] = (
        lambda: tracker.filter(steps[:0]),
        lambda: tracker.filter(steps[0, 0]),
        lambda: tracker.filter(three, times=[0.0, 2.0]),
        lambda: tracker.filter(three, times=[90.0, 80.0, 85.0]),
        lambda: tracker.filter(three, times=[90.0, np.nan, 95.0]),
        lambda: tracker.filter(three, mask=[1, 0, 2]),
        lambda: tracker.filter(three, mask=[1.0, np.nan, 1.0]),
        lambda: tracker.filter(three, mask=["True", "False", "True"]),
        lambda: tracker.filter(three, mask=[True, False]),
        lambda: tracker.filter(three, n_samples=[1.0, 2.0]),
        lambda: tracker.update(steps[0], dt=-1.0),
        lambda: tracker.update(steps[0], dt=np.nan),
        lambda: tracker.update(steps[0], dt=[1.0, 2.0]),
        lambda: tracker.update(steps[0], n_samples=0),
        lambda: tracker.update(steps[0], n_samples=np.inf),
        lambda: tracker.forecast(-1.0),
    )
    for k, call in enumerate(calls):
        try:
            _refused(call)
        except AssertionError as error:
            raise AssertionError(f"call {k}: {error}") from error
        assert_same(tracker.forecast(1), before)


def skip_and_repair(make: Make, steps: Numbers, folder: Path) -> None:
    """on_invalid: "skip" takes a bad matrix as a gap, "repair" projects an asymmetric one."""
    for policy in ("skip", "repair"):
        missing, broken, crooked = steps.copy(), steps.copy(), steps.copy()
        missing[6], broken[6] = np.nan, np.inf
        tracker, other = make(), make()
        tracker.on_invalid = other.on_invalid = policy
        assert_same(make().filter(missing), tracker.filter(broken))
        crooked[8, 0, 1] += 0.3
        age = float(other.filter(crooked).age[8])
        assert age == (1.0 if policy == "skip" else 0.0), f"{policy}: age {age}"


CHECKS: dict[str, Check] = {
    "filter is update after update": filter_is_updates,
    "chunked is whole": chunked_is_whole,
    "a batch is its items": batch_is_its_items,
    "coasting is forecasting": coasting_is_forecasting,
    "a forecast changes nothing": forecast_changes_nothing,
    "a copy": copies_are_independent,
    "settings": settings_rebuild,
    "damaged files": damaged_files_are_refused,
    "manifold": estimates_are_on_the_manifold,
    "gaps before the first": gaps_before_the_first_do_not_matter,
    "masks": masks_hide,
    "bad observations": bad_observations_change_nothing,
    "bad arguments": bad_arguments_change_nothing,
    "skip and repair": skip_and_repair,
}
"""Every check by name."""
