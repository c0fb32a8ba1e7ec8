"""The bank of trackers: settings, checks, ids and files around a store of tracks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from kgmrf import _check, _npz
from kgmrf._check import ObservationError, OnInvalid
from kgmrf._threads import OneAtATime
from kgmrf._time import Clock, duration
from kgmrf._types import Mask, Numbers
from kgmrf.bank.rows import Rows, Taken, processors, refuse
from kgmrf.engines import SEEN, TIME, Engine
from kgmrf.engines.law import SingleLaw
from kgmrf.factors import DENSE
from kgmrf.results import Estimate
from kgmrf.state import State
from kgmrf.trackers.kgmrf import KGMRF
from kgmrf.trackers.rotation import RotationTracker

LIGHT = 2**20
"""Bytes that a file may ask for without bringing them along."""


def _field(name: str, text: str) -> Any:
    """One field of the estimate of all tracks, without the rest of it."""
    return property(lambda bank: getattr(bank.estimate(), name), doc=text)


class TrackerBank(OneAtATime):
    """n independent trackers of dimension d as arrays, each with its own state and time.

    n_tracks, d: how many tracks, of which dimension.
    kind: "covariance" (settings as for `KGMRF`) or "rotation" (as for `RotationTracker`).
    n_threads: threads that share the tracks; None takes one per processor.
    on_invalid: what to do with an observation that cannot be used: "skip" (its track coasts; the
    default), "raise" (before anything changes) or "repair".
    settings: the other arguments of the tracker, such as gains, n_samples or noise_std.

    A track never disturbs another: each has its own time, and what is wrong with its observation
    concerns it alone. A bank of n tracks gives what n trackers give. Their unit of time is
    ``time_unit``, or the median interval of the first step that has one; times, velocities and
    half-lives are told in units of ``dt``. Rotations learn a unit for each track; covariances have
    one for all tracks: where tracks are sampled at different intervals, divide each ``dt`` by the
    usual one of its track, with ``time_unit=1``, or keep a bank for each interval.

    >>> import numpy as np
    >>> from kgmrf import TrackerBank
    >>> bank = TrackerBank(3, 2)
    >>> rng = np.random.default_rng(0)
    >>> for _ in range(50):
    ...     x = rng.normal(size=(3, 2))
    ...     x[1] = np.nan
    ...     taken = bank.update(x)
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
        n_threads: int | None = None,
        on_invalid: OnInvalid = "skip",
        **settings: Any,
    ) -> None:
        _check.choice(kind, ("covariance", "rotation"), "kind")
        _check.choice(on_invalid, ("raise", "skip", "repair"), "on_invalid")
        if n_tracks < 0 or int(n_tracks) != n_tracks:
            raise ValueError(f"n_tracks must be a whole number, 0 or more, got {n_tracks!r}")
        self.kind, self.d, self.on_invalid = kind, int(d), on_invalid
        self.n_threads = processors() if n_threads is None else int(n_threads)
        maker = KGMRF if kind == "covariance" else RotationTracker
        self._pattern: Any = maker(self.d, **settings)
        if settings.get("mean", "zero") != "zero":
            raise ValueError(
                f"mean={settings['mean']!r}: a bank takes samples of mean zero; centre them first, "
                "for example with kgmrf.centring.RunningMean"
            )
        law = self._pattern.gains
        for name, value in () if isinstance(law, str) else vars(law).items():
            if np.ndim(value) and np.shape(value) != (self.d, self.d):
                raise ValueError(
                    "a bank has one gain law for all tracks, with numbers, not arrays; "
                    f"{name} has shape {np.shape(value)}"
                )
        self._raw = self._pattern.n_samples is None  # whether samples are expected
        self._tracks = Rows(self._engine(self._raw), kind)
        self._clock: Clock = self._pattern.clock
        self.ids = np.zeros(0, dtype=np.int64)
        self._next_id = 0
        self.add(int(n_tracks))

    # ------------------------------------------------------------------ tracks come and go

    def __len__(self) -> int:
        return int(self.ids.size)

    def __repr__(self) -> str:
        return f"TrackerBank({len(self)} tracks, d={self.d}, {self._pattern!r})"

    def add(self, n_tracks: int = 1) -> Numbers:
        """Append fresh tracks; returns their ids, which stay when others are removed."""
        new = np.arange(self._next_id, self._next_id + n_tracks)
        self._tracks.add(n_tracks)
        self.ids = np.concatenate([self.ids, new])
        self._next_id += n_tracks
        return new

    def remove(self, tracks: Any) -> None:
        """Forget tracks, by position or mask; the others keep their order and ids."""
        keep = np.ones(len(self), dtype=bool)
        keep[np.asarray(tracks)] = False
        self._tracks, self.ids = self._tracks.kept(keep), self.ids[keep]

    def copy(self) -> TrackerBank:
        """An independent bank in the same state."""
        return self.select(slice(None))

    def select(self, tracks: Any) -> TrackerBank:
        """A bank of its own with some of the tracks, by position or mask."""
        twin = TrackerBank.__new__(TrackerBank)
        twin.__dict__.update(self.__getstate__())
        twin._clock = self._clock.copy()
        which = self._tracks.positions(tracks)
        twin._tracks, twin.ids = self._tracks.kept(which), self.ids[which]
        return twin

    # ------------------------------------------------------------------ steps

    def update(
        self,
        observations: Any,
        *,
        mask: Any = None,
        dt: float | Numbers = 1.0,
        n_samples: float | Numbers | None = None,
        samples: bool | None = None,
    ) -> Taken:
        """Take in one step of every track; NaN, or False in ``mask``: no observation.

        observations: samples ``(n, d)``, or with ``samples=True`` blocks ``(n, m, d)``, which count
        themselves; or matrices ``(n, d, d)``.
        mask: ``(n,)``, True where there is an observation.
        dt, n_samples: a number for all tracks, or one per track ``(n,)``. dt is the time since the
        step before, in any unit; the first step of a track is at its time 0, whatever dt says.
        """
        raw = np.ndim(observations) == 2 if samples is None else bool(samples)
        seen, there = self._checked(observations, mask, raw)
        intervals = self._per_track(_check.interval(duration(dt)), "dt")
        fresh = self._tracks.fresh
        if fresh.any() or not len(self):  # before its first step a track has no interval
            intervals = np.where(fresh, 0.0, intervals)
        clock = self._clock.copy()  # an error changes nothing
        intervals = clock.count(intervals, at_once=True)
        if raw and n_samples is not None:
            raise ObservationError("raw samples count themselves; leave out n_samples")
        counts = np.ones(1) if raw else self._pattern.counts(n_samples, there, self.d)
        step = (seen, there, counts, intervals, self.on_invalid, self.n_threads)
        with self._taking(raw=raw):
            taken = self._tracks.update(*step, matrix=not raw)
        self._clock = clock
        return taken

    @contextmanager
    def _taking(self, *, raw: bool) -> Iterator[None]:
        """The engine for samples or matrices; an error leaves the one there was."""
        before = self._raw, self._tracks
        self._take_kind(raw=raw)
        try:
            yield
        except ValueError:
            self._raw, self._tracks = before
            raise

    def _take_kind(self, *, raw: bool) -> None:
        """The first observations decide: samples of many channels have an engine of their own."""
        if self.kind == "covariance" and self._raw != raw and self._tracks.fresh.all():
            self._raw, n = raw, len(self)
            self._tracks = Rows(self._engine(raw), self.kind)
            self._tracks.add(n)

    def _engine(self, raw: bool) -> Engine:
        return self._pattern.engine(**({"raw": raw} if self.kind == "covariance" else {}))

    def _checked(self, observations: Any, mask: Any, raw: bool) -> tuple[Numbers, Mask]:
        n, d = len(self), self.d
        seen = np.asarray(_check.unmasked(observations))
        if raw and self.kind == "rotation":
            raise ObservationError("this bank follows rotations; samples make covariances")
        if raw and seen.ndim == 2:
            seen = seen[:, None, :]
        fits = seen.ndim == 3 and seen.shape[0] == n and seen.shape[-1] == d
        if not raw:
            fits = fits and seen.shape[1] == d
        if seen.dtype.kind not in "fiub" or not fits:
            wanted = f"({n}, {d}, {d})" + ("" if self.kind == "rotation" else f" or ({n}, {d})")
            raise ObservationError(
                f"observations must be real numbers of shape {wanted}, got {seen.dtype} of "
                f"shape {np.shape(observations)}; mark missing ones with NaN or mask=False"
            )
        if mask is None:
            return seen, np.ones(n, dtype=bool)
        there = np.array(mask, order="C")
        if there.dtype != bool or there.shape != (n,):
            raise ObservationError(
                f"mask must hold {n} truth values, got {there.dtype} of shape {there.shape}"
            )
        return seen, there

    def _per_track(self, array: Numbers, name: str) -> Numbers:
        if array.ndim == 0:
            return array.reshape(1)
        if array.shape != (len(self),):
            raise ObservationError(
                f"{name} has shape {array.shape}; give a number or one per track ({len(self)},)"
            )
        return array

    def take(
        self,
        tracks: Any,
        observations: Any,
        *,
        dt: Numbers,
        n_samples: Numbers | None = None,
        fields: Any = ("covariance",),
    ) -> dict[str, Numbers]:
        """Take in lines, each of one track, in order; returns the fields after each of them.

        tracks: ``(N,)`` positions; a track may come several times.
        observations: samples ``(N, d)`` or matrices ``(N, d, d)`` that were checked, NaN where
        there is none.
        dt: ``(N,)`` time since the line before of the same track.

        >>> import numpy as np
        >>> bank = TrackerBank(2, 2)
        >>> lines = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> bank.take([0, 1, 0], lines, dt=np.ones(3))["covariance"].shape
        (3, 2, 2)
        """
        which, seen = np.asarray(tracks), np.asarray(observations, dtype=float)
        n, d, names = len(which), self.d, (fields,) if isinstance(fields, str) else tuple(fields)
        matrix = seen.ndim == 3
        if which.dtype.kind not in "iu" or which.ndim != 1:
            raise IndexError(f"tracks must be positions (N,), got {which.dtype} of {which.shape}")
        if n and not (which.min() >= 0 and which.max() < len(self)):
            raise IndexError(f"tracks must be positions 0 to {len(self) - 1}, got {which}")
        if seen.shape != ((n, d, d) if matrix else (n, d)):
            raise ObservationError(
                f"{n} lines need observations ({n}, {d}) or ({n}, {d}, {d}), got {seen.shape}"
            )
        large = np.abs(seen) > _check.LARGEST_SAMPLE ** (1 + matrix)
        if large.any():
            refuse(seen, large.reshape(n, -1).any(axis=-1), "not finite or too large to square")
        counts, steps = np.empty(n), np.empty(n)
        counts[:], steps[:] = 1.0 if n_samples is None else n_samples, dt
        if not (counts >= 0.0).all() or not ((steps >= 0.0) & (steps < np.inf)).all():
            raise ObservationError(
                "dt and n_samples must be at least 0 and finite, a number or one per line; got dt "
                f"from {steps.min()} to {steps.max()}, n_samples from {counts.min()}"
            )
        told = list(dict.fromkeys(["time", *names]))
        with self._taking(raw=not matrix):
            known = self._tracks.engine.names
            for name in told:
                dense = DENSE if "loadings" in known else ()
                _check.choice(name, (*known, *dense), "every one of fields")
            at, steps = which.astype(np.int64), steps / self._clock.unit
            found = self._tracks.lines(at, seen, counts, steps, told, matrix=matrix)
        found = self._clock.told(found)
        return {name: found[name] for name in names}

    # ------------------------------------------------------------------ what is known

    def estimate(self, tracks: Any = None) -> Estimate:
        """All fields of an `Estimate`, for all tracks or some (by position or mask)."""
        return Estimate(self._clock.told(self._tracks.shown(tracks)))

    def forecast(self, steps: float = 1.0, tracks: Any = None) -> Estimate:
        """The estimates ``steps`` units of ``dt`` ahead (a timedelta: seconds); changes nothing."""
        counted = _check.ahead(duration(steps)) / self._clock.unit
        return Estimate(self._clock.told(self._tracks.forecast(counted, tracks)))

    def state(self, tracks: Any = None) -> State:
        """The `kgmrf.state.State` of all tracks or some under a single law, in float64."""
        engine = self._tracks.engine
        if not isinstance(engine, SingleLaw):
            raise ValueError('only a single law such as gains="information" has a step.State')
        rows = self._tracks.rows if tracks is None else self._tracks.kept(tracks).rows
        return engine.state(rows.copy())[0]

    @property
    def time(self) -> Numbers:
        """Time of every track, (n,)."""
        return self._tracks.rows[:, TIME] * self._clock.unit

    @property
    def age(self) -> Numbers:
        """Time since the last observation of every track, NaN before the first, (n,)."""
        return self.time - self._tracks.rows[:, SEEN] * self._clock.unit

    nis = _field("nis", "How surprising the last observation of every track was, (n,).")
    log_likelihood = _field("log_likelihood", "One-step-ahead, of every track, (n,).")
    covariance = _field("covariance", "Covariance of every track, (n, d, d).")
    rotation = _field("rotation", "Rotation of every track, (n, d, d).")

    @property
    def nbytes(self) -> int:
        """Memory of the state of all tracks."""
        return int(sum(array.nbytes for array in (self.ids, *self._tracks.memory().values())))

    # ------------------------------------------------------------------ files

    def memory(self, tracks: Any = None) -> dict[str, Numbers]:
        """All that is remembered of all tracks or some, one array per name with the tracks first:
        a snapshot, which later updates do not change."""
        return self._tracks.kept(tracks).memory()

    def restore(self, memory: dict[str, Numbers]) -> None:
        """Replace all tracks by those that `memory` gave; ValueError if they cannot be states."""
        rows = np.asarray(memory.get("rows", 0))
        # The length of their rows says which engine they had.
        if self.kind == "covariance" and rows.shape[-1:] != (self._tracks.engine.size,):
            self._take_kind(raw=not self._raw)
        self._tracks.restore(memory)
        self.ids = np.arange(len(self._tracks))
        self._next_id = len(self._tracks)

    def settings(self) -> dict[str, Any]:
        """The arguments that build a bank like this one, as plain numbers, words and lists."""
        own = {"kind": self.kind, "d": self.d}
        return {**self._pattern.settings(), **own, "on_invalid": self.on_invalid}

    def save(self, path: str | Path) -> None:
        """Write settings and tracks to one file (npz with a JSON header, nothing executable)."""
        header = {
            "kind": "bank",
            "follows": self.kind,
            "d": self.d,
            "on_invalid": self.on_invalid,
            "next_id": self._next_id,
            "clock": self._clock.numbers().tolist(),
            "settings": self._pattern.settings(),
        }
        _npz.write(path, header, {"ids": self.ids, **self._tracks.memory()})

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a bank that `save` wrote. A file from a stranger can never run code."""
        header, found = _npz.read(path)
        try:
            if header.get("kind") != "bank":
                raise ValueError("it holds something else")
            ids = found.pop("ids")
            if ids.ndim != 1 or ids.dtype != np.int64:
                raise ValueError(f"ids are {ids.dtype} of shape {ids.shape}")
            # Before room is made for it: one table of d x d at least, and one for each track.
            # Of many channels a few rows of a table.
            total, d = sum(array.nbytes for array in found.values()), int(header["d"])
            if 4 * d * min(d, 64) * max(1, ids.size) > max(LIGHT, 4 * total):
                raise ValueError(f"it is too small for {ids.size} tracks of d = {header['d']}")
            settings = {**header["settings"], "kind": header["follows"]}
            for name in ("d", "on_invalid"):
                settings[name] = header[name]
            bank = cls(0, **settings)
            bank.restore(found)
            if len(bank) != ids.size:
                raise ValueError(f"{ids.size} ids for {len(bank)} tracks")
            bank._clock.restore(np.array(header["clock"], dtype=float))
            bank.ids = ids
            bank._next_id = int(header["next_id"])
        except (*_npz.DAMAGE, AttributeError, AssertionError) as error:
            raise ValueError(f"{path} is not a bank file: {_npz.told(error)}") from error
        return bank
