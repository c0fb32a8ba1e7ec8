"""Sections of the page on the tasks: ellipse, camera, ablations, tuning."""

from __future__ import annotations

from pathlib import Path

from experiments import claims, tables
from experiments.chart_parts import Figure
from experiments.comparison import best_cells, camera_lines, ellipse_lines
from experiments.markup import (
    e,
    figure,
    from_markdown,
    n,
    num,
    number,
    pair,
    picture,
    row,
    table,
    tag,
)
from experiments.reading import COLUMNS, Line, Results, mean_half, numbers, our_method
from experiments.report_steady import steady_part

ROWS = {
    "full": "K-GMRF, full",
    "no_momentum": "− momentum",
    "no_manifold": "− manifold (alpha-beta)",
    "neither": "− both (Euclidean EMA)",
}
FURTHER = (
    ("algorithm_1", "Algorithm 1 as printed", ""),
    ("followed", "Algorithm 1's gains, spectrum followed", ""),
    ("ours", "ours, information", "best"),
)
"""Rows that the paper does not have: key, label, how the numbers look."""

AGREES = {True: ("agrees", "good"), False: ("differs", "bad"), None: ("not run", "idle")}


def comparison(lines: list[Line], ours: dict[str, str], places: int) -> str:
    """claim | as printed | as run | ours, grouped by setting."""
    rows = []
    groups = list(dict.fromkeys(x.group for x in lines))
    for group in groups:
        members = [x for x in lines if x.group == group]
        for k, x in enumerate(members):
            cells = [e(x.method), num(_claimed(x.claim, x.claim_std, places))]
            cells += [num(pair(x.as_printed)), num(pair(x.as_run)), tag(*AGREES[x.close])]
            if k == 0:
                cells.insert(0, f'<td class="group" rowspan="{len(members)}">{e(group)}</td>')
                shown = ours.get(group, "–")
                cells.append(f'<td class="n best" rowspan="{len(members)}">{shown}</td>')
            rows.append(row(*cells))
    head = ["setting", "method", n("claim"), n("as printed"), n("as run"), "claim and run"]
    return table([*head, n("ours")], rows)


def _claimed(value: float, std: float | None, places: int) -> str:
    """A printed number and its printed deviation."""
    deviation = "" if std is None else f' <span class="pm">± {std:.{places}f}</span>'
    return f"{value:.{places}f}{deviation}"


def matrix(results: Results, experiment: str, reading: str) -> str:
    """All methods in all cells of a reading: mean of the further seeds, best in bold."""
    found = results.methods(experiment, reading)
    if not found:
        return f"<p>{tag('not run', 'idle')}</p>"
    order = {"paper": 0, "printed": 1, "rival": 2, "ours": 3}
    names = sorted(found, key=lambda m: order[found[m]["family"]])
    cells = found[names[0]]["cells"]
    means = {m: [mean_half(numbers(found[m], c)) for c in cells] for m in names}
    lowest = [min(v[k][0] for v in means.values() if v[k][0] == v[k][0]) for k in range(len(cells))]
    rows = []
    for m in names:
        data = found[m]
        tuned = {"cell": "per cell", "all": "once"}.get(data["tuned"], "no")
        values = [
            num(pair(v), "best" if v[0] == low else "")
            for v, low in zip(means[m], lowest, strict=True)
        ]
        kind = "ours" if data["family"] == "ours" else ""
        rows.append(row(e(data["label"]), tuned, *values, kind=kind))
    return table(["method", "tuned", *[n(e(c)) for c in cells]], rows)


STATUS = {"best": "good", "level": "warn", "behind": "bad"}


def best_table(results: Results, experiment: str) -> str:
    """Ours against the best rival of each cell."""
    rows = []
    for b in best_cells(results, experiment):
        cells = [e(b.reading.replace("_", " ")), e(b.cell), num(pair((b.ours, b.ours_half)))]
        cells += [e(b.rival), num(b.rival_error), num(pair(b.difference))]
        rows.append(row(*cells, tag(b.status, STATUS[b.status])))
    head = ["reading", "cell", n("ours"), "best of all others", n("its error"), n("difference"), ""]
    return table(head, rows) if rows else f"<p>{tag('not run', 'idle')}</p>"


SIGNS = {"best": "✓", "level": "≈", "behind": "✗"}


