"""The layer that follows covariances."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor, nn

from kgmrf import _check
from kgmrf.geometry import orbit, so
from kgmrf.model import wishart
from kgmrf.model.gains import Gains
from kgmrf.model.law_state import Model, State, cold_state, initial_state, select, support
from kgmrf.model.step import covariance_step
from kgmrf.torch import inputs
from kgmrf.torch.compiled import Frames, Track, traced
from kgmrf.torch.filtered import Filtered, join
from kgmrf.torch.laws import FixedLaw, Law, bounded, cast, free_positive, positive
from kgmrf.torch.loop import TRACED_TURN, Kinetic, at_least_single, full_precision

START = (1e-6, 1e6)
"""Between these lie learned eigenvalues of the start: bring the data to the order of one."""
SPECTRUM_RATE = (1e-12, 1e1)


class LawLayer(Kinetic):
    """Covariances in, filtered covariances and angular velocities out; differentiable throughout.

    Where nothing was seen yet the estimate is the identity and the velocity zero.

    Parameters
    ----------
    d : int
        Dimension.
    gains : str or Law, default "information"
        "information", "fixed", "printed" (the paper's Kick-Drift-Measure), or an `InformationLaw`
        or `FixedLaw` with its settings.
    spectrum : {"adaptive", "fixed"}, default "adaptive"
        "adaptive" follows the eigenvalues; "fixed" keeps those of the start.
    spectrum_rate : float, default 1e-4
        Variance that the log eigenvalues gain per unit time, where learning starts.
    noise_floor, n_samples : float, default 0.0 and None
        As in :class:`kgmrf.KGMRF`.
    start : {"data", "learned"}, default "data"
        "data" pools the first steps like :class:`kgmrf.KGMRF`; "learned" starts every sequence from
        a learned frame, spectrum and velocity.
    pool_samples, pool_steps : float, default None
        When the pooling ends; None is 5 d samples or 2 d steps.
    output : {"covariance", "tangent"}, default "covariance"
        "covariance" hands out matrices; "tangent" vectors: log M, d (d+1)/2 numbers with the
        off-diagonal ones times sqrt 2, and the d (d-1)/2 coordinates of the velocity.
    velocity : {"body", "spatial"}, default None
        "body" hands out W as trackers do, in the eigenframe with eigenvalues descending, the
        default for matrices; "spatial" Q W Q^T, the default for tangent vectors. The signs of
        eigenvectors, and with them those of W, are arbitrary and may differ between a run with
        gradients and one without; Q W Q^T does not depend on them: take it as a feature.
    integrator : {"exponential", "split"}, default "exponential"
        "exponential" turns the frame by Exp(dt W); "split" turns it plane by plane and the velocity
        with it, as a rigid body of the Fisher inertia does: symplectic up to the retention.
    checkpoint_every : int, default None
        Steps per piece whose inside is recomputed in the backward pass.
    turn_bound : float, default None
        Largest turn per step (radians) that is computed to full precision; None looks at the data
        instead.

    Examples
    --------
    >>> layer = LawLayer(3, n_samples=12)
    >>> out = layer(torch.eye(3).expand(5, 20, 3, 3))
    >>> out.estimate.shape, out.velocity.shape
    (torch.Size([5, 20, 3, 3]), torch.Size([5, 20, 3, 3]))
    """

    rotations = False
    _one = staticmethod(covariance_step)

    def __init__(
        self,
        d: int,
        *,
        gains: str | Law = "information",
        spectrum: Literal["adaptive", "fixed"] = "adaptive",
        spectrum_rate: float = 1e-4,
        noise_floor: float = 0.0,
        n_samples: float | None = None,
        start: Literal["data", "learned"] = "data",
        pool_samples: float | None = None,
        pool_steps: float | None = None,
        output: Literal["covariance", "tangent"] = "covariance",
        velocity: Literal["body", "spatial"] | None = None,
        integrator: Literal["exponential", "split"] = "exponential",
        checkpoint_every: int | None = None,
        turn_bound: float | None = None,
    ) -> None:
        usual = "spatial" if output == "tangent" else "body"
        super().__init__(d, gains, velocity or usual, checkpoint_every, turn_bound)
        _check.choice(spectrum, ("adaptive", "fixed"), "spectrum")
        _check.choice(start, ("data", "learned"), "start")
        _check.choice(output, ("covariance", "tangent"), "output")
        _check.choice(integrator, ("exponential", "split"), "integrator")
        if integrator == "split" and not (isinstance(self.gains, FixedLaw) and self.gains.kicks):
            raise ValueError(
                'integrator="split" keeps the structure of a rigid body that is only kicked and '
                "damped alike in all planes; give it gains=FixedLaw(d, position_gain=0, retention="
                '0.9) or gains="printed"'
            )
        self.free_spectrum_rate = None
        if spectrum == "adaptive":
            self.free_spectrum_rate = nn.Parameter(
                torch.tensor(free_positive(spectrum_rate, *SPECTRUM_RATE))
            )
        self.noise_floor, self.n_samples = noise_floor, n_samples
        self.start, self.output, self.integrator = start, output, integrator
        self.pool_samples = 5.0 * d if pool_samples is None else pool_samples
        self.pool_steps = 2.0 * d if pool_steps is None else pool_steps
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
        forecast: bool = False,
    ) -> Filtered:
        """Filter a sequence.

        observations: covariances ``(..., time, d, d)``, or with ``samples=True`` zero-mean samples
        ``(..., time, m, d)``, for which n_samples is inferred. A sample that is all NaN does not
        count; one with some entries NaN enters as :class:`kgmrf.KGMRF` takes it, by what is
        expected of the missing entries (a traced graph, which cannot look at the data, leaves it
        out). mask: ``(..., time)``, True where there is an observation; steps with a NaN have none.
        dt: time since the step before, a number or ``(..., time)``; default 1.
        n_samples: samples behind each matrix, a number or ``(..., time)``.
        state: where to go on from; None starts again.
        forecast: whether to hand out what each step expected before it saw its observation.
        """
        if samples:
            with full_precision(inputs.tensor(observations, "samples")):
                values = at_least_single(observations)
                return self._filter_samples(values, mask, dt, state, forecast)
        count = self.n_samples if n_samples is None else n_samples
        if count is None:
            raise ValueError("say how many samples are behind each matrix: n_samples=...")
        return self._filter_matrices(observations, count, mask, dt, state, forecast)

    def _check(self, observations: Tensor, mask: Tensor | None) -> None:
        inputs.matrices(observations, mask, rotation=False)

    def _take(self, frames: Frames) -> Frames:
        # Skewness of the innovation, and so the manifold, rests on symmetric observations.
        return frames._replace(seen=(frames.seen + frames.seen.mT) / 2)

    def _filter_samples(
        self,
        samples: Tensor,
        mask: Tensor | None,
        dt: float | Tensor | None,
        state: State | None,
        forecast: bool,
    ) -> Filtered:
        """Frames of complete samples in one go; others one by one, for they need a prediction."""
        inputs.frames(samples, "samples")
        inputs.gaps(mask, samples.shape[:-2])
        inputs.fits(dt, "dt", samples.shape[:-2])
        inputs.finite(samples, "samples", mask)
        if samples.ndim < 3 or samples.shape[-1] != self.d:
            shape = tuple(samples.shape)
            raise ValueError(f"samples must be (..., time, m, d) with d = {self.d}, got {shape}")
        there = torch.isfinite(samples)
        if mask is not None:
            there = there & mask.to(device=samples.device, dtype=torch.bool)[..., None, None]
        rows = torch.where(there, samples, math.nan)
        if traced():
            return self._filter(*_moments(rows), mask, dt, state, forecast)
        interval = torch.as_tensor(1.0 if dt is None else dt, dtype=rows.dtype, device=rows.device)
        interval = interval.expand(rows.shape[:-2]) if interval.ndim else interval
        results = []
        for part, partly in _pieces(rows):
            piece = rows[..., part, :, :]
            times = interval[..., part] if interval.ndim else interval
            expected = self._expected(piece[..., 0, :, :], times, state) if partly else None
            results.append(self._filter(*_moments(piece, expected), None, times, state, forecast))
            state = results[-1].state
        joined: Filtered = join(results, samples.ndim - 3)
        return joined

    def _expected(self, rows: Tensor, dt: Tensor, state: State | None) -> tuple[Tensor, Tensor]:
        """The covariance expected of samples ``(..., m, d)``, at first a plain guess; its worth."""
        guess = wishart.plain_guess(rows)
        if state is None:
            if self.start == "data":
                return guess, torch.ones_like(guess[..., 0, 0])
            state = self._fresh(guess, cast(self.gains(), guess.dtype))
        interval = dt[..., 0] if dt.ndim else dt
        later = self._later(state, interval)
        later = select(torch.isnan(state.seen), state, later)
        level = later.spectrum + self.noise_floor
        unknown = torch.isnan(level).any(-1, keepdim=True)
        known = orbit.compose(later.frame, torch.where(unknown, torch.ones_like(level), level))
        return torch.where(unknown[..., None], guess, known), support(state)

    def _model(self, law: Gains, device: torch.device) -> Model:
        rate = self.free_spectrum_rate
        pools = self.start == "data"
        return Model(
            gains=law,
            noise_floor=self.noise_floor,
            spectrum_rate=0.0
            if rate is None
            else positive(rate.double(), *SPECTRUM_RATE).to(law.retention.dtype),
            pool_samples=self.pool_samples if pools else 0.0,
            pool_steps=self.pool_steps if pools else 0.0,
            turn_bound=self._bound(device),
            integrator=self.integrator,
        )

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
        first = 2.0 / self.pool_samples + torch.zeros_like(state.spectrum)
        return state._replace(velocity=velocity + zero, spectrum_var=first)

    def _matrix(self, frame: Tensor, spectrum: Tensor) -> Tensor:
        return orbit.compose(frame, _level(spectrum))

    def _look(self, seen: Track | State) -> tuple[Tensor, Tensor]:
        level = _level(seen.spectrum)
        if self.velocity == "body":
            seen = seen._replace(velocity=_by_eigenvalue(seen.velocity, level))
        estimate, velocity = super()._look(seen)
        if self.output == "covariance":
            return estimate, velocity
        # Eigenvalues at rounding level (a pool still short of samples) have no logarithm to learn.
        floor = 16.0 * torch.finfo(level.dtype).eps * level.amax(-1, keepdim=True)
        logarithm = orbit.compose(seen.frame, torch.log(torch.maximum(level, floor)))
        return upper(logarithm), so.vee(velocity)


def _level(spectrum: Tensor) -> Tensor:
    """The eigenvalues, 1 where nothing was seen yet."""
    return torch.where(torch.isnan(spectrum), torch.ones_like(spectrum), spectrum)


def _by_eigenvalue(velocity: Tensor, level: Tensor) -> Tensor:
    """The velocity with its planes in the order of falling eigenvalues, as trackers give it.

    A track keeps the order of its start; one axis changes sign where sorting mirrors the frame.
    """
    order = torch.argsort(level, dim=-1, descending=True, stable=True)
    swapped = (order[..., :, None] > order[..., None, :]).triu().sum((-2, -1)) % 2
    first = torch.arange(level.shape[-1], device=level.device) < level.shape[-1] - 1
    hand = torch.where(first | (swapped == 0)[..., None], 1.0, -1.0).to(velocity.dtype)
    velocity = velocity.take_along_dim(order[..., :, None], -2)
    velocity = velocity.take_along_dim(order[..., None, :], -1)
    return velocity * hand[..., :, None] * hand[..., None, :]


def upper(X: Tensor) -> Tensor:
    """Upper triangle of a symmetric matrix, row by row, with |vector| = |X|_F."""
    d = X.shape[-1]
    row, column = torch.triu_indices(d, d, device=X.device)
    weight = torch.where(row == column, 1.0, math.sqrt(2.0)).to(X.dtype)
    return X[..., row, column] * weight


def _pieces(rows: Tensor) -> Iterator[tuple[slice, bool]]:
    """Runs of frames without partly missing samples, and single frames with some."""
    nan = torch.isnan(rows)
    mixed = nan.any(-1) & ~nan.all(-1)
    partly = mixed.any(-1).flatten(0, -2).any(0) if mixed.ndim > 2 else mixed.any(-1)
    edges = [0]
    for k, now in enumerate(partly.tolist()):
        if k and (now or partly[k - 1]):
            edges.append(k)
    for start, stop in zip(edges, [*edges[1:], len(partly)], strict=True):
        yield slice(start, stop), bool(partly[start])


def _moments(rows: Tensor, expected: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """C = (1/m) sum x x^T over the complete samples, and m; NaN where there are none.

    With a covariance ``(..., d, d)`` that is expected, and how many samples it is worth, over all
    samples with something in them: E[x x^T | what is there].
    """
    nan = torch.isnan(rows)
    if expected is None:
        there = ~nan.any(-1)
        known = torch.where(there[..., None], rows, torch.zeros_like(rows))
        total = known.mT @ known
    else:
        there = ~nan.all(-1)
        covariance, support = expected
        worth = support[..., None, None]
        outer = wishart.expected_outer(rows, covariance[..., None, None, :, :], worth)
        total = torch.where(there[..., None, None], outer, torch.zeros_like(outer)).sum(-3)
    seen = there.to(total.dtype).sum(-1)
    count = torch.where(seen > 0, seen, torch.ones_like(seen))
    return torch.where((seen > 0)[..., None, None], total / count[..., None, None], math.nan), count
