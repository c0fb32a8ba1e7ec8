"""Pictures: every kind of result gives a figure that says what it shows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")

from kgmrf import KGMRF, AlphaBeta, EuclideanEMA, HoldLast, Result, RotationTracker, simulate
from kgmrf import plots as drawing
from kgmrf.plots._style import apart

PNG = b"\x89PNG\r\n\x1a\n"
GAP = simulate.occlusions(60, starts=(30,), length=10)

MATRIX = {"eigenvalues"}
KINETIC = {"speed", "angle std", "NIS", "log-likelihood"}


def covariances(d: int, items: int | None = None, observed: Any = GAP) -> np.ndarray:
    runs = [
        simulate.rotating_covariance(d, n_frames=60, observed=observed, rng=seed).observations
        for seed in range(items or 1)
    ]
    return runs[0] if items is None else np.stack(runs, axis=1)


def rotations(d: int, items: int | None = None) -> np.ndarray:
    runs = [
        simulate.rotating_frame(d, n_frames=60, rate=0.1, observed=GAP, rng=seed).observations
        for seed in range(items or 1)
    ]
    return runs[0] if items is None else np.stack(runs, axis=1)


def panels(figure: Any) -> set[str]:
    return {axes.get_ylabel().split("\n")[0].split(" (")[0] for axes in figure.axes}


def drawn(axes: Any) -> np.ndarray:
    """All finite heights of the lines of a panel."""
    heights = np.concatenate([np.asarray(line.get_ydata(), float) for line in axes.get_lines()])
    return heights[np.isfinite(heights)]


CASES: dict[str, tuple[Any, set[str]]] = {
    "covariance d=1": (
        lambda: KGMRF(n_samples=8).filter(covariances(1)),
        MATRIX | {"log-likelihood"},
    ),
    "covariance d=2": (
        lambda: KGMRF(n_samples=8).filter(covariances(2)),
        MATRIX | KINETIC | {"major axis"},
    ),
    "covariance d=3": (lambda: KGMRF(n_samples=8).filter(covariances(3)), MATRIX | KINETIC),
    "covariance d=9": (lambda: KGMRF(n_samples=8).filter(covariances(9)), MATRIX | KINETIC),
    "batch of covariances": (
        lambda: KGMRF(n_samples=8).filter(covariances(2, items=3)),
        MATRIX | KINETIC,
    ),
    "fixed gains": (
        lambda: KGMRF(n_samples=8, gains="zero_lag").filter(covariances(2)),
        MATRIX | {"major axis", "speed", "log-likelihood"},
    ),
    "moving average": (
        lambda: EuclideanEMA(n_samples=8).filter(covariances(3)),
        MATRIX | {"log-likelihood"},
    ),
    "moving average, ellipse": (
        lambda: EuclideanEMA().filter(covariances(2)),
        MATRIX | {"major axis"},
    ),
    "alpha-beta leaves the cone": (lambda: AlphaBeta().filter(covariances(3)), MATRIX),
    "rotation d=2": (
        lambda: RotationTracker(2, noise_std=0.05, gains="information").filter(rotations(2)),
        KINETIC | {"angle"},
    ),
    "rotation d=3": (
        lambda: RotationTracker(noise_std=0.05, gains="information").filter(rotations(3)),
        KINETIC | {"rotation vector"},
    ),
    "rotation d=4": (
        lambda: RotationTracker(4, noise_std=0.05, gains="information").filter(rotations(4)),
        KINETIC | {"angle from start"},
    ),
    "batch of rotations": (
        lambda: RotationTracker(noise_std=0.05, gains="information").filter(rotations(3, items=3)),
        KINETIC | {"angle from start"},
    ),
    "rotation baseline": (
        lambda: HoldLast(kind="rotation").filter(rotations(3)),
        {"rotation vector"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_every_result_has_the_panels_of_what_it_knows(case: str, tmp_path: Path) -> None:
    make, expected = CASES[case]
    path = tmp_path / "result.png"
    figure = make().plot(path)
    assert path.read_bytes().startswith(PNG)
    assert panels(figure) == expected
    assert figure.axes[-1].get_xlabel() == "time"
    for axes in figure.axes:
        assert drawn(axes).size > 0
        assert axes.collections, "the gap is not shaded"


def test_what_is_drawn_is_the_result() -> None:
    result = KGMRF(n_samples=8).filter(covariances(3))
    by_name = {axes.get_ylabel().split("\n")[0]: axes for axes in result.plot().axes}
    assert by_name["eigenvalues"].get_yscale() == "log"
    spectrum = [line.get_ydata() for line in by_name["eigenvalues"].get_lines()]
    assert np.array_equal(np.stack(spectrum, axis=-1), result.spectrum)
    speed = by_name["speed (degrees"].get_lines()[0].get_ydata()
    i, j = np.triu_indices(3, 1)
    rates = result.velocity[:, i, j]
    assert np.allclose(speed, np.degrees(np.sqrt((rates**2).sum(axis=-1))))
    worst, best = (by_name["angle std"].get_lines()[k].get_ydata() for k in (0, 1))
    assert (worst >= best).all()
    assert np.isclose(worst.max(), np.degrees(result.angle_std[:, i, j].max()))


def test_no_observation_at_all_still_gives_a_picture(tmp_path: Path) -> None:
    result = KGMRF(d=2, n_samples=8).filter(np.full((5, 2, 2), np.nan))
    figure = drawing.plot_result(result, tmp_path / "nothing.svg")
    assert panels(figure) == {"eigenvalues", "angle std"}  # the prior is known
    assert b"<svg" in (tmp_path / "nothing.svg").read_bytes()


def test_one_frame() -> None:
    result = KGMRF(n_samples=8).filter(covariances(2)[:1])
    figure = result.plot()
    assert drawn(figure.axes[0]).size == 4  # two eigenvalues, each as a line and as a dot


def test_items_with_clocks_of_their_own_share_the_frame_number() -> None:
    tracker = KGMRF(n_samples=8)
    seen = covariances(2, items=2, observed=None)[:10]
    estimates = [tracker.update(frame, dt=np.asarray([1.0, 2.0])) for frame in seen]
    result = Result(
        {name: np.stack([getattr(e, name) for e in estimates]) for name in MATRIX_FIELDS}
    )
    assert result.plot().axes[-1].get_xlabel() == "frame"


MATRIX_FIELDS = (
    "time",
    "age",
    "covariance",
    "frame",
    "spectrum",
    "velocity",
    "angle_std",
    "nis",
    "log_likelihood",
)


def test_a_turning_ellipse_is_followed_through_half_turns() -> None:
    scene = simulate.ellipse(0.1, n_frames=100, n_samples=None, noise_floor=0.0)
    axes = HoldLast().filter(scene.observations).plot().axes[1]
    angle = axes.get_lines()[0].get_ydata()
    assert np.allclose(angle, np.degrees(0.1 * np.arange(100)))


def test_a_rotation_vector_has_no_line_across_half_a_turn() -> None:
    scene = simulate.rotating_frame(3, rate=0.1, n_frames=100, noise_std=0.0)
    figure = HoldLast(kind="rotation").filter(scene.observations).plot()
    for line in figure.axes[0].get_lines()[:3]:
        steps = np.abs(np.diff(np.asarray(line.get_ydata(), float)))
        assert np.nanmax(steps) < 20.0


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_same_result_gives_the_same_bytes(ending: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{k}.{ending}" for k in range(2)]
    for path in paths:
        EuclideanEMA().filter(covariances(3)).plot(path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_figure_needs_a_known_ending_and_a_folder(tmp_path: Path) -> None:
    result = EuclideanEMA().filter(covariances(2))
    with pytest.raises(ValueError, match=r"\.png, \.svg or \.pdf"):
        result.plot(tmp_path / "picture.doc")
    with pytest.raises(FileNotFoundError, match="does not exist"):
        result.plot(tmp_path / "nowhere" / "picture.png")


def test_the_style_ends_with_its_block() -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    with drawing.style():
        assert matplotlib.rcParams["font.size"] == 8.0
    KGMRF(n_samples=8).filter(covariances(2)).plot()
    assert dict(matplotlib.rcParams) == before


def test_drawing_opens_no_window_and_importing_loads_no_matplotlib() -> None:
    program = (
        "import sys, kgmrf, kgmrf.plots\n"
        "assert not {'matplotlib', 'typer', 'rich'} & set(sys.modules)\n"
        "scene = kgmrf.simulate.ellipse(n_frames=20)\n"
        "kgmrf.KGMRF(n_samples=8).filter(scene.observations).plot()\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    path = {**os.environ, "PYTHONPATH": str(Path(drawing.__file__).parents[2])}
    call = [sys.executable, "-c", program]
    done = subprocess.run(call, capture_output=True, text=True, env=path)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------------- ellipses


def test_ellipses_have_the_axes_and_angle_of_their_covariance(tmp_path: Path) -> None:
    scene = simulate.ellipse(0.1, n_frames=8, spectrum=(4.0, 1.0))
    path = tmp_path / "ellipses.png"
    figure = drawing.plot_ellipses(scene.covariance, path, n_shown=8)
    assert path.read_bytes().startswith(PNG)
    (collection,) = figure.axes[0].collections
    assert np.allclose(collection.get_widths(), 2.0 * collection.get_heights())
    turned = (collection.get_angles() - np.degrees(0.1 * np.arange(8)) + 90.0) % 180.0 - 90.0
    assert np.allclose(turned, 0.0, atol=1e-9)


def test_rows_of_ellipses_over_the_truth() -> None:
    scene = simulate.ellipse(n_frames=60, observed=GAP)
    result = KGMRF(n_samples=8).filter(scene.observations)
    broken = result.covariance.copy()
    broken[:30] = np.nan
    rows = {"KGMRF": result.covariance, "broken": broken}
    figure = drawing.plot_ellipses(rows, truth=scene.covariance, observed=GAP, n_shown=10)
    (axes,) = figure.axes
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["KGMRF", "broken"]
    counts = [len(c.get_offsets()) for c in axes.collections[1:]]
    assert counts == [10, 10, 10, 5]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (dict(covariances=np.ones((4, 3, 3))), "estimate must have shape"),
        (dict(covariances=np.ones((0, 2, 2))), "estimate must have shape"),
        (dict(covariances=np.ones((4, 2, 2)), truth=np.ones((5, 2, 2))), "truth must have shape"),
        (dict(covariances=np.ones((4, 2, 2)), times=np.arange(3)), "times must have shape"),
        (dict(covariances={}), "nothing to draw"),
    ],
)
def test_ellipses_refuse_what_they_cannot_draw(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        drawing.plot_ellipses(**arguments)


# ---------------------------------------------------------------------- labels


@given(
    wanted=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=9).map(sorted),
    spacing=st.floats(0.5, 11.0),
)
def test_labels_stand_apart_in_order_and_inside(wanted: list[float], spacing: float) -> None:
    places = apart(wanted, spacing, 0.0, 100.0)
    assert (np.diff(places) >= spacing - 1e-9).all()
    assert min(places) >= -1e-9
    assert max(places) <= 100.0 + 1e-9
    if (np.diff(wanted) >= spacing).all():
        assert np.allclose(places, wanted)


def test_labels_that_collide_keep_their_centre() -> None:
    assert apart([50.0, 50.0, 50.0], 10.0, 0.0, 100.0) == [40.0, 50.0, 60.0]


# ---------------------------------------------------------------------- dates, starts, limits


def test_dates_are_drawn_as_dates() -> None:
    pd = pytest.importorskip("pandas")
    days = pd.date_range("2024-01-01", periods=60, freq="B")
    table = pd.DataFrame(np.random.default_rng(0).standard_normal((60, 3)), index=days)
    axes = KGMRF().filter(table).plot().axes[-1]
    axes.figure.draw_without_rendering()
    words = [tick.get_text() for tick in axes.get_xticklabels()]
    assert "Feb" in words
    assert axes.get_xlabel() == ""


def test_the_start_does_not_stretch_the_eigenvalues() -> None:
    rows = np.random.default_rng(1).standard_normal((80, 6))
    axes = KGMRF().filter(rows).plot().axes[0]
    assert axes.get_ylim()[0] > 1e-3


def test_an_uncertainty_at_its_limit_says_so() -> None:
    rows = np.random.default_rng(2).standard_normal((60, 3))
    figure = KGMRF().filter(rows).plot()
    texts = {text.get_text() for axes in figure.axes for text in axes.texts}
    assert "limit: direction unknown" in texts
    assert "least certain pair" in texts