def best_in_brief(results: Results, experiment: str) -> str:
    """A column for each cell: ours with a sign for how it stands, and the best rival below."""
    found = best_cells(results, experiment)
    cells = list(dict.fromkeys(b.cell for b in found))
    rows = []
    for reading in dict.fromkeys(b.reading for b in found):
        here = [b for c in cells for b in found if (b.reading, b.cell) == (reading, c)]
        ours = [num(tag(f"{number(b.ours)} {SIGNS[b.status]}", STATUS[b.status])) for b in here]
        rivals = [
            f'<td class="rival">{number(b.rival_error)}<br>'
            f"<small>{e(b.rival.removesuffix(', tuned'))}</small></td>"
            for b in here
        ]
        rows.append(row(f"<b>ours</b>, {e(reading.replace('_', ' '))}", *ours))
        rows.append(row("best of all others", *rivals))
    if not rows:
        return f"<p>{tag('not run', 'idle')}</p>"
    signs = "".join(tag(f"{SIGNS[word]} {word}", kind) for word, kind in STATUS.items())
    return table([signs, *[n(e(c)) for c in cells]], rows)


def _why_not(results: Results, experiment: str) -> str:
    """Which of ours was judged, and why it is not first where it is not."""
    found = results.methods(experiment, "as_run")
    mine = our_method(found)
    if mine is None:
        return ""
    cells = best_cells(results, experiment)
    lost = [c for c in cells if c.status != "best"]
    text = f"Judged here: {e(found[mine]['label'])}. "
    plain = best_cells(results, experiment, "information")
    if mine != "information" and plain:
        firsts = sum(c.status == "best" for c in plain)
        text += (
            "The information law at its defaults, with nothing tuned, is first in "
            f"{firsts} of {len(plain)}: it lets the rate wander a little, which costs some "
            "hundredths of a degree where the rate is constant; its prior for the rate, .02 rad "
            "per frame, is narrow for fast ellipses seen through 8 samples; and it is far too "
            "stiff where the rate oscillates. "
        )
    if not lost:
        return f"<p>{text}It is first in all {len(cells)} cells.</p>"
    names = ", ".join(f"{c.reading.replace('_', ' ')} {c.cell} ({e(c.rival)})" for c in lost)
    reason = (
        "There the winner's gains were chosen for that one cell, on data of that cell; ours has "
        "one setting for all of them."
    )
    if experiment == "camera" and mine != "auto":
        reason += (
            " On the shaken camera both are the same kind of filter, and neither knows that the "
            "rate oscillates; a bank that carries oscillators is made for this case."
        )
    return f"<p>{text}Not first in {len(lost)} of {len(cells)} cells: {names}. {reason}</p>"


def _our_cells(
    results: Results, experiment: str, spots: list[tuple[str, str, str]]
) -> dict[str, str]:
    """group -> ours under both readings, for the comparison table."""
    run = results.methods(experiment, "as_run")
    printed = results.methods(experiment, "as_printed")
    mine = our_method(run) or "information"
    shown = {}
    for group, cell_run, cell_printed in spots:
        parts = []
        for found, cell, word in ((run, cell_run, "as run"), (printed, cell_printed, "as printed")):
            if mine in found:
                value = pair(mean_half(numbers(found[mine], cell)))
                parts.append(f"{value}<br><small>{word}</small>")
        shown[group] = "<br>".join(parts) or "–"
    return shown


def ellipse_section(results: Results, drawn: list[Figure], drawn_in: Path | None) -> str:
    """Task A: player, figures, and every cell."""
    lines = ellipse_lines(results)
    groups = list(dict.fromkeys(x.group for x in lines))
    cells = [g.removeprefix("ω = ") if g.startswith("ω") else "" for g in groups]
    spots = [
        (
            g,
            c or ("normal" if "normal" in g else "occluded"),
            c or ("0.08" if "normal" in g else "occluded"),
        )
        for g, c in zip(groups, cells, strict=True)
    ]
    ours = _our_cells(results, "ellipse", spots)
    return f"""<section id="ellipse"><h2>A. The rotating ellipse</h2>
<p>An ellipse turns at a constant rate; the tracker sees a sample covariance per frame. Press play:
grey is
the truth, dotted what is seen (8 samples, as the paper prints), and for 30 frames three times
nothing is
seen at all.</p>
<div class="player" data-player></div>
{_frames(drawn_in)}{figure(drawn, "occlusion_coasting")}
{figure(drawn, "omega_sweep")}
<h3>Claim, as printed, as run, ours</h3>
<p><b>As printed</b>: 8 samples, frames lost independently with probability .2, gains and formulas
as the text
has them. <b>As run</b>: the recovered protocol. Degrees, means over 100 seeds with 95 % intervals;
the paper's
± is a standard deviation over five seeds.</p>
{comparison(lines, ours, 2)}
<h3>Ours against everybody, cell by cell</h3>
<p>Rivals are tuned in every cell with {_trials(results)} trials each on seeds 0–4; ours has one
setting. Scored on
seeds 10–109; differences are paired, and “level” means that their 95 % interval holds zero.</p>
{best_table(results, "ellipse")}{_why_not(results, "ellipse")}
{_all_methods(results, "ellipse")}</section>"""


