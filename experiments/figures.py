"""Pictures that the page shows as images: ellipses, a fibre, boards, and all tasks at a glance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from experiments import charts, figures_scenes, otb_models, report_steady
from experiments.chart_parts import tint
from experiments.reading import Results
from kgmrf import plots

DASHES = {"solid": "-", "dashed": (0, (4, 2)), "dotted": (0, (1, 1.4))}


def write(results: Results, folder: Path) -> list[Path]:
    """Write every picture for which there are results; returns the files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {
        "ellipse_frames": ellipse_frames,
        "teaser": teaser,
        "fibre": figures_scenes.fibre,
        "camera_frames": figures_scenes.camera_frames,
        "steady_strip": report_steady.strip,
    }
    with plots.style():
        made = {name: draw(results) for name, draw in drawn.items()}
        files = [plots.write_figure(f, folder / f"{name}.png") for name, f in made.items() if f]
    for file in files:
        _in_few_colours(file)
    return files


def _in_few_colours(file: Path) -> None:
    """Rewrite a PNG with 256 colours: a third of the size, and the page holds all of them."""
    from PIL import Image

    with Image.open(file) as picture:
        few = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(file, optimize=True)


def draw_panel(axes: Any, panel: dict[str, Any]) -> None:
    """Lines, error bars and shaded gaps of one panel."""
    x, y = panel["x"], panel["y"]
    for first, last in panel.get("shade", []):
        axes.axvspan(first - 0.5, last + 0.5, color=plots.COLOURS["gap"], linewidth=0, zorder=0)
    for line in panel["series"]:
        if line["off"] or not line["points"]:
            continue
        points = np.array([p[:2] for p in line["points"]])
        axes.plot(
            points[:, 0],
            points[:, 1],
            color=line["colour"],
            linestyle=DASHES[line["dash"]] if line["line"] else "none",
            marker="o" if line["marker"] else None,
            markersize=2.6 if line["line"] else 5.0,
            markerfacecolor=line["colour"] if line["line"] else "none",
            markeredgewidth=0.8,
            linewidth=1.1 if len(points) < 100 else 0.8,
        )
        halves = [p[2] if len(p) > 2 else 0.0 for p in line["points"]]
        if any(halves):
            axes.errorbar(
                points[:, 0],
                points[:, 1],
                halves,
                fmt="none",
                ecolor=line["colour"],
                elinewidth=0.7,
            )
    if x["log"]:
        axes.set_xscale("log")
    if y["log"]:
        axes.set_yscale("log")
    if y["low"] is not None:
        axes.set_ylim(bottom=y["low"])
    for name, log in (("x", x["log"]), ("y", y["log"])):
        if log:
            plots.log_ticks(axes, name)
        else:
            axes.ticklabel_format(axis=name, style="sci", scilimits=(-3, 4), useMathText=True)
    axes.set_xlabel(x["label"])
    axes.set_ylabel(y["label"])
    axes.set_title(panel["title"])


def names(panel: dict[str, Any]) -> list[tuple[float, str, str]]:
    """Where each line ends, its name and colour: written there instead of a legend."""
    return [
        (line["points"][-1][1], line["name"], line["colour"])
        for line in panel["series"]
        if line["points"] and not line["off"] and line["line"]
    ]


# --------------------------------------------------------------------------- ellipses


TRACKS = {
    "ours": ("ours", tint("ours")),
    "paper": ("K-GMRF, paper", tint("paper_kgmrf")),
    "ema": ("EMA .2", tint("paper_euclidean_ema")),
}


PITCH = 3.8
"""Distance of the frames of a strip, in units of the ellipse."""


def ellipse_frames(results: Results) -> Any:
    """Truth and estimates at five frames: before, inside and after an occlusion."""
    data = results.data("scenes", "ellipse.samples_8")
    if data is None:
        return None
    figure = plots.new_figure(height=1.95)
    axes = figure.add_subplot()
    frames = (60, 99, 115, 129, 160)
    _strip(axes, data, frames)
    key = [("truth", "#8C8C8C"), *TRACKS.values(), ("seen", plots.COLOURS["quiet"])]
    right = (len(frames) - 0.5) * PITCH
    for k, (name, colour) in enumerate(key):
        axes.text(right + 0.4, 1.6 - 0.9 * k, name, color=colour, va="center")
    axes.set_xlim(right=right + 1.5 * PITCH)
    return figure


