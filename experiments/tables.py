"""Tables of measured numbers inside the documentation, written from the result files.

A page holds ``<!-- table otb -->`` and ``<!-- end of table -->``; what stands between them is
written by ``python -m experiments tables`` and compared with the results by the tests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments import (
    artefacts,
    claims,
    headline,
    intervals,
    linear_mean,
    otb,
    otb_choice,
    otb_models,
    otb_unseen,
    recentring,
    signals,
    steady,
    tables_alerts,
    tables_layers,
    tables_series,
    tables_video,
)
from experiments.comparison import otb_lead
from experiments.markup import markdown
from experiments.reading import Results
from experiments.store import Unit
from experiments.streams import markdown as streams

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end of table -->)", re.S)

NAMES = {
    "kgmrf": "**BoxTracker**",
    "kgmrf, first frame only": '`model="static"`',
    "kgmrf, kinetic appearance": '`model=KGMRF(n_samples=36, gains="information")`',
    "kgmrf, self-tuned appearance": "`model=KGMRF(n_samples=36)`",
    "KCF-0": "OpenCV KCF, never giving up",
}


def otb_averages(results: Path) -> str:
    """Means over the targets that every tracker was run on, best first."""
    return _averages(otb.averages(otb.load(results)))


def otb_rivals(results: Path) -> str:
    """The same, ours and OpenCV's alone."""
    rows = otb.averages(otb.load(results))
    others = [method for method in otb.MODELS if method != otb.OURS]
    return _averages({method: row for method, row in rows.items() if method not in others})


def _averages(rows: dict[str, dict[str, Any]]) -> str:
    keys = ("success_rate", "success_auc", "precision")
    head = ["", "mean IoU", "IoU > .5", "success AUC", "within 20 px", "ms per frame"]
    ranked = sorted(rows.items(), key=lambda item: -item[1]["mean_iou"])
    lines = [
        [_name(method), intervals.words(row["clips"]), *[_cell(row.get(k), 3) for k in keys]]
        for method, row in ranked
    ]
    times = [_cell(row.get("milliseconds")) for _, row in ranked]
    return markdown(head, [[*line, time] for line, time in zip(lines, times, strict=True)])


def _name(method: str) -> str:
    return NAMES.get(method, f"OpenCV {method}")


def _cell(value: float | None, digits: int = 1) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def appearance_models(results: Path, *, printed: bool = True) -> str:
    """Overlap of every appearance model inside one and the same tracker, target by target.

    Means over further first boxes where there are any. Below, if ``printed``: what the paper has.
    """
    several, lead, found = otb_models.means(results), otb_lead(results), otb_models.load(results)
    if not found:
        return ""
    if several and lead:
        head, ending = "mean IoU", f"\n{lead.sentence}\n"
        cells = {
            m: [*zip(row["each"].values(), row["half_widths"].values(), strict=True),
                (row["mean"], row["half_width"])]
            for m, row in several.items()
        }  # fmt: skip
    else:
        head, ending = "mean IoU, one first box", ""
        cells = {
            m: [(v, None) for v in _and_mean([d["rows"][m]["mean_iou"] for d in found.values()])]
            for m in next(iter(found.values()))["rows"]
        }
    lines = [
        [name, *[_with_half(*pair) for pair in row]]
        for name, row in sorted(cells.items(), key=lambda item: -item[1][-1][0])
    ]
    for name in otb_models.PAPER if printed else ():
        claimed = [claims.value("main_otb", s.partition("-")[0], name) for s in found]
        lines.append([f"{name}, printed", *[_cell(v, 2) for v in _and_mean(claimed)]])
    return f"{markdown([head, *found, 'mean'], lines)}{ending}"


def _with_half(value: float, half: float | None) -> str:
    """A number and the half width of its interval, to three places."""
    return f"{value:.3f}" if half is None else f"{value:.3f} ± {half:.3f}".replace("± 0.", "± .")


def _and_mean(values: list[float]) -> list[float]:
    return [*values, sum(values) / len(values)]


def otb_sequences(results: Path) -> str:
    """Mean IoU target by target, ours beside OpenCV's best and the model that never learns."""
    shown = {"kgmrf": "default", "kgmrf, first frame only": '`"static"`', "CSRT": "CSRT"}
    found: dict[str, dict[str, float]] = {}
    for record in otb.load(results):
        found.setdefault(record["sequence"], {})[record["method"]] = record["mean_iou"]
    rows = [[name, *[_cell(row.get(m), 3) for m in shown]] for name, row in sorted(found.items())]
    return markdown(["mean IoU", *shown.values()], rows)