def _all_methods(results: Results, experiment: str) -> str:
    return "".join(
        f"<details><summary>All methods, {words}</summary>"
        f"{matrix(results, experiment, reading)}</details>"
        for reading, words in (
            ("as_run", "recovered protocol"),
            ("as_printed", "protocol as printed"),
        )
    )


def _frames(drawn_in: Path | None) -> str:
    """The paper's strip of key frames, redrawn."""
    return picture(
        drawn_in,
        "ellipse_frames",
        "Ellipses at five frames: truth and three estimates",
        "<b>Key frames of the same run.</b> Grey ellipse: truth; grey panel: nothing seen.",
    )


def _trials(results: Results) -> int:
    data = results.data("ellipse", "as_run.tuned_euclidean_ema")
    return int(data["trials"]) if data else 0


def camera_section(results: Results, drawn: list[Figure], drawn_in: Path | None) -> str:
    """Task B: figures, and every cell."""
    lines = camera_lines(results)
    groups = list(dict.fromkeys(x.group for x in lines))
    spots = [(g, f"{k / 10:.1f}", f"{k / 10:.1f}") for k, g in enumerate(groups)]
    return f"""<section id="camera"><h2>B. Camera stabilisation on SO(3)</h2>
<p>A camera turns; every frame gives a rotation with .05 rad of noise, or none. As printed it
oscillates about
three axes and loses frames independently. The printed table, however, fits a camera that turns
steadily, loses
nine frames at a time, and is scored √2 too high.</p>
{figure(drawn, "dropout_sweep")}
{_boards(drawn_in)}
{figure(drawn, "camera_error")}
{figure(drawn, "camera_trajectories")}
<h3>Claim, as printed, as run, ours</h3>
{comparison(lines, _our_cells(results, "camera", spots), 1)}
{_spread(results)}
{steady_part(results, drawn_in)}
<h3>Ours against everybody, cell by cell</h3>
{best_table(results, "camera")}{_why_not(results, "camera")}{_recorded(results)}
{_all_methods(results, "camera")}</section>"""


def _recorded(results: Results) -> str:
    """The lead on recorded motion, beside that on the simulated one."""
    if results.data("rotations", "real") is None:
        return ""
    found = from_markdown(tables.recorded_rotations(results.folder))
    return (
        "<h3>Recorded motion</h3><p>The printed camera swings sinusoidally, and members of the "
        "filter that oscillate gain from it. Recorded motion (drones, hand-held cameras, inertial "
        "sensors, with and without gaps) is less regular, and the lead is smaller. The error-state "
        "Kalman filter has the settings that are best in hindsight, run by run; means of ratios, "
        f"by the noise of an observation.</p>{found}"
    )


def _boards(drawn_in: Path | None) -> str:
    """The paper's checkerboard frames, redrawn."""
    return picture(
        drawn_in,
        "camera_frames",
        "A checkerboard at five frames, four rows of pictures",
        "<b>The shaken camera films a board at five frames in which its orientation was not "
        "seen.</b> Top: as filmed. Below: turned back by each estimate; a board that stands still "
        "and upright is a right estimate. Where an estimate is more than some 40° off, the board "
        "is not in the picture.",
    )


