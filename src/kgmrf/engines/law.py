"""One gain law as an engine: printed, zero-lag or information, for covariances or rotations.

:mod:`kgmrf.model.step` tells the formulas, :mod:`kgmrf.readable.law` and the core run them. A
record is the beginning of a row (:mod:`kgmrf.engines.law_row`).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from kgmrf._check import FASTEST
from kgmrf._types import Numbers
from kgmrf.engines import Engine, Lines, View, core, rounds
from kgmrf.engines import law_row as layout
from kgmrf.engines.law_row import LIKELIHOOD, LOG_SCALE, NIS, SEEN, TIME
from kgmrf.model import wishart
from kgmrf.model.gains import FixedGains, Gains, InformationGains
from kgmrf.model.law_state import Model, State, Surprise, support
from kgmrf.model.tail import chi_squared_tail

COVARIANCE = ("covariance", "frame", "spectrum")
CLOCKS = {"time": TIME, "nis": NIS, "log_likelihood": LIKELIHOOD}


class LawView(View):
    """Fields of records, eigenvalues descending; NaN before the first observation.

    Inside a track the frame is never sorted; here columns, velocity and angle_std are permuted
    together, and one column changes sign where the permutation would turn the frame left-handed.
    """

    def _make(self, name: str) -> dict[str, Numbers]:
        part = layout.parts(self._records, self._engine.d, self._engine.information)
        return {name: np.asarray(self._field(name, part))}

    def _field(self, name: str, part: dict[str, Numbers]) -> Numbers:
        d, clocks = self._engine.d, part["clocks"]
        if name == "age":
            return clocks[..., TIME] - clocks[..., SEEN]
        if name == "p_value":
            return chi_squared_tail(clocks[..., NIS], d * (d - 1) / 2)
        if name in CLOCKS:
            return clocks[..., CLOCKS[name]]
        frame = part["frame"].reshape(*clocks.shape[:-1], d, d)
        spectrum = part["spectrum"] * np.exp(clocks[..., LOG_SCALE])[..., None]
        if name == "covariance":
            whole = (frame * spectrum[..., None, :]) @ np.swapaxes(frame, -1, -2)
            return 0.5 * (whole + np.swapaxes(whole, -1, -2))
        axes = self._axes(part["spectrum"])
        if name == "spectrum":
            return spectrum if axes is None else np.abs(spectrum[..., None, :] @ axes)[..., 0, :]
        if name == "angle_std":
            if not self._engine.information:
                return np.full(frame.shape, np.nan)
            value = np.sqrt(layout.folded(part["p11"], d, 1.0))
            return value if axes is None else np.abs(np.swapaxes(axes, -1, -2) @ value @ axes)
        value = frame if name != "velocity" else layout.folded(part["velocity"], d, -1.0)
        if axes is not None:
            value = value @ axes
            value = value if name != "velocity" else np.swapaxes(axes, -1, -2) @ value
        unseen = np.isnan(clocks[..., SEEN] if self._engine.rotation else spectrum[..., 0])
        return np.where(unseen[..., None, None], np.nan, value)

    def _axes(self, spectrum: Numbers) -> Numbers | None:
        """The permutation ``(..., d, d)`` that sorts columns, of determinant 1; None: in order."""
        if self._engine.rotation or not (spectrum[..., 1:] > spectrum[..., :-1]).any():
            return None
        order = np.argsort(-spectrum, axis=-1, kind="stable")
        axes = np.swapaxes(np.eye(self._engine.d)[order], -1, -2)
        axes[..., -1] *= np.linalg.det(axes)[..., None]
        return axes


class SingleLaw(Engine):
    """Tracks under one law, from a common start or each from its own.

    start: a `State` with the batch axes of the tracks, or without any.
    noise_var: variance in every plane of an observed rotation; None follows covariances. Then
    numbers of the law may differ between planes (gains only) and between tracks.

    >>> from kgmrf.model.law_state import cold_state
    >>> model = Model(InformationGains(), pool_samples=10.0, pool_steps=4.0)
    >>> engine = SingleLaw(model, cold_state(np.zeros((2, 2)), model.gains))
    >>> rows, C = engine.init(1), np.tile(np.eye(2), (9, 1, 1))
    >>> line, one = np.zeros(9, dtype=int), np.ones(9)
    >>> records = engine.advance(rows, Lines(line, C, 8 * one, one))[1]
    >>> engine.view(records)["spectrum"][-1].round(2).tolist()
    [1.0, 1.0]
    """

    shows = LawView

    def __init__(self, model: Model, start: State, *, noise_var: float | None = None) -> None:
        self.model, self.noise_var = model, noise_var
        self.d, self.batch = int(start.frame.shape[-1]), tuple(start.time.shape)
        self.rotation = noise_var is not None
        self.information = isinstance(model.gains, InformationGains)
        self.size = layout.row_size(self.d, self.information)
        self.record_size = self.small = layout.record_size(self.d, self.information)
        kind = ("rotation",) if self.rotation else COVARIANCE
        self.names = (*CLOCKS, "p_value", "age", *kind, "velocity", "angle_std")
        nan = np.full(self.batch, np.nan)
        self._start = layout.rows_of(start, Surprise(nan, nan), self.information)
        self._start = self._start.reshape(-1, self.size)
        numbers = ("retention", "coast_retention", "acceleration", "angle_noise")
        self._shared = all(np.ndim(getattr(model.gains, name, 0.0)) == 0 for name in numbers)
        self._steps: tuple[float, Numbers] = (np.nan, np.zeros((1, layout.N_STEP)))
        self.plan = core_plan(model, self.d, self.batch, rotation=self.rotation)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "loop"}

    @cached_property
    def loop(self) -> Any:
        """The loop over lines, made when it is first used: readable where the core has none."""
        if self.plan is None or core.compiled() is None:
            readable = core.readable("Law")
            return readable(self.model, self.d, self.batch, rotation=self.rotation)
        return core.loop("Law", *self.plan, layout.places(self.d, self.information))

    # ------------------------------------------------------------------ verbs

    def init(self, n_tracks: int) -> Numbers:
        """Rows ``(n, size)`` of new tracks."""
        if len(self._start) not in (1, n_tracks):
            raise ValueError(f"this law is for {len(self._start)} tracks, not {n_tracks}")
        return np.array(np.broadcast_to(self._start, (n_tracks, self.size)), order="C")

    def advance(
        self, rows: Numbers, lines: Lines, record_width: int | None = None
    ) -> tuple[Numbers, Numbers]:
        """Take in lines; see :mod:`kgmrf.engines`."""
        if not lines.matrix:
            return self._samples(rows, lines, record_width)
        if self.noise_var is None:
            return self.run(rows, lines, lines.counts, record_width)
        return self.run(
            rows,
            lines,
            self.noise_var / np.where(lines.counts > 0.0, lines.counts, 1.0),
            record_width,
        )

    def run(
        self, rows: Numbers, lines: Lines, strength: Numbers, record_width: int | None = None
    ) -> tuple[Numbers, Numbers]:
        """As `advance`, of matrices; strength: their samples, or of rotations the noise variance.

        Of the counts only the sign is used.
        """
        which, seen, counts, dt, _, tolerance = lines
        status, records = self._answers(len(which), record_width)
        steps, interval = self._intervals(which, dt)
        self.loop.run(
            rows,
            which,
            seen,
            counts,
            dt,
            True,
            tolerance,
            records,
            status,
            strength,
            steps,
            interval,
        )
        return status, records

    def ahead(self, rows: Numbers, dt: float | Numbers) -> tuple[Numbers, Numbers]:
        """Rows and records after a time dt without observations; the given rows stay."""
        later, n = rows.copy(), len(rows)
        seen, steps = np.zeros((n, self.d, self.d)), np.empty(n)
        steps[:] = dt
        return later, self.advance(later, Lines(np.arange(n), seen, np.zeros(n), steps))[1]

    def records_of(self, rows: Numbers) -> Numbers:
        """Records ``(..., record_size)`` of rows as they stand."""
        return rows[..., : self.record_size]

    def _intervals(self, which: Numbers, dt: Numbers) -> tuple[Numbers, Numbers]:
        """What each distinct interval does, ``(K, 7)``, and which of them leads to each line."""
        gains = self.model.gains
        if self.plan is None:  # the readable step works them out
            return self._steps[1], np.zeros(len(dt), dtype=np.int64)
        if not self._shared:
            own = chosen(gains, self.batch, self.d, which)
            return layout.steps(own, dt), np.arange(len(dt))
        if len(dt) == 1 or (len(dt) and (dt == dt[0]).all()):
            known = self._steps  # another thread may replace it
            if dt[0] != known[0]:
                known = self._steps = dt[0], layout.steps(gains, dt[:1])
            return known[1], _FIRST if len(dt) == 1 else np.zeros(len(dt), dtype=np.int64)
        distinct, interval = np.unique(dt, return_inverse=True)
        return layout.steps(gains, distinct), interval.reshape(-1).astype(np.int64)

    # ------------------------------------------------------------------ raw samples

    def _samples(
        self, rows: Numbers, lines: Lines, record_width: int | None
    ) -> tuple[Numbers, Numbers]:
        """Lines of samples ``(N, m, d)``; missing cells enter as the forecast expects them."""
        which, blocks, counts, dt = lines[:4]
        nan = np.isnan(blocks)
        holes = (nan.any(axis=-1) & ~nan.all(axis=-1)).any()
        # Without holes no line needs the forecast from those before: all go at once.
        status, records = self._answers(len(which) if holes else 0, record_width)
        for these in rounds(which) if holes else [slice(None)]:
            outer = self._expected(rows, lines.part(these)) if holes else None
            moments, m = wishart.second_moments(blocks[these], outer)
            # All zero says nothing: a covariance is positive.
            m = np.where(np.trace(moments, axis1=-2, axis2=-1) > 0.0, m, 0.0)
            m = np.where(counts[these] > 0.0, m, counts[these])
            found = self.advance(rows, Lines(which[these], moments, m, dt[these]), record_width)
            if not holes:
                return found
            status[these] = found[0]
            if len(records):
                records[these] = found[1]
        return status, records

    def _expected(self, every: Numbers, lines: Lines) -> Numbers:
        """E[x x^T | observed cells] of every sample under the forecast for its time."""
        rows, blocks, floor = (
            every[lines.track_index],
            lines.values,
            self.model.noise_floor * np.eye(self.d),
        )
        known = self.view(self.ahead(rows, lines.dt)[1])["covariance"] + floor
        prior = np.where(np.isnan(known), wishart.plain_guess(blocks), known)
        worth = np.where(np.isnan(known[:, 0, 0]), 1.0, self.support(rows))
        return wishart.expected_outer(blocks, prior[:, None], worth[:, None])

    def support(self, rows: Numbers) -> Numbers:
        """How many samples the present estimates are worth."""
        return np.asarray(support(self.state(rows)[0]))

    # ------------------------------------------------------------------ what is seen

    def state(self, rows: Numbers) -> tuple[State, Surprise]:
        """Rows ``(..., size)`` as a `kgmrf.model.law_state.State` and the surprise of the last
        step."""
        return layout.state_of(rows, self.d, self.information)

    def view_state(self, state: State) -> View:
        """The fields of states, as of smoothed ones; they have no surprise."""
        nan = np.full(state.time.shape, np.nan)
        return self.view(
            self.records_of(layout.rows_of(state, Surprise(nan, nan), self.information))
        )

    def check(self, rows: Numbers) -> None:
        """Raise ValueError unless these rows could have come from this law."""
        super().check(rows)
        begun = rows[~np.isnan(rows[:, SEEN])]
        state = self.state(begun)[0]
        counts = (state.pooled_samples, state.pooled_steps, state.steps, state.scale_var)
        none = state.time  # not started from a pool: its counts are infinite
        parts = state._replace(seen=none, pooled_samples=none, pooled_steps=none)
        if not all(np.isfinite(part).all() for part in parts):
            raise ValueError("a track holds numbers that are not finite")
        counted = all((part >= 0.0).all() for part in counts)
        if not counted or (np.abs(state.log_scale) > 345.0).any():
            raise ValueError("a count or a variance is negative, or a scale is not possible")
        if (np.abs(state.velocity) > FASTEST).any():
            raise ValueError("a track turns too fast")
        defect = np.swapaxes(state.frame, -1, -2) @ state.frame - np.eye(self.d)
        if defect.size and np.abs(defect).max() > 1e-6:
            raise ValueError("an eigenframe is not orthonormal")
        if not (state.spectrum > 0.0).all():
            raise ValueError("an eigenvalue is not positive")
        p11, p12, p22 = (state.uncertainty[:, k] for k in range(3))
        if (p11 < 0).any() or (p22 < 0).any() or (p12**2 > (1 + 1e-6) * p11 * p22 + 1e-12).any():
            raise ValueError("an uncertainty is not positive semidefinite")
        if (state.spectrum_var < 0).any():
            raise ValueError("a variance of a log eigenvalue is negative")


def guarded(model: Model) -> Model:
    """The model with the limits that keep a track safe from outliers, jumps and long gaps."""
    gains = model.gains
    if isinstance(gains, FixedGains):
        return model._replace(limit=LIMIT)
    return model._replace(limit=LIMIT, rate_limit=RATE_LIMIT * float(np.max(gains.rate_prior)))


def chosen(gains: Gains, batch: tuple[int, ...], d: int, tracks: Numbers) -> Gains:
    """The law of some tracks, where its numbers differ between them."""

    def of(value: Any) -> Any:
        if np.ndim(value) == 0:
            return value
        array = np.asarray(value)
        own = array.shape[-2:] if array.shape[-2:] == (d, d) and array.ndim >= 2 else ()
        return np.broadcast_to(array, (*batch, *own)).reshape(-1, *own)[tracks]

    return type(gains)(**{name: of(value) for name, value in vars(gains).items()})


def core_plan(
    model: Model, d: int, batch: tuple[int, ...], *, rotation: bool
) -> layout.Plan | None:
    """The plan for the core, or None where the readable step has to do it.

    >>> core_plan(Model(InformationGains()), 200, (), rotation=False) is None
    True
    """
    largest = LARGEST_ROTATION if rotation else LARGEST
    if d > largest or model.integrator != "exponential":
        return None
    return layout.plan(model, d, batch, rotation=rotation)


_FIRST = np.zeros(1, dtype=np.int64)

LARGEST = 64
"""Up to this d the core is quicker; above, the readable step with its BLAS products is."""

LARGEST_ROTATION = 3
"""The core has the logarithm of a rotation in closed form; larger ones take the readable step."""

LIMIT = 20.0
"""An observation counts for no more than this many times the size that was expected of it."""

RATE_LIMIT = 100.0
"""var(velocity) is at most this many times its prior: .2 rad per unit time for the default."""
