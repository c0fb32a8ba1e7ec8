"""The self-tuning tracker of rotations in space."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy import empty, ndarray

from kgmrf import _check
from kgmrf._check import OnInvalid
from kgmrf._types import Mask, Numbers
from kgmrf.kernels.engine import INVALID, ROTATION_TOLERANCE, loops
from kgmrf.motion import LARGE, RATE_PRIOR, SMALL, MotionModels, default_models
from kgmrf.results import Estimate, Result, Values
from kgmrf.rotation_bank import (
    BankState,
    coast_bank,
    compiled_models,
    new_bank,
    record_size,
    run_bank,
    unfold,
)
from kgmrf.rotation_smoother import smooth_bank
from kgmrf.trackers._rotations import RotationInput
from kgmrf.trackers._smooth import in_planes, recording, timeline, turning

FLOAT64 = np.dtype(np.float64)
BANKS = {"large": LARGE, "small": SMALL}


class AutoRotation(RotationInput):
    """Follow a rotation in space without tuning: a mixture of motion models, weighed as they do.

    d: 3.
    noise_std: standard deviation of the noise in every plane, radians; ``n_samples`` of an update
    divides its variance.
    models: which motions to be ready for: None or "large" (74 models), "small" (36, half the cost,
    up to a few percent less accurate), or :class:`kgmrf.motion.MotionModels`. Constant, decaying
    and oscillating velocities with periods of about 7 to 300 frames.
    switching: chance s per observation that another model takes over.
    forgetting: power on the weights per observation; 1 forgets nothing.
    rate_prior: variance of a velocity component at the start, rad^2 per frame^2.
    frame_interval: the usual time between observations. All models count time in frames; give it
    when time stamps are not frame numbers.
    on_invalid: what to do with a matrix that is no rotation: "raise", "skip" (treat as missing) or
    "repair" (nearest rotation).

    What is guaranteed, for every sequence of n observations after the first and every member k, of
    the sum of ``log_likelihood`` (that of the mixture density): with ``forgetting=1`` it is at
    least that of member k + log(prior of k) + n log(1 - s). With ``switching=0`` that is a constant
    number of nats, log K under a uniform prior. With ``forgetting`` below 1 nothing is guaranteed.

    Estimates also have ``weights`` (the members' probabilities, in the order of `models`) and
    ``half_life`` (unit time, at the last observation).

    >>> from kgmrf import AutoRotation, metrics, simulate
    >>> scene = simulate.camera_shake(3, 0.2)
    >>> result = AutoRotation(noise_std=0.05).filter(scene.observations)
    >>> error = metrics.geodesic_error(result.rotation, scene.rotation, degrees=True)
    >>> bool(error.mean() < 2.5), result.weights.shape
    (True, (200, 74))
    """

    models: MotionModels
    _state: BankState
    _record: Numbers
    _fresh = True

    def __init__(
        self,
        d: int = 3,
        *,
        noise_std: float | None = None,
        models: str | MotionModels | dict[str, Any] | None = None,
        switching: float = 1e-3,
        forgetting: float = 1.0,
        rate_prior: float | None = None,
        frame_interval: float = 1.0,
        n_samples: float | None = None,
        on_invalid: OnInvalid = "raise",
    ) -> None:
        super().__init__(d, n_samples, on_invalid)
        if d != 3:
            raise ValueError(
                f"the motion models are those of space: d must be 3, got {d!r}; "
                "RotationTracker follows other dimensions with gains='information'"
            )
        if noise_std is None:
            raise ValueError(
                "a self-tuning tracker needs noise_std, the standard deviation of the observed "
                "rotations in radians, e.g. noise_std=0.05"
            )
        self.noise_std = _check.in_range(noise_std, "noise_std", 0.0, np.inf, open_low=True)
        self.switching = _check.in_range(switching, "switching", 0.0, 1.0)
        self.forgetting = _check.in_range(forgetting, "forgetting", 0.0, 1.0)
        self.rate_prior = rate_prior
        if rate_prior is not None:
            _check.in_range(rate_prior, "rate_prior", 0.0, np.inf, open_low=True)
        self.frame_interval = _check.in_range(
            frame_interval, "frame_interval", 0.0, np.inf, open_low=True
        )
        self._bank, self.models = _as_models(models, rate_prior)
        self._table = compiled_models(self.models)
        self._work = np.zeros((6, 12, 12))

    def settings(self) -> dict[str, Any]:
        """The arguments that build this tracker anew, as plain numbers, words and lists."""
        table = super().settings()
        table["models"] = self._bank
        if self._bank is None:
            table["models"] = {k: v.tolist() for k, v in self.models._asdict().items()}
        return table

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

        observation: ``(..., 3, 3)``, or None for none; items of a batch that are NaN have none.
        dt: time since the frame before (ignored at the very first frame).
        n_samples: divides the noise variance (or set at construction).
        assume_valid: skip the checks, for hot loops with float64 arrays of the right shape.
        """
        # One track under way and a plain float64 matrix: one compiled call, checks included.
        # Whatever else it is, and whatever is wrong with it, the contract's way says so.
        if (
            not self._fresh
            and self.batch_shape == ()
            and type(observation) is ndarray
            and observation.dtype is FLOAT64
            and observation.shape == (3, 3)
            and type(dt) in (int, float)
            and 0.0 <= dt < np.inf
        ):
            count = self.n_samples if n_samples is None else n_samples
            count = 1.0 if count is None else count
            if type(count) in (int, float) and 0.0 < count < np.inf:
                if not observation.flags.carray:
                    observation = observation.copy()
                tolerance = -1.0 if assume_valid else ROTATION_TOLERANCE
                record = empty(record_size(len(self._table)))
                status = self._one(self._state, observation, tolerance, count, dt, record)
                if status != INVALID:
                    self._record = record
                    return self._estimate()
        return super().update(observation, dt=dt, n_samples=n_samples, assume_valid=assume_valid)

    def _one(
        self,
        state: BankState,
        observation: Numbers,
        tolerance: float,
        count: Any,
        dt: Any,
        record: Numbers,
    ) -> int:
        """`kgmrf.rotation_bank.advance_bank`, called as directly as can be."""
        return int(
            loops("rotation_bank").advance_bank(
                *state,
                self._table,
                observation,
                tolerance,
                self.noise_std**2 / count,
                dt,
                self.frame_interval,
                self.switching,
                self.forgetting,
                record,
                self._work,
            )
        )

    def _advance(self, seen: Numbers, observed: Mask, n_samples: Numbers, dt: Numbers) -> None:
        self._fresh = False
        record = np.empty((*observed.shape, record_size(len(self._table))))
        for item in np.ndindex(observed.shape):
            there = bool(observed[item])
            self._one(
                _item(self._state, item),
                np.array(seen[item], dtype=float, order="C"),
                -1.0 if there else -2.0,
                float(n_samples[item]),
                float(dt[item]),
                record[item],
            )
        self._record = record

    def _run(self, seen: Numbers, observed: Mask, counts: Numbers, dt: Numbers) -> Result:
        self._fresh = False
        records = np.empty((*observed.shape, record_size(len(self._table))))
        for item in np.ndindex(observed.shape[1:]):
            at = (slice(None), *item)
            records[at], _ = run_bank(
                _item(self._state, item),
                self._table,
                seen[at],
                observed[at],
                self.noise_std**2 / counts[at],
                dt,
                frame_interval=self.frame_interval,
                switching=self.switching,
                forgetting=self.forgetting,
            )
        self._record = records[-1].copy()
        return Result(partial(_shown, records, self.frame_interval))

    # ------------------------------------------------------------------ looking back

    def smooth(
        self,
        sequence: Any,
        *,
        times: Any = None,
        mask: Any = None,
        n_samples: float | Numbers | None = None,
        lag: int | None = None,
    ) -> Result:
        """p(R_t | Z_1..Z_T) under the mixture: every member looked back with, weighed at each time.

        Arguments as for `filter`. Fixed interval only: a lag would need all members' weights and
        tracks anew for every frame. ``nis``, ``log_likelihood`` and ``half_life`` are NaN, and
        ``forgetting`` plays no part. The tracker itself is not changed.

        >>> from kgmrf import AutoRotation, metrics, simulate
        >>> scene = simulate.camera_shake(3, 0.2)
        >>> result = AutoRotation(noise_std=0.05, models="small").smooth(scene.observations)
        >>> error = metrics.geodesic_error(result.rotation, scene.rotation, degrees=True)
        >>> bool(error.mean() < 1.0)
        True
        """
        if lag is not None:
            raise ValueError(
                "a bank of models is smoothed over the whole interval: lag must be None; for a "
                "fixed lag use RotationTracker(gains='information', ...).smooth(..., lag=lag)"
            )
        fresh = type(self)(**self.settings())
        record = recording(fresh, sequence, times, mask, n_samples)
        shape = record.observed.shape
        rotation, velocity = np.empty((*shape, 3, 3)), np.empty((*shape, 3))
        angle_std, weights = np.empty((*shape, 3)), np.empty((*shape, len(self._table)))
        for item in np.ndindex(shape[1:]):
            at = (slice(None), *item)
            track, weights[at] = smooth_bank(
                record.seen[at],
                self.noise_std / np.sqrt(record.counts[at]),
                models=self.models,
                dt=record.dt / self.frame_interval,
                present=record.observed[at],
                switching=self.switching,
            )
            rotation[at], velocity[at] = track.rotation, track.velocity / self.frame_interval
            angle_std[at] = np.sqrt(np.diagonal(track.covariance, axis1=-2, axis2=-1)[:, :3])
        return Result(
            {
                **timeline(record),
                "rotation": rotation,
                "velocity": turning(velocity),
                "angle_std": in_planes(angle_std),
                "weights": weights,
                "half_life": np.full(shape, np.nan),
            }
        )

    # ------------------------------------------------------------------ the contract

    def _begin(self, shape: tuple[int, ...]) -> None:
        batch = shape[:-2]
        self._state = new_bank(self.models, batch)
        self._record = self._coasted(0.0)

    def _coasted(self, steps: float) -> Numbers:
        record = np.empty((*self._state.clock.shape[:-1], record_size(len(self._table))))
        for item in np.ndindex(record.shape[:-1]):
            one = _item(self._state, item)
            record[item] = coast_bank(one, self._table, steps, self.frame_interval)
        return record

    def _look(self) -> Values:
        return _shown(self._record, self.frame_interval)

    def _estimate(self) -> Estimate:
        return Estimate(partial(_shown, self._record, self.frame_interval))

    def _ahead(self, steps: float) -> Values:
        return _shown(self._coasted(steps), self.frame_interval)

    def _memory(self) -> dict[str, Numbers]:
        fresh = np.asarray(float(self._fresh))
        return {**self._state._asdict(), "record": self._record, "fresh": fresh}

    def _remember(self, memory: dict[str, Numbers]) -> None:
        self._state = BankState(*(np.array(memory[name], order="C") for name in BankState._fields))
        self._record = np.array(memory["record"])
        self._fresh = bool(memory["fresh"])

    @property
    def _now(self) -> float | None:
        if self.batch_shape is None or self._fresh:
            return None
        return float(np.max(self._state.clock[..., 0]))

    def _set_clock(self, time: float) -> None:
        self._state.clock[..., 0] = time


def _as_models(
    models: str | MotionModels | dict[str, Any] | None, rate_prior: float | None
) -> tuple[str | None, MotionModels]:
    """The name of the bank, if it has one, and its models."""
    if models is None or isinstance(models, str):
        name = _check.choice("large" if models is None else models, tuple(BANKS), "models")
        rate = RATE_PRIOR if rate_prior is None else rate_prior
        return name, default_models(rate_prior=rate, periods=BANKS[name])
    if rate_prior is not None:
        raise ValueError("rate_prior must be None with models of your own, which have theirs")
    table = models._asdict() if isinstance(models, MotionModels) else models
    return None, MotionModels(**{k: np.asarray(v, dtype=float) for k, v in table.items()})


def _item(state: BankState, item: tuple[int, ...]) -> BankState:
    """One track of a batch, as views."""
    return BankState(*(field[item] for field in state))


def _shown(record: Numbers, frame_interval: float) -> Values:
    """The fields of estimates from their records; made when somebody looks."""
    bank = unfold(record, frame_interval)
    angle_var = np.diagonal(bank.covariance, axis1=-2, axis2=-1)[..., :3]
    return {
        "time": bank.time,
        "age": bank.time - bank.seen,
        "nis": bank.nis,
        "log_likelihood": bank.log_likelihood,
        "rotation": bank.rotation,
        "velocity": turning(bank.velocity),
        "angle_std": in_planes(np.sqrt(angle_var)),
        "weights": bank.weights,
        "half_life": bank.half_life,
    }
