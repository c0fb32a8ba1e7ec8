"""The loop in its compiled twin: without gradients, or with a backward pass of its own."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from kgmrf.gains import FixedGains, Gains, InformationGains, Transition
from kgmrf.kernels import engine, layout
from kgmrf.step import Model, State, Surprise


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
    log_scale: Tensor


def reachable(device: torch.device) -> bool:
    """Whether the numbers lie where compiled loops reach, and nobody traces."""
    return device.type == "cpu" and not torch.compiler.is_compiling()


def plain(value: Any) -> Any:
    """A tensor as a numpy array, anything else as it is."""
    return value.detach().numpy() if isinstance(value, Tensor) else value


def _plain_gains(model: Model) -> Gains:
    return type(model.gains)(**{name: plain(v) for name, v in vars(model.gains).items()})


def _law(model: Model, d: int, batch: tuple[int, ...], *, rotation: bool) -> layout.Law | None:
    rate = float(plain(model.spectrum_rate))
    model = model._replace(gains=_plain_gains(model), spectrum_rate=rate)
    return engine.compiled_law(model, d, batch, rotation=rotation)


def _rows(state: State) -> np.ndarray[Any, Any]:
    before = State(*(plain(part.double()) for part in state))
    return layout.rows(before, Surprise(before.time, before.time))


def run(
    model: Model, frames: Frames, state: State, rotation: bool
) -> tuple[Track, list[Tensor], State] | None:
    """The track, its likelihood and nis, and the last state; None where the loop lacks the law."""
    d, dtype = frames.seen.shape[-1], frames.seen.dtype
    law = _law(model, d, tuple(frames.observed.shape[1:]), rotation=rotation)
    if law is None:
        return None
    gains = _plain_gains(model)
    dt = frames.dt.reshape(frames.dt.shape[0], -1)[:, 0] if frames.shared else frames.dt
    arrays = (plain(v) for v in (frames.seen, frames.observed, frames.weight, dt))
    information = isinstance(gains, InformationGains)
    before = layout.rows_of(*layout.views(_rows(state), d), information)
    rows, records = engine.run(law, gains, before, *arrays)
    seen = layout.parts(records, d, information)
    after, _ = layout.state_of(rows, d, information)

    def tensor(values: Any) -> Tensor:
        return torch.as_tensor(values, dtype=dtype)

    clocks, shape = seen["clocks"], (*records.shape[:-1], d, d)
    velocity = layout.folded(seen["velocity"], d, -1.0)
    shown = (
        seen["frame"].reshape(shape),
        seen["spectrum"],
        velocity,
        clocks[..., layout.LOG_SCALE],
    )
    track = Track(*map(tensor, shown))
    surprise = [tensor(clocks[..., k]) for k in (layout.LIKELIHOOD, layout.NIS)]
    return track, surprise, State(*(tensor(part).clone() for part in after))


# --------------------------------------------------------------------------- with gradients


class Plan(NamedTuple):
    """What an `unrolled` run needs beside tensors with gradients."""

    law: layout.Law
    rows: np.ndarray[Any, Any]
    observed: np.ndarray[Any, Any]
    dtype: torch.dtype


def unrolls(model: Model, frames: Frames, over: Transition, state: State) -> bool:
    """Whether `unrolled` knows this model: no scale clock, no noise that differs between planes."""
    d, batch = frames.seen.shape[-1], tuple(frames.observed.shape[1:])
    if model.scale_rate or (d > 1 and any(v.shape[-1] != 1 for v in over)):
        return False
    if isinstance(model.gains, FixedGains) and model.gains.ridge is None:
        return False
    return _law(model, d, batch, rotation=False) is not None and not bool(state.log_scale.any())


def unrolled(
    model: Model, frames: Frames, over: Transition, state: State
) -> tuple[Track, list[Tensor], State]:
    """As `run`, with gradients, for covariances after their warm-up; ``over`` in double precision.

    The backward pass is compiled too and keeps the states alone: some six matrices per frame.
    """
    d, batch = frames.seen.shape[-1], tuple(frames.observed.shape[1:])
    model = model._replace(warmup_samples=0.0, warmup_frames=0.0)
    law = _law(model, d, batch, rotation=False)
    assert law is not None
    n_frames = frames.seen.shape[0]
    observed = np.ascontiguousarray(plain(frames.observed)).reshape(n_frames, -1)
    plan = Plan(law, _rows(state), observed, frames.seen.dtype)
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
    names = layout.SCALARS
    last = State(
        frame=frame[-1],
        spectrum=spectrum[-1],
        velocity=velocity[-1],
        uncertainty=uncertainty,
        spectrum_var=spectrum_var,
        pool=state.pool,
        **dict(zip(names, rest, strict=True)),
    )
    track = Track(frame, spectrum, velocity, torch.zeros_like(likelihood))
    return track, [likelihood, nis], last


class _Unrolled(torch.autograd.Function):
    """States of a sequence, and the way back through them."""

    @staticmethod
    def forward(
        ctx: Any,
        plan: Plan,
        frame: Tensor,
        velocity: Tensor,
        uncertainty: Tensor,
        spectrum: Tensor,
        spectrum_var: Tensor,
        seen: Tensor,
        weight: Tensor,
        steps: Tensor,
        tables: Tensor,
        rate: Tensor,
        ridge: Tensor,
    ) -> tuple[Tensor, ...]:
        n_frames, d = seen.shape[0], seen.shape[-1]
        batch = tuple(seen.shape[1:-2])
        rows = plan.rows.reshape(-1, plan.rows.shape[-1])
        sequence = np.array(plain(seen), dtype=float, order="C").reshape(n_frames, -1, d, d)
        counts = np.array(plain(weight), dtype=float, order="C").reshape(n_frames, -1)
        numbers = np.array(plain(steps), dtype=float, order="C")
        states = engine.unroll(plan.law, rows, sequence, plan.observed, counts, numbers)
        ctx.plan, ctx.batch = plan, batch
        ctx.kinds = [t.dtype for t in (seen, weight, rate, ridge)]
        ctx.save_for_backward(*map(torch.from_numpy, (states, sequence, counts, numbers)))
        after, surprise = layout.views(states[1:].reshape(n_frames, *batch, -1), d)

        def tensor(values: Any) -> Tensor:
            return torch.tensor(values, dtype=plan.dtype)

        rest = [tensor(getattr(after, name)[-1]) for name in layout.SCALARS]
        ctx.mark_non_differentiable(*rest)
        ctx.set_materialize_grads(False)
        outputs = (after.frame, after.velocity, after.spectrum, *surprise[::-1])
        last = (after.uncertainty[-1], after.spectrum_var[-1])
        return (*map(tensor, (*outputs, *last)), *rest)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor | None) -> Any:
        grads = _pull_back(ctx, slopes)
        if torch.is_grad_enabled():
            real = [k for k, g in enumerate(grads) if g is not None]
            reasons = [s for s in slopes if s is not None and s.requires_grad]
            once: Any = _Once.apply
            marked = once(len(real), *(grads[k] for k in real), *reasons)
            for k, g in zip(real, marked, strict=True):
                grads[k] = g
        return tuple(grads)


def _pull_back(ctx: Any, slopes: tuple[Tensor | None, ...]) -> list[Tensor | None]:
    plan, batch = ctx.plan, ctx.batch
    states, sequence, counts, numbers = (t.numpy() for t in ctx.saved_tensors)
    n_frames, d = sequence.shape[0], sequence.shape[-1]
    bars = np.zeros_like(states)
    views = bars.reshape(n_frames + 1, *batch, -1)
    after, surprise = layout.views(views, d)
    targets = (
        *(part[1:] for part in (after.frame, after.velocity, after.spectrum)),
        *(part[1:] for part in surprise[::-1]),
        after.uncertainty[-1],
        after.spectrum_var[-1],
    )
    for target, slope in zip(targets, slopes[: len(targets)], strict=True):
        if slope is not None:
            target += slope.detach().numpy()
    found = engine.pull_back(plan.law, states, sequence, plan.observed, counts, numbers, bars)
    first, _ = layout.views(found.rows.reshape(*batch, -1), d)
    seen, weight, rate, ridge = ctx.kinds

    def tensor(values: Any, kind: torch.dtype) -> Tensor:
        return torch.tensor(values, dtype=kind)

    parts = (first.frame, first.velocity, first.uncertainty, first.spectrum, first.spectrum_var)
    return [
        None,
        *(tensor(part, plan.dtype) for part in parts),
        tensor(found.sequence.reshape(n_frames, *batch, d, d), seen),
        tensor(found.counts.reshape(n_frames, *batch), weight),
        tensor(found.steps, torch.float64),
        tensor(found.tables, torch.float64),
        tensor(found.head[layout.SPECTRUM_RATE], rate),
        tensor(found.head[layout.RIDGE], ridge),
    ]


class _Once(torch.autograd.Function):
    """The first tensors, as they are; a derivative of them is refused."""

    @staticmethod
    def forward(ctx: Any, n: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(t.clone() for t in tensors[:n])

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        raise RuntimeError(
            "the compiled backward pass has no derivative of its own; set KGMRF_ENGINE=readable in "
            "the environment for second derivatives"
        )
