"""Figures of the theory: lag, stability, the master theorem, the gap, cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments import claims
from experiments.chart_parts import Figure, dots, panel, rings, series, sheet
from experiments.reading import Results


def first_order_lag(results: Results) -> Figure | None:
    """Measured lag against theory."""
    data = results.data("lag", "lines")
    if data is None:
        return None
    rates, lines = data["rates"], data["lines"]
    averages = []
    shades = {"0.1": "#B3D9F2", "0.2": "sky", "0.4": "#2E8BC0", "0.8": "#0B4F6C"}
    for gain, colour in shades.items():
        line, name, look = lines[f"euclidean_{gain}"], f"EMA {gain[1:]}", f"{colour} solid"
        averages.append(series(f"{name}, theory", rates, line["theory"], look))
        averages.append(rings(f"{name}, measured", rates[::4], line["measured"][::4], look))
    averages.append(series("bound |Ω|/2, appendix", rates, data["bound_appendix"], "quiet dashed"))
    averages.append(series("bound |Ω|/4, text", rates, data["bound_text"], "quiet dotted"))
    laws = [
        series(name, rates, lines[key]["measured"], look)
        for key, name, look in (
            ("printed_0.05_0.95", "η .05, γ .95 (paper)", "vermillion solid"),
            ("printed_0.5_0.95", "η .5, γ .95", "vermillion dashed"),
            ("printed_0.5_0.5", "η .5, γ .5", "vermillion dotted"),
            ("zero_lag", "zero-lag", "tuned_zero_lag"),
        )
    ]
    return sheet(
        "first_order_lag",
        "Lag under constant rotation, without noise",
        "Left: moving averages follow the exact law ½ arg(1 − (1−g) e^(−2iω)), linear for small ω "
        "only. The paper's bounds are about predictions, whose lag is larger by ω: those all lie "
        "above |Ω|/2, the filtered estimates drawn here need not. Right: Algorithm 1 as printed "
        "lags too, and loses lock above η/2γ; without damping on the velocity the lag is zero.",
        [
            panel("first-order averages", "ω (rad per frame)", "lag (°)", averages, low=0.0),
            panel("second-order laws", "ω (rad per frame)", "lag (°)", laws, low=0.0),
        ],
    )


def stability_map(results: Results) -> Figure | None:
    """Two maps of what becomes of a small error."""
    panels = []
    for law, title, labels in (
        ("printed", "Algorithm 1 as printed", ("velocity gain η", "damping γ")),
        ("zero_lag", "zero-lag law", ("velocity gain B", "position gain A")),
    ):
        data = results.data("stability", law)
        if data is None:
            continue
        x = np.linspace(data["x"][0], data["x"][-1], 60)
        # eta < 2 (2 - gamma) there, B < 2 (2 - A) here: one line for both.
        edge = [[a, 2 - a / 2] for a in x]
        panels.append(
            {
                "kind": "map",
                "title": title,
                "x": {"label": labels[0], "values": data["x"]},
                "y": {"label": labels[1], "values": data["y"]},
                "grid": data["growth"],
                "scale": {"low": -6, "middle": 0, "high": 6, "unit": "log₁₀ of growth"},
                "edge": [[round(a, 4), round(b, 4)] for a, b in edge if b > 0],
                "agree": data["agree_off_boundary"],
            }
        )
    return sheet(
        "stability_map",
        "Stability domain, measured",
        "An error of 10⁻⁶ rad after 300 noiseless frames, in powers of ten of its start: blue has "
        "died out, orange has grown. Line: the predicted boundary, η = 2(2 − γ) and B = 2(2 − A).",
        panels,
    )


def master_validation(results: Results) -> Figure | None:
    """The three terms of the master theorem."""
    laws = (
        ("zero_lag", "zero-lag, paper", "paper_kgmrf", "vermillion dotted"),
        ("zero_lag_gentle", "zero-lag, gentle", "tuned_zero_lag", "orange dotted"),
        ("information", "information", "ours", "ours dotted"),
    )
    samples, changes, decays, averages = [], [], [], []
    for law, name, look, theory in laws:
        data = results.data("master", f"samples.{law}")
        if data:
            m = data["samples"]
            samples.append(dots(name, m, data["mean"], look, data["half_width"]))
            if data["predicted"]:
                samples.append(series(f"theory, {name.split()[-1]}", m, data["predicted"], theory))
        data = results.data("master", f"transient.{law}")
        if data:
            decays.append(
                series(name, range(200), [max(v, 1e-9) for v in data["degrees"][:200]], look)
            )
            if law == "zero_lag":
                frames, mean = np.arange(1, 401), data["time_average_of_square"]
                decay = (1 - data["kappa_energy_predicted"]) ** (frames - 1) / frames
                averages = [
                    series("time average", frames, mean, look),
                    series("∝ 1/T", frames[20:], mean[20] * 21 / frames[20:], "quiet dotted"),
                    series("∝ (1−κ)^T / T", frames, mean[0] * decay, "truth dashed"),
                ]
    data = results.data("master", "variation.zero_lag")
    if data:
        for key, name, look in (
            ("one_change", "one change, growing", "paper_kgmrf"),
            ("many_changes", "more changes, alike", "ours"),
        ):
            changes.append(dots(name, data[key]["variation"], data[key]["risk"], look))
    if not samples:
        return None
    variation = "variation V of the rate (rad per frame)"
    bounds = "(d) what the theorem bounds"
    return sheet(
        "master_validation",
        "The three terms of the master theorem",
        "Zero-lag with the paper's gains (.1, .05) and gentler ones (.1, .005), and the "
        "information law. (a) The error falls as m^(−1/2), because its square falls as 1/m; the "
        "information law adapts its gains and falls more slowly from a much lower start. (b) The "
        "risk adds up the squares of the changes of rate: quadratic in the size of one change, "
        "linear in their number. (c) Errors decay exponentially, (d) but the time average of their "
        "squares only as 1/T.",
        [
            panel("(a) statistical", "samples m", "angle error (°)", samples, log="xy"),
            panel("(b) nonstationarity", variation, "risk (rad²)", changes, low=0.0),
            panel("(c) transient", "frame", "angle error (°)", decays, log="y"),
            panel(bounds, "T", "mean square (rad²)", averages, log="xy", low=1e-12),
        ],
    )


def spectral_gap(results: Results) -> Figure | None:
    """Error against the eigenvalue gap: recovered, and with the printed noise."""
    panels = []
    rows = claims.load()["tables"]["spectral_gap"]["rows"]

    def gap_panel(title: str, label: str, x: Any, errors: Any, names: Any, at: Any) -> None:
        lines = [dots(name, x, errors[key][0], look, errors[key][1]) for key, name, look in names]
        for column, look in (("K-GMRF", "paper_kgmrf"), ("EMA", "paper_euclidean_ema")):
            values = [claims.value("spectral_gap", r, column) for r in rows]
            lines.append(rings(f"printed: {column}", at, values, look))
        panels.append(panel(title, label, "angle error (°)", lines, log="x", low=0.0))

    found = results.data("spectral_gap", "recovered")
    if found:
        names = (
            ("kgmrf", "one law that fits", "paper_kgmrf"),
            ("ema_0.1_at_0.1", "EMA .1", "paper_euclidean_ema"),
            ("ours", "information law", "ours"),
        )
        printed = [row["values"][0] for row in rows.values()]
        title, label = "recovered: σ² = .16, ω = .1", "whitened gap Δ_wh"
        gap_panel(title, label, found["whitened_gap"], found["errors"], names, printed)
    data = results.data("spectral_gap", "printed")
    if data:
        names = (
            ("kgmrf_paper", "K-GMRF, paper", "paper_kgmrf"),
            ("ema", "EMA .2", "paper_euclidean_ema"),
            ("ours", "information law", "ours"),
        )
        x, title = data["deltas"], "as printed: σ² = 4, ω = .08"
        gap_panel(title, "eigenvalue gap δ", x, data["errors"], names, [float(r) for r in rows])
        panels[-1]["series"].append(series("ideal filter", x, data["floor"], "quiet dotted"))
    return sheet(
        "spectral_gap",
        "Spectral-gap phase transition",
        "Open rings: printed. Left: with Λ = diag(1, 1 − .99 δ) and σ² = .16 the "
        "printed gaps and both columns come out; the information law waits longer before it "
        "believes. Right: with the printed σ² = 4 one observation at δ = 1 has a standard "
        "deviation of 111°, and no filter that must find the rate reaches the printed errors.",
        panels,
    )


def cost(results: Results) -> Figure | None:
    """Time per frame against the dimension."""
    looks = {
        "information": "ours",
        "auto": "information_one",
        "riemannian_ema": "paper_riemannian_ema",
        "log_euclidean_ema": "tuned_euclidean_ema",
        "euclidean_ema": "paper_euclidean_ema",
        "tangent_kalman": "paper_tangent_kalman",
        "alpha_beta": "paper_alpha_beta",
    }
    found = {look: data for name, look in looks.items() if (data := results.data("cost", name))}
    maps = results.data("cost", "maps")
    if not found or maps is None:
        return None
    panels = []
    for title, key, label in (
        ("online", "online_microseconds", "µs per update"),
        ("whole sequence", "filter_microseconds", "µs per frame"),
    ):
        lines = [dots(d["label"], d["dimensions"], d[key], look) for look, d in found.items()]
        panels.append(panel(title, "dimension d", label, lines, log="xy"))
    kinds = zip(maps["lines"].items(), ("ours", "paper_tangent_kalman", "paper_kgmrf"), strict=True)
    lines = [
        dots(name.replace("_", " "), maps["dimensions"], line["microseconds"], look)
        for (name, line), look in kinds
    ]
    panels.append(panel("maps", "dimension d", "µs", lines, log="xy"))
    return sheet(
        "cost",
        "Run time against the dimension",
        "One thread: one matrix at a time, a whole sequence, and the maps alone.",
        panels,
    )
