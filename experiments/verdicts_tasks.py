"""Verdicts on the tasks: ellipse, camera, OTB, ablations, settings."""

from __future__ import annotations

from collections.abc import Iterator

from experiments import claims, otb, otb_models
from experiments.comparison import camera_lines, ellipse_lines, otb_lead
from experiments.reading import (
    FALSE,
    NARROWED,
    NOT,
    NOT_RUN,
    PARTLY,
    RECOVERED,
    REPRODUCED,
    Line,
    Results,
    Verdict,
    numbers,
)


def verdicts(results: Results) -> list[Verdict]:
    """In the order of the page."""
    return [
        *_ellipse(results),
        *_camera(results),
        _otb(results),
        *_otb_models(results),
        *_ablations(results),
        _grid(results),
        *_abstract(),
        *_inside_the_paper(),
    ]


def _count(lines: list[Line], which: str) -> tuple[int, int]:
    pairs = [(getattr(x, which), x.claim) for x in lines if getattr(x, which) is not None]
    if which == "as_printed":
        good = [abs(v[0] - c) <= max(0.25, 0.15 * c) for v, c in pairs]
    else:
        good = [bool(x.close) for x in lines if x.as_run is not None]
    return sum(good), len(pairs)


def _ellipse(results: Results) -> Iterator[Verdict]:
    lines = ellipse_lines(results)
    for title, where, part in (
        ("Angular-rate sweep on the ellipse", "tab:omega-sweep", lines[:30]),
        ("Ellipse, main table", "tab:main-results (A)", lines[30:]),
    ):
        printed, n_printed = _count(part, "as_printed")
        run, n_run = _count(part, "as_run")
        if not n_run:
            yield Verdict(title, where, NOT_RUN, "no results", "ellipse")
            continue
        word = REPRODUCED if printed == n_printed else RECOVERED if run >= 0.9 * n_run else PARTLY
        why = (
            f"as printed {printed} of {n_printed} cells agree, as recovered {run} of {n_run} "
            "(within .25° or 10 %). The observations were nearly noiseless, not 8 samples; the "
            "dropout was three occlusions of 30 frames; the “Riemannian” EMA was log-Euclidean."
        )
        yield Verdict(title, where, word, why, "ellipse")
    run_all, printed_all = (
        results.methods("ellipse", "as_run"),
        results.methods("ellipse", "as_printed"),
    )
    if "paper_kgmrf" in run_all and "tuned_euclidean_ema" in run_all:
        paper = numbers(run_all["paper_kgmrf"], "normal").mean()
        ema = numbers(run_all["paper_euclidean_ema"], "normal").mean()
        tuned = numbers(run_all["tuned_euclidean_ema"], "normal").mean()
        why = (
            f"{ema / paper:.0f}× against the EMA with gain .2, {tuned / paper:.1f}× against an EMA "
            f"tuned on the same data ({tuned:.2f}°): with almost no noise the best average hardly "
            "averages."
        )
        if "tuned_zero_lag" in printed_all:
            best = numbers(printed_all["tuned_zero_lag"], "0.08").mean()
            slow = numbers(printed_all["tuned_euclidean_ema"], "0.08").mean()
            why += f" With 8 samples as printed, both tuned: {slow / best:.1f}×."
        yield Verdict("30-fold error reduction", "abstract", NARROWED, why, "ellipse")
    second = results.data("ellipse", "as_run.second_tangent_kalman")
    if second and "paper_tangent_kalman" in run_all:
        fixed = numbers(run_all["paper_tangent_kalman"], "0.20").mean()
        moving = numbers(second, "0.20").mean()
        why = (
            f"the paper says “tangent space T_M”, its numbers fit the one at the identity: at ω = "
            f".20 {fixed:.2f}° (printed {claims.value('omega_sweep', '0.20', 'Tangent KF')}°), "
            f"against {moving:.2f}° with the tangent space at the current estimate. Its error does "
            "not accumulate over time in either reading; it grows with the rate."
        )
        yield Verdict("Tangent-space filters accumulate error", "Sec. 5 (2)", FALSE, why, "ellipse")


