"""The pictures of the documentation, drawn by every build (a hook of mkdocs).

``python docs/pictures.py`` draws them without building the pages. Each function draws one picture,
``docs/images/<name>.png``. Only the README's picture is stored: ``docs/ellipse.png``.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf import (
    KGMRF,
    EuclideanEMA,
    HoldLast,
    RotationTracker,
    TrackerBank,
    gains,
    metrics,
    simulate,
    theory,
)
from kgmrf import plots as look
from kgmrf.geometry import so
from kgmrf.smoothing import gmrf

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IMAGES = Path(__file__).parent / "images"
INK, OURS, RED, QUIET = (look.COLOURS[k] for k in ("truth", "ours", "vermillion", "quiet"))


def _ellipse(axes: Axes, angle: float, colour: str, *, filled: bool = False, **line: Any) -> None:
    """The ellipse with half-axes 1.5 and 0.7, turned by ``angle``, with its two axes."""
    around = np.linspace(0, 2 * np.pi, 200)
    frame = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    x, y = frame @ np.array([1.5 * np.cos(around), 0.7 * np.sin(around)])
    if filled:
        axes.fill(x, y, color="#D5D5D5", zorder=1)
        return
    axes.plot(x, y, color=colour, **line)
    for tip in (frame[:, 0] * 1.5, frame[:, 1] * 0.7):
        axes.plot([0, tip[0]], [0, tip[1]], color=colour, **line)


def _turn(axes: Axes, start: float, end: float, radius: float, colour: str) -> None:
    """A bent arrow about the origin, angles in radians."""
    angles = np.linspace(start, end, 40)
    x, y = radius * np.cos(angles), radius * np.sin(angles)
    axes.plot(x[:-3], y[:-3], color=colour, linewidth=1.4)
    axes.annotate(
        "",
        (x[-1], y[-1]),
        (x[-6], y[-6]),
        arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.4},
    )


def _bare(axes: Axes, title: str) -> None:
    axes.set_aspect("equal")
    axes.set_xlim(-2.1, 2.1)
    axes.set_ylim(-1.75, 1.9)
    axes.axis("off")
    axes.set_title(title, loc="center")


def verbs() -> Figure:
    """The four verbs of one step, on an ellipse."""
    figure = look.new_figure(height=2.1)
    panels = figure.subplots(1, 4)
    before, drifted, truth, corrected = 0.15, 0.55, 0.85, 0.73
    for axes, title in zip(panels, ("drift", "measure", "correct", "kick"), strict=True):
        _bare(axes, title)
        _ellipse(axes, truth, INK, filled=True)
    _ellipse(panels[0], before, QUIET, linewidth=0.8)
    _ellipse(panels[0], drifted, OURS)
    _turn(panels[0], before, drifted, 1.75, OURS)
    panels[0].text(0, -1.7, "advance by the velocity", ha="center", color=OURS)
    rng = np.random.default_rng(7)
    frame = np.array([[np.cos(truth), -np.sin(truth)], [np.sin(truth), np.cos(truth)]])
    seen = frame @ (rng.standard_normal((2, 14)) * [[1.0], [0.45]])
    _ellipse(panels[1], drifted, OURS)
    panels[1].plot(*seen, ".", color=RED, markersize=4)
    _turn(panels[1], drifted, truth - 0.03, 1.75, RED)
    panels[1].text(0, -1.7, "compare with the samples", ha="center", color=RED)
    _ellipse(panels[2], drifted, QUIET, linewidth=0.8)
    _ellipse(panels[2], corrected, OURS)
    _turn(panels[2], drifted, corrected, 1.75, OURS)
    panels[2].text(0, -1.7, "turn part of the way", ha="center", color=OURS)
    _ellipse(panels[3], corrected, OURS)
    _turn(panels[3], corrected, corrected + 0.40, 1.6, QUIET)
    _turn(panels[3], corrected, corrected + 0.55, 1.8, OURS)
    panels[3].text(0, -1.7, "update the velocity", ha="center", color=OURS)
    return figure


def state() -> Figure:
    """What a tracker remembers: frame, spectrum, velocity."""
    figure = look.new_figure(height=2.2, width=4.2)
    axes = figure.subplots()
    _bare(axes, "")
    _ellipse(axes, 0.5, OURS)
    _turn(axes, 0.5, 1.0, 1.75, RED)
    axes.text(1.25, 1.65, "velocity $W$", color=RED, ha="left")
    axes.text(1.45, 0.62, "frame $Q$: the axes", color=OURS, ha="left")
    axes.text(-0.6, -1.3, r"spectrum $\lambda$: their squared half-lengths", color=INK, ha="left")
    axes.set_xlim(-2.1, 3.2)
    return figure


def lag() -> Figure:
    """Steady error against speed: predicted by theory (lines) and measured (dots)."""
    figure = look.new_figure(height=2.5)
    axes = figure.subplots()
    rates = np.linspace(0, 0.09, 50)
    seen = np.array([0.01, 0.03, 0.05, 0.08])
    fixed = gains.zero_lag(position_gain=0.2, velocity_gain=0.02)
    rows = (
        ("average, gain 0.1", look.COLOURS["vermillion"], EuclideanEMA(gain=0.1)),
        ("average, gain 0.3", look.COLOURS["orange"], EuclideanEMA(gain=0.3)),
        ("KGMRF, zero lag", OURS, KGMRF(gains=fixed, n_samples=8)),
    )
    labels = []
    for name, colour, tracker in rows:
        if isinstance(tracker, EuclideanEMA):
            curve = theory.first_order_lag(rates, tracker.gain)
        else:
            curve = theory.steady_lag(rates, 0.2, 0.02)
        curve = np.degrees(np.asarray(curve))
        axes.plot(rates, curve, color=colour)
        dots = []
        for rate in seen:
            scene = simulate.ellipse(float(rate), n_samples=None, n_frames=600, noise_floor=0.0)
            result = tracker.copy().filter(scene.observations, n_samples=8)
            error = metrics.angular_error(result.covariance, scene.covariance, degrees=True)
            dots.append(error[400:].mean())
        axes.plot(seen, dots, "o", color=colour, markersize=3.5)
        labels.append((float(curve[-1]), name, colour))
    axes.set_xlabel("speed of the ellipse, radians per step")
    axes.set_ylabel("steady error, degrees")
    axes.set_xlim(0, 0.09)
    look.label_lines({axes: labels})
    return figure


def information() -> Figure:
    """How well one frame shows the angle between two axes."""
    figure = look.new_figure(height=2.4)
    axes = figure.subplots()
    ratio = np.geomspace(1.02, 50, 200)
    labels = []
    for m, colour in ((1, look.COLOURS["vermillion"]), (8, look.COLOURS["orange"]), (64, OURS)):
        # d_i d_j / (m (lam_i - lam_j)^2); beyond a quarter turn an axis says nothing at all
        std = np.degrees(np.sqrt(ratio / (m * (ratio - 1) ** 2)))
        axes.plot(ratio, np.minimum(std, 90), color=colour)
        labels.append((float(min(std[-1], 90)), f"{m} sample{'s' * (m > 1)}", colour))
    axes.set_xscale("log")
    axes.set_xlim(1.02, 50)
    axes.set_ylim(0, 92)
    axes.set_xticks([1.1, 1.5, 2, 5, 10, 50], ["1.1", "1.5", "2", "5", "10", "50"])
    axes.minorticks_off()
    axes.set_xlabel("larger eigenvalue / smaller eigenvalue")
    axes.set_ylabel("standard deviation of the\nangle in one frame, degrees")
    look.label_lines({axes: labels})
    return figure


def coast() -> Figure:
    """A gap: the average freezes, the tracker moves on and says how sure it is."""
    hidden = simulate.occlusions(240, starts=(120,), length=40)
    scene = simulate.ellipse(0.08, n_frames=240, n_samples=8, observed=hidden, rng=1)
    ours = KGMRF(n_samples=8).filter(scene.observations)
    average = EuclideanEMA(gain=0.3).filter(scene.observations)
    figure = look.new_figure(height=2.5)
    axes = figure.subplots()
    times = np.arange(240)
    look.shade_gaps(axes, times, ~scene.observed)
    truth = metrics.axis_angle(scene.covariance)
    labels = []
    for name, result, colour in (("KGMRF", ours, OURS), ("average", average, RED)):
        off = metrics.axis_angle(result.covariance) - truth
        off = np.degrees((off + np.pi / 2) % np.pi - np.pi / 2)  # an axis has no sign
        axes.plot(
            times, np.where(np.abs(np.diff(off, append=off[-1])) > 90, np.nan, off), color=colour
        )
        labels.append((float(off[-1]), name, colour))
    band = 2 * np.degrees(ours.angle_std[:, 0, 1])
    axes.fill_between(times, -band, band, color=OURS, alpha=0.15, linewidth=0)
    axes.set_xlim(60, 239)
    axes.set_ylim(-95, 95)
    axes.set_yticks([-90, -45, 0, 45, 90])
    axes.set_xlabel("step (grey: no data; shaded: two standard deviations, reported by KGMRF)")
    axes.set_ylabel("error of the axis, degrees")
    look.label_lines({axes: labels})
    return figure


def rotations() -> Figure:
    """A shaken camera with dropouts."""
    camera = simulate.camera_shake(seed=3, dropout_probability=0.4)
    figure = look.new_figure(height=2.4)
    axes = figure.subplots()
    times = np.arange(len(camera.observations))
    look.shade_gaps(axes, times, ~camera.observed)
    labels = []
    for name, tracker, colour in (
        ("last seen", HoldLast(kind="rotation"), RED),
        ("RotationTracker", RotationTracker(), OURS),
    ):
        result = tracker.filter(camera.observations)
        error = metrics.geodesic_error(result.rotation, camera.rotation, degrees=True)
        axes.plot(times, error, color=colour)
        labels.append((float(error[-20:].mean()), name, colour))
    axes.set_xlim(0, times[-1])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("step (grey: no data)")
    axes.set_ylabel("error, degrees")
    look.label_lines({axes: labels})
    return figure


def volatility() -> Figure:
    """Returns whose volatility moves: what was forecast for the next day."""
    rng = np.random.default_rng(2)
    true = np.exp(0.5 * np.sin(np.arange(1500) / 60))
    mix = np.linalg.cholesky(0.7 * np.eye(5) + 0.3)
    returns = true[:, None] * rng.standard_normal((1500, 5)) @ mix.T
    figure = look.new_figure(height=2.4)
    axes = figure.subplots()
    axes.plot(true, color=INK, linewidth=1.0)
    labels = [(float(true[-1]), "truth", INK)]
    slow = EuclideanEMA(gain=1 - 2 ** (-1 / 64))
    for name, tracker, colour in (("average, 64 days", slow, RED), ("KGMRF", KGMRF(), OURS)):
        found = np.sqrt(tracker.filter(returns).covariance[:, 0, 0])
        axes.plot(found, color=colour)
        labels.append((float(found[-1]), name, colour))
    axes.set_xlim(200, 1500)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("day")
    axes.set_ylabel("volatility of one asset")
    look.label_lines({axes: labels})
    return figure


def channels() -> Figure:
    """A source that wanders over the sensors: the leading axis of eight channels."""
    rng = np.random.default_rng(5)
    n, d = 1500, 8
    spin = so.hat(0.01 * rng.standard_normal(d * (d - 1) // 2))
    frames = [so.exp(k * spin) for k in range(n)]
    std = np.sqrt(np.array([6.0, 3.0, 1.5, 1.0, 0.7, 0.5, 0.35, 0.25]))
    recording = np.array([Q @ (std * rng.standard_normal(d)) for Q in frames])
    true = np.array([Q[:, 0] for Q in frames])
    figure = look.new_figure(height=2.4)
    axes = figure.subplots()
    labels = []
    for name, tracker, colour in (
        ("average, 64 rows", EuclideanEMA(gain=1 - 2 ** (-1 / 64)), RED),
        ("KGMRF", KGMRF(), OURS),
    ):
        result = tracker.filter(recording)
        leading = np.linalg.eigh(result.covariance)[1][..., -1]
        off = np.degrees(np.arccos(np.clip(np.abs((leading * true).sum(-1)), 0, 1)))
        axes.plot(off, color=colour, alpha=0.9)
        labels.append((float(off[-200:].mean()), name, colour))
    axes.set_xlim(0, n)
    axes.set_ylim(0, 90)
    axes.set_xlabel("row")
    axes.set_ylabel("error of the leading\naxis, degrees")
    look.label_lines({axes: labels})
    return figure


def eeg() -> Figure:
    """The gallery's source that moves from O1 to O2: amplitude of each channel."""
    rng = np.random.default_rng(0)
    angle = np.linspace(0, np.pi / 2, 1280)
    mixing = 30 * np.stack([np.cos(angle), 0 * angle + 0.3, np.sin(angle)])
    recording = rng.standard_normal(1280) * mixing + 10 * rng.standard_normal((3, 1280))
    found = KGMRF().filter(recording.T).volatility
    figure = look.new_figure(height=2.4)
    axes = figure.subplots()
    seconds, labels = np.arange(1280) / 128, []
    colours = (OURS, look.COLOURS["orange"], RED)
    for k, (name, colour) in enumerate(zip(("O1", "Oz", "O2"), colours, strict=True)):
        axes.plot(seconds, found[:, k], color=colour)
        axes.plot(seconds, np.hypot(mixing[k], 10), "--", color=colour, linewidth=0.8)
        labels.append((float(found[-1, k]), name, colour))
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 50)
    axes.set_xlabel("seconds (dashed: truth)")
    axes.set_ylabel("amplitude, microvolts")
    look.label_lines({axes: labels})
    return figure


