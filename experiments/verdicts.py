"""What the results say about the claims: tables, bars and verdicts, all computed.

Nothing here runs an experiment. A missing result gives "not run", never a guess.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiments import claims, otb, store

REPRODUCED = "reproduced"
RECOVERED = "reproduced under the recovered protocol"
PARTLY = "partly, under the recovered protocol"
NOT = "not reproducible"
FALSE = "does not hold as stated"
NOT_RUN = "not run"

COLUMNS = {
    "K-GMRF": "kgmrf",
    "Riemannian EMA": "riemannian_ema",
    "Euclidean EMA": "euclidean_ema",
    "Tangent KF": "tangent_kalman",
    "Alpha-Beta": "alpha_beta",
}
OURS = ("auto", "information_one", "information")
"""Ours in order of preference: the self-tuned bank; one setting for a whole protocol; default."""


@dataclass
class Verdict:
    """One claim of the paper and what became of it."""

    claim: str
    where: str
    verdict: str
    why: str
    anchor: str


@dataclass
class Bar:
    """A threshold set in advance: passed, failed, or not run."""

    text: str
    passed: bool | None
    measured: str


@dataclass
class Line:
    """One row of a comparison table: claim | as printed | as run | ours."""

    group: str
    method: str
    claim: float
    claim_std: float | None
    as_printed: tuple[float, float] | None
    as_run: tuple[float, float] | None
    close: bool | None


@dataclass
class Best:
    """Ours against everybody else in one cell, on seeds nobody was tuned on."""

    reading: str
    cell: str
    ours: float
    ours_half: float
    rival: str
    rival_error: float
    difference: tuple[float, float]
    status: str


class Results:
    """The result files of a folder, read on demand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[str, dict[str, Any] | None] = {}

    def record(self, experiment: str, unit: str) -> dict[str, Any] | None:
        """The whole record, or None."""
        key = f"{experiment}/{unit}"
        if key not in self._seen:
            self._seen[key] = store.load(self.folder / experiment / f"{unit}.json")
        return self._seen[key]

    def data(self, experiment: str, unit: str) -> Any:
        """What the unit computed; None where it is missing or not available."""
        record = self.record(experiment, unit)
        return record.get("data") if record and record.get("status") == "done" else None

    def every(self) -> list[dict[str, Any]]:
        """All records there are, in the order of their names."""
        found = [store.load(p) for p in sorted(self.folder.glob("*/*.json"))]
        return [r for r in found if r and "made_with" in r]

    def methods(self, experiment: str, reading: str) -> dict[str, dict[str, Any]]:
        """method -> data, for all methods that ran under a reading."""
        found = {}
        for path in sorted((self.folder / experiment).glob(f"{reading}.*.json")):
            method = path.stem.split(".", 1)[1]
            data = self.data(experiment, path.stem)
            if data is not None:
                found[method] = data
        return found


def numbers(data: dict[str, Any], cell: str, block: str = "further") -> np.ndarray:
    """The errors of one cell over the seeds of a block ("test" or "further")."""
    row = data[block][data["cells"].index(cell)]
    return np.array([np.nan if v is None else v for v in row], dtype=float)


def mean_half(values: np.ndarray) -> tuple[float, float]:
    """Mean and half width of its 95 % confidence interval."""
    half = 1.96 * values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return float(values.mean()), float(half)


def our_method(found: dict[str, Any]) -> str | None:
    """Which of ours is there."""
    return next((name for name in OURS if name in found), None)


# ------------------------------------------------------------------------ comparison tables


def ellipse_lines(results: Results) -> list[Line]:
    """tab:omega-sweep and tab:main-results (A), cell by cell."""
    spots = [
        (f"ω = {r}", "omega_sweep", r, r, r) for r in claims.load()["tables"]["omega_sweep"]["rows"]
    ]
    spots += [
        ("main table, normal", "main_ellipse", "Normal", "normal", "0.08"),
        ("main table, “20 % dropout”", "main_ellipse", "20% Dropout", "occluded", "occluded"),
    ]
    run, printed = results.methods("ellipse", "as_run"), results.methods("ellipse", "as_printed")
    return [
        _line(
            group,
            column,
            table,
            row,
            run.get(f"paper_{name}"),
            cell_run,
            printed.get(f"printed_{name}"),
            cell_printed,
            absolute=0.25,
            relative=0.1,
        )
        for group, table, row, cell_run, cell_printed in spots
        for column, name in COLUMNS.items()
    ]


