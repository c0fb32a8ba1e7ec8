"""What the two layers share: a prepared sequence and the loop over it."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from kgmrf import _check
from kgmrf.model.gains import Gains, Transition
from kgmrf.model.law_motion import drift, passage, turned
from kgmrf.model.law_state import Model, State, Surprise, warming
from kgmrf.torch import compiled, inputs
from kgmrf.torch.compiled import Frames, Track, at, traced, walk
from kgmrf.torch.filtered import Filtered, Stream, join
from kgmrf.torch.laws import Law, as_law, cast

TRACED_TURN = math.pi
"""Turn bound (radians per frame) where looking at the data is impossible or costs a round trip."""


class Kinetic(nn.Module):
    """What the two layers share: the loop."""

    rotations: bool
    gains: Law

    def __init__(
        self,
        d: int,
        gains: str | Law,
        velocity: str,
        checkpoint_every: int | None,
        turn_bound: float | None,
    ) -> None:
        super().__init__()
        if d < 1:
            raise ValueError(f"d must be at least 1, got {d!r}")
        if checkpoint_every is not None and checkpoint_every < 1:
            raise ValueError(f"checkpoint_every must be at least 1, got {checkpoint_every!r}")
        _check.choice(velocity, ("body", "spatial"), "velocity")
        self.d = d
        self.gains = as_law(gains, d)
        self.velocity = velocity
        self.checkpoint_every = checkpoint_every
        self.turn_bound = turn_bound
        self._advance: Callable[..., tuple[State, Surprise]] = self._one

    def __prepare_scriptable__(self) -> Any:
        raise NotImplementedError(
            f"torch.jit.script cannot compile {type(self).__name__}; use torch.export.export, "
            "torch.compile or compile_step()"
        )

    # What differs between covariances and rotations.

    _one: Callable[..., tuple[State, Surprise]]
    """The step, as `kgmrf.model.step.covariance_step` takes its arguments."""

    def _model(self, law: Gains, device: torch.device) -> Model:
        raise NotImplementedError

    def _fresh(self, like: Tensor, law: Gains) -> State:
        raise NotImplementedError

    def _check(self, observations: Tensor, mask: Tensor | None) -> None:
        """Refuses observations that are no covariances, or no rotations."""
        raise NotImplementedError

    def _take(self, frames: Frames) -> Frames:
        """The observations as the step wants them."""
        raise NotImplementedError

    def _matrix(self, frame: Tensor, spectrum: Tensor) -> Tensor:
        """The covariance or rotation."""
        raise NotImplementedError

    def _look(self, seen: Track | State) -> tuple[Tensor, Tensor]:
        """Estimate and velocity, as they are handed out."""
        estimate = self._matrix(seen.frame, seen.spectrum)
        if self.velocity == "body":
            return estimate, seen.velocity
        spatial = seen.frame @ seen.velocity @ seen.frame.mT
        return estimate, (spatial - spatial.mT) / 2

    # What does not.

    def compile_step(self, **options: Any) -> None:
        """Compile the step with `torch.compile` and loop over the compiled one from now on.

        Compiling takes a good part of a minute once per shape, in exchange for several times the
        speed, forward and backward. ``options`` are those of `torch.compile`.
        """
        if self.turn_bound is None:
            self.turn_bound = TRACED_TURN
        self._advance = torch.compile(self._one, **{"dynamic": False, **options})

    def _bound(self, device: torch.device) -> float | None:
        if self.turn_bound is None and (device.type != "cpu" or traced()):
            return TRACED_TURN
        return self.turn_bound

    def _filter_matrices(
        self, observations: Tensor, weight: Any, mask: Tensor | None, *rest: Any
    ) -> Filtered:
        """Matrices ``(..., time, d, d)``, checked and filtered; ``rest`` as for `_filter`."""
        with full_precision(inputs.tensor(observations, "observations")):
            values = at_least_single(observations)
            if values.ndim < 3 or values.shape[-2:] != (self.d, self.d):
                shape = tuple(values.shape)
                raise ValueError(f"expected (..., time, {self.d}, {self.d}), got {shape}")
            inputs.frames(values, "observations")
            inputs.gaps(mask, values.shape[:-2])
            inputs.counts(weight)
            self._check(observations, mask)
            return self._filter(values, weight, mask, *rest)

    def _filter(
        self,
        seen: Tensor,
        weight: Any,
        mask: Tensor | None,
        dt: float | Tensor | None,
        state: State | None,
        forecast: bool,
    ) -> Filtered:
        """Checked matrices, prepared and run: time first, missing frames marked."""
        shape = seen.shape[:-2]
        inputs.fits(weight, "n_samples", shape)
        inputs.fits(dt, "dt", shape)
        inputs.times(dt)
        observed = (0.0 * seen.detach()).sum((-2, -1)) == 0.0  # 0 times NaN or infinity is NaN
        if mask is not None:
            observed = observed & mask.to(device=seen.device, dtype=torch.bool).expand(shape)
        like: Any = {"dtype": seen.dtype, "device": seen.device}
        seen = torch.where(observed[..., None, None], seen, torch.eye(self.d, **like))
        weights = torch.as_tensor(weight, **like).expand(shape)
        weights = torch.where(observed, weights, torch.ones_like(weights))
        intervals = torch.as_tensor(1.0 if dt is None else dt, **like)
        # Time first; one number for the whole batch stays one per frame.
        shape = shape if intervals.ndim else torch.Size([1] * (len(shape) - 1) + [shape[-1]])
        frames = Frames(
            seen.movedim(-3, 0),
            weights.movedim(-1, 0),
            intervals.expand(shape).movedim(-1, 0),
            observed.movedim(-1, 0),
        )
        return self._run(self._take(frames), self.gains(), state, forecast)

    def _run(self, frames: Frames, exact: Gains, state: State | None, forecast: bool) -> Filtered:
        """All frames, one step each, in pieces that are computed twice to save memory if wanted."""
        dtype, device = frames.seen.dtype, frames.seen.device
        law = cast(exact, dtype)
        start = self._fresh(frames.seen[0], law) if state is None else state
        model = self._model(law, device)
        found = None
        if self._for_looking(frames, law, start):
            with torch.no_grad():
                found = compiled.run(self._model(exact, device), frames, start, self.rotations)
        track, last = found or (None, start)
        over = None
        if track is None or forecast:
            # In double precision: learned retentions near 1 cancel.
            like = torch.empty((self.d, self.d), dtype=torch.float64, device=device)
            over = passage(exact, frames.dt.double(), like)
        if track is None:
            n = frames.seen.shape[0]
            # Transforms of torch.func do not know checkpoints: they keep everything.
            saves = self.checkpoint_every and torch.is_grad_enabled() and not traced()
            tracks = []
            for first in range(0, n, self.checkpoint_every or n):
                part = slice(first, first + (self.checkpoint_every or n))
                arguments = (last, at(frames, part), at(over, part), model)
                if saves:
                    piece, last = checkpoint(self._piece, *arguments, use_reentrant=False)
                else:
                    piece, last = self._piece(*arguments)
                tracks.append(piece)
            track = join(tracks)
        # What is handed out has its time behind the batch axes.
        shown = [*self._look(track), track.log_likelihood, track.nis]
        if over is not None and forecast:
            shown.append(self._ahead(start, track, frames, cast(over, dtype).turn, model))
        axis = track.nis.ndim - 1
        looks: list[Any] = [part.movedim(0, axis) for part in shown]
        looks.insert(4, last)
        return Filtered(*looks)

    def _for_looking(self, frames: Frames, law: Gains, state: State) -> bool:
        """Whether nobody will ask for gradients and the numbers lie where compiled loops reach."""
        if not compiled.reachable(frames.seen.device):
            return False
        parts = (*frames, *vars(law).values(), *self.parameters(), *state)
        asked = any(isinstance(v, Tensor) and v.requires_grad for v in parts)
        return not (torch.is_grad_enabled() and asked)

    def _piece(
        self, state: State, frames: Frames, turns: Transition, model: Model
    ) -> tuple[Track, State]:
        """Some frames: the track and the last state."""
        warm = model._replace(pool_samples=0.0, pool_steps=0.0)
        near = cast(turns, frames.seen.dtype)
        law = None  # of the compiled loop with a backward pass
        plain = not self.rotations and self._advance is self._one
        if plain and compiled.reachable(frames.seen.device):
            law = compiled.unrolling(warm, frames, turns)
        k, n, tracks = 0, frames.seen.shape[0], []
        pools = model.pool_steps > 0
        while k < n:
            if pools and not traced():
                pools = bool(warming(state, model).any())
            # While the start-up lasts, somebody has to look after every frame.
            part = slice(k, k + 1 if pools and not traced() else n)
            piece, k = at(frames, part), part.stop
            if law is not None and not pools:
                track, state = compiled.unrolled(law, warm, piece, at(turns, part), state)
            else:
                now = model if pools else warm
                track, state = walk(self._advance, now, piece, at(near, part), state)
            tracks.append(track)
        return join(tracks), state

    def _ahead(
        self, start: State, track: Track, frames: Frames, turn: Tensor, model: Model
    ) -> Tensor:
        """What every step expected: the track after the step before it, one drift later."""
        first = (start.frame, start.spectrum, start.velocity)
        pairs = zip(first, track[:3], strict=True)
        frame, spectrum, velocity = (torch.cat([one[None], after[:-1]]) for one, after in pairs)
        earlier = frames.observed.cumsum(0) - frames.observed.to(torch.int64)
        started = ~torch.isnan(start.seen) | (earlier > 0)
        turn = torch.where(started[..., None, None], turn, torch.zeros_like(turn))
        frame, _ = turned(frame, velocity, spectrum, model, turn)
        return self._matrix(frame, spectrum)

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
        inputs.tensor(observation, "observation")
        options = {**options, "mask": mask, "dt": dt}
        options = {k: v[..., None] if isinstance(v, Tensor) else v for k, v in options.items()}
        out: Filtered = self(observation.unsqueeze(-3), state=state, **options)
        axis = out.log_likelihood.ndim - 1
        parts: Any = (v.select(axis, 0) if isinstance(v, Tensor) else v for v in out)
        return Filtered(*parts)

    def forecast(self, state: State, dt: float | Tensor = 1.0) -> tuple[Tensor, Tensor]:
        """Estimate and velocity a time ``dt`` later, if nothing more is seen.

        >>> from kgmrf.torch import RotationLayer
        >>> layer = RotationLayer(3)
        >>> state = layer(torch.eye(3).expand(1, 4, 3, 3)).state
        >>> layer.forecast(state, 2.0)[0].shape
        torch.Size([1, 3, 3])
        """
        inputs.times(dt)
        with full_precision(state.frame):
            return self._look(self._later(state, dt))

    def _later(self, state: State, dt: float | Tensor) -> State:
        law = cast(self.gains(), state.frame.dtype)
        interval = torch.as_tensor(dt, dtype=state.time.dtype, device=state.time.device)
        interval = interval.expand(state.time.shape)
        never = torch.zeros_like(interval, dtype=torch.bool)
        return drift(state, self._model(law, state.frame.device), interval, never)

    def stream(self) -> Stream:
        """A counter that remembers the state between frames, for inference."""
        return Stream(self)


def at_least_single(values: Tensor) -> Tensor:
    """Half precision as single precision."""
    return values if values.dtype == torch.float64 else values.to(torch.float32)


def full_precision(like: Tensor) -> Any:
    """Autocast off: products in half precision would leave the group."""
    kind = like.device.type
    if not torch.amp.is_autocast_available(kind):
        return nullcontext()
    return torch.autocast(device_type=kind, enabled=False)
