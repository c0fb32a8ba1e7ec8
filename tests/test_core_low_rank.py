"""Low rank on the core is the readable one, part by part, whatever comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf import KGMRF
from kgmrf.constants import STRUCTS
from kgmrf.engines import INVALID, Lines, core
from kgmrf.engines import layout as at
from kgmrf.engines.low_rank import LowRank
from kgmrf.engines.low_rank_layout import BUFFERED, Factors, track
from kgmrf.model.factors import compose
from kgmrf.readable import LowRank as Readable

pytestmark = pytest.mark.skipif(core.compiled() is None, reason="no compiled core")

ONE = (Factors(1, 0.05, 40.0, 40.0, 0.1),)
MOVING = (Factors(2, 0.02, 40.0, 20.0, 0.3, 0.01), Factors(3, 0.02, 100.0, 20.0, 0.0, 0.1))
AMPLIFIED = 200.0
"""How much more than one ulp of what goes in two ways of rounding may differ in what comes out."""


def parts(row: np.ndarray, engine: LowRank, axes: bool) -> Iterator[tuple[str, np.ndarray, float]]:
    """Name, numbers and least scale of every part of a row.

    axes: whether the axes of two rows are the same. Where they start, their signs are free; what
    they span is not.
    """
    own = track(row, engine.plan)
    for name, number in zip(STRUCTS["Head"], own.head, strict=True):
        yield name, np.atleast_1d(number), 1.0
    yield "tails", own.tails, 1.0
    yield "roots", own.roots, 1.0
    for name in ("level", "counts", "first", "buffer"):
        yield name, getattr(own, name), 0.0
    for k, (law, part) in enumerate(zip(engine.members, own.parts, strict=True)):
        for name in ("noise", "metric"):
            yield f"member {k}, {name}", getattr(part, name), 0.0
        for name, number in zip(STRUCTS["FactorsNumbers"], part.numbers, strict=True):
            yield f"member {k}, {name}", np.atleast_1d(number), 1.0
        if axes:
            yield f"member {k}, axes", part.axes, 1.0
            yield f"member {k}, velocity", part.states[law.rank :], 1e-3
            yield f"member {k}, angle_var", part.angle_var, 0.0
            yield f"member {k}, spectrum", part.spectrum, 0.0
            continue
        u, v, r = part.axes, part.states[law.rank :], law.rank
        yield f"member {k}, U^T U", u.T @ u, 1.0
        yield f"member {k}, U^T Lam U", u.T @ part.spectrum @ u, 0.0
        yield f"member {k}, U^T P U", u.T @ part.angle_var[:r, :r] @ u, 0.0
        if len(v):
            yield f"member {k}, U^T V", u.T @ v, 1e-3
            yield f"member {k}, U^T P_UV U", u.T @ part.angle_var[:r, r:] @ u, 0.0
            yield f"member {k}, U^T P_VV U", u.T @ part.angle_var[r:, r:] @ u, 0.0


def differ(
    row: np.ndarray,
    expected: np.ndarray,
    engine: LowRank,
    spread: list[np.ndarray],
    axes: bool,
) -> list[str]:
    """Names of the parts that are further apart than rounding explains.

    spread: the expected row again, from input one ulp apart.
    """
    wrong = []
    others = [list(parts(numbers, engine, axes)) for numbers in spread]
    for k, ((name, a, least), (_, b, _)) in enumerate(
        zip(parts(row, engine, axes), parts(expected, engine, axes), strict=True)
    ):
        scale = max(least, float(np.nanmax(np.abs(b), initial=0.0)))
        moved = max(float(np.nanmax(np.abs(b - other[k][1]), initial=0.0)) for other in others)
        bound, apart = (
            1e-9 * scale + AMPLIFIED * moved,
            float(np.nanmax(np.abs(a - b), initial=0.0)),
        )
        if (np.isnan(a) != np.isnan(b)).any() or apart > bound:
            wrong.append(f"{name}: {apart:.3g} apart, scale {scale:.3g}, bound {bound:.3g}")
    return wrong


def one_ulp(numbers: np.ndarray) -> np.ndarray:
    """The numbers, every other one an ulp larger."""
    out = numbers.copy()
    out[..., ::2] = np.nextafter(out[..., ::2], np.inf)
    return np.where(numbers == 0.0, 0.0, out)


def nudged(rows: np.ndarray) -> np.ndarray:
    """Rows with all but the head, which counts, an ulp off."""
    out = rows.copy()
    out[:, at.N_HEAD :] = one_ulp(rows[:, at.N_HEAD :])
    return out


def run(loop: Any, engine: LowRank, rows: np.ndarray, lines: Lines) -> Any:
    """Rows after the lines, status and records."""
    rows, n = rows.copy(), len(lines.track_index)
    status, records = np.zeros(n, np.int8), np.empty((n, engine.record_size))
    with np.errstate(all="ignore"):
        loop.run(rows, *lines[:4], False, -1.0, records, status)
    return rows, status, records


def twin_of(engine: LowRank) -> Any:
    return Readable(engine.d, engine.plan.table, engine.plan.places)


def blended(engine: LowRank, records: np.ndarray) -> np.ndarray:
    return compose(*engine.factors(records))


@st.composite
def sequences(draw: st.DrawFn, gap: float = 300.0) -> tuple[LowRank, Lines]:
    """An engine, and lines of one track: gaps, missing cells, late channels, outliers, units."""
    d = draw(st.sampled_from([3, 5, 8, 9, 16, 20, 33]))
    members = draw(st.sampled_from([None, None, ONE, MOVING]))
    engine = LowRank(d, draw(st.sampled_from([None, 1, 2, 3])), members)
    n, m = draw(st.integers(2, 60)), draw(st.sampled_from([1, 1, 1, 3]))
    g = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = g.normal(size=(n, m, 2)) @ g.normal(size=(2, d)) + g.normal(size=(n, m, d))
    x *= 10.0 ** g.uniform(-3.0, 3.0, d) if draw(st.booleans()) else 1.0
    if draw(st.booleans()):  # an outlier
        x[n // 2] *= 1e3
    if draw(st.booleans()):  # a channel comes late
        x[: n // 2, :, -1] = 0.0
    x[g.random(x.shape) < draw(st.sampled_from([0.0, 0.0, 0.1, 0.5]))] = np.nan
    counts = np.where(g.random(n) < draw(st.sampled_from([0.0, 0.2])), 0.0, 1.0)
    dt = np.append(0.0, g.choice([0.0, 0.3, 1.0, 1.0, 7.0, gap], n - 1))
    return engine, Lines(np.zeros(n, np.int64), x, counts, dt, False)


@settings(max_examples=40, deadline=None)
@given(sequences())
def test_one_step_from_the_same_rows(drawn: tuple[LowRank, Lines]) -> None:
    engine, lines = drawn
    twin, rows = twin_of(engine), engine.init(1)
    for k in range(len(lines.track_index)):
        line = lines.part(slice(k, k + 1))
        after, status, records = run(engine.loop, engine, rows, line)
        expected, wanted, told = run(twin, engine, rows, line)
        spread = [
            run(twin, engine, rows, line._replace(values=one_ulp(line.values))),
            run(twin, engine, nudged(rows), line),
        ]
        assert status[0] == wanted[0]
        same = bool((after[:, BUFFERED] == rows[:, BUFFERED]).all())
        around = [numbers[0][0] for numbers in spread]
        assert not differ(after[0], expected[0], engine, around, same), f"step {k}"
        np.testing.assert_array_equal(np.isnan(records), np.isnan(told))
        found, truth = blended(engine, records), blended(engine, told)
        scale = np.nanmax(np.abs(truth), initial=1e-300)
        moved = max(np.nanmax(np.abs(blended(engine, s[2]) - truth), initial=0.0) for s in spread)
        apart = np.nanmax(np.abs(found - truth), initial=0.0)
        assert apart <= 1e-9 * scale + AMPLIFIED * moved, f"record {k}"
        rows = after


def rounded(twin: Any, engine: LowRank, lines: Lines) -> np.ndarray:
    """Rows of the twin whose input and rows are an ulp off at every step."""
    rows = engine.init(1)
    for k in range(len(lines.track_index)):
        line = lines.part(slice(k, k + 1))
        line = line._replace(values=one_ulp(line.values))
        rows = run(twin, engine, nudged(rows), line)[0]
    return rows


@settings(max_examples=20, deadline=None)
@given(sequences(gap=7.0))
def test_whole_sequences_within_their_conditioning(drawn: tuple[LowRank, Lines]) -> None:
    engine, lines = drawn
    twin, rows = twin_of(engine), engine.init(1)
    after, status, records = run(engine.loop, engine, rows, lines)
    expected, wanted, told = run(twin, engine, rows, lines)
    np.testing.assert_array_equal(status, wanted)
    np.testing.assert_array_equal(np.isnan(records), np.isnan(told))
    assert not differ(after[0], expected[0], engine, [rounded(twin, engine, lines)[0]], False)
    engine.check(after)


def test_lines_that_cannot_be_used_change_nothing() -> None:
    engine = LowRank(4)
    x = np.random.default_rng(0).normal(size=(30, 1, 4))
    x[20, 0, 2], x[25, 0, 1] = 1e80, np.inf
    lines = Lines(np.zeros(30, np.int64), x, np.ones(30), np.ones(30), False)
    for loop in (engine.loop, twin_of(engine)):
        rows, status, _ = run(loop, engine, engine.init(1), lines)
        assert np.flatnonzero(status == INVALID).tolist() == [20, 25]
        without = lines.part(status != INVALID)
        np.testing.assert_array_equal(rows, run(loop, engine, engine.init(1), without)[0])


def test_the_readable_engine_runs_every_tracker(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).normal(size=(25, 6)) * 10.0 ** np.arange(-2, 4)
    for settings_ in ({"rank": 2}, {"rank": 2, "rotating_axes": True}):
        expected = KGMRF(**settings_).filter(x)
        monkeypatch.setenv("KGMRF_ENGINE", "readable")
        tracker = KGMRF(**settings_)
        found = tracker.filter(x)
        assert type(tracker._engine.loop._loop) is Readable
        monkeypatch.delenv("KGMRF_ENGINE")
        np.testing.assert_allclose(found.log_likelihood, expected.log_likelihood, rtol=1e-9)
        np.testing.assert_allclose(found.covariance[-1], expected.covariance[-1], rtol=1e-8)


def test_the_bits_do_not_depend_on_chunks_or_on_who_else_is_in_the_bank() -> None:
    engine, g = LowRank(40), np.random.default_rng(0)
    x = g.normal(size=(90, 3, 1, 40))
    x[g.random(x.shape) < 0.05] = np.nan
    alone = engine.init(3)
    for k in range(3):
        lines = Lines(np.full(90, k), x[:, k].copy(), np.ones(90), np.ones(90), False)
        engine.advance(alone, lines, 0)
    together = engine.init(3)
    for piece in np.split(np.arange(90), [1, 2, 30, 31]):
        order = g.permutation(3)
        which = np.tile(order, len(piece))
        seen = x[piece][:, order].reshape(-1, 1, 40)
        lines = Lines(which, seen.copy(), np.ones(len(which)), np.ones(len(which)), False)
        engine.advance(together, lines, 0)
    np.testing.assert_array_equal(alone, together)


@pytest.mark.parametrize("n", [1, 2, 3, 7, 40])
def test_as_many_axes_as_channels_and_rows_that_say_little(n: int) -> None:
    """Ranks up to d, repeated rows, rows of zeros: the core goes on and its rows can be saved."""
    g = np.random.default_rng(n)
    few = np.repeat(g.normal(size=(3, n)), 20, axis=0)
    few[20:40] = 0.0
    for rank in {1, max(1, n // 2), n}:
        engine = LowRank(n, rank, rotating_axes=True)
        lines = Lines(np.zeros(60, np.int64), few[:, None], np.ones(60), np.ones(60), False)
        rows, _, records = run(engine.loop, engine, engine.init(1), lines)
        engine.check(rows)
        assert np.isfinite(records[1:, engine.small :]).all()
        assert np.isfinite(run(twin_of(engine), engine, engine.init(1), lines)[0]).any()