def _camera(results: Results) -> Iterator[Verdict]:
    lines = camera_lines(results)
    run, n_run = _count(lines, "as_run")
    printed, n_printed = _count(lines, "as_printed")
    where = "tab:dropout-sweep, tab:main-results (B)"
    if not n_run:
        yield Verdict("Camera stabilisation", where, NOT_RUN, "no results", "camera")
        return
    word = REPRODUCED if printed == n_printed else RECOVERED if run >= 22 else PARTLY
    yield Verdict(
        "Camera stabilisation, dropout sweep",
        where,
        word,
        f"as printed {printed} of {n_printed} cells within 15 %, as recovered {run} of "
        f"{n_run}. Recovered by search, so consistent but not proven: constant rate, "
        "nine-frame gaps that start with the stated probability, errors √2 too large.",
        "camera",
    )
    shake = results.methods("camera", "as_printed")
    wanted = {"hold_last", "printed_kgmrf", "tuned_zero_lag", "tuned_riemannian_ema"}
    if wanted <= shake.keys():
        cells = shake["hold_last"]["cells"]

        def mean(method: str) -> list[float]:
            return [float(numbers(shake[method], c).mean()) for c in cells]

        first, second = mean("tuned_riemannian_ema"), mean("tuned_zero_lag")
        hold, paper = mean("hold_last"), mean("printed_kgmrf")
        wins = sum(b < a for a, b in zip(first, second, strict=True))
        lost = sum(h < p for h, p in zip(hold, paper, strict=True))
        word = NARROWED if wins == len(cells) else PARTLY if wins else FALSE
        yield Verdict(
            "Second order is what makes stabilisation robust",
            "Sec. 5, finding 3",
            word,
            f"with both sides tuned, on the protocol as printed, zero-lag beats the geodesic "
            f"average at {wins} of {len(cells)} dropout rates ({second[0]:.2f}° against "
            f"{first[0]:.2f}° at 0 %, {second[-1]:.2f}° against {first[-1]:.2f}° at 50 %): a "
            f"modest lead. With the paper's gains it loses to holding the last observation at "
            f"{lost} of {len(cells)}.",
            "camera",
        )


def _otb(results: Results) -> Verdict:
    records = otb.load(results.folder)
    if not records:
        why = "no result files of the visual tracker under results/otb"
        return Verdict(
            "OTB sequences", "tab:main-results (C), tab:otb-complete", NOT_RUN, why, "otb"
        )
    found = otb.table(records)
    close = total = 0
    for sequence, methods in found.items():
        ours = methods.get("kgmrf", next(iter(methods.values())))
        if sequence in claims.load()["tables"]["main_otb"]["rows"]:
            total += 1
            close += ours["mean_iou"] >= claims.value("main_otb", sequence, "K-GMRF")
    why = (
        f"its two tables disagree with each other, observations came from ground-truth boxes and "
        f"thresholds were set per sequence. Tracked honestly (first box only, one setting), our "
        f"tracker reaches the printed IoU of the main table on {close} of {total} sequences."
    )
    return Verdict("OTB sequences", "tab:main-results (C), tab:otb-complete", NOT, why, "otb")


def _otb_models(results: Results) -> Iterator[Verdict]:
    found, truth = otb_models.load(results.folder), otb_models.load(results.folder, "truth")
    if not found:
        return
    table, lead = otb_models.means(results.folder), otb_lead(results.folder)
    mean = {
        name: sum(d["rows"][name]["mean_iou"] for d in found.values()) / len(found)
        for name in next(iter(found.values()))["rows"]
    }
    mean |= {name: row["mean"] for name, row in table.items()}
    order = sorted((*otb_models.PAPER, "K-GMRF, Algorithm 1"), key=lambda name: -mean[name])
    words = ", ".join(f"{name} {mean[name]:.3f}" for name in order)
    starts = f"over {len(otb_models.MOVES)} first boxes each" if table else "from one first box"
    why = (
        f"inside one and the same tracker, one setting, mean IoU of {len(found)} targets {starts}: "
        f"{words} (K-GMRF is the information law). "
    )
    why += lead.sentence if lead else "One first box does not tell them apart."
    pair = ("Riemannian EMA", "K-GMRF")
    if truth and all(d["distance"][name] for d in truth.values() for name in pair):
        lag = sum(d["increment_autocorrelation"] for d in truth.values()) / len(truth)
        first, ours = (
            sum(d["distance"][name] for d in truth.values()) / len(truth) for name in pair
        )
        why += (
            f" On covariances from true boxes the one-step error is {ours:.2f} against {first:.2f} "
            f"for the Riemannian average; increments are negatively correlated ({lag:.2f})."
        )
    word = NOT_RUN if lead is None else RECOVERED if lead.word == "leads" else NOT
    yield from [
        Verdict("K-GMRF leads the five methods on OTB", "tab:main-results (C)", word, why, "otb")
    ]


