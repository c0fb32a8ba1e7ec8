"""The layer that follows covariances."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from kgmrf import wishart
from kgmrf.gains import Gains, Transition
from kgmrf.geometry import orbit, so
from kgmrf.step import Model, State, Surprise, cold_state, covariance_step, initial_state
from kgmrf.torch.laws import Law, bounded, free_positive, positive
from kgmrf.torch.loop import (
    TRACED_TURN,
    Filtered,
    Kinetic,
    Track,
    at_least_single,
    full_precision,
)

START = (1e-6, 1e6)
"""Between these lie learned eigenvalues of the start: bring the data to the order of one."""
SPECTRUM_RATE = (1e-12, 1e1)


class KGMRFLayer(Kinetic):
    """Covariances in, filtered covariances and angular velocities out; differentiable throughout.

    d: dimension.
    gains: "information" (default), "fixed", or an `InformationLaw` or `FixedLaw` with its settings.
    spectrum: "adaptive" follows the eigenvalues, with a learned ``spectrum_rate``; "fixed" keeps
    those of the start.
    noise_floor, n_samples, scale_rate, scale_retention: as in :class:`kgmrf.KGMRF`.
    start: "data" pools the first frames like :class:`kgmrf.KGMRF` (``warmup_samples``,
    ``warmup_frames``); "learned" starts every sequence from a learned frame, spectrum and velocity.
    output: "covariance" hands out matrices; "tangent" vectors: log M, d (d+1)/2 numbers with the
    off-diagonal ones times sqrt 2, and the d (d-1)/2 coordinates of the velocity.
    checkpoint_every: frames per piece whose inside is recomputed in the backward pass.
    turn_bound: largest turn per frame (radians) that is computed to full precision; None looks at
    the data instead.

    The velocity handed out is spatial, Q W Q^T: unlike W in the state it does not depend on the
    signs and the order of eigenvectors, which are arbitrary. Where nothing was seen yet the
    estimate is the identity and the velocity zero.

    >>> layer = KGMRFLayer(3, n_samples=12)
    >>> out = layer(torch.eye(3).expand(5, 20, 3, 3))
    >>> out.estimate.shape, out.velocity.shape
    (torch.Size([5, 20, 3, 3]), torch.Size([5, 20, 3, 3]))
    """

    rotations = False

    def __init__(
        self,
        d: int,
        *,
        gains: str | Law = "information",
        spectrum: Literal["adaptive", "fixed"] = "adaptive",
        spectrum_rate: float = 1e-4,
        noise_floor: float = 0.0,
        n_samples: float | None = None,
        scale_rate: float = 0.0,
        scale_retention: float = 0.98,
        start: Literal["data", "learned"] = "data",
        warmup_samples: float | None = None,
        warmup_frames: float | None = None,
        output: Literal["covariance", "tangent"] = "covariance",
        checkpoint_every: int | None = None,
        turn_bound: float | None = None,
    ) -> None:
        super().__init__(d, gains, checkpoint_every, turn_bound)
        for name, value, words in (
            ("spectrum", spectrum, ("adaptive", "fixed")),
            ("start", start, ("data", "learned")),
            ("output", output, ("covariance", "tangent")),
        ):
            if value not in words:
                raise ValueError(f"{name} must be one of {words}, got {value!r}")
        if scale_rate and noise_floor:
            raise ValueError("the scale clock needs noise_floor=0: it multiplies the whole matrix")
        self.free_spectrum_rate = None
        if spectrum == "adaptive":
            self.free_spectrum_rate = nn.Parameter(
                torch.tensor(free_positive(spectrum_rate, *SPECTRUM_RATE))
            )
        self.noise_floor, self.n_samples = noise_floor, n_samples
        self.scale_rate, self.scale_retention = scale_rate, scale_retention
        self.start, self.output = start, output
        self.warmup_samples = 5.0 * d if warmup_samples is None else warmup_samples
        self.warmup_frames = 2.0 * d if warmup_frames is None else warmup_frames
        if start == "learned":
            # Distinct eigenvalues: at equal ones no plane can be seen to turn.
            levels = [2.0 ** (0.5 * (d - 1) - k) for k in range(d)]
            free = [free_positive(min(max(v, 1e-3), 1e3), *START) for v in levels]
            self.free_start_spectrum = nn.Parameter(torch.tensor(free))
            self.free_start_turn = nn.Parameter(torch.zeros(d * (d - 1) // 2))
            self.free_start_velocity = nn.Parameter(torch.zeros(d * (d - 1) // 2))

    def forward(
        self,
        observations: Tensor,
        *,
        mask: Tensor | None = None,
        dt: float | Tensor | None = None,
        n_samples: float | Tensor | None = None,
        samples: bool = False,
        state: State | None = None,
    ) -> Filtered:
        """Filter a sequence.

        observations: covariances ``(..., time, d, d)``, or with ``samples=True`` zero-mean samples
        ``(..., time, m, d)``, which count themselves (one with a NaN does not count).
        mask: ``(..., time)``, True where there is an observation; frames with a NaN have none.
        dt: time since the frame before, a number or ``(..., time)``; default 1.
        n_samples: samples behind each matrix, a number or ``(..., time)``.
        state: where to go on from; None starts anew.
        """
        with full_precision(observations):
            values = at_least_single(observations)
            count = self.n_samples if n_samples is None else n_samples
            if samples:
                values, count = _moments(values)
            elif count is None:
                raise ValueError("say how many samples are behind each matrix: n_samples=...")
            if values.ndim < 3 or values.shape[-2:] != (self.d, self.d):
                raise ValueError(
                    f"expected (..., time, {self.d}, {self.d}), got {tuple(observations.shape)}"
                )
            law = self.gains()
            # Skewness of the innovation, and so the manifold, rests on symmetric observations.
            frames = self._frames((values + values.mT) / 2, count, mask, dt)
            return self._run(frames, law, state)

    def _model(self, law: Gains, device: torch.device) -> Model:
        rate = self.free_spectrum_rate
        pools = self.start == "data"
        return Model(
            gains=law,
            noise_floor=self.noise_floor,
            spectrum_rate=0.0
            if rate is None
            else positive(rate.double(), *SPECTRUM_RATE).to(law.retention.dtype),
            scale_rate=self.scale_rate,
            scale_retention=self.scale_retention,
            warmup_samples=self.warmup_samples if pools else 0.0,
            warmup_frames=self.warmup_frames if pools else 0.0,
            turn_bound=self._bound(device),
        )

    def _one(
        self,
        state: State,
        model: Model,
        seen: Tensor,
        weight: Tensor,
        dt: Tensor,
        observed: Tensor,
        over: Transition,
    ) -> tuple[State, Surprise]:
        return covariance_step(state, model, seen, weight, dt, observed, over)

    def _fresh(self, like: Tensor, law: Gains) -> State:
        if self.start == "data":
            return cold_state(like, law)
        kind, zero = like.dtype, torch.zeros_like(like)
        turn = so.hat(bounded(self.free_start_turn.to(kind), math.pi))
        velocity = so.hat(bounded(self.free_start_velocity.to(kind), math.pi))
        spectrum = positive(self.free_start_spectrum.to(kind), *START)
        frame = so.exp(turn, norm_bound=TRACED_TURN)
        state = initial_state(frame + zero, spectrum + zero[..., 0], law)
        # As sure of the eigenvalues as if the warm-up had been seen.
        first = 2.0 / self.warmup_samples + torch.zeros_like(state.spectrum)
        return state._replace(velocity=velocity + zero, spectrum_var=first)

    def _look(self, track: Track) -> tuple[Tensor, Tensor]:
        unknown = torch.isnan(track.spectrum)
        spectrum = torch.where(unknown, torch.ones_like(track.spectrum), track.spectrum)
        frame, level = track.frame, torch.exp(track.log_scale)[..., None] * spectrum
        velocity = frame @ track.velocity @ frame.mT
        velocity = (velocity - velocity.mT) / 2
        if self.output == "covariance":
            return orbit.compose(frame, level), velocity
        # Eigenvalues at rounding level (a pool still short of samples) have no logarithm to learn.
        floor = 16.0 * torch.finfo(level.dtype).eps * level.amax(-1, keepdim=True)
        logarithm = orbit.compose(frame, torch.log(torch.maximum(level, floor)))
        return _upper(logarithm), so.vee(velocity)


def _moments(samples: Tensor) -> tuple[Tensor, Tensor]:
    """C = (1/m) sum x x^T over the complete samples, and m; NaN where there are none."""
    if samples.ndim < 3:
        raise ValueError(f"samples must be (..., time, m, d), got {tuple(samples.shape)}")
    there = torch.isfinite(samples).all(-1)
    rows = torch.where(there[..., None], samples, torch.zeros_like(samples))
    count = there.to(samples.dtype).sum(-1)
    C, m = wishart.from_samples(rows)
    known = torch.where(count > 0, count, torch.ones_like(count))
    C = C * (m / known)[..., None, None]
    return torch.where((count > 0)[..., None, None], C, math.nan), known


def _upper(X: Tensor) -> Tensor:
    """Upper triangle of a symmetric matrix, row by row, with |vector| = |X|_F."""
    d = X.shape[-1]
    row, column = torch.triu_indices(d, d, device=X.device)
    weight = torch.where(row == column, 1.0, math.sqrt(2.0)).to(X.dtype)
    return X[..., row, column] * weight