def camera_lines(results: Results) -> list[Line]:
    """tab:dropout-sweep, cell by cell; as run over 600 seeds where they are there."""
    run, printed = results.methods("camera", "as_run"), results.methods("camera", "as_printed")
    lines = []
    for k, row in enumerate(claims.load()["tables"]["dropout_sweep"]["rows"]):
        cell = f"{k / 10:.1f}"
        for column, name in COLUMNS.items():
            line = _line(
                f"dropout {row}",
                column,
                "dropout_sweep",
                row,
                run.get(f"paper_{name}"),
                cell,
                printed.get(f"printed_{name}"),
                cell,
                absolute=0.0,
                relative=0.15,
            )
            spread = results.data("camera", f"spread.paper_{name}")
            if spread is not None:
                line.close = abs(spread["mean"][k] - line.claim) <= 0.15 * line.claim
            lines.append(line)
    return lines


def _line(
    group: str,
    column: str,
    table: str,
    row: str,
    run: dict[str, Any] | None,
    cell_run: str,
    printed: dict[str, Any] | None,
    cell_printed: str,
    *,
    absolute: float,
    relative: float,
) -> Line:
    claim = float(claims.value(table, row, column))
    as_run = None if run is None else mean_half(numbers(run, cell_run))
    as_printed = None if printed is None else mean_half(numbers(printed, cell_printed))
    close = None
    if as_run is not None:
        close = abs(as_run[0] - claim) <= max(absolute, relative * claim)
    return Line(group, column, claim, claims.std(table, row, column), as_printed, as_run, close)


def best_cells(results: Results, experiment: str, ours: str | None = None) -> list[Best]:
    """Ours against the best of all others, cell by cell, both readings; paired over the seeds."""
    rows = []
    for reading in ("as_run", "as_printed"):
        found = results.methods(experiment, reading)
        mine = ours or our_method(found)
        if mine is None or mine not in found:
            continue
        for cell in found[mine]["cells"]:
            own = numbers(found[mine], cell)
            rivals = {
                name: numbers(data, cell)
                for name, data in found.items()
                if data["family"] != "ours" and np.isfinite(numbers(data, cell)).all()
            }
            if not rivals:
                continue
            name = min(rivals, key=lambda n: rivals[n].mean())
            difference = mean_half(own - rivals[name])
            if abs(difference[0]) <= difference[1]:
                status = "level"  # the interval holds zero: nobody is ahead
            else:
                status = "best" if difference[0] < 0 else "behind"
            mean, half = mean_half(own)
            rows.append(
                Best(
                    reading,
                    cell,
                    mean,
                    half,
                    found[name]["label"],
                    float(rivals[name].mean()),
                    difference,
                    status,
                )
            )
    return rows


# ------------------------------------------------------------------------------------ bars


