"""The self-tuned ensemble beside a covariance of signals, which is judged on their time scale.

Forecasts, densities and surprise are those of the ensemble; the covariance of an estimate is that
of :mod:`kgmrf.readable.time_scale` wherever rows predict each other. A row is the ensemble's row,
then the numbers of the time scale and, with ``"auto"``, the first rows of the recording: the
integrated time is measured after 128, 256, ... 2,048 rows, and what came before is taken in again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import INVALID, STRUCTS, TIME_SCALE_PRIOR
from kgmrf.engines import Lines, core
from kgmrf.engines.ensemble import Ensemble
from kgmrf.engines.ensemble_view import EnsembleView, velocity_and_angle_var
from kgmrf.geometry import orbit
from kgmrf.model.integrated_time import FEWEST, LONGEST, THRESHOLD, integrated_time

HEAD = STRUCTS["TimeScaleHead"]
HORIZON, COUNT, SAMPLES, WEIGHT = map(HEAD.index, ("horizon", "count", "samples", "weight"))
AUTO = "auto"
NONE = np.empty((0, 0))


class TimeScale(Ensemble):
    """One track of signals; ``horizon``: rows judged ahead, or "auto".

    >>> rng = np.random.default_rng(0)
    >>> noise = rng.normal(size=(4000, 2))
    >>> signal = np.apply_along_axis(np.convolve, 0, noise, np.ones(20), "valid")
    >>> engine = TimeScale(2)
    >>> rows, n = engine.init(1), len(signal)
    >>> x = np.ascontiguousarray(signal[:, None])
    >>> lines = Lines(np.zeros(n, int), x, np.ones(n), np.ones(n), matrix=False)
    >>> found = engine.view(engine.advance(rows, lines)[1])
    >>> bool(20 < found["time_scale"][-1] < 60)
    True
    """

    def __init__(
        self, d: int, members: Iterable[Any] | None = None, horizon: float | str = AUTO
    ) -> None:
        super().__init__(d, members)
        self.shows = ScaledView
        self.ensemble = Ensemble(d, members)
        self.names: tuple[str, ...] = (*self.ensemble.names, "time_scale", "effective_samples")
        self.horizon = horizon
        self.begin = self.ensemble.size
        self.stored = self.begin + len(HEAD) + 5 * (d * (d + 1) // 2)
        self.size = self.stored + ((1 + LONGEST * (d + 1)) if horizon == AUTO else 0)
        self.record_size = self.ensemble.record_size + 2 + d * d

    # ------------------------------------------------------------------ rows

    def init(self, n_tracks: int) -> Numbers:
        """Rows ``(n, size)`` of new tracks."""
        rows = np.zeros((n_tracks, self.size))
        rows[:, : self.begin] = self.ensemble.init(n_tracks)
        for row in rows:
            self._restart(row, 0.0 if self.horizon == AUTO else float(self.horizon))
        return rows

    def _restart(self, row: Numbers, horizon: float) -> None:
        """The averages begin, with this horizon; 0: the ensemble's covariance is reported."""
        part = row[self.begin : self.stored]
        part[:] = 0.0
        part[HORIZON], part[WEIGHT] = horizon, TIME_SCALE_PRIOR

    def advance(
        self, rows: Numbers, lines: Lines, record_width: int | None = None
    ) -> tuple[Numbers, Numbers]:
        """Take in lines of one track of single rows; see :mod:`kgmrf.engines`."""
        if lines.matrix or lines.values.shape[1] != 1 or len(rows) != 1:
            raise ValueError(
                f"time_scale={self.horizon!r} follows single rows (T, d) of one track, not "
                f"{'matrices' if lines.matrix else 'blocks'} {lines.values.shape[1:]}; use "
                "time_scale=1"
            )
        own = np.ascontiguousarray(rows[:, : self.begin])
        inner = self.ensemble
        whole = record_width is None or record_width > self.small
        status, records = inner.advance(own, lines, inner.record_size if whole else record_width)
        rows[:, : self.begin] = own
        taken = np.flatnonzero((lines.counts >= 0.0) & (status != INVALID))
        x = np.where(lines.counts[taken, None] > 0.0, lines.values[taken, 0], np.nan)
        scaled = np.empty((len(taken) if whole else 0, 2 + self.d**2))
        for begin, end in self._follow(rows[0], x, lines.dt[taken], scaled):
            if whole:
                self._write(rows[0], scaled[begin:end])
        if not whole:
            return status, records
        out = np.empty((len(status), self.record_size))
        out[:, : inner.record_size] = records
        before = np.empty(2 + self.d**2)
        self._write(rows[0], before[None])
        out[:, inner.record_size :] = before
        out[taken, inner.record_size :] = scaled
        return status, out

    def _follow(
        self, row: Numbers, x: Numbers, dt: Numbers, scaled: Numbers
    ) -> Iterator[tuple[int, int]]:
        """Take in rows up to where the integrated time is measured; yields lines whose record is
        that of the row as it stands."""
        start = 0
        while start < len(x):
            end = min(len(x), start + self._until_measured(row))
            self._run(row, x[start:end], dt[start:end], scaled[start:end])
            if row[self.begin] == 0.0:
                yield start, end
            if self._measure(row, x[start:end], dt[start:end]):
                yield end - 1, end
            start = end

    def _run(self, row: Numbers, x: Numbers, dt: Numbers, scaled: Numbers) -> None:
        part = row[self.begin : self.stored]
        if part[HORIZON] == 0.0:
            return
        records = np.empty((len(x), 1 + self.d**2)) if len(scaled) else NONE
        values = np.ascontiguousarray(x)
        core.functions("time_scale").follow_time_scale(part, values, np.array(dt), records)
        if len(scaled):
            scaled[:, 0], scaled[:, 1:] = part[HORIZON], records

    def _write(self, row: Numbers, scaled: Numbers) -> None:
        """The record of a row as it stands, into each of ``scaled``: horizon, m, covariance."""
        part = row[self.begin : self.stored]
        scaled[:] = np.nan
        scaled[:, 0] = max(part[HORIZON], 1.0)
        if part[COUNT] > 0.0:
            records = np.empty((1, 1 + self.d**2))
            # A row without values, no time after the last, changes nothing.
            nothing = np.full((1, self.d), np.nan)
            core.functions("time_scale").follow_time_scale(part, nothing, np.zeros(1), records)
            scaled[:, 1:] = records

    # ------------------------------------------------------------------ the integrated time

    def _until_measured(self, row: Numbers) -> int:
        """Rows until the integrated time is measured; all there are once it is known."""
        if self.horizon != AUTO or row[self.stored] >= LONGEST:
            return 2**62
        n = int(row[self.stored])
        return next(k for k in _measured() if k > n) - n

    def _measure(self, row: Numbers, x: Numbers, dt: Numbers) -> bool:
        """Remember rows; where it is time, measure and take them in again: whether it was."""
        if self.horizon != AUTO or row[self.stored] >= LONGEST:
            return False
        n = int(row[self.stored])
        memory = row[self.stored + 1 :].reshape(LONGEST, self.d + 1)
        memory[n : n + len(x), : self.d], memory[n : n + len(x), self.d] = x, dt
        n += len(x)
        row[self.stored] = n
        if n not in _measured():
            return False
        tau = integrated_time(memory[:n, : self.d])
        self._restart(row, 2.0 * tau if tau >= THRESHOLD else 0.0)
        self._run(row, memory[:n, : self.d], memory[:n, self.d], NONE)
        if n == LONGEST:
            memory[:] = 0.0
        return True

    # ------------------------------------------------------------------ forecasts and files

    def ahead(self, rows: Numbers, dt: float) -> tuple[Numbers, Numbers]:
        """Rows and records as the ensemble forecasts; the given rows stay."""
        return self.ensemble.ahead(np.ascontiguousarray(rows[:, : self.begin]), dt)

    def records_of(self, rows: Numbers) -> Numbers:
        """Records of rows as they stand."""
        records = np.empty((len(rows), self.record_size))
        own = np.ascontiguousarray(rows[:, : self.begin])
        records[:, : self.ensemble.record_size] = self.ensemble.records_of(own)
        for row, record in zip(rows.copy(), records, strict=True):
            self._write(row, record[None, self.ensemble.record_size :])
        return records

    def view(self, records: Numbers, rows: Any = None) -> Any:
        """Named fields; of a forecast those of the ensemble."""
        if records.shape[-1] == self.ensemble.record_size:
            return self.ensemble.view(records, rows)
        return super().view(records, rows)

    def check(self, rows: Numbers) -> None:
        """Raise ValueError unless these rows could have come from this engine."""
        if rows.ndim != 2 or rows.shape[1] != self.size or rows.dtype != np.float64:
            raise ValueError(f"rows are {rows.dtype} of shape {rows.shape}, not (n, {self.size})")
        self.ensemble.check(np.ascontiguousarray(rows[:, : self.begin]))
        part = rows[:, self.begin : self.stored]
        if not np.isfinite(part).all() or (part[:, : len(HEAD)] < 0.0).any():
            raise ValueError("a time scale is negative or not finite")
        if (part[:, WEIGHT] > 1.0).any() or (
            (part[:, HORIZON] < 1.0) & (part[:, COUNT] > 0.0)
        ).any():
            raise ValueError("a time scale has a weight above 1, or rows without a horizon")
        self._check_averages(part[:, len(HEAD) :].reshape(-1, self.d * (self.d + 1) // 2))
        if self.horizon != AUTO:
            return
        kept = rows[:, self.stored]
        if not ((kept >= 0.0) & (kept <= LONGEST) & (kept == np.floor(kept))).all():
            raise ValueError("a time scale remembers an impossible number of rows")
        if np.isinf(rows[:, self.stored :]).any():
            raise ValueError("a remembered row is infinite")


def _measured() -> list[int]:
    """Numbers of rows after which the integrated time is measured."""
    found = [FEWEST]
    while found[-1] < LONGEST:
        found.append(2 * found[-1])
    return found


class ScaledView(EnsembleView):
    """The fields of an ensemble, and the covariance of its time scale where there is one."""

    def _make(self, name: str) -> dict[str, Numbers]:
        if name in ("covariance", "time_scale", "effective_samples"):
            return self._scaled()
        return super()._make(name)

    def _scaled(self) -> dict[str, Numbers]:
        engine, records = self._engine, self._records
        if records.shape[-1] != engine.record_size:
            records = self._whole(self._rows)
        part = records[..., engine.ensemble.record_size :]
        own = part[..., 2:].reshape(*part.shape[:-1], engine.d, engine.d)
        on = (part[..., 0] > 1.0) & ~np.isnan(part[..., 1])
        covariance = np.where(on[..., None, None], own, self._raw())
        return {
            "covariance": covariance,
            "time_scale": part[..., 0],
            "effective_samples": np.where(on, part[..., 1], 1.0),
        }

    def _eigen(self) -> dict[str, Numbers]:
        frame, spectrum = orbit.decompose(self["covariance"])
        return {"frame": frame, "spectrum": spectrum}

    def _velocity(self, rows: Numbers, frame: Numbers, spectrum: Numbers) -> Any:
        inner = self._engine.ensemble
        return velocity_and_angle_var(inner, rows[..., : inner.size], frame, spectrum)

    def _moving(self) -> dict[str, Numbers]:
        """How the axes turn: known where the covariance is that of the ensemble."""
        on = (self["time_scale"] > 1.0)[..., None, None]
        if on.all():
            unknown = np.full(self["covariance"].shape, np.nan)
            return {"velocity": unknown, "angle_std": unknown}
        found = super()._moving()
        return {name: np.where(on, np.nan, value) for name, value in found.items()}
