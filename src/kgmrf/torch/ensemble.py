"""The layer that forecasts covariances by the ensemble, with learned settings."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from kgmrf._check import ObservationError
from kgmrf.engines import layout as at
from kgmrf.engines.ensemble import Ensemble
from kgmrf.torch import inputs
from kgmrf.torch.compiled import traced
from kgmrf.torch.forecasts import Forecasts
from kgmrf.torch.laws import bounded
from kgmrf.torch.loop import at_least_single, full_precision
from kgmrf.torch.sequences import Steps, sequences

REACH = 3.0
"""Learned positive numbers stay within e^-3 and e^3 times what they start from."""

COLUMNS = {
    "half_life": at.HALF_LIFE,
    "channel_half_life": at.CHANNEL,
    "acceleration": at.ACCELERATION,
    "spectrum_rate": at.SPECTRUM_RATE,
    "rate_prior": at.RATE_PRIOR,
}
RATES = ("blend_rate", "kappa_gain")
GROUPS = ("prior", "size_gain", *COLUMNS, *RATES, "tails", "mean")
"""What the layer can learn; "mean" with ``lags`` only."""


class KGMRFLayer(nn.Module):
    """The ensemble of `kgmrf.KGMRF` as a layer; untrained it gives the numbers of `KGMRF()`.

    Every learned number stays within e^-3 and e^3 times the tracker's (gains between 0 and 1).
    Gradients flow to these and to the observations; not to ``dt``, ``n_samples`` and ``state``. Of
    a channel that comes later than the first step, the first value counts as given.

    The arithmetic is in double precision on the CPU, with as many threads as torch has. Tensors of
    other devices are copied there and back, with one warning.

    Parameters
    ----------
    d : int
        Channels.
    members : Iterable[Any], default None
        As for `KGMRF`, default the eleven of the tracker.
    learned : Iterable[str], default all
        Names of the groups that are trained, of `GROUPS`; all of them by default: prior weights,
        size gains, half-lives, channel half-lives, accelerations, spectrum rates and rate priors of
        the members, the rate at which weights learn, the gain of kappa, and the probabilities of
        the tails (where they start and what they return to).
    unit : float, default 1.0
        Time that counts as one step, in the units of ``dt``; default 1.
    gradient_steps : int, default 256
        The gradient is cut after every so many steps of a sequence, for through a thousand steps it
        can grow beyond all bounds; default 256.
    lags : int, default 0
        Of a linear mean sum_l A_l x_(t - l), which is taken off the rows first; the A_l start at 0
        and are learned ("mean"). Default 0: the mean is zero.
    **others
        None: settings of a single law are those of :class:`kgmrf.torch.LawLayer`, and the error
        says so.

    Examples
    --------
    >>> layer = KGMRFLayer(3)
    >>> out = layer(torch.randn(5, 20, 3))
    >>> out
    Forecasts of float32: covariance (5, 20, 3, 3), forecast (5, 20, 3, 3), log_prob (5, 20), \
