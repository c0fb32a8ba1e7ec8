"""The rotating ellipse with an occlusion: our default tracker beside tuned baselines.

Every baseline is run with several settings and shown with those that are best on these very frames.
Our tracker runs once, with its defaults.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kgmrf import metrics, plots, simulate
from kgmrf._types import Mask, Numbers
from kgmrf.results import Result
from kgmrf.trackers import (
    KGMRF,
    AlphaBeta,
    EuclideanEMA,
    HoldLast,
    LogEuclideanEMA,
    RiemannianEMA,
    TangentKalman,
    Tracker,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from rich.console import Console

__all__ = ["Demo", "Row", "Scene", "print_demo", "run_demo"]

_GAINS = [{"gain": gain} for gain in (0.1, 0.2, 0.3, 0.5, 0.7)]

# The first settings of every baseline are its defaults.
CONTENDERS: dict[type[Tracker], list[dict[str, float]]] = {
    EuclideanEMA: _GAINS,
    LogEuclideanEMA: _GAINS,
    RiemannianEMA: _GAINS,
    TangentKalman: [
        {"noise_std": std, "velocity_noise": rate}
        for std, rate in itertools.product((0.1, 0.3, 0.6), (5e-3, 5e-4))
    ],
    AlphaBeta: [
        {"position_gain": position, "velocity_gain": velocity}
        for position, velocity in ((0.4, 0.1), (0.3, 0.1), (0.3, 0.05), (0.2, 0.05))
    ],
    HoldLast: [{}],
}

RUNS = 1 + sum(map(len, CONTENDERS.values()))
"""How many runs a demonstration takes."""


@dataclass(frozen=True)
class Scene:
    """What is simulated: an ellipse that rotates, seen through few samples, then not at all."""

    rate: float = 0.08
    n_samples: int = 8
    noise_floor: float = 0.1
    n_frames: int = 300
    scored_from: int = 50
    occluded_from: int = 150
    occluded_frames: int = 30
    n_seeds: int = 20

    @property
    def occluded_to(self) -> int:
        """First frame after the occlusion."""
        return self.occluded_from + self.occluded_frames

    @property
    def observed(self) -> Mask:
        """(T,), True where there is an observation."""
        start, length = (self.occluded_from,), self.occluded_frames
        return simulate.occlusions(self.n_frames, starts=start, length=length)

    def phases(self) -> dict[str, slice]:
        """Frames by what can be seen in them; settings are chosen on all but the start."""
        ends = (0, self.scored_from, self.occluded_from, self.occluded_to, self.n_frames)
        names = ("start", "before", "occluded", "after")
        return dict(zip(names, map(slice, ends[:-1], ends[1:]), strict=True))


QUICK = Scene(n_frames=120, scored_from=40, occluded_from=70, occluded_frames=20, n_seeds=4)
"""The same motion, fewer frames and seeds."""


@dataclass(frozen=True)
class Row:
    """Mean angular errors of one tracker in degrees, over seeds and frames."""

    tracker: str
    settings: dict[str, float]
    settings_tried: int
    start: float
    before: float
    occluded: float
    after: float

    def words(self) -> str:
        """The settings as text."""
        return ", ".join(f"{name}={value:g}" for name, value in self.settings.items()) or "defaults"


@dataclass(frozen=True)
class Demo:
    """What a run of the demonstration measured."""

    scene: Scene
    rows: tuple[Row, ...]
    covered: float
    figure: Path

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers and words, for JSON."""
        return {
            "figure": str(self.figure),
            "scene": asdict(self.scene),
            "mean_error_degrees": [asdict(row) for row in self.rows],
            "share_within_two_angle_std": self.covered,
        }


class _Run(NamedTuple):
    """One tracker on all seeds: its row, and errors (T, seeds) in degrees."""

    row: Row
    result: Result
    errors: Numbers

    def score(self, scene: Scene) -> float:
        return float(self.errors[scene.scored_from :].mean())


