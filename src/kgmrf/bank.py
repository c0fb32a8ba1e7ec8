"""Many tracks at once: one state array, one compiled pass per frame, threads beside each other."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from kgmrf import _check, _npz
from kgmrf._check import ObservationError, OnInvalid
from kgmrf._types import Mask, Numbers
from kgmrf.gains import InformationGains
from kgmrf.geometry import orbit, so
from kgmrf.kernels import engine, layout
from kgmrf.kernels.layout import LANES
from kgmrf.results import Estimate
from kgmrf.step import (
    State,
    Surprise,
    covariance_step,
    drift,
    rotation_step,
    select,
    warming,
)
from kgmrf.trackers.kgmrf import KGMRF
from kgmrf.trackers.rotation import RotationTracker

FORMAT = 1
"""Version of the bank files."""

ALONE = 512
"""A thread is not worth its while for fewer tracks than this."""

LIGHT = 2**24
"""Bytes that a file may ask for without bringing them along."""


class Taken(NamedTuple):
    """What became of the observations of one frame, one truth value per track."""

    observed: Mask
    invalid: Mask


class TrackerBank:
    """n independent trackers of dimension d as arrays: the same law, each its own state and time.

    n_tracks, d: how many tracks, of which dimension.
    kind: "covariance" (settings as for `KGMRF`) or "rotation" (as for `RotationTracker`).
    dtype: "float64", or "float32" for half the memory (the arithmetic is in double all the same).
    n_threads: threads that share the tracks; None takes one per processor.
    on_invalid: what to do with an observation that cannot be used: "skip" (its track coasts; the
    default), "raise" (before anything changes) or "repair".
    settings: the other arguments of the tracker, such as gains (one law, "information" unless told
    otherwise), n_samples or noise_std.

    A track never disturbs another: each has its own time, and what is wrong with its observation
    concerns it alone.

    >>> import numpy as np
    >>> from kgmrf.bank import TrackerBank
    >>> bank = TrackerBank(3, 2, n_samples=8)
    >>> C = np.tile(np.diag([2.0, 0.5]), (3, 1, 1))
    >>> C[1] = np.nan
    >>> for _ in range(5):
    ...     taken = bank.update(C)
    >>> taken.observed
    array([ True, False,  True])
    >>> bank.estimate().covariance.shape
    (3, 2, 2)
    """

    def __init__(
        self,
        n_tracks: int,
        d: int,
        *,
        kind: str = "covariance",
        dtype: str = "float64",
        n_threads: int | None = None,
        on_invalid: OnInvalid = "skip",
        **settings: Any,
    ) -> None:
        _check.choice(kind, ("covariance", "rotation"), "kind")
        _check.choice(on_invalid, ("raise", "skip", "repair"), "on_invalid")
        self.dtype = np.dtype(_check.choice(str(np.dtype(dtype)), ("float64", "float32"), "dtype"))
        if n_tracks < 0 or int(n_tracks) != n_tracks:
            raise ValueError(f"n_tracks must be a whole number, 0 or more, got {n_tracks!r}")
        self.kind, self.d, self.on_invalid = kind, int(d), on_invalid
        self.n_threads = len(os.sched_getaffinity(0)) if n_threads is None else int(n_threads)
        maker = KGMRF if kind == "covariance" else RotationTracker
        self._pattern: Any = maker(d, **{"gains": "information", **settings})
        if type(self._pattern) is not maker:
            raise ValueError(
                "a bank has one gain law for all tracks and does not tune itself; use "
                f'gains="information" (the default) here, or {maker.__name__}(gains="auto"), '
                "which takes a batch of tracks (n, d, d) and tunes each"
            )
        self._pattern._start((1, self.d, self.d))
        self.model = self._pattern.model
        law = layout.law(self.model, self.d, (1,), rotation=kind == "rotation")
        if law is None or law.tables.shape[0] > 1:
            raise ValueError("a bank has one gain law for all tracks, with numbers, not arrays")
        self._law = law
        self._information = isinstance(self.model.gains, InformationGains)
        self._steps: dict[float, tuple[Numbers, Numbers]] = {}
        self._next_id = 0
        self._allocate(0, np.zeros(0, dtype=np.int64))
        self.add(int(n_tracks))

    # ------------------------------------------------------------------ tracks come and go

    def __len__(self) -> int:
        return int(self.ids.size)

    def __repr__(self) -> str:
        return f"TrackerBank({len(self)} tracks, d={self.d}, {self._pattern!r})"

    def add(self, n_tracks: int = 1) -> Numbers:
        """Append fresh tracks; returns their ids, which stay when others are removed."""
        new = np.arange(self._next_id, self._next_id + n_tracks)
        held = self._unfolded()
        self._allocate(len(self) + n_tracks, np.concatenate([self.ids, new]))
        self._write(self._pattern._state, self._pattern._blank((1,)))
        self._fold(held)
        self._next_id += n_tracks
        return new

    def remove(self, tracks: Any) -> None:
        """Forget tracks, by position or mask; the others keep their order and ids."""
        keep = np.ones(len(self), dtype=bool)
        keep[np.asarray(tracks)] = False
        held = self._unfolded(keep)
        self._allocate(int(keep.sum()), self.ids[keep])
        self._fold(held)

    def copy(self) -> TrackerBank:
        """An independent bank in the same state."""
        twin = TrackerBank.__new__(TrackerBank)
        twin.__dict__.update(self.__dict__)
        for name in _ARRAYS:
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def __copy__(self) -> TrackerBank:
        return self.copy()  # a shallow one would move when the original does

    def select(self, tracks: Any) -> TrackerBank:
        """A bank of its own with some of the tracks, by position or mask."""
        twin = TrackerBank.__new__(TrackerBank)
        twin.__dict__.update(self.__dict__)
        ids = self.ids[np.asarray(tracks)]
        twin._allocate(ids.size, ids)
        twin._fold(self._unfolded(tracks))
        return twin

    def _allocate(self, n: int, ids: Numbers) -> None:
        """Room for n tracks; blocks of eight, so that up to seven at the end are nobody's."""
        d, room = self.d, -(-n // LANES) * LANES
        planes = d * (d - 1) // 2
        size = d * d + planes * (4 if self._information else 1) + 2 * d
        self.ids = ids
        self._body = np.zeros((room // LANES, size, LANES), dtype=self.dtype)
        self._clocks = np.zeros((room, 9))
        self._fresh = np.ones(room, dtype=bool)
        self._pools = np.zeros((room if self._may_pool() else 0, d * (d + 1) // 2))

    def _unfolded(self, tracks: Any = None) -> tuple[Numbers, ...]:
        """Copies of the arrays with one track per row, for all tracks or some."""
        n = len(self)
        which = np.arange(n) if tracks is None else np.arange(n)[np.asarray(tracks)]
        body = self._body[which // LANES, :, which % LANES]
        pools = self._pools[which] if self._pools.shape[0] else self._pools
        return body, self._clocks[which], self._fresh[which], pools

    def _fold(self, held: tuple[Numbers, ...]) -> None:
        """The inverse of `_unfolded`, for the first tracks."""
        body, clocks, fresh, pools = held
        n = body.shape[0]
        which = np.arange(n)
        self._body[which // LANES, :, which % LANES] = body
        self._clocks[:n], self._fresh[:n] = clocks, fresh
        if self._pools.shape[0] and pools.shape[0]:
            self._pools[:n] = pools

    def _may_pool(self) -> bool:
        return self.kind == "covariance" and self._pattern.initial is None

    # ------------------------------------------------------------------ frames

    def update(
        self,
        observations: Any,
        *,
        present: Any = None,
        dt: float | Numbers = 1.0,
        n_samples: float | Numbers | None = None,
    ) -> Taken:
        """Take in one frame: observations ``(n, d, d)``; NaN, or False in ``present``: none.

        dt, n_samples: a number for all tracks, or one per track ``(n,)``. The first frame of a
        track is at its time 0, whatever dt says.
        """
        seen, there = self._checked(observations, present)
        counts = self._counts(n_samples)
        intervals = self._per_track(_check.interval(dt), "dt")
        steps, which = self._intervals(intervals)
        if not engine.compiles(self.d, self.kind == "rotation"):
            return self._update_readable(seen, there, counts, intervals)
        tolerance = self._tolerance()
        if self.on_invalid != "skip":
            status = self._pass(seen, there, counts, steps, which, tolerance, only_check=True)
            if (status == engine.INVALID).any():
                seen, there = self._mended(seen, there, status == engine.INVALID)
            tolerance = -1.0
        status = self._pass(seen, there, counts, steps, which, tolerance, only_check=False)
        if self._pools.shape[0] and not self._warming().any():
            self._pools = self._pools[:0]
        return Taken(status == engine.OBSERVED, status == engine.INVALID)

    def _intervals(self, dt: Numbers) -> tuple[Numbers, Numbers]:
        """What each distinct interval does, after one of no length, and which each track takes."""
        if dt.size == 1 and dt.item() in self._steps:
            return self._steps[dt.item()]
        distinct, which = np.unique(dt, return_inverse=True)
        steps = layout.steps(self.model.gains, np.concatenate([[0.0], distinct]))
        pair = steps, np.ascontiguousarray(which.reshape(-1) + 1, dtype=np.int64)
        if dt.size == 1:
            self._steps = {dt.item(): pair}
        return pair

    def _pass(
        self,
        seen: Numbers,
        there: Mask,
        counts: Numbers,
        steps: Numbers,
        which: Numbers,
        tolerance: float,
        *,
        only_check: bool,
    ) -> Numbers:
        """One compiled pass over all tracks, shared out among the threads."""
        blocks, n = self._body.shape[0], len(self)
        status = np.zeros(n, dtype=np.int8)
        step = engine.step_many(str(self.dtype))
        law, body = self._law, self._body.reshape(-1)

        def part(begin: int, end: int) -> None:
            step(
                body,
                self._clocks,
                self._pools,
                seen,
                there,
                self._fresh,
                counts,
                steps,
                which,
                law.head,
                law.tables,
                law.known,
                tolerance,
                only_check,
                begin,
                end,
                status,
            )

        threads = max(1, min(self.n_threads, n // ALONE))
        if threads == 1:
            with np.errstate(invalid="ignore"):  # for when the compiler is switched off
                part(0, blocks)
            return status
        edges = np.linspace(0, blocks, threads + 1).astype(int)
        list(_pool(threads).map(part, edges[:-1].tolist(), edges[1:].tolist()))
        return status

    def _update_readable(
        self, seen: Numbers, there: Mask, counts: Numbers, intervals: Numbers
    ) -> Taken:
        state = self.state()
        matrices = np.asarray(seen, dtype=float)
        observed = there & ~np.isnan(matrices).all(axis=(-2, -1))
        broken = observed & ~np.isfinite(matrices).all(axis=(-2, -1))
        if self.on_invalid == "raise" and broken.any():
            self._mended(seen, there, broken)
        matrices = np.where(broken[:, None, None], np.nan, matrices)
        how: OnInvalid = self.on_invalid
        rough = self.dtype == np.float32
        check = _check.covariances if self.kind == "covariance" else _check.rotations
        matrices, used = check(matrices, observed & ~broken, "observations", how, rough)
        if self.kind == "rotation":
            matrices = so.project(matrices)
        n = len(self)
        dt = np.where(self._fresh[:n], 0.0, np.broadcast_to(intervals, (n,)))
        m = np.broadcast_to(counts, (n,))
        if n:
            step = covariance_step if self.kind == "covariance" else rotation_step
            new, surprise = step(state, self.model, matrices, m, dt, used)
            self._write(new, surprise)
        self._fresh[:] = False
        return Taken(used, observed & ~used)

    def _mended(self, seen: Numbers, there: Mask, invalid: Mask) -> tuple[Numbers, Mask]:
        """Observations that can be used, or an error that says what is wrong with the first."""
        which = np.flatnonzero(invalid)
        matrices = np.asarray(seen[which], dtype=float)
        finite = np.isfinite(matrices).all(axis=(-2, -1))
        rough = self.dtype == np.float32
        check = _check.covariances if self.kind == "covariance" else _check.rotations
        name = f"observations[{which[0]}] (and {which.size - 1} others)"
        if self.on_invalid == "raise":
            if not finite[0]:
                raise ObservationError(
                    f"{name} is not finite or partly NaN; a missing matrix is all NaN"
                )
            check(matrices[0], np.asarray(True), name, "raise", rough)
            raise ObservationError(f"{name} cannot be used")  # at the edge of a tolerance
        mended, used = check(matrices, finite, "observations", "repair", rough)
        if self.kind == "rotation":
            mended = so.project(mended)
        seen, there = seen.copy(), there.copy()
        seen[which] = mended
        there[which] = used
        return seen, there

    def _tolerance(self) -> float:
        if self.kind == "rotation":
            return 1e-3 if self.dtype == np.float32 else engine.ROTATION_TOLERANCE
        return 1e-4 if self.dtype == np.float32 else _check.SYMMETRY_TOLERANCE

    def _checked(self, observations: Any, present: Any) -> tuple[Numbers, Mask]:
        n, d = len(self), self.d
        seen = np.asarray(_check.unmasked(observations))
        if seen.dtype.kind not in "fiub" or seen.shape != (n, d, d):
            raise ObservationError(
                f"observations must be real numbers of shape {(n, d, d)}, got {seen.dtype} of "
                f"shape {seen.shape}; mark missing ones with NaN or present=False"
            )
        seen = np.ascontiguousarray(seen, dtype=self.dtype)
        if not seen.flags.writeable:
            seen = seen.copy()
        if present is None:
            return seen, np.ones(n, dtype=bool)
        there = np.array(present, order="C")
        if there.dtype != bool or there.shape != (n,):
            raise ObservationError(
                f"present must hold {n} truth values, got {there.dtype} of shape {there.shape}"
            )
        return seen, there

    def _counts(self, n_samples: float | Numbers | None) -> Numbers:
        value = self._pattern.n_samples if n_samples is None else n_samples
        if value is None:
            if self._pattern._needs_samples:
                raise ObservationError(
                    "how many samples are behind each matrix? Give n_samples to this call or at "
                    "construction"
                )
            value = 1.0
        counts = _check.positive(value, "n_samples", "it counts the samples behind each matrix")
        return np.ascontiguousarray(self._pattern._strength(self._per_track(counts, "n_samples")))

    def _per_track(self, array: Numbers, name: str) -> Numbers:
        if array.ndim == 0:
            return array.reshape(1)
        if array.shape != (len(self),):
            raise ObservationError(
                f"{name} has shape {array.shape}; give a number or one per track ({len(self)},)"
            )
        return array

    # ------------------------------------------------------------------ what is known

    def estimate(self, tracks: Any = None) -> Estimate:
        """All fields of an `Estimate`, for all tracks or some (by position or mask)."""
        state, surprise = self._read(tracks)
        return Estimate(lambda: self._pattern._view(state, surprise))

    def forecast(self, steps: float = 1.0, tracks: Any = None) -> Estimate:
        """The estimates ``steps`` units of time ahead; changes nothing."""
        ahead = _check.ahead(steps)
        state, surprise = self._read(tracks)
        idle = np.isnan(state.seen)
        if self.kind == "covariance":
            idle = idle | np.asarray(warming(state, self.model))
        dt = np.full_like(state.time, ahead)
        later = drift(state, self.model, dt, np.zeros(dt.shape, dtype=bool))
        state = select(idle, state._replace(time=later.time), later)
        nothing = Surprise(*(np.full_like(part, np.nan) for part in surprise))
        return Estimate(lambda: self._pattern._view(state, nothing))

    def state(self, tracks: Any = None) -> State:
        """The `kgmrf.step.State` of all tracks or some, as a batch in float64."""
        return self._read(tracks)[0]

    @property
    def time(self) -> Numbers:
        """Time of every track, (n,)."""
        return self._clocks[: len(self), 4]

    @property
    def age(self) -> Numbers:
        """Time since the last observation of every track, NaN before the first, (n,)."""
        clocks = self._clocks[: len(self)]
        return clocks[:, 4] - clocks[:, 5]

    @property
    def nis(self) -> Numbers:
        """Normalised innovation squared of every track at the last frame, (n,)."""
        return self._clocks[: len(self), 7]

    @property
    def log_likelihood(self) -> Numbers:
        """One-step-ahead log-likelihood of every track at the last frame, (n,)."""
        return self._clocks[: len(self), 8]

    @property
    def covariance(self) -> Numbers:
        """Covariance of every track, (n, d, d), without the rest of an estimate."""
        if self.kind == "rotation":
            raise AttributeError("this bank follows rotations and has no covariance")
        d, n = self.d, len(self)
        at = self._body.shape[1] - 2 * d
        spectrum = self._rows(at, at + d) * np.exp(self._clocks[:n, :1])
        return orbit.compose(self._rows(0, d * d).reshape(n, d, d), spectrum)

    @property
    def rotation(self) -> Numbers:
        """Rotation of every track, (n, d, d), without the rest of an estimate."""
        if self.kind == "covariance":
            raise AttributeError("this bank follows covariances and has no rotation")
        d, n = self.d, len(self)
        unseen = np.isnan(self._clocks[:n, 5, None, None])
        return np.where(unseen, np.nan, self._rows(0, d * d).reshape(n, d, d))

    def _rows(self, begin: int, end: int) -> Numbers:
        """Some of the numbers of every track, (n, end - begin), in float64."""
        part = np.swapaxes(self._body[:, begin:end], 1, 2).reshape(-1, end - begin)
        return part[: len(self)].astype(np.float64)

    @property
    def nbytes(self) -> int:
        """Memory of the state of all tracks."""
        return sum(int(getattr(self, name).nbytes) for name in _ARRAYS)

    def _warming(self) -> Mask:
        model = self.model
        samples, frames = self._clocks[: len(self), 2:4].T
        return np.asarray((samples < model.warmup_samples) & (frames < model.warmup_frames))

    def _read(self, tracks: Any) -> tuple[State, Surprise]:
        rows, clocks, _, pools = self._unfolded(tracks)
        body = rows.astype(np.float64)
        d, n = self.d, body.shape[0]
        planes = d * (d - 1) // 2
        upper, lower = _triangles(d)
        at = d * d

        def folded(sign: float) -> Numbers:
            nonlocal at
            full = np.zeros((n, d * d))
            full[:, upper] = body[:, at : at + planes]
            full[:, lower] = sign * body[:, at : at + planes]
            at += planes
            return full.reshape(n, d, d)

        velocity = folded(-1.0)
        uncertainty = np.zeros((n, 3, d, d))
        if self._information:
            for k in range(3):
                uncertainty[:, k] = folded(1.0)
        pool = np.zeros((n, d, d))
        if pools.shape[0]:
            low, high = np.tril_indices(d)
            pool[:, low, high] = pools
            pool[:, high, low] = pools
        fields = dict(zip(layout.SCALARS + layout.SURPRISES, clocks.T, strict=True))
        surprise = Surprise(*(fields.pop(name) for name in layout.SURPRISES))
        state = State(
            frame=body[:, : d * d].reshape(n, d, d),
            spectrum=body[:, at : at + d],
            velocity=velocity,
            uncertainty=uncertainty,
            spectrum_var=body[:, at + d : at + 2 * d],
            pool=pool,
            **fields,
        )
        return state, surprise

    def _write(self, state: State, surprise: Surprise) -> None:
        """One state per track, or one for all."""
        d, n = self.d, len(self)
        upper, _ = _triangles(d)
        matrices = [state.velocity]
        if self._information:
            matrices += [state.uncertainty[:, k] for k in range(3)]
        parts = [state.frame.reshape(-1, d * d)]
        parts += [matrix.reshape(-1, d * d)[:, upper] for matrix in matrices]
        rows = np.concatenate([*parts, state.spectrum, state.spectrum_var], axis=-1)
        if rows.shape[0] == 1:
            self._body[:] = rows[:, :, None]
        else:
            which = np.arange(n)
            self._body[which // LANES, :, which % LANES] = rows
        numbers = [getattr(state, name) for name in layout.SCALARS] + list(surprise)
        end = None if rows.shape[0] == 1 else n
        self._clocks[:end] = np.stack(numbers, axis=-1)
        if self._pools.shape[0]:
            low, high = np.tril_indices(d)
            self._pools[:end] = state.pool[:, low, high]

    # ------------------------------------------------------------------ files

    def settings(self) -> dict[str, Any]:
        """The arguments that build a bank like this one, as plain numbers, words and lists."""
        own = {"kind": self.kind, "d": self.d, "dtype": str(self.dtype)}
        return {**self._pattern.settings(), **own, "on_invalid": self.on_invalid}

    def save(self, path: str | Path) -> None:
        """Write settings and tracks to one file (npz with a JSON header, nothing executable)."""
        header = {
            "format": FORMAT,
            "kind": self.kind,
            "d": self.d,
            "dtype": str(self.dtype),
            "on_invalid": self.on_invalid,
            "next_id": self._next_id,
            "settings": self._pattern.settings(),
        }
        text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        with open(path, "wb") as file:
            arrays: dict[str, Any] = {name.strip("_"): getattr(self, name) for name in _ARRAYS}
            np.savez(file, bank=text, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a bank that `save` wrote. A file from a stranger can never run code."""
        try:
            found = _npz.read_all(path)
            header = json.loads(bytes(found["bank"]).decode())
            if header["format"] != FORMAT:
                raise ValueError(f"it has format {header['format']}, this version reads {FORMAT}")
            arrays = {name: found[name.strip("_")] for name in _ARRAYS}
            ids = arrays["ids"]
            if ids.ndim != 1 or ids.dtype.kind not in "iu":
                raise ValueError(f"ids are {ids.dtype} of shape {ids.shape}")
            # Before room is made for it: one table of d x d at least, and one for each track.
            frames = 8 * int(header["d"]) ** 2 * max(1, ids.size)
            if frames > max(LIGHT, 2 * arrays["_body"].nbytes):
                raise ValueError(f"it is too small for {ids.size} tracks of d = {header['d']}")
            settings = {**header["settings"]}
            for name in ("kind", "d", "dtype", "on_invalid"):
                settings[name] = header[name]
            bank = cls(0, **settings)
            bank._allocate(ids.size, ids)
            for name, array in arrays.items():
                own = getattr(bank, name)
                none = name == "_pools" and array.shape == (0, *own.shape[1:])
                if array.dtype != own.dtype or not (array.shape == own.shape or none):
                    raise ValueError(f"{name} has shape {array.shape} and type {array.dtype}")
                setattr(bank, name, np.ascontiguousarray(array))
            bank._next_id = int(header["next_id"])
        except (FileNotFoundError, IsADirectoryError, PermissionError):
            raise
        except (*_npz.DAMAGE, AttributeError, AssertionError) as error:
            raise ValueError(f"{path} is not a bank file: {error}") from error
        return bank


_ARRAYS = ("ids", "_body", "_clocks", "_fresh", "_pools")


@lru_cache(maxsize=4)
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that stay, for starting them takes longer than many an update."""
    return ThreadPoolExecutor(threads, thread_name_prefix="kgmrf-bank")


def _triangles(d: int) -> tuple[Numbers, Numbers]:
    rows, columns = np.triu_indices(d, 1)
    return rows * d + columns, columns * d + rows