def field() -> Figure:
    """The random field: its precision couples neighbours only, its inverse everything."""
    n = 12
    law = gains.information(1e-3, retention=0.9)
    model = gmrf.chain(law, np.full(n, 0.05))
    J = gmrf.precision(model).dense()
    figure = look.new_figure(height=3.0)
    panels = figure.subplots(1, 3)
    chol = np.linalg.cholesky(J)
    chol[np.abs(chol) < 1e-12 * np.abs(chol).max()] = 0.0
    for axes, matrix, title in (
        (panels[0], J, "precision $J$"),
        (panels[1], chol, "its Cholesky factor $L$"),
        (panels[2], np.linalg.inv(J), "its inverse: covariances"),
    ):
        axes.imshow(np.where(matrix != 0, 1.0, 0.0), cmap="Blues", vmin=0, vmax=1.6)
        axes.set_xticks(np.arange(0, 2 * n, 2) + 0.5, [])
        axes.set_yticks(np.arange(0, 2 * n, 2) + 0.5, [])
        axes.set_xticks(np.arange(-0.5, 2 * n, 2), minor=True)
        axes.set_yticks(np.arange(-0.5, 2 * n, 2), minor=True)
        axes.grid(which="major", visible=False)
        axes.grid(which="minor", color="white", linewidth=0.8)
        axes.tick_params(which="both", length=0)
        axes.set_title(title, loc="center")
        axes.set_xlabel(f"{n} frames: angle, velocity")
    return figure


