"""SPDNet on real EEG, with and without the layer: which light flickers?

The network is that of Huang and Van Gool: BiMap (W C W^T, W with orthonormal rows), ReEig
(eigenvalues up to a floor), LogEig (the matrix logarithm), a linear head. It reads one covariance
of each of three frequency bands of a trial: 8 channels, 3 s, 12 blocks of a quarter of a second.

    mean            the mean of the blocks: the covariance of the whole trial
    layer           what `KGMRFLayer` holds at the end of the trial, untrained
    layer, trained  the same; its settings learn with the network
    both            a network for the mean and one for the layer, untrained, and a head for both

One session of a subject trains, the other is tested on, in both orders; 32 trials each. Covariances
are recentred by the mean of their session (as the batch normalisation by domain of TSMNet does).
Every run takes as many steps of Adam at the same rate; nothing was tuned. Intervals are over the
eight pairs of sessions, each the mean of its seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch_common import data_file, interval, save

from kgmrf.geometry import spd
from kgmrf.torch import KGMRFLayer

SUBJECTS, SEEDS, STEPS, RATE, PENALTY = ("01", "03", "04", "05"), 3, 60, 0.01, 1e-3
BANDS, HALF_WIDTH, BLOCK, BEGIN, END = (13.0, 17.0, 21.0), 1.0, 64, 2.0, 5.0
WORTH = 2.0  # a narrow band: a block of 64 samples holds some 2 independent ones
KINDS = ("mean", "layer", "layer, trained", "both")


# --------------------------------------------------------------------------- the network


class BiMap(nn.Module):
    """W C W^T with orthonormal rows of W."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.free = nn.Parameter(torch.randn(inside, outside, dtype=torch.float64))

    def forward(self, C: Tensor) -> Tensor:
        W = torch.linalg.qr(self.free)[0].mT
        return W @ C @ W.mT


class ReEig(nn.Module):
    """Eigenvalues below a floor are raised to it."""

    def forward(self, C: Tensor) -> Tensor:
        values, vectors = torch.linalg.eigh(C)
        return (vectors * values.clamp(min=1e-3)[..., None, :]) @ vectors.mT


class LogEig(nn.Module):
    """The upper triangle of the logarithm, with its norm."""

    def forward(self, C: Tensor) -> Tensor:
        row, column = torch.triu_indices(C.shape[-1], C.shape[-1])
        return spd.log(C)[..., row, column] * torch.where(row == column, 1.0, 2.0**0.5)


class SPDNet(nn.Module):
    """Features of covariances (trial, band, d, d): BiMap, ReEig, LogEig for each band."""

    def __init__(self, d: int, inner: int = 6) -> None:
        super().__init__()
        bands = range(len(BANDS))
        self.bands = nn.ModuleList(nn.Sequential(BiMap(d, inner), ReEig(), LogEig()) for _ in bands)
        self.width = len(BANDS) * inner * (inner + 1) // 2

    def forward(self, C: Tensor) -> Tensor:
        parts = [net(one) for net, one in zip(self.bands, C.unbind(1), strict=True)]
        return torch.cat(parts, -1)


class Classifier(nn.Module):
    """Trials (trial, band, time, d, d) to classes, by one of the kinds."""

    def __init__(self, kind: str, d: int) -> None:
        super().__init__()
        self.kind = kind
        learned = KGMRFLayer(d).named_parameters() if kind == "layer, trained" else ()
        groups = [name.removeprefix("free_") for name, _ in learned]
        self.layer = KGMRFLayer(d, learned=groups)
        self.nets = nn.ModuleList(SPDNet(d) for _ in range(2 if kind == "both" else 1))
        width = sum(net.width for net in self.nets)
        self.head = nn.Linear(width, 1 + len(BANDS), dtype=torch.float64)

    def covariances(self, blocks: Tensor) -> list[Tensor]:
        found = []
        if self.kind in ("mean", "both"):
            found.append(blocks.mean(2))
        if self.kind != "mean":
            last = self.layer(blocks.flatten(0, 1), n_samples=WORTH).covariance[:, -1]
            found.append(last.unflatten(0, blocks.shape[:2]))
        return found

    def forward(self, matrices: list[Tensor]) -> Tensor:
        return self.head(
            torch.cat([net(C) for net, C in zip(self.nets, matrices, strict=True)], -1)
        )