def run_demo(
    output: str | Path = "kgmrf-demo.png",
    *,
    scene: Scene | None = None,
    advance: Callable[[str], None] = lambda name: None,
) -> Demo:
    """Simulate, track with everything, score, and write the figure to ``output``.

    ``advance`` is called with the name of the tracker before each of the `RUNS` runs.
    """
    scene = Scene() if scene is None else scene
    plots.check_path(output)  # before the work, not after it
    seen, truth = _simulate(scene)

    def run(tracker: Tracker, settings: dict[str, float], tried: int) -> _Run:
        name = type(tracker).__name__
        advance(name)
        result = tracker.filter(seen)
        errors = np.asarray(metrics.angular_error(result.covariance, truth, degrees=True))
        means = {phase: float(errors[frames].mean()) for phase, frames in scene.phases().items()}
        return _Run(Row(name, settings, tried, **means), result, errors)

    ours = run(KGMRF(n_samples=scene.n_samples), {}, 1)
    runs = [ours]
    for kind, grid in CONTENDERS.items():
        tried = [run(kind(**s), s, len(grid)) for s in grid]  # type: ignore[arg-type]
        runs.append(min(tried, key=lambda one: one.score(scene)))
    band = 2.0 * np.degrees(ours.result.angle_std[..., 0, 1])
    covered = float((ours.errors <= band)[scene.scored_from :].mean())
    figure = plots.write_figure(_figure(scene, runs, truth), output)
    return Demo(scene, tuple(one.row for one in runs), covered, figure)


def _simulate(scene: Scene) -> tuple[Numbers, Numbers]:
    """Observations and truth of all seeds as one batch, (T, seeds, 2, 2)."""
    shown = {"n_frames": scene.n_frames, "n_samples": scene.n_samples, "observed": scene.observed}
    runs = [
        simulate.ellipse(scene.rate, noise_floor=scene.noise_floor, rng=seed, **shown)  # type: ignore[arg-type]
        for seed in range(scene.n_seeds)
    ]
    return np.stack([r.observations for r in runs], 1), np.stack([r.covariance for r in runs], 1)


# ---------------------------------------------------------------------- the figure


def _figure(scene: Scene, runs: list[_Run], truth: Numbers) -> Figure:
    """Ellipses of one run, our error with its own uncertainty, and the mean error of each."""
    ours, average = runs[0], min(runs[1:4], key=lambda one: one.score(scene))
    times = np.arange(scene.n_frames, dtype=float)
    with plots.style():
        figure = plots.new_figure(height=6.2)
        title = (
            f"A covariance that rotates {np.degrees(scene.rate):.1f}° per frame, seen through "
            f"{scene.n_samples} samples per frame"
        )
        figure.suptitle(title, x=0.01, ha="left", fontsize=9.5)
        ellipses, single, mean = figure.subplots(3, 1, height_ratios=[1.15, 1.0, 1.9])
        mean.sharex(single)
        for axes in (ellipses, single, mean):
            plots.shade_gaps(axes, times, ~scene.observed)
        _draw_ellipses(ellipses, scene, ours, average, truth[:, 0])
        _draw_single(single, scene, ours, truth[:, 0])
        _draw_means(mean, scene, runs)
        middle = 0.5 * (scene.occluded_from + scene.occluded_to - 1)
        _write(ellipses, middle, "no data", "center")
        _write(single, middle, "no data", "center")
        _write(mean, scene.scored_from, "start ", "right")
    return figure


def _draw_ellipses(axes: Axes, scene: Scene, ours: _Run, average: _Run, truth: Numbers) -> None:
    start = max(scene.occluded_from - 27, 0)
    shown = np.arange(start, min(scene.occluded_to + 30, scene.n_frames), 6)
    rows = {
        "KGMRF\ndefaults": ours.result.covariance[shown, 0],
        f"{average.row.tracker}\n{average.row.words()}": average.result.covariance[shown, 0],
    }
    plots.draw_rows(axes, rows, truth[shown], shown.astype(float), len(shown))
    axes.set_title("a  One run around the occlusion: truth filled, estimates outlined")
    axes.set_xlabel("frame")


