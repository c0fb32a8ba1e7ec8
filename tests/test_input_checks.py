"""What a stranger may bring to the door: masks, lists, dates, extreme sizes, wrong kinds."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import kgmrf
from kgmrf import (
    KGMRF,
    AlphaBeta,
    EuclideanEMA,
    HoldLast,
    KineticGaussian,
    LogEuclideanEMA,
    ObservationError,
    ProductTracker,
    RiemannianEMA,
    RotationTracker,
    TangentKalman,
    TrackerBank,
    VectorTracker,
    _check,
    diagnose,
    learn,
    load,
)
from kgmrf.geometry import so

RNG = np.random.default_rng(3)
SAMPLES = RNG.normal(size=(40, 3)) * [3.0, 2.0, 1.0]
BLOCKS = RNG.normal(size=(40, 6, 3)) * [3.0, 2.0, 1.0]
MATRICES = np.swapaxes(BLOCKS, -1, -2) @ BLOCKS / 6
TURNS = so.exp(so.hat(0.05 * np.arange(40.0)[:, None] * np.asarray([0.0, 0.6, 0.8])))
FRAMES = {"covariance": MATRICES, "rotation": TURNS, "vector": SAMPLES}

TRACKERS: dict[str, tuple[Any, Any]] = {
    "KGMRF": (lambda: KGMRF(n_samples=6), MATRICES),
    "KGMRF of samples": (lambda: KGMRF(), SAMPLES),
    "KGMRF information": (lambda: KGMRF(n_samples=6, gains="information"), MATRICES),
    "AlphaBeta": (lambda: AlphaBeta(), MATRICES),
    "EuclideanEMA": (lambda: EuclideanEMA(), MATRICES),
    "HoldLast": (lambda: HoldLast(), MATRICES),
    "LogEuclideanEMA": (lambda: LogEuclideanEMA(), MATRICES),
    "RiemannianEMA": (lambda: RiemannianEMA(), MATRICES),
    "TangentKalman": (lambda: TangentKalman(n_samples=6), MATRICES),
    "Rotation": (lambda: RotationTracker(noise_std=0.1, gains="information"), TURNS),
    "Rotation auto": (lambda: RotationTracker(noise_std=0.1), TURNS),
    "Vector": (lambda: VectorTracker(noise_std=1.0), SAMPLES),
    "Gaussian": (lambda: KineticGaussian(), SAMPLES),
}
every_tracker = pytest.mark.parametrize("name", list(TRACKERS))


def same(a: Any, b: Any, rounding: float = 0.0) -> None:
    """Every field of two results or estimates is equal, or differs by rounding only."""
    if hasattr(a, "keys"):
        assert type(a) is type(b)
        assert a.keys() == b.keys()
        for (_, x), (_, y) in zip(a.items(), b.items(), strict=True):
            same(x, y, rounding)
        assert_allclose(a.log_likelihood, b.log_likelihood, rtol=rounding, atol=rounding)
        return
    assert type(a) is type(b)
    assert a.fields() == b.fields()
    for field in a.fields():
        assert_allclose(getattr(a, field), getattr(b, field), rtol=rounding, atol=rounding)


# --------------------------------------------------------------------------- masks


@every_tracker
def test_what_numpy_masks_is_no_observation(name: str) -> None:
    make, frames = TRACKERS[name]
    gaps = frames.copy()
    gaps[[3, 17]] = np.nan
    rubbish = frames.copy()
    rubbish[[3, 17]] = -999.0
    # Rotations are projected by the compiled check or by the readable one: rounding differs.
    same(make().filter(np.ma.masked_equal(rubbish, -999.0)), make().filter(gaps), 1e-12)


@every_tracker
def test_masked_frames_come_one_by_one_and_in_lists(name: str) -> None:
    make, frames = TRACKERS[name]
    masked = np.ma.masked_array(frames[3], np.ones_like(frames[3], dtype=bool))
    gap = np.full_like(frames[3], np.nan)
    same(
        make().filter([*frames[:3], masked, *frames[4:9]]),
        make().filter(np.stack([*frames[:3], gap, *frames[4:9]])),
        1e-12,
    )
    one, two = make(), make()
    word = "partial_fit" if frames is SAMPLES and hasattr(one, "partial_fit") else "update"
    for frame in frames[:5]:
        getattr(one, word)(frame), getattr(two, word)(frame)
    same(getattr(one, word)(masked), getattr(two, word)(gap), 1e-12)


def test_a_masked_channel_of_a_sample_is_a_missing_channel() -> None:
    gaps = SAMPLES.copy()
    gaps[5, 1] = np.nan
    masked = np.ma.masked_invalid(gaps)
    masked.data[5, 1] = 1e9
    same(KGMRF().filter(masked), KGMRF().filter(gaps))
    assert np.isnan(_check.real_array(np.ma.masked_equal([1, 2, 3], 2), "x")[1])  # whole numbers


def test_banks_and_estimators_know_masks() -> None:
    rubbish = MATRICES[:5].copy()
    rubbish[2] = -999.0
    bank = TrackerBank(5, 3, n_samples=6)
    assert bank.update(np.ma.masked_equal(rubbish, -999.0)).observed.tolist() == [
        True, True, False, True, True
    ]  # fmt: skip
    pytest.importorskip("sklearn")
    from kgmrf.sklearn.estimator import KineticCovariance, KineticTransformer

    gaps, holes = SAMPLES.copy(), MATRICES.copy()
    gaps[7, 2], holes[7] = np.nan, np.nan
    masked = np.ma.masked_array(np.where(np.isnan(gaps), -999.0, gaps), np.isnan(gaps))
    one, two = KineticCovariance().fit(masked), KineticCovariance().fit(gaps)
    assert_array_equal(one.covariance_, two.covariance_)
    assert one.score(masked) == one.score(gaps)
    whole = np.ma.masked_array(np.where(np.isnan(holes), 9.0, holes), np.isnan(holes))
    assert_array_equal(
        KineticTransformer().fit_transform(whole), KineticTransformer().fit_transform(holes)
    )


def test_fitting_and_diagnosing_know_masks() -> None:
    frames = np.tile(MATRICES, (2, 1, 1))
    gaps, rubbish = frames.copy(), frames.copy()
    gaps[5], rubbish[5] = np.nan, -999.0
    masked = np.ma.masked_equal(rubbish, -999.0)
    tracker = KGMRF(gains="information", n_samples=6)
    assert learn.score(tracker, masked) == learn.score(tracker, gaps)
    run = tracker.filter(gaps)
    told = [diagnose(run, seen, n_samples=6).to_dict() for seen in (masked, gaps)]
    assert told[0] == told[1]


# --------------------------------------------------------------------------- results that travel


@every_tracker
@pytest.mark.parametrize(
    "travel", [lambda x: pickle.loads(pickle.dumps(x)), copy.copy, copy.deepcopy]
)
def test_results_and_estimates_travel(name: str, travel: Any) -> None:
    make, frames = TRACKERS[name]
    tracker = make()
    result = tracker.filter(frames)
    word = "partial_fit" if frames is SAMPLES and hasattr(tracker, "partial_fit") else "update"
    for seen in (result, result[3], getattr(tracker, word)(frames[0]), tracker.forecast(2.0)):
        same(travel(seen), seen)


def test_results_of_products_and_banks_travel() -> None:
    pair = ProductTracker({"a": VectorTracker(noise_std=1.0), "b": KGMRF(n_samples=6)})
    result = pair.filter({"a": SAMPLES, "b": MATRICES})
    same(pickle.loads(pickle.dumps(result)), result)
    bank = TrackerBank(5, 3, n_samples=6)
    bank.update(MATRICES[:5])
    for seen in (bank.estimate(), bank.forecast(1.0)):
        same(pickle.loads(pickle.dumps(seen)), seen)
        same(copy.deepcopy(seen), seen)


def _filtered(samples: Any) -> Any:
    return KGMRF().filter(samples)


def test_workers_return_results() -> None:
    joblib = pytest.importorskip("joblib")
    there = joblib.Parallel(n_jobs=2, backend="multiprocessing")(
        joblib.delayed(_filtered)(SAMPLES) for _ in range(2)
    )
    here = _filtered(SAMPLES)
    for result in there:
        same(result, here)


@every_tracker
def test_copies_of_trackers_are_independent(name: str) -> None:
    make, frames = TRACKERS[name]
    tracker = make()
    tracker.filter(frames[:20])
    before = copy.deepcopy(tracker.forecast(1.0))
    twin = copy.copy(tracker)
    twin.filter(frames[20:])
    same(tracker.forecast(1.0), before)


def test_copies_of_banks_are_independent() -> None:
    bank = TrackerBank(5, 3, n_samples=6)
    bank.update(MATRICES[:5])
    before = bank.covariance.copy()
    copy.copy(bank).update(MATRICES[5:10])
    assert_array_equal(bank.covariance, before)


# --------------------------------------------------------------------------- extreme sizes

COVARIANCE_TRACKERS = [n for n, (_, frames) in TRACKERS.items() if frames is MATRICES]


@pytest.mark.parametrize("name", COVARIANCE_TRACKERS)
@pytest.mark.parametrize("size", [1e300, 1e155, 1e-155, 1e-300])
def test_sizes_whose_squares_are_no_numbers_are_refused(name: str, size: float) -> None:
    tracker = TRACKERS[name][0]()
    with pytest.raises(ObservationError, match="units"):
        tracker.filter(size * MATRICES)
    with pytest.raises(ObservationError, match="units"):
        tracker.update(size * MATRICES[0])
    tracker.filter(MATRICES)
    before = copy.deepcopy(tracker.forecast(1.0))
    with pytest.raises(ObservationError, match="units"):
        tracker.update(size * MATRICES[0])
    same(tracker.forecast(1.0), before)


@pytest.mark.parametrize("name", COVARIANCE_TRACKERS)
@pytest.mark.parametrize("size", [1e140, 1e-140])
def test_sizes_up_to_there_change_nothing(name: str, size: float) -> None:
    make, _ = TRACKERS[name]
    large, usual = make().filter(size * MATRICES), make().filter(MATRICES)
    assert_allclose(large.covariance / size, usual.covariance, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("how", ["skip", "repair"])
def test_a_tracker_told_to_skip_skips_them(how: Any) -> None:
    for size in (1e300, 1e-300):
        frames, gaps = MATRICES.copy(), MATRICES.copy()
        frames[5] *= size
        gaps[5] = np.nan
        for gains in ("auto", "information"):
            tracker = KGMRF(n_samples=6, gains=gains, on_invalid=how)
            same(tracker.filter(frames), KGMRF(n_samples=6, gains=gains).filter(gaps), 1e-12)
    rows, holes = SAMPLES.copy(), SAMPLES.copy()
    rows[5, 1], holes[5, 1] = 1e300, np.nan
    tracker = VectorTracker(noise_std=1.0, on_invalid=how)
    same(tracker.filter(rows), VectorTracker(noise_std=1.0).filter(holes))


@pytest.mark.parametrize("gains", ["auto", "information"])
@pytest.mark.parametrize("engine", ["compiled", "readable"])
def test_a_bank_skips_sizes_whose_squares_are_no_numbers(
    engine: str, gains: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KGMRF_ENGINE", engine)
    frames = MATRICES[:4] * np.asarray([1.0, 1e300, 1e-300, 1e140])[:, None, None]
    taken = TrackerBank(4, 3, n_samples=6, gains=gains).update(frames)
    assert taken.observed.tolist() == [True, False, False, True]
    assert taken.invalid.tolist() == [False, True, True, False]


def test_samples_and_vectors_too_large_to_square_are_refused() -> None:
    for tracker in (KGMRF(), KineticGaussian(), VectorTracker(noise_std=1.0)):
        with pytest.raises(ObservationError, match=r"e\+200 at index .* larger units"):
            tracker.filter(1e200 * SAMPLES)


@pytest.mark.parametrize("make", [KineticGaussian, KGMRF, EuclideanEMA])
def test_samples_whose_squares_are_too_large_or_too_small_are_refused(make: Any) -> None:
    tracker = make()
    with pytest.raises(ObservationError, match=r"e\+100 at index .* larger units"):
        tracker.filter(1e100 * SAMPLES)
    with pytest.raises(ObservationError, match=r"e-100, .* smaller units"):
        tracker.filter(1e-100 * SAMPLES)
    faint = SAMPLES.copy()
    faint[5] *= 1e-100  # one of many may be
    assert np.isfinite(tracker.filter(faint).covariance[-1]).all()
    _check.sample_sizes(np.zeros((3, 2)), "silence", whole=True)


# --------------------------------------------------------------------------- lists and nothing


@pytest.mark.parametrize("name", ["KGMRF of samples", "Gaussian", "Vector"])
def test_a_list_of_rows_is_samples(name: str) -> None:
    make, frames = TRACKERS[name]
    same(make().filter(frames.tolist()), make().filter(frames))
    same(make().filter(tuple(map(tuple, frames))), make().filter(frames))
    gaps = frames.copy()
    gaps[4] = np.nan
    rows: list[Any] = frames.tolist()
    rows[4] = None
    same(make().filter(rows), make().filter(gaps))


def test_single_entries_may_be_missing_in_lists_and_nullable_tables() -> None:
    gaps = SAMPLES.copy()
    gaps[4, 1] = np.nan
    rows: list[Any] = SAMPLES.tolist()
    rows[4][1] = None
    same(KGMRF().filter(rows), KGMRF().filter(gaps))
    pd = pytest.importorskip("pandas")
    table = pd.DataFrame(SAMPLES).astype("Float64")
    table.iloc[4, 1] = pd.NA
    same(KGMRF().filter(table), KGMRF().filter(gaps))
    for wrong in (["a", "b"], [["a", None]], None):
        with pytest.raises(ObservationError, match=r"expected real numbers|is None"):
            KGMRF().filter(wrong)


def test_a_list_of_rows_is_smoothed_and_diagnosed_as_samples() -> None:
    for tracker in (KGMRF(), KGMRF(gains="information")):
        same(tracker.smooth(SAMPLES.tolist()), tracker.smooth(SAMPLES))
    run = KGMRF().filter(SAMPLES)
    assert diagnose(run, SAMPLES.tolist()).to_dict() == diagnose(run, SAMPLES).to_dict()


def test_a_list_of_matrices_stays_one_of_matrices() -> None:
    same(KGMRF(n_samples=6).filter([None, *MATRICES][1:]), KGMRF(n_samples=6).filter(MATRICES))
    run = KGMRF(3, n_samples=6).filter([None, *MATRICES.tolist()])
    assert len(run) == 41
    with pytest.raises(ObservationError, match="all 3 frames are None"):
        KGMRF().filter([None, None, None])


@pytest.mark.parametrize("nothing", [np.empty((0, 3)), np.empty((0, 3, 3)), [], ()])
def test_nothing_is_called_nothing(nothing: Any) -> None:
    for run in (
        KGMRF().filter,
        KGMRF(gains="information").filter,
        KGMRF().smooth,
        KineticGaussian().filter,
        RotationTracker(noise_std=0.1).filter,
        VectorTracker(noise_std=1.0).filter,
    ):
        with pytest.raises(ObservationError, match="no frames"):
            run(nothing)


# --------------------------------------------------------------------------- times


def test_dates_of_every_kind_are_time_stamps() -> None:
    pd = pytest.importorskip("pandas")
    import datetime

    plain = KGMRF().filter(SAMPLES)
    days = [datetime.datetime(2026, 1, 1) + datetime.timedelta(hours=k) for k in range(40)]
    for times, step in (
        (pd.date_range("2026-01-01", periods=40, freq="D"), 86400.0),
        (pd.date_range("2026-01-01", periods=40, freq="5min").to_numpy(), 300.0),
        (pd.date_range("2026-01-01", periods=40, freq="250ms", tz="UTC"), 0.25),
        (pd.Series(pd.date_range("2026-01-01", periods=40, freq="D")), 86400.0),
        (pd.timedelta_range("0s", periods=40, freq="2s"), 2.0),
        (days, 3600.0),
        ([day.date() for day in days[:1]] + [d.date() for d in days[24:25]], None),
    ):
        samples = SAMPLES if step is not None else SAMPLES[:2]
        found = KGMRF().filter(samples, times=times)
        if step is None:
            assert_allclose(np.diff(found.time), 86400.0)
            continue
        assert_allclose(found.covariance, plain.covariance, rtol=1e-9)
        assert_allclose(np.diff(found.time), step)
        # At the first frame the unit of time is not known yet.
        assert_allclose(found.half_life[1:], plain.half_life[1:] * step, rtol=1e-6)
    with pytest.raises(ObservationError, match="NaT"):
        KGMRF().filter(SAMPLES, times=np.array(["NaT"] * 40, dtype="datetime64[s]"))
    with pytest.raises(ObservationError, match="times is not a rectangular array"):
        KGMRF().filter(SAMPLES, times=[[0.0], [1.0, 2.0]])
    with pytest.raises(ObservationError, match="it is text"):
        KGMRF().filter(SAMPLES, times=["2001-01-01"] * 40)
    tracker = KGMRF(n_samples=6)
    tracker.update(MATRICES[0])
    assert tracker.update(MATRICES[1], dt=np.timedelta64(1, "D")).time == 86400.0  # type: ignore[arg-type]
    with pytest.raises(ObservationError, match="no observations"):
        KGMRF().filter(np.zeros((5, 3), dtype="datetime64[s]"))


def test_times_that_run_backwards_are_named_as_plain_numbers() -> None:
    times = np.arange(40.0)
    times[9] = 3.0
    with pytest.raises(ObservationError, match=r"frame 9: 3\.0 after 8\.0"):
        KGMRF().filter(SAMPLES, times=times)
    with pytest.raises(ObservationError, match=r"got -1\.0:"):
        KGMRF(n_samples=6).update(MATRICES[0], dt=np.float64(-1.0))


# --------------------------------------------------------------------------- wrong kinds


def test_a_forecast_of_several_times_says_how() -> None:
    for make, frames in TRACKERS.values():
        tracker = make()
        tracker.filter(frames)
        with pytest.raises(ObservationError, match=r"shape \(3,\).*for step in steps"):
            tracker.forecast([1, 2, 3])


def test_the_word_for_the_mean_of_samples_is_named() -> None:
    options: Any = {"centre": "running"}
    for make in (KGMRF, lambda **o: TrackerBank(2, 3, **o)):
        with pytest.raises(TypeError, match=r"no setting 'centre'; .* mean=.expanding"):
            make(**options)
    with pytest.raises(TypeError, match=r"no setting 'speed'$"):
        KGMRF(speed=1)


def test_fit_and_score_without_a_tracker_say_so() -> None:
    for word in (learn.fit, learn.score):
        with pytest.raises(TypeError, match="a tracker, then the recording, got a ndarray"):
            word(MATRICES)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="needs a recording"):
            word(KGMRF(n_samples=6, gains="information"))


def test_diagnose_without_a_run_says_so() -> None:
    with pytest.raises(TypeError, match=r"got a ndarray.*diagnose\(tracker.filter\(X\), X\)"):
        diagnose(SAMPLES)
    with pytest.raises(TypeError, match="mean, covariance; diagnose one at a time"):
        diagnose(KineticGaussian().filter(SAMPLES))


def test_tensors_with_gradients_are_sent_to_detach() -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(ObservationError, match=r"detach\(\)"):
        KGMRF(n_samples=6).filter(torch.tensor(MATRICES, requires_grad=True))
    plain = KGMRF(n_samples=6).filter(torch.tensor(MATRICES))
    same(plain, KGMRF(n_samples=6).filter(MATRICES))


def test_tables_and_arrays_of_other_kinds_say_so() -> None:
    pd = pytest.importorskip("pandas")
    from kgmrf.tables import track_array, track_table

    series = pd.Series(SAMPLES[:, 0], name="a")
    pd.testing.assert_frame_equal(track_table(series), track_table(series.to_frame()))
    with pytest.raises(ValueError, match="window must be"):
        track_table(series, window=0)
    pytest.importorskip("narwhals")
    with pytest.raises(TypeError, match=r"ndarray of shape \(40, 3\)"):
        track_table(SAMPLES)
    pytest.importorskip("xarray")
    with pytest.raises(TypeError, match=r"ndarray of shape \(40, 3\).*dims"):
        track_array(SAMPLES)  # type: ignore[arg-type]


def test_a_bank_file_is_sent_to_the_bank(tmp_path: Path) -> None:
    TrackerBank(3, 2, n_samples=8).save(tmp_path / "bank.npz")
    with pytest.raises(ValueError, match=r"TrackerBank\.load"):
        load(tmp_path / "bank.npz")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    with pytest.raises(ValueError, match="no header, only a"):
        load(tmp_path / "other.npz")


def test_a_missing_package_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    result = KGMRF(n_samples=6).filter(MATRICES)
    vectors = VectorTracker(noise_std=1.0).filter(SAMPLES)
    for missing in ("pandas", "matplotlib", "sklearn", "torch", "sklearn.base", "xarray"):
        monkeypatch.setitem(sys.modules, missing, None)
    for name in list(sys.modules):
        if name.startswith(("kgmrf.torch", "kgmrf.sklearn.estimator", "matplotlib.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(kgmrf, "torch", raising=False)
    for run, extra in (
        (result.to_frame, "pandas"),
        (vectors.to_frame, "pandas"),
        (result.plot, "plots"),
        (vectors.plot, "plots"),
        (lambda: __import__("kgmrf.torch"), "torch"),
        (lambda: __import__("kgmrf.sklearn.estimator"), "sklearn"),
    ):
        with pytest.raises(ModuleNotFoundError, match=rf'pip install "kgmrf\[{extra}\]"') as error:
            run()
        assert error.value.name


# --------------------------------------------------------------------------- health


@pytest.mark.parametrize("d", [1, 2, 3, 6])
@pytest.mark.parametrize("seed", [0, 1])
def test_healthy_streams_are_healthy(d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    spread = 2.0 ** -np.arange(d)
    samples = rng.normal(size=(400, d)) * spread
    report = diagnose(KGMRF().filter(samples), samples)
    assert report.healthy, report
    blocks = rng.normal(size=(400, 2 * d, d)) * spread
    frames = np.swapaxes(blocks, -1, -2) @ blocks / (2 * d)
    report = diagnose(KGMRF(n_samples=2 * d).filter(frames), frames, n_samples=2 * d)
    assert report.healthy, report
    report = diagnose(KGMRF().filter(blocks, samples=True), blocks)
    assert report.healthy, report


def test_samples_and_their_second_moments_are_the_same_evidence() -> None:
    samples = np.random.default_rng(1).normal(size=(400, 3)) * [4.0, 2.0, 1.0]
    outer = samples[:, :, None] * samples[:, None, :]
    run = KGMRF().filter(samples)
    of_samples = diagnose(run, samples).to_dict()
    # Only samples tell how long they predict each other.
    assert of_samples["findings"].pop()["name"] == "rows predict each other"
    assert of_samples == diagnose(run, outer, n_samples=1).to_dict()


def test_what_is_really_off_the_cone_is_found() -> None:
    run = KGMRF().filter(np.random.default_rng(1).normal(size=(400, 3)) * [4.0, 2.0, 1.0])
    fields = {name: np.array(getattr(run, name)) for name in run.fields()}
    fields["covariance"][200] -= 2.0 * np.eye(3)
    assert "off the manifold" in diagnose(kgmrf.Result(fields)).faults
    fields["covariance"][200] += 2.0 * np.eye(3)
    assert "off the manifold" not in diagnose(kgmrf.Result(fields)).faults
    fields["covariance"][200, 0, 1] += 0.1
    assert "off the manifold" in diagnose(kgmrf.Result(fields)).faults
