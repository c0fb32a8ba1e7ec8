"""The ensemble of the core is the readable one, part by part, whatever comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf.constants import STRUCTS
from kgmrf.engines import Lines, core
from kgmrf.engines import layout as at
from kgmrf.engines.ensemble import Ensemble
from kgmrf.members import Average, Diagonal, Rotating
from kgmrf.readable import Ensemble as Readable

pytestmark = pytest.mark.skipif(core.compiled() is None, reason="no compiled core")

MANY = tuple(Average(8.0 + k, size_gain=0.1) for k in range(9))  # more than a vector of sizes
OTHERS: tuple[Any, ...] = (
    None,
    (Rotating(1e-6),),
    (Diagonal(8.0), Diagonal(64.0)),
    (Average(4.0, 0.3, 16.0, True),),
    (Average(2.0), *MANY, Rotating(1e-4, spectrum_rate=1e-2)),
)
AMPLIFIED = 200.0
"""How much more than one ulp of what goes in two ways of rounding may differ in what comes out."""


def twin_of(engine: Ensemble) -> Readable:
    """The readable loop of an engine."""
    plan = engine.plan
    return Readable(engine.d, plan.table, plan.places, np.array(plan.learning))


def parts(row: np.ndarray, engine: Ensemble, axes: bool) -> Iterator[tuple[str, np.ndarray, float]]:
    """Name, numbers and least scale of every part of a row."""
    track, members = at.track(row, engine.plan), engine.plan.table
    for name, number in zip(STRUCTS["Head"], track.head, strict=True):
        yield name, np.atleast_1d(number), 1.0
    yield "tails", track.tails, 1.0
    yield "roots", track.roots, 1.0
    yield "level", track.level, 0.0
    yield "units", track.units, 0.0
    yield "bias", track.bias, 1.0
    yield "scatter", track.scatter, 0.0
    of = {
        "log size": (members[:, at.SIZE_GAIN] > 0, track.size, 1.0),
        "mass": (members[:, at.KIND] == at.AVERAGE, track.mass, 1.0),
        "deviation": (members[:, at.CHANNEL] > 0, track.deviation, 0.0),
        "body": (members[:, at.KIND] == at.AVERAGE, track.body, 0.0),
    }
    for name, (has, numbers, least) in of.items():
        for k, own in zip(np.flatnonzero(has), numbers, strict=True):
            yield f"member {k}, {name}", np.atleast_1d(own), least
    for k, own in zip(
        np.flatnonzero(members[:, at.KIND] == at.TURNING), track.turning, strict=True
    ):
        if at.pooling(track):
            yield f"member {k}, pool", own[: engine.d * (engine.d + 1) // 2], 0.0
            continue
        turned = at.turned(own, engine.d)
        whole = (turned.frame * turned.spectrum) @ turned.frame.T
        yield f"member {k}, Q diag(lam) Q^T", whole, 0.0
        if axes and (turned.velocity != 0.0).any():  # the signs of axes at the start are free
            # A velocity is known to its standard deviation: less of it is what rounding left.
            least = {"frame": 1.0, "velocity": float(np.sqrt(turned.p22.max(initial=0.0)))}
            for name, numbers in turned._asdict().items():
                yield f"member {k}, {name}", numbers, least.get(name, 0.0)


def differ(
    row: np.ndarray, expected: np.ndarray, engine: Ensemble, spread: Any, axes: bool = True
) -> list[str]:
    """Names of the parts that are further apart than rounding explains.

    spread: the expected row again, from input one ulp apart. axes: whether both have the same.
    """
    wrong = []
    for (name, a, least), (_, b, _), (_, c, _) in zip(
        *(parts(numbers, engine, axes) for numbers in (row, expected, spread)), strict=True
    ):
        scale = max(least, float(np.nanmax(np.abs(b), initial=0.0)))
        bound = 1e-9 * scale + AMPLIFIED * float(np.nanmax(np.abs(b - c), initial=0.0))
        apart = float(np.nanmax(np.abs(a - b), initial=0.0))
        if (np.isnan(a) != np.isnan(b)).any() or apart > bound:
            wrong.append(f"{name}: {apart:.3g} apart, scale {scale:.3g}, bound {bound:.3g}")
    return wrong


def one_ulp(numbers: np.ndarray, begin: int = 0) -> np.ndarray:
    """The numbers, every other one from the first or second on an ulp larger."""
    out = numbers.copy()
    out[..., begin::2] = np.nextafter(out[..., begin::2], np.inf)
    return np.where(numbers == 0.0, 0.0, out)


def rounded_line(line: Lines, begin: int = 0) -> Lines:
    """The line with values and intervals an ulp off; matrices stay symmetric."""
    seen = one_ulp(line.values, begin)
    if line.matrix:
        seen = np.tril(seen) + np.swapaxes(np.tril(seen, -1), -1, -2)
    return line._replace(values=seen, dt=one_ulp(line.dt))


def further(expected: np.ndarray, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of two spreads, number by number the one that is further from what is expected."""
    return np.where(np.abs(b - expected) > np.abs(a - expected), b, a)


