"""The rotation filter of the core is the readable one, part by part; dense members obey F."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from kgmrf import RotationTracker
from kgmrf.engines import Lines, core
from kgmrf.engines import rotation_row as at
from kgmrf.engines.rotation_row import field, part
from kgmrf.engines.rotations import NO_RATES, Rotations
from kgmrf.readable import Rotations as Readable
from kgmrf.readable.dense import LOWER, Dense, follow, right_jacobian, transition
from kgmrf.readable.isotropic import Track, exp

pytestmark = pytest.mark.skipif(core.compiled() is None, reason="no compiled core")

AMPLIFIED = 200.0
"""How much more than one ulp of what goes in two ways of rounding may differ in what comes out."""


def scaled(rows: np.ndarray, engine: Rotations) -> Iterator[tuple[str, np.ndarray, float]]:
    """Name, numbers and least scale of every part of a row and, after it, of its record."""
    row, record = rows[: engine.size], rows[engine.size :]
    for name in at.ROTATION_HEAD:
        yield name, part(row, name), 1.0 if name not in ("noise", "precision", "now") else 0.0
    members = dict.fromkeys(("p00", "p01", "p11"), 1) | {"delta": 3, "rate": 3}
    for name in at.CORE:
        if name == "head":
            continue
        numbers = part(row, name)
        if name in members:
            least = np.sqrt(part(row, "p00") * part(row, "p11")) if name == "p01" else 0.0
            for k in range(at.K):
                low = 1.0 if members[name] == 3 else float(np.broadcast_to(least, at.K)[k])
                yield f"member {k}, {name}", numbers[..., k], low
        elif name == "tables":
            for j, table in enumerate(numbers):
                yield f"weights {('of all axes', 'of x', 'of y', 'of z')[j]}", table, 1.0
        elif name in ("pending", "earned"):
            for k in range(numbers.shape[-1]):
                yield f"{name}, number {k}", numbers[..., k], 0.0
        else:
            yield name, numbers, 1.0
    if engine.size == at.size(True):
        yield "first", part(row, "first"), 1.0
        yield "dense shares", part(row, "share"), 1.0
        for n in range(at.D):
            for name in ("quaternion", "motion", "age"):
                yield f"dense member {n}, {name}", part(row, name)[..., n], 1.0
            packed, p = part(row, "spread")[:, n], np.zeros((12, 12))
            p[LOWER] = packed
            std = np.sqrt(np.maximum(np.diagonal(p), 1e-300))
            yield f"dense member {n}, correlation", p / np.outer(std, std), 1.0
            yield f"dense member {n}, deviation", std, 0.0
    for name in at.RECORD:
        numbers = field(record, name)
        if name == "cross":  # as a correlation
            numbers = numbers / np.sqrt(field(record, "angle") * field(record, "rate"))
        elif name == "off":
            numbers = numbers / field(record, "angle").max()
        elif name == "velocity":
            numbers = numbers * field(record, "unit")
        yield f"record, {name}", numbers, 0.0 if name in ("angle", "rate", "noise_std") else 1.0


def largest(numbers: np.ndarray) -> float:
    """The largest of them; NaN counts as 0."""
    return float(np.abs(np.nan_to_num(numbers, nan=0.0)).max(initial=0.0))


def differ(
    found: np.ndarray, expected: np.ndarray, spread: list[np.ndarray], engine: Any
) -> list[str]:
    """Names of the parts that are further apart than rounding explains.

    spread: what is expected from input one ulp apart, the one way and the other.
    """
    wrong = []
    for (name, a, least), (_, b, _), *others in zip(
        *(scaled(numbers, engine) for numbers in (found, expected, *spread)), strict=True
    ):
        scale = max(least, largest(b))
        bound = 1e-9 * scale + AMPLIFIED * max(largest(b - other) for _, other, _ in others)
        apart = largest(a - b)
        if (np.isnan(a) != np.isnan(b)).any() or apart > bound:
            wrong.append(f"{name}: {apart:.3g} apart, scale {scale:.3g}, bound {bound:.3g}")
    return wrong


def run(
    loop: Any, engine: Rotations, rows: np.ndarray, lines: Lines, rates: np.ndarray = NO_RATES
) -> tuple[Any, Any]:
    """Rows and records after the lines, side by side; status."""
    rows, n = rows.copy(), len(lines.track_index)
    status, records = np.zeros(n, np.int8), np.empty((n, at.RECORD_SIZE))
    loop.run(rows, *lines[:4], True, lines.tolerance, records, status, engine.settings, rates)
    return np.concatenate([rows[0], records[-1]]), status


@st.composite
def sequences(draw: st.DrawFn, longest: int = 30) -> tuple[Rotations, Lines, np.ndarray]:
    """An engine, and lines of one track: gaps, outliers, jumps, noise of any size, any unit; rates.

    Rates are measured at some steps, with a bias, or at none.
    """
    rated = draw(st.booleans())
    noise, rate = 10.0 ** draw(st.floats(-5.0, -0.5)), 10.0 ** draw(st.floats(-3.0, 0.3))
    unit = draw(st.sampled_from([1.0, 1e9, 1 / 30]))
    engine = Rotations(
        noise_std=draw(st.sampled_from([None, noise])),
        oscillations=draw(st.booleans()),
        time_unit=draw(st.sampled_from([None, unit])),
        rated=rated,
        repeats=draw(st.sampled_from(["auto", "taken", "missing"])),
    )
    n = draw(st.integers(2, longest))
    g = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    walk = np.cumsum(rate * (g.normal(size=3) + 0.3 * g.normal(size=(n, 3))), axis=0)
    turns = Rotation.from_rotvec(walk)
    if draw(st.booleans()):  # a jump
        turns = turns * Rotation.from_rotvec((np.arange(n) > n // 2)[:, None] * [0.0, 1.5, 0.0])
    z = (turns * Rotation.from_rotvec(noise * g.normal(size=(n, 3)))).as_matrix()
    if draw(st.booleans()):  # stale
        z = z[np.arange(n) // 2 * 2]
    if draw(st.booleans()):  # outliers
        wild = g.random(n) < 0.15
        z[wild] = Rotation.random(int(wild.sum()), random_state=int(g.integers(99))).as_matrix()
    counts = g.choice([1.0, 1.0, 4.0, 0.1], n)
    counts[g.random(n) < draw(st.sampled_from([0.0, 0.2]))] = 0.0
    counts[g.random(n) < 0.05] = -1.0
    z[g.random(n) < 0.05] = np.nan
    z[g.random(n) < 0.03] += 0.1  # no rotation
    dt = unit * np.append(0.0, g.choice([0.0, 0.3, 1.0, 1.0, 1.0, 2.6, 40.0, 100.0], n - 1))
    lines = Lines(np.zeros(n, np.int64), z, counts, dt, tolerance=1e-6)
    if not rated:
        return engine, lines, NO_RATES
    steps = np.diff(walk, axis=0, prepend=walk[:1]) / unit + 0.01 * g.normal(size=3) / unit
    rates = np.column_stack([steps, np.full(n, draw(st.sampled_from([0.0, 0.01 / unit])))])
    rates[g.random(n) < 0.3] = np.nan
    return engine, lines, rates


def one_ulp(numbers: np.ndarray, begin: int = 0) -> np.ndarray:
    """The numbers, every other one from the first or second on an ulp larger."""
    out = numbers.copy()
    out[..., begin::2] = np.nextafter(out[..., begin::2], np.inf)
    return np.where(numbers == 0.0, 0.0, out)


def nudged(row: np.ndarray, engine: Rotations) -> np.ndarray:
    """The row with angles, velocities and variances an ulp off.

    P11 - P01^2/S is a difference: all of P an ulp up would leave it, relative to itself, as it is.
    """
    out = row.copy()
    dense = ("quaternion", "motion", "spread") if engine.size == at.size(True) else ()
    ahead = ("origin", "usual", "usual_rate", "pending", "earned")
    for name in ("delta", "rate", "weight", "tables", "frame", *ahead, *dense):
        part(out, name)[:] = one_ulp(part(row, name))
    for name, to in (("p00", np.inf), ("p01", 0.0), ("p11", np.inf)):
        old = part(row, name)
        part(out, name)[:] = np.where(old == 0.0, 0.0, np.nextafter(old, to))
    return out


@settings(max_examples=25, deadline=None)
@given(sequences())
def test_one_step_from_the_same_rows(drawn: tuple[Rotations, Lines, np.ndarray]) -> None:
    engine, lines, rates = drawn
    twin = Readable(*engine._laws, engine._places)
    rows = engine.init(1)
    for k in range(len(lines.track_index)):
        line, rate = lines.part(slice(k, k + 1)), rates[k : k + 1]
        found, status = run(engine.loop, engine, rows, line, rate)
        expected, wanted = run(twin, engine, rows, line, rate)
        later = line._replace(dt=one_ulp(line.dt))  # and so exponentials of it
        spread = [run(engine.loop, engine, nudged(rows, engine), later, rate)[0]]
        assert status[0] == wanted[0]
        assert not differ(found, expected, spread, engine), f"step {k}"
        rows[0] = found[: engine.size]


@settings(max_examples=15, deadline=None)
@given(sequences(20))
def test_sequences_differ_by_their_conditioning(drawn: tuple[Rotations, Lines, np.ndarray]) -> None:
    engine, lines, rates = drawn
    twin = Readable(*engine._laws, engine._places)
    rows = engine.init(1)
    found, status = run(engine.loop, engine, rows, lines, rates)
    expected, wanted = run(twin, engine, rows, lines, rates)
    # One pattern of an ulp may cancel where another does not.
    nudges = [lines._replace(values=one_ulp(lines.values, begin)) for begin in (0, 1)]
    spread = [run(engine.loop, engine, rows, nudge, rates)[0] for nudge in nudges]
    np.testing.assert_array_equal(status, wanted)
    assert not differ(found, expected, spread, engine)


def test_every_tracker_runs_on_the_readable_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    z = Rotation.from_rotvec(np.outer(np.arange(12), [0.0, 0.02, 0.1])).as_matrix()
    expected = RotationTracker().filter(z)
    monkeypatch.setenv("KGMRF_ENGINE", "readable")
    found = RotationTracker().filter(z)
    np.testing.assert_allclose(found.rotation, expected.rotation, atol=1e-12)
    np.testing.assert_allclose(found.covariance, expected.covariance, rtol=1e-9, atol=1e-18)


# --------------------------------------------------------------------------- the Jacobian law

STEPS = [0.3, 0.7, 1.0, 1.4]


def state(seed: int) -> np.ndarray:
    """Angle 0, v, u and log frequencies."""
    g = np.random.default_rng(seed)
    return np.concatenate([np.zeros(3), 0.4 * g.normal(size=6), np.log(g.uniform(0.05, 1.5, 3))])


def moved(x: np.ndarray, h: float, still: bool) -> np.ndarray:
    """(angle, v, u, l) after h of a member at frame I; the rotation is Exp(angle)."""
    w = np.zeros(3) if still else np.exp(x[9:])
    axes = follow(x[3:6], x[6:9], w, h)
    turned = Rotation.from_rotvec(x[:3]) * Rotation.from_rotvec(axes.step)
    return np.concatenate([turned.as_rotvec(), axes.v, axes.u, x[9:]])


def by_differences(x: np.ndarray, h: float, still: bool) -> np.ndarray:
    """J with (angle, v, u, l) Exp(after) = Exp(step) Exp(J dx)."""
    base, out, eps = moved(x, h, still), np.empty((12, 12)), 1e-6
    for k in range(12):
        ends = []
        for side in (-eps, eps):
            y = moved(x + side * np.eye(12)[k], h, still)
            y[:3] = (Rotation.from_rotvec(base[:3]).inv() * Rotation.from_rotvec(y[:3])).as_rotvec()
            ends.append(y)
        out[:, k] = (ends[1] - ends[0]) / (2 * eps)
    return out


@pytest.mark.parametrize("h", STEPS)
@pytest.mark.parametrize("still", [False, True])
def test_the_transition_is_the_jacobian(h: float, still: bool) -> None:
    for seed in range(5):
        x = state(seed)
        w = np.zeros(3) if still else np.exp(x[9:])
        found = transition(follow(x[3:6], x[6:9], w, h))
        np.testing.assert_allclose(found, by_differences(x, h, still), atol=1e-8)


def test_angles_are_integrals_of_velocities() -> None:
    """Over one unit the angle moves by v; two halves make a whole; (v, u) turn by z."""
    v, u, w = np.array([[0.3, -0.2, 0.1], [0.05, 0.4, -0.3], [0.1, 0.7, 2.0]])
    whole, half = follow(v, u, w, 1.0), follow(v, u, w, 0.5)
    again = follow(half.v, half.u, w, 0.5)
    np.testing.assert_allclose(whole.step, v)
    np.testing.assert_allclose(half.step + again.step, v, atol=1e-12)
    np.testing.assert_allclose(again.v + 1j * again.u, (v + 1j * u) * np.exp(-1j * w))


def test_the_right_jacobian_is_one() -> None:
    for v in np.random.default_rng(0).normal(size=(5, 3)):
        eps = 1e-6 * np.eye(3)
        ends = [Rotation.from_matrix(exp(v).T @ exp(v + e)).as_rotvec() / 1e-6 for e in eps]
        np.testing.assert_allclose(right_jacobian(v), np.transpose(ends), atol=1e-5)


def prepared(engine: Rotations, seed: int) -> np.ndarray:
    """A row after a while, all dense members with a covariance of their own."""
    g = np.random.default_rng(seed)
    walk = np.cumsum(0.05 * (g.normal(size=3) + 0.3 * g.normal(size=(40, 3))), axis=0)
    z = Rotation.from_rotvec(walk).as_matrix()
    rows, one = engine.init(1), np.ones(40)
    engine.advance(rows, Lines(np.zeros(40, np.int64), z, one, one))
    return rows


@pytest.mark.parametrize("h", STEPS)
def test_the_core_moves_covariances_by_the_jacobian(h: float) -> None:
    """P after a step less P after the same step from half of P is J (P - P/2) J^T; noise apart."""
    engine = Rotations(noise_std=0.02, time_unit=1.0)
    for seed in range(3):
        row, nothing = prepared(engine, seed), np.zeros((1, 3, 3))
        dense, before = Dense(at.dense_laws()), Track(row[0].copy(), True)
        ends = []
        for share in (1.0, 0.5):
            rows = row.copy()
            packed = part(rows, "spread")
            packed[0] *= share
            ends.append(packed[0].copy())
            line = Lines(np.zeros(1, np.int64), nothing, np.zeros(1), np.full(1, h))
            engine.advance(rows, line)
            ends.append(part(rows, "spread")[0])
        for n in range(at.D):
            x = np.concatenate([np.zeros(3), before.motion[:, n]])
            j = by_differences(x, h, still=not dense.frequency[n].any())
            p, after, _, halved = (_full(end[:, n]) for end in ends)
            # What is not known of the frequency also diffuses v and u.
            np.fill_diagonal(diffused := np.zeros((12, 12), bool), np.repeat([0, 1, 0], [3, 6, 3]))
            found, expected = np.where(diffused, 0.0, [after - halved, 0.5 * j @ p @ j.T])
            scale = np.sqrt(np.outer(np.diag(after), np.diag(after)))
            assert (np.abs(found - expected) <= 1e-6 * scale).all()


def test_the_core_moves_means_and_diffuses_amplitudes_as_the_twin() -> None:
    """With uncertain frequencies, over pieces of a gap."""
    engine = Rotations(noise_std=0.02, time_unit=1.0)
    dense, rows = Dense(at.dense_laws()), prepared(engine, 7)
    twin = rows.copy()
    t = Track(twin[0], True)
    dense.drift(t, 3.6)
    line = Lines(np.zeros(1, np.int64), np.zeros((1, 3, 3)), np.zeros(1), np.full(1, 3.6))
    engine.advance(rows, line)
    for name in ("quaternion", "motion", "spread"):
        np.testing.assert_allclose(part(rows[0], name), part(twin[0], name), rtol=1e-8, atol=1e-13)


def _full(packed: np.ndarray) -> np.ndarray:
    p = np.zeros((12, 12))
    p[LOWER] = packed
    return p + np.tril(p, -1).T
