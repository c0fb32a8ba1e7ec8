"""Figures of structure: maps, energies, contraction, turning targets, error maps, tensors."""

from __future__ import annotations

import numpy as np

from experiments.chart_parts import Figure, dots, panel, rings, series, sheet
from experiments.reading import Results

INTEGRATORS = {
    "printed": ("printed step", "paper_kgmrf"),
    "printed_strang": ("printed, Strang", "printed_kgmrf"),
    "variational": ("A: variational", "paper_tangent_kalman"),
    "plane_split": ("B: plane by plane", "ours"),
}
MAPS = {
    "exponential": ("exponential", "ours"),
    "exponential_polished": ("exponential, polished", "information"),
    "cayley": ("Cayley", "paper_tangent_kalman"),
    "cayley_neumann_2": ("Neumann, 2 terms", "orange solid"),
    "cayley_neumann_3": ("Neumann, 3 (paper)", "paper_kgmrf"),
    "cayley_neumann_4": ("Neumann, 4 terms", "printed_kgmrf"),
}


def structure(results: Results) -> Figure | None:
    """Drift off the group."""
    maps = results.data("structure", "maps")
    if maps is None:
        return None

    def positive(values: list[float | None]) -> list[float]:
        return [np.nan if v is None or v > 1e3 else max(v, 1e-17) for v in values]

    panels = []
    for what, title, label in (
        ("orthogonality", "distance from orthogonal, d = 7", "|QᵀQ − I|"),
        ("spectrum", "change of the spectrum", "largest relative change"),
    ):
        lines = [
            series(name, maps["times"], positive(maps["lines"][key][what]), look)
            for key, (name, look) in MAPS.items()
            if key in maps["lines"]
        ]
        panels.append(panel(title, "steps", label, lines, log="xy"))
    return sheet(
        "structure",
        "The maps over 10⁵ steps",
        "Truncating the inverse after K terms leaves (I − Xᴷ) Cayley(W): not a "
        "rotation. For odd K the error is of order |X|²ᴷ, for even K of order |X|ᴷ, so four terms "
        "are worse than three.",
        panels,
    )


def energy(results: Results) -> Figure | None:
    """How far the energy wanders, for four integrators in three dimensions."""
    panels = []
    for d in (2, 3, 5):
        lines = [
            series(label, data["times"], data["wander"], look)
            for name, (label, look) in INTEGRATORS.items()
            if (data := results.data("structure", f"energy_{d}.{name}"))
        ]
        if lines:
            label = "relative wander of the energy"
            panels.append(panel(f"d = {d}", "steps of .05", label, lines, log="xy"))
    return sheet(
        "energy",
        "Energy of the undamped motion over 10⁵ steps",
        "Largest deviation of <W, w∘W>/2 + V so far, time step .05 in kick and drift. "
        "An energy exists in every dimension; the maxima rise in rare steps and stay at percents "
        "and below. Most of the gain is Strang's order, half a kick before and half after; what A "
        "and B add is the symplectic form (defect at rounding, the printed step's is .3 at d = 3 "
        "and 3 at d = 5).",
        panels,
    )


def energy_contraction(results: Results) -> Figure | None:
    """The theorem's energy along noiseless steps, unit and best inertia."""
    data = results.data("master", "energy")
    if data is None or "cases" not in data:
        return None
    panels = []
    for name, case in data["cases"].items():
        lines = []
        for key, look in (("unit", "paper_kgmrf"), ("best", "ours")):
            if key in case:
                word = "unit inertia" if key == "unit" else f"inertia {case['best_inertia']:.3g}"
                values = [max(v, 1e-12) for v in case[key]["energies"]]
                lines.append(series(word, range(len(values)), values, look))
        title = name.replace("eta", "η").replace("gamma", "γ")
        panels.append(panel(title, "step", "energy over its start", lines, log="y", low=1e-8))
    return sheet(
        "energy_contraction",
        "The energy of the stability theorem",
        "ξ²/2 + a u²/2 without noise. The paper's own gains (left) contract with unit "
        "inertia. With γ = .1 unit inertia rises and falls, a = 18 only falls. For η = .5, γ = .1, "
        "inside the printed domain but beyond η < 2 min(γ, 2 − γ), no inertia does.",
        panels,
    )


