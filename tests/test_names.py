"""Names and layouts: what a table or a recording calls its channels comes out again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgmrf import KGMRF, EuclideanEMA, ObservationError, TrackerBank, learn, load, track_table
from kgmrf._names import from_names
from kgmrf.io import Writer, open_source
from kgmrf.model.centring import RunningMean

pd = pytest.importorskip("pandas")
NAMES = ["SPY", "O_1", "a,b"]
DAYS = pd.date_range("2024-01-01", periods=60, freq="B")


def returns(n: int = 60, rng: int = 0) -> pd.DataFrame:
    values = np.random.default_rng(rng).standard_normal((n, 3)) * [1.0, 2.0, 3.0]
    return pd.DataFrame(values, index=DAYS[:n], columns=NAMES)


def test_a_time_in_two_columns_is_refused() -> None:
    """The nanoseconds were followed as a channel."""
    table = pd.DataFrame({"header.stamp.secs": [1, 2], "header.stamp.nsecs": [0, 5], "a": [1, 2]})
    for follow in (track_table, KGMRF().filter):
        with pytest.raises(ValueError, match="make one of them, in seconds"):
            follow(table)


# ---------------------------------------------------------------------- names in, names out


@pytest.mark.parametrize("tracker", [KGMRF(), KGMRF(gains="information"), EuclideanEMA()])
def test_a_table_names_every_output(tracker: KGMRF) -> None:
    table = returns()
    result = tracker.filter(table)
    plain = type(tracker)(**tracker.settings()).filter(table.to_numpy())
    np.testing.assert_array_equal(result.covariance, plain.covariance)
    assert result.to_frame().index.equals(DAYS)
    assert "covariance_SPY_O_1" in result.to_frame()
    assert list(result.table("volatility").columns) == NAMES
    assert result.table("correlation").loc[(DAYS[-1], "SPY"), "SPY"] == 1.0
    assert list(result[10:20].table("volatility").index) == list(DAYS[10:20])
    assert list(tracker.forecast(1).table().columns) == NAMES
    assert list(result[-1].table("volatility").index) == NAMES
    assert tracker.copy().forecast(1).channels == tuple(NAMES)


def test_names_survive_a_file(tmp_path: Path) -> None:
    tracker = KGMRF()
    tracker.filter(returns())
    tracker.save(tmp_path / "state.npz")
    assert load(tmp_path / "state.npz").forecast(1).channels == tuple(NAMES)


def test_correlation_and_volatility_are_those_of_the_covariance() -> None:
    result = KGMRF().filter(returns())
    rebuilt = result.correlation * result.volatility[:, :, None] * result.volatility[:, None, :]
    np.testing.assert_allclose(rebuilt, result.covariance, atol=1e-12)
    silent = EuclideanEMA().filter(np.array([[1.0, 0.0], [2.0, 0.0]]))
    np.testing.assert_array_equal(silent.correlation[-1], np.eye(2))


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_a_written_matrix_is_read_with_its_names(tmp_path: Path, ending: str) -> None:
    result = KGMRF().filter(returns())
    with Writer(tmp_path / f"out{ending}", ["covariance"], channels=NAMES) as writer:
        writer.write(result)
    source = open_source(tmp_path / f"out{ending}")
    assert source.kind == "covariance"
    assert source.names == tuple(NAMES)
    read = np.concatenate([chunk.values for chunk in source])
    np.testing.assert_array_equal(read, result.covariance)


def test_time_columns_are_labels_and_never_channels() -> None:
    table = returns().reset_index(names="when").assign(time=np.arange(60.0))
    found = from_names(table)
    assert found.channels == tuple(NAMES)
    assert list(found.index) == list(DAYS)  # the column of dates stands first
    with pytest.raises(ValueError, match="no column of values beside the time"):
        KGMRF().filter(pd.DataFrame({"time": [0.0, 1.0]}))


@pytest.mark.parametrize("follow", [lambda t: KGMRF().filter(t), track_table])
def test_a_table_with_the_newest_row_first_is_refused(follow: Callable[[Any], Any]) -> None:
    newest_first = returns()[::-1]
    match = "dates run backwards.*sort the table by time"
    as_text = newest_first.set_axis(newest_first.index.strftime("%Y-%m-%d"))
    for table in (
        newest_first,
        newest_first.tz_localize("UTC"),
        newest_first.reset_index(names="date"),
        as_text,
        as_text.reset_index(names="date"),
    ):
        with pytest.raises(ValueError, match=match):
            follow(table)
    # Numbers may start again from zero, as in trials one after the other.
    follow(returns().reset_index(drop=True).assign(time=np.tile(np.arange(30.0), 2)))
    follow(returns().set_axis([*DAYS[:-1], pd.NaT]))


@pytest.mark.parametrize("follow", [lambda t: KGMRF().filter(t), track_table])
def test_a_column_of_text_is_named(follow: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match="column 'sector' holds text, such as 'tech'; drop it"):
        follow(returns().assign(sector="tech"))
    follow(returns().assign(more=pd.Series([1.0, None] * 30, dtype=object, index=DAYS)))


def test_recordings_of_mne_keep_their_channels() -> None:
    mne = pytest.importorskip("mne")
    info = mne.create_info(["Oz", "O1", "bad", "STI"], 128.0, ["eeg"] * 3 + ["stim"])
    info["bads"] = ["bad"]
    data = np.random.default_rng(0).standard_normal((4, 512)) * 1e-6
    raw = mne.io.RawArray(data, info, verbose=False)
    result = KGMRF().filter(raw)
    assert result.channels == ("Oz", "O1")
    np.testing.assert_array_equal(result.covariance, KGMRF().filter(data[:2].T).covariance)
    np.testing.assert_array_equal(result.index, raw.times)
    np.testing.assert_allclose(result.time, raw.times, atol=1e-12)
    with pytest.raises(ValueError, match="RawArray, a whole recording; give it to filter"):
        KGMRF().update(raw)
    epochs = mne.make_fixed_length_epochs(raw, 1.0, preload=True, verbose=False)
    assert KGMRF().filter(epochs).table("volatility").shape == (4, 2)
    blocks = epochs.get_data(picks=[0, 1])
    again = KGMRF().filter(blocks, samples=True, layout="channels_first")
    np.testing.assert_array_equal(KGMRF().filter(epochs).covariance, again.covariance)


# ---------------------------------------------------------------------- layouts


def test_channels_as_rows_are_refused_before_any_memory_is_taken() -> None:
    with pytest.raises(ObservationError, match=r'14 samples of 15000.*layout="channels_first"'):
        KGMRF().filter(np.zeros((14, 15_000)))
    with pytest.raises(ObservationError, match="14 samples of 257 channels"):
        KGMRF().filter(np.zeros((40, 14, 257)), samples=True)
    with pytest.raises(ObservationError, match="channels_first"):
        KGMRF().filter(np.zeros((40, 14, 257)))
    with pytest.raises(ObservationError, match="samples of 400"):
        KGMRF().smooth(np.zeros((4, 400)))


def test_one_channel_is_a_column() -> None:
    series = returns()[NAMES[0]]
    for one in (series, series.to_numpy()):
        with pytest.raises(ObservationError, match=r"a column, filter\(x\[:, None\]\)"):
            KGMRF().filter(one)
    assert KGMRF().filter(series.to_numpy()[:, None]).covariance.shape == (60, 1, 1)


def test_a_layout_that_is_said_is_taken() -> None:
    rows = np.random.default_rng(1).standard_normal((300, 4))
    expected = KGMRF().filter(rows).covariance
    turned = KGMRF().filter(rows.T, layout="channels_first").covariance
    np.testing.assert_array_equal(turned, expected)
    few = np.random.default_rng(1).standard_normal((3, 70))
    assert KGMRF().filter(few, layout="channels_last").covariance.shape == (3, 70, 70)
    with pytest.raises(ValueError, match="layout must be one of"):
        KGMRF().filter(rows, layout="rows")


# ---------------------------------------------------------------------- the mean


@pytest.mark.parametrize("gains", ["auto", "information"])
@pytest.mark.parametrize("mean", ["expanding", "ewm"])
def test_a_mean_is_taken_off_in_chunks_and_rows_as_in_the_whole(gains: str, mean: str) -> None:
    rows = np.random.default_rng(2).standard_normal((120, 2)) + [5.0, -3.0]
    rows[7, 1] = np.nan
    whole = KGMRF(gains=gains, mean=mean).filter(rows)
    pieces, single = KGMRF(gains=gains, mean=mean), KGMRF(gains=gains, mean=mean)
    for part in np.array_split(rows, 5):
        last = pieces.filter(part)
    for row in rows:
        estimate = single.partial_fit(row)
    np.testing.assert_allclose(last.covariance[-1], whole.covariance[-1], rtol=1e-10)
    np.testing.assert_allclose(estimate.covariance, whole.covariance[-1], rtol=1e-10)
    np.testing.assert_allclose(single.location, [5.0, -3.0], atol=0.4)
    centred = RunningMean(mean).centre(rows)
    same = KGMRF(gains=gains).filter(centred)
    np.testing.assert_allclose(same.covariance[-1], whole.covariance[-1], rtol=1e-10)
    back = KGMRF(gains=gains, mean=mean).smooth(rows)
    np.testing.assert_allclose(back.covariance, KGMRF(gains=gains).smooth(centred).covariance)


def test_a_mean_survives_a_file(tmp_path: Path) -> None:
    rows = np.random.default_rng(3).standard_normal((80, 2)) + 4.0
    tracker = KGMRF(mean="ewm")
    tracker.filter(rows[:50])
    tracker.save(tmp_path / "state.npz")
    ahead = load(tmp_path / "state.npz").filter(rows[50:])
    np.testing.assert_array_equal(ahead.covariance, tracker.filter(rows[50:]).covariance)


def test_a_drifting_mean_follows_what_a_running_one_cannot() -> None:
    rng = np.random.default_rng(4)
    rows = rng.standard_normal((3000, 1)) + np.linspace(0.0, 30.0, 3000)[:, None]
    running, drift = RunningMean().centre(rows), RunningMean("ewm").centre(rows)
    assert np.nanmean(drift[500:] ** 2) < 0.2 * np.nanmean(running[500:] ** 2)


@given(keep=st.integers(1, 400), n=st.integers(3, 40))
def test_centred_samples_have_the_covariance_of_the_samples(keep: int, n: int) -> None:
    # The factor of e_n against the variance of x_n - mean, from the weights themselves.
    share = 0.5 ** (1.0 / keep)
    weights = share ** np.arange(n)[::-1]
    variance = 1.0 + (weights**2).sum() / weights.sum() ** 2
    rows = np.random.default_rng(n).standard_normal((n + 1, 1))
    from kgmrf.model.centring import off_the_mean

    found = off_the_mean(rows, np.zeros((3, 1)), share)[0][-1, 0]
    expected = (rows[-1, 0] - weights @ rows[:-1, 0] / weights.sum()) / np.sqrt(variance)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_a_mean_is_refused_where_there_are_no_samples() -> None:
    with pytest.raises(ObservationError, match="is for raw samples"):
        KGMRF(mean="expanding", n_samples=5).update(np.eye(2))
    with pytest.raises(ValueError, match="mean must be one of"):
        KGMRF(mean="none")
    with pytest.raises(ValueError, match="a bank takes samples of mean zero"):
        TrackerBank(2, 3, mean="expanding")


# ---------------------------------------------------------------------- words


def test_fit_of_a_tracker_that_tunes_itself_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"tunes itself .*tracker\.filter\(X\)"):
        learn.fit(KGMRF(), np.zeros((40, 2)))


def test_the_total_over_a_horizon_is_the_sum_of_its_days() -> None:
    tracker = KGMRF()
    tracker.filter(returns())
    total = sum(tracker.forecast(k).covariance for k in (1, 2, 3))
    ahead = tracker.forecast_total(3)
    np.testing.assert_allclose(ahead.covariance, total)
    assert list(ahead.table("volatility").index) == NAMES
    with pytest.raises(ValueError, match="whole number"):
        tracker.forecast_total(0)


def test_kind_is_what_a_baseline_follows() -> None:
    turns = np.tile(np.eye(3), (4, 1, 1))
    np.testing.assert_array_equal(EuclideanEMA(kind="rotation").filter(turns).rotation, turns)
    with pytest.raises(ValueError, match="kind must be one of"):
        EuclideanEMA(kind="vector")


def test_a_result_counts_steps() -> None:
    assert repr(KGMRF().filter(np.ones((5, 2)))).startswith("Result(5 steps, fields: time, ")
