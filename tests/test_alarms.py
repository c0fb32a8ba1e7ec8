"""Alarms: the run length that theory tells, one law for all tracks, and what is not learned."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kgmrf import KGMRF
from kgmrf.alerts import Alarm, watch
from kgmrf.alerts.alarm import events
from kgmrf.alerts.thresholds import bets, run_lengths, threshold
from kgmrf.constants import ALARM_BEGINS
from kgmrf.readable import alarm as readable

SEEDS = st.integers(0, 2**32 - 1)


def p_values(rng: np.random.Generator, n: int) -> np.ndarray:
    """Some quiet, some not, some missing, some that no density tells apart from zero."""
    p = rng.random(n) ** rng.choice([1.0, 3.0], n)
    p[rng.random(n) < 0.05] = np.nan
    p[rng.random(n) < 0.02] = 0.0
    return p


@given(SEEDS, st.sampled_from([0.0, 7.0]), st.sampled_from([1.0, 30.0]))
@settings(deadline=None, max_examples=30)
def test_the_core_does_what_the_readable_alarm_does(
    seed: int, warm_up: float, memory: float
) -> None:
    core = pytest.importorskip("kgmrf._core")
    rng = np.random.default_rng(seed)
    p, tracks, law = p_values(rng, 300), rng.integers(0, 3, 300), np.array(bets(1e-2, memory))
    told = []
    for twin in (core, readable):
        rows, records = np.zeros((3, readable.WIDTH)), np.empty((300, 3))
        status = np.empty(300, np.int8)
        twin.follow_alarms(rows, tracks, p, law, warm_up, records, status)
        told.append((rows, records, status))
    for one, other in zip(*told, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12)


@given(SEEDS)
@settings(deadline=None, max_examples=20)
def test_tracks_and_pieces_make_no_difference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    alarm, p, tracks = Alarm(1e-2, 20, warm_up=3), p_values(rng, 200), rng.integers(0, 4, 200)
    rows = alarm.init(4)
    whole = alarm.take(rows, tracks, p)
    again = alarm.init(4)
    cut = int(rng.integers(0, 200))
    parts = [alarm.take(again, tracks[s], p[s]) for s in (slice(0, cut), slice(cut, None))]
    np.testing.assert_array_equal(rows, again)
    np.testing.assert_array_equal(whole.status, np.concatenate([part.status for part in parts]))
    alone = Alarm(1e-2, 20, warm_up=3)
    mine = [alone.update(value).status for value in p[tracks == 2]]
    np.testing.assert_array_equal(mine, whole.status[tracks == 2])


@pytest.mark.parametrize("reference", [1.1, 1.6, 2.7])
def test_the_average_run_length_is_that_of_theory(reference: float) -> None:
    """Vardeman and Ray's equation, solved, beside runs of exponentials."""
    wanted, n = 200.0, 4000
    h = threshold(reference, wanted)
    rng, sums, alive, length = np.random.default_rng(0), np.zeros(n), np.ones(n, bool), np.zeros(n)
    while alive.any():
        sums = np.maximum(0.0, sums + rng.exponential(size=n) - reference)
        length += alive
        alive &= sums < h
    assert abs(length.mean() - wanted) < 4.0 * length.std() / np.sqrt(n)
    # The bound of an e-detector, which holds without uniform p-values.
    kappa = np.exp(-_log_size(reference))
    h_all, lengths = run_lengths(reference, 1e6)
    assert (lengths >= np.exp((1.0 - kappa) * h_all)).all()


def _log_size(reference: float) -> float:
    """log mu of r = mu log(mu)/(mu - 1)."""
    from scipy import optimize

    return float(optimize.brentq(lambda v: v / -np.expm1(-v) - reference, 1e-9, 50.0))


