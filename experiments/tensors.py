"""Averages of covariances: the swelling effect, and diffusion tensors along a fibre that turns.

A fibre bends through a simulated tissue; every voxel along it holds a diffusion tensor, fitted to
noisy signals of 30 gradient directions (a Stejskal-Tanner model, weighted least squares). The task:
the tensor at each voxel from those before it, and from all of them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import Unit, unit
from kgmrf import KGMRF, EuclideanEMA, LogEuclideanEMA, metrics
from kgmrf._types import Numbers
from kgmrf.geometry import orbit, so, spd

SPECTRUM = np.array([1.7, 0.4, 0.25])
"""Diffusivities along and across a fibre, 1e-3 mm^2/s."""
B_VALUE = 1.0
"""1000 s/mm^2, in units that match."""
N_DIRECTIONS = 30
EFFECTIVE_SAMPLES = 60
"""How many samples a fitted tensor is worth to the tracker, at signal-to-noise 20."""


def run_swelling(n_angles: int) -> dict[str, Any]:
    """The mean of two ellipses (2, .5) that differ by an angle: its determinant, and its shape.

    The determinant of either is 1. Euclidean averages swell it; log-Euclidean and affine-invariant
    ones keep it but round the ellipse; the point half-way on the orbit keeps both eigenvalues.
    """
    angles = np.linspace(0, np.pi / 2, n_angles)
    spectrum = np.array([2.0, 0.5])
    start = np.broadcast_to(np.diag(spectrum), (n_angles, 2, 2))
    end = orbit.compose(so.exp(so.hat(angles[:, None])), spectrum)
    means = {
        "Euclidean": 0.5 * (start + end),
        "log-Euclidean": spd.exp((spd.log(start) + spd.log(end)) / 2),
        "affine-invariant": spd.geodesic(start, end, 0.5),
        "on the orbit": orbit.compose(so.exp(so.hat(0.5 * angles[:, None])), spectrum),
    }
    lines = {}
    for name, matrix in means.items():
        values = np.linalg.eigvalsh(matrix)
        lines[name] = {
            "determinant": np.linalg.det(matrix),
            "ratio": values[..., 1] / values[..., 0],
        }
    return {"degrees": np.degrees(angles), "lines": lines}


def fibre(n_voxels: int, rng: np.random.Generator) -> tuple[Numbers, Numbers]:
    """Positions (n, 3) and eigenframes (n, 3, 3) along an arc that bends and twists."""
    # Bending by 2.5 degrees a voxel out of one plane into another, as a U-fibre does.
    bend = np.radians(2.5) * np.ones(n_voxels)
    twist = np.radians(1.0) * np.sin(np.linspace(0, np.pi, n_voxels))
    frame = np.asarray(so.exp(so.hat(0.2 * rng.standard_normal(3))))
    frames, position, positions = [], np.zeros(3), []
    for k in range(n_voxels):
        frames.append(frame)
        positions.append(position)
        position = position + frame[:, 0]
        frame = frame @ so.exp(so.hat(np.array([twist[k], 0.3 * bend[k], bend[k]])))
    return np.stack(positions), np.stack(frames)


def directions() -> Numbers:
    """Gradient directions spread over the sphere: a spiral, (30, 3)."""
    k = np.arange(N_DIRECTIONS) + 0.5
    height, turn = 1 - k / N_DIRECTIONS, np.pi * (1 + 5**0.5) * k
    ring = np.sqrt(1 - height**2)
    return np.stack([ring * np.cos(turn), ring * np.sin(turn), height], -1)


def measure(tensors: Numbers, snr: float, rng: np.random.Generator) -> Numbers:
    """Tensors as a scanner would give them: signals with Rician noise, fitted, made positive."""
    g = directions()
    design = np.stack(
        [g[:, 0] ** 2, g[:, 1] ** 2, g[:, 2] ** 2, *(2 * g[:, i] * g[:, j] for i, j in PAIRS)], -1
    )
    exact = np.exp(-B_VALUE * np.einsum("ki,...ij,kj->...k", g, tensors, g))
    noise = rng.standard_normal((2, *exact.shape)) / snr
    signal = np.maximum(np.hypot(exact + noise[0], noise[1]), 1e-3)
    log = -np.log(signal) / B_VALUE
    # Weighted by the signal: the logarithm of a weak one is noisy.
    weight = signal[..., None]
    fit = np.linalg.lstsq  # one voxel at a time is fine: there are few
    out = np.empty(tensors.shape)
    for k in np.ndindex(tensors.shape[:-2]):
        x = fit(weight[k] * design, weight[k][:, 0] * log[k], rcond=None)[0]
        out[k] = [[x[0], x[3], x[4]], [x[3], x[1], x[5]], [x[4], x[5], x[2]]]
    values, vectors = np.linalg.eigh(out)
    return (vectors * np.maximum(values, 0.02)[..., None, :]) @ np.swapaxes(vectors, -1, -2)


PAIRS = ((0, 1), (0, 2), (1, 2))
GAINS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


def anisotropy(tensors: Numbers) -> Numbers:
    """Fractional anisotropy: 0 for a sphere, 1 for a needle."""
    values = np.linalg.eigvalsh(tensors)
    spread = ((values - values.mean(-1, keepdims=True)) ** 2).sum(-1)
    return np.sqrt(1.5 * spread / (values**2).sum(-1))


def _direction_error(found: Numbers, frames: Numbers) -> Numbers:
    """Angle between principal directions, degrees."""
    main = np.linalg.eigh(found)[1][..., -1]
    return np.degrees(np.arccos(np.clip(np.abs((main * frames[..., 0]).sum(-1)), 0, 1)))


def run_fibre(n_voxels: int, snr: float, n_seeds: int) -> dict[str, Any]:
    """Along one fibre: direction error, anisotropy and determinant for averages and the tracker."""
    truth_position, truth_frames = fibre(n_voxels, np.random.default_rng(0))
    truth = orbit.compose(truth_frames, SPECTRUM)
    seen = np.stack(
        [measure(truth, snr, np.random.default_rng([seed, 7])) for seed in range(10, 10 + n_seeds)],
        1,
    )
    trial = np.stack([measure(truth, snr, np.random.default_rng([k, 7])) for k in range(5)], 1)
    ours = KGMRF(gains="information", n_samples=EFFECTIVE_SAMPLES)
    found: dict[str, Numbers] = {"fitted tensor alone": seen}
    for name, average in (("Euclidean", EuclideanEMA), ("log-Euclidean", LogEuclideanEMA)):
        # The usual gain, and the best on five other scans.
        scores = {
            g: _direction_error(average(gain=g).filter(trial).covariance, truth_frames[:, None])
            for g in GAINS
        }
        best = min(scores, key=lambda g: float(scores[g][10:].mean()))
        for word, gain in (("gain .2", 0.2), (f"best gain {best:g}", best)):
            found[f"{name} average, {word}"] = average(gain=gain).filter(seen).covariance
    found["K-GMRF"] = ours.filter(seen).covariance
    found["K-GMRF, both ways"] = ours.copy().smooth(seen).covariance
    rows = {}
    for name, tensors in found.items():
        error = _direction_error(tensors, truth_frames[:, None])[10:]
        rows[name] = {
            "direction": error.mean(),
            "direction_half": 1.96 * error.mean(0).std(ddof=1) / np.sqrt(n_seeds),
            "anisotropy": anisotropy(tensors)[10:].mean(),
            "determinant": np.exp(np.log(np.linalg.det(tensors)[10:]).mean()) / SPECTRUM.prod(),
            "affine_invariant": metrics.affine_invariant_error(tensors, truth[:, None])[10:].mean(),
        }
    shown = {name: _drawn(tensors[:, 0]) for name, tensors in found.items()}
    return {
        "spectrum": SPECTRUM,
        "snr": snr,
        "n_voxels": n_voxels,
        "true_anisotropy": float(anisotropy(np.diag(SPECTRUM))),
        "rows": rows,
        "position": np.round(truth_position, 3),
        "tensors": {"truth": _drawn(truth), **shown},
    }


def _drawn(tensors: Numbers) -> Numbers:
    """xx, xy, yy of every tensor: its shadow on the drawing plane."""
    return np.round(np.stack([tensors[:, 0, 0], tensors[:, 0, 1], tensors[:, 1, 1]], -1), 3)


def units(quick: bool) -> list[Unit]:
    """The swelling effect, and a fibre at two noise levels."""
    n_voxels, n_seeds = (40, 3) if quick else (80, 40)
    return [
        unit("tensors", "swelling", run_swelling, n_angles=31),
        *[
            unit(
                "tensors",
                f"fibre.snr_{snr:g}",
                run_fibre,
                n_voxels=n_voxels,
                snr=snr,
                n_seeds=n_seeds,
            )
            for snr in (20.0, 10.0)
        ],
    ]
