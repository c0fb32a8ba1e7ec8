"""Learned inertia: gains by gradient descent, gains tuned by hand, and the self-tuned tracker.

Covariances in three dimensions turn with a velocity that is pushed at random. In the world of
*unequal* planes one plane is pushed forty times harder than the two others; in that of *equal*
planes all are pushed alike, and inertia has nothing to find. All laws see the same streams:

- one acceleration for all planes, the best of a grid on the training streams (by hand)
- one acceleration, learned by likelihood
- one acceleration and the inertia of every plane, learned by likelihood
- `KGMRF()`, which tunes itself on each stream and is given nothing

No labels: learning maximises the log-likelihood of the training streams. The angle of the
eigenframe on test streams is what counts. Each seed has training and test streams of its own.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from torch_common import interval, save

from kgmrf import KGMRF, wishart
from kgmrf.geometry import orbit, so
from kgmrf.torch import InformationLaw, LawLayer

D, N_STEPS, N_SAMPLES, BURN_IN = 3, 80, 8, 20
SPECTRUM = (4.0, 1.5, 0.5)
PUSHES = {"unequal": (8e-3, 2e-4, 2e-4), "equal": (2e-3, 2e-3, 2e-3)}
SEEDS, N_TRAIN, N_TEST, EPOCHS = range(1, 6), 24, 128, 30
GRID = (1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)


def streams(n: int, pushes: tuple[float, ...], rng: np.random.Generator) -> tuple[Any, Any]:
    """Observations and true frames, (n, time, d, d)."""
    push = np.zeros((D, D))
    for (i, j), size in zip(((0, 1), (0, 2), (1, 2)), pushes, strict=True):
        push[i, j] = push[j, i] = size
    frame = so.project(rng.standard_normal((n, D, D)))
    velocity = np.zeros((n, D, D))
    frames = []
    for _ in range(N_STEPS):
        frames.append(frame)
        noise = np.triu(rng.standard_normal((n, D, D)), 1)
        velocity = velocity + push * (noise - np.swapaxes(noise, -1, -2))
        frame = frame @ so.exp(velocity)
    truth = np.stack(frames, 1)
    seen = wishart.sample(orbit.compose(truth, np.array(SPECTRUM)), N_SAMPLES, rng)
    return torch.tensor(seen, dtype=torch.float32), torch.tensor(truth)


def degrees(estimate: torch.Tensor, truth: torch.Tensor) -> float:
    found, _ = orbit.decompose(estimate[:, BURN_IN:].double())
    return float(np.degrees(orbit.distance(found, truth[:, BURN_IN:]).mean().item()))


def layer_degrees(layer: LawLayer, seen: torch.Tensor, truth: torch.Tensor) -> float:
    with torch.no_grad():
        return degrees(layer(seen).estimate, truth)


def new_layer(**options: Any) -> LawLayer:
    return LawLayer(D, gains=InformationLaw(D, **options), n_samples=N_SAMPLES)


def learn(layer: LawLayer, seen: torch.Tensor) -> LawLayer:
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.2)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        out = layer(seen)
        (-out.log_likelihood[out.scored].mean()).backward()
        torch.nn.utils.clip_grad_norm_(layer.parameters(), 1.0)
        optimizer.step()
    return layer


def once(pushes: tuple[float, ...], seed: int) -> tuple[dict[str, float], list[float]]:
    rng = np.random.default_rng(seed)
    train, test = streams(N_TRAIN, pushes, rng), streams(N_TEST, pushes, rng)
    grid = [new_layer(acceleration=q) for q in GRID]
    by_hand = min(grid, key=lambda layer: layer_degrees(layer, *train))
    shared = learn(new_layer(), train[0])
    inertia = learn(new_layer(inertia=True), train[0])
    itself = KGMRF(D, n_samples=N_SAMPLES).filter(test[0].double().transpose(0, 1).numpy())
    found = {
        "by hand": layer_degrees(by_hand, *test),
        "default": layer_degrees(new_layer(), *test),
        "learned": layer_degrees(shared, *test),
        "learned, with inertia": layer_degrees(inertia, *test),
        "self-tuned": degrees(torch.tensor(np.moveaxis(itself.covariance, 0, 1)), test[1]),
    }
    with torch.no_grad():
        planes = inertia.gains.inertia()[[0, 0, 1], [1, 2, 2]].tolist()
    return found, planes


def main() -> None:
    torch.set_num_threads(1)
    results: dict[str, Any] = {}
    for world, pushes in PUSHES.items():
        runs = [once(pushes, seed) for seed in SEEDS]
        table: dict[str, Any] = {
            name: interval([found[name] for found, _ in runs]) for name in runs[0][0]
        }
        for rival in ("by hand", "learned", "self-tuned"):
            gain = [found[rival] - found["learned, with inertia"] for found, _ in runs]
            table[f"inertia better than {rival} by"] = interval(gain)
        table["inertia of planes 01, 02, 12"] = np.median([p for _, p in runs], 0).tolist()
        results[world] = table
        print(world, {k: round(v["mean"], 2) for k, v in table.items() if isinstance(v, dict)})
    parameters = {
        "seeds": list(SEEDS),
        "d": D,
        "n_steps": N_STEPS,
        "n_samples": N_SAMPLES,
        "burn_in": BURN_IN,
        "spectrum": SPECTRUM,
        "pushes": PUSHES,
        "n_train": N_TRAIN,
        "n_test": N_TEST,
        "epochs": EPOCHS,
        "grid": GRID,
        "processor_seconds": round(time.process_time()),
    }
    save("torch_inertia", parameters, results)


if __name__ == "__main__":
    main()