def bars(results: Results) -> list[Bar]:
    """The thresholds that were set before anything was run."""
    run = results.methods("ellipse", "as_run")
    sweep = list(claims.load()["tables"]["omega_sweep"]["rows"])
    found = []

    def off(method: str, column: str, cells: list[str]) -> list[float] | None:
        if method not in run:
            return None
        gaps = []
        for cell in cells:
            table, row = (
                ("main_ellipse", "20% Dropout") if cell == "occluded" else ("omega_sweep", cell)
            )
            gaps.append(abs(numbers(run[method], cell).mean() - claims.value(table, row, column)))
        return [float(g) for g in gaps]

    def bar(text: str, gaps: list[float] | None, most: float) -> None:
        if gaps is None:
            found.append(Bar(text, None, NOT_RUN))
        else:
            found.append(Bar(text, max(gaps) <= most, f"largest distance {max(gaps):.3f}°"))

    for method, column, name in (
        ("paper_euclidean_ema", "Euclidean EMA", "Euclidean EMA"),
        ("paper_riemannian_ema", "Riemannian EMA", "Log-Euclidean EMA"),
    ):
        gaps = off(method, column, [*sweep, "occluded"])
        bar(f"A as run: {name} within .15° of all 6 sweep values and of 25.29 occluded", gaps, 0.15)
    gaps = off(
        "paper_alpha_beta", "Alpha-Beta", [c for c in sweep if float(c) >= 0.08] + ["occluded"]
    )
    bar("A as run: alpha-beta within .15° for ω ≥ .08 and of 16.58 occluded", gaps, 0.15)
    bar(
        "A as run: tangent KF within .25° of the sweep",
        off("paper_tangent_kalman", "Tangent KF", sweep),
        0.25,
    )
    text = "A as run: K-GMRF with the paper's gains .3–.6 normal and 12.1 ± 1 occluded"
    if "paper_kgmrf" in run:
        normal = numbers(run["paper_kgmrf"], "normal").mean()
        hidden = numbers(run["paper_kgmrf"], "occluded").mean()
        good = 0.3 <= normal <= 0.6 and abs(hidden - 12.1) <= 1
        found.append(Bar(text, bool(good), f"{normal:.2f}° normal, {hidden:.2f}° occluded"))
    else:
        found.append(Bar(text, None, NOT_RUN))
    found += _camera_bars(results)
    for experiment, name in (("ellipse", "A"), ("camera", "B")):
        cells = best_cells(results, experiment)
        text = f"{name}: ours, without tuning per cell, is best in every cell of both readings"
        if not cells:
            found.append(Bar(text, None, NOT_RUN))
            continue
        best = sum(c.status == "best" for c in cells)
        level = sum(c.status == "level" for c in cells)
        behind = [f"{c.reading.replace('_', ' ')} {c.cell}" for c in cells if c.status == "behind"]
        measured = f"best in {best} of {len(cells)}, level in {level}"
        if behind:
            measured += ", behind in " + ", ".join(behind)
        found.append(Bar(text, best == len(cells), measured))
    return found


def _camera_bars(results: Results) -> list[Bar]:
    rows = claims.load()["tables"]["dropout_sweep"]["rows"]
    near = inside = inside_range = total = 0
    for column, name in COLUMNS.items():
        spread = results.data("camera", f"spread.paper_{name}")
        if spread is None:
            continue
        for k, row in enumerate(rows):
            claim = claims.value("dropout_sweep", row, column)
            five = spread["five_seed_means"]
            total += 1
            near += abs(spread["mean"][k] - claim) <= 0.15 * claim
            # The claim is printed to one decimal: allow it that much.
            inside += five["low_95"][k] - 0.05 <= claim <= five["high_95"][k] + 0.05
            inside_range += five["lowest"][k] - 0.05 <= claim <= five["highest"][k] + 0.05
    first = "B as run: at least 22 of 30 cells within 15 % (mean of 600 seeds)"
    second = "B as run: the printed value inside the spread of five-seed means in at least 27 of 30"
    if total < 30:
        return [Bar(first, None, NOT_RUN), Bar(second, None, NOT_RUN)]
    return [
        Bar(first, near >= 22, f"{near} of 30"),
        Bar(
            second,
            inside_range >= 27,
            f"{inside_range} of 30 within the range of 120 means, {inside} within their central "
            f"95 %",
        ),
    ]


# -------------------------------------------------------------------------------- verdicts


def verdicts(results: Results) -> list[Verdict]:
    """One verdict per table, figure or theorem of the paper."""
    return [
        *_ellipse(results),
        *_camera(results),
        _otb(results),
        *_ablations(results),
        _gap(results),
        *_master(results),
        *_lags(results),
        _stability(results),
        *_structure(results),
        *_cost(results),
        _grid(results),
        _abstract(),
    ]


def _count(lines: list[Line], which: str) -> tuple[int, int]:
    pairs = [(getattr(x, which), x.claim) for x in lines if getattr(x, which) is not None]
    if which == "as_printed":
        good = [abs(v[0] - c) <= max(0.25, 0.15 * c) for v, c in pairs]
    else:
        good = [bool(x.close) for x in lines if x.as_run is not None]
    return sum(good), len(pairs)