@pytest.mark.parametrize(("rate", "memory"), [(1e-2, 10), (1e-3, 100), (1e-3, 1)])
def test_false_alarms_come_at_most_at_their_rate(rate: float, memory: float) -> None:
    n = int(400 / rate)
    p = np.random.default_rng(1).random(n)
    false = len(Alarm(rate, memory).find(p)) / n
    assert 0.4 * rate < false < 1.15 * rate


def test_rows_may_depend_on_each_other_if_the_forecast_knows() -> None:
    """p-values that are valid given the past, of a chain whose size wanders and sometimes sticks;
    larger than uniform they only make fewer alarms."""
    rng, n = np.random.default_rng(2), 100_000
    size = np.exp(np.cumsum(rng.standard_normal(n)) * 0.03)
    x = size * rng.standard_normal(n)
    from scipy import stats

    valid = 2.0 * stats.norm.sf(np.abs(x) / size)
    sticky = np.where(np.sin(np.arange(n) / 500.0) > 0.0, valid, np.maximum(valid, 0.3))
    counts = [len(Alarm(1e-3).find(p)) / n for p in (valid, sticky)]
    assert counts[1] < counts[0] < 1.3e-3


def test_onset_end_and_peak_are_where_things_happened() -> None:
    rng = np.random.default_rng(3)
    p = rng.random(3000)
    p[1000:1060] = rng.random(60) ** 4
    p[1030] = 1e-9
    (event,) = Alarm(1e-5).find(p)
    assert abs(event.onset - 1000) < 10
    assert event.onset <= event.begin < 1060
    assert event.end is not None
    assert abs(event.end - 1060) < 15
    assert event.peak == 1030
    assert event.surprise == pytest.approx(9.0)
    open_end = Alarm(1e-5).find(p[:1050])
    assert open_end[-1].end is None


def test_a_rate_in_words_needs_the_seconds_between_rows() -> None:
    assert Alarm("1/day", interval=60.0).rate == pytest.approx(1 / 1440)
    assert Alarm("2 / hour", interval=1.0).rate == pytest.approx(2 / 3600)
    with pytest.raises(ValueError, match="seconds between two rows"):
        Alarm("1/day")
    with pytest.raises(ValueError, match="1/fortnight"):
        Alarm("1/fortnight", interval=1.0)
    with pytest.raises(ValueError, match="rate"):
        Alarm(0.5)
    with pytest.raises(ValueError, match=r"1\.5"):
        Alarm().find([0.5, 1.5])


# ------------------------------------------------------------------------ watched recordings