def turning(results: Results) -> Figure | None:
    """Stability against the speed of the target, d = 3."""
    data = results.data("stability", "turning")
    if data is None:
        return None
    speeds, lines = data["speeds"], []
    looks = ("ours", "tuned_zero_lag", "paper_kgmrf")
    for (name, law), look in zip(data["laws"].items(), looks, strict=True):
        lines.append(series(name, speeds, law["radius"], look))
        lines.append(rings(f"measured: {name}", speeds, law["measured"], look))
    lines.append(series("stable below", [0.0, speeds[-1]], [1.0, 1.0], "quiet dashed"))
    return sheet(
        "turning",
        "Stability about a target that turns, d = 3",
        "Largest root of the error map against the speed of the target: lines by theory, rings "
        "measured on the step itself. Faster turns cost stability in proportion to the speed.",
        [panel("growth of a small error per frame", "|Ω| (rad per frame)", "radius", lines)],
    )


def error_map(results: Results) -> Figure | None:
    """Mean error over the gains, both laws, two rates."""
    panels = []
    for law, title, label in (
        ("printed", "Algorithm 1", "damping γ"),
        ("zero_lag", "zero-lag law", "position gain A"),
    ):
        for rate in (0.02, 0.08):
            data = results.data("stability", f"error.{law}.rate_{rate:g}")
            if data is None:
                continue
            best = data["best"]
            panels.append(
                {
                    "kind": "map",
                    "title": f"{title}, ω = {rate:g}".replace("0.", "."),
                    "x": {"label": "velocity gain", "values": data["x"], "log": True},
                    "y": {"label": label, "values": data["y"], "log": True},
                    "grid": data["error"],
                    "scale": {"low": 0, "middle": 15, "high": 45, "unit": "angle error (°)"},
                    "edge": [],
                    "marks": [
                        [best["velocity_gain"], best["other"], f"best {best['error']:.1f}°"],
                        [0.05, 0.95 if law == "printed" else 0.1, f"paper {data['paper']:.0f}°"],
                    ],
                }
            )
    return sheet(
        "error_map",
        "The error inside the stability domain",
        "Mean angle error with 8 samples per frame over a grid of gains: blue is good, "
        "orange a blind guess (45°). Most of the stability domain is of no use; good gains of "
        "Algorithm 1 have little damping, and the zero-lag law is good over a wide valley.",
        panels,
    )


def noise_floor(results: Results) -> Figure | None:
    """Error against the assumed noise floor."""
    panels = []
    looks = {
        "information, spectrum known": "ours",
        "information, spectrum learned": "information",
        "zero-lag, spectrum known": "tuned_zero_lag",
    }
    for true in (0.1, 1.0):
        data = results.data("noise_floor", f"true_{true:g}")
        if data is None:
            continue
        x = [max(v, 0.003) for v in data["assumed"]]
        lines = [
            dots(name.replace(", spectrum", ","), x, y, looks[name], half)
            for name, (y, half) in data["lines"].items()
        ]
        title = f"true σ² = {true:g}".replace("0.", ".")
        label = "assumed σ² (leftmost: 0)"
        panels.append(panel(title, label, "angle error (°)", lines, log="xy"))
    return sheet(
        "noise_floor",
        "A wrong noise floor",
        "Eigenvalues 2 and .5, 8 samples, ω = .08. Fixed gains do not see σ² at all. "
        "The information law does, and a value up to ten times too small or too large costs "
        "little; beyond that it believes nothing.",
        panels,
    )


def swelling(results: Results) -> Figure | None:
    """Determinant and shape of the mean of two rotated ellipses."""
    data = results.data("tensors", "swelling")
    if data is None:
        return None
    looks = {
        "Euclidean": "paper_euclidean_ema",
        "log-Euclidean": "paper_tangent_kalman",
        "affine-invariant": "orange dashed",
        "on the orbit": "ours",
    }
    panels = []
    for key, title in (
        ("determinant", "determinant (1 is right)"),
        ("ratio", "ratio of eigenvalues (4 is right)"),
    ):
        lines = [
            series(name, data["degrees"], line[key], looks[name])
            for name, line in data["lines"].items()
        ]
        panels.append(panel(title, "angle between the two (°)", key, lines, low=0.0))
    return sheet(
        "swelling",
        "The swelling effect",
        "Mean of two ellipses with eigenvalues 2 and .5. The Euclidean mean swells; "
        "logarithmic means keep the area and lose the shape; half-way along the orbit keeps both.",
        panels,
    )
