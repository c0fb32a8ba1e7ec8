"""The tracker of covariances: one class, which holds the engine of its law."""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np
from numpy import ndarray

from kgmrf import _check
from kgmrf._check import SYMMETRY_TOLERANCE, OnInvalid
from kgmrf._names import from_names
from kgmrf._types import Mask, Numbers
from kgmrf.centring import MEANS, RunningMean
from kgmrf.engines.details import half_life
from kgmrf.engines.ensemble import INVALID, Ensemble
from kgmrf.engines.layout import SAMPLES, TIME
from kgmrf.engines.low_rank import CROSSOVER, LowRank
from kgmrf.engines.members import as_members, plain
from kgmrf.gains import Gains
from kgmrf.geometry import orbit
from kgmrf.kernels import engine as loops
from kgmrf.results import Estimate, Result, Values
from kgmrf.step import (
    INTEGRATORS,
    Model,
    State,
    Surprise,
    cold_state,
    covariance_step,
    initial_state,
    support,
    warming,
)
from kgmrf.trackers._both_ways import smooth_both_ways
from kgmrf.trackers._ensemble import NAMES, SMALL, replayed, shown
from kgmrf.trackers._kinetic import FLOAT64, KineticTracker, as_batch, as_gains
from kgmrf.trackers._samples import CovarianceTracker
from kgmrf.trackers._smooth import SmoothCovariance
from kgmrf.trackers._view import covariance_view


