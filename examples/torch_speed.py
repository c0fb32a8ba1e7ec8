"""How fast, how big: the layer against a geodesic moving average in pyRiemann and against a GRU.

Processor time on one core, float32, best of several runs that take turns. The moving average is the
plain loop M <- geodesic(M, C_t, 0.2) on torch tensors; it has no velocity, no gains to learn and no
answer to missing steps. The GRU reads the d (d+1)/2 entries of each matrix and tells d^2 numbers,
as many as an estimate with its velocity. Rotations have no compiled backward pass: what that costs
is in the last row.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch_common import save

from kgmrf.geometry import so
from kgmrf.torch import LawLayer, RotationLayer

try:
    from pyriemann.geometry.geodesic import geodesic_riemann
except ImportError:
    geodesic_riemann = None

SIZES = ((1, 3), (32, 3), (32, 8), (128, 8), (64, 16))
N_FRAMES, RUNS = 50, 5


def best(runs: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Least processor time per frame of each, in microseconds; all take turns."""
    times = dict.fromkeys(runs, math.inf)
    for repeat in range(RUNS + 1):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            spent = time.process_time() - begin
            if repeat:  # the first is for warming up
                times[name] = min(times[name], spent)
    return {name: 1e6 * value / N_FRAMES for name, value in times.items()}


def saved_bytes(layer: LawLayer, seen: torch.Tensor) -> int:
    """Bytes that the graph keeps for the backward pass."""
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = layer(seen)
    del out
    return sum(kept.values())


def average(seen: torch.Tensor) -> torch.Tensor:
    mean = seen[:, 0]
    total = mean.sum()
    for t in range(1, seen.shape[1]):
        mean = geodesic_riemann(mean, seen[:, t], 0.2)
        total = total + mean.sum()
    return total


def measure(batch: int, d: int, compiled: bool) -> dict[str, float]:
    x = torch.randn(batch, N_FRAMES, 4 * d, d) * torch.linspace(1.0, 2.0, d)
    seen = x.mT @ x / (4 * d)
    layer = LawLayer(d, n_samples=4 * d)

    def forward() -> None:
        with torch.no_grad():
            layer(seen)

    def both() -> None:
        layer.zero_grad()
        layer(seen).estimate.sum().backward()

    needs = seen.clone().requires_grad_()

    def rival() -> None:
        with torch.no_grad():
            average(seen)

    row_, column = torch.triu_indices(d, d)
    tokens, gru = seen[..., row_, column], torch.nn.GRU(d * (d + 1) // 2, d * d, batch_first=True)

    def network() -> None:
        with torch.no_grad():
            gru(tokens)

    def network_both() -> None:
        gru.zero_grad()
        gru(tokens)[0].sum().backward()

    forwards: dict[str, Callable[[], Any]] = {
        "layer_forward_us": forward,
        "gru_forward_us": network,
    }
    trains: dict[str, Callable[[], Any]] = {
        "layer_forward_backward_us": both,
        "gru_forward_backward_us": network_both,
    }
    if geodesic_riemann is not None:
        forwards["geodesic_forward_us"] = rival
        trains["geodesic_forward_backward_us"] = lambda: average(needs).backward()
    row = best(forwards) | best(trains)
    short, long = saved_bytes(layer, seen[:, :25]), saved_bytes(layer, seen)
    row["graph_matrices_per_frame"] = (long - short) / 25 / (4 * batch * d * d)
    os.environ["KGMRF_ENGINE"] = "readable"
    row |= best({"readable_forward_backward_us": both})
    del os.environ["KGMRF_ENGINE"]
    if compiled:
        layer.compile_step()
        row |= best({"compiled_step_forward_backward_us": both})
    if geodesic_riemann is not None:
        for kind in ("forward", "forward_backward"):
            row[f"{kind}_ratio"] = row[f"geodesic_{kind}_us"] / row[f"layer_{kind}_us"]
    row["gru_parameters"] = sum(p.numel() for p in gru.parameters())
    return {name: round(value, 1) for name, value in row.items()}


def rotations(batch: int) -> dict[str, float]:
    """d = 3: forward compiled; with gradients readable, and what of it is the backward pass."""
    seen = so.exp(so.hat(0.3 * torch.randn(batch, N_FRAMES, 3)))
    layer = RotationLayer(3, project=False)

    def forward() -> None:
        with torch.no_grad():
            layer(seen)

    found = best(
        {
            "forward_us": forward,
            "forward_with_graph_us": lambda: layer(seen),
            "forward_backward_us": lambda: layer(seen).estimate.sum().backward(),
        }
    )
    return {name: round(value, 1) for name, value in found.items()}


def main() -> None:
    """With the argument --compile also times the step compiled by torch.compile (minutes)."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if geodesic_riemann is None:
        print("pyriemann is not installed: the layer is timed alone")
    compiled = "--compile" in sys.argv
    results = {f"batch {b}, d {d}": measure(b, d, compiled and (b, d) == (32, 3)) for b, d in SIZES}
    results["rotations, batch 32"] = rotations(32)
    save("torch_speed", {"n_frames": N_FRAMES, "runs": RUNS, "dtype": "float32"}, results)


if __name__ == "__main__":
    main()
