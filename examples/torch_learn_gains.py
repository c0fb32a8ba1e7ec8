"""Learn gains end to end on streams that turn at different speeds; test on streams not seen.

All streams start from the same known covariance, so that nothing but the gains makes a difference.
A fixed gain must compromise between slow and fast streams. Three ways to get one are compared on
held-out sequences: the best of a grid on the training set, the best of the same grid on the test
set itself (hindsight), and fixed gains learned by gradient descent. The learned information law
holds three numbers too, but its gains depend on what each stream has shown so far. Everything that
is chosen or learned is so on five training sets in turn, which shows how much luck there is in it.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from torch_common import save

from kgmrf import simulate
from kgmrf.geometry import orbit
from kgmrf.torch import FixedLaw, InformationLaw, LawLayer
from kgmrf.torch.law_layer import START
from kgmrf.torch.laws import free_positive

D, N_FRAMES, N_SAMPLES, BURN_IN = 3, 120, 8, 30
TRAINING_SETS, TEST_SET = (1000, 2000, 3000, 4000, 5000), 50_000
RATES = (0.0, 0.01, 0.03, 0.1)
N_TRAIN, N_TEST, EPOCHS = 48, 384, 50
POSITION_GAINS = (0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.45)
VELOCITY_GAINS = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2)


def streams(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Observations and true frames, (n, time, d, d)."""
    scenes = [
        simulate.rotating_covariance(
            D,
            rate=RATES[k % len(RATES)],
            acceleration_std=5e-4,
            n_frames=N_FRAMES,
            n_samples=N_SAMPLES,
            rng=seed + k,
        )
        for k in range(n)
    ]
    pick = [(scene.observations, scene.frame) for scene in scenes]
    seen, frame = (np.stack(part).astype(np.float32) for part in zip(*pick, strict=True))
    return torch.tensor(seen), torch.tensor(frame)


def new_layer(law: FixedLaw | InformationLaw) -> LawLayer:
    """A layer that starts at the common covariance of the streams; only its gains are trained."""
    layer = LawLayer(D, gains=law, n_samples=N_SAMPLES, noise_floor=0.1, start="learned")
    with torch.no_grad():
        levels = [2.0 ** (D // 2 + 1 - k) for k in range(D)]
        free = torch.tensor([free_positive(level, *START) for level in levels])
        layer.free_start_spectrum.copy_(free)
    return layer


def degrees(layer: LawLayer, seen: torch.Tensor, frame: torch.Tensor) -> np.ndarray:
    """Mean angle between estimated and true eigenframes after the burn-in, for every stream."""
    with torch.no_grad():
        estimate = layer(seen).estimate[:, BURN_IN:].double()
    found, _ = orbit.decompose(estimate)
    return np.degrees(orbit.distance(found, frame[:, BURN_IN:].double()).mean(-1).numpy())


def misalignment(estimate: torch.Tensor, frame: torch.Tensor) -> torch.Tensor:
    """Share of the estimate that is off-diagonal in the true frame; 0 when frames agree."""
    body = frame.mT @ estimate @ frame
    diagonal = body.diagonal(dim1=-2, dim2=-1)
    size = torch.sqrt(diagonal[..., :, None] * diagonal[..., None, :])
    return ((body / size) ** 2).sum((-2, -1)).mean() - D


def train(layer: LawLayer, seen: torch.Tensor, frame: torch.Tensor) -> None:
    optimizer = torch.optim.Adam(layer.gains.parameters(), lr=0.2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        out = layer(seen)
        misalignment(out.estimate[:, BURN_IN:], frame[:, BURN_IN:]).backward()
        optimizer.step()
        schedule.step()


def main() -> None:
    torch.set_num_threads(1)
    test = streams(N_TEST, TEST_SET)
    grid: dict[tuple[float, float], tuple[LawLayer, np.ndarray]] = {}
    for a, b in itertools.product(POSITION_GAINS, VELOCITY_GAINS):
        layer = new_layer(FixedLaw(D, position_gain=a, velocity_gain=b))
        grid[a, b] = layer, degrees(layer, *test)
    hindsight = min(grid, key=lambda pair: grid[pair][1].mean())
    best = grid[hindsight][1]
    laws = {"fixed gains": FixedLaw, "information law": InformationLaw}
    from_grid = "best fixed gain of a grid, chosen in training"
    runs: dict[str, list[np.ndarray]] = {name: [] for name in (from_grid, *laws)}
    learned: dict[str, list[Any]] = {name: [] for name in laws}
    for seed in TRAINING_SETS:
        training = streams(N_TRAIN, seed)
        chosen = min(grid, key=lambda pair: degrees(grid[pair][0], *training).mean())
        runs[from_grid].append(grid[chosen][1])
        for name, kind in laws.items():
            law = kind(D)
            layer = new_layer(law)
            train(layer, *training)
            runs[name].append(degrees(layer, *test))
            with torch.no_grad():
                numbers = {k: np.round(v.numpy(), 10).tolist() for k, v in vars(law()).items()}
            learned[name].append(numbers)
    results: dict[str, Any] = {
        "best fixed gain in hindsight": {"gains": hindsight, "test_degrees": best.mean()}
    }
    for name, kind in laws.items():
        as_it_is = degrees(new_layer(kind(D)), *test)
        results[f"{name}, default"] = {"test_degrees": as_it_is.mean()}
    for name, found in runs.items():
        # Over the streams, each the mean of its five runs: how sure is the difference?
        ahead = best - np.mean(found, axis=0)
        results[f"{name}, learned" if name in laws else name] = {
            "test_degrees": np.mean(found),
            "of_each_training_set": [one.mean() for one in found],
            "better_than_hindsight_by": ahead.mean(),
            "standard_error_of_that": ahead.std(ddof=1) / np.sqrt(N_TEST),
            **({"laws": learned[name]} if name in learned else {}),
        }
    parameters = {
        "training_sets": TRAINING_SETS,
        "test_set": TEST_SET,
        "d": D,
        "n_frames": N_FRAMES,
        "n_samples": N_SAMPLES,
        "burn_in": BURN_IN,
        "rates": RATES,
        "n_train": N_TRAIN,
        "n_test": N_TEST,
        "epochs": EPOCHS,
    }
    save("torch_learn_gains", parameters, results)


if __name__ == "__main__":
    main()
