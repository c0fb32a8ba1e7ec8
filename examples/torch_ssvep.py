"""Real EEG: which light flickers? Filtered covariances against plain ones, the same head on both.

Subject 2 of a public SSVEP recording: 8 channels, 32 trials of 4 classes (rest, 13, 17, 21 Hz).
Every trial is filtered into bands about the three frequencies; each band gives one covariance per
quarter of a second. *Plain*: the covariance of the whole trial and band, in the log-Euclidean
tangent space. *Layer*: the logarithm of the filtered covariance at the end of the trial, with
default gains or with gains trained together with the head; its time average and the speeds of
rotation are tried too. Two designs hold the plain one as a special case: a layer whose warm-up may
be as long as the trial (all pooled, nothing filtered), and plain features beside those of the
layer, weighted down as far as nothing. All end in the same penalised linear head. Its penalty, the
warm-up and the weight are chosen inside the training trials only (nested cross-validation), and
every number is reported, whichever way it falls.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch_common import data_file, save

from kgmrf.geometry import spd
from kgmrf.torch import InformationLaw, LawLayer

SEED, WINDOW, BEGIN, END = 0, 64, 2.0, 5.0
BANDS, HALF_WIDTH = (13.0, 17.0, 21.0), 1.0
WORTH, WARMUP = 2.0, 3.0  # a narrow band: a window of 64 samples holds some 2 independent ones
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)
WARMUPS = (3.0, 6.0, 9.0, 12.0)  # frames; a trial has 12
WEIGHTS = (0.0, 0.1, 0.3, 1.0)  # of the layer's features beside the plain ones
OUTER, INNER, EPOCHS, REPEATS = 8, 4, 25, 3


def trials(path: Any) -> tuple[Tensor, Tensor]:
    """Samples (trial, band, time, m, d) with unit mean variance per trial and band, and labels."""
    from scipy.signal import butter, sosfiltfilt

    with np.load(path) as file:
        data, rate, events = file["data"].astype(float), float(file["sfreq"]), file["events"]
    bands = []
    for frequency in BANDS:
        edges = (frequency - HALF_WIDTH, frequency + HALF_WIDTH)
        sos = butter(3, edges, "bandpass", fs=rate, output="sos")
        bands.append(sosfiltfilt(sos, data, axis=0))
    count = int((END - BEGIN) * rate) // WINDOW
    first = events[:, 0] + int(BEGIN * rate)
    rows = first[:, None] + np.arange(count * WINDOW)
    blocks = np.stack([band[rows] for band in bands], axis=1)  # (trial, band, samples, d)
    # One scale for all: differences of power between bands and trials carry the class.
    blocks /= np.sqrt(np.mean(blocks**2))
    blocks = blocks.reshape(*blocks.shape[:2], count, WINDOW, -1)
    return torch.tensor(blocks, dtype=torch.float32), torch.tensor(events[:, 2] - 1)


def upper(X: Tensor) -> Tensor:
    row, column = torch.triu_indices(X.shape[-1], X.shape[-1])
    return X[..., row, column] * torch.where(row == column, 1.0, 2.0**0.5)


def plain(samples: Tensor) -> Tensor:
    """log of the covariance of the whole trial, band by band."""
    flat = samples.flatten(2, 3).double()
    covariance = flat.mT @ flat / flat.shape[-2]
    return upper(spd.log(covariance)).flatten(1).float()


def filtered(layer: LawLayer, samples: Tensor, use: str = "last") -> Tensor:
    """What the layer says at the end of a trial, or on average, or with speeds; band by band."""
    out = layer(samples.mT @ samples / samples.shape[-2])
    if use == "average":
        return out.estimate.mean(-2).flatten(1)
    parts = [out.estimate[..., -1, :]]
    if use == "speed":
        parts.append(out.velocity.abs().mean(-2))
    return torch.cat(parts, -1).flatten(1)


def new_layer(warmup: float = WARMUP) -> LawLayer:
    return LawLayer(
        8, gains=InformationLaw(8), n_samples=WORTH, pool_steps=warmup, output="tangent"
    )


class Table(NamedTuple):
    """Features ``(trial, feature)``, and how much each counts once it is standardised."""

    features: Tensor
    weights: Tensor

    def rows(self, chosen: Tensor) -> Table:
        return Table(self.features[chosen], self.weights)


def table(*parts: tuple[Tensor, float]) -> Table:
    """Features side by side with their weights; a weight of 0 leaves them out."""
    kept = [(features, weight) for features, weight in parts if weight > 0]
    weights = [torch.full((features.shape[-1],), weight) for features, weight in kept]
    return Table(torch.cat([features for features, _ in kept], -1), torch.cat(weights))


class Head(nn.Module):
    """A linear classifier of standardised features; the penalty keeps its weights small."""

    def __init__(self, table: Table, n_classes: int, penalty: float) -> None:
        super().__init__()
        features = table.features
        self.penalty = penalty
        self.mean, self.size = features.mean(0), (features.std(0) + 1e-6) / table.weights
        self.linear = nn.Linear(features.shape[-1], n_classes)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear((features - self.mean) / self.size)

    def loss(self, features: Tensor, labels: Tensor) -> Tensor:
        misfit = nn.functional.cross_entropy(self(features), labels)
        return misfit + self.penalty * self.linear.weight.square().sum()


def fit(table: Table, labels: Tensor, penalty: float) -> Head:
    head, features = Head(table, 4, penalty), table.features
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = head.loss(features, labels)
        value.backward()
        return value

    optimizer.step(closure)  # type: ignore[arg-type]
    return head


def folds(labels: Tensor, count: int, rng: np.random.Generator) -> Tensor:
    """A fold number for every trial, classes spread evenly."""
    fold = torch.empty(len(labels), dtype=torch.int64)
    for label in labels.unique():
        members = torch.nonzero(labels == label)[:, 0]
        shuffled = members[torch.as_tensor(rng.permutation(len(members)))]
        fold[shuffled] = torch.arange(len(members)) % count
    return fold


def best(tables: list[Table], labels: Tensor, rng: np.random.Generator) -> tuple[int, float]:
    """Which table and which penalty predict held-out training trials best."""
    fold = folds(labels, INNER, rng)
    scores: dict[tuple[int, float], float] = {}
    for choice, penalty in itertools.product(range(len(tables)), PENALTIES):
        losses = 0.0
        for k in range(INNER):
            a, b = fold != k, fold == k
            head = fit(tables[choice].rows(a), labels[a], penalty)
            with torch.no_grad():
                guess = head(tables[choice].features[b])
                losses += float(nn.functional.cross_entropy(guess, labels[b], reduction="sum"))
        scores[choice, penalty] = losses
    return min(scores, key=lambda key: scores[key])


def train(samples: Tensor, labels: Tensor, penalty: float) -> tuple[LawLayer, Head]:
    """Gains and head together, from the default gains and the head that suits them."""
    layer = new_layer()
    with torch.no_grad():
        features = filtered(layer, samples)
    head = fit(table((features, 1.0)), labels, penalty)
    optimizer = torch.optim.Adam([*layer.parameters(), *head.parameters()], lr=0.03)
    for _ in range(EPOCHS):
        optimizer.zero_grad()
        head.loss(filtered(layer, samples), labels).backward()
        optimizer.step()
    with torch.no_grad():
        features = filtered(layer, samples)
    return layer, fit(table((features, 1.0)), labels, penalty)


def main() -> None:
    path = data_file("streams", "ssvep8_subject02.npz")
    if path is None:
        print("skipped: ssvep8_subject02.npz not found; set KGMRF_DATA to the folder of the data")
        return
    torch.set_num_threads(1)
    samples, labels = trials(path)
    with torch.no_grad():
        default, whole = new_layer(), plain(samples)
        last = filtered(default, samples)
        speed = filtered(default, samples, "speed")
        single = {
            "plain covariance": whole,
            "layer, default gains": last,
            "layer, default gains, average over time": filtered(default, samples, "average"),
            "layer, default gains, with speeds": speed,
        }
        tables = {name: [table((features, 1.0))] for name, features in single.items()}
        tables["layer, warm-up chosen inside"] = [
            table((filtered(new_layer(warmup), samples), 1.0)) for warmup in WARMUPS
        ]
        tables["plain and layer with speeds, weight chosen inside"] = [
            table((whole, 1.0), (speed, weight)) for weight in WEIGHTS
        ]
    trained = "layer, gains trained with the head"
    right: dict[str, list[float]] = {name: [] for name in (*tables, trained)}
    chosen: dict[str, list[int]] = {}
    for repeat in range(REPEATS):
        rng = np.random.default_rng(SEED + repeat)
        fold = folds(labels, OUTER, rng)
        hits = dict.fromkeys(right, 0)
        for k in range(OUTER):
            a, b = fold != k, fold == k
            for name, choices in tables.items():
                choice, penalty = best([one.rows(a) for one in choices], labels[a], rng)
                chosen.setdefault(name, []).append(choice)
                head = fit(choices[choice].rows(a), labels[a], penalty)
                with torch.no_grad():
                    guess = head(choices[choice].features[b]).argmax(-1)
                hits[name] += int((guess == labels[b]).sum())
                if name == "layer, default gains" and repeat == 0:
                    layer, joint = train(samples[a], labels[a], penalty)
                    with torch.no_grad():
                        guess = joint(filtered(layer, samples[b])).argmax(-1)
                    hits[trained] += int((guess == labels[b]).sum())
        for name, count in hits.items():
            if name != trained or repeat == 0:
                right[name].append(count / len(labels))
    results: dict[str, dict[str, Any]] = {
        name: {"accuracy_per_repeat": values, "accuracy": float(np.mean(values))}
        for name, values in right.items()
    }
    for name, options in tables.items():
        if len(options) > 1:
            results[name]["times_chosen"] = np.bincount(chosen[name], minlength=4).tolist()
    parameters = {
        "seed": SEED,
        "n_trials": len(labels),
        "window_samples": WINDOW,
        "seconds_after_cue": [BEGIN, END],
        "bands_hz": BANDS,
        "half_width_hz": HALF_WIDTH,
        "samples_a_window_is_worth": WORTH,
        "pool_steps": WARMUP,
        "outer_folds": OUTER,
        "inner_folds": INNER,
        "penalties": PENALTIES,
        "warmups": WARMUPS,
        "weights": WEIGHTS,
        "epochs": EPOCHS,
        "repeats": REPEATS,
        "repeats_of_the_trained_layer": 1,
        "chance": 0.25,
    }
    save("torch_ssvep", parameters, results)


if __name__ == "__main__":
    main()