def recorded_rotations(results: Path) -> str:
    """Error over the rivals' on recorded motion, geometric mean of the runs, by noise."""
    summary = _data(results, "rotations/real")["summary"]
    levels = ("0.0001", "0.001", "0.01", "0.05")
    head = ["recorded motion, error over another's; noise"]
    rows = []
    for name, rival, words in (
        ("learned", "error_state", "RotationTracker() over an error-state Kalman filter, tuned"),
        ("given", "error_state", "RotationTracker(noise_std=) over the same"),
        ("learned", "hold", "RotationTracker() over the last observation"),
    ):
        rows.append([words, *[_cell(summary[name][f"over {rival}, noise {v}"], 2) for v in levels]])
    return markdown([*head, *[f"{float(v):g} rad" for v in levels]], rows)


def _data(results: Path, key: str) -> Any:
    return json.loads((results / f"{key}.json").read_text())["data"]


def beyond_one_pass(results: Path) -> str:
    """Mean IoU on other starts, first boxes, changed videos and drawn ones."""
    found = otb_unseen.table(results)
    groups = [group for group in otb_unseen.GROUPS if group in found]
    counts = {g: len(next(iter(found[g].values()))["cases"]) for g in groups}
    clips = {
        (g, m): intervals.by_clip([(c["case"], c["mean_iou"]) for c in record["cases"]])
        for g in groups
        for m, record in found[g].items()
    }
    rows = [
        [_name(m), *[intervals.words(clips[g, m]) if (g, m) in clips else "" for g in groups]]
        for m in otb_unseen.METHODS
    ]
    leads = [
        _lead(clips[g, otb.OURS], clips[g, "CSRT"]) if (g, "CSRT") in clips else "" for g in groups
    ]
    rows.append(["lead over CSRT", *leads])
    return markdown(["mean IoU", *[f"{g} ({counts[g]})" for g in groups]], rows)


def _lead(ours: dict[str, list[float]], theirs: dict[str, list[float]]) -> str:
    """Mean difference of the same cases and its interval."""
    return intervals.words(
        {
            clip: [a - b for a, b in zip(row, theirs[clip], strict=True)]
            for clip, row in ours.items()
        }
    )


def velocity_of_the_box(results: Path) -> str:
    """Mean IoU by when the velocity of the box is used."""
    values = otb_choice.load(results)["kinetics"]
    cells = {name: sum(row.values()) / len(row) for name, row in values.items()}
    head = ["`kinetics=`", *[f'`"{name}"`' for name in cells]]
    return markdown(head, [["mean IoU", *[_cell(mean, 4) for mean in cells.values()]]])


def lines_per_second(results: Path) -> str:
    """Of ``kgmrf stream``, from the benchmark of live streams."""
    found = json.loads((ROOT / "benchmarks" / "results" / "live.json").read_text())["stream"]
    plain = [row for row in found if not row["checkpoint"]]
    kinds = {"covariance,log_likelihood": "covariances", "log_likelihood": "log-likelihoods"}
    columns = [(form, fields) for form in ("json", "csv") for fields in kinds]
    head = ["tracks", *[f"{form.upper()}, {kinds[fields]}" for form, fields in columns]]
    rows = []
    for tracks in dict.fromkeys(row["tracks"] for row in plain):
        rates = {
            (row["format"], row["fields"]): row["lines_per_second"]
            for row in plain
            if row["tracks"] == tracks
        }
        rows.append([f"{tracks:,}", *[f"{rates[c]:,}" for c in columns]])
    return markdown(head, rows)


def formats(results: Path) -> str:
    """Arrow beside JSON, from the benchmark of keys."""
    found = json.loads((ROOT / "benchmarks" / "results" / "keys.json").read_text())["formats"]
    kinds = {"covariance,log_likelihood": "covariances", "log_likelihood": "log-likelihoods"}
    rows = [
        [
            kinds[fields],
            f"{row['json']:,}",
            f"{row['arrow']:,}",
            f"{row['arrow'] / row['json']:.1f}",
        ]
        for fields, row in found.items()
    ]
    return markdown(["rows per second of processor time", "JSON", "Arrow", "ratio"], rows)


