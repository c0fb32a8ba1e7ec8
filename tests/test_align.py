"""Names are a contract: channels are found by their names, and no row is counted twice."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgmrf import (
    KGMRF,
    EuclideanEMA,
    KineticCovariance,
    KineticGaussian,
    ObservationError,
    TrackerBank,
    VectorTracker,
    load,
    track_table,
)

pd = pytest.importorskip("pandas")
NAMES = ["SPY", "TLT", "GLD"]
DAYS = pd.date_range("2024-01-01", periods=60, freq="B")
MAKERS: list[Callable[[], Any]] = [
    KGMRF,
    lambda: KGMRF(gains="information"),
    lambda: KGMRF(mean="expanding"),
    EuclideanEMA,
    KineticGaussian,
    lambda: VectorTracker(noise_std=1.0),
]


def returns() -> pd.DataFrame:
    values = np.random.default_rng(0).standard_normal((60, 3)) * [1.0, 2.0, 3.0]
    return pd.DataFrame(values, index=DAYS, columns=NAMES)


def numbers(tracker: Any) -> list[np.ndarray]:
    return [np.asarray(array) for array in tracker.state_dict().values()]


def same(one: Any, other: Any) -> None:
    for a, b in zip(numbers(one), numbers(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("make", MAKERS)
def test_columns_are_found_by_name(make: Callable[[], Any], tmp_path: Path) -> None:
    """Reversed, renamed and other columns were taken in silence, also after save and load."""
    table, plain = returns(), make()
    plain.filter(table)
    for saved in (False, True):
        tracker = make()
        tracker.filter(table[:30])
        if saved:
            tracker.save(tmp_path / "state")
            tracker = load(tmp_path / "state")
        with pytest.raises(ObservationError, match="unknown channels 'BTC'"):
            tracker.filter(table[30:].rename(columns={"TLT": "BTC"}))
        tracker.filter(table[30:][NAMES[::-1]])
        same(tracker, plain)
        with pytest.raises(ObservationError, match="overlap"):
            tracker.filter(table[50:])
        same(tracker, plain)


@pytest.mark.parametrize("make", MAKERS)
def test_a_row_with_names_is_put_in_order(make: Callable[[], Any]) -> None:
    table, one, other = returns(), make(), make()
    one.filter(table[:30])
    other.filter(table[:30])
    feed = getattr(one, "partial_fit", one.update), getattr(other, "partial_fit", other.update)
    feed[0](table.iloc[30])
    feed[1](table.iloc[30][NAMES[::-1]])
    same(one, other)
    with pytest.raises(ObservationError, match="taken in before"):
        feed[0](table.iloc[30])
    with pytest.raises(ObservationError, match="unknown channels"):
        feed[0](table.iloc[31].rename({"TLT": "BTC"}))
    same(one, other)


def test_missing_channels_are_gaps_and_said_once() -> None:
    table = returns()
    tracker, plain = KGMRF(), KGMRF()
    tracker.filter(table[:30])
    with pytest.warns(UserWarning, match="'TLT' are missing"):
        tracker.filter(table[30:40].drop(columns="TLT"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tracker.filter(table[40:50].drop(columns="TLT"))
    plain.filter(table[:50].assign(TLT=table["TLT"].where(table.index < DAYS[30])).to_numpy())
    same(tracker, plain)
    assert tracker.channels == tuple(NAMES)


def test_rows_that_repeat_are_skipped_or_used() -> None:
    table = returns()
    plain = KGMRF()
    plain.filter(table)
    for overlap in (
        table[20:],
        table[20:].reset_index(names="date"),
        table[20:].tz_localize("UTC"),
    ):
        tracker = KGMRF()
        tracker.filter(table[:30])
        result = tracker.filter(overlap, on_overlap="skip")
        assert len(result) == 30
        assert len(result.index) == 30
        same(tracker, plain)
        again = tracker.filter(overlap, on_overlap="skip")
        assert again.covariance.shape == (0, 3, 3)
        same(tracker, plain)
    assert len(tracker.filter(table, on_overlap="use")) == 60
    twice = table.iloc[[0, 1, 1, 2]]
    with pytest.raises(ObservationError, match=r"row 2 of 4, at 2024-01-02.*not later"):
        KGMRF().filter(twice)
    assert len(KGMRF().filter(twice, on_overlap="skip")) == 3
    with pytest.raises(ValueError, match="on_overlap must be one of"):
        KGMRF().filter(table, on_overlap="keep")  # type: ignore[arg-type]


def test_times_and_mask_are_skipped_with_their_rows() -> None:
    x, times, mask = returns().to_numpy(), np.arange(60.0), np.arange(60) % 7 > 0
    tracker, plain = KGMRF(), KGMRF()
    plain.filter(x, times=times, mask=mask)
    tracker.filter(x[:30], times=times[:30], mask=mask[:30], on_overlap="skip")
    found = tracker.filter(x[20:], times=times[20:], mask=mask[20:], on_overlap="skip")
    assert found.time.tolist() == times[30:].tolist()
    same(tracker, plain)


def test_a_covariance_with_names_is_put_in_order() -> None:
    one, other, table = KGMRF(n_samples=20), KGMRF(n_samples=20), returns()
    for rows in (table[:20], table[20:40]):
        one.update(rows.cov())
    other.update(table[:20].cov())
    other.update(table[20:40][NAMES[::-1]].cov())
    same(one, other)
    with pytest.raises(ObservationError, match="lacks a channel"):
        one.update(table[["SPY", "TLT"]].cov())


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_tables_go_on_by_name(kind: str) -> None:
    table = returns()
    expected = track_table(table, KGMRF())
    tracker = KGMRF()
    late = table[20:][NAMES[::-1]]
    if kind == "polars":
        pl = pytest.importorskip("polars")
        track_table(pl.from_pandas(table[:30].reset_index(names="date")), tracker)
        late = pl.from_pandas(late.reset_index(names="date"))
    else:
        track_table(table[:30], tracker)
    with pytest.raises(ObservationError, match="10 rows overlap"):
        track_table(late, tracker)
    found = track_table(late, tracker, on_overlap="skip")
    np.testing.assert_array_equal(found[NAMES].to_numpy(), expected[90:].to_numpy())


def test_a_bank_puts_columns_in_order() -> None:
    table = returns()[:4].reset_index(drop=True)
    one, other = TrackerBank(4, 3), TrackerBank(4, 3)
    for k in range(10):
        one.update(table * (k + 1.0))
        other.update((table * (k + 1.0))[NAMES[::-1] if k else NAMES])
    np.testing.assert_array_equal(one.covariance, other.covariance)
    assert one.estimate().channels == tuple(NAMES)
    with pytest.raises(ObservationError, match="unknown channels"):
        one.update(table.rename(columns={"TLT": "BTC"}))


def test_a_bank_keeps_its_names_in_a_file(tmp_path: Path) -> None:
    table = returns()[:4].reset_index(drop=True)
    bank = TrackerBank(4, 3)
    bank.update(table)
    bank.save(tmp_path / "bank")
    again = TrackerBank.load(tmp_path / "bank")
    bank.update(2.0 * table)
    again.update(2.0 * table[NAMES[::-1]])
    np.testing.assert_array_equal(bank.covariance, again.covariance)
    with pytest.raises(ObservationError, match="unknown channels"):
        again.update(table.rename(columns={"TLT": "BTC"}))


def test_an_estimator_refuses_other_names() -> None:
    model = KineticCovariance().fit(returns()[:30])
    with pytest.raises(ValueError, match="feature names"):
        model.partial_fit(returns()[30:][NAMES[::-1]])


@pytest.mark.parametrize("mask", [["False"] * 20 + ["True"] * 20, [np.nan] * 40, [0.5] * 40])
@pytest.mark.parametrize("make", [KGMRF, KineticGaussian, lambda: VectorTracker(noise_std=1.0)])
def test_a_mask_is_true_and_false(make: Callable[[], Any], mask: list[Any]) -> None:
    """Words and NaN counted as observed for samples."""
    x = returns().to_numpy()[:40]
    with pytest.raises(ObservationError, match="mask must hold True and False"):
        make().filter(x, mask=np.array(mask))
    plain, tracker = make(), make()
    plain.filter(x, mask=np.arange(40) % 2 > 0)
    for good in (
        np.arange(40) % 2,
        np.arange(40) % 2 * 1.0,
        (np.arange(40) % 2 > 0).astype(object),
    ):
        tracker = make()
        tracker.filter(x, mask=good)
        same(tracker, plain)


def test_update_takes_a_row() -> None:
    """`KGMRF.update(row)` refused what a bank accepts."""
    x = returns().to_numpy()
    one, other = KGMRF(), KGMRF()
    for row in x:
        one.update(row)
        other.partial_fit(row)
    same(one, other)
    one.update(x[0].tolist())
    with pytest.raises(ObservationError, match="counts itself"):
        one.update(x[0], n_samples=3)


# ---------------------------------------------------------------------- recordings of MNE


def recording(n: int = 512) -> Any:
    mne = pytest.importorskip("mne")
    info = mne.create_info(["Oz", "O1", "O2", "STI"], 128.0, ["eeg"] * 3 + ["stim"])
    data = np.random.default_rng(0).standard_normal((4, n)) * 1e-6
    return mne.io.RawArray(data, info, verbose=False)


def test_recordings_count_in_seconds_and_go_on_by_name() -> None:
    raw = recording()
    tracker, plain = KGMRF(), KGMRF()
    whole = plain.filter(raw)
    np.testing.assert_allclose(whole.time, raw.times, atol=1e-12)
    first = raw.copy().crop(0.0, 2.0, include_tmax=False)
    last = raw.copy().crop(2.0, None).reorder_channels(["STI", "O2", "O1", "Oz"])
    tracker.filter(first)
    with pytest.raises(ObservationError, match="overlap"):
        tracker.filter(first)
    found = tracker.filter(last)
    np.testing.assert_allclose(found.time, raw.times[256:], atol=1e-12)
    np.testing.assert_allclose(found.covariance, whole.covariance[256:], rtol=1e-9, atol=0)
    with pytest.raises(ObservationError, match="unknown channels 'Cz'"):
        tracker.filter(raw.copy().rename_channels({"Oz": "Cz"}))
    later = raw.times + tracker.now + 1 / 128  # another recording, said so
    assert tracker.filter(raw, times=later).time[0] >= 4.0


def test_epochs_count_in_seconds() -> None:
    mne = pytest.importorskip("mne")
    epochs = mne.make_fixed_length_epochs(recording(), 1.0, preload=True, verbose=False)
    assert KGMRF().filter(epochs).time.tolist() == [0.0, 1.0, 2.0, 3.0]


def test_samples_annotated_as_bad_are_gaps() -> None:
    mne = pytest.importorskip("mne")
    raw = recording()
    raw.set_annotations(mne.Annotations([1.0, 2.0], [0.5, 0.5], ["BAD_blink", "stimulus"]))
    result = KGMRF().filter(raw)
    gap = (raw.times >= 1.0) & (raw.times < 1.5)
    assert (result.age[gap] > 0).all()
    assert (result.age[~gap & (raw.times < 1.49)] == 0).all()
    assert (result.age[raw.times > 1.51] == 0).all()
    x = np.where(gap[:, None], np.nan, raw.get_data()[:3].T)
    expected = KGMRF().filter(x, times=raw.times)
    edge = np.abs(raw.times - 1.5) < 0.02  # MNE decides whether the end belongs to it
    np.testing.assert_array_equal(
        result.covariance[raw.times < 1.49], expected.covariance[raw.times < 1.49]
    )
    assert edge.any()


def test_channels_of_several_units_are_refused() -> None:
    mne = pytest.importorskip("mne")
    info = mne.create_info(["Oz", "MEG1", "STI"], 128.0, ["eeg", "mag", "stim"])
    data = np.random.default_rng(0).standard_normal((3, 512)) * 1e-6
    raw = mne.io.RawArray(data, info, verbose=False)
    with pytest.raises(ValueError, match=r"several units: eeg \(V, 1\), mag \(T, 1\).*pick"):
        KGMRF().filter(raw)
    assert KGMRF().filter(raw.copy().pick("eeg")).channels == ("Oz",)


def test_an_estimate_becomes_a_covariance_of_mne() -> None:
    mne = pytest.importorskip("mne")
    raw = recording()
    tracker = KGMRF()
    found = tracker.filter(raw)[-1].to_mne(n_samples=100)
    assert isinstance(found, mne.Covariance)
    assert found.ch_names == ["Oz", "O1", "O2"]
    np.testing.assert_array_equal(found.data, tracker.estimate().covariance)
    assert found["nfree"] == 100
    with pytest.raises(ValueError, match="names of its channels"):
        KGMRF().update([1.0, 2.0]).to_mne()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the recording has no reference
        whitener, _ = mne.cov.compute_whitener(found, raw.info, picks="eeg", verbose=False)
    assert whitener.shape == (3, 3)