def _ablations(results: Results) -> Iterator[Verdict]:
    for version, table in (("main", "ablation"), ("extended", "ablation_extended")):
        data = results.data("ablation", f"as_run.{version}")
        where = claims.load()["tables"][table]["label"]
        title = "Ablation" if version == "main" else "Ablation, appendix"
        if data is None:
            yield Verdict(title, where, NOT_RUN, "no results", "ablation")
            continue
        names = ("full", "no_momentum", "no_manifold", "neither")
        rows = list(claims.load()["tables"][table]["rows"])
        good = {"normal": 0, "dropout": 0}
        for name, row in zip(names, rows, strict=True):
            for column, key in (("normal", "Normal"), ("dropout", "20% Dropout")):
                claim = claims.value(table, row, key)
                got = data["rows"][name][column][0]
                good[column] += abs(got - claim) <= max(0.05, 0.03 * claim)
        gains_used = "(.5, .1)" if version == "main" else "(.6, .15)"
        recovered = (
            " The R-EMA row is an affine-invariant average of gain .2 of an ellipse with "
            f"eigenvalue ratio 9 ({data['rows']['no_momentum']['normal'][0]:.2f}° and "
            f"{data['rows']['no_momentum']['dropout'][0]:.2f}°)."
            if version == "extended"
            else " Its dropout columns were not recovered by any of some 19,000 layouts tried."
        )
        why = (
            f"without noise {good['normal']} of 4 normal and {good['dropout']} of 4 dropout cells "
            f"agree; its alpha-beta is {gains_used}, not the (.4, .1) of the other tables, and it "
            f"contradicts the other ablation in every second-order row.{recovered}"
        )
        yield Verdict(title, where, PARTLY if good["normal"] >= 2 else NOT, why, "ablation")


SETTINGS = {
    "K-GMRF": ("printed", {"eta": "eta", "gamma": "gamma"}),
    "Riemannian EMA": ("riemannian_ema", {"beta": "gain"}),
    "Euclidean EMA": ("euclidean_ema", {"beta": "gain"}),
    "Tangent KF": ("tangent_kalman", {"Q": "velocity_noise", "R": "noise_std"}),
    "Alpha-Beta": ("alpha_beta", {"alpha": "position_gain", "beta": "velocity_gain"}),
}
"""The paper's rows of settings: our tuned method, and our words for its letters."""


def _grid(results: Results) -> Verdict:
    title, where = "Settings are optimal on the tuning seeds", "tab:best-params, tab:hyperparams"
    right, wrong = 0, []
    for row, (method, words) in SETTINGS.items():
        grids = dict(
            claims.value("search_grids", row, column).split(": ")
            for column in ("first", "second")
            if claims.value("search_grids", row, column)
        )
        for task, experiment, cell in (("SPD(2)", "ellipse", "normal"), ("SO(3)", "camera", "0.2")):
            data = results.data(experiment, f"as_run.tuned_{method}")
            if not data or not data["best_on_paper_grid"]:
                continue
            best = data["best_on_paper_grid"][data["cells"].index(cell)]
            chosen = dict(
                pair.split("=") for pair in claims.value("best_settings", row, task).split()
            )
            # The paper's EMA has beta as the weight of the past, ours the gain of the new.
            ours = {
                letter: round(1 - best[word] if word == "gain" else best[word], 6)
                for letter, word in words.items()
                if letter in grids
            }
            if all(ours[letter] == float(chosen[letter]) for letter in ours):
                right += 1
            else:
                told = ", ".join(f"{k} {v:g} (printed {chosen[k]})" for k, v in ours.items())
                wrong.append(f"{row} on {task} {told}")
    if not right + len(wrong):
        return Verdict(title, where, NOT_RUN, "no results", "tuning")
    why = (
        f"on the paper's own grids {right} of {right + len(wrong)} printed settings are the best. "
        f"Better ones: {'; '.join(wrong) or 'none'}. The first-order baselines were not tuned. "
        f"K-GMRF's {' and '.join(_letters_of_no_algorithm())} stand in no algorithm and no grid."
    )
    return Verdict(title, where, FALSE if wrong else REPRODUCED, why, "tuning")


