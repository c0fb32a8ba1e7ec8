"""The loop in its compiled twin: without gradients, or with a backward pass of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from kgmrf.gains import FixedGains, Gains, InformationGains, Transition
from kgmrf.kernels import engine, layout
from kgmrf.state import Model, State, Surprise
from kgmrf.step import covariance_step


class Frames(NamedTuple):
    """A prepared sequence, time first."""

    seen: Tensor
    weight: Tensor
    dt: Tensor
    observed: Tensor
    clock: Tensor  # dt in double precision: one number for all frames, or time first

    @property
    def shared(self) -> bool:
        """Whether all intervals are the same."""
        return self.clock.ndim == 0

    def part(self, part: slice) -> Frames:
        """Some of the frames."""
        seen, weight, dt, observed = (v[part] for v in self[:-1])
        return Frames(seen, weight, dt, observed, self.clock if self.shared else self.clock[part])


class Track(NamedTuple):
    """The part of a state that is seen from outside."""

    frame: Tensor
    spectrum: Tensor
    velocity: Tensor


def track_of(state: State) -> Track:
    """What is seen of a state."""
    return Track(state.frame, state.spectrum, state.velocity)


def over_frame(over: Transition, frames: Frames, k: int | slice) -> Transition:
    """What the intervals before some frames do."""
    return over if frames.shared else Transition(*(v[k] for v in over))


def walk(
    step: Callable[..., Any], model: Model, frames: Frames, over: Transition, state: State
) -> tuple[Track, list[Tensor], State]:
    """All frames by the readable step: the track, its likelihood and nis, and the last state."""
    looks = []
    for k in range(frames.seen.shape[0]):
        now = (part[k] for part in frames[:-1])
        state, surprise = step(state, model, *now, over_frame(over, frames, k))
        looks.append((*track_of(state), surprise.log_likelihood, surprise.nis))
    *parts, likelihood, nis = (torch.stack(part) for part in zip(*looks, strict=True))
    return Track(*parts), [likelihood, nis], state


def traced() -> bool:
    """Whether nobody may look at values: in a traced graph, a transform of torch.func or a jvp."""
    return (
        torch.compiler.is_compiling()
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def reachable(device: torch.device) -> bool:
    """Whether the numbers lie where compiled loops reach, and may be looked at."""
    return device.type == "cpu" and not traced()


def plain(value: Any) -> Any:
    """A tensor as a numpy array, anything else as it is."""
    return value.detach().numpy() if isinstance(value, Tensor) else value


def _plain_gains(model: Model) -> Gains:
    return type(model.gains)(**{name: plain(v) for name, v in vars(model.gains).items()})


def _law(model: Model, d: int, batch: tuple[int, ...], *, rotation: bool) -> layout.Law | None:
    rate = float(plain(model.spectrum_rate))
    model = model._replace(gains=_plain_gains(model), spectrum_rate=rate)
    return engine.compiled_law(model, d, batch, rotation=rotation)


def run(
    model: Model, frames: Frames, state: State, rotation: bool
) -> tuple[Track, list[Tensor], State] | None:
    """As `walk`, compiled; None where the loop lacks the law."""
    d, dtype = frames.seen.shape[-1], frames.seen.dtype
    law = _law(model, d, tuple(frames.observed.shape[1:]), rotation=rotation)
    if law is None:
        return None
    gains = _plain_gains(model)
    dt = frames.dt.reshape(frames.dt.shape[0], -1)[:, 0] if frames.shared else frames.dt
    arrays = (plain(v) for v in (frames.seen, frames.observed, frames.weight, dt))
    information = isinstance(gains, InformationGains)
    start = State(*(plain(part.double()) for part in state))
    before = layout.rows_of(start, Surprise(start.time, start.time), information)
    rows, records = engine.run(law, gains, before, *arrays)
    seen = layout.parts(records, d, information)
    after, _ = layout.state_of(rows, d, information)

    def tensor(values: Any) -> Tensor:
        return torch.as_tensor(values, dtype=dtype)

    clocks, shape = seen["clocks"], (*records.shape[:-1], d, d)
    velocity = layout.folded(seen["velocity"], d, -1.0)
    track = Track(*map(tensor, (seen["frame"].reshape(shape), seen["spectrum"], velocity)))
    surprise = [tensor(clocks[..., k]) for k in (layout.LIKELIHOOD, layout.NIS)]
    return track, surprise, State(*(tensor(part).clone() for part in after))


# --------------------------------------------------------------------------- with gradients


class Plan(NamedTuple):
    """What an `unrolled` run needs beside tensors with gradients."""

    law: layout.Law
    model: Model
    start: State  # in double precision, without gradients
    observed: np.ndarray[Any, Any]
    dtype: torch.dtype


def unrolling(model: Model, frames: Frames, over: Transition) -> layout.Law | None:
    """The law for `unrolled`; None where it is not known there: planes that differ in noise."""
    d, batch = frames.seen.shape[-1], tuple(frames.observed.shape[1:])
    ridged = not isinstance(model.gains, FixedGains) or model.gains.ridge is not None
    if not ridged or (d > 1 and any(v.shape[-1] != 1 for v in over)):
        return None
    return _law(model, d, batch, rotation=False)


def unrolled(
    law: layout.Law, model: Model, frames: Frames, over: Transition, state: State
) -> tuple[Track, list[Tensor], State]:
    """As `run`, with gradients, for covariances after their warm-up; ``over`` in double precision.

    The backward pass is compiled too and keeps the states alone: five matrices per frame.
    """
    n_frames, d = frames.seen.shape[0], frames.seen.shape[-1]
    observed = np.ascontiguousarray(plain(frames.observed)).reshape(n_frames, -1)
    start = State(*(part.detach().double() for part in state))
    plan = Plan(law, model, start, observed, frames.seen.dtype)
    columns = (*over, frames.clock.double()[..., None, None])
    common = np.broadcast_shapes(*(v.shape for v in columns))
    shape = (1, 1) if frames.shared else (n_frames, -1)
    steps = torch.stack([v.expand(common) for v in columns], dim=-1).reshape(*shape, 7)
    gains, none = model.gains, steps.new_zeros(())
    tables, ridge = none.expand(2, d, d), none
    if isinstance(gains, FixedGains):
        both = (gains.position_gain, gains.velocity_gain)
        tables = torch.stack([v.double().expand(d, d) for v in both])
        ridge = torch.as_tensor(gains.ridge)
    rate = torch.as_tensor(model.spectrum_rate)
    parts = (state.frame, state.velocity, state.uncertainty, state.spectrum, state.spectrum_var)
    apply: Any = _Unrolled.apply
    out = apply(plan, *parts, frames.seen, frames.weight, steps, tables, rate, ridge)
    frame, velocity, spectrum, likelihood, nis, uncertainty, spectrum_var, *rest = out
    last = State(
        frame=frame[-1],
        spectrum=spectrum[-1],
        velocity=velocity[-1],
        uncertainty=uncertainty,
        spectrum_var=spectrum_var,
        pool=state.pool,
        **dict(zip(layout.CLOCKS, rest, strict=True)),
    )
    return Track(frame, spectrum, velocity), [likelihood, nis], last


class _Unrolled(torch.autograd.Function):
    """States of a sequence, and the way back through them.

    The inputs, in this order: frame, velocity, uncertainty, spectrum and spectrum_var of the start;
    observations and counts; intervals, gain tables, spectrum rate and ridge.
    """

    @staticmethod
    def forward(ctx: Any, plan: Plan, *inputs: Tensor) -> tuple[Tensor, ...]:
        sequence, counts, steps = _sequence(inputs)
        batch = plan.start.time.shape
        parts = (plain(part) for part in plan.start)
        start = State(*(part.reshape(-1, *part.shape[len(batch) :]) for part in parts))
        states, surprise = engine.unroll(plan.law, start, sequence, plan.observed, counts, steps)
        vectors = np.stack([states.spectrum, states.spectrum_var], axis=-2)
        scores = np.concatenate([surprise.nis[:1], surprise.log_likelihood])
        clocks = np.stack([states.seen, states.steps, scores], axis=-1)
        ctx.plan = plan
        kept = (states.frame, states.velocity, states.uncertainty, vectors, clocks)
        ctx.save_for_backward(*inputs, *map(torch.from_numpy, kept))

        def tensor(values: Any) -> Tensor:
            values = values.reshape(len(values), *batch, *values.shape[2:])
            return torch.tensor(values, dtype=plan.dtype)

        rest = [tensor(getattr(states, name)[-1:])[0] for name in layout.CLOCKS]
        ctx.mark_non_differentiable(*rest)
        ctx.set_materialize_grads(False)
        each = (states.frame[1:], states.velocity[1:], states.spectrum[1:], *surprise[::-1])
        last = (states.uncertainty[-1:], states.spectrum_var[-1:])
        return (*map(tensor, each), *(tensor(part)[0] for part in last), *rest)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor | None) -> Any:
        saved = ctx.saved_tensors  # once: checkpoints compute them anew
        # With create_graph the gradients are to be differentiated again: the readable step can.
        pull_back = _pull_back_again if torch.is_grad_enabled() else _pull_back
        return None, *pull_back(ctx.plan, saved[:-5], saved[-5:], slopes)


def _sequence(inputs: Sequence[Tensor]) -> tuple[np.ndarray[Any, Any], ...]:
    """Observations ``(T, n, d, d)``, counts ``(T, n)`` and intervals, in double precision."""
    seen, weight, steps = (np.array(plain(v), dtype=float, order="C") for v in inputs[5:8])
    n_frames, d = seen.shape[0], seen.shape[-1]
    return seen.reshape(n_frames, -1, d, d), weight.reshape(n_frames, -1), steps


def _pull_back(
    plan: Plan, inputs: Sequence[Tensor], states: Sequence[Tensor], slopes: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Gradients by the inputs, compiled."""
    law, known = plan.law, [part.numpy() for part in states]
    sequence, counts, steps = _sequence(inputs)
    frames, velocities, spreads, vectors, _ = known
    ahead = [np.zeros_like(v) for v in (frames, velocities, spreads[-1], vectors)]
    frame, velocity, spread, vector = ahead
    surprise = np.zeros((*counts.shape, 2))
    targets = (
        *(frame[1:], velocity[1:], vector[1:, :, 0]),
        *(surprise[..., 1], surprise[..., 0], spread, vector[-1, :, 1]),
    )
    for target, slope in zip(targets, slopes[: len(targets)], strict=True):
        if slope is not None:
            target += slope.detach().numpy().reshape(target.shape)
    found = [np.zeros_like(v) for v in (sequence, counts, steps, law.tables[0], law.head)]
    engine.loops("adjoint").pull_back(
        *known,
        sequence,
        plan.observed,
        counts,
        steps,
        law.head,
        law.tables,
        *ahead,
        surprise,
        *found,
    )
    head = found.pop()
    parts = (
        *(frame[0], velocity[0], spread, vector[0, :, 0], vector[0, :, 1]),
        *(*found, head[layout.SPECTRUM_RATE], head[layout.RIDGE]),
    )
    pairs = zip(parts, inputs, strict=True)
    return [torch.tensor(v, dtype=like.dtype).reshape(like.shape) for v, like in pairs]