class KGMRF(SmoothCovariance, KineticTracker, CovarianceTracker):
    """Follow a covariance M = Q diag(lam) Q^T whose eigenframe turns: no lag, coasts through gaps.

    d: dimension; None takes it from the first observation.
    gains: "auto" (default) weighs an ensemble of laws by how well they forecast; a single law is
    "information", "zero_lag", "printed", or one from :mod:`kgmrf.gains`.
    noise_floor: measurement-noise variance to subtract; observations scatter about M + sigma^2 I.
    n_samples: samples behind each matrix, if it is always the same number.
    members: of the ensemble ("auto" only), from :mod:`kgmrf.engines.members`; None takes the
    default eleven.
    rank: factors of a covariance of many channels, whose state and cost grow with d rather than
    d^2; raw samples only. "auto" (default) takes 10 from d = 64 on, None never. See `loadings`.
    on_invalid: what to do with an invalid matrix: "raise", "skip" (treat as missing) or "repair"
    (nearest positive semidefinite matrix).
    mean: of raw samples: "zero" (default), "running" subtracts the mean of all samples before each,
    "drift" one that forgets with a half-life of 200 samples; see `location`.

    For a single law only:

    spectrum: "adaptive" follows the eigenvalues too, "fixed" keeps those of the start (the paper's
    isospectral orbit), an array gives them.
    spectrum_rate: variance that the log eigenvalues gain per unit time ("adaptive").
    scale_rate: the same for an overall scale with a clock of its own; 0 switches it off.
    scale_retention: how much of the log scale is kept per unit time.
    integrator: how the frame drifts: "exponential" (exact), "cayley" or "cayley_neumann" (the
    paper's three-term series). The last two run in plain numpy, for comparison.
    initial: covariance ``(..., d, d)`` to start from; None pools the first observations.
    warmup_samples, warmup_frames: when the pooling ends; default 5 d samples or 2 d steps.

    >>> import numpy as np
    >>> from kgmrf import KGMRF, simulate
    >>> scene = simulate.ellipse(0.08, n_samples=8, rng=1)
    >>> result = KGMRF(n_samples=8).filter(scene.observations)
    >>> result.covariance.shape
    (400, 2, 2)
    >>> abs(result.velocity[-1, 1, 0]).round(2).item()
    0.08
    """

    _needs_samples = True
    _engine: Any = None
    _raw = False

    def __init__(
        self,
        d: int | None = None,
        *,
        gains: str | Gains = "auto",
        members: Any = None,
        rank: int | str | None = "auto",
        spectrum: Any = "adaptive",
        spectrum_rate: float = 1e-4,
        scale_rate: float = 0.0,
        scale_retention: float = 0.98,
        integrator: str = "exponential",
        noise_floor: float = 0.0,
        n_samples: float | None = None,
        initial: Any = None,
        warmup_samples: float | None = None,
        warmup_frames: float | None = None,
        on_invalid: OnInvalid = "raise",
        mean: str = "zero",
    ) -> None:
        super().__init__(d, n_samples, on_invalid)
        self.mean = _check.choice(mean, MEANS, "mean")
        self._mean = None if self.mean == "zero" else RunningMean(self.mean)
        self.automatic = isinstance(gains, str) and gains == "auto"
        self.gains: Any = gains if self.automatic else as_gains(gains)
        if self.automatic:
            single = dict(
                spectrum=spectrum,
                spectrum_rate=spectrum_rate,
                scale_rate=scale_rate,
                scale_retention=scale_retention,
                integrator=integrator,
                initial=initial,
                warmup_samples=warmup_samples,
                warmup_frames=warmup_frames,
            )
            _refuse(single)
        elif members is not None:
            raise ValueError(f'members need gains="auto", not {gains!r}')
        self.members = None if members is None else plain(as_members(members, self.d or 2))
        self.rank = _rank(rank, self.automatic and members is None and noise_floor == 0.0, self.d)
        if isinstance(spectrum, str):
            self.spectrum: Any = _check.choice(spectrum, ("adaptive", "fixed"), "spectrum")
        else:
            self.spectrum = _known_spectrum(spectrum, self.d)
            self.d = int(self.spectrum.shape[-1])
        self.spectrum_rate = _check.in_range(spectrum_rate, "spectrum_rate", 0.0, np.inf)
        self.scale_rate = _check.in_range(scale_rate, "scale_rate", 0.0, np.inf)
        self.scale_retention = _check.in_range(scale_retention, "scale_retention", 0.0, 1.0)
        self.integrator = _check.choice(integrator, INTEGRATORS, "integrator")
        self.noise_floor = _check.in_range(noise_floor, "noise_floor", 0.0, np.inf)
        if self.scale_rate and self.noise_floor:
            raise ValueError(
                f"the scale clock (scale_rate={scale_rate!r}) multiplies the whole observed "
                f"covariance and needs noise_floor=0, got {noise_floor!r}"
            )
        self.initial = None if initial is None else self._start_matrix(initial)
        self.warmup_samples = warmup_samples
        self.warmup_frames = warmup_frames

    def _start_matrix(self, initial: Any) -> Numbers:
        array, observed, rough = self._matrices(initial, "initial")
        matrix, _ = self._validated(array, observed, rough, "initial")
        self.d = int(matrix.shape[-1])
        lowest = np.linalg.eigvalsh(matrix).min()
        if not lowest > 0:
            raise ValueError(
                f"initial must be positive definite, its smallest eigenvalue is {lowest:.3g}; "
                "add a small multiple of the identity"
            )
        return matrix

    def _begin(self, shape: tuple[int, ...]) -> None:
        d = shape[-1]
        if self._mean is not None and self._mean.sums.shape[-1] == 0:
            self._mean.sums = np.zeros((3, *shape[:-1]))
        if self.automatic:
            self._engine = self.engine(d, raw=self._raw)
            n = int(np.prod(shape[:-2]))
            self._rows = self._engine.init(n)
            self._records = np.full((n, self._engine.small), np.nan)
            # At hand for the online update.
            self._one = np.zeros(1, dtype=np.int64), np.ones(1), np.ones(1)
            return
        known = None if isinstance(self.spectrum, str) else self.spectrum
        self.model = Model(
            gains=self.gains,
            noise_floor=self.noise_floor,
            spectrum_rate=self.spectrum_rate if _is(self.spectrum, "adaptive") else 0.0,
            scale_rate=self.scale_rate,
            scale_retention=self.scale_retention,
            warmup_samples=5.0 * d if self.warmup_samples is None else self.warmup_samples,
            warmup_frames=2.0 * d if self.warmup_frames is None else self.warmup_frames,
            known_spectrum=known,
            integrator=self.integrator,
        )
        if self.initial is None:
            self._hold(cold_state(np.zeros(shape), self.gains))
        else:
            frame, spectrum = orbit.decompose(as_batch(self.initial, shape))
            spectrum = spectrum if known is None else as_batch(known, shape[:-1])
            self._hold(initial_state(frame, spectrum, self.gains))

    def engine(self, d: int, *, raw: bool) -> Any:
        """The engine of the self-tuned tracker for d channels, of raw samples or of matrices."""
        if isinstance(self.rank, int):
            return LowRank(d, self.rank)
        plain = self.members is None and self.noise_floor == 0.0
        if self.rank == "auto" and plain and raw and d >= CROSSOVER:
            return LowRank(d)
        return Ensemble(d, self.members)

    def _blocks(self, value: Any, name: str, *, time_first: bool) -> Numbers:
        self._raw = True
        return super()._blocks(value, name, time_first=time_first)

    @property
    def location(self) -> Numbers:
        """The mean of the samples now, ``(..., d)``: zero unless ``mean`` says otherwise."""
        if self._mean is None:
            return np.zeros((*(self.batch_shape or ()), self.d or 0))
        return self._mean.location

    def _centred(self, blocks: Numbers) -> Numbers:
        if self._mean is None:
            return blocks
        rows = np.moveaxis(blocks, -2, 1)  # (T, m, ..., d): the samples one after the other
        centred = self._mean.centre(rows.reshape(-1, *rows.shape[2:])).reshape(rows.shape)
        return np.ascontiguousarray(np.moveaxis(centred, 1, -2))

    def _matrices(self, value: Any, name: str, mask: Any = None) -> tuple[Numbers, Mask, bool]:
        if self._mean is not None and name != "initial":
            raise _check.ObservationError(
                f"mean={self.mean!r} is for raw samples, and {name} of shape {np.shape(value)} is "
                "taken as matrices; give samples to partial_fit or filter, or leave out mean"
            )
        return super()._matrices(value, name, mask)

    # ------------------------------------------------------------------ one step

    def update(
        self,
        observation: Any,
        *,
        dt: float | Numbers = 1.0,
        n_samples: float | Numbers | None = None,
        assume_valid: bool = False,
    ) -> Estimate:
        """Take in the observation of one step and return the filtered estimate at its time.

        observation: ``(..., d, d)``, or None for none; items of a batch that are NaN have none.
        dt: time since the step before (ignored at the very first step).
        n_samples: how many samples are behind the matrix (or set at construction).
        assume_valid: skip the checks, for hot loops with float64 arrays of the right shape.
        """
        count = self.n_samples if n_samples is None else n_samples
        if self._plain(observation, (self.d, self.d), dt) and _is_count(count):
            tolerance = -1.0 if assume_valid else SYMMETRY_TOLERANCE
            found = self._quick(observation[None], float(count), float(dt), True, tolerance)  # type: ignore[arg-type]
            if found is not None:
                return found
        return super().update(observation, dt=dt, n_samples=n_samples, assume_valid=assume_valid)

    def partial_fit(self, samples: Any, *, dt: float | Numbers = 1.0) -> Estimate:
        """Take in the raw samples of one step: ``(d,)`` or ``(..., m, d)``, zero mean.

        The m samples count themselves. One that is all NaN does not count; one with some entries
        NaN is scored by the others, and its missing entries are expected from the forecast.
        """
        if self._plain(samples, (self.d,), dt):
            found = self._quick(samples[None, None], 1.0, float(dt), False, 0.0)
            if found is not None:
                return found
        if not self.automatic:
            return super().partial_fit(samples, dt=dt)
        block = self._blocks(samples, "samples", time_first=False)
        step = self._interval(dt, block.shape[:-2])
        self._start((*block.shape[:-2], block.shape[-1], block.shape[-1]))
        block = self._centred(block[None])[0]
        self._take(block.reshape(-1, *block.shape[-2:]), np.ones(self._n), step, matrix=False)
        return self._estimate()

    def _plain(self, array: Any, shape: tuple[Any, ...], dt: Any) -> bool:
        """One self-tuned track under way, a plain float64 array of this shape, a plain dt."""
        return (
            self._engine is not None
            and self._mean is None
            and self.batch_shape == ()
            and not self._fresh
            and type(array) is ndarray
            and array.dtype is FLOAT64
            and array.shape == shape
            and array.flags.carray
            and type(dt) in (int, float)
            and 0.0 <= dt < np.inf
        )

    def _quick(
        self, seen: Numbers, count: float, dt: float, matrix: bool, tolerance: float
    ) -> Estimate | None:
        """One line through the compiled loop, checks included; None if it cannot be used."""
        engine = self._engine
        assert engine is not None
        which, counts, step = self._one
        counts[0], step[0] = count, dt
        status, records = engine.advance(
            self._rows,
            which,
            seen,
            counts,
            step,
            matrix=matrix,
            tolerance=tolerance,
            room=engine.small,
        )
        if status[0] == INVALID:
            return None
        self._records = records
        found = Estimate(shown(engine, records[0], self.noise_floor, self._rows[0].copy()))
        return found if self.channels is None else found.named(self.channels)

    @property
    def _n(self) -> int:
        return len(self._rows)

    def _take(self, seen: Numbers, counts: Numbers, dt: Numbers, *, matrix: bool) -> None:
        """One checked step of every track: seen ``(n, r, d)``, counts and dt for each."""
        assert self._engine is not None
        step = np.array(np.broadcast_to(dt, self.batch_shape or ()), dtype=float).reshape(-1)
        which = np.arange(self._n)
        seen, counts = np.array(seen, order="C"), np.array(counts, dtype=float).reshape(-1)
        self._records = self._engine.advance(
            self._rows, which, seen, counts, step, matrix=matrix, room=self._engine.small
        )[1]
        self._fresh = False

    def _advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        if not self.automatic:
            super()._advance(seen, observed, n_samples, dt)
            return
        counts = np.where(observed, n_samples, 0.0)
        safe = np.where(observed[..., None, None], seen, 0.0)
        self._take(safe.reshape(-1, *seen.shape[-2:]), counts, dt, matrix=True)

    # ------------------------------------------------------------------ sequences

    def _run(self, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers) -> Result:
        if not self.automatic:
            return super()._run(seen, observed, counts, dt)
        safe = np.where(observed[..., None, None], seen, 0.0)
        return self._lines(safe, np.where(observed, counts, 0.0), dt, matrix=True)

    def _run_blocks(self, blocks: Numbers, dt: Numbers) -> Result:
        if not self.automatic:
            return super()._run_blocks(blocks, dt)
        return self._lines(blocks, np.ones(blocks.shape[:-2]), dt, matrix=False)

    def _lines(self, seen: Numbers, counts: Numbers, dt: Numbers, *, matrix: bool) -> Result:
        """A checked sequence ``(T, ..., r, d)`` through the engine, step by step."""
        engine, n = self._engine, self._n
        assert engine is not None
        assert self.batch_shape is not None
        steps = len(seen)
        spread = dt.reshape(dt.shape + (1,) * (counts.ndim - dt.ndim))
        lines = (
            np.tile(np.arange(n), steps),
            np.array(seen, order="C").reshape(steps * n, *seen.shape[-2:]),
            np.array(counts, dtype=float).reshape(-1),
            np.array(np.broadcast_to(spread, counts.shape), dtype=float).reshape(-1),
        )
        every = getattr(engine, "names", NAMES)
        names = every if self._wanted is None else ("time", *self._wanted)
        again: Any = None
        whole = any(name not in SMALL for name in names)
        later = whole and isinstance(engine, LowRank)  # worked out when somebody asks
        before = self._rows.copy()
        records = engine.advance(
            self._rows, *lines, matrix=matrix, room=None if whole and not later else engine.small
        )[1]
        self._fresh = False
        self._records = records[-n:, : engine.small].copy()
        shaped = records.reshape(steps, *self.batch_shape, -1)
        if later or {"velocity", "angle_std"} & set(names):
            again = replayed(engine, before, lines, matrix, self.batch_shape)
        return Result(shown(engine, shaped, self.noise_floor, again, names))

    def _inspected(self, matrices: Numbers) -> Numbers | None:
        if self.automatic:
            return loops.inspect_covariances(matrices)
        return super()._inspected(matrices)

    def smooth(
        self,
        sequence: Any,
        *,
        times: Any = None,
        mask: Any = None,
        n_samples: float | Numbers | None = None,
        samples: bool | None = None,
        layout: str | None = None,
        lag: int | None = None,
    ) -> Result:
        """E[M_t | C_1..C_T]: a recording, looked back at.

        Arguments as for `filter`. The ensemble runs forward and backward and joins both; a single
        law (information gains) has a backward pass of its own and can look back a fixed ``lag``.
        ``nis`` and ``log_likelihood`` are NaN: they belong to forecasts. The tracker itself is not
        changed.

        >>> from kgmrf import KGMRF, metrics, simulate
        >>> scene = simulate.ellipse(0.08, n_samples=8, rng=1)
        >>> tracker = KGMRF(n_samples=8)
        >>> runs = tracker.filter(scene.observations), tracker.smooth(scene.observations)
        >>> late, early = (metrics.orbit_error(r.covariance, scene.covariance).mean() for r in runs)
        >>> bool(early < 0.8 * late)
        True
        """
        sequence, names, index, blockwise = from_names(sequence)
        samples = _check.are_samples(sequence, blockwise or samples)
        if samples:
            sequence = _check.oriented(sequence, layout)
            if layout is None and self.d is None:
                _check.upright(np.shape(sequence), "sequence")
        if self._mean is not None:
            fresh = self._fresh_copy()
            blocks = fresh._frames(sequence, mask)
            plain = type(self)(**{**self.settings(), "mean": "zero"})
            result = plain.smooth(fresh._centred(blocks), times=times, samples=True, lag=lag)
            return result.named(names, index)
        return self._smoothed(
            sequence, times=times, mask=mask, n_samples=n_samples, samples=samples, lag=lag
        ).named(names, index)

    def _smoothed(
        self, sequence: Any, *, times: Any, mask: Any, n_samples: Any, samples: bool, lag: Any
    ) -> Result:
        if not self.automatic:
            return super().smooth(
                sequence, times=times, mask=mask, n_samples=n_samples, samples=samples, lag=lag
            )
        if lag is not None:
            raise ValueError(
                f"lag={lag!r}: the self-tuned tracker looks back all the way; a fixed lag needs "
                'gains="information"'
            )
        if isinstance(self.rank, int):
            raise ValueError(
                f"rank={self.rank!r}: a covariance of factors has no smoother; leave out rank to "
                "smooth with the engine for few channels"
            )
        fresh = self._fresh_copy()
        counts: Numbers | None = None
        if samples:
            values = fresh._frames(sequence, mask)
        else:
            seen, observed = fresh._checked_sequence(sequence, mask)
            values = np.where(observed[..., None, None], seen, np.nan)
            counts = np.asarray(fresh._counts(n_samples, observed))
        clock = np.arange(len(values), dtype=float)
        if times is not None:
            fresh._intervals(times, len(values))
            clock = np.asarray(times, dtype=float)
        return smooth_both_ways(self._fresh_copy, values, clock, counts)

    def _fresh_copy(self) -> Self:
        return type(self)(**{**self.settings(), "rank": None})

    # ------------------------------------------------------------------ what is seen of it

    def _look(self) -> Values:
        return dict(self._estimate()._view()) if self.automatic else super()._look()

    def _estimate(self) -> Estimate:
        if self._engine is None:
            return super()._estimate()
        assert self.batch_shape is not None
        records = self._records.reshape(*self.batch_shape, -1)
        rows = self._rows.copy().reshape(*self.batch_shape, -1)
        return Estimate(shown(self._engine, records, self.noise_floor, rows)).named(self.channels)

    def _ahead(self, steps: float) -> Values:
        if self._engine is None:
            return super()._ahead(steps)
        assert self.batch_shape is not None
        rows, records = self._engine.coasted(self._rows, steps)
        shape = self.batch_shape
        return shown(
            self._engine, records.reshape(*shape, -1), self.noise_floor, rows.reshape(*shape, -1)
        )

    def _step(
        self, state: State, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers
    ) -> tuple[State, Surprise]:
        return covariance_step(state, self.model, seen, counts, dt, observed)

    def _view(self, state: State, surprise: Surprise) -> Values:
        return covariance_view(state, surprise, self.gains)

    def _idle(self) -> Mask:
        return super()._idle() | np.asarray(warming(self._state, self.model))

    def _predicted_scatter(self, dt: float) -> Numbers:
        scatter = super()._predicted_scatter(dt)
        return scatter + self.noise_floor * np.eye(self.d or 1)

    def _support(self) -> Numbers:
        if self._engine is None:
            return np.asarray(support(self._state))
        assert self.batch_shape is not None
        if isinstance(self._engine, LowRank):
            return self._engine.support(self._rows).reshape(self.batch_shape)
        record = self._engine.read(self._records)
        memory = 2.0 * half_life(self._engine.plan, record.weights) / np.log(2.0)
        samples = self._rows[:, SAMPLES]
        lasting = np.where(np.isnan(memory), samples, np.minimum(samples, memory))
        return np.clip(lasting, 0.01, 1e9).reshape(self.batch_shape)

    # ------------------------------------------------------------------ files and clocks

    def _memory(self) -> dict[str, Numbers]:
        mean = {} if self._mean is None else {"mean": self._mean.sums}
        if self._engine is None:
            return {**super()._memory(), **mean}
        return {
            **mean,
            "rows": self._rows,
            "records": self._records,
            "fresh": np.asarray(float(self._fresh)),
            "raw": np.asarray(float(self._raw)),
        }

    def _remember(self, memory: dict[str, Numbers]) -> None:
        if self._mean is not None:
            self._mean.sums = np.array(memory["mean"], dtype=float)
        if self._engine is None:
            super()._remember(memory)
            return
        self._raw = bool(memory["raw"])
        assert self.d is not None
        self._engine = self.engine(self.d, raw=self._raw)
        rows = np.array(memory["rows"], dtype=float, order="C")
        self._engine.check(rows)
        self._rows = rows
        self._records = np.array(memory["records"], dtype=float)
        self._fresh = bool(memory["fresh"])

    @property
    def _now(self) -> float | None:
        if self._engine is None:
            return super()._now
        return None if self._fresh else float(self._rows[:, TIME].max())

    def _set_clock(self, time: float) -> None:
        if self._engine is None:
            super()._set_clock(time)
        else:
            self._rows[:, TIME] = time