# --------------------------------------------------------------------------- data and training


def trials(path: Any) -> tuple[Tensor, Tensor]:
    """Covariances of blocks (trial, band, time, d, d), recentred by their mean, and classes."""
    from scipy.signal import butter, sosfiltfilt

    with np.load(path) as file:
        data, rate, events = file["data"].astype(float), float(file["sfreq"]), file["events"]
    bands = []
    for frequency in BANDS:
        edges = (frequency - HALF_WIDTH, frequency + HALF_WIDTH)
        sos = butter(3, edges, "bandpass", fs=rate, output="sos")
        bands.append(sosfiltfilt(sos, data, axis=0))
    count = int((END - BEGIN) * rate) // BLOCK
    rows = (events[:, 0] + int(BEGIN * rate))[:, None] + np.arange(count * BLOCK)
    x = torch.tensor(np.stack([band[rows] for band in bands], axis=1))
    x = x.unflatten(2, (count, BLOCK))
    C = x.mT @ x / BLOCK
    white = spd.power(C.mean((0, 2)), -0.5)[:, None]
    return white @ C @ white, torch.tensor(events[:, -1].astype(np.int64) - 1)


def accuracy(kind: str, seed: int, train: Any, test: Any) -> float:
    """Of the test session, in percent."""
    torch.manual_seed(seed)
    (blocks, labels), (others, truth) = train, test
    model = Classifier(kind, blocks.shape[-1])
    free = [part for part in model.parameters() if part.requires_grad]
    optimizer = torch.optim.Adam(free, lr=RATE, weight_decay=PENALTY)
    with torch.no_grad():
        matrices = model.covariances(blocks)
    for _ in range(STEPS):
        if kind == "layer, trained":
            matrices = model.covariances(blocks)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(matrices), labels).backward()
        optimizer.step()
    with torch.no_grad():
        guess = model(model.covariances(others)).argmax(-1)
        return float(100.0 * (guess == truth).double().mean())


def main() -> None:
    names = [[f"ssvep8_s{s}_{k}.npz" for k in (0, 1)] for s in SUBJECTS]
    paths = [[data_file("streams", name) for name in pair] for pair in names]
    if any(path is None for pair in paths for path in pair):
        print(
            f"skipped: {names[0][0]} and others not found; set KGMRF_DATA to the folder of the data"
        )
        return
    torch.set_num_threads(1)
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for pair in paths:
        sessions = [trials(path) for path in pair]
        for train, test in (sessions, sessions[::-1]):
            for kind in KINDS:
                runs = [accuracy(kind, seed, train, test) for seed in range(SEEDS)]
                found[kind].append(float(np.mean(runs)))
    gains = {
        f"{kind}, less mean": [a - b for a, b in zip(found[kind], found["mean"], strict=True)]
        for kind in KINDS[1:]
    }
    results = {name: interval(values) for name, values in (found | gains).items()}
    parameters = {
        "subjects": SUBJECTS,
        "seeds": SEEDS,
        "steps": STEPS,
        "rate": RATE,
        "weight_decay": PENALTY,
        "bands_hz": BANDS,
        "half_width_hz": HALF_WIDTH,
        "block_samples": BLOCK,
        "seconds_after_cue": [BEGIN, END],
        "samples_a_block_is_worth": WORTH,
        "chance": 25.0,
    }
    save("torch_spdnet", parameters, results)


if __name__ == "__main__":
    main()
