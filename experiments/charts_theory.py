"""Figures of the theory: lag, stability, the master theorem, the gap, structure, cost."""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments import claims
from experiments.chart_parts import LOOK, Figure, axis, panel, series, sheet
from experiments.reading import Results
from kgmrf.plots import COLOURS


def first_order_lag(results: Results) -> Figure | None:
    """Measured lag against theory."""
    data = results.data("lag", "lines")
    if data is None:
        return None
    rates, lines = data["rates"], data["lines"]
    shades = ("#B3D9F2", COLOURS["sky"], "#2E8BC0", "#0B4F6C")
    averages, laws = [], []
    for gain, colour in zip(("0.1", "0.2", "0.4", "0.8"), shades, strict=True):
        line = lines[f"euclidean_{gain}"]
        averages.append(
            series(f"EMA {gain.lstrip('0')}, theory", rates, line["theory"], look=(colour, "solid"))
        )
        averages.append(
            series(
                f"EMA {gain.lstrip('0')}, measured",
                rates[::4],
                line["measured"][::4],
                look=(colour, "solid"),
                marker=True,
                line=False,
            )
        )
    averages.append(
        series(
            "bound |Ω|/2, appendix",
            rates,
            data["bound_appendix"],
            look=(COLOURS["quiet"], "dashed"),
        )
    )
    averages.append(
        series("bound |Ω|/4, text", rates, data["bound_text"], look=(COLOURS["quiet"], "dotted"))
    )
    for key, name, dash in (
        ("printed_0.05_0.95", "η .05, γ .95 (paper)", "solid"),
        ("printed_0.5_0.95", "η .5, γ .95", "dashed"),
        ("printed_0.5_0.5", "η .5, γ .5", "dotted"),
    ):
        laws.append(series(name, rates, lines[key]["measured"], look=(COLOURS["vermillion"], dash)))
    laws.append(
        series("zero-lag", rates, lines["zero_lag"]["measured"], look=LOOK["tuned_zero_lag"])
    )
    return sheet(
        "first_order_lag",
        "Lag under constant rotation, without noise",
        "Left: moving averages follow the exact law ½ arg(1 − (1−g) e^(−2iω)), linear for small ω "
        "only. The paper's bounds are about predictions, whose lag is larger by ω: those all lie "
        "above |Ω|/2, the filtered estimates drawn here need not. Right: Algorithm 1 as printed "
        "lags too, and loses lock above η/2γ; without damping on the velocity the lag is zero.",
        [
            panel(
                "first-order averages",
                axis("ω (rad per frame)"),
                axis("lag (°)", low=0.0),
                averages,
            ),
            panel("second-order laws", axis("ω (rad per frame)"), axis("lag (°)", low=0.0), laws),
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
        ("zero_lag", "zero-lag, paper", LOOK["paper_kgmrf"]),
        ("zero_lag_gentle", "zero-lag, gentle", LOOK["tuned_zero_lag"]),
        ("information", "information", LOOK["ours"]),
    )
    samples, changes, decays, averages = [], [], [], []
    for law, name, look in laws:
        data = results.data("master", f"samples.{law}")
        if data:
            samples.append(
                series(
                    name,
                    data["samples"],
                    data["mean"],
                    half=data["half_width"],
                    look=look,
                    marker=True,
                )
            )
            if data["predicted"]:
                samples.append(
                    series(
                        f"theory, {name.split()[-1]}",
                        data["samples"],
                        data["predicted"],
                        look=(look[0], "dotted"),
                    )
                )
        data = results.data("master", f"transient.{law}")
        if data:
            decays.append(
                series(name, range(200), [max(v, 1e-9) for v in data["degrees"][:200]], look=look)
            )
            if law == "zero_lag":
                frames = np.arange(1, 401)
                kappa = data["kappa_predicted"]
                start = data["time_average_of_square"][0]
                averages = [
                    series("time average", frames, data["time_average_of_square"], look=look),
                    series(
                        "∝ 1/T",
                        frames[20:],
                        data["time_average_of_square"][20] * 21 / frames[20:],
                        look=(COLOURS["quiet"], "dotted"),
                    ),
                    series(
                        "∝ (1−κ)^T / T",
                        frames,
                        start * (1 - kappa) ** (frames - 1) / frames,
                        look=(COLOURS["truth"], "dashed"),
                    ),
                ]
    data = results.data("master", "variation.zero_lag")
    if data:
        one, many = data["one_change"], data["many_changes"]
        changes = [
            series(
                "one change, growing",
                one["variation"],
                one["risk"],
                look=LOOK["paper_kgmrf"],
                marker=True,
            ),
            series(
                "more changes, alike",
                many["variation"],
                many["risk"],
                look=LOOK["ours"],
                marker=True,
            ),
        ]
    if not samples:
        return None
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
            panel(
                "(a) statistical",
                axis("samples m", log=True),
                axis("angle error (°)", log=True),
                samples,
            ),
            panel(
                "(b) nonstationarity",
                axis("variation V of the rate (rad per frame)"),
                axis("risk (rad²)", low=0.0),
                changes,
            ),
            panel("(c) transient", axis("frame"), axis("angle error (°)", log=True), decays),
            panel(
                "(d) what the theorem bounds",
                axis("T", log=True),
                axis("mean square (rad²)", log=True, low=1e-12),
                averages,
            ),
        ],
    )


