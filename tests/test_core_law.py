"""Single laws of the core are the readable ones, part by part, whatever comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from kgmrf import KGMRF, RotationTracker, gains
from kgmrf.constants import STRUCTS
from kgmrf.engines import Lines, core
from kgmrf.engines.law import SingleLaw
from kgmrf.engines.law_row import SEEN, folded, parts, places
from kgmrf.readable import Law

pytestmark = pytest.mark.skipif(core.compiled() is None, reason="no compiled core")

AMPLIFIED = 200.0
"""How much more than one ulp of what goes in two ways of rounding may differ in what comes out."""

LAWS = (
    gains.information(1e-4, angle_noise=1e-5),
    gains.information(1e-3, retention=0.9),
    gains.zero_lag(0.3, 0.05),
    gains.zero_lag(0.1, 0.01, coast_retention=0.9),
    gains.printed(),
    gains.FixedGains(0.1, 0.05, ridge=0.3),
)


def named(
    row: np.ndarray, engine: SingleLaw, axes: bool
) -> Iterator[tuple[str, np.ndarray, float]]:
    """Name, numbers and least scale of every part of a row.

    axes: whether two rows have the same. Where a track starts, their order and signs are free.
    """
    d, own = engine.d, parts(row, engine.d, engine.information)
    for name, number in zip(STRUCTS["LawHead"], own["clocks"], strict=True):
        yield name, np.atleast_1d(number), 1.0
    Q, W = own["frame"].reshape(d, d), folded(own["velocity"], d, -1.0)
    if engine.rotation:
        yield "Q", Q, 1.0
    else:
        yield "Q diag(lam) Q^T", (Q * own["spectrum"]) @ Q.T, 0.0
    yield "Q W Q^T", Q @ W @ Q.T, 1e-3
    yield "pool", own["pool"], 0.0
    for name in ("frame", "spectrum_var", "p11", "p12", "p22"):
        if axes and name in own:
            yield name, own[name], 1.0 if name == "frame" else 0.0


def differ(
    found: Any, expected: Any, spreads: Any, engine: SingleLaw, axes: bool = True
) -> list[str]:
    """Names of the parts that are further apart than rounding explains.

    spreads: what is expected of input and rows one ulp apart.
    """
    wrong = []
    for (name, a, least), (_, b, _), *others in zip(
        *(named(row, engine, axes) for row in (found, expected, *spreads)), strict=True
    ):
        scale = max(least, float(np.nanmax(np.abs(b), initial=0.0)))
        spread = max(float(np.nanmax(np.abs(b - c), initial=0.0)) for _, c, _ in others)
        apart = float(np.nanmax(np.abs(a - b), initial=0.0))
        if (np.isnan(a) != np.isnan(b)).any() or apart > 1e-9 * scale + AMPLIFIED * spread:
            wrong.append(f"{name}: {apart:.3g} apart, scale {scale:.3g}, spread {spread:.3g}")
    return wrong


def one_ulp(numbers: np.ndarray) -> np.ndarray:
    """The numbers, every other one an ulp larger."""
    out = numbers.copy()
    out[..., ::2] = np.nextafter(out[..., ::2], np.inf)
    return np.where(numbers == 0.0, 0.0, out)


def nudged(rows: np.ndarray, engine: SingleLaw) -> np.ndarray:
    """The rows with all but their clocks an ulp off."""
    out = rows.copy()
    clocks = parts(out, engine.d, engine.information)["clocks"].shape[-1]
    out[:, clocks:] = one_ulp(rows[:, clocks:])
    return out


def run(engine: SingleLaw, loop: Any, rows: np.ndarray, lines: Lines) -> tuple[Any, Any]:
    """Rows and status after the lines."""
    rows = rows.copy()
    engine.loop = loop
    return rows, engine.advance(rows, lines, 0)[0]


def follows(rows: np.ndarray, engine: SingleLaw) -> bool:
    """Whether the track is past its cold start, when the frame is found again at each step."""
    own = parts(rows[0], engine.d, engine.information)
    return bool(np.isfinite(own["clocks"][SEEN]) and not own["pool"].any())


def rounded(lines: Lines) -> Lines:
    """The lines with values an ulp off."""
    seen = one_ulp(lines.values)
    if (lines.values == np.swapaxes(lines.values, 1, 2)).all():  # symmetric they stay
        seen = np.tril(seen) + np.swapaxes(np.tril(seen, -1), -1, -2)
    return lines._replace(values=seen)


def both(engine: SingleLaw) -> tuple[Any, Any]:
    """The loops: compiled and readable."""
    assert engine.plan is not None
    compiled = core.loop("Law", *engine.plan, places(engine.d, engine.information))
    return compiled, Law(engine.model, engine.d, engine.batch, rotation=engine.rotation)


@st.composite
def sequences(draw: st.DrawFn) -> tuple[SingleLaw, Lines]:
    """An engine, and lines of one track: gaps, outliers, few samples, units, invalid matrices."""
    law, rotation = draw(st.sampled_from(LAWS)), draw(st.booleans())
    d = draw(st.sampled_from([2, 3] if rotation else [1, 2, 3, 4, 5, 7, 8, 9, 12]))
    g = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n = draw(st.integers(2, 40))
    counts = g.choice([1.0, 1.0, 4.0], n) if rotation else np.full(n, float(2 * d))
    if rotation:
        engine = RotationTracker(d, noise_std=0.1, gains=law).engine(())
        walk = np.cumsum(0.1 * g.normal(size=(n, 3)), axis=0) * ([0, 0, 1] if d == 2 else 1)
        seen = Rotation.from_rotvec(walk).as_matrix()[:, :d, :d].copy()
        wild = g.random(n) < draw(st.sampled_from([0.0, 0.1]))
        seen[wild] = np.linalg.qr(g.normal(size=(int(wild.sum()), d, d)))[0]
        seen[wild, :, 0] *= np.linalg.det(seen[wild])[:, None]
    else:
        floor, scale = draw(st.sampled_from([(0.0, 0.0), (0.1, 0.0), (0.0, 1e-2)]))
        kind: Any = draw(st.sampled_from(["adaptive", "fixed", np.geomspace(4.0, 0.5, d)]))
        clocks = {"noise_floor": floor, "scale_rate": scale, "spectrum": kind}
        engine = KGMRF(d, gains=law, n_samples=2 * d, **clocks).engine(())
        x = g.normal(size=(n, 2 * d, d)) @ (g.normal(size=(d, d)) + np.eye(d))
        x *= 10.0 ** draw(st.sampled_from([-3, 0, 3]))
        if draw(st.booleans()):
            x[n // 2] *= 30.0
        seen = np.swapaxes(x, 1, 2) @ x / (2 * d)
    counts[g.random(n) < draw(st.sampled_from([0.0, 0.2]))] = 0.0
    counts[g.random(n) < 0.05] = -1.0
    seen[g.random(n) < 0.05] = np.nan
    seen[g.random(n) < 0.05] *= -1.0
    dt = np.append(0.0, g.choice([0.0, 0.3, 1.0, 1.0, 7.0], n - 1))
    seen = np.ascontiguousarray(seen)
    return engine, Lines(np.zeros(n, np.int64), seen, counts, dt, True, 1e-6)


@settings(max_examples=60, deadline=None)
@given(sequences())
def test_one_step_from_the_same_rows(drawn: tuple[SingleLaw, Lines]) -> None:
    engine, lines = drawn
    compiled, readable = both(engine)
    rows = engine.init(1)
    for k in range(len(lines.track_index)):
        line = lines.part(slice(k, k + 1))
        found, status = run(engine, compiled, rows, line)
        expected, wanted = run(engine, readable, rows, line)
        spreads = [
            run(engine, readable, *near)[0]
            for near in ((rows, rounded(line)), (nudged(rows, engine), line))
        ]
        assert status[0] == wanted[0]
        axes = follows(rows, engine)
        wrong = differ(found[0], expected[0], [s[0] for s in spreads], engine, axes)
        assert not wrong, f"step {k}"
        rows = found


@settings(max_examples=30, deadline=None)
@given(sequences())
def test_whole_sequences_within_their_conditioning(drawn: tuple[SingleLaw, Lines]) -> None:
    engine, lines = drawn
    compiled, readable = both(engine)
    found, status = run(engine, compiled, engine.init(1), lines)
    expected, wanted = run(engine, readable, engine.init(1), lines)
    near = engine.init(1)
    for k in range(len(lines.track_index)):
        line = lines.part(slice(k, k + 1))
        near = run(engine, readable, nudged(near, engine), rounded(line))[0]
    np.testing.assert_array_equal(status, wanted)
    assert not differ(found[0], expected[0], [near[0]], engine, axes=False)
