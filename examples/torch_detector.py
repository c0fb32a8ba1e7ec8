"""Learn through the filter: covariances come from a small network that looks at pictures.

Noisy pictures show a turning blob; in a third of the frames it is hidden and there is only noise.
The network says, frame by frame, which covariance it sees and how many samples that is worth. It
first learns single frames. Then its training goes on either as before, to be filtered afterwards
with one confidence for all frames, or through the filter: on the error of the *filtered*
covariance, told neither which frames are empty nor what a confidence is. All of it happens for
eight seeds (movies and networks): one run of a small network says little.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_common import save

from kgmrf.geometry import spd
from kgmrf.torch import InformationLaw, LawLayer

SEEDS, SIZE, N_FRAMES, NOISE, HIDDEN = range(1, 9), 16, 30, 0.7, 1 / 3
N_TRAIN, N_TEST, EPOCHS, BATCH = 256, 256, 10, 16
AXES, RATE, BURN_IN = (9.0, 2.0), 0.06, 8


def movies(n: int, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Pictures (n, time, size, size), angles (n, time) of the blob, which frames show it."""
    start, rate = rng.uniform(0, np.pi, (n, 1)), rng.uniform(-RATE, RATE, (n, 1))
    angle = start + rate * np.arange(N_FRAMES)
    grid = np.arange(SIZE) - (SIZE - 1) / 2
    y, x = np.meshgrid(grid, grid, indexing="ij")
    c, s = np.cos(angle)[..., None, None], np.sin(angle)[..., None, None]
    along, across = c * x + s * y, -s * x + c * y
    blob = np.exp(-0.5 * (along**2 / AXES[0] + across**2 / AXES[1]))
    shown = rng.random((n, N_FRAMES)) > HIDDEN
    pictures = blob * shown[..., None, None] + NOISE * rng.standard_normal(blob.shape)
    to = {"dtype": torch.float32}
    return torch.tensor(pictures, **to), torch.tensor(angle, **to), torch.tensor(shown)


class Detector(nn.Module):
    """A picture to a 2x2 covariance exp(symmetric) and a number of samples."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(16 * (SIZE // 4) ** 2, 4),
        )

    def forward(self, pictures: Tensor) -> tuple[Tensor, Tensor]:
        shape = pictures.shape[:2]
        a, b, c, n = self.body(pictures.flatten(0, 1)[:, None]).unflatten(0, shape).unbind(-1)
        # Bounded: a covariance between e^-3 and e^3, worth between nothing and twenty samples.
        a, b, c = (1.5 * torch.tanh(v) for v in (a, b, c))
        symmetric = torch.stack([torch.stack([a + b, c], -1), torch.stack([c, a - b], -1)], -2)
        return spd.exp(symmetric), 0.01 + 20.0 * torch.sigmoid(n - 1.0)


class Pipeline(nn.Module):
    """Detector, then filter."""

    def __init__(self) -> None:
        super().__init__()
        self.detector = Detector()
        law = InformationLaw(2, acceleration=1e-6, rate_prior=1e-3)
        self.filter = LawLayer(2, gains=law, start="learned")


def double_angle(covariance: Tensor) -> Tensor:
    """Unit vector (cos 2a, sin 2a) of the main axis."""
    x = (covariance[..., 0, 0] - covariance[..., 1, 1]) / 2
    v = torch.stack([x, covariance[..., 0, 1]], -1)
    return v / torch.sqrt((v * v).sum(-1, keepdim=True) + 1e-12)


def loss(covariance: Tensor, angle: Tensor) -> Tensor:
    """1 - cos 2(error), zero when the axes agree."""
    target = torch.stack([torch.cos(2 * angle), torch.sin(2 * angle)], -1)
    return 1.0 - (double_angle(covariance) * target).sum(-1)


def degrees(covariance: Tensor, angle: Tensor) -> float:
    cosine = 1.0 - loss(covariance, angle)[:, BURN_IN:]
    return float(torch.rad2deg(0.5 * torch.acos(cosine.clamp(-1.0, 1.0))).mean())


def run(model: Pipeline, pictures: Tensor, through: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Single-frame covariances, filtered ones, and how many samples each frame was worth."""
    seen, worth = model.detector(pictures)
    if not through:
        worth = torch.full_like(worth, 4.0)
    return seen, model.filter(seen, n_samples=worth).estimate, worth


def train(model: Pipeline, through: bool, training: Any, seed: int) -> Pipeline:
    torch.manual_seed(seed)
    pictures, angle, _ = training
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(EPOCHS):
        for batch in torch.randperm(N_TRAIN).split(BATCH):
            optimizer.zero_grad()
            if through:
                _, filtered, _ = run(model, pictures[batch], True)
                error = loss(filtered, angle[batch])[:, BURN_IN:]
            else:
                seen, _ = model.detector(pictures[batch])
                error = loss(seen, angle[batch])
            error.mean().backward()
            # A track that turns the wrong way round has a huge gradient: as in any recurrent net.
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    return model


def once(seed: int) -> dict[str, float]:
    """All three ways for one seed."""
    rng = np.random.default_rng(seed)
    training, test = movies(N_TRAIN, rng), movies(N_TEST, rng)
    pictures, angle, shown = test
    torch.manual_seed(seed)
    first = train(Pipeline(), False, training, seed)
    alone = train(deepcopy(first), False, training, seed)
    through = train(deepcopy(first), True, training, seed)
    with torch.no_grad():
        seen, afterwards, _ = run(alone, pictures, False)
        _, filtered, worth = run(through, pictures, True)
    return {
        "detector alone, single frames": degrees(seen, angle),
        "detector alone, filtered afterwards": degrees(afterwards, angle),
        "trained through the filter": degrees(filtered, angle),
        "samples of a frame that shows the blob": float(worth[shown].mean()),
        "samples of an empty frame": float(worth[~shown].mean()),
    }


def main() -> None:
    torch.set_num_threads(1)
    runs = [once(seed) for seed in SEEDS]
    results: dict[str, Any] = {}
    for name in runs[0]:
        values = np.array([one[name] for one in runs])
        results[name] = {"mean": values.mean(), "of_each_seed": values.tolist()}
    better = [
        one["detector alone, filtered afterwards"] - one["trained through the filter"]
        for one in runs
    ]
    results["better through the filter by"] = {
        "mean": np.mean(better),
        "standard_error": np.std(better, ddof=1) / np.sqrt(len(better)),
    }
    parameters = {
        "seeds": list(SEEDS),
        "size": SIZE,
        "n_frames": N_FRAMES,
        "noise": NOISE,
        "hidden": HIDDEN,
        "n_train": N_TRAIN,
        "n_test": N_TEST,
        "epochs": EPOCHS,
        "rate": RATE,
        "burn_in": BURN_IN,
    }
    save("torch_detector", parameters, results)


if __name__ == "__main__":
    main()