def run(loop: Any, engine: Ensemble, rows: np.ndarray, lines: Lines) -> Any:
    """Rows after the lines, status and records."""
    rows, n = rows.copy(), len(lines.track_index)
    status, records = np.zeros(n, np.int8), np.empty((n, engine.record_size))
    with np.errstate(all="ignore"):
        loop.run(rows, *lines[:4], bool(lines.matrix), lines.tolerance, records, status)
    return rows, status, records


@st.composite
def sequences(draw: st.DrawFn, gap: float = 300.0, learns: bool = False) -> tuple[Ensemble, Lines]:
    """An engine, and lines of one track: gaps, missing cells, late channels, outliers, units."""
    d = draw(st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 12]))
    members = draw(st.sampled_from(OTHERS if d > 1 else (None, OTHERS[2], OTHERS[3])))
    engine = Ensemble(d, members, learns_samples=learns)
    n, m = draw(st.integers(2, 60)), draw(st.sampled_from([1, 1, 2, 5]))
    matrix = draw(st.booleans())
    m = max(m, 2 * d) if matrix else m
    g = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = g.normal(size=(n, m, d)) @ (g.normal(size=(d, d)) + np.eye(d))
    x *= 10.0 ** g.uniform(-3.0, 3.0, d) if draw(st.booleans()) else 1.0
    if draw(st.booleans()):  # an outlier
        x[n // 2] *= 30.0
    if d > 1 and draw(st.booleans()):  # a channel comes late
        x[: n // 2, :, -1] = 0.0
    if not matrix:
        x[g.random(x.shape) < draw(st.sampled_from([0.0, 0.0, 0.1, 0.5]))] = np.nan
    counts = np.where(g.random(n) < draw(st.sampled_from([0.0, 0.2])), 0.0, float(m))
    dt = np.append(0.0, g.choice([0.0, 0.3, 1.0, 1.0, 7.0, gap], n - 1))
    values = np.swapaxes(x, 1, 2) @ x / m if matrix else x
    lines = Lines(np.zeros(n, np.int64), np.ascontiguousarray(values), counts, dt, matrix, 1e-8)
    return engine, lines


@settings(max_examples=80, deadline=None)
@given(sequences())
def test_one_step_from_the_same_rows(drawn: tuple[Ensemble, Lines]) -> None:
    one_step_from_the_same_rows(*drawn)


@settings(max_examples=40, deadline=None)
@given(sequences(learns=True))
def test_one_step_where_the_worth_of_samples_is_learned(drawn: tuple[Ensemble, Lines]) -> None:
    one_step_from_the_same_rows(*drawn)


def one_step_from_the_same_rows(engine: Ensemble, lines: Lines) -> None:
    twin = twin_of(engine)
    rows = engine.init(1)
    for k in range(len(lines.track_index)):
        line = lines.part(slice(k, k + 1))
        after, status, records = run(engine.loop, engine, rows, line)
        expected, wanted, told = run(twin, engine, rows, line)
        spread, _, around = run(twin, engine, rows, rounded_line(line))
        nudged = rows.copy()
        nudged[:, at.N_HEAD :] = one_ulp(rows[:, at.N_HEAD :])
        nudged = run(twin, engine, nudged, line)[0]
        assert status[0] == wanted[0]
        spread = further(expected, spread, nudged)
        assert not differ(after[0], expected[0], engine, spread[0]), f"step {k}"
        small = engine.small
        scale = np.nanmax(np.abs(told[0, small:]), initial=1e-300)
        bound = 1e-9 * scale + AMPLIFIED * np.nanmax(np.abs(around - told)[0, small:], initial=0.0)
        np.testing.assert_array_equal(np.isnan(records), np.isnan(told))
        assert np.nanmax(np.abs(records - told)[0, small:], initial=0.0) <= bound, f"record {k}"
        rows = after


def rounded(twin: Any, engine: Ensemble, lines: Lines, begin: int) -> Any:
    """Rows and records of the twin whose input and rows are an ulp off at every step."""
    rows, records = engine.init(1), []
    for k in range(len(lines.track_index)):
        rows[:, at.N_HEAD :] = one_ulp(rows[:, at.N_HEAD :], begin)
        line = lines.part(slice(k, k + 1))
        rows, _, told = run(twin, engine, rows, rounded_line(line, begin))
        records.append(told[0])
    return rows, np.array(records)


@settings(max_examples=30, deadline=None)
@given(sequences(gap=7.0))  # a gap multiplies what rounding left in a velocity
def test_whole_sequences_within_their_conditioning(drawn: tuple[Ensemble, Lines]) -> None:
    engine, lines = drawn
    twin, rows = twin_of(engine), engine.init(1)
    after, status, records = run(engine.loop, engine, rows, lines)
    expected, wanted, told = run(twin, engine, rows, lines)
    (spread, around), (other, beside) = (rounded(twin, engine, lines, k) for k in (0, 1))
    spread, around = further(expected, spread, other), further(told, around, beside)
    np.testing.assert_array_equal(status, wanted)
    assert not differ(after[0], expected[0], engine, spread[0], axes=False)
    small = engine.small
    np.testing.assert_array_equal(np.isnan(records), np.isnan(told))
    scale = np.nanmax(np.abs(told[:, small:]), axis=1, initial=1e-300)
    bound = 1e-9 * scale + AMPLIFIED * np.nanmax(
        np.abs(around - told)[:, small:], axis=1, initial=0
    )
    assert (np.nanmax(np.abs(records - told)[:, small:], axis=1, initial=0.0) <= bound).all()


def test_lines_that_cannot_be_used_change_nothing() -> None:
    d = 3
    engine = Ensemble(d)
    twin = twin_of(engine)
    good = np.diag([3.0, 2.0, 1.0])
    bad = [
        np.diag([3.0, np.inf, 1.0]),
        np.diag([3.0, np.nan, 1.0]),
        good + np.eye(3, k=1),
        np.diag([3.0, 1.0, -0.5]),
        np.zeros((3, 3)),
        1e151 * good,
        1e-152 * good,
        np.full((3, 3), np.nan),
        good,
    ]
    n = len(bad)
    lines = Lines(np.zeros(n, np.int64), np.array(bad), np.full(n, 5.0), np.ones(n), True, 1e-8)
    rows, status, _ = run(engine.loop, engine, engine.init(1), lines)
    expected, wanted, _ = run(twin, engine, engine.init(1), lines)
    assert status.tolist() == wanted.tolist() == [2] * 7 + [0, 1]
    assert not differ(rows[0], expected[0], engine, expected[0])
    samples = np.array([[[np.nan, 1e76, 1.0]], [[np.nan] * 3], [[1.0, 2.0, np.nan]]])
    lines = Lines(np.zeros(3, np.int64), samples, np.ones(3), np.ones(3), False)
    for loop in (engine.loop, twin):
        assert run(loop, engine, engine.init(1), lines)[1].tolist() == [2, 0, 1]