def _ellipse(results: Results) -> list[Verdict]:
    lines = ellipse_lines(results)
    found = []
    for title, where, part in (
        ("Angular-rate sweep on the ellipse", "tab:omega-sweep", lines[:30]),
        ("Ellipse, main table", "tab:main-results (A)", lines[30:]),
    ):
        printed, n_printed = _count(part, "as_printed")
        run, n_run = _count(part, "as_run")
        if not n_run:
            found.append(Verdict(title, where, NOT_RUN, "no results", "ellipse"))
            continue
        word = REPRODUCED if printed == n_printed else RECOVERED if run >= 0.9 * n_run else PARTLY
        why = (
            f"as printed {printed} of {n_printed} cells agree, as recovered {run} of {n_run} "
            "(within .25° or 10 %). The observations were nearly noiseless, not 8 samples; the "
            "dropout was three occlusions of 30 frames; the “Riemannian” EMA was log-Euclidean."
        )
        found.append(Verdict(title, where, word, why, "ellipse"))
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
        found.append(Verdict("30-fold error reduction", "abstract", FALSE, why, "ellipse"))
    return found


def _camera(results: Results) -> list[Verdict]:
    lines = camera_lines(results)
    run, n_run = _count(lines, "as_run")
    printed, n_printed = _count(lines, "as_printed")
    where = "tab:dropout-sweep, tab:main-results (B)"
    if not n_run:
        return [Verdict("Camera stabilisation", where, NOT_RUN, "no results", "camera")]
    word = REPRODUCED if printed == n_printed else RECOVERED if run >= 22 else PARTLY
    found = [
        Verdict(
            "Camera stabilisation, dropout sweep",
            where,
            word,
            f"as printed {printed} of {n_printed} cells within 15 %, as recovered {run} of "
            f"{n_run}. "
            "Recovered by search, so consistent but not proven: constant rate, nine-frame gaps "
            "that start with the stated probability, errors √2 too large.",
            "camera",
        )
    ]
    shake = results.methods("camera", "as_printed")
    if {"hold_last", "printed_kgmrf"} <= shake.keys():
        cells = shake["hold_last"]["cells"]
        hold = [numbers(shake["hold_last"], c).mean() for c in cells]
        paper = [numbers(shake["printed_kgmrf"], c).mean() for c in cells]
        lost = sum(h < p for h, p in zip(hold, paper, strict=True))
        found.append(
            Verdict(
                "Second order is what makes stabilisation robust",
                "Sec. 5, finding 3",
                FALSE if lost else REPRODUCED,
                f"on the protocol as printed the paper's gains lose to holding the last "
                f"observation at {lost} of {len(cells)} dropout rates ({paper[0]:.1f}° against "
                f"{hold[0]:.1f}° at 0 %). Second order does win under long gaps, with gains that "
                "fit the motion.",
                "camera",
            )
        )
    return found


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


def _ablations(results: Results) -> list[Verdict]:
    found = []
    for version, table in (("main", "ablation"), ("extended", "ablation_extended")):
        data = results.data("ablation", f"as_run.{version}")
        where = claims.load()["tables"][table]["label"]
        title = "Ablation" if version == "main" else "Ablation, appendix"
        if data is None:
            found.append(Verdict(title, where, NOT_RUN, "no results", "ablation"))
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
        why = (
            f"without noise {good['normal']} of 4 normal and {good['dropout']} of 4 dropout cells "
            f"agree; its alpha-beta is {gains_used}, not the (.4, .1) of the other tables, and it "
            "contradicts the other ablation in every second-order row."
        )
        found.append(Verdict(title, where, PARTLY if good["normal"] >= 2 else NOT, why, "ablation"))
    return found


def _gap(results: Results) -> Verdict:
    title, where = "Spectral-gap phase transition", "tab:spectral-gap"
    data = results.data("spectral_gap", "rate_0.08.samples_8")
    if data is None:
        return Verdict(title, where, NOT_RUN, "no results", "gap")
    k = data["deltas"].index(1.0)
    paper = data["errors"]["kgmrf_paper"][0][k]
    why = (
        f"the transition is real, the numbers are not those of m = 8, σ² = 4: at δ = 1 we get "
        f"{paper:.0f}° (printed 5.7°), where even an ideal filter cannot go below "
        f"{data['floor'][k]:.0f}°. "
        f"The printed Δ_wh = .8032 is {data['whitened_gap'][k]:.3f} by its definition."
    )
    return Verdict(title, where, NOT, why, "gap")