def many_keys(results: Path) -> str:
    """What a million keys need, from the benchmark of keys."""
    whole = json.loads((ROOT / "benchmarks" / "results" / "keys.json").read_text())
    found = whole["many"]
    size = found["state_megabytes"]
    head = [f"{found['keys']:,} keys, d = {found['d']}", "memory at most", "times the state"]
    words = {"first": "three rows of each, and a checkpoint", "again": "read it, rows, write it"}
    rows = [
        [
            words[name],
            f"{found[name]['megabytes']:,.0f} MB",
            f"{found[name]['megabytes'] / size:.2f}",
        ]
        for name in words
    ]
    rows.append(["the state", f"{size:,.0f} MB", "1"])
    rows.append(["a process with one key", f"{whole['start']['plain']['megabytes']:,.0f} MB", ""])
    return markdown(head, rows)


def start_up(results: Path) -> str:
    """From the start of the command to the answer to one line."""
    found = json.loads((ROOT / "benchmarks" / "results" / "keys.json").read_text())["start"]
    names = {"plain": "as installed", "sandbox": "read-only, another user, no home"}
    rows = [[names[key], f"{row['cpu']:.2f} s"] for key, row in found.items()]
    return markdown(["start and one line", "processor time"], rows)


def what_was_survived(results: Path) -> str:
    """By ``kgmrf stream`` and state files, from ``python -m benchmarks.soak``."""
    path = ROOT / "benchmarks" / "results" / "reliability.json"
    trials = json.loads(path.read_text())["trials"]
    sentences = {
        "kills": "{kills:,} kill -9 of the command in {streams:,} streams, {lines:,} lines in all",
        "full_disks": "{full:,} full disks in {streams:,} streams, {lines:,} lines in all",
        "checkpoints": "{files:,} damaged checkpoints: {refused:,} refused, {accepted:,} unharmed",
        "lines": "{lines:,} lines, half of them nonsense: {bad:,} refused",
        "files": "{files:,} damaged data files: {refused:,} refused, {read:,} read",
        "states": "{files:,} changed state files: {refused:,} refused, {accepted:,} usable",
        "steps": "{steps:,} steps with gaps and bursts, {jumps:,} jumps of scale by 1e6 or 1e-6",
    }
    head = ["trial", "lost lines", "torn lines", "crashes", "silent NaN", "lines written twice"]
    keys = ("lost", "torn", "crashed", "silent", "repeated")
    rows = [
        [words.format(**row), *[f"{row[key]:,}" if key in row else "" for key in keys]]
        for name, words in sentences.items()
        if (row := trials.get(name))
    ]
    return markdown(head, rows)


def _rows_of_units(results: Path, units: list[Unit]) -> list[dict[str, Any]]:
    """The rows of every unit of an experiment."""
    files = [unit.path(results) for unit in units]
    return [json.loads(file.read_text())["data"]["rows"] for file in files]


def recentring_table(results: Path) -> str:
    """Balanced accuracy on the second session, percent, by change of the recording."""
    found = _rows_of_units(results, recentring.units(False))
    rows = []
    for name in found[0]:
        means = [np.mean([each[name][change] for each in found]) for change in recentring.CHANGES]
        shown = f"**{name}**" if name.startswith("Online") else name
        rows.append([shown, *[_cell(100 * float(mean), 1) for mean in means]])
    return markdown(["", *recentring.CHANGES], rows)


def signals_table(results: Path) -> str:
    """Accuracy of a classifier on covariances followed online, and density of the next 2 s."""
    found = [
        [each for each in signals.units(False) if each.name.startswith(kind)]
        for kind in ("bank_", "wide_")
    ]
    bank, wide = (_rows_of_units(results, each) for each in found)
    rows = []
    for name in bank[0]:
        shown = f"**{name}**" if name.startswith("KGMRF(") else name
        cells = [_mean(bank, name, "accuracy"), _mean(bank, name, "t")]
        cells += [_mean(wide, name, "accuracy"), _mean(wide, name, "t")]
        texts = [_cell(100 * v, 1) if k % 2 == 0 else _cell(v, 2) for k, v in enumerate(cells)]
        rows.append([shown, *texts])
    head = ["", "filter bank: accuracy, %", "next 2 s, nats per row"]
    return markdown([*head, "1-40 Hz: accuracy, %", "next 2 s, nats per row"], rows)


