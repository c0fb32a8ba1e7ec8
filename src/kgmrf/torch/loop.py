"""What the two layers share: a prepared sequence, the loop over it, and what comes out."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from kgmrf.gains import Gains, Transition
from kgmrf.step import Model, State, Surprise, drift, passage, warming
from kgmrf.torch import compiled, door
from kgmrf.torch.compiled import Frames, Track
from kgmrf.torch.laws import Law, as_law, cast

TRACED_TURN = math.pi
"""Turn bound (radians per frame) where looking at the data is impossible or costs a round trip."""


class Filtered(NamedTuple):
    """What a layer returns; the time axis is absent from ``state``, and from all after a `step`.

    ==============  =====================  ======================================================
    estimate        (..., time, d, d)      covariances or rotations, or tangent vectors
    velocity        (..., time, d, d)      angular velocity per unit time, or its coordinates
    log_likelihood  (..., time)            of each observation before it was used; 0 where none
    nis             (..., time)            squared surprise, information gains only; 0 where none
    state           `kgmrf.step.State`     to go on from; pass it to the next call
    ==============  =====================  ======================================================
    """

    estimate: Tensor
    velocity: Tensor
    log_likelihood: Tensor
    nis: Tensor
    state: State


def detach(state: State) -> State:
    """The same state without its history: cut here for truncated backpropagation through time.

    >>> from kgmrf.torch import KGMRFLayer
    >>> layer = KGMRFLayer(2, n_samples=8)
    >>> state = layer(torch.eye(2).expand(1, 4, 2, 2)).state
    >>> detach(state).frame.requires_grad
    False
    """
    return State(*(part.detach() for part in state))


def _track(state: State) -> Track:
    return Track(state.frame, state.spectrum, state.velocity, state.log_scale)


class Kinetic(nn.Module):
    """What the two layers share: the loop."""

    rotations: bool

    gains: Law

    def __init__(
        self,
        d: int,
        gains: str | Law,
        checkpoint_every: int | None,
        turn_bound: float | None,
    ) -> None:
        super().__init__()
        if d < 1:
            raise ValueError(f"d must be at least 1, got {d!r}")
        if checkpoint_every is not None and checkpoint_every < 1:
            raise ValueError(f"checkpoint_every must be at least 1, got {checkpoint_every!r}")
        self.d = d
        self.gains = as_law(gains, d)
        self.checkpoint_every = checkpoint_every
        self.turn_bound = turn_bound
        self._advance: Callable[..., tuple[State, Surprise]] = self._one
        self._stepped = False  # whether `compile_step` was asked for

    # What differs between covariances and rotations.

    _one: Callable[..., tuple[State, Surprise]]
    """The step, as `kgmrf.step.covariance_step` takes its arguments."""

    def _model(self, law: Gains, device: torch.device) -> Model:
        raise NotImplementedError

    def _fresh(self, like: Tensor, law: Gains) -> State:
        raise NotImplementedError

    def _look(self, track: Track) -> tuple[Tensor, Tensor]:
        """Estimate and velocity, as they are handed out."""
        raise NotImplementedError

    def _take(self, frames: Frames) -> Frames:
        """The observations as the step wants them."""
        raise NotImplementedError

    # What does not.

    def compile_step(self, **options: Any) -> None:
        """Compile the step with `torch.compile` and loop over the compiled one from now on.

        Compiling takes a good part of a minute once per shape, in exchange for several times the
        speed, forward and backward. ``options`` are those of `torch.compile`.
        """
        if self.turn_bound is None:
            self.turn_bound = TRACED_TURN
        self._advance = torch.compile(self._one, **{"dynamic": False, **options})
        self._stepped = True

    def _bound(self, device: torch.device) -> float | None:
        if self.turn_bound is None and (device.type != "cpu" or torch.compiler.is_compiling()):
            return TRACED_TURN
        return self.turn_bound

    def _filter(
        self,
        values: Tensor,
        weight: Any,
        mask: Tensor | None,
        dt: float | Tensor | None,
        state: State | None,
    ) -> Filtered:
        """Matrices ``(..., time, d, d)``, checked, prepared and run."""
        door.fits(weight, "n_samples", values.shape[:-2])
        door.fits(dt, "dt", values.shape[:-2])
        door.times(dt)
        law = self.gains()
        return self._run(self._take(self._frames(values, weight, mask, dt)), law, state)

    def _shaped(self, values: Tensor) -> None:
        if values.ndim < 3 or values.shape[-2:] != (self.d, self.d):
            shape = tuple(values.shape)
            raise ValueError(f"expected (..., time, {self.d}, {self.d}), got {shape}")
        door.frames(values, "observations", -3)

    def _frames(
        self,
        seen: Tensor,
        weight: Any,
        mask: Tensor | None,
        dt: float | Tensor | None,
    ) -> Frames:
        """Time first, missing frames marked."""
        shape = seen.shape[:-2]
        observed = (0.0 * seen.detach()).sum((-2, -1)) == 0.0  # 0 times NaN or infinity is NaN
        if mask is not None:
            observed = observed & mask.to(device=seen.device, dtype=torch.bool).expand(shape)
        eye = torch.eye(self.d, dtype=seen.dtype, device=seen.device)
        seen = torch.where(observed[..., None, None], seen, eye)
        weights = torch.as_tensor(weight, dtype=seen.dtype, device=seen.device).expand(shape)
        weights = torch.where(observed, weights, torch.ones_like(weights))
        dt = 1.0 if dt is None else dt
        intervals = torch.as_tensor(dt, dtype=seen.dtype, device=seen.device)
        return Frames(
            seen.movedim(-3, 0),
            weights.movedim(-1, 0),
            intervals.expand(shape).movedim(-1, 0),
            observed.movedim(-1, 0),
            _first(intervals.double(), shape),
        )

    def _run(self, frames: Frames, law: Gains, state: State | None) -> Filtered:
        """All frames, one step each, in pieces that are computed twice to save memory if wanted."""
        exact, law = law, cast(law, frames.seen.dtype)
        now = self._fresh(frames.seen[0], law) if state is None else state
        if self._for_looking(frames, law, now):
            with torch.no_grad():
                model = self._model(exact, frames.seen.device)
                seen = compiled.run(model, frames, now, self.rotations)
            if seen is not None:
                track, surprise, last = seen
                return _time_last([*self._look(track), *map(_zero_for_nan, surprise)], last)
        model = self._model(law, frames.seen.device)
        pools = model.warmup_frames > 0
        # Learned retentions near 1 cancel: the transitions are worked out in double precision.
        like = torch.empty((self.d, self.d), dtype=torch.float64, device=frames.seen.device)
        over = passage(exact, frames.clock, like)
        n = frames.seen.shape[0]
        size = self.checkpoint_every or n
        saves = self.checkpoint_every is not None and torch.is_grad_enabled()
        pieces = []
        for first in range(0, n, size):
            part = slice(first, min(first + size, n))
            piece = frames.part(part)
            turns = over if frames.shared else Transition(*(v[part] for v in over))
            if saves:
                now, looks = checkpoint(
                    self._piece, now, piece, turns, model, pools, use_reentrant=False
                )
            else:
                now, looks = self._piece(now, piece, turns, model, pools)
            pieces.append(looks)
        parts = [torch.cat(part, dim=0) for part in zip(*pieces, strict=True)]
        return _time_last(parts, now)

    def _for_looking(self, frames: Frames, law: Gains, state: State) -> bool:
        """Whether nobody will ask for gradients and the numbers lie where compiled loops reach."""
        if not compiled.reachable(frames.seen.device):
            return False
        parts = (*frames[:-1], *vars(law).values(), *self.parameters(), *state)
        return not (torch.is_grad_enabled() and any(_needs_gradient(v) for v in parts))

    def _piece(
        self, state: State, frames: Frames, turns: Transition, model: Model, pools: bool
    ) -> tuple[State, tuple[Tensor, ...]]:
        warm = model._replace(warmup_samples=0.0, warmup_frames=0.0)
        near = cast(turns, frames.seen.dtype)
        unrolls = self._unrolls(frames, warm, turns, state)
        parts = []
        for k in range(frames.seen.shape[0]):
            if pools and not torch.compiler.is_compiling():
                pools = bool(warming(state, model).any())
            if unrolls and not pools:
                rest = turns if frames.shared else Transition(*(v[k:] for v in turns))
                track, surprise, state = compiled.unrolled(
                    warm, frames.part(slice(k, None)), rest, state
                )
                parts.append((*track, *surprise))
                break
            state, seen = self._advance(
                state,
                model if pools else warm,
                frames.seen[k],
                frames.weight[k],
                frames.dt[k],
                frames.observed[k],
                near if frames.shared else Transition(*(v[k] for v in near)),
            )
            one = (*_track(state), seen.log_likelihood, seen.nis)
            parts.append(tuple(part[None] for part in one))
        *looks, likelihood, nis = (torch.cat(part) for part in zip(*parts, strict=True))
        estimate, velocity = self._look(Track(*looks))
        return state, (estimate, velocity, _zero_for_nan(likelihood), _zero_for_nan(nis))

    def _unrolls(self, frames: Frames, model: Model, over: Transition, state: State) -> bool:
        """Whether the frames left have a compiled loop with a backward pass."""
        if self.rotations or self._stepped or not compiled.reachable(frames.seen.device):
            return False
        return compiled.unrolls(model, frames, over, state)

    def step(
        self,
        observation: Tensor,
        *,
        state: State | None = None,
        mask: Tensor | None = None,
        dt: float | Tensor | None = None,
        **options: Any,
    ) -> Filtered:
        """One frame of a stream: `forward` on a sequence of length 1, without the time axis.

        Shapes: observation ``(..., d, d)``, mask and dt ``(...)``. Steps give what `forward` gives.
        """
        door.tensor(observation, "observation")
        options = {**options, "mask": mask, "dt": dt}
        options = {k: v[..., None] if isinstance(v, Tensor) else v for k, v in options.items()}
        out: Filtered = self(observation.unsqueeze(-3), state=state, **options)
        axis = out.log_likelihood.ndim - 1
        estimate, velocity, likelihood, nis = (part.select(axis, 0) for part in out[:-1])
        return Filtered(estimate, velocity, likelihood, nis, out.state)

    def forecast(self, state: State, dt: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        """Estimate and velocity a time ``dt`` later, if nothing more is seen.

        >>> from kgmrf.torch import RotationLayer
        >>> layer = RotationLayer(3)
        >>> state = layer(torch.eye(3).expand(1, 4, 3, 3)).state
        >>> layer.forecast(state, 2.0)[0].shape
        torch.Size([1, 3, 3])
        """
        door.times(dt)
        with full_precision(state.frame):
            return self._look(_track(self._later(state, dt)))

    def _later(self, state: State, dt: float | Tensor) -> State:
        law = cast(self.gains(), state.frame.dtype)
        interval = torch.as_tensor(dt, dtype=state.time.dtype, device=state.time.device)
        interval = interval.expand(state.time.shape)
        never = torch.zeros_like(interval, dtype=torch.bool)
        return drift(state, self._model(law, state.frame.device), interval, never)

    def stream(self) -> Stream:
        """A counter that remembers the state between frames, for inference."""
        return Stream(self)


def join(results: list[Filtered]) -> Filtered:
    """Pieces of a sequence, one after the other.

    >>> from kgmrf.torch import KGMRFLayer
    >>> layer, C = KGMRFLayer(2, n_samples=8), torch.eye(2).expand(1, 4, 2, 2)
    >>> first = layer(C)
    >>> join([first, layer(C, state=first.state)]).estimate.shape
    torch.Size([1, 8, 2, 2])
    """
    axis = results[0].nis.ndim - 1
    pairs = zip(*(r[:-1] for r in results), strict=True)
    estimate, velocity, likelihood, nis = (torch.cat(part, dim=axis) for part in pairs)
    return Filtered(estimate, velocity, likelihood, nis, results[-1].state)


class Stream:
    """Stateful inference: call it with one frame after another; `reset` forgets.

    >>> from kgmrf.torch import KGMRFLayer
    >>> stream = KGMRFLayer(2, n_samples=8).stream()
    >>> [tuple(stream(torch.eye(2)).estimate.shape) for _ in range(2)]
    [(2, 2), (2, 2)]
    """

    def __init__(self, layer: Kinetic) -> None:
        self.layer = layer
        self.state: State | None = None

    @torch.no_grad()
    def __call__(self, observation: Tensor, **options: Any) -> Filtered:
        """`step` from where the last call ended; no gradients."""
        out = self.layer.step(observation, state=self.state, **options)
        self.state = out.state
        return out

    def reset(self) -> None:
        """Forget: the next frame is the first."""
        self.state = None


def at_least_single(values: Tensor) -> Tensor:
    """Half precision as single precision.

    >>> at_least_single(torch.ones(2, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    return values if values.dtype == torch.float64 else values.to(torch.float32)


def full_precision(like: Tensor) -> Any:
    """Autocast off: products in half precision would leave the group."""
    kind = like.device.type
    if not torch.amp.is_autocast_available(kind):
        return nullcontext()
    return torch.autocast(device_type=kind, enabled=False)


def _zero_for_nan(values: Tensor) -> Tensor:
    return torch.where(torch.isnan(values), torch.zeros_like(values), values)


def _first(values: Tensor, shape: torch.Size) -> Tensor:
    """Time first, unless it is one number for all frames."""
    return values if values.ndim == 0 else values.expand(shape).movedim(-1, 0)


def _needs_gradient(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _time_last(parts: list[Tensor], state: State) -> Filtered:
    """Time behind the batch axes, where the input had it."""
    n = parts[-1].ndim - 1
    estimate, velocity, likelihood, nis = (part.movedim(0, n) for part in parts)
    return Filtered(estimate, velocity, likelihood, nis, state)