def recording(seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((900, 3)) @ np.array(
        [[1.0, 0.9, 0.0], [0.0, 0.3, 0.0], [0.0, 0.0, 2.0]]
    )
    x[500:560, 1] *= -4.0  # a correlation that turns around, and a variance
    return 100.0 + x


@pytest.mark.parametrize("adapt", ["yes", "slow", "no"])
def test_a_fault_is_found_and_named(adapt: str) -> None:
    found = watch(recording(), Alarm(1e-4, 50), adapt=adapt)
    first = next(event for event in found.events if event.begin >= 495)
    assert 498 <= first.onset <= first.begin < 515
    assert next(iter(found.blame(first))) in ("channel 0", "channel 1")
    if adapt == "no":
        assert first.end is not None
        assert abs(first.end - 559) < 15
        assert len(found.events) == 1
    alarm = found.status > 0
    assert (np.isnan(found.contribution[~alarm])).all()
    assert not np.isnan(found.contribution[found.status == ALARM_BEGINS]).any()


@pytest.mark.parametrize("adapt", ["yes", "slow", "no"])
def test_pieces_of_a_recording_make_no_difference(
    adapt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = watch(recording(), Alarm(1e-3, 50), adapt=adapt)
    monkeypatch.setattr("kgmrf.alerts.lines.MOST", 37)
    parts = watch(recording(), Alarm(1e-3, 50), adapt=adapt)
    np.testing.assert_allclose(whole.p_value, parts.p_value, rtol=1e-9)
    np.testing.assert_array_equal(whole.status, parts.status)
    np.testing.assert_allclose(whole.contribution, parts.contribution, rtol=1e-8, atol=1e-12)


def test_who_learns_everything_tells_the_p_values_of_the_tracker() -> None:
    x = recording()
    for tracker in (KGMRF(mean="ewm"), KGMRF(), KGMRF(mean="linear")):
        found = watch(x, Alarm(1e-3), tracker=tracker)
        np.testing.assert_allclose(found.p_value, tracker.filter(x).p_value, rtol=1e-9)


def test_what_is_not_learned_stays_improbable() -> None:
    x = recording()
    x[500:, 1] += 8.0  # for good
    learned, frozen = (watch(x, Alarm(1e-4), adapt=adapt) for adapt in ("yes", "no"))
    assert frozen.events[-1].end is None
    assert np.nanmedian(frozen.surprise[-100:]) > 2.0 > np.nanmedian(learned.surprise[-100:])
    slow = watch(x, Alarm(1e-4), adapt="slow")
    assert np.nanmedian(slow.surprise[520:620]) > np.nanmedian(learned.surprise[520:620])


def test_names_times_and_gaps_come_through() -> None:
    pd = pytest.importorskip("pandas")
    x = recording()
    x[100:110] = np.nan
    index = pd.date_range("2026-01-01", periods=900, freq="s")
    table = pd.DataFrame(x, index=index, columns=["a", "b", "c"])
    found = watch(table, Alarm(1e-4, 50), adapt="no")
    assert np.isnan(found.p_value[100:110]).all()
    (row,) = found.to_frame().to_dict("records")
    assert index[498] <= row["onset"] <= row["begin"] < index[515]
    assert row["channels"].split(", ")[0] in ("a", "b")


def test_matrices_are_watched_too() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((400, 20, 2))
    x[300:, :, 0] *= 3.0
    found = watch(np.einsum("tmi,tmj->tij", x, x) / 20, Alarm(1e-4), n_samples=20)
    assert [event.begin // 10 for event in found.events][:1] == [30]


def test_what_cannot_be_watched_is_refused() -> None:
    with pytest.raises(ValueError, match="adapt"):
        watch(recording(), adapt="never")
    tracker = KGMRF()
    tracker.filter(recording()[:50])
    with pytest.raises(ValueError, match="seen something"):
        watch(recording(), tracker=tracker)
    with pytest.raises(ValueError, match="one recording"):
        watch(np.zeros((5, 4, 3, 2)) + 1.0, samples=True)


def test_events_of_a_piece_that_begins_inside_an_alarm() -> None:
    alarm, rows = Alarm(1e-3, warm_up=0), None
    rows = alarm.init(1)
    alarm.take(rows, np.zeros(30, int), np.full(30, 1e-4))
    heard = alarm.take(rows, np.zeros(50, int), np.full(50, 0.9))
    assert events(heard, np.full(50, 0.9)) == []
    assert importlib.import_module("kgmrf.alerts").Heard is type(heard)


def test_p_values_of_dask_and_tables_make_the_alarms_of_watch() -> None:
    da = pytest.importorskip("dask.array")
    from kgmrf import TrackerBank
    from kgmrf.dask import filter_array

    x = np.stack([recording(k) - 100.0 for k in range(3)], axis=1)  # (time, track, channel)
    frames = da.from_array(x[:, :, None], chunks=(200, 2, 1, 3))
    bank = TrackerBank(0, 3, time_unit=1.0)
    p = filter_array(bank, frames, fields=["p_value"], samples=True)["p_value"].compute()
    alarm = Alarm(1e-4, 50)
    tracks = np.tile(np.arange(3), len(p))
    heard = alarm.take(alarm.init(3), tracks, p.ravel())
    for k in range(3):
        found = watch(x[:, k], alarm, tracker=KGMRF())
        np.testing.assert_allclose(p[:, k], found.p_value, rtol=1e-6)
        np.testing.assert_array_equal(heard.status[tracks == k], found.status)
        assert found.events
