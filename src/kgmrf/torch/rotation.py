"""The layer that follows rotations."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn

from kgmrf.geometry import so
from kgmrf.model.gains import FixedGains, Gains
from kgmrf.model.law_state import Model, State, cold_state
from kgmrf.model.step import rotation_step
from kgmrf.torch import inputs
from kgmrf.torch.compiled import Frames, traced
from kgmrf.torch.filtered import Filtered
from kgmrf.torch.laws import Law, free_positive, positive
from kgmrf.torch.loop import Kinetic, at_least_single

NOISE_STD = (1e-6, 1e1)
"""Between these (radians) lies the learned noise of an observed rotation."""


class RotationLayer(Kinetic):
    """Rotations in, filtered rotations and angular velocities out; differentiable throughout.

    Parameters
    ----------
    d : int, default 3
        Dimension.
    noise_std : float, default 0.05
        Noise of the observed rotations per plane (radians), learned.
    gains : str or Law, default "information"
        "information", "fixed", "printed", or an `InformationLaw` or `FixedLaw`.
    project : bool, default True
        Take the nearest rotation of every observation first; matrices that come out of a network
        need it.
    velocity : {"body", "spatial"}, default "body"
        "body" hands out W, "spatial" R W R^T.
    checkpoint_every, turn_bound : default None
        As in `LawLayer`. The first observation starts the track.

    Examples
    --------
    >>> out = RotationLayer(3)(torch.eye(3).expand(5, 20, 3, 3))
    >>> out.estimate.shape
    torch.Size([5, 20, 3, 3])
    """

    rotations = True
    _one = staticmethod(rotation_step)

    def __init__(
        self,
        d: int = 3,
        *,
        noise_std: float = 0.05,
        gains: str | Law = "information",
        project: bool = True,
        velocity: Literal["body", "spatial"] = "body",
        checkpoint_every: int | None = None,
        turn_bound: float | None = None,
    ) -> None:
        super().__init__(d, gains, velocity, checkpoint_every, turn_bound)
        if d < 2:
            raise ValueError("d = 1 has no rotations; d must be 2 or more")
        self.free_noise_std = nn.Parameter(torch.tensor(free_positive(noise_std, *NOISE_STD)))
        self.project = project

    def forward(
        self,
        observations: Tensor,
        *,
        mask: Tensor | None = None,
        dt: float | Tensor | None = None,
        n_samples: float | Tensor | None = None,
        state: State | None = None,
        forecast: bool = False,
    ) -> Filtered:
        """Filter a sequence of rotations ``(..., time, d, d)``; arguments as in `LawLayer`.

        ``n_samples`` divides the noise variance of an observation.
        """
        weight = 1.0 if n_samples is None else n_samples
        return self._filter_matrices(observations, weight, mask, dt, state, forecast)

    def _check(self, observations: Tensor, mask: Tensor | None) -> None:
        if self.d > 3 and traced():
            raise NotImplementedError(
                f"rotations of d = {self.d} cannot be traced, exported or transformed by "
                "torch.func: their logarithm looks at the data; use torch.autograd, or d <= 3"
            )
        if self.project:
            inputs.finite(at_least_single(observations), "observations", mask)
        else:
            inputs.matrices(observations, mask, rotation=True)

    def _take(self, frames: Frames) -> Frames:
        variance = positive(self.free_noise_std, *NOISE_STD).to(frames.seen.dtype) ** 2
        seen = so.project(frames.seen) if self.project else frames.seen
        return frames._replace(seen=seen, weight=variance / frames.weight)

    def _model(self, law: Gains, device: torch.device) -> Model:
        if isinstance(law, FixedGains):
            # A rotation is seen directly: no gap divides, so no ridge softens.
            law = replace(law, ridge=0.0)
        return Model(gains=law, turn_bound=self._bound(device))

    def _fresh(self, like: Tensor, law: Gains) -> State:
        return cold_state(like, law)._replace(spectrum=torch.ones_like(like[..., 0]))

    def _matrix(self, frame: Tensor, spectrum: Tensor) -> Tensor:
        return frame
