"""How fast, how big: the layer against a geodesic moving average in pyRiemann on torch tensors.

Processor time on one core, float32, best of several runs. The moving average is the plain loop
M <- geodesic(M, C_t, 0.2); it has no velocity, no gains to learn and no answer to missing frames.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch_common import save

from kgmrf.torch import KGMRFLayer

try:
    from pyriemann.geometry.geodesic import geodesic_riemann
except ImportError:
    geodesic_riemann = None

SIZES = ((1, 3), (32, 2), (32, 3), (32, 8), (128, 4), (128, 8), (64, 16))
N_FRAMES, RUNS = 50, 5


def best(run: Callable[[], Any]) -> float:
    """Least processor time per frame, in microseconds."""
    run()
    times = []
    for _ in range(RUNS):
        begin = time.process_time()
        run()
        times.append(time.process_time() - begin)
    return 1e6 * min(times) / N_FRAMES


def saved_bytes(layer: KGMRFLayer, seen: torch.Tensor) -> int:
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
    layer = KGMRFLayer(d, n_samples=4 * d)

    def forward() -> None:
        with torch.no_grad():
            layer(seen)

    def both() -> None:
        layer.zero_grad()
        layer(seen).estimate.sum().backward()

    row = {"layer_forward_us": best(forward), "layer_forward_backward_us": best(both)}
    short, long = saved_bytes(layer, seen[:, :25]), saved_bytes(layer, seen)
    row["graph_matrices_per_frame"] = (long - short) / 25 / (4 * batch * d * d)
    if compiled:
        layer.compile_step()
        row["compiled_step_forward_backward_us"] = best(both)
    if geodesic_riemann is not None:
        with torch.no_grad():
            row["geodesic_forward_us"] = best(lambda: average(seen))
        needs = seen.clone().requires_grad_()
        row["geodesic_forward_backward_us"] = best(lambda: average(needs).backward())
        row["forward_ratio"] = row["geodesic_forward_us"] / row["layer_forward_us"]
    return {name: round(value, 1) for name, value in row.items()}


def main() -> None:
    """With the argument --compile also times the step compiled by torch.compile (minutes)."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if geodesic_riemann is None:
        print("pyriemann is not installed: the layer is timed alone")
    compiled = "--compile" in sys.argv
    results = {f"batch {b}, d {d}": measure(b, d, compiled and (b, d) == (32, 3)) for b, d in SIZES}
    save("torch_speed", {"n_frames": N_FRAMES, "runs": RUNS, "dtype": "float32"}, results)


if __name__ == "__main__":
    main()
