"""The layer of the ensemble beside networks: who forecasts the density of the next row best?

    python -m experiments run layers

Streams of `experiments.streams`, at most 5,000 rows: the first 60 % train, the next 20 % choose
when to stop, the last 20 % are scored: nats per row of the density of the next row, in the units of
the stream. All densities are mixtures of multivariate Student-t. Models:

    tracker      KGMRF() as it is, nothing trained
    layer        KGMRFLayer, all settings trained
    layer mean   the same with a linear mean of the last two rows, trained with them
    ewma         an average of x x^T; half-life chosen on the rows that stop, tails and size trained
    gru          GRU of 64 on the rows; it gives the Cholesky factor of the next scale
    gru squares  the same on rows and squares
    transformer  one causal block of width 64 on the rows
    transformer squares   the same on rows and squares
    gru layer    GRU of 64 on what the untrained layer gives; it corrects the layer's forecast
    transformer layer     the Transformer on that

Networks begin at the covariance of the training rows (``gru layer``: at the forecast of the layer),
take `STEPS` steps of Adam on `BATCH` windows of `WINDOW` rows and keep the best of every `LOOK`
steps, the beginning included; the layer takes `PASSES` steps on all training rows and keeps the
best of all; the A_l of its mean learn at the rate of the networks. Nothing was tuned. The lead
over the tracker has a 95 % interval from blocks of `BLOCK` rows; networks are trained from several
seeds. The layer starts from the tracker's constants: it has no seed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from experiments.store import NotAvailable, Unit, unit
from experiments.streams import data
from kgmrf._types import Numbers

STREAMS = ("etf18", "etth1", "gait_daphnet", "ssvep8")
MODELS = ("layer", "ewma", "gru", "gru squares", "transformer", "gru layer")
MORE = ("layer mean", "transformer squares", "transformer layer")
LAGS = 2
SEEDS, WIDTH, WINDOW, BATCH, STEPS, LOOK, RATE = 3, 64, 200, 16, 100, 20, 3e-3
PASSES, LAYER_RATE = 25, 0.05
HALF_LIVES = (16.0, 32.0, 64.0, 128.0, 256.0)
BLOCK, DRAWS = 50, 2000


def torch_there() -> Any:
    """PyTorch, on one thread."""
    try:
        import torch
    except ImportError as error:
        raise NotAvailable("torch is not installed") from error
    torch.set_num_threads(1)
    return torch


class Rows:
    """A stream over the deviations of its training rows, and its three parts."""

    def __init__(self, name: str, length: int) -> None:
        stream = data.load(name)
        if stream is None:
            raise NotAvailable(f"no data of {name}; set KGMRF_DATA")
        x = stream.samples[:length]
        self.n, self.d = x.shape
        self.train, self.stop = int(0.6 * self.n), int(0.8 * self.n)
        self.first = min(stream.scored_from, self.train // 2)
        size = np.sqrt((x[: self.train] ** 2).mean(axis=0))
        self.x, self.units = x / size, float(np.log(size).sum())

    def parts(self, log_p: Numbers) -> tuple[float, float, Numbers]:
        """Training and stopping scores, and the scored rows, in the units of the stream."""
        own = log_p - self.units
        train, stop = own[self.first : self.train], own[self.train : self.stop]
        return float(train.mean()), float(stop.mean()), own[self.stop :]


def best(looks: list[tuple[float, Numbers]]) -> Numbers:
    """The scored rows of the look with the best stopping score."""
    return max(looks, key=lambda look: look[0])[1]


# --------------------------------------------------------------------------- models


def tracker(rows: Rows) -> Numbers:
    """KGMRF() as it is."""
    from kgmrf import KGMRF

    found = KGMRF(time_scale=1).filter(rows.x, fields=["log_likelihood"])
    return rows.parts(found.log_likelihood)[2]


def layer(rows: Rows, lags: int = 0) -> Numbers:
    """KGMRFLayer, trained."""
    torch = torch_there()
    from kgmrf.torch import KGMRFLayer

    model, x = KGMRFLayer(rows.d, lags=lags), torch.tensor(rows.x)[None]
    weights = [model.free_mean] if lags else []  # as those of a network; the others are logarithms
    factors = [own for name, own in model.named_parameters() if name != "free_mean"]
    groups = [{"params": factors, "lr": LAYER_RATE}, {"params": weights, "lr": RATE}]
    optimizer = torch.optim.Adam([group for group in groups if group["params"]])
    looks = []
    for _ in range(PASSES + 1):
        with torch.no_grad():
            _, stop, scored = rows.parts(model(x).log_prob[0].numpy())
        looks.append((stop, scored))
        optimizer.zero_grad()
        (-model(x[:, : rows.train]).log_prob[:, rows.first :].mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return best(looks)


def averages(x: Numbers, half_life: float) -> Numbers:
    """An average of x x^T before each row, a little of the identity in it."""
    keep, now = 2.0 ** (-1.0 / half_life), np.eye(x.shape[1])
    out, mass = np.empty((*x.shape, x.shape[1])), 1.0
    for k, row in enumerate(x):
        out[k] = now
        mass = keep * mass + 1.0
        now = now + (np.outer(row, row) - now) / mass
    return 0.999 * out + 0.001 * np.eye(x.shape[1])


def ewma(rows: Rows) -> Numbers:
    """Averages with the loss of the package."""
    torch = torch_there()
    from kgmrf.torch import StudentTLoss

    x = torch.tensor(rows.x)[:, None]
    looks = []
    for half_life in HALF_LIVES:
        loss, scale = StudentTLoss(), torch.tensor(averages(rows.x, half_life))
        optimizer = torch.optim.Adam(loss.parameters(), lr=0.1)
        part = slice(rows.first, rows.train)
        for _ in range(40):
            optimizer.zero_grad()
            loss(scale[part], x[part], samples=True).backward()
            optimizer.step()
        with torch.no_grad():
            log_p = loss.log_density(scale, x, samples=True).numpy()
        _, stop, scored = rows.parts(log_p)
        looks.append((stop, scored))
    return best(looks)


def network(rows: Rows, kind: str, seed: int) -> Numbers:
    """One of the networks, trained."""
    torch = torch_there()
    torch.manual_seed(seed)
    from kgmrf.torch import KGMRFLayer, StudentTMixture

    d, x = rows.d, torch.tensor(rows.x).float()
    base = torch.linalg.cholesky(torch.tensor(np.cov(rows.x[: rows.train].T, bias=True))).float()
    tails, factors, seen = None, base.expand(rows.n, d, d), x
    attends = kind.startswith("transformer")
    if kind.endswith("squares"):
        seen = torch.cat([x, x.square() - 1.0], -1)
    if kind.endswith("layer"):
        with torch.no_grad():
            out = KGMRFLayer(d)(x[None])
            density = out.density
            factors, tails = density.scale_tril[0], out.tails[0]
            seen = torch.cat([out.whitened[0], out.weights[0]], -1)
        seen = seen.nan_to_num().clamp(-8.0, 8.0)
    low = torch.tril_indices(d, d, -1)
    n_out = d + low.shape[1]
    head = torch.nn.Linear(WIDTH, n_out)
    torch.nn.init.zeros_(head.weight), torch.nn.init.zeros_(head.bias)
    shares = torch.nn.Parameter(torch.zeros(4))
    inlet = torch.nn.Linear(seen.shape[-1], WIDTH)
    place = torch.nn.Parameter(0.02 * torch.randn(WINDOW, WIDTH))
    body: Any = (
        torch.nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, dropout=0.1, batch_first=True)
        if attends
        else torch.nn.GRU(WIDTH, WIDTH, batch_first=True)
    )
    model = torch.nn.ModuleList([head, inlet, body])
    optimizer = torch.optim.Adam([*model.parameters(), shares, place], lr=RATE)
    dofs = torch.tensor([3.0, 6.0, 12.0, 1e5])

    def log_p(parts: Any) -> Any:
        """Of windows (n, w) of row numbers; that of the first row of each is of no use."""
        tokens = inlet(seen[parts])
        if attends:
            w = parts.shape[1]
            causal = torch.nn.Transformer.generate_square_subsequent_mask(w)
            hidden = body(tokens + place[:w], src_mask=causal, is_causal=True)
        else:
            hidden = body(tokens)[0]
        numbers = head(hidden[:, :-1])  # the next row
        turn = torch.diag_embed(torch.exp(2.0 * torch.tanh(numbers[..., :d])))
        lower = turn.new_zeros(turn.shape)
        lower[..., low[0], low[1]] = numbers[..., d:]
        turn = turn + lower
        here = parts[:, 1:]
        weights = torch.softmax(shares, -1) if tails is None else tails[here]
        weights = weights.expand(*here.shape, 4)
        return StudentTMixture(factors[here] @ turn, weights, dofs).log_prob(x[here])

    def look() -> tuple[float, Numbers]:
        model.eval()
        found = np.full(rows.n, np.nan)
        with torch.no_grad():
            if attends:
                for k in range(0, rows.n - WINDOW // 2, WINDOW // 2):
                    part = torch.arange(k, min(k + WINDOW, rows.n))[None]
                    own, begin = log_p(part)[0].numpy(), WINDOW // 2 if k else 1
                    found[k + begin : int(part[0, -1]) + 1] = own[begin - 1 :]
            else:
                found[1:] = log_p(torch.arange(rows.n)[None])[0].numpy()
        model.train()
        _, stop, scored = rows.parts(found)
        return stop, scored

    looks, draw = [look()], np.random.default_rng(seed)
    for step in range(1, STEPS + 1):
        begin = torch.tensor(draw.integers(0, rows.train - WINDOW, BATCH))
        optimizer.zero_grad()
        (-log_p(begin[:, None] + torch.arange(WINDOW))[:, WINDOW // 4 :].mean()).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % LOOK == 0:
            looks.append(look())
    return best(looks)


# --------------------------------------------------------------------------- units


def compared(scores: list[Numbers], usual: Numbers) -> dict[str, Any]:
    """Mean score, that of each seed, and how far the mean is ahead, with its interval."""
    gain = np.mean(scores, axis=0) - usual
    n = len(gain) // BLOCK
    blocks = gain[: n * BLOCK].reshape(n, BLOCK).mean(axis=1)
    drawn = np.random.default_rng(0).integers(0, n, (DRAWS, n))
    low, high = np.quantile(blocks[drawn].mean(axis=1), [0.025, 0.975])
    each = [float(np.mean(score)) for score in scores]
    ahead = {"ahead": float(gain.mean()), "low": float(low), "high": float(high)}
    return {"score": float(np.mean(each)), "seeds": each, **ahead}


def run(
    stream: str, length: int = 5000, seeds: int = SEEDS, models: Sequence[str] = MODELS
) -> dict[str, Any]:
    """These models on one stream, and the tracker."""
    rows = Rows(stream, length)
    usual = tracker(rows)
    single: dict[str, Callable[[Rows], Numbers]] = {
        "layer": layer,
        "ewma": ewma,
        "layer mean": lambda rows: layer(rows, LAGS),
    }
    out = {"tracker": compared([usual], usual)}
    for kind in models:
        if kind in single:
            scores = [single[kind](rows)]
        else:
            scores = [network(rows, kind, seed) for seed in range(seeds)]
        out[kind] = compared(scores, usual)
    return {"d": rows.d, "scored": len(usual), "models": out}


def processor_time() -> float:
    """Of this process and those it waited for."""
    return sum(os.times()[:4])


def cost(batch: int = 64, length: int = 200, d: int = 8, rounds: int = 9) -> dict[str, Any]:
    """Processor time, forward and backward, against a GRU of 64 in turns, and of compiling."""
    torch = torch_there()
    from torch._inductor import config as inductor

    from kgmrf.torch import KGMRFLayer

    torch.manual_seed(0)
    x = torch.randn(batch, length, d)
    one, gru = KGMRFLayer(d), torch.nn.GRU(d, WIDTH, batch_first=True)
    works: dict[str, Callable[[], Any]] = {
        "layer": lambda: (-one(x).log_prob.nanmean()).backward(),
        "layer without gradients": lambda: torch.no_grad()(one)(x),
        "gru": lambda: gru(x)[0].square().mean().backward(),
    }
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            begin = time.process_time()
            work()
            times[name].append(time.process_time() - begin)
    median = {name: float(np.median(own)) for name, own in times.items()}
    inductor.compile_threads = 1  # processes of a pool are not counted
    inductor.force_disable_caches = True
    begin = processor_time()
    compiled = torch.compile(one, fullgraph=True)
    (-compiled(x).log_prob.nanmean()).backward()
    compiling = processor_time() - begin
    ratios = {name: own / median["gru"] for name, own in median.items()}
    return {"seconds": median, "over_gru": ratios, "compile_seconds": compiling}


def units(quick: bool) -> list[Unit]:
    """Two units per stream, and the cost."""
    if quick:
        return [unit("layers", "etf18", run, stream="etf18", length=800, seeds=1)]
    found = [unit("layers", name, run, stream=name) for name in STREAMS]
    more = [unit("layers", f"{name}_more", run, stream=name, models=MORE) for name in STREAMS]
    return [*found, *more, unit("layers", "cost", cost)]