def _pull_back_again(
    plan: Plan, inputs: Sequence[Tensor], _: Sequence[Tensor], slopes: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The same gradients with a graph of their own: the sequence is run again, readably."""
    # Views: an input that depends on another must not pass its share on to it here.
    own = [v.view_as(v) for v in inputs]
    ends = _readably(plan, own)
    pairs = [
        (end, slope)
        for end, slope in zip(ends, slopes[: len(ends)], strict=True)
        if slope is not None and end.requires_grad
    ]
    wanted = [v for v in own if v.requires_grad]
    after, before = zip(*pairs, strict=True)
    found = iter(torch.autograd.grad(after, wanted, before, create_graph=True, allow_unused=True))
    return [next(found) if v.requires_grad else None for v in own]


def _readably(plan: Plan, inputs: Sequence[Tensor]) -> list[Tensor]:
    """The differentiable outputs of `_Unrolled`, by the readable step in double precision."""
    *first, seen, weight, steps, tables, rate, ridge = (v.double() for v in inputs)
    names = ("frame", "velocity", "uncertainty", "spectrum", "spectrum_var")
    state = plan.start._replace(**dict(zip(names, first, strict=True)))
    batch = state.time.shape
    model = plan.model
    if isinstance(model.gains, FixedGains):
        model = model._replace(gains=FixedGains(tables[0], tables[1], ridge=ridge))
    if isinstance(model.spectrum_rate, Tensor):
        model = model._replace(spectrum_rate=rate)
    steps = steps.expand(seen.shape[0], batch.numel(), 7).reshape(-1, *batch, 7)
    observed = torch.from_numpy(plan.observed).reshape(-1, *batch)
    dt = steps[..., 6]
    over = Transition(*(v[..., None, None] for v in steps[..., :6].unbind(-1)))
    frames = Frames(seen, weight, dt, observed, dt)
    track, surprise, state = walk(covariance_step, model, frames, over, state)
    ends = (track.frame, track.velocity, track.spectrum, *surprise)
    return [v.to(plan.dtype) for v in (*ends, state.uncertainty, state.spectrum_var)]
