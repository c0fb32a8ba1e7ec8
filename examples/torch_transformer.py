"""A small Transformer encoder on sequences of covariance tokens, with the layer and without.

Without: each token is the logarithm of one covariance. With: the same token, and beside it what
the layer tells of that step, the logarithm of the filtered covariance and the angular velocity; the
layer's gains are trained with the encoder. Everything else is the same. Accuracy against the number
of training sequences, on two tasks:

- direction (simulated): covariances that turn one way or the other. Both classes visit the same
  covariances; played backwards, one is the other.
- flicker (real, needs KGMRF_DATA): which of four lights subject 2 of an SSVEP recording looks at.

Epochs, width and learning rate were set once, the same for both, and never tuned.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_common import data_file, interval, save
from torch_ssvep import WARMUP, WORTH, trials, upper

from kgmrf import wishart
from kgmrf.geometry import orbit, so, spd
from kgmrf.torch import LawLayer

SEEDS, EPOCHS, WIDTH, HEADS, RATE = range(5), 40, 16, 2, 1e-2
D, N_STEPS, N_SAMPLES, N_TEST = 3, 24, 6, 400
SPECTRUM, SPEED = (4.0, 1.5, 0.5), (0.03, 0.08)
SIZES = {"direction": (16, 48, 144), "flicker": (8, 16, 24)}


def turning(n: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Covariances (n, 1, time, d, d) turning about the vertical axis, and which way."""
    label = np.arange(n) % 2
    speed = rng.uniform(*SPEED, n) * (1 - 2 * label)
    start = so.project(rng.standard_normal((n, 1, D, D)))
    angle = speed[:, None, None] * np.arange(N_STEPS)[:, None]
    truth = orbit.compose(so.exp(so.hat(angle * [0.0, 0.0, 1.0])) @ start, np.array(SPECTRUM))
    seen = wishart.sample(truth, N_SAMPLES, rng)
    return torch.tensor(seen[:, None], dtype=torch.float32), torch.tensor(label)


class Classifier(nn.Module):
    """Covariances (n, band, time, d, d) -> tokens (n, time, feature) -> encoder -> class."""

    def __init__(self, layer: LawLayer | None, seen: Tensor, n_classes: int) -> None:
        super().__init__()
        self.layer = layer
        with torch.no_grad():
            tokens = self.tokens(seen)
        self.mean, self.size = tokens.mean((0, 1)), tokens.std((0, 1)) + 1e-6
        self.inlet = nn.Linear(tokens.shape[-1], WIDTH)
        self.place = nn.Parameter(0.1 * torch.randn(tokens.shape[1], WIDTH))
        self.encoder = nn.TransformerEncoderLayer(
            WIDTH, HEADS, dim_feedforward=2 * WIDTH, dropout=0.1, batch_first=True
        )
        self.head = nn.Linear(WIDTH, n_classes)

    def tokens(self, seen: Tensor) -> Tensor:
        eye = torch.eye(seen.shape[-1])
        with torch.no_grad():
            parts = [upper(spd.log((seen + 1e-3 * eye).double())).float()]
        if self.layer is not None:
            out = self.layer(seen)
            parts += [out.estimate, out.velocity]
        return torch.cat(parts, -1).transpose(1, 2).flatten(2)

    def forward(self, seen: Tensor) -> Tensor:
        x = self.inlet((self.tokens(seen) - self.mean) / self.size) + self.place
        return self.head(self.encoder(x).mean(1))


def accuracy(layer: LawLayer | None, train: Any, test: Any, n_classes: int, seed: int) -> float:
    torch.manual_seed(seed)
    model = Classifier(layer, train[0], n_classes)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(train[1])).split(48):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(train[0][batch]), train[1][batch]).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    model.eval()
    with torch.no_grad():
        return float((model(test[0]).argmax(-1) == test[1]).float().mean())


def simulated(seed: int, size: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    test = turning(N_TEST, rng)
    return turning(size, rng), test


def flicker(everything: Any, seed: int, size: int) -> tuple[Any, Any]:
    """As many trials of every class to train on, and all others to test."""
    seen, labels = everything
    order = np.random.default_rng(seed).permutation(len(labels))
    classes = [order[labels.numpy()[order] == k] for k in range(4)]
    train = torch.tensor(np.concatenate([members[: size // 4] for members in classes]))
    rest = torch.tensor(np.concatenate([members[size // 4 :] for members in classes]))
    return (seen[train], labels[train]), (seen[rest], labels[rest])


def study(name: str, data: Callable[[int, int], Any], new: Callable[[], Any], n: int) -> Any:
    table: dict[str, Any] = {}
    for size in SIZES[name]:
        runs: dict[str, list[float]] = {"without": [], "with": []}
        for seed in SEEDS:
            train, test = data(seed, size)
            runs["without"].append(accuracy(None, train, test, n, seed))
            runs["with"].append(accuracy(new(), train, test, n, seed))
        row: dict[str, Any] = {key: interval(values) for key, values in runs.items()}
        pairs = zip(runs["with"], runs["without"], strict=True)
        row["difference"] = interval([a - b for a, b in pairs])
        table[str(size)] = row
        means = {key: round(one["mean"], 3) for key, one in row.items()}
        print(name, size, means, f"{time.process_time():.0f} s", flush=True)
    return table


def main() -> None:
    torch.set_num_threads(1)
    like: dict[str, Any] = {"output": "tangent"}
    results = {
        "direction": study(
            "direction", simulated, lambda: LawLayer(D, n_samples=N_SAMPLES, **like), 2
        )
    }
    path = data_file("streams", "ssvep8_subject02.npz")
    if path is None:
        print("flicker skipped: ssvep8_subject02.npz not found; set KGMRF_DATA to its folder")
    else:
        samples, labels = trials(path)
        everything = samples.mT @ samples / samples.shape[-2], labels.long()
        results["flicker"] = study(
            "flicker",
            lambda seed, size: flicker(everything, seed, size),
            lambda: LawLayer(8, n_samples=WORTH, pool_steps=WARMUP, **like),
            4,
        )
    parameters = {
        "seeds": list(SEEDS),
        "epochs": EPOCHS,
        "width": WIDTH,
        "heads": HEADS,
        "learning_rate": RATE,
        "n_test": N_TEST,
        "n_steps": N_STEPS,
        "n_samples": N_SAMPLES,
        "spectrum": SPECTRUM,
        "speed": SPEED,
        "processor_seconds": round(time.process_time()),
    }
    save("torch_transformer", parameters, results)


if __name__ == "__main__":
    main()