def _master(results: Results) -> list[Verdict]:
    found = []
    fixed = results.data("master", "samples.zero_lag")
    gentle = results.data("master", "samples.zero_lag_gentle")
    if fixed and gentle:
        slope, square = gentle["fit_paper_range"], fixed["fit_square"]
        why = (
            f"exponent {slope['slope']:.2f} (R² {slope['r2']:.3f}) for the error itself. It is the "
            f"root of the risk, which goes as m^{square['slope']:.2f}; calling −.50 “O(1/m)” "
            "mixes the two."
        )
        found.append(
            Verdict("Error against m", "fig:master-validation (a)", REPRODUCED, why, "master")
        )
    moved = results.data("master", "variation.zero_lag")
    if moved:
        one, many = moved["one_change"], moved["many_changes"]
        why = (
            f"the mean error is linear in V (R² {one['mean_against_v']['r2']:.3f}); the risk is "
            f"quadratic in the size of a change (R² {one['against_v_squared']['r2']:.4f} "
            f"against V²) "
            f"and linear in the number of changes (R² {many['against_v']['r2']:.4f} against V): "
            "it adds up squares, so no bound in V/T alone holds."
        )
        found.append(
            Verdict("Error against V", "fig:master-validation (b)", REPRODUCED, why, "master")
        )
    decay = results.data("master", "transient.zero_lag")
    if decay:
        why = (
            f"errors decay exponentially, κ = {decay['kappa_measured']:.3f} for the paper's gains "
            f"(theory {decay['kappa_predicted']:.3f}); the printed .19 belongs to other gains. "
            f"But the theorem bounds a time average, and that falls only like T^"
            f"{decay['average_exponent']:.2f}, never like (1−κ)^T/T."
        )
        found.append(Verdict("Transient rate", "fig:master-validation (c)", FALSE, why, "master"))
    energy = results.data("master", "energy")
    if energy:
        why = (
            f"T(u) + |ξ|²/2 rises in {energy['paper_rises']} of 119 noiseless steps; the Lyapunov "
            f"form of the same proof in {energy['our_rises']}."
        )
        found.append(
            Verdict("Energy contracts in every step", "thm:stability", FALSE, why, "master")
        )
    return found


def _lags(results: Results) -> list[Verdict]:
    data = results.data("lag", "lines")
    if data is None:
        return [Verdict("Zero lag", "thm:zero-lag", NOT_RUN, "no results", "lag")]
    rates = np.array(data["rates"])
    at = int(np.argmin(np.abs(rates - 0.08)))
    printed = data["lines"]["printed_0.05_0.95"]["measured"][at]
    zero = max(data["lines"]["zero_lag"]["measured"])
    ema = data["lines"]["euclidean_0.2"]
    gap = max(abs(m - t) for m, t in zip(ema["measured"], ema["theory"], strict=True))
    return [
        Verdict(
            "Zero steady-state error",
            "thm:zero-lag",
            RECOVERED,
            f"Algorithm 1 as printed is lost at ω = .08 ({printed:.0f}°; it holds only below "
            f"{data['lines']['printed_0.05_0.95']['lock_limit']:.3f} rad per frame). With damping "
            f"taken off the velocity, as the proof needs, the lag is below {zero:.0e}° at all "
            f"rates.",
            "lag",
        ),
        Verdict(
            "First-order methods lag in proportion to ω",
            "thm:ema-lag",
            FALSE,
            f"they lag, but not in proportion: {data['growth']:.1f}× for 6.7× the rate, "
            f"saturating. "
            f"The exact law is ½ arg(1 − (1−g) e^(−2iω)); the measured lag is within "
            f"{max(gap, 1e-4):.4f}° of it.",
            "lag",
        ),
    ]


def _stability(results: Results) -> Verdict:
    data = results.data("stability", "printed")
    if data is None:
        return Verdict("Stability domain", "thm:zero-lag", NOT_RUN, "no results", "stability")
    why = (
        f"{100 * data['agree_off_boundary']:.1f} % of the gains away from the boundary behave as "
        "predicted, with κ_max = 1 always (inertia and stiffness cancel)."
    )
    word = REPRODUCED if data["agree_off_boundary"] > 0.99 else FALSE
    return Verdict("Stability domain", "thm:zero-lag", word, why, "stability")