def _mean(found: list[dict[str, Any]], name: str, measure: str) -> float:
    return float(np.mean([each[name][measure] for each in found]))


def epochs_table(results: Path) -> str:
    """Accuracy of a classifier on covariances of single epochs, percent."""
    units = [each for each in signals.units(False) if each.name.startswith("epochs_")]
    found = _rows_of_units(results, units)
    own = _rows_of_units(results, [each for each in units if each.name.endswith("_02")])[0]
    rows = []
    for name in found[0]:
        mean = float(np.mean([each[name] for each in found]))
        shown = f"**{name}**" if name == "KineticCovariance()" else name
        rows.append([shown, _cell(100 * mean, 1), _cell(100 * own[name], 1)])
    return markdown(["", "all nine sessions", "subject 2"], rows)


def linear_mean_table(results: Path) -> str:
    """Scores without and with a linear mean, and coverage of its forecasts."""
    rows = []
    for each in linear_mean.units(False):
        data = json.loads(each.path(results).read_text())["data"]
        scores, holes, covered = data["scores"], data["with_holes"], data["coverage"]
        cells = [scores["zero"], scores["linear"] - scores["zero"], holes["linear"] - holes["zero"]]
        shown = [_cell(cells[0], 2), f"{cells[1]:+.3f}", f"{cells[2]:+.3f}"]
        rows.append([each.name, *shown, *[_cell(100 * covered[h], 1) for h in covered]])
    head = ["", "mean zero", "linear mean", "with 20 % of the cells missing"]
    return markdown([*head, *[f"95 % region, {h} ahead" for h in (1, 5, 20)]], rows)


def artefact_table(results: Path) -> str:
    """Area under the curve of the scores of windows, by number of windows that calibrate."""
    found = _rows_of_units(results, artefacts.units(False))
    means = {key: float(np.mean([each[key] for each in found])) for key in found[0]}
    firsts = list(dict.fromkeys(key.split(", ")[1] for key in means))
    names = list(dict.fromkeys(key.split(", ")[0] for key in means))
    rows = [[name, *[_cell(means[f"{name}, {first}"], 3) for first in firsts]] for name in names]
    return markdown(["", *firsts], rows)


def steadier(results: Path) -> str:
    """Shake of every video beside vidstab, as a recording and at the crop of vidstab."""
    head = ["shake, pixels per image²", "as filmed", "vidstab", "ours at its crop", "crop"]
    lines = []
    for name, data in steady.table(Results(results)).items():
        kind, _, word = name.partition(".")
        rows, equal = data["rows"], data["equal"]
        if "absent" in rows["vidstab"]:
            continue
        shakes = [
            data["raw"],
            rows["vidstab"]["shake"],
            equal["vidstab"]["shake"],
            rows["vidstab"]["crop"],
        ]
        cells = [f"{v:.2f}" for v in shakes]
        cells[2] = f"**{shakes[2]:.2f}**" if shakes[2] < shakes[1] else cells[2]
        lines.append([word if kind == "clip" else f"OTB {word}", *cells])
    return markdown(head, lines)


def steadier_live(results: Path) -> str:
    """Live: each rival and ours at its crop, the steadier in bold; how often, and as filmed."""
    plain, gear = steady.KALMAN, "vidgear, Kalman"
    met = ((plain, 0), (gear, 0), (gear, 5), (gear, 15), ("vidgear", 25))
    head = ["shake, pixels per image²", "as filmed", plain, "ours at its crop"]
    head += [
        "filter, central crop",
        "ours",
        gear,
        "ours at its crop",
        "5 behind",
        "15 behind",
        "vidgear, 25 behind",
        "ours, 25 behind",
    ]
    lines, found = [], steady.table(Results(results))
    for name, data in found.items():
        kind, _, word = name.partition(".")
        cells, last = [f"{data['raw']:.2f}"], ""
        for rival, lag in met:
            theirs = data["rows"][rival]["shake"]
            ours = data["equal"][f"{rival}, lag {lag}"]["shake"]
            if rival != last:
                cells.append(f"{theirs:.2f}")
            cells.append(f"**{ours:.2f}**" if ours <= theirs else f"{ours:.2f}")
            if rival == plain:
                cells += _at_central_crop(data.get("central"))
            last = rival
        lines.append([word if kind == "clip" else f"OTB {word}", *cells])
    return markdown(head, lines)