def spectral_gap(results: Results) -> Figure | None:
    """Error against the eigenvalue gap: recovered, and with the printed noise."""
    panels = []
    rows = claims.load()["tables"]["spectral_gap"]["rows"]
    found = results.data("spectral_gap", "recovered")
    if found:
        x, e = found["whitened_gap"], found["errors"]
        lines = [
            _with_bars("one law that fits", x, e["kgmrf"], LOOK["paper_kgmrf"]),
            _with_bars("EMA .1", x, e["ema_0.1_at_0.1"], LOOK["paper_euclidean_ema"]),
            _with_bars("ours", x, e["ours"], LOOK["ours"]),
            *_printed_gap(rows, [row["values"][0] for row in rows.values()]),
        ]
        panels.append(_gap_panel("recovered: σ² = .16, ω = .1", "whitened gap Δ_wh", lines))
    data = results.data("spectral_gap", "rate_0.08.samples_8")
    if data:
        x, e = data["deltas"], data["errors"]
        lines = [
            _with_bars("K-GMRF, paper", x, e["kgmrf_paper"], LOOK["paper_kgmrf"]),
            _with_bars("EMA .2", x, e["ema"], LOOK["paper_euclidean_ema"]),
            _with_bars("ours", x, e["ours"], LOOK["ours"]),
            series("ideal filter", x, data["floor"], look=(COLOURS["quiet"], "dotted")),
            *_printed_gap(rows, [float(r) for r in rows]),
        ]
        panels.append(_gap_panel("as printed: σ² = 4, ω = .08", "eigenvalue gap δ", lines))
    return sheet(
        "spectral_gap",
        "Spectral-gap phase transition",
        "Open rings: printed. Left: with Λ = diag(1, 1 − .99 δ) and σ² = .16 the "
        "printed gaps and both columns come out; ours, at its defaults, waits longer before it "
        "believes. Right: with the printed σ² = 4 one observation at δ = 1 has a standard "
        "deviation of 111°, and no filter that must find the rate reaches the printed errors.",
        panels,
    )


def _with_bars(name: str, x: Any, pair: Any, look: tuple[str, str]) -> dict[str, Any]:
    return series(name, x, pair[0], half=pair[1], look=look, marker=True)


def _printed_gap(rows: dict[str, Any], x: list[float]) -> list[dict[str, Any]]:
    lines = []
    for column, look in (("K-GMRF", LOOK["paper_kgmrf"]), ("EMA", LOOK["paper_euclidean_ema"])):
        values = [claims.value("spectral_gap", r, column) for r in rows]
        lines.append(series(f"printed: {column}", x, values, look=look, marker=True, line=False))
    return lines


def _gap_panel(title: str, label: str, lines: list[dict[str, Any]]) -> dict[str, Any]:
    y = axis("angle error (°)", low=0.0)
    return panel(title, axis(label, log=True), y, lines)


def cost(results: Results) -> Figure | None:
    """Time per frame against the dimension."""
    names = {
        "information": LOOK["ours"],
        "auto": LOOK["information_one"],
        "riemannian_ema": LOOK["paper_riemannian_ema"],
        "log_euclidean_ema": LOOK["tuned_euclidean_ema"],
        "euclidean_ema": LOOK["paper_euclidean_ema"],
        "tangent_kalman": LOOK["paper_tangent_kalman"],
        "alpha_beta": LOOK["paper_alpha_beta"],
    }
    online, whole = [], []
    for name, look in names.items():
        data = results.data("cost", name)
        if data is None:
            continue
        online.append(
            series(
                data["label"],
                data["dimensions"],
                data["online_microseconds"],
                look=look,
                marker=True,
            )
        )
        whole.append(
            series(
                data["label"],
                data["dimensions"],
                data["filter_microseconds"],
                look=look,
                marker=True,
            )
        )
    maps = results.data("cost", "maps")
    if not online or maps is None:
        return None
    looks = (LOOK["ours"], LOOK["paper_tangent_kalman"], LOOK["paper_kgmrf"])
    lines = [
        series(
            name.replace("_", " "), maps["dimensions"], line["microseconds"], look=look, marker=True
        )
        for (name, line), look in zip(maps["lines"].items(), looks, strict=True)
    ]
    x = axis("dimension d", log=True)
    return sheet(
        "cost",
        "Run time against the dimension",
        "One thread: one matrix at a time, a whole sequence, and the maps alone.",
        [
            panel("online", x, axis("µs per update", log=True), online),
            panel("whole sequence", x, axis("µs per frame", log=True), whole),
            panel("maps", x, axis("µs", log=True), lines),
        ],
    )