def _rank(rank: Any, plain: bool, d: int | None) -> int | str | None:
    """A checked rank: "auto", None or a number of factors."""
    if rank is None or _is(rank, "auto"):
        return rank
    if isinstance(rank, bool) or not isinstance(rank, (int, np.integer)) or rank < 1:
        raise ValueError(f'rank must be "auto", None or a number of factors, got {rank!r}')
    if d is not None and rank > d:
        raise ValueError(f"rank must be at most d = {d}, got {rank!r}")
    if not plain:
        raise ValueError(
            f'rank={rank!r} needs gains="auto", the default members and noise_floor=0; leave out '
            "rank or the others"
        )
    return int(rank)


def _is(value: Any, word: str) -> bool:
    return isinstance(value, str) and value == word


def _is_count(value: Any) -> bool:
    return type(value) in (int, float) and 0.0 < value < np.inf


def _refuse(single: dict[str, Any]) -> None:
    """Settings of a single law, unless they have the values that they have anyway."""
    known = inspect.signature(KGMRF.__init__).parameters
    for name, value in single.items():
        usual = known[name].default
        same = value is usual or (isinstance(value, (str, float, int)) and value == usual)
        if not same:
            raise ValueError(
                f'{name}={value!r} belongs to a single law and needs gains="information" (or '
                'another law); gains="auto" follows size, spectrum and frame by itself'
            )


def _known_spectrum(spectrum: Any, d: int | None) -> Numbers:
    values = np.asarray(spectrum, dtype=float)
    if values.ndim < 1 or (d is not None and values.shape[-1] != d):
        raise ValueError(f"spectrum must be a word or d eigenvalues, got shape {values.shape}")
    if not ((values > 0) & np.isfinite(values)).all():
        raise ValueError(f"spectrum must hold positive eigenvalues, got {spectrum!r}")
    return np.flip(np.sort(values, axis=-1), axis=-1).copy()