def _at_central_crop(both: dict[str, float] | None) -> list[str]:
    """Shake of the plain filter and of ours where both keep the central part that it fills."""
    if both is None:
        return ["", ""]
    theirs, ours = both["rival"], both["kgmrf"]
    return [f"{theirs:.2f}", f"**{ours:.2f}**" if ours <= theirs else f"{ours:.2f}"]


def stabiliser_speed(results: Path) -> str:
    """Milliseconds per image at 640 x 480, mean of the drawn clips."""
    found = [d for k, d in steady.table(Results(results)).items() if k.startswith("clip.")]
    names = {"kgmrf": "`Stabilizer()`", "kgmrf, lag 15": "`lag=15`", "kgmrf, lag 0": "`lag=0`"}
    methods = [*names, *steady.RIVALS]
    times = [float(np.mean([d["rows"][m]["milliseconds"] for d in found])) for m in methods]
    head = ["", *[names.get(m, m) for m in methods]]
    return markdown(head, [["ms per image", *map(_cell, times)]])


def confidence_table(results: Path) -> str:
    """What the confidence is worth on videos left out and on unseen ones."""
    fit, unseen = (Results(results).data("confidence", name) or {} for name in ("fit", "unseen"))
    columns = {"OTB, videos left out": fit.get("real"), "drawn, kinds left out": fit.get("drawn")}
    columns |= {"nine unseen videos": unseen or None}
    shown = {name: row for name, row in columns.items() if row}
    lines = {
        "AUC of the confidence": ("auc", 3),
        "AUC of the score alone": ("auc_score", 3),
        "images off their target": ("off_target", 3),
        "of these, confidence above one half": ("off_but_sure", 2),
        "images on their target, confidence below one half": ("on_but_unsure", 3),
        "lost images that say `found`": ("lost_but_found", 2),
    }
    rows = [
        [label, *(_cell(row[key], digits) for row in shown.values())]
        for label, (key, digits) in lines.items()
    ]
    return markdown(["", *shown], rows)


def several_boxes(results: Path) -> str:
    """What ten boxes cost beside one."""
    row = Results(results).data("steady", "crowd") or {}
    times = [_cell(row[key]) for key in ("one_milliseconds", "ten_milliseconds", "ratio")]
    overlaps = [_cell(row[key], 3) for key in ("one_iou", "ten_iou")]
    rows = [["ms per image", *times], ["mean IoU", *overlaps, ""]]
    return markdown(["", "one box", "ten boxes", "ratio"], rows)


TABLES: dict[str, Callable[[Path], str]] = {
    "headline": headline.headline,
    "camera": headline.camera,
    "recorded_rotations": recorded_rotations,
    "reliability": what_was_survived,
    "live": lines_per_second,
    "formats": formats,
    "keys": many_keys,
    "start_up": start_up,
    "streams": streams.streams,
    "streams_more": streams.more,
    "recentring": recentring_table,
    "artefacts": artefact_table,
    "signals": signals_table,
    "epochs": epochs_table,
    "linear_mean": linear_mean_table,
    "layers": tables_layers.densities,
    "starts": streams.starts,
    **tables_alerts.TABLES,
    **tables_series.TABLES,
    "faults": streams.faults,
    "rotating": streams.rotating,
    "otb": otb_averages,
    "otb_models": appearance_models,
    "otb_rivals": otb_rivals,
    "otb_unseen": beyond_one_pass,
    "otb_kinds": tables_video.blurred_and_general,
    "otb_kinetics": velocity_of_the_box,
    "otb_sequences": otb_sequences,
    "steady": steadier,
    "steady_live": steadier_live,
    "confidence": confidence_table,
    "steady_speed": stabiliser_speed,
    "crowd": several_boxes,
}


def rewritten(text: str, results: Path) -> str:
    """A page with its tables filled in.

    >>> rewritten("no table here", Path("."))
    'no table here'
    """
    return BLOCK.sub(lambda m: f"{m[1]}{TABLES[m[2]](results)}{m[3]}", text)


def write(results: Path) -> list[Path]:
    """Write the tables into all pages; returns the pages that changed."""
    changed = []
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        new = rewritten(old, results)
        if new != old:
            page.write_text(new, encoding="utf-8")
            changed.append(page)
    return changed