weights (5, 20, 11), state (5, 173)
    """

    table: Tensor
    learning: Tensor
    fresh: Tensor

    def __init__(
        self,
        d: int,
        *,
        members: Iterable[Any] | None = None,
        learned: Iterable[str] = GROUPS,
        unit: float = 1.0,
        gradient_steps: int = 256,
        lags: int = 0,
        **others: Any,
    ) -> None:
        super().__init__()
        if others:
            raise TypeError(
                f"KGMRFLayer has no setting {next(iter(others))!r}: it runs the ensemble of "
                "KGMRF(); the layer of a single law, with gains=..., is kgmrf.torch.LawLayer"
            )
        if d < 1:
            raise ValueError(f"d must be at least 1, got {d!r}")
        if not unit > 0.0:
            raise ValueError(f"unit must be positive, got {unit!r}")
        wanted = set(learned)
        if not wanted <= set(GROUPS):
            unknown = sorted(wanted - set(GROUPS))
            raise ValueError(f"learned has {unknown}, which are none of {', '.join(GROUPS)}")
        if gradient_steps < 1:
            raise ValueError(f"gradient_steps must be at least 1, got {gradient_steps!r}")
        if not 0 <= int(lags) == lags:
            raise ValueError(f"lags must be a number of rows, 0 or more, got {lags!r}")
        self.d, self.unit, self.gradient_steps, self.lags = d, unit, gradient_steps, int(lags)
        engine = Ensemble(d, members)
        table = torch.tensor(engine.plan.table)
        self.register_buffer("table", table, persistent=False)
        learning = torch.tensor(engine.plan.learning[: len(RATES)], dtype=torch.float64)
        self.register_buffer("learning", learning, persistent=False)
        fresh = torch.tensor(engine.init(1)[0])
        self.register_buffer("fresh", fresh, persistent=False)
        places = engine.plan.places
        self.roots = slice(places["roots"], places["size"])
        self.tails = slice(places["tails"], places["tails"] + at.N_TAILS)
        shapes = dict.fromkeys(RATES, ()) | {"tails": (at.N_TAILS,), "mean": (self.lags, d, d)}
        for name in GROUPS if self.lags else GROUPS[:-1]:
            free = torch.zeros(shapes.get(name, (len(table),)))
            setattr(self, f"free_{name}", nn.Parameter(free, requires_grad=name in wanted))

    def settings(self) -> tuple[Tensor, Tensor]:
        """The table of members and how they learn, as these parameters have them."""
        table = self.table.double()
        columns = list(table.unbind(-1))
        for name, column in COLUMNS.items():
            columns[column] = columns[column] * self._factor(name)
        gain = columns[at.SIZE_GAIN]
        odds = gain / (1.0 - gain) * self._factor("size_gain")
        columns[at.SIZE_GAIN] = torch.where(gain > 0.0, odds / (1.0 + odds), gain)
        root = columns[at.ROOT] * self._factor("prior")
        columns[at.ROOT] = root / root.sum()
        rates = self.learning.double() * torch.stack([self._factor(name) for name in RATES])
        tails = self._factor("tails") / self._factor("tails").sum()
        return torch.stack(columns, -1), torch.cat([rates, tails])

    def _factor(self, name: str) -> Tensor:
        free: Tensor = getattr(self, f"free_{name}")
        return torch.exp(bounded(free.double(), REACH))

    def forward(
        self,
        observations: Tensor | PackedSequence,
        *,
        mask: Tensor | None = None,
        lengths: Tensor | None = None,
        dt: float | Tensor | None = None,
        n_samples: float | Tensor | None = None,
        samples: bool | None = None,
        state: Tensor | None = None,
    ) -> Forecasts:
        """Forecast and take in sequences.

        observations: samples ``(batch, time, d)``, one each step, or ``(batch, time, m, d)``, m
        each step; or with ``n_samples`` matrices ``(batch, time, d, d)``, each the mean of x x^T
        over so many samples. NaN cells of samples, and matrices with a NaN, are missing. samples:
        says which where m = d leaves it open. A `PackedSequence` of samples is padded.
        mask: ``(batch, time)``, True where there is an observation. lengths: ``(batch,)``, steps of
        each sequence; what comes after is missing. dt: time since the step before, a number or
        ``(batch, time)``. state: where to go on from; None starts again.
        """
        if isinstance(observations, PackedSequence):
            observations, lengths = pad_packed_sequence(observations, batch_first=True)
        with full_precision(inputs.tensor(observations, "observations")):
            values = at_least_single(observations)
            matrix = self._is_matrix(values, n_samples, samples)
            there = self._there(values, mask, lengths)
            cells = values[..., None, :] if values.ndim == 3 else values
            inputs.frames(cells, "observations")
            if matrix:
                inputs.matrices(cells, there, rotation=False)
            else:
                inputs.finite(cells, "observations", there)
            return self._run(values, cells, matrix, there, dt, n_samples, state)

    def _is_matrix(self, values: Tensor, n_samples: Any, samples: bool | None) -> bool:
        """Whether these are matrices; refuses shapes that could be either, or are neither."""
        d, shape = self.d, tuple(values.shape)
        if values.ndim not in (3, 4) or shape[-1] != d:
            raise ObservationError(
                f"observations have shape {shape}, expected samples (batch, time, {d}) or (batch, "
                f"time, m, {d}), or matrices (batch, time, {d}, {d}); for one sequence give x[None]"
            )
        if samples and n_samples is not None:
            raise ValueError("n_samples is inferred for samples: leave it out, or samples=True")
        if values.ndim == 3 or samples:
            if n_samples is not None:
                raise ObservationError(
                    f"n_samples goes with matrices (batch, time, {d}, {d}), got shape {shape}; "
                    "leave it out for samples"
                )
            return False
        if n_samples is None:
            if samples is False or shape[-2] == d:
                raise ObservationError(
                    f"observations of shape {shape} may be {d} samples of {d} channels or "
                    "matrices; give samples=True, or n_samples=... for matrices"
                )
            return False
        if shape[-2] != d:
            raise ObservationError(
                f"n_samples goes with matrices (batch, time, {d}, {d}), got shape {shape}"
            )
        inputs.counts(n_samples)
        inputs.fits(n_samples, "n_samples", values.shape[:2])
        return True

    def _there(self, values: Tensor, mask: Tensor | None, lengths: Tensor | None) -> Tensor | None:
        shape = values.shape[:2]
        inputs.gaps(mask, shape)
        if lengths is None:
            return mask
        inputs.tensor(lengths, "lengths")
        if lengths.shape != shape[:1]:
            raise ObservationError(
                f"lengths has shape {tuple(lengths.shape)}, expected one for each of the "
                f"{shape[0]} sequences"
            )
        steps = torch.arange(shape[1], device=values.device)
        inside = steps < lengths.to(values.device)[:, None]
        return inside if mask is None else inside & mask.to(inside)

    def _run(
        self,
        seen: Tensor,
        cells: Tensor,
        matrix: bool,
        there: Tensor | None,
        dt: float | Tensor | None,
        n_samples: float | Tensor | None,
        state: Tensor | None,
    ) -> Forecasts:
        device, kind, shape = cells.device, cells.dtype, cells.shape[:2]
        if device.type != "cpu" and not traced():
            warnings.warn(
                f"KGMRFLayer computes on the CPU: tensors on {device} are copied there and back",
                stacklevel=4,
            )
        inputs.fits(dt, "dt", shape)
        inputs.times(dt)
        if isinstance(dt, Tensor) and dt.requires_grad:
            raise ValueError("KGMRFLayer has no derivatives by dt; give dt.detach()")

        def plain(value: Any) -> Tensor:
            return torch.as_tensor(value).detach().to("cpu", torch.float64).expand(shape)

        counts = plain(1.0 if n_samples is None else n_samples)
        if there is not None:
            counts = torch.where(there.cpu().expand(shape), counts, 0.0)
        table, learning = (part.cpu() for part in self.settings())
        d, values = self.d, cells.to("cpu", torch.float64)
        if matrix:
            gone = torch.isnan(values).flatten(-2).any(-1)
            counts = torch.where(gone, 0.0, counts)
            values = torch.where(gone[..., None, None], torch.eye(d, dtype=values.dtype), values)
        start, past = self._start(table, learning, shape[0])
        if state is not None:
            start, past = self._go_on(state, shape[0])
        mean = None
        if self.lags:
            self._one_sample_each(cells, matrix)
            mean, past = self._mean(values[:, :, 0], counts, past)
            values = values - mean[:, :, None]
        times = plain(1.0 if dt is None else dt) / self.unit
        keep = torch.is_grad_enabled() and any(
            part.requires_grad for part in (values, table, learning, start)
        )
        given = (values, counts, times, table, learning, start, matrix)
        steps = Steps(*sequences(*given, keep, self.gradient_steps))

        def out(value: Tensor) -> Tensor:
            return value.to(device, kind)

        return Forecasts(
            steps.covariance,
            steps.forecast,
            steps.scale,
            out(steps.tails),
            out(steps.size_std),
            out(steps.youth[..., 0]),
            out(steps.youth[..., 1]),
            out(steps.log_prob),
            out(steps.weights),
            torch.cat([steps.rows[:, -1].detach(), past.detach().flatten(1)], -1),
            None if matrix else seen if mean is None else out(values[:, :, 0]),
            None if mean is None else out(mean),
        )

    def _mean(self, x: Tensor, counts: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """sum_l A_l x_(t - l) before each row, and the last rows; what is missing counts as 0."""
        known = torch.where(counts[..., None] > 0.0, torch.nan_to_num(x), 0.0)
        rows = torch.cat([past, known], 1)
        lagged = [rows[:, self.lags - k : -k] for k in range(1, self.lags + 1)]
        free: Tensor = getattr(self, "free_mean").cpu().double()  # noqa: B009
        mean = sum(one @ A.mT for one, A in zip(lagged, free.unbind(0), strict=True))
        return torch.as_tensor(mean), rows[:, rows.shape[1] - self.lags :]

    def _one_sample_each(self, cells: Tensor, matrix: bool) -> None:
        if matrix or cells.shape[2] != 1:
            raise ObservationError(
                f"a linear mean (lags={self.lags}) needs one sample a step, (batch, time, "
                f"{self.d}); for matrices and for several samples a step leave out lags"
            )

    def _start(self, table: Tensor, learning: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """Rows that have seen nothing, with the prior weights and tails; no rows before them."""
        row, tails, roots = self.fresh.cpu().double(), self.tails, self.roots
        begin = [row[: tails.start], learning[-at.N_TAILS :], row[tails.stop : roots.start]]
        row = torch.cat([*begin, table[:, at.ROOT], row[roots.stop :]])
        return row.expand(n, -1), row.new_zeros(n, self.lags, self.d)

    def _go_on(self, state: Tensor, n: int) -> tuple[Tensor, Tensor]:
        size, more = len(self.fresh), self.lags * self.d
        if tuple(state.shape) != (n, size + more):
            raise ObservationError(
                f"state has shape {tuple(state.shape)}, expected {(n, size + more)}: that of a "
                "layer with these members and lags and as many sequences"
            )
        whole = state.detach().to("cpu", torch.float64)
        return whole[:, :size], whole[:, size:].reshape(n, self.lags, self.d)
