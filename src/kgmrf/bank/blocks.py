"""Tracks of one gain law in blocks of eight: the lanes of the compiled loop are tracks."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf import _check, wishart
from kgmrf._check import ObservationError, OnInvalid
from kgmrf._types import Mask, Numbers
from kgmrf.bank.shared import Taken, in_parts, rounds
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
    support,
    warming,
)
from kgmrf.trackers._files import check_state


class Blocks:
    """n tracks under the law of ``pattern``, a tracker with a batch of one."""

    _arrays = ("_body", "_clocks", "_fresh", "_pools")

    def __init__(self, pattern: Any, dtype: Any, n_threads: int) -> None:
        self.kind, self.d = pattern.kind, pattern.d
        self.dtype, self.n_threads, self._pattern = dtype, n_threads, pattern
        pattern._start((1, self.d, self.d))
        self.model = pattern.model
        law = layout.law(self.model, self.d, (1,), rotation=self.kind == "rotation")
        if law is None or law.tables.shape[0] > 1:
            raise ValueError("a bank has one gain law for all tracks, with numbers, not arrays")
        self._law = law
        self._information = isinstance(self.model.gains, InformationGains)
        self._steps: dict[float, tuple[Numbers, Numbers]] = {}
        self._pools: Numbers
        self._allocate(0)

    def __len__(self) -> int:
        return self._n

    def add(self, n_tracks: int) -> None:
        """Append fresh tracks."""
        held = self._unfolded()
        self._allocate(len(self) + n_tracks)
        self._write(self._pattern._state, self._pattern._blank((1,)))
        self._fold(held)

    def kept(self, tracks: Any) -> Blocks:
        """Tracks of their own: some of these."""
        twin = self._twin()
        held = self._unfolded(tracks)
        twin._allocate(held[0].shape[0])
        twin._fold(held)
        return twin

    def copy(self) -> Blocks:
        """Independent tracks in the same state."""
        twin = self._twin()
        for name in self._arrays:
            setattr(twin, name, getattr(self, name).copy())
        return twin

    def _twin(self) -> Blocks:
        twin = Blocks.__new__(Blocks)
        twin.__dict__.update(self.__dict__)
        return twin

    def memory(self) -> dict[str, Numbers]:
        """All that is remembered, one array per name with the tracks first."""
        return dict(zip(("body", "clocks", "fresh", "pools"), self._unfolded(), strict=True))

    def restore(self, arrays: dict[str, Numbers], n: int) -> None:
        """Take over arrays from a file, checked."""
        self._allocate(n)
        for (name, own), (key, array) in zip(self.memory().items(), arrays.items(), strict=True):
            none = name == "pools" and array.shape == (0, *own.shape[1:])
            if key != name or array.dtype != own.dtype or not (array.shape == own.shape or none):
                raise ValueError(f"{key} has shape {array.shape} and type {array.dtype}")
        held = tuple(arrays.values())
        self._write(self._pattern._state, self._pattern._blank((1,)))
        self._fold(held)
        if not held[3].shape[0]:
            self._pools = self._pools[:0]
        if not self._pools.shape[0] and self._may_pool() and self._warming().any():
            raise ValueError("tracks are starting up but their pools are missing")
        if n:
            slack = 1e-3 if self.dtype == np.float32 else 1e-6
            state = self._read(None)[0]
            check_state(state, self.model, rotation=self.kind == "rotation", slack=slack)

    def _allocate(self, n: int) -> None:
        """Room for n tracks; blocks of eight, so that up to seven at the end are nobody's."""
        d, room = self.d, -(-n // LANES) * LANES
        planes = d * (d - 1) // 2
        size = d * d + planes * (4 if self._information else 1) + 2 * d
        self._n = n
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
        seen: Numbers,
        there: Mask,
        counts: Numbers,
        intervals: Numbers,
        on_invalid: OnInvalid,
    ) -> Taken:
        """Take in one step: matrices ``(n, d, d)``, counts and intervals for all or each."""
        self.on_invalid = on_invalid
        counts = np.ascontiguousarray(self._pattern._strength(counts))
        seen = np.ascontiguousarray(seen, dtype=self.dtype)
        if not seen.flags.writeable:
            seen = seen.copy()
        if not engine.compiles(self.d, self.kind == "rotation"):
            return self._update_readable(seen, there, counts, intervals)
        steps, which = self._intervals(intervals)
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

    def lines(
        self,
        which: Numbers,
        seen: Numbers,
        counts: Numbers,
        dt: Numbers,
        fields: list[str],
        *,
        matrix: bool,
    ) -> dict[str, Numbers]:
        """Take in lines of any tracks in order; the fields after each of them.

        The k-th lines of all tracks go together: which lines come in one call changes nothing.
        """
        found: dict[str, Numbers] = {}
        for these in rounds(which):
            tracks = which[these]
            part = self.kept(tracks)
            values, m = seen[these], counts[these]
            if not matrix:
                values, m = part.moments(values[:, None, :], dt[these])
            part.update(values, m > 0, np.maximum(m, 1e-300), dt[these], "skip")
            self._put(tracks, part)
            shown = part.estimate()
            for name in fields:
                value = np.asarray(getattr(shown, name))
                if name == "covariance":
                    # The same to the last bit however many lines came together.
                    frame = np.ascontiguousarray(shown.frame)
                    value = (frame * shown.spectrum[:, None, :]) @ np.swapaxes(frame, -1, -2)
                if name not in found:
                    found[name] = np.empty((len(which), *value.shape[1:]))
                found[name][these] = value
        return found

    def moments(self, samples: Numbers, dt: Numbers) -> tuple[Numbers, Numbers]:
        """Mean of x x^T over samples ``(n, m, d)`` and their number; cells that are NaN enter by
        what the forecast expects of them."""
        nan = np.isnan(samples)
        there = np.asarray(~nan.all(axis=-1))
        counts = there.sum(axis=-1).astype(float)
        rows = np.where(there[..., None], samples, 0.0)
        if (nan.any(axis=-1) & there).any():
            known = self.forecast(dt).covariance + self.model.noise_floor * np.eye(self.d)
            prior = np.where(np.isnan(known), wishart.plain_guess(samples), known)
            strength = np.where(np.isnan(known[:, 0, 0]), 1.0, support(self._read(None)[0]))
            outer = wishart.expected_outer(samples, prior[:, None], strength[:, None])
            total = np.where(there[..., None, None], outer, 0.0).sum(axis=-3)
        else:
            total = np.swapaxes(rows, -1, -2) @ rows
        return total / np.maximum(counts, 1.0)[:, None, None], counts

    def _put(self, tracks: Numbers, part: Blocks) -> None:
        """Write some tracks back."""
        body, clocks, fresh, pools = part._unfolded()
        self._body[tracks // LANES, :, tracks % LANES] = body
        self._clocks[tracks], self._fresh[tracks] = clocks, fresh
        if self._pools.shape[0] and pools.shape[0]:
            self._pools[tracks] = pools

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

        with np.errstate(invalid="ignore"):  # for when the compiler is switched off
            in_parts(part, blocks, n, self.n_threads)
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

    # ------------------------------------------------------------------ what is known

    def estimate(self, tracks: Any = None) -> Estimate:
        """All fields of an `Estimate`, for all tracks or some (by position or mask)."""
        state, surprise = self._read(tracks)
        return Estimate(lambda: self._pattern._view(state, surprise))

    def forecast(self, steps: float | Numbers, tracks: Any = None) -> Estimate:
        """The estimates ``steps`` units of time ahead; changes nothing."""
        state, surprise = self._read(tracks)
        idle = np.isnan(state.seen)
        if self.kind == "covariance":
            idle = idle | np.asarray(warming(state, self.model))
        dt = np.full_like(state.time, steps)
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
        return sum(int(getattr(self, name).nbytes) for name in self._arrays)

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


def _triangles(d: int) -> tuple[Numbers, Numbers]:
    rows, columns = np.triu_indices(d, 1)
    return rows * d + columns, columns * d + rows
