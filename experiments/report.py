"""One page, report.html, from result files: nothing is computed, nothing is fetched."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from experiments import (
    catalogue,
    charts,
    claims,
    figures,
    reading,
    running,
    sources,
    spoken,
    store,
    verdicts,
)
from experiments.markup import e, inline, picture, row, sentence, table, tag
from experiments.reading import Results
from experiments.report_tasks import (
    AGREES,
    ablation_section,
    best_in_brief,
    camera_section,
    ellipse_section,
    tuning_section,
)
from experiments.report_theory import cost_section, guide_section, tensor_section, theory_section
from experiments.report_video import models_table, otb_section
from experiments.streams import shown
from experiments.verdicts import Everything

PAGE = Path(__file__).with_name("page")
NOTES = store.HERE.parent / "docs" / "paper_notes.md"

TAGS = {
    reading.REPRODUCED: "good",
    reading.RECOVERED: "good",
    reading.NARROWED: "good",
    reading.HIDDEN: "good",
    reading.PARTLY: "warn",
    reading.FALSE: "bad",
    reading.NOT: "bad",
    reading.NOT_RUN: "idle",
}


def build(results_folder: Path, out: Path, *, quick: bool) -> Path:
    """Judge the results, draw the figures, write the page; returns its path."""
    everything = verdicts.judge(results_folder)
    out.mkdir(parents=True, exist_ok=True)
    figures.write(everything.results, out / "figures")
    target = out / "report.html"
    target.write_text(page(everything, quick=quick, drawn_in=out / "figures"), encoding="utf-8")
    return target


def page(everything: Everything, *, quick: bool, drawn_in: Path | None = None) -> str:
    """The whole document as one string, styles, scripts and data inside."""
    results = everything.results
    drawn = charts.figures(results)
    data = {"figures": drawn, "player": _player(results)}
    # "</" would end the script element early.
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("</", "<\\/")
    parts = {
        "Overview": _overview(everything, drawn_in),
        "Verdicts": _summary(everything),
        "A. Ellipse": ellipse_section(results, drawn, drawn_in),
        "B. Camera": camera_section(results, drawn, drawn_in),
        "C. OTB": otb_section(results, drawn),
        "Streams": shown.sections(results),
        "Ablations": ablation_section(results),
        "Theory": theory_section(results, drawn),
        "Tensors": tensor_section(results, drawn, drawn_in),
        "Run time": cost_section(results, drawn),
        "Tuning": guide_section(results) + tuning_section(results),
        "Numbers in the text": _spoken(results),
        "Errata": _errata(drawn),
        "Run it yourself": _rerun(results, quick),
    }
    body = _head(everything, quick, list(parts)) + "\n".join(
        f'<div class="part" id="{_word(title)}">{part}</div>' for title, part in parts.items()
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<link rel="icon" href="data:,">\n'
        "<title>K-GMRF, reproduced</title>\n"
        f"<style>\n{(PAGE / 'style.css').read_text(encoding='utf-8')}</style>\n"
        f"</head><body>\n{body}\n"
        f'<script type="application/json" id="data">{text}</script>\n'
        f"<script>\n{(PAGE / 'charts.js').read_text(encoding='utf-8')}</script>\n"
        "</body></html>\n"
    )


# ---------------------------------------------------------------------------- sections


def _word(title: str) -> str:
    """What a link to a part says: "part-a-ellipse"."""
    return "part-" + re.sub(r"[^a-z]+", "-", title.lower())


def _head(everything: Everything, quick: bool, titles: list[str]) -> str:
    banner = (
        '<p class="banner">This is a quick run: few seeds, few trials, short sequences. It '
        "shows that everything works; its numbers are not to be quoted.</p>"
        if quick
        else ""
    )
    warning = stale(everything.results.folder, quick)
    banner += f'<p class="banner">{e(warning)}</p>' if warning else ""
    nav = "".join(f'<a href="#{_word(title)}">{e(title)}</a>' for title in titles)
    return f"<header><h1>K-GMRF, reproduced</h1>{banner}<nav>{nav}</nav></header>"


def _overview(everything: Everything, drawn_in: Path | None) -> str:
    """The first page: what holds, what does not, one table for each task."""
    results = everything.results
    counts = Counter(v.verdict for v in everything.verdicts)
    boxes = "".join(
        f"<div><b>{counts[w]}</b><span>{e(w)}</span></div>" for w in TAGS if counts.get(w)
    )
    lists = "".join(
        f"<div><h3>{title}</h3><ul>{_claims(everything, kinds)}</ul></div>"
        for title, kinds in (("What holds", ("good",)), ("What does not", ("warn", "bad")))
    )
    teaser = picture(
        drawn_in,
        "teaser",
        "An ellipse through an occlusion; errors against time, rate and dropout",
        "<b>In one picture.</b> An ellipse before, during (grey) and after an occlusion; errors "
        "along that run, against the rate of turning, and for a camera with gaps; boxes at five "
        "frames of a video. Redrawn from our runs.",
    )
    best = "".join(
        f"<h3>{title}: ours against the best of all others, degrees</h3>"
        f"{best_in_brief(results, experiment)}"
        for title, experiment in (("Ellipse", "ellipse"), ("Camera", "camera"))
    )
    return (
        '<p class="lead">Every table and figure of the paper '
        f"“{e(claims.load()['paper']['title'])}”, run again: its protocols as printed, the "
        "protocols that really give its numbers, and what the tracker can do when it is allowed "
        "to use its information. Verdicts are computed from the result files, not written.</p>"
        f'<div class="tally">{boxes}</div><div class="lists">{lists}</div>{teaser}'
        f"{best}<h3>OTB: the paper's five methods inside one tracker</h3>"
        f"{models_table(results, printed=False)}"
    )


def _claims(everything: Everything, kinds: tuple[str, ...]) -> str:
    return "".join(
        f'<li><a href="#{v.anchor}">{e(v.claim)}</a> {tag(v.verdict, TAGS[v.verdict])}</li>'
        for v in everything.verdicts
        if TAGS[v.verdict] in kinds
    )


def stale(folder: Path, quick: bool) -> str:
    """A warning where results were made by other files than those that they depend on now."""
    units = catalogue.select(["all"], quick)
    there = sum(u.path(folder).exists() for u in units)
    old = Counter(u.experiment for u in sources.stale(units, folder))
    if not old:
        return ""
    names = ", ".join(f"{name} {n}" for name, n in old.items()) if len(old) < 9 else "most of all"
    return (
        f"{old.total()} of {there} results are older than the files that they depend on ({names}): "
        "python -m experiments run all --stale brings them up to date."
    )


def _summary(everything: Everything) -> str:
    rows = [
        row(
            f'<a href="#{v.anchor}">{e(v.claim)}</a><br><small>{e(v.where)}</small>',
            tag(v.verdict, TAGS[v.verdict]),
            sentence(v.why),
        )
        for v in everything.verdicts
    ]
    words = {True: ("passed", "good"), False: ("missed", "bad"), None: ("not run", "idle")}
    bars = [row(e(b.text), tag(*words[b.passed]), sentence(b.measured)) for b in everything.bars]
    return (
        '<section id="summary"><h2>Verdicts</h2>'
        f"{table(['claim', 'verdict', 'why'], rows, 'verdicts')}"
        "<h3>Bars set before running</h3>"
        "<p>Thresholds for the recovered protocols, and one for ourselves. A missed bar stays "
        "here.</p>"
        f"{table(['bar', 'result', 'measured'], bars, 'verdicts')}</section>"
    )


def _spoken(results: Results) -> str:
    """Numbers that the paper states in running text, beside what was measured."""
    rows = [
        row(
            f"{sentence(s.says)}<br><small>{e(s.where)}</small>",
            tag(*AGREES[s.agrees]),
            sentence(s.measured),
        )
        for s in spoken.spoken(results)
    ]
    return (
        '<section id="spoken"><h2>Numbers in the text</h2><p>Under the recovered protocols, which '
        f"are kind to the paper.</p>{table(['claim', 'result', 'measured'], rows, 'verdicts')}"
        "</section>"
    )


def _errata(drawn: list[charts.Figure]) -> str:
    there = {f["id"] for f in drawn}
    items = []
    try:
        notes = NOTES.read_text(encoding="utf-8")
    except OSError:
        notes = ""
    for title, text in re.findall(r"^### \d+\. (.+?)\n(.+?)(?=^##|\Z)", notes, re.M | re.S):
        paragraphs = "".join(f"<p>{inline(p, there)}</p>" for p in text.strip().split("\n\n"))
        items.append(f"<li><b>{inline(title, there)}</b>{paragraphs}</li>")
    return (
        '<section id="errata"><h2>Errata, with evidence</h2>'
        "<p>From <code>docs/paper_notes.md</code>. Each names a test of this repository or a "
        "figure of this "
        f'page.</p><ol class="errata">{"".join(items)}</ol></section>'
    )


def _rerun(results: Results, quick: bool) -> str:
    rows = []
    made: Counter[str] = Counter()
    for record in results.every():
        w = record["made_with"]
        commit = w["commit"] or "none"
        words = f"kgmrf {w['kgmrf']}, commit {commit}, Python {w['python']}, numpy {w['numpy']}"
        made[words] += 1
        command = record["rerun"] + (" --quick" if quick else "")
        rows.append(row(f"<code>{e(command)}</code>", e(record["status"])))
    known = {u.key for u in catalogue.select(["all"], quick)}
    there = {f"{r['experiment']}/{r['unit']}" for r in results.every()}
    missing = sorted(known - there)
    absent = (
        f"<p>Not run yet: {', '.join(f'<code>{e(m)}</code>' for m in missing)}.</p>"
        if missing
        else ""
    )
    timed = sum(bool(running.TIMED.fullmatch(key)) for key in known)
    versions = "".join(f"<li>{count} results: {e(text)}</li>" for text, count in made.most_common())
    return f"""<section id="rerun"><h2>Run it yourself</h2>
<p><code>python -m experiments run all</code> computes what is not there yet and may be killed at
any time;
<code>python -m experiments report</code> builds this page from the files. <code>--quick</code>
does both in less than
a minute. Each line below does one cell again.</p>{absent}
<details><summary>All {len(rows)} units</summary>{table(["command", "status"], rows)}</details>
<p>Two runs of the same sources on one machine write the same files, but for the {timed} units that
measure time.</p>
<footer><ul>{versions}</ul></footer></section>"""


def _player(results: Results) -> dict[str, Any] | None:
    data = results.data("scenes", "ellipse.samples_8")
    if data is None:
        return None
    show = [[key, name, colour] for key, (name, colour) in figures.TRACKS.items()]
    return {**{k: data[k] for k in ("observed", "truth", "seen", "tracks", "errors")}, "show": show}