def _letters_of_no_algorithm() -> list[str]:
    """Settings of K-GMRF that its grid, and Algorithm 1, do not have."""
    tasks = (claims.value("best_settings", "K-GMRF", task) for task in ("SPD(2)", "SO(3)"))
    grids = (claims.value("search_grids", "K-GMRF", column) for column in ("first", "second"))
    chosen = {pair.partition("=")[0] for task in tasks for pair in task.split()}
    return sorted(chosen - {grid.partition(":")[0] for grid in grids})


def _inside_the_paper() -> Iterator[Verdict]:
    """What its tables say about themselves: bold cells, averages."""
    tables = claims.load()["tables"]
    marked = [
        (label, name, column)
        for label, table in tables.items()
        for name, row in table["rows"].items()
        for column in row.get("bold", ())
    ]
    off = []
    for label, name, column in marked:
        table = tables[label]
        k, each = table["columns"].index(column), table["rows"].values()
        # The ablations compare down a column, the other tables along a row.
        down = label.startswith("ablation")
        rivals = [row["values"][k] for row in each] if down else table["rows"][name]["values"]
        best = (max if "otb" in label else min)(rivals)
        if table["rows"][name]["values"][k] != best:
            value = table["rows"][name]["values"][k]
            off.append(f"{name} in {table['label']}, {value:g} beside {best:g}")
    bold = (
        f"{len(off)} of {len(marked)} numbers in bold are not the best of their row or column: "
        f"{'; '.join(off)}."
    )
    gaps = []
    for name in ("otb_iou", "otb_success"):
        cells = tables[name]["rows"]
        each = [row["values"] for key, row in cells.items() if key != "Average"]
        for mean, column in zip(cells["Average"]["values"], zip(*each, strict=True), strict=True):
            gaps.append(abs(sum(column) / len(column) - mean))
    averages = (
        f"{sum(g < 0.006 for g in gaps)} of {len(gaps)} printed averages are those of their "
        f"columns (largest distance {max(gaps):.3f})."
    )
    yield from [
        Verdict("Bold is best", "all tables", FALSE if off else REPRODUCED, bold, "summary"),
        Verdict(
            "Averages of the OTB table",
            "tab:otb-complete",
            REPRODUCED if max(gaps) < 0.006 else NOT,
            averages,
            "otb",
        ),
    ]


def _abstract() -> Iterator[Verdict]:
    text = claims.text("abstract_camera")
    ours = claims.value("dropout_sweep", "20%", "K-GMRF")
    ema = claims.value("dropout_sweep", "20%", "Riemannian EMA")
    why = (
        f"the abstract's {text['from']} → {text['to']} is in no table (they print {ema} and "
        f"{ours}); the factor is {claims.text('contribution_camera')['factor']:g} in the "
        f"introduction and {claims.text('conclusion_camera')['factor']:g} in the conclusion."
    )
    rows = claims.load()["tables"]["main_camera"]["rows"]
    other = claims.load()["tables"]["dropout_sweep"]["rows"]
    pairs = [(row, other[name.split()[0]]) for name, row in rows.items()]
    cells = sum(len(a["values"]) for a, _ in pairs)
    means = sum(x == y for a, b in pairs for x, y in zip(a["values"], b["values"], strict=True))
    stds = sum(x != y for a, b in pairs for x, y in zip(a["stds"], b["stds"], strict=True))
    twice = (
        f"the same {means} of {cells} means, and other standard deviations in {stds} of them "
        f"(K-GMRF at 40 %: {claims.std('main_camera', '40% Dropout', 'K-GMRF')} and "
        f"{claims.std('dropout_sweep', '40%', 'K-GMRF')})."
    )
    yield from [
        Verdict("SO(3) figures of the abstract", "abstract", NOT, why, "camera"),
        Verdict("Deviations of the camera table", "tab:main-results (B)", NOT, twice, "camera"),
    ]