def stability() -> Figure:
    """max |eig F| of laws without lag and of Algorithm 1, and the domain where it is below 1."""
    figure = look.new_figure(height=3.2)
    left, right = figure.subplots(1, 2)
    a, b = np.linspace(0.0, 2.2, 221), np.linspace(0.0, 4.4, 221)
    gamma, eta = np.linspace(0.0, 2.2, 221), np.linspace(0.0, 4.4, 221)
    maps = (
        (left, a, b, theory.stability_radius(*np.meshgrid(a, b)), (0.1, 0.005)),
        (right, gamma, eta, _printed_radius(*np.meshgrid(gamma, eta)), (0.95, 0.05)),
    )
    for axes, x, y, radius, setting in maps:
        shade = axes.pcolormesh(x, y, np.minimum(radius, 1.5), cmap="Blues_r", rasterized=True)
        axes.contour(x, y, radius, levels=[1.0], colors=RED, linewidths=1.4)
        axes.plot(*setting, "o", color=OURS, markeredgecolor="white", clip_on=False, zorder=5)
    left.set(xlabel="position gain A", ylabel="velocity gain B", title="without lag, ρ = 1")
    right.set(xlabel="damping γ", ylabel="gain η", title="Algorithm 1 as printed")
    figure.colorbar(shade, ax=[left, right], label="largest eigenvalue (1: the edge)")
    return figure


