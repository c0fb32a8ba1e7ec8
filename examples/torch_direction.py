"""Classify sequences of covariances that differ only in the direction in which they turn.

Both classes visit the same covariances with the same probability; played backwards, one is the
other. So whatever looks at covariances one by one, however cleverly, cannot tell them apart; the
angular velocity that the layer estimates can.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch_common import save

from kgmrf import wishart
from kgmrf.geometry import orbit, so
from kgmrf.torch import KGMRFLayer

SEED, D, N_FRAMES, N_SAMPLES = 1, 3, 60, 8
N_TRAIN, N_TEST, EPOCHS = 120, 1000, 30
SPECTRUM, RATE = (4.0, 1.5, 0.5), (0.03, 0.08)


def sequences(n: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Covariances turning about the vertical axis, one way (label 0) or the other (label 1)."""
    label = np.arange(n) % 2
    rate = rng.uniform(*RATE, n) * (1 - 2 * label)
    axis = np.array([0.0, 0.0, 1.0])
    start = so.project(rng.standard_normal((n, 1, D, D)))
    turn = so.exp(so.hat(rate[:, None, None] * np.arange(N_FRAMES)[:, None] * axis))
    truth = orbit.compose(turn @ start, np.array(SPECTRUM))
    seen = wishart.sample(truth, N_SAMPLES, rng)
    return torch.tensor(seen, dtype=torch.float32), torch.tensor(label, dtype=torch.float32)


class Classifier(nn.Module):
    """Filter, average over time, decide; on the velocity, on log-covariances, or both."""

    def __init__(self, use: str) -> None:
        super().__init__()
        self.use = use
        self.layer = KGMRFLayer(D, n_samples=N_SAMPLES, output="tangent")
        static, moving = D * (D + 1) // 2, D * (D - 1) // 2
        width = {"velocity": moving, "covariance": static, "deep": 32}[use]
        # A network on every single covariance, before the average: the most a static model can do.
        self.look = nn.Sequential(nn.Linear(static, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, 1)

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        out = self.layer(seen)
        features = out.velocity if self.use == "velocity" else out.estimate
        if self.use == "deep":
            features = self.look(features)
        return self.head(self.norm(features.mean(1)))[:, 0]


def accuracy(use: str, training: Any, test: Any) -> float:
    torch.manual_seed(SEED)
    model = Classifier(use)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        logits = model(training[0])
        nn.functional.binary_cross_entropy_with_logits(logits, training[1]).backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        right = (model(test[0]) > 0) == (test[1] > 0.5)
    return float(right.float().mean())


def main() -> None:
    torch.set_num_threads(1)
    rng = np.random.default_rng(SEED)
    training, test = sequences(N_TRAIN, rng), sequences(N_TEST, rng)
    names = {
        "linear head on the velocity": "velocity",
        "linear head on log-covariances": "covariance",
        "network on every log-covariance": "deep",
    }
    results = {
        name: {"test_accuracy": accuracy(use, training, test)} for name, use in names.items()
    }
    parameters = {
        "seed": SEED,
        "d": D,
        "n_frames": N_FRAMES,
        "n_samples": N_SAMPLES,
        "n_train": N_TRAIN,
        "n_test": N_TEST,
        "epochs": EPOCHS,
        "spectrum": SPECTRUM,
        "rate": RATE,
    }
    save("torch_direction", parameters, results)


if __name__ == "__main__":
    main()