def _spread(results: Results) -> str:
    """The paper's five-seed means inside the scatter of ours."""
    rows = []
    for column, name in COLUMNS.items():
        data = results.data("camera", f"spread.paper_{name}")
        if data is None:
            continue
        cells = []
        for k, label in enumerate(claims.rows("dropout_sweep")):
            five = data["five_seed_means"]
            claim = claims.value("dropout_sweep", label, column)
            inside = five["lowest"][k] - 0.05 <= claim <= five["highest"][k] + 0.05
            middle = f"{number(five['lowest'][k])} – {number(five['highest'][k])}"
            mark = "✓" if inside else "✗"
            cells.append(num(f"{claim:g} {mark}<br><small>{middle}</small>"))
        rows.append(row(e(column), *cells))
    if not rows:
        return ""
    head = ["method", *[n(r) for r in claims.rows("dropout_sweep")]]
    return (
        "<details><summary>Does the printed mean lie in the scatter of five-seed "
        "means?</summary><p>Printed value, ✓ where it lies between the lowest and highest of 120 "
        f"means of five seeds each, which stand below.</p>{table(head, rows)}</details>"
    )


def ablation_section(results: Results) -> str:
    """Both ablation tables, claim beside run."""
    parts = []
    for version, name in (("main", "ablation"), ("extended", "ablation_extended")):
        claim = claims.load()["tables"][name]
        run, printed = (
            results.data("ablation", f"{r}.{version}") for r in ("as_run", "as_printed")
        )
        rows = []
        for (key, label), printed_row in zip(ROWS.items(), claim["rows"].values(), strict=True):
            cells = []
            for k, column in enumerate(("normal", "dropout")):
                printed_std = f"<span class='pm'>± {printed_row['stds'][k]:g}</span>"
                cells.append(num(f"{printed_row['values'][k]:g} {printed_std}"))
                cells += [num(d["rows"][key][column][0] if d else None) for d in (printed, run)]
            rows.append(row(e(label), *cells))
        for key, label, look in FURTHER if run and printed else ():
            cells = []
            for column in ("normal", "dropout"):
                cells += ["", *[num(d["rows"][key][column][0], look) for d in (printed, run)]]
            rows.append(row(label, *cells, kind="ours" if look else ""))
        head = ["variant"]
        for column in ("normal", "dropout"):
            head += [n(f"{column}: claim"), n("as printed"), n("as run")]
        parts.append(f"<h3>{e(claim['label'])}</h3>{table(head, rows)}")
    return f"""<section id="ablation"><h2>Ablations</h2>
<p>Two tables with the same title and different numbers. Their deviations of 0.00 say that there
was no noise; the
alpha-beta rows identify the gains, (.5, .1) in the first and (.6, .15) in the second. Neither
dropout column follows
from the occlusions of the main table, except the averages of the second. “As run” is without noise
and with those
occlusions; “as printed” with 8 samples and independent dropouts. The first table removes momentum
by an average on the
log-Euclidean path, the second by a Riemannian one.</p>{"".join(parts)}</section>"""


def tuning_section(results: Results) -> str:
    """What was tuned, and what was chosen."""
    rows = []
    for experiment in ("ellipse", "camera"):
        for reading in ("as_run", "as_printed"):
            for data in results.methods(experiment, reading).values():
                if data["tuned"] == "none":
                    continue
                chosen, cells = data["settings"], data["cells"]
                if data["tuned"] != "cell":
                    chosen, cells = chosen[:1], ["all cells"]
                shown = " · ".join(
                    f"{e(c)}: "
                    + ", ".join(f"{v:.3g}" for v in s.values() if isinstance(v, (int, float)))
                    for c, s in zip(cells, chosen, strict=True)
                )
                shown_cells = [experiment, reading.replace("_", " "), e(data["label"])]
                shown_cells += [num(str(data["trials"])), e(", ".join(chosen[0]))]
                rows.append(row(*shown_cells, f"<small>{shown}</small>"))
    head = ["task", "reading", "method", n("trials"), "settings", "chosen on seeds 0–4"]
    return f"""<section id="tuning"><h2>Tuning</h2>
<p>Every tuned method gets the same number of trials: the paper's grid for it, settings drawn at
random from a
wide range, then settings near the best so far. Seeds 0–4 choose, seeds 5–9 are the paper's test
seeds, seeds 10–109 are what this page shows. Rivals
choose again in every cell; ours, where it is tuned at all, chooses once for a whole protocol.</p>
<details><summary>What was chosen</summary>{table(head, rows)}</details></section>"""
