"""Sections of the page on theory, structure, tensors and run time."""

from __future__ import annotations

from pathlib import Path

from experiments import claims
from experiments.chart_parts import Figure
from experiments.markup import e, figure, n, num, number, pair, picture, row, sentence, table, tag
from experiments.reading import Results


def theory_section(results: Results, drawn: list[Figure]) -> str:
    """Lag, stability, risk, gap, structure: prediction against measurement."""
    return f"""<section id="lag"><h2>Theory, measured</h2>
<h3>Lag</h3>{figure(drawn, "first_order_lag")}
<h3 id="stability">Stability, and the error inside it</h3>{figure(drawn, "stability_map")}
{figure(drawn, "error_map")}{figure(drawn, "turning")}
<h3 id="master">Master theorem and energy</h3>{figure(drawn, "master_validation")}
{figure(drawn, "energy_contraction")}
<h3 id="gap">Spectral gap</h3>{gap_table(results)}{figure(drawn, "spectral_gap")}
<h3 id="structure-section">Structure preservation</h3>{figure(drawn, "structure")}
{figure(drawn, "energy")}
<h3 id="noise">A wrong noise floor</h3>{figure(drawn, "noise_floor")}</section>"""


def gap_table(results: Results) -> str:
    """The recovered table beside the printed one."""
    data = results.data("spectral_gap", "recovered")
    if data is None:
        return f"<p>{tag('not run', 'idle')}</p>"
    printed = claims.load()["tables"]["spectral_gap"]["rows"]
    rows = []
    for k, (delta, claim) in enumerate(printed.items()):
        gap, kinetic, ema = claim["values"]
        law, average, ours = (
            data["errors"][name][0][k] for name in ("kgmrf", "ema_0.1_at_0.1", "ours")
        )
        cells = [delta, f"{gap:.4f}", f"{data['whitened_gap'][k]:.4f}"]
        cells += [f"{kinetic:.1f}", law, f"{ema:.1f}", average, ours]
        rows.append(row(*map(num, cells)))
    head = [n(h) for h in ("δ", "Δ_wh<br>printed", "Δ_wh<br>recovered", "K-GMRF<br>printed",
            "one law<br>that fits", "EMA<br>printed", "EMA .1<br>ω = .1",
            "information<br>law")]  # fmt: skip
    return (
        "<p>The printed gaps follow from Λ = diag(1, 1 − .99 δ) and σ² = .16 instead of diag(1 + "
        "δ, 1) and 4. The EMA column then is an average of gain .1 at ω = .1 rad per frame. "
        "Several "
        f"laws fit the K-GMRF column; the one shown has A = .1, B = .05, retention .95, ridge .01."
        f"</p>{table(head, rows)}"
    )


def guide_section(results: Results) -> str:
    """The tuning guide, rule by rule."""
    data = results.data("guide", "rules")
    if data is None:
        return f'<section id="guide"><h2>Tuning guide</h2>{tag("not run", "idle")}</section>'
    rows = [
        row(
            f"{e(r['rule'])}<br><small>{e(r['where'])}</small>",
            tag("holds", "good") if r["holds"] else tag("does not", "bad"),
            f"{sentence(r['measured'])}: {number(r['before'])} → {number(r['after'])}",
        )
        for r in data["rules"]
    ]
    return f"""<section id="guide"><h2>The paper's tuning guide, rule by rule</h2>
<p>γ is read as the guide defines it, a damping (Algorithm 1), except where a rule is tested under
the tables' reading. Rules about directions mostly hold; the starting values and the advice for
tasks do not, because with η = .05 and γ near 1 the tracker can only follow turns below η/2γ = .026
rad per frame.</p>{table(["rule", "result", "measured"], rows, "verdicts")}</section>"""


def tensor_section(results: Results, drawn: list[Figure], folder: Path | None) -> str:
    """Swelling, and diffusion tensors along a fibre."""
    parts, truth = [], None
    for snr in (20, 10):
        data = results.data("tensors", f"fibre.snr_{snr}")
        if data is None:
            continue
        truth = data["true_anisotropy"]
        rows = [
            row(
                e(name),
                num(pair((found["direction"], found["direction_half"]))),
                *[num(found[k]) for k in ("anisotropy", "determinant", "affine_invariant")],
                kind="ours" if name.startswith("K-GMRF") else "",
            )
            for name, found in data["rows"].items()
        ]
        head = [f"signal-to-noise {snr}", n("direction<br>error, °"), n("anisotropy"),
                n("determinant<br>over truth"), n("affine-invariant<br>distance")]  # fmt: skip
        parts.append(table(head, rows))
    caption = (
        "<b>Diffusion tensors along a fibre.</b> Grey: truth, every seventh voxel, "
        "signal-to-noise 10. The average of "
        "gain .2 lags behind the bend; the tracker turns with it."
    )
    return f"""<section id="tensors"><h2>Averages that swell, and tensors along a fibre</h2>
<p>The paper opens with the swelling effect: the Euclidean mean of two rotated tensors is fatter
than either. It is real; log-Euclidean means keep the determinant but round the shape, and only a
motion along the orbit keeps both.</p>{figure(drawn, "swelling")}
<p>A fibre bends by 2.5° a voxel; each voxel's tensor is fitted to 30 noisy signals. True anisotropy
{number(truth)}. Averages are shown with gain .2 and with the gain that was best on five other
scans; the tracker has no setting but the number of samples a tensor is worth (60).</p>
{"".join(parts) or tag("not run", "idle")}
{picture(folder, "fibre", "Tensors along a fibre as ellipses", caption)}</section>"""


def cost_section(results: Results, drawn: list[Figure]) -> str:
    """Microseconds per frame at d = 7, and against the dimension."""
    rows = []
    claimed = claims.load()["tables"]["complexity"]["rows"]
    pairs = {
        "auto": None,
        "information": "K-GMRF",
        "zero_lag": "K-GMRF",
        "riemannian_ema": "Riemannian EMA",
        "log_euclidean_ema": None,
        "euclidean_ema": "Euclidean EMA",
        "tangent_kalman": "Tangent KF",
        "alpha_beta": "Alpha-Beta",
    }
    for name, claim in pairs.items():
        data = results.data("cost", name)
        if data is None or 7 not in data["dimensions"]:
            continue
        k = data["dimensions"].index(7)
        printed = f"O({claimed[claim]['values'][0]})" if claim else "–"
        label = data["label"] + (" (the default)" if name == "auto" else "")
        spent = [num(data[key][k]) for key in ("online_microseconds", "filter_microseconds")]
        rows.append(row(e(label), e(printed), *spent))
    record = results.record("cost", "information") or {}
    processor = record.get("made_with", {}).get("processor", "unknown")
    body = table(
        ["method", "claimed", n("µs per update, d = 7"), n("µs per frame, whole sequence")], rows
    )
    return f"""<section id="cost"><h2>Run time and complexity</h2>
<p>Processor: {e(processor)}, one thread, the quickest of three repeats. The paper claims
below 500 µs per frame at d = 7. Our tracker's loop is compiled and the others' are plain
numpy, so the table compares implementations, not algorithms. Tangent KF is claimed as O(d⁶);
all entries share one 2 × 2 uncertainty, so it need not be.</p>
{body if rows else tag("not run", "idle")}{figure(drawn, "cost")}</section>"""