def _printed_radius(gamma: Any, eta: Any) -> Any:
    return theory.stability_radius(0.0, eta, 1.0 - gamma)


def ellipse() -> Figure:
    """A rotating covariance with a gap: the default and the best moving average."""
    n, first, last = 211, 150, 180
    hidden = simulate.occlusions(n, starts=(first,), length=last - first)
    scene = simulate.ellipse(0.08, n_frames=n, n_samples=8, observed=hidden, rng=1)
    runs = {"kgmrf": KGMRF(n_samples=8), "moving average": EuclideanEMA(gain=0.5)}
    shown = np.arange(123, n, 6)
    rows = {name: run.filter(scene.observations).covariance[shown] for name, run in runs.items()}
    figure = look.new_figure(height=2.0)
    axes = figure.subplots()
    axes.axvspan(first, last, color=QUIET, alpha=0.3, linewidth=0)
    look.draw_rows(axes, rows, scene.covariance[shown], shown.astype(float), len(shown))
    axes.text((first + last) / 2, 0.47, "no data", ha="center", va="center", color=INK)
    axes.set_xlabel("step (truth filled, estimates outlined)")
    return figure


def keys() -> Figure:
    """Sixty sensors, one of which becomes ten times louder: the tracked size of each."""
    rng = np.random.default_rng(3)
    bank = TrackerBank(60, 3)
    size = np.empty((300, 60))
    for t in range(300):
        rows = rng.standard_normal((60, 3))
        rows[40] *= 10.0 if t >= 180 else 1.0
        bank.update(rows)
        size[t] = np.sqrt(np.trace(bank.covariance, axis1=1, axis2=2) / 3)
    figure = look.new_figure(height=2.2)
    axes = figure.subplots()
    picture = axes.imshow(size[10:].T, aspect="auto", vmin=0, vmax=10, extent=(10, 300, 60, 0))
    axes.set_xlabel("step")
    axes.set_ylabel("sensor")
    axes.grid(False)
    figure.colorbar(picture, ax=axes, label="tracked standard deviation")
    return figure


