"""One convention for time: any unit in, the same estimates out, told in the units that came in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from kgmrf import (
    KGMRF,
    KineticGaussian,
    PoseTracker,
    RotationTracker,
    baselines,
    load,
    simulate,
)
from kgmrf._time import Clock
from kgmrf.trackers.vector import VectorTracker

T = 40
RNG = np.random.default_rng(5)
SAMPLES = RNG.standard_normal((T, 3)) * [3.0, 2.0, 1.0]
FACTORS = RNG.standard_normal((T, 12, 3)) * [3.0, 2.0, 1.0]
MATRICES = np.swapaxes(FACTORS, -1, -2) @ FACTORS / 12
TURNS = simulate.camera_shake(3, 0.0, n_frames=T).observations
PLACES = np.cumsum(RNG.standard_normal((T, 2)), axis=0)

MAKERS: dict[str, tuple[Any, Any]] = {
    "KGMRF": (lambda **s: KGMRF(**s), SAMPLES),
    "information": (lambda **s: KGMRF(gains="information", n_samples=12, **s), MATRICES),
    "RotationTracker": (lambda **s: RotationTracker(**s), TURNS),
    "rotation law": (lambda **s: RotationTracker(noise_std=0.05, gains="information", **s), TURNS),
    "VectorTracker": (lambda **s: VectorTracker(noise_std=0.5, **s), PLACES),
    "KineticGaussian": (lambda **s: KineticGaussian(**s), SAMPLES),
    **{
        kind.__name__: (lambda kind=kind, **s: kind(**s), MATRICES)
        for kind in (
            baselines.EuclideanEMA,
            baselines.LogEuclideanEMA,
            baselines.RiemannianEMA,
            baselines.AlphaBeta,
            baselines.TangentKalman,
            baselines.HoldLast,
        )
    },
    "OneEuro": (lambda **s: baselines.OneEuro(**s), TURNS),
    "ErrorStateKalman": (lambda **s: baselines.ErrorStateKalman(**s), TURNS),
}

ALL = pytest.mark.parametrize("name", MAKERS)


def parts(found: Any) -> dict[str, Any]:
    """All fields by name, also of several components."""
    if hasattr(found, "keys"):
        return {f"{k}.{n}": v for k in found for n, v in parts(found[k]).items()}
    return {name: getattr(found, name) for name in found.fields()}


def same(a: Any, b: Any, unit: float, start: float, rtol: float = 1e-5) -> None:
    """b is a with its times multiplied by ``unit`` and moved by ``start``."""
    first, second = parts(a), parts(b)
    assert set(first) == set(second)
    for name, value in first.items():
        kind = name.rpartition(".")[2]
        if kind == "half_life" and value.ndim:
            value, second[name] = value[1:], second[name][1:]  # of the first stamp no unit is known
        if kind == "time":
            value, room = start + unit * value, 1e-9 * unit + 1e-14 * abs(start)
        elif kind in ("age", "half_life"):
            value, room = value * unit, 1e-6 * unit + 1e-14 * abs(start)
        elif kind == "velocity":
            value, room = value / unit, 0.1 * rtol / unit
        else:
            room = 0.1 * rtol
        assert_allclose(second[name], value, rtol=rtol, atol=room, err_msg=name)


@ALL
@pytest.mark.parametrize(
    ("unit", "start"), [(1 / 128, 0.0), (0.04, 1.7e9), (5e6, 1.403e18), (86400.0, 1e9), (2.0, -7.0)]
)
def test_any_unit_gives_the_same(name: str, unit: float, start: float) -> None:
    """Finding 12 and 22: seconds, nanoseconds and days, from any origin."""
    maker, data = MAKERS[name]
    plain = maker().filter(data)
    found = maker().filter(data, times=start + unit * np.arange(T))
    # The last digits of a stamp are lost: intervals are off by this share of the usual one.
    lost = np.spacing(abs(start) + 1.0) / unit
    if lost < 1e-5:
        same(plain, found, unit, start, rtol=1e-5 + 20.0 * lost)
        return
    for key, value in parts(plain).items():
        if key.endswith(("covariance", "rotation", "position")):
            assert_allclose(parts(found)[key], value, rtol=0.02, atol=0.02)


@ALL
def test_one_by_one_in_chunks_and_whole_are_the_same(name: str) -> None:
    maker, data = MAKERS[name]
    times = 100.0 + np.cumsum(np.random.default_rng(1).uniform(0.02, 0.06, T))
    whole = maker().filter(data, times=times)
    pieces = maker()
    for cut in np.split(np.arange(T), [1, 2, 5, 20]):
        last = pieces.filter(data[cut], times=times[cut])
    online = maker()
    take = online.partial_fit if name in ("KGMRF",) else online.update
    for k in range(T):
        one = take(data[k], dt=times[k] - times[max(k - 1, 0)])
    ends = [parts(whole[-1]), parts(last[-1]), parts(one)]
    for key, value in ends[0].items():
        if key.rpartition(".")[2] == "time":
            assert_allclose(ends[1][key], value)
            continue
        for other in ends[1:]:
            assert_allclose(other[key], value, rtol=1e-6, atol=1e-8, err_msg=key)


@ALL
def test_a_given_unit_is_the_unit(name: str) -> None:
    """Irregular stamps: with ``time_unit`` u, stamps times u count as stamps with unit 1."""
    maker, data = MAKERS[name]
    times = np.cumsum(np.random.default_rng(2).uniform(0.5, 1.5, T))
    plain = maker(time_unit=1.0).filter(data, times=times)
    found = maker(time_unit=0.01).filter(data, times=5.0 + 0.01 * times)
    same(plain, found, 0.01, 5.0)
    assert maker(time_unit=0.01).time_unit == 0.01
    with pytest.raises(ValueError, match="time_unit"):
        maker(time_unit=0.0)


@ALL
def test_forecasts_count_as_the_stamps_do(name: str) -> None:
    maker, data = MAKERS[name]
    times = 3.0 + 0.04 * np.arange(T)
    plain, found = maker(), maker()
    plain.filter(data)
    found.filter(data, times=times)
    same(plain.forecast(2.5), found.forecast(0.1), 0.04, 3.0)
    assert found.now == pytest.approx(times[-1])
    with pytest.raises(ValueError, match=r"forecast|ahead|dt"):
        found.forecast(-1.0)


@ALL
def test_a_second_call_with_earlier_stamps_says_where_it_stands(name: str) -> None:
    maker, data = MAKERS[name]
    tracker = maker()
    tracker.filter(data, times=0.5 * np.arange(T))
    with pytest.raises(ValueError, match=r"last time stamp is 19\.5"):
        tracker.filter(data, times=0.5 * np.arange(T))


@ALL
def test_a_file_keeps_the_clock(name: str, tmp_path: Path) -> None:
    maker, data = MAKERS[name]
    times = 1.7e9 + np.cumsum(np.random.default_rng(1).uniform(0.02, 0.06, T))
    whole = maker().filter(data, times=times)
    tracker = maker()
    tracker.filter(data[:4], times=times[:4])  # before the unit is settled
    tracker.save(tmp_path / "state.npz")
    again = load(tmp_path / "state.npz")
    rest = again.filter(data[4:], times=times[4:])
    for key, value in parts(whole[-1]).items():
        atol = 1e-6 if key.endswith(("time", "age")) else 1e-8
        assert_allclose(parts(rest[-1])[key], value, rtol=1e-5, atol=atol, err_msg=key)


def test_a_pose_has_one_clock() -> None:
    places = np.cumsum(0.01 * np.ones((T, 3)), axis=0)
    both = {"rotation": TURNS, "position": places}
    plain = PoseTracker().filter(both)
    found = PoseTracker().filter(both, times=9.0 + 0.03 * np.arange(T))
    same(plain, found, 0.03, 9.0)
    smoothed = PoseTracker().smooth(both, times=9.0 + 0.03 * np.arange(T))
    assert_allclose(smoothed["position"].velocity[20], 0.01 / 0.03, rtol=1e-3)
    with pytest.raises(ValueError, match="rotation and position"):
        PoseTracker().smooth({"rotation": TURNS})


@pytest.mark.parametrize("name", ["KGMRF", "information", "rotation law", "VectorTracker"])
def test_smoothing_counts_as_filtering_does(name: str) -> None:
    maker, data = MAKERS[name]
    plain = maker().smooth(data)
    found = maker().smooth(data, times=7.0 + 0.02 * np.arange(T))
    same(plain, found, 0.02, 7.0)


# Intervals of a stream are alike within nine decades: a first one of 1e-14 among seconds would make
# counted times so large that they lose their digits.
INTERVALS = st.one_of(st.just(0.0), st.floats(1e-6, 1e3))


@settings(max_examples=50)
@given(
    st.lists(INTERVALS, min_size=1, max_size=30),
    st.floats(-1e6, 1e6),
    st.sampled_from([None, 0.3, 2.0]),
)
def test_a_clock_finds_back_to_every_stamp(steps: Any, start: float, unit: float | None) -> None:
    clock = Clock(unit)
    clock.begin(start)
    counted = np.cumsum(clock.counted(np.array(steps)))
    want = start + np.cumsum(steps)
    assert_allclose(clock.stamp(counted), want, rtol=1e-9, atol=1e-6)
    assert len(clock.first) <= 8
    other = Clock()
    other.restore(clock.numbers())
    assert_allclose(other.stamp(counted), clock.stamp(counted))
    assert other.unit == clock.unit


def test_a_broken_clock_is_refused() -> None:
    clock = Clock()
    good = clock.numbers()
    for where, value in ((0, -1.0), (2, 99.0), (2, -1.0), (2, 1.0), (3, np.inf)):
        bad = good.copy()
        bad[where] = value
        with pytest.raises(ValueError, match="clock"):
            Clock().restore(bad)