def _structure(results: Results) -> list[Verdict]:
    found = []
    maps = results.data("structure", "maps")
    if maps:
        last = {k: v["orthogonality"][-1] for k, v in maps["lines"].items()}
        neumann = last["cayley_neumann_3"]
        why = (
            f"after {maps['times'][-1]:,} steps |QᵀQ − I| is {last['exponential']:.0e} with the "
            f"exact "
            f"exponential and {last['exponential_polished']:.0e} polished, but "
            f"{'infinite' if neumann is None else f'{neumann:.0e}'} with the paper's three-term "
            "Cayley-Neumann map, which is not orthogonal."
        )
        found.append(Verdict("Orbit invariance", "prop:structure", REPRODUCED, why, "structure"))
    two, three = results.data("structure", "energy_2"), results.data("structure", "energy_3")
    if two and three:
        why = (
            f"in d = 2 the energy ripples by {100 * two['ripple']:.0f} % and does not drift "
            f"({100 * two['drift']:.2f} %). In d ≥ 3 the algorithm's inertia depends on M and its "
            f"force is no gradient (loop defect {three['loop_defect']:.2f} instead of 0), so there "
            "is no energy to conserve."
        )
        found.append(Verdict("Symplecticity", "prop:structure", FALSE, why, "structure"))
    return found


def _cost(results: Results) -> list[Verdict]:
    data = results.data("cost", "information")
    maps = results.data("cost", "maps")
    if data is None or maps is None or 7 not in data["dimensions"]:
        return [Verdict("Run time and complexity", "tab:complexity", NOT_RUN, "no results", "cost")]
    k = data["dimensions"].index(7)
    online, whole = data["online_microseconds"][k], data["filter_microseconds"][k]
    exponent = maps["lines"]["cayley_neumann_3"]["exponent"]
    grows = "" if exponent is None else f" Cayley-Neumann grows like d^{exponent:.1f}, not d²."
    why = (
        f"d = 7 takes {online:.0f} µs per update and {whole:.1f} µs per frame of a whole sequence "
        f"here (printed: below 500 µs).{grows}"
    )
    word = REPRODUCED if online < 500 else NOT
    return [Verdict("Below .5 ms per frame", "tab:complexity", word, why, "cost")]


def _grid(results: Results) -> Verdict:
    title, where = "Settings are optimal on the tuning seeds", "tab:best-params"
    data = results.data("ellipse", "as_run.tuned_euclidean_ema")
    camera = results.data("camera", "as_run.tuned_riemannian_ema")
    if not data or not camera or not data["best_on_paper_grid"]:
        return Verdict(title, where, NOT_RUN, "no results", "tuning")
    best = data["best_on_paper_grid"][data["cells"].index("normal")]["gain"]
    other = [s["gain"] for s in camera["best_on_paper_grid"]]
    why = (
        f"on the paper's own grid the EMA's best gain is {best:g} on the ellipse and "
        f"{', '.join(f'{g:g}' for g in sorted(set(other)))} on the camera, not the .2 it "
        f"reports: the "
        "first-order baselines were not tuned."
    )
    return Verdict(title, where, FALSE if best != 0.2 else REPRODUCED, why, "tuning")


def _abstract() -> Verdict:
    text = claims.load()["text"]["abstract_camera"]
    ours = claims.value("dropout_sweep", "20%", "K-GMRF")
    ema = claims.value("dropout_sweep", "20%", "Riemannian EMA")
    why = (
        f"the abstract's {text['from']} → {text['to']} is in no table (they print {ema} and "
        f"{ours}); "
        "the factor is 3 in the introduction and 4.5 in the conclusion."
    )
    return Verdict("SO(3) figures of the abstract", "abstract", NOT, why, "camera")


@dataclass
class Everything:
    """All that the report shows, computed once."""

    results: Results
    verdicts: list[Verdict] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)


def judge(folder: Path) -> Everything:
    """Read a results folder and judge it."""
    results = Results(folder)
    return Everything(results, verdicts(results), bars(results))
