"""What the baselines share: a remembered matrix, a clock, and nothing about their own accuracy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from typing import Any, ClassVar, TypeAlias

import numpy as np

from kgmrf import _check
from kgmrf._check import ObservationError
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import orbit
from kgmrf.model import wishart
from kgmrf.results import Values
from kgmrf.trackers._input import Recording
from kgmrf.trackers._samples import CovarianceTracker

Arrays: TypeAlias = dict[str, Numbers]


class BaselineTracker(CovarianceTracker):
    """Keeps named arrays; a subclass says how an observation changes them (`_correct`), how time
    alone changes them (`_predict`), and which matrix they stand for (`_matrix`).

    Parameters
    ----------
    d : int, default None
        Dimension; None takes it from the first observation.
    kind : str, default None
        "covariance" or "rotation"; None takes the first of `kinds`.
    **options
        n_samples, on_invalid and time_unit as for every :class:`kgmrf.Tracker`.
    """

    kinds: ClassVar[tuple[str, ...]] = ("covariance", "rotation")
    """What it can follow, the default first."""

    _takes_logarithms: ClassVar[bool] = False
    """Whether rank-deficient covariances must be refused."""

    _state_attributes = ("_arrays", "_time", "_seen", "_log_likelihood", "_fresh")

    def __init__(self, d: int | None = None, *, kind: str | None = None, **options: Any) -> None:
        super().__init__(d, **options)
        self.kind = _check.choice(kind or self.kinds[0], self.kinds, "kind")  # type: ignore[misc]
        self._arrays: Arrays = {}

    # ------------------------------------------------------------------ for subclasses

    def _fresh_arrays(self, shape: tuple[int, ...]) -> Arrays:
        """What is remembered beside the clock, before the first observation."""
        return {"matrix": np.full(shape, np.nan)}

    def _first(self, arrays: Arrays, seen: Numbers) -> Arrays:
        """The arrays after the first observation."""
        return {**arrays, "matrix": seen}

    def _predict(self, arrays: Arrays, dt: Numbers) -> Arrays:
        """The arrays after a time ``dt`` (..., 1, 1) without data."""
        return arrays

    def _correct(self, arrays: Arrays, seen: Numbers, dt: Numbers) -> Arrays:
        """The predicted arrays after an observation."""
        raise NotImplementedError

    def _coast(self, arrays: Arrays, predicted: Arrays, dt: Numbers) -> Arrays:
        """The arrays after a time ``dt`` without data; what was predicted, unless overridden."""
        return predicted

    def _matrix(self, arrays: Arrays) -> Numbers:
        """The covariance or rotation that the arrays stand for."""
        return arrays["matrix"]

    def _velocity(self, arrays: Arrays) -> Numbers:
        """Angular velocity, if the tracker has one."""
        return np.full_like(self._matrix(arrays), np.nan)

    # ------------------------------------------------------------------ the contract

    def support(self) -> Numbers:
        """How many samples the present estimate is worth."""
        # A moving average holds (2 - gain) / gain observations; the last one alone is one.
        gain = getattr(self, "gain", getattr(self, "position_gain", 1.0))
        return np.asarray(max((2.0 - gain) / gain, 1.0))

    def _validated(
        self, array: Numbers, observed: Mask, is_float32: bool, name: str
    ) -> tuple[Numbers, Mask]:
        return self._definite(*super()._validated(array, observed, is_float32, name), name)

    def _definite(self, matrices: Numbers, observed: Mask, name: str) -> tuple[Numbers, Mask]:
        """A logarithm needs full rank: at least d samples behind every matrix."""
        if not self._takes_logarithms or self.kind == "rotation":
            return matrices, observed
        safe = np.where(observed[..., None, None], matrices, np.eye(matrices.shape[-1]))
        values = np.linalg.eigvalsh(safe)
        thin = values[..., 0] <= 1e-12 * values[..., -1]
        if not thin.any() or self.on_invalid == "skip":
            return matrices, observed & ~thin
        if self.on_invalid == "raise":
            which = tuple(int(i) for i in np.argwhere(thin)[0])
            raise ObservationError(
                f"{name}{list(which) if which else ''} of shape {matrices.shape} has no full rank "
                f"(smallest eigenvalue {values[which][0]:.3g}), and {type(self).__name__} takes "
                "its logarithm; use at least d samples per matrix, or KGMRF, which needs none"
            )
        lift = np.where(thin, 1e-12 * values[..., -1] - np.minimum(values[..., 0], 0.0), 0.0)
        return matrices + lift[..., None, None] * np.eye(matrices.shape[-1]), observed

    def _allocate(self, shape: tuple[int, ...]) -> None:
        batch = shape[:-2]
        self._arrays = self._fresh_arrays(shape)
        self._time = np.zeros(batch)
        self._seen = np.full(batch, np.nan)
        self._log_likelihood = np.full(batch, np.nan)
        self._fresh = True

    def advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        """Take in one step of checked matrices."""
        # Samples with holes are filled in only now; nothing has changed yet.
        seen, observed = self._definite(seen, observed, "samples")
        started = ~np.isnan(self._seen)
        safe = np.where(observed[..., None, None], seen, np.eye(seen.shape[-1]))
        wide = dt[..., None, None]
        first = self._first(self._arrays, safe)
        known = {name: _pick(started, array, first[name]) for name, array in self._arrays.items()}
        predicted = self._predict(known, wide)
        corrected = self._correct(predicted, safe, wide)
        coasted = self._coast(known, predicted, wide)
        self._log_likelihood = self._predictive(predicted, safe, n_samples, observed & started)
        self._arrays = {
            name: _pick(
                observed & started,
                corrected[name],
                _pick(started, coasted[name], _pick(observed, first[name], self._arrays[name])),
            )
            for name in self._arrays
        }
        self._time = self._time + dt
        self._seen = np.where(observed, self._time, self._seen)
        self._fresh = False

    def _predictive(
        self, predicted: Arrays, seen: Numbers, n_samples: Numbers, valid: Mask
    ) -> Numbers:
        """Log-likelihood of the samples under the predicted covariance; NaN if that is none."""
        if self.kind == "rotation" or np.isnan(n_samples).all():
            return np.full(valid.shape, np.nan)
        forecast = self._matrix(predicted)
        values = np.linalg.eigvalsh(np.where(np.isnan(forecast), 0.0, forecast))
        proper = valid & (values[..., 0] > 1e-13 * values[..., -1])
        safe = np.where(proper[..., None, None], forecast, np.eye(seen.shape[-1]))
        return np.where(proper, wishart.predictive_log_likelihood(safe, seen, n_samples), np.nan)

    def counts(self, n_samples: Any, observed: Mask, d: int) -> Numbers:
        """The number of samples behind every matrix, in the shape of ``observed``; NaN if nobody
        said it."""
        if n_samples is None and self.n_samples is None:
            return np.full(observed.shape, np.nan)
        return super().counts(n_samples, observed, d)

    def blocks(self, value: Any, *, sequence: bool = False) -> Numbers:
        """Samples as ``(..., m, d)``, checked; with ``sequence`` the steps come first."""
        if self.kind == "rotation":
            raise ObservationError("this tracker follows rotations; samples make covariances")
        blocks = super().blocks(value, sequence=sequence)
        if not self._takes_logarithms:
            return blocks
        name = "sequence" if sequence else "samples"
        if blocks.shape[-2] < blocks.shape[-1]:
            raise ObservationError(
                f"{name} has {blocks.shape[-2]} samples of {blocks.shape[-1]} channels per frame, "
                f"and {type(self).__name__} takes logarithms, which need full rank; "
                "use at least d samples per frame, or KGMRF"
            )
        if self.on_invalid == "raise":
            whole: Mask = np.asarray(~np.isnan(blocks).any(axis=(-2, -1)))
            rows = np.where(whole[..., None, None], blocks, 0.0)
            self._definite(np.swapaxes(rows, -1, -2) @ rows, whole, name)
        return blocks

    def current_values(self) -> Values:
        """All fields as they stand now."""
        return self._values(self._arrays, self._time, self._log_likelihood)

    def predicted_values(self, dt: float) -> Values:
        """All fields as predicted ``dt`` from now."""
        step = np.full((*self._time.shape, 1, 1), dt)
        later = self._coast(self._arrays, self._predict(self._arrays, step), step)
        return self._values(later, self._time + dt, np.full_like(self._time, np.nan))

    def _values(
        self, arrays: Arrays, time: Numbers, likelihood: Numbers, seen: Numbers | None = None
    ) -> Values:
        seen = self._seen if seen is None else seen
        matrix = np.where(np.isnan(seen)[..., None, None], np.nan, self._matrix(arrays))
        velocity = np.where(np.isnan(matrix), np.nan, self._velocity(arrays))
        return BaselineView(self.kind, matrix, velocity, time, time - seen, likelihood)

    def _run(self, record: Recording, names: tuple[str, ...] | None) -> Values:
        steps = [
            ({**self._arrays}, self._time, self._log_likelihood, self._seen)
            for _ in self._steps(record)
        ]
        arrays = {name: np.stack([step[0][name] for step in steps]) for name in self._arrays}
        time, likelihood, seen = (np.stack(part) for part in list(zip(*steps, strict=True))[1:])
        return self._values(arrays, time, likelihood, seen)

    def check_state(self) -> None:
        """Raise ValueError if what is remembered, as from a file, cannot be."""
        started = ~np.isnan(self._seen)
        for name, array in self._arrays.items():
            known = np.isfinite(array) & (np.abs(array) < _check.LARGEST)
            if not np.all(known | ~_wide(started, array)):
                raise ValueError(f"{name} is not a number, or beyond all size")
        if not (
            np.isfinite(self._time).all() and (self._seen[started] <= self._time[started]).all()
        ):
            raise ValueError("invalid clock")
        if self._takes_logarithms and self.kind == "covariance":
            matrices = self._matrix(self._arrays)
            if not np.isfinite(matrices[started]).all():
                raise ValueError("its estimate is not finite")
            values = np.linalg.eigvalsh(matrices[started])
            if not (values[..., 0] > 1e-14 * values[..., -1]).all():
                raise ValueError("its estimate has no logarithm")

    def _clocks(self) -> Numbers:
        return self._time


class BaselineView(Mapping[str, Numbers]):
    """Fields of a baseline by name; what is worked out or unknown is made when it is asked for."""

    def __init__(
        self,
        kind: str,
        matrix: Numbers,
        velocity: Numbers,
        time: Numbers,
        age: Numbers,
        likelihood: Numbers,
    ) -> None:
        self._kind = kind
        known = {"time": time, "age": age, kind: matrix, "velocity": velocity}
        self._made: dict[str, Numbers] = {**known, "log_likelihood": likelihood}
        unknown = ("angle_std", "nis", "p_value")
        last = ("frame", "spectrum") if kind == "covariance" else ()
        self._names = (*known, *unknown, "log_likelihood", *last)

    def __getitem__(self, name: str) -> Numbers:
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            matrix = self._made[self._kind]
            if name in ("frame", "spectrum"):
                frame, spectrum = orbit.decompose(matrix)
                self._made |= {"frame": frame, "spectrum": spectrum}
            else:
                like = matrix if name == "angle_std" else self._made["time"]
                self._made[name] = np.full_like(like, np.nan)
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def at(self, frame: int | slice) -> BaselineView:
        """The fields of some steps alone; what is made already is not made again."""
        part = copy(self)
        part._made = {name: value[frame] for name, value in self._made.items()}
        return part


def gain_over(gain: float, dt: Numbers) -> Numbers:
    """1 - (1 - gain)^dt: the gain of one update after ``dt`` units of time."""
    return 1.0 - (1.0 - gain) ** dt


def _pick(condition: Mask, yes: Numbers, no: Numbers) -> Numbers:
    return np.where(_wide(condition, yes), yes, no)


def _wide(condition: Mask, array: Numbers) -> Mask:
    """One axis for each of the array's."""
    return condition.reshape(condition.shape + (1,) * (array.ndim - condition.ndim))
