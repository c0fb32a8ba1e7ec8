"""The bank of trackers: the rows of an engine, one per track, with settings, ids and files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kgmrf import _check, _time
from kgmrf._align import aligned
from kgmrf._check import ObservationError, OnInvalid
from kgmrf._names import from_names
from kgmrf._time import Clock, duration
from kgmrf._types import Numbers
from kgmrf.bank.capacity import extend
from kgmrf.bank.keyed import Keyed
from kgmrf.bank.means import LinearMeans, lags_of
from kgmrf.bank.saved import MEMORY, Saved
from kgmrf.bank.shown import Shown
from kgmrf.bank.steps import (
    TOLERANCES,
    UpdateStatus,
    checked,
    checked_lines,
    checked_rates,
    in_parts,
    one_law,
    processors,
    refuse,
    repaired,
    too_large,
)
from kgmrf.engines import INVALID, OBSERVED, TRUST, Engine, Lines, rounds
from kgmrf.engines.law import SingleLaw
from kgmrf.linear_mean import WithMean
from kgmrf.model.factors import DENSE
from kgmrf.model.law_state import State
from kgmrf.results import Estimate
from kgmrf.trackers.kgmrf import KGMRF
from kgmrf.trackers.rotation import RotationTracker


class TrackerBank(Shown, Keyed, LinearMeans, Saved):
    """n independent trackers of dimension d as arrays, each with its own state and time.

    A track never disturbs another: each has its own time, and what is wrong with its observation
    concerns it alone. A bank of n tracks gives what n trackers give. Their unit of time is
    ``time_unit``, or the median interval of the first step that has one; times, velocities and
    half-lives are in units of ``dt``. Rotations learn a unit for each track; covariances have
    one for all tracks: where tracks are sampled at different intervals, divide each ``dt`` by the
    usual one of its track, with ``time_unit=1``, or keep a bank for each interval.

    Parameters
    ----------
    n_tracks, d : int
        How many tracks, of which dimension.
    kind : str, default "covariance"
        "covariance" (settings as for `KGMRF`) or "rotation" (as for `RotationTracker`).
    n_threads : int, default None
        Threads that share the tracks; None takes one per processor.
    on_invalid : {"raise", "skip", "repair"}, default "skip"
        "skip": the track coasts, for one bad row must not stop the others; "raise" before anything
        changes.
    **settings
        Of the tracker, such as gains or n_samples. With ``mean="linear"`` (single rows), d channels
        and p lags, a track holds 3 + 3 d + N + N d + N^2 numbers more, N = p d.

    Examples
    --------
    >>> import numpy as np
    >>> from kgmrf import TrackerBank
    >>> bank = TrackerBank(3, 2)
    >>> bank.update([[1.0, 2.0], [np.nan, np.nan], [0.5, 0.1]]).observed
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
        self._lags = lags_of(settings)
        if settings.get("late", "raise") != "raise":
            raise ValueError("late='replay' is for a RotationTracker; a bank keeps no steps")
        if settings.get("time_scale") not in (None, 1):
            raise ValueError(
                f"time_scale={settings['time_scale']!r}: a bank judges one row ahead; use a KGMRF "
                "for each signal"
            )
        one_law(self._pattern.gains, self.d)
        self._raw = self._pattern.n_samples is None  # whether samples are expected
        self._clock: Clock = self._pattern.clock
        self.ids = np.arange(int(n_tracks), dtype=np.int64)
        self._next_id = int(n_tracks)
        self.channels: tuple[str, ...] | None = None  # names, if a table had some
        self._missing: set[str] = set()
        self._begin()

    def _begin(self) -> None:
        """All tracks again, with the engine for samples or for matrices."""
        raw = {"raw": self._raw} if self.kind == "covariance" else {}
        self._engine: Engine = self._pattern.engine(**raw)
        self._check_no_factors()
        self._rows, self._records, self._fresh, self._means = self._new(len(self))

    def _new(self, n: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        engine, rows = self._engine, self._engine.init(n)
        records = engine.records_of(rows) if engine.kept and n else np.zeros((n, engine.kept))
        return rows, records, np.ones(n, dtype=bool), self._new_means(n)

    def __len__(self) -> int:
        return int(self.ids.size)

    def __repr__(self) -> str:
        return f"TrackerBank({len(self)} tracks, d={self.d}, {self._pattern!r})"

    def add(self, n_tracks: int = 1) -> Numbers:
        """Append fresh tracks; returns their ids, which stay when others are removed."""
        new = np.arange(self._next_id, self._next_id + n_tracks)
        for name, blank in zip(MEMORY, self._new(1), strict=True):
            extend(self.__dict__, f"_{name}", n_tracks, blank[0])
        self.ids = np.concatenate([self.ids, new])
        self._next_id += n_tracks
        return new

    def remove(self, tracks: Any) -> None:
        """Forget tracks, by position or mask; the others keep their order and ids."""
        keep = np.ones(len(self), dtype=bool)
        keep[np.asarray(tracks)] = False
        self._keep(np.flatnonzero(keep))

    def _keep(self, which: Numbers) -> None:
        for name in (*(f"_{name}" for name in MEMORY), "ids"):
            setattr(self, name, getattr(self, name)[which])  # positions: a copy
        self._keep_keys(which)

    def _positions(self, tracks: Any) -> Numbers:
        """Positions ``(k,)`` of tracks that are given by position, mask or slice; None: all."""
        if tracks is None:
            tracks = slice(None)
        some = tracks if isinstance(tracks, slice) else np.asarray(tracks)
        return np.atleast_1d(np.arange(len(self))[some])

    def copy(self) -> TrackerBank:
        """An independent bank in the same state."""
        return self.select(slice(None))

    def __setstate__(self, state: dict[str, Any]) -> None:
        # From another process the numbers may lie anywhere in a buffer that cannot be written to.
        self.__dict__.update(state)
        for name in MEMORY:
            part = getattr(self, f"_{name}")
            setattr(self, f"_{name}", np.require(part, None, ["C", "A", "W"]))

    def select(self, tracks: Any) -> TrackerBank:
        """A bank of its own with some of the tracks, by position or mask."""
        twin = TrackerBank.__new__(TrackerBank)
        twin.__dict__.update(self.__getstate__())
        twin._clock = self._clock.copy()
        twin._keep(self._positions(tracks))
        return twin

    def put(self, tracks: Any, other: TrackerBank) -> None:
        """Replace tracks, by position, by those of a bank that `select` made."""
        for name in MEMORY:
            getattr(self, f"_{name}")[np.asarray(tracks)] = getattr(other, f"_{name}")

    # ------------------------------------------------------------------ steps

    def update(
        self,
        observations: Any,
        *,
        mask: Any = None,
        dt: float | Numbers = 1.0,
        n_samples: float | Numbers | None = None,
        samples: bool | None = None,
        rate: Any = None,
        rate_std: float | None = None,
    ) -> UpdateStatus:
        """Take in one step of every track; NaN, or False in ``mask``: no observation.

        observations: samples ``(n, d)``, or with ``samples=True`` blocks ``(n, m, d)``, which count
        themselves; or matrices ``(n, d, d)``. A table has a row per track; the next one is put in
        the order of its channels.
        mask: ``(n,)``, True where there is an observation.
        dt, n_samples: a number for all tracks, or one per track ``(n,)``. dt is the time since the
        step before, in any unit; the first step of a track is at its time 0, whatever dt says.
        rate: of rotations, measured angular rates ``(n, 3)``, or ``(3,)`` for all; rows of NaN have
        none. rate_std: standard deviation of their noise. See `RotationTracker.update`. With rates
        observations may be None.
        """
        rates = checked_rates(rate, rate_std, len(self))
        if observations is None and rates is not None:
            observations = np.full((len(self), self.d, self.d), np.nan)
        named = from_names(observations)
        named = aligned(named, self.channels, self._missing)
        observations = named.values
        raw = np.ndim(observations) == 2 if samples is None else bool(samples)
        seen, there = checked(observations, mask, len(self), self.d, self.kind, raw)
        intervals = _time.interval(duration(dt))
        if intervals.ndim and intervals.shape != (len(self),):
            raise ObservationError(
                f"dt has shape {intervals.shape}; give a number or one per track ({len(self)},)"
            )
        # Before its first step a track has no interval.
        intervals = np.where(self._fresh, 0.0, intervals)
        clock = self._clock.copy()  # an error changes nothing
        intervals = clock.count(intervals, at_once=True)
        _time.within_reach(intervals, clock.unit, "dt")
        if raw and n_samples is not None:
            raise ObservationError("n_samples is inferred for raw samples: leave it out")
        counts = np.ones(1) if raw else self._pattern.counts(n_samples, there, self.d)
        with self._rollback():
            self._check_single_rows(seen, raw)
            self._take_kind(raw=raw, rated=rates is not None)
            taken = self._step(seen, np.where(there, counts, 0.0), intervals, raw, rates)
        self._clock, self.channels = clock, named.channels or self.channels
        return taken

    @contextmanager
    def _rollback(self) -> Iterator[None]:
        """Any error leaves the engine and the tracks that there were.

        Rows are written to by loops alone, and none raises after it has begun to write.
        """
        names = ("_raw", "_pattern", "_engine", *(f"_{name}" for name in MEMORY), "ids")
        before = {name: getattr(self, name) for name in names}
        try:
            yield
        except BaseException:
            self.__dict__.update(before)
            raise

    def _take_kind(self, *, raw: bool, rated: bool = False) -> None:
        """The first observations decide: samples of many channels have an engine of their own, and
        so have rotations with rates."""
        if self.kind == "covariance" and self._raw != raw and self._fresh.all():
            self._raw = raw
            self._begin()
        if not rated:
            return
        if self.kind != "rotation" or not self._pattern.automatic or self.d != 3:
            raise ObservationError(
                "rates need a bank of rotations in three dimensions with gains='auto'"
            )
        if not self._pattern.gyroscope:
            if self._pattern.gyroscope is not None or not self._fresh.all():
                raise ObservationError(
                    "this bank began without rates: give some with the first step, or construct "
                    "TrackerBank(..., kind='rotation', gyroscope=True)"
                )
            self._pattern = self._pattern.with_settings(gyroscope=True)
            self._begin()

    def _step(
        self, seen: Numbers, m: Numbers, dt: Numbers, raw: bool, rates: Numbers | None = None
    ) -> UpdateStatus:
        """Take in one step of every track: ``(n, r, d)`` samples or ``(n, d, d)`` matrices."""
        engine, n = self._engine, len(self)
        is_float32 = seen.dtype == np.float32
        seen = np.require(seen, float, ["C", "A", "W"])
        tolerance, invalid = TRUST, np.zeros(n, dtype=bool)
        if raw:
            invalid = too_large(seen, m)
            if invalid.any() and self.on_invalid != "skip":
                refuse(seen, invalid, "not finite or too large to square")
            m[invalid] = 0.0
        elif self.on_invalid == "skip":
            tolerance = TOLERANCES[self.kind][is_float32]
        else:
            seen, m = repaired(self.kind, seen, m, self.on_invalid, is_float32)
        which, status = np.arange(n), np.zeros(n, dtype=np.int8)

        def part(begin: int, end: int) -> None:
            these = slice(begin, end)
            lines = Lines(which[these], seen[these], m[these], dt[these], not raw, tolerance)
            if self._lags:
                lines = self._without_mean(lines)[0]
            more = {} if rates is None else {"rates": rates[these]}
            found, records = engine.advance(self._rows, lines, engine.kept, **more)
            status[these] = found
            if engine.kept:
                self._records[these] = records
            bad = which[these][found == INVALID]
            if bad.size:  # what cannot be used counts as missing
                none = np.zeros(bad.size)
                lost = None if rates is None else rates[bad]
                self._advance(Lines(bad, seen[bad], none, dt[bad]), engine.kept, lost)

        in_parts(part, n, self.n_threads)
        self._fresh[:] = False
        return UpdateStatus(status == OBSERVED, invalid | (status == INVALID))

    def _advance(
        self, lines: Lines, record_width: int | None, rates: Numbers | None = None
    ) -> Numbers:
        """Lines of any tracks, trusted; their records."""
        more = {} if rates is None else {"rates": rates}
        found = self._engine.advance(self._rows, lines, record_width, **more)[1]
        if self._engine.kept:
            self._records[lines.track_index] = found  # of lines of one track the last counts
        return found

    def feed(
        self,
        tracks: Any,
        observations: Any,
        *,
        dt: Numbers,
        n_samples: Numbers | None = None,
        fields: Any = ("covariance",),
        rates: Any = None,
        rate_std: float | None = None,
    ) -> dict[str, Numbers]:
        """Take in lines, each of one track, in order; returns the fields after each of them.

        tracks: ``(N,)`` positions; a track may come several times.
        observations: samples ``(N, d)`` or matrices ``(N, d, d)`` that were checked, NaN where
        there is none.
        dt: ``(N,)`` time since the line before of the same track.
        rates: ``(N, 3)``, rate_std: as for `update`, at each line.

        >>> import numpy as np
        >>> bank = TrackerBank(2, 2)
        >>> lines = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
        >>> bank.feed([0, 1, 0], lines, dt=np.ones(3))["covariance"].shape
        (3, 2, 2)
        """
        lines = checked_lines(tracks, observations, dt, n_samples, len(self), self.d)
        measured = checked_rates(rates, rate_std, len(lines.track_index))
        names = (fields,) if isinstance(fields, str) else tuple(fields)
        shown = list(dict.fromkeys(["time", *names]))
        with self._rollback():
            self._check_single_rows(lines.values, not lines.matrix)
            self._take_kind(raw=not lines.matrix, rated=measured is not None)
            known = (*self._engine.names, *("mean",) * (self._lags > 0))
            for name in shown:
                dense = DENSE if "loadings" in known else ()
                _check.choice(name, (*known, *dense), "every one of fields")
            unit = self._clock.unit
            counted = lines._replace(dt=_time.within_reach(lines.dt / unit, unit, "dt"))
            found = Estimate(self._clock.in_stamp_units(self._lines(counted, shown, measured)))
            return {name: np.asarray(getattr(found, name), dtype=float) for name in names}

    def _lines(self, lines: Lines, fields: list[str], rates: Numbers | None = None) -> Any:
        """As `feed`, of lines that were checked; which lines come in one call changes nothing."""
        engine, n, rows = self._engine, len(lines.track_index), None
        if self._lags:
            lines, means = self._without_mean(lines)
            fields = [name for name in fields if name != "mean"]
        if set(engine.from_rows) & set(fields):
            records, rows = np.empty((n, engine.record_size)), np.empty((n, engine.size))
            for these in rounds(lines.track_index):
                records[these] = self._advance(lines.part(these), None)
                rows[these] = self._rows[lines.track_index[these]]
        else:
            records = self._advance(lines, engine.record_width(tuple(fields)), rates)
        self._fresh[lines.track_index] = False
        view = engine.view(records, rows)
        return WithMean(view, means) if self._lags else view

    def estimate(self, tracks: Any = None) -> Estimate:
        """All fields of an `Estimate`, for all tracks or some (by position or mask)."""
        engine, which = self._engine, self._positions(tracks)
        rows = self._rows[which]
        records = self._records[which] if engine.kept else rows[:, : engine.small]
        view = self._with_last_mean(engine.view(records, rows), which)
        return Estimate(self._clock.in_stamp_units(view)).with_labels(self.channels)

    def forecast(self, steps: float = 1.0, tracks: Any = None) -> Estimate:
        """The estimates ``steps`` units of ``dt`` ahead (a timedelta: seconds); changes nothing."""
        unit = self._clock.unit
        counted = _time.within_reach(_time.horizon(duration(steps)) / unit, unit, "steps")
        view = self._predicted_values(counted, self._positions(tracks))
        return Estimate(self._clock.in_stamp_units(view)).with_labels(self.channels)

    def state(self, tracks: Any = None) -> State:
        """The `kgmrf.model.law_state.State` of all tracks or some under a single law, in
        float64."""
        if not isinstance(self._engine, SingleLaw):
            raise ValueError('only a single law such as gains="information" has a step.State')
        return self._engine.state(self._rows[self._positions(tracks)])[0]