def _draw_single(axes: Axes, scene: Scene, ours: _Run, truth: Numbers) -> None:
    times = np.arange(scene.n_frames)
    band = 2.0 * np.degrees(ours.result.angle_std[:, 0, 0, 1])
    here = metrics.axis_angle(ours.result.covariance[:, 0]) - metrics.axis_angle(truth)
    error = np.degrees(0.5 * np.arctan2(np.sin(2 * here), np.cos(2 * here)))
    axes.fill_between(times, -band, band, color=plots.COLOURS["ours"], alpha=0.2, linewidth=0)
    axes.axhline(0.0, color=plots.COLOURS["truth"], linewidth=0.6)
    axes.plot(times, error, color=plots.COLOURS["ours"])
    late = slice(scene.scored_from // 2, None)
    reach = 1.25 * max(float(band[late].max()), float(np.abs(error[late]).max()))
    axes.set_ylim(-reach, reach)
    axes.set_ylabel("error (degrees)")
    axes.tick_params(labelbottom=False)
    axes.set_title("b  The same run: error of KGMRF and the ±2 angle_std that it reports")


def _draw_means(axes: Axes, scene: Scene, runs: list[_Run]) -> None:
    colours = [plots.CYCLE[k] for k in (0, 1, 4, 3, 2, 5)] + [plots.COLOURS["quiet"]]
    labels = []
    for run, colour in reversed(list(zip(runs, colours, strict=True))):
        mean = run.errors.mean(axis=1)
        axes.plot(mean, color=colour, linewidth=1.8 if run is runs[0] else 0.8)
        labels.append((float(np.median(mean[scene.occluded_to :])), run.row.tracker, colour))
    axes.set_yscale("log")
    axes.set_ylim(min(2.0, 0.9 * float(runs[0].errors.mean(axis=1).min())), 95.0)
    axes.set_yticks([2, 5, 10, 20, 45, 90], ["2", "5", "10", "20", "45", "90"])
    axes.set_yticks([], minor=True)
    axes.axvline(scene.scored_from, color=plots.COLOURS["quiet"], linewidth=0.8, linestyle=":")
    axes.set_xlim(0, scene.n_frames - 1)
    axes.set_xlabel("frame")
    axes.set_ylabel("mean error (degrees)")
    axes.set_title(
        f"c  Mean of {scene.n_seeds} seeds: KGMRF with its defaults, "
        "baselines with the best settings tried"
    )
    plots.label_lines({axes: labels})


def _write(axes: Axes, x: float, words: str, align: str) -> None:
    """Words under the upper edge of a panel."""
    place: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "ha": align, "va": "top"}
    axes.text(x, 0.98, words, fontsize=7.0, color=plots.COLOURS["quiet"], **place)


# ---------------------------------------------------------------------- the terminal


def print_demo(demo: Demo, console: Console) -> None:
    """The table and the closing lines."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    scene = demo.scene
    title = (
        f"Mean angular error in degrees, {scene.n_seeds} seeds, no data in frames "
        f"{scene.occluded_from}-{scene.occluded_to - 1}"
    )
    plain = {"box": SIMPLE_HEAD, "show_edge": False, "pad_edge": False}
    table = Table(title=title, title_justify="left", **plain)  # type: ignore[arg-type]
    table.add_column("tracker", no_wrap=True)
    table.add_column("settings")
    for phase in scene.phases():
        table.add_column(phase, justify="right")
    for k, row in enumerate(demo.rows):
        numbers = (f"{getattr(row, phase):.1f}" for phase in scene.phases())
        table.add_row(row.tracker, row.words(), *numbers, style="bold cyan" if k == 0 else "")
    console.print()
    console.print(table)
    closing = f"""
start: frames 0-{scene.scored_from - 1}, while KGMRF learns the speed. A guess has 45 degrees.
Baselines: the best of up to {max(row.settings_tried for row in demo.rows)} settings, chosen on \
frames {scene.scored_from}-{scene.n_frames - 1} themselves.
KGMRF: its defaults.
The truth is within ±2 angle_std of the estimate in {100 * demo.covered:.0f} % of those frames
(95 % if calibrated).

Figure: {demo.figure}
Try next:
  kgmrf simulate ellipse -o ellipse.csv    write such a scene to a file
  kgmrf track ellipse.csv -o track.csv     track it; any file of yours will do
  kgmrf demo --json                        the numbers above as JSON"""
    console.print(closing, highlight=False, markup=False, soft_wrap=True)
