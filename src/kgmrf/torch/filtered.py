"""What the layers return, and a stream that remembers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from kgmrf.model.law_state import State

if TYPE_CHECKING:
    from kgmrf.torch.loop import Kinetic


class Filtered(NamedTuple):
    """What a layer returns; the time axis is absent from ``state``, and from all after a `step`.

    Parameters
    ----------
    estimate : Tensor
        ``(..., time, d, d)``: covariances or rotations, or tangent vectors.
    velocity : Tensor
        ``(..., time, d, d)``: angular velocity per unit time, or its coordinates.
    log_likelihood : Tensor
        ``(..., time)``: of each observation before it was used; NaN where none.
    nis : Tensor
        ``(..., time)``: squared surprise, information gains only; NaN where none.
    state : State
        To go on from; pass it to the next call.
    forecast : Tensor, default None
        ``(..., time, d, d)``: what each step expected; None unless asked for.

    Examples
    --------
    >>> from kgmrf.torch import LawLayer
    >>> LawLayer(2, n_samples=8)(torch.eye(2).expand(1, 4, 2, 2))
    Filtered of float32: estimate (1, 4, 2, 2), velocity (1, 4, 2, 2), log_likelihood (1, 4), nis \
(1, 4), state of 1 track
    """

    estimate: Tensor
    velocity: Tensor
    log_likelihood: Tensor
    nis: Tensor
    state: State
    forecast: Tensor | None = None

    @property
    def covariance(self) -> Tensor:
        """The estimate of a `LawLayer`, by the name it has in the trackers' results."""
        state = self.state
        rotations = bool((state.pooled_samples.eq(0) & state.spectrum.eq(1).all(-1)).any())
        if rotations or self.estimate.ndim != self.nis.ndim + 2:
            raise AttributeError("this layer has no covariances: take estimate, which it returns")
        return self.estimate

    @property
    def scored(self) -> Tensor:
        """Where there is a log-likelihood: observed, and after the start-up, ``(..., time)``."""
        return ~torch.isnan(self.log_likelihood)

    def __repr__(self) -> str:
        parts = [
            f"{name} {tuple(value.shape)}"
            for name, value in zip(self._fields, self, strict=True)
            if isinstance(value, Tensor)
        ]
        n = self.state.time.numel()
        parts.insert(4, f"state of {n} track{'' if n == 1 else 's'}")
        kind = str(self.estimate.dtype).removeprefix("torch.")
        return f"Filtered of {kind}: {', '.join(parts)}"


def detach(state: State) -> State:
    """The same state without its history: cut here for truncated backpropagation through time.

    Parameters
    ----------
    state : State
        State, or anything that holds tensors, to continue from without a gradient to the past.

    Examples
    --------
    >>> from kgmrf.torch import LawLayer
    >>> layer = LawLayer(2, n_samples=8)
    >>> state = layer(torch.eye(2).expand(1, 4, 2, 2)).state
    >>> detach(state).frame.requires_grad
    False
    """
    return State(*(part.detach() for part in state))


def join(pieces: list[Any], axis: int = 0) -> Any:
    """Pieces of a sequence, one after the other; of what is no tensor, the last."""

    def one(parts: tuple[Any, ...]) -> Any:
        return torch.cat(parts, dim=axis) if isinstance(parts[0], Tensor) else parts[-1]

    return type(pieces[0])(*map(one, zip(*pieces, strict=True)))


class Stream:
    """Stateful inference: call it with one step after another; `reset` forgets.

    Parameters
    ----------
    layer : Kinetic
        The layer that takes the steps.

    Examples
    --------
    >>> from kgmrf.torch import LawLayer
    >>> stream = LawLayer(2, n_samples=8).stream()
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
        """Forget: the next observation is the first."""
        self.state = None