def outliers() -> Figure:
    """Distances of rows under a fixed and under a tracked covariance, while the features drift."""
    rng = np.random.default_rng(0)
    angle = np.linspace(0, np.pi, 2000)
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], -1)
    odd = rng.random(2000) < 0.02
    size = np.where(odd[:, None], [1.0, 3.0], [3.0, 0.5])
    X = np.einsum("tij,tj->ti", turn.reshape(-1, 2, 2), size * rng.standard_normal((2000, 2)))
    fixed = np.broadcast_to(X[:500].T @ X[:500] / 500, (1999, 2, 2))
    tracked = KGMRF().filter(X).covariance[:-1]
    figure = look.new_figure(height=3.2)
    panels = figure.subplots(2, 1, sharex=True)
    rows = np.arange(1, 2000)
    for axes, name, S in zip(panels, ("fixed", "tracked"), (fixed, tracked), strict=True):
        distance = np.sqrt(np.einsum("ti,ti->t", X[1:], np.linalg.solve(S, X[1:, :, None])[..., 0]))
        axes.plot(rows[~odd[1:]], distance[~odd[1:]], ".", color=QUIET, markersize=2)
        axes.plot(rows[odd[1:]], distance[odd[1:]], "o", color=RED, markersize=3)
        axes.set_ylim(0, 17)
        axes.set_xlim(500, 2000)
        axes.set_title(f"{name} covariance (red: outliers)")
        axes.set_ylabel("distance")
    panels[1].set_xlabel("row")
    return figure


PICTURES = (
    ellipse,
    outliers,
    keys,
    verbs,
    state,
    lag,
    information,
    coast,
    rotations,
    volatility,
    channels,
    eeg,
    field,
    stability,
)


def draw(folder: Path = IMAGES) -> list[Path]:
    """Draw every picture into ``folder``."""
    folder.mkdir(exist_ok=True)
    drawn = []
    for picture in PICTURES:
        with look.style():
            drawn.append(look.write_figure(picture(), folder / f"{picture.__name__}.png"))
    return drawn


def on_pre_build(config: Any) -> None:
    """What mkdocs calls before it reads the pages."""
    draw()


NAME_ALONE = re.compile(
    r'<div class="language-python doc-signature highlight"><pre><span></span><code>'
    r'<span class="n">\w+</span>\n</code></pre></div>'
)
"""The signature of an attribute, which repeats the heading above it."""
AS_IT_IS = re.compile(r"(<(?:pre|script|style)\b.*?</(?:pre|script|style)>)", re.S)


def on_post_page(output: str, **_: Any) -> str:
    """The page without indentation and empty lines, which are a fifth of it."""
    parts = AS_IT_IS.split(NAME_ALONE.sub("", output))
    parts[::2] = [re.sub(r"\s*\n\s*", "\n", part) for part in parts[::2]]
    return "".join(parts)


def on_post_build(config: Any) -> None:
    """No page may be larger than 60 kB."""
    sizes = {page: page.stat().st_size for page in Path(config["site_dir"]).glob("**/*.html")}
    large = [f"{page}: {size} bytes" for page, size in sizes.items() if size > 60_000]
    if large:
        raise SystemExit("pages over 60 kB: " + ", ".join(large))


if __name__ == "__main__":
    drawn = draw()
    shutil.copy(drawn[0], IMAGES.parent / "ellipse.png")
