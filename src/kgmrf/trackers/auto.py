"""The self-tuning tracker of covariances."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, cast

import numpy as np
from numpy import ndarray

from kgmrf import _check, mixture
from kgmrf._check import SYMMETRY_TOLERANCE, OnInvalid
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import orbit
from kgmrf.kernels.engine import INVALID, OBSERVED, loops
from kgmrf.kernels.members import (
    COUNT,
    LAST_SAMPLES,
    POOL_SAMPLES,
    STARTED,
    TIME,
    record_size,
)
from kgmrf.mixture import Bank, Settings
from kgmrf.results import Estimate, Result, Values
from kgmrf.step import SMALLEST_SPECTRUM
from kgmrf.trackers._both_ways import smooth_both_ways
from kgmrf.trackers._contract import _plain
from kgmrf.trackers._kinetic import KineticTracker
from kgmrf.trackers.kgmrf import KGMRF

FLOAT64 = np.dtype(np.float64)


class AutoKGMRF(KGMRF):
    """S = sum_k w_k S_k: moving averages and kinetic laws side by side, weighed as they forecast.

    What ``KGMRF()`` makes: nothing is to be tuned. The members (17 of them: averages with
    half-lives from 1 to 4096 frames, some with clocks for the overall size and for each channel,
    and three information laws that carry a velocity) and the weighing are told in
    :mod:`kgmrf.mixture`. Fields beside the usual ones: `weights` of the members, `half_life` of the
    averages among them, `log_mixture`.

    d, n_samples, noise_floor, on_invalid: as for `KGMRF`.
    forgetting: log w <- forgetting log w + log-likelihood, of Bayes' weights.
    blend_rate: how fast the blend learns; 0 leaves Bayes' weights alone.
    members: table ``(K, 12)`` of rows from :mod:`kgmrf.mixture`; None takes its default.

    What is promised: without forgetting, on every stream, the summed `log_mixture` is within log 2K
    nats of the best member's log-likelihood, counted from the first frame after the warm-up of 5 d
    samples (Bayes' mixture alone within log K). `log_likelihood` is that of one Gaussian with the
    forecast covariance, to be compared with other trackers'; it usually is higher, but nothing is
    promised of it, nor of anything with forgetting below 1.

    Turning the channels turns the estimate only nearly: clocks per channel and a ridge of 1e-8
    belong to the channels as they are. `angle_std` is the spread of the mixture: what the members
    do not know, and how far they disagree.

    >>> import numpy as np
    >>> from kgmrf import KGMRF
    >>> rng = np.random.default_rng(0)
    >>> result = KGMRF().filter(rng.normal(size=(500, 3)) * [3.0, 2.0, 1.0])
    >>> result.covariance.shape, result.weights.shape
    ((500, 3, 3), (500, 17))
    >>> bool(result.half_life[-1] > 100)  # nothing moves: long memory
    True
    """

    def __init__(
        self,
        d: int | None = None,
        *,
        gains: str = "auto",
        noise_floor: float = 0.0,
        n_samples: float | None = None,
        forgetting: float = 1.0,
        blend_rate: float = Settings().blend_rate,
        members: Any = None,
        on_invalid: OnInvalid = "raise",
        **single_law: Any,
    ) -> None:
        super(KineticTracker, self).__init__(d, n_samples, on_invalid)
        if gains != "auto":
            raise ValueError(f'gains must be "auto" for AutoKGMRF, got {gains!r}; use KGMRF')
        _refuse(single_law)
        self.gains = gains  # type: ignore[assignment]
        self.noise_floor = _check.in_range(noise_floor, "noise_floor", 0.0, np.inf)
        self.forgetting = _check.in_range(forgetting, "forgetting", 0.0, 1.0)
        self.blend_rate = _check.in_range(blend_rate, "blend_rate", 0.0, np.inf)
        # A table that cannot be is refused now; the default one waits for d.
        self.members = None if members is None else mixture.bank(self.d or 1, members).table

    def settings(self) -> dict[str, Any]:
        """The arguments that build this tracker anew, as plain numbers, words and lists."""
        names = inspect.signature(AutoKGMRF.__init__).parameters
        known = (name for name in names if name not in ("self", "single_law"))
        return {name: _plain(getattr(self, name)) for name in known}

    def __repr__(self) -> str:
        return super().__repr__().replace("AutoKGMRF", "KGMRF", 1)

    # ------------------------------------------------------------------ frames

    def update(
        self,
        observation: Any,
        *,
        dt: float | Numbers = 1.0,
        n_samples: float | Numbers | None = None,
        assume_valid: bool = False,
    ) -> Estimate:
        """Take in the observation of one frame and return the filtered estimate at its time.

        observation: ``(..., d, d)``, or None for none; items of a batch that are NaN have none.
        dt: time since the frame before (ignored at the very first frame).
        n_samples: how many samples are behind the matrix (or set at construction).
        assume_valid: skip the checks, for hot loops with float64 arrays of the right shape.
        """
        # One track under way and a plain float64 matrix: two compiled calls, checks included.
        # Whatever else it is, and whatever is wrong with it, the contract's way says so.
        if (
            self.batch_shape == ()
            and type(observation) is ndarray
            and observation.dtype is FLOAT64
            and observation.shape == self._shape
            and self._rows[0, STARTED]
            and type(dt) in (int, float)
            and 0.0 <= dt < np.inf
        ):
            count = self.n_samples if n_samples is None else n_samples
            if type(count) in (int, float) and 0.0 < count < np.inf:  # type: ignore[operator]
                frame = observation[None]
                if not frame.flags.carray:
                    frame = frame.copy()
                loop, bank, brought = loops("mixture"), self._bank, self._brought
                if assume_valid:
                    there = int(not np.isnan(observation[0, 0]))
                else:
                    loop.inspect(frame, SYMMETRY_TOLERANCE, self._status)
                    there = self._status[0]
                if there != INVALID:
                    brought[0] = (dt, count, there)
                    record = np.empty((1, self._record_size))
                    loop.run(
                        self._rows[0],
                        bank.offsets,
                        bank.table,
                        bank.settings,
                        frame,
                        brought,
                        record,
                    )
                    self._record = record[0]
                    return Estimate(partial(_shown, record[0], bank, self.noise_floor))
        return super(KineticTracker, self).update(
            observation, dt=dt, n_samples=n_samples, assume_valid=assume_valid
        )

    def smooth(
        self,
        sequence: Any,
        *,
        times: Any = None,
        mask: Any = None,
        n_samples: float | Numbers | None = None,
        samples: bool | None = None,
        lag: int | None = None,
    ) -> Result:
        """E[M_t | C_1..C_T]: a recording, looked back at, forward and backward and both joined.

        Arguments as for `filter`. ``nis`` and ``log_likelihood`` are NaN: they belong to forecasts.
        The tracker itself is not changed. A fixed ``lag`` needs a single law.

        >>> from kgmrf import KGMRF, metrics, simulate
        >>> scene = simulate.ellipse(0.08, n_samples=8, rng=1)
        >>> tracker = KGMRF(n_samples=8)
        >>> runs = tracker.filter(scene.observations), tracker.smooth(scene.observations)
        >>> late, early = (metrics.orbit_error(r.covariance, scene.covariance).mean() for r in runs)
        >>> bool(early < 0.8 * late)
        True
        """
        if lag is not None:
            raise ValueError(
                f"lag={lag!r}: the self-tuned tracker looks back all the way; a fixed lag needs "
                'gains="information"'
            )

        def make() -> AutoKGMRF:
            return AutoKGMRF(**self.settings())

        fresh = make()
        samples = _check.are_samples(sequence, samples)
        if samples:
            values, counts = fresh._frames(sequence, mask), None
        else:
            seen, observed = fresh._checked_sequence(sequence, mask)
            values = np.where(observed[..., None, None], seen, np.nan)
            counts = np.asarray(fresh._counts(n_samples, observed))
        clock = np.arange(len(values), dtype=float)
        if times is not None:
            fresh._intervals(times, len(values))
            clock = np.asarray(times, dtype=float)
        return smooth_both_ways(make, values, clock, counts)

    def _advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        self._fresh = False
        records = self._through(
            self._rows, seen[None], observed[None], n_samples[None], dt[None], detailed=True
        )
        self._record = records[0]

    def _run(self, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers) -> Result:
        self._fresh = False
        spread = dt.reshape(dt.shape + (1,) * (observed.ndim - dt.ndim))
        spread = np.broadcast_to(spread, observed.shape)
        before = self._rows.copy()
        records = self._through(self._rows, seen, observed, counts, spread, detailed=False)
        # Angles and velocities take longer than all the rest: worked out if somebody asks.
        inputs = (np.array(seen), np.array(observed), np.array(counts), np.array(spread))

        def details() -> Numbers:
            return self._through(before, *inputs, detailed=True)

        self._record = self._coasted(0.0)
        self._record[..., : records.shape[-1]] = records[-1]
        return Result(partial(_shown, records, self._bank, self.noise_floor, details))

    def _through(
        self,
        rows: Numbers,
        seen: Numbers,
        observed: Mask,
        counts: Numbers,
        dt: Numbers,
        *,
        detailed: bool,
    ) -> Numbers:
        """Records ``(T, ..., size)`` of a sequence; the rows ``(n, size)`` move on in place."""
        steps, d = len(seen), self._bank.d
        frames = seen.reshape(steps, -1, d, d)
        brought = np.stack([dt, counts, observed], axis=-1, dtype=np.float64)
        brought = brought.reshape(steps, -1, 3)
        records = [
            mixture.follow(self._bank, row, frames[:, k], brought[:, k], detailed=detailed)
            for k, row in enumerate(rows)
        ]
        batch = observed.shape[1:]
        if not batch:
            return records[0]
        return np.stack(records, axis=1).reshape(steps, *batch, -1)

    def _checked_sequence(self, sequence: Any, mask: Any) -> tuple[Numbers, Mask]:
        if (
            mask is None
            and type(sequence) is ndarray
            and sequence.dtype is FLOAT64
            and sequence.ndim > 2
            and sequence.size
            and sequence.shape[-1] == sequence.shape[-2]
            and sequence.shape[-1] == (self.d or sequence.shape[-1])
            and self.batch_shape in (None, sequence.shape[1:-2])
        ):
            flat = sequence.reshape(-1, *sequence.shape[-2:])
            flat = flat if flat.flags.carray else flat.copy()
            status = np.empty(len(flat), dtype=np.int64)
            loops("mixture").inspect(flat, SYMMETRY_TOLERANCE, status)
            if not (status == INVALID).any():
                return sequence, (status == OBSERVED).reshape(sequence.shape[:-2])
        return super(KineticTracker, self)._checked_sequence(sequence, mask)

    # ------------------------------------------------------------------ the contract

    def _begin(self, shape: tuple[int, ...]) -> None:
        d = shape[-1]
        weighing = Settings(forgetting=self.forgetting, blend_rate=self.blend_rate)
        bank = mixture.bank(d, self.members, weighing)
        n = int(np.prod(shape[:-2]))
        self._bank: Bank = bank
        self._rows = np.tile(mixture.fresh_row(bank), (n, 1))
        self._record = self._coasted(0.0)
        # At hand for the online update.
        self._shape = (d, d)
        self._status = np.zeros(1, dtype=np.int64)
        self._brought = np.zeros((1, 3))
        self._record_size = record_size(len(bank.table), d, detailed=True)

    def _coasted(self, steps: float, *, detailed: bool = True) -> Numbers:
        """Records ``(..., size)`` as predicted ``steps`` from now; the state stays."""
        assert self.batch_shape is not None
        batch, d = self.batch_shape, self._bank.d
        nothing = np.full((1, *batch, d, d), np.nan)
        zeros = np.zeros((1, *batch))
        dt = np.full((1, *batch), steps)
        return self._through(self._rows.copy(), nothing, zeros, zeros, dt, detailed=detailed)[0]

    def _look(self) -> Values:
        assert self._record is not None
        return dict(_shown(self._record, self._bank, self.noise_floor))

    def _estimate(self) -> Estimate:
        assert self._record is not None
        return Estimate(partial(_shown, self._record, self._bank, self.noise_floor))

    def _ahead(self, steps: float) -> Values:
        return dict(_shown(self._coasted(steps), self._bank, self.noise_floor))

    def _predicted_scatter(self, dt: float) -> Numbers:
        return mixture.read(self._coasted(dt, detailed=False), self._bank).covariance

    def _support(self) -> Numbers:
        assert self._record is not None
        assert self.batch_shape is not None
        head = self._rows.reshape(*self.batch_shape, -1)
        pooled, m = head[..., POOL_SAMPLES], head[..., LAST_SAMPLES]
        weights = mixture.read(self._record, self._bank).weights
        half_life = mixture.effective_half_life(self._bank.table, weights)
        # Samples in an average: those seen so far, or twice its mean age. A law that turns has a
        # memory of its own, which the pool of the warm-up stands for.
        lasting = m * np.where(np.isnan(half_life), np.inf, 2 * half_life / np.log(2.0))
        started = np.minimum(pooled + m * head[..., COUNT], np.maximum(lasting, 1.0))
        return np.clip(np.where(head[..., STARTED] > 0, started, pooled), 0.01, 1e9)

    def _memory(self) -> dict[str, Numbers]:
        assert self._record is not None
        fresh = np.asarray(float(self._fresh))
        return {"rows": self._rows, "record": self._record, "fresh": fresh}

    def _remember(self, memory: dict[str, Numbers]) -> None:
        self._rows = np.array(memory["rows"], order="C")
        self._record = np.array(memory["record"])
        self._fresh = bool(memory["fresh"])

    @property
    def _now(self) -> float | None:
        if self.batch_shape is None or self._fresh:
            return None
        return float(self._rows[:, TIME].max())

    def _set_clock(self, time: float) -> None:
        self._rows[:, TIME] = time


def _refuse(settings: dict[str, Any]) -> None:
    """Settings of a single law, unless they have the values that `KGMRF` gives them anyway."""
    known = inspect.signature(KGMRF.__init__).parameters
    for name, value in settings.items():
        if name not in known:
            raise TypeError(f"KGMRF got an unexpected keyword argument {name!r}")
        usual = known[name].default
        same = value is usual or (isinstance(value, (str, float, int)) and value == usual)
        if not same:
            raise ValueError(
                f'{name}={value!r} belongs to a single law and needs gains="information" (or '
                'another law); gains="auto" follows size, spectrum and frame by itself'
            )


class _Later(Mapping[str, Numbers]):
    """Named fields in groups; each group is worked out when one of it is first asked for."""

    def __init__(self, names: tuple[str, ...], makers: dict[tuple[str, ...], Callable[[], Values]]):
        self._names, self._makers = names, makers
        self._made: Values = {}

    def __getitem__(self, name: str) -> Numbers:
        if name not in self._made:
            for group, make in self._makers.items():
                if name in group:
                    self._made |= make()
        return self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


NAMES = (
    "time",
    "age",
    "covariance",
    "frame",
    "spectrum",
    "velocity",
    "angle_std",
    "nis",
    "log_likelihood",
    "weights",
    "half_life",
    "log_mixture",
)


def _shown(
    records: Numbers,
    bank: Bank,
    noise_floor: float,
    details: Callable[[], Numbers] | None = None,
) -> Values:
    """The fields of estimates from their records ``(..., size)``; each made when looked at.

    details: gives the full records where ``records`` are brief ones.
    """
    trace = mixture.read(records, bank)
    values: _Later

    def plain() -> Values:
        return {
            "time": trace.time,
            "age": trace.time - trace.seen,
            "log_likelihood": trace.log_density,
            "weights": trace.weights,
            "half_life": mixture.effective_half_life(bank.table, trace.weights),
            "log_mixture": trace.log_mixture,
        }

    def eigen() -> Values:
        unseen = np.isnan(trace.covariance[..., 0, 0])
        whole = np.where(unseen[..., None, None], np.eye(bank.d), trace.covariance)
        frame, spectrum = orbit.decompose(whole)
        least = SMALLEST_SPECTRUM * spectrum[..., :1]
        spectrum = np.maximum(spectrum - noise_floor, least)
        spectrum[unseen] = np.nan
        frame[unseen] = np.nan
        return {"frame": frame, "spectrum": spectrum}

    def covariance() -> Values:
        if not noise_floor:
            return {"covariance": trace.covariance}
        return {"covariance": orbit.compose(values["frame"], values["spectrum"])}

    def moving() -> Values:
        full = trace if details is None else mixture.read(details(), bank)
        assert full.angle_var is not None
        assert full.spatial_velocity is not None
        frame = values["frame"]
        velocity = np.swapaxes(frame, -1, -2) @ full.spatial_velocity @ frame
        return {
            "velocity": 0.5 * (velocity - np.swapaxes(velocity, -1, -2)),
            "angle_std": np.sqrt(full.angle_var),
            "nis": np.asarray(full.nis),
        }

    now = ("time", "age", "log_likelihood", "weights", "half_life", "log_mixture")
    values = _Later(
        NAMES,
        {
            now: plain,
            ("frame", "spectrum"): eigen,
            ("covariance",): covariance,
            ("velocity", "angle_std", "nis"): moving,
        },
    )
    return cast(Values, values)  # looks like one to all who read it
