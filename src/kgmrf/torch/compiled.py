"""The loop in the compiled core: without gradients, or with a backward pass of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad

from kgmrf._types import Mask, Numbers
from kgmrf.constants import STRUCTS
from kgmrf.engines import TRUST, Lines, core
from kgmrf.engines import law_row as layout
from kgmrf.engines.law import SingleLaw, core_plan
from kgmrf.model.gains import FixedGains, Transition
from kgmrf.model.law_state import Model, State, Surprise
from kgmrf.model.step import covariance_step


class Frames(NamedTuple):
    """A prepared sequence, time first; also the arguments of a step at one instant."""

    seen: Tensor
    weight: Tensor
    dt: Tensor  # one number for all items of a batch, or one each
    observed: Tensor


class Track(NamedTuple):
    """What is seen of a state, and how its observation compared; in sequences time first."""

    frame: Tensor
    spectrum: Tensor
    velocity: Tensor
    log_likelihood: Tensor
    nis: Tensor


def at(parts: Any, k: int | slice) -> Any:
    """Some instants of a tuple of sequences."""
    return type(parts)(*(part[k] for part in parts))


def walk(
    step: Callable[..., Any], model: Model, frames: Frames, over: Transition, state: State
) -> tuple[Track, State]:
    """All frames by the readable step: the track, and the last state."""
    looks = []
    for k in range(frames.seen.shape[0]):
        state, surprise = step(state, model, *at(frames, k), at(over, k))
        seen = (state.frame, state.spectrum, state.velocity)
        looks.append((*seen, surprise.log_likelihood, surprise.nis))
    return Track(*(torch.stack(part) for part in zip(*looks, strict=True))), state


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


def _plain_model(model: Model) -> Model:
    gains = type(model.gains)(**{name: plain(v) for name, v in vars(model.gains).items()})
    return model._replace(gains=gains, spectrum_rate=float(plain(model.spectrum_rate)))


def run(model: Model, frames: Frames, state: State, rotation: bool) -> tuple[Track, State] | None:
    """As `walk`, compiled; None where the loop lacks the law."""
    d, dtype, shape = frames.seen.shape[-1], frames.seen.dtype, frames.observed.shape
    start = State(*(plain(part.double()) for part in state))
    law = SingleLaw(_plain_model(model), start, noise_var=1.0 if rotation else None)
    if law.plan is None or core.compiled() is None:
        return None
    rows = law.init(shape[1:].numel())
    step = frames.dt.reshape(-1, *(1,) * (len(shape) - frames.dt.ndim), *frames.dt.shape[1:])
    arrays = (frames.observed, step.expand(shape), frames.weight)
    observed, dt, weight = (np.array(plain(v), dtype=float).reshape(-1) for v in arrays)
    matrices = np.array(plain(frames.seen), dtype=float, order="C").reshape(-1, d, d)
    lines = Lines(np.tile(np.arange(len(rows)), shape[0]), matrices, observed, dt)
    records = law.run(rows, lines, weight)[1].reshape(*shape, -1)
    seen = layout.parts(records, d, law.information)
    after = law.state(rows.reshape(*shape[1:], -1))[0]
    frame = seen["frame"].reshape(*records.shape[:-1], d, d)
    velocity = layout.folded(seen["velocity"], d, -1.0)
    scores = (seen["clocks"][..., k] for k in (layout.LIKELIHOOD, layout.NIS))

    def tensor(values: Any) -> Tensor:
        return torch.as_tensor(values, dtype=dtype)

    track = Track(*map(tensor, (frame, seen["spectrum"], velocity, *scores)))
    return track, State(*(tensor(part).clone() for part in after))


# --------------------------------------------------------------------------- with gradients


class Plan(NamedTuple):
    """What an `unrolled` run needs beside tensors with gradients."""

    law: layout.Plan
    model: Model
    start: State  # in double precision, without gradients
    observed: Tensor
    dtype: torch.dtype


def unrolling(model: Model, frames: Frames, over: Transition) -> layout.Plan | None:
    """The law for `unrolled`; None where it is not known there: planes that differ in noise."""
    ridged = not isinstance(model.gains, FixedGains) or model.gains.ridge is not None
    if not ridged or (frames.seen.shape[-1] > 1 and any(v.shape[-1] != 1 for v in over)):
        return None
    if core.compiled() is None:
        return None
    batch = tuple(frames.observed.shape[1:])
    return core_plan(_plain_model(model), frames.seen.shape[-1], batch, rotation=False)


def unroll(
    law: layout.Plan,
    start: State,
    sequence: Numbers,
    observed: Mask,
    counts: Numbers,
    steps: Numbers,
) -> tuple[State, Surprise]:
    """All states ``(T + 1, n, ...)`` of a sequence ``(T, n, d, d)``, and its surprises ``(T, n)``.

    Covariances after their cold start only; steps ``(1 or T, 1 or n, 7)`` as `law_row.steps`.
    """
    n_frames, n, d = sequence.shape[:3]
    lines = n_frames * n
    settings = dict(zip(STRUCTS["LawSettings"], law.settings, strict=True))
    information = settings["information"] != 0.0
    rows = layout.rows_of(start, Surprise(start.time, start.time), information)
    records = np.empty((lines, layout.row_size(d, information)))
    every = np.broadcast_to(steps, (n_frames, n, layout.N_STEP)).reshape(lines, -1)
    loop = core.loop("Law", *law, layout.places(d, information))
    loop.run(
        *(np.ascontiguousarray(rows), np.tile(np.arange(n), n_frames)),
        *(sequence.reshape(lines, d, d), observed.reshape(lines).astype(float)),
        *(np.ascontiguousarray(every[:, -1]), True, TRUST, records, np.empty(lines, np.int8)),
        *(counts.reshape(lines), np.ascontiguousarray(every), np.arange(lines)),
    )
    after, surprise = layout.state_of(records.reshape(n_frames, n, -1), d, information)
    pairs = zip(start, after, strict=True)
    return State(*(np.concatenate([one[None], more]) for one, more in pairs)), surprise


def unrolled(
    law: layout.Plan, model: Model, frames: Frames, over: Transition, state: State
) -> tuple[Track, State]:
    """As `run`, with gradients, for covariances after their warm-up; ``over`` in double precision.

    The backward pass is compiled too and keeps the states alone: five matrices per frame.
    """
    d, n_frames = frames.seen.shape[-1], frames.seen.shape[0]
    start = State(*(part.detach().double() for part in state))
    plan = Plan(law, model, start, frames.observed, frames.seen.dtype)
    columns = (*over, frames.dt.double()[..., None, None])
    shape = np.broadcast_shapes(*(v.shape for v in columns))
    steps = torch.stack([v.expand(shape) for v in columns], dim=-1).reshape(n_frames, -1, 7)
    gains, none = model.gains, steps.new_zeros(())
    tables, ridge = none.expand(2, d, d), none
    if isinstance(gains, FixedGains):
        both = (gains.position_gain, gains.velocity_gain)
        tables = torch.stack([v.double().expand(d, d) for v in both])
        ridge = torch.as_tensor(gains.ridge)
    numbers = (steps, tables, torch.as_tensor(model.spectrum_rate), ridge)
    parts = (state.frame, state.velocity, state.uncertainty, state.spectrum, state.spectrum_var)
    apply: Any = _Unrolled.apply
    out = apply(plan, *parts, frames.seen, frames.weight, *numbers)
    track, (uncertainty, spectrum_var, *rest) = Track(*out[:5]), out[5:]
    last = State(
        frame=track.frame[-1],
        spectrum=track.spectrum[-1],
        velocity=track.velocity[-1],
        uncertainty=uncertainty,
        spectrum_var=spectrum_var,
        pool=state.pool,
        **dict(zip(layout.CLOCKS, rest, strict=True)),
    )
    return track, last


class _Unrolled(torch.autograd.Function):
    """States of a sequence, and the way back through them.

    The inputs, in this order: frame, velocity, uncertainty, spectrum and spectrum_var of the start;
    observations and counts; intervals, gain tables, spectrum rate and ridge.
    """

    @staticmethod
    def forward(ctx: Any, plan: Plan, *inputs: Tensor) -> tuple[Tensor, ...]:
        observed, sequence, counts, steps = _sequence(plan, inputs)
        batch = plan.start.time.shape
        parts = (plain(part) for part in plan.start)
        start = State(*(part.reshape(-1, *part.shape[len(batch) :]) for part in parts))
        states, surprise = unroll(plan.law, start, sequence, observed, counts, steps)
        vectors = np.stack([states.spectrum, states.spectrum_var], axis=-2)
        moving = ~np.isnan(states.seen[:-1])
        kept = (moving, states.frame, states.velocity, states.uncertainty, vectors)
        ctx.plan = plan
        ctx.save_for_backward(*inputs, *map(torch.from_numpy, kept))

        def tensor(values: Any) -> Tensor:
            values = values.reshape(len(values), *batch, *values.shape[2:])
            return torch.tensor(values, dtype=plan.dtype)

        rest = [tensor(getattr(states, name)[-1:])[0] for name in layout.CLOCKS]
        ctx.mark_non_differentiable(*rest)
        each = (states.frame[1:], states.spectrum[1:], states.velocity[1:], *surprise[::-1])
        last = (states.uncertainty[-1:], states.spectrum_var[-1:])
        return (*map(tensor, each), *(tensor(part)[0] for part in last), *rest)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        plan, saved = ctx.plan, ctx.saved_tensors  # once: checkpoints compute them again
        inputs, states, slopes = saved[:-5], saved[-5:], slopes[:7]
        if not torch.is_grad_enabled():
            return None, *_pull_back(plan, inputs, states, slopes)
        # With create_graph the gradients are to be differentiated again: the readable step can.
        vjp: Any = torch.autograd.functional.vjp
        _, found = vjp(lambda *v: _readably(plan, v), inputs, slopes, create_graph=True)
        return None, *found


def _sequence(plan: Plan, inputs: Sequence[Tensor]) -> tuple[np.ndarray[Any, Any], ...]:
    """What is observed and counts ``(T, n)``, observations ``(T, n, d, d)``, intervals."""
    seen, weight, steps = (np.array(plain(v), dtype=float, order="C") for v in inputs[5:8])
    n_frames, d = seen.shape[0], seen.shape[-1]
    observed = np.ascontiguousarray(plain(plan.observed)).reshape(n_frames, -1)
    return observed, seen.reshape(n_frames, -1, d, d), weight.reshape(n_frames, -1), steps


def _pull_back(
    plan: Plan, inputs: Sequence[Tensor], states: Sequence[Tensor], slopes: Sequence[Tensor]
) -> list[Tensor]:
    """Gradients by the inputs, compiled; that by the frame of the start lies along rotations."""
    law = plan.law
    observed, sequence, counts, steps = _sequence(plan, inputs)
    moving, frames, *others = (part.numpy() for part in states)
    frame, velocity, spreads, vector = (np.zeros_like(v) for v in (frames, *others))
    spread, surprise = spreads[-1], np.zeros((*counts.shape, 2))
    targets = (
        *(frame[1:], vector[1:, :, 0], velocity[1:], surprise[..., 1], surprise[..., 0]),
        *(spread, vector[-1, :, 1]),
    )
    for target, slope in zip(targets, slopes, strict=True):
        target += slope.detach().numpy().reshape(target.shape)
    body = np.swapaxes(frames, -1, -2) @ frame
    body = (body - np.swapaxes(body, -1, -2)) / 2
    inputs_ = (sequence, counts, steps, law.settings, law.tables)
    like = (sequence, counts, steps, law.tables[0], law.settings)
    found = [np.zeros_like(v) for v in like]
    bars = (body, velocity, spread, vector, surprise)
    core.module().pull_back(moving, observed, frames, *others, *inputs_, *bars, *found)
    settings = dict(zip(STRUCTS["LawSettings"], found.pop(), strict=True))
    parts = (
        *(frames[0] @ body[0], velocity[0], spread, vector[0, :, 0], vector[0, :, 1]),
        *(*found, settings["spectrum_rate"], settings["ridge"]),
    )
    pairs = zip(parts, inputs, strict=True)
    return [torch.tensor(v, dtype=like.dtype).reshape(like.shape) for v, like in pairs]


def _readably(plan: Plan, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The differentiable outputs of `_Unrolled`, by the readable step in double precision."""
    *first, seen, weight, steps, tables, rate, ridge = (v.double() for v in inputs)
    names = ("frame", "velocity", "uncertainty", "spectrum", "spectrum_var")
    state = plan.start._replace(**dict(zip(names, first, strict=True)))
    batch, model = state.time.shape, plan.model
    if isinstance(model.gains, FixedGains):
        model = model._replace(gains=FixedGains(tables[0], tables[1], ridge=ridge))
    if isinstance(model.spectrum_rate, Tensor):
        model = model._replace(spectrum_rate=rate)
    steps = steps.expand(-1, batch.numel(), 7).reshape(-1, *batch, 7)
    over = Transition(*(v[..., None, None] for v in steps[..., :6].unbind(-1)))
    frames = Frames(seen, weight, steps[..., 6], plan.observed)
    track, state = walk(covariance_step, model, frames, over, state)
    return tuple(v.to(plan.dtype) for v in (*track, state.uncertainty, state.spectrum_var))