def _strip(axes: Any, data: dict[str, Any], frames: tuple[int, ...]) -> None:
    """Frames side by side in one panel; grey behind those without an observation."""
    turn = np.linspace(0, 2 * np.pi, 100)
    circle = np.stack([np.cos(turn), np.sin(turn)])

    def outline(entries: list[list[float | None]], k: int) -> Any:
        values, vectors = np.linalg.eigh(figures_scenes.matrices([entries[frames[k]]])[0])
        shape = vectors @ (np.sqrt(np.maximum(values, 0))[:, None] * circle)
        return shape + np.array([[PITCH * k], [0.0]])

    for k, frame in enumerate(frames):
        seen = data["observed"][frame]
        if not seen:
            edges = (PITCH * (k - 0.5), PITCH * (k + 0.5))
            axes.axvspan(*edges, color=plots.COLOURS["gap"], linewidth=0, zorder=0)
        axes.fill(*outline(data["truth"], k), color="#BDBDBD", linewidth=0)
        if seen:
            axes.plot(
                *outline(data["seen"], k),
                color=plots.COLOURS["quiet"],
                linewidth=0.7,
                linestyle=":",
            )
        for track, (_, colour) in reversed(TRACKS.items()):
            axes.plot(*outline(data["tracks"][track], k), color=colour, linewidth=1.3)
        word = ("frame " if len(frames) < 6 else "") + str(frame) + ("" if seen else ", hidden")
        axes.text(PITCH * k, 2.75, word, ha="center", va="center")
    axes.set_aspect("equal")
    axes.set_xlim(-0.5 * PITCH, (len(frames) - 0.5) * PITCH)
    axes.set_ylim(-2.45, 3.15)
    axes.axis("off")


def teaser(results: Results) -> Any:
    """The paper's first figure, redrawn from our runs: coasting, the sweep, dropouts, a video."""
    named = {f["id"]: f for f in charts.figures(results)}
    wanted = ("occlusion_coasting", "omega_sweep", "dropout_sweep")
    data = results.data("scenes", "ellipse.samples_8")
    if data is None or any(name not in named for name in wanted):
        return None
    video = otb_models.load(results.folder).get("BlurCar2", {})
    boxes = "truth" in video
    figure = plots.new_figure(height=5.6 if boxes else 4.4)
    grid = figure.add_gridspec(2 + boxes, 3, height_ratios=(0.75, 1.5, 0.75)[: 2 + boxes])
    if boxes:
        figures_scenes.video_row(figure, grid[2, :], video)
    _strip(figure.add_subplot(grid[0, :]), data, (90, 100, 108, 116, 124, 132))
    left, middle, right = (figure.add_subplot(grid[1, k]) for k in range(3))
    drawn = {}
    for axes, name, k, title in (
        (left, "occlusion_coasting", 1, "angle error, 8 samples"),
        (middle, "omega_sweep", 0, "rate sweep, nearly noiseless"),
        (right, "dropout_sweep", 0, "camera, nine-frame gaps"),
    ):
        keep = ("ours", "K-GMRF, paper", "EMA .2", "log-EMA .2", "alpha-beta")
        panel = {**named[name]["panels"][k], "title": title}
        panel["series"] = [
            {**line, "off": False}
            for line in panel["series"]
            if line["name"] in keep and not (line["off"] and line["name"] != "log-EMA .2")
        ]
        if panel.get("shade"):
            # One occlusion is enough here.
            panel["shade"] = panel["shade"][:1]
            panel["series"] = [
                {**line, "points": [p for p in line["points"] if 70 <= p[0] <= 200]}
                for line in panel["series"]
            ]
        draw_panel(axes, panel)
        drawn[axes] = names(panel)
    plots.label_lines(drawn)
    return figure
