"""Blocks of tracks on dask are the bank that holds them all, whatever the chunks."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgmrf
from kgmrf import KGMRF, EuclideanEMA, ObservationError, TrackerBank, VectorTracker
from kgmrf.geometry import so

pytest.importorskip("dask", reason="dask is not installed: nothing is scaled out")
pytest.importorskip("distributed", reason="distributed is not installed: nothing is scaled out")
pytest.importorskip("zarr", reason="zarr is not installed: nothing is scaled out")
import dask.array as da

from kgmrf.dask import filter_array

FIELDS = ["covariance", "velocity", "nis", "age"]
KILL = getattr(signal, "SIGKILL", signal.SIGTERM)
PATIENCE = 120.0
"""Seconds until a test gives up waiting; on an idle machine it waits a few at most."""


def _covariances(rng: Any, n_frames: int, n: int, d: int, m: int = 6) -> Any:
    x = rng.standard_normal((n_frames, n, m, d)) * np.geomspace(3.0, 0.5, d)
    return np.swapaxes(x, -1, -2) @ x / m


def _in_memory(frames: Any, steps: Any = None, **settings: Any) -> dict[str, Any]:
    """One bank with all tracks, frame by frame."""
    bank = TrackerBank(frames.shape[1], frames.shape[-1], n_threads=1, **settings)
    found: dict[str, list[Any]] = {name: [] for name in FIELDS}
    for k, frame in enumerate(frames):
        bank.update(frame, dt=1.0 if steps is None else steps[k])
        for name in FIELDS:
            found[name].append(np.array(getattr(bank.estimate(), name)))
    return {name: np.stack(parts) for name, parts in found.items()}


def _same(found: Any, expected: Any, *, exact: bool) -> None:
    if exact:
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-10)


def _wait(condition: Callable[[], Any], what: str) -> Any:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        found = condition()
        if found:
            return found
        time.sleep(0.002)
    raise AssertionError(f"waited {PATIENCE} s for {what}")


# ---------------------------------------------------------------------- lazy arrays


@settings(max_examples=10)
@given(
    st.integers(1, 9),
    st.one_of(st.sampled_from([8, 16]), st.integers(1, 21)),
    st.integers(1, 3),
    st.integers(0, 5),
)
def test_chunks_change_nothing(time_chunk: int, track_chunk: int, side: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    frames = _covariances(rng, 9, 21, 3)
    frames[rng.random((9, 21)) < 0.2] = np.nan
    frames[4, 3] = -np.eye(3)  # cannot be used: that track coasts
    times = np.cumsum(rng.choice([0.5, 1.0, 2.0], 9))
    expected = _in_memory(frames, np.diff(times, prepend=0.0), n_samples=6)
    lazy = da.from_array(frames, chunks=(time_chunk, track_chunk, side, 3))
    found = filter_array(TrackerBank(0, 3, n_samples=6), lazy, fields=FIELDS, times=times)
    (computed,) = da.compute(found, scheduler="synchronous")
    for name in FIELDS:
        assert found[name].shape == expected[name].shape
        assert found[name].dtype == expected[name].dtype
        assert found[name].chunks[:2] == lazy.chunks[:2]
        _same(computed[name], expected[name], exact=track_chunk % 8 == 0 or track_chunk >= 21)


def test_threads_and_a_second_run_change_nothing() -> None:
    frames = _covariances(np.random.default_rng(1), 12, 32, 3)
    expected = _in_memory(frames, n_samples=6)
    lazy = da.from_array(frames, chunks=(5, 8, 3, 3))
    found = filter_array(TrackerBank(0, 3, n_samples=6), lazy, fields=FIELDS)
    for _ in range(2):
        (computed,) = da.compute(found, scheduler="threads", num_workers=2)
        for name in FIELDS:
            _same(computed[name], expected[name], exact=True)
    part = found["covariance"][7:9, 20:30]  # what is not asked for need not be computed
    _same(part.compute(scheduler="threads"), expected["covariance"][7:9, 20:30], exact=True)


def test_samples_count_themselves() -> None:
    rng = np.random.default_rng(2)
    samples = rng.standard_normal((10, 16, 5, 2)) * [3.0, 1.0]
    samples[3, 2] = np.nan
    samples[4, 5, 1] = np.nan
    lazy = da.from_array(samples, chunks=(4, 8, 5, 2))
    bank = TrackerBank(16, 2)
    expected = []
    for block in samples:
        bank.update(block, samples=True)
        expected.append(bank.covariance)
    found = filter_array(TrackerBank(0, 2), lazy, samples=True)
    assert list(found) == ["covariance"]
    _same(found["covariance"].compute(scheduler="synchronous"), np.stack(expected), exact=True)
    samples[6, 7, 2, 0] = np.nan  # a sample with a gap counts by its other cells
    broken = filter_array(
        TrackerBank(0, 2), da.from_array(samples, chunks=(4, 8, 5, 2)), samples=True
    )
    assert np.isfinite(broken["covariance"].compute(scheduler="synchronous")[4:]).all()


def test_rows_are_a_sample_of_each_key() -> None:
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((12, 16, 3)) * [3.0, 1.0, 0.5]
    rows[3, 2] = np.nan
    rows[4, 5, 1] = np.nan
    bank, expected = TrackerBank(16, 3), []
    for row in rows:
        bank.update(row)
        expected.append(bank.covariance)
    lazy = da.from_array(rows, chunks=(5, 8, 2))
    found = filter_array(TrackerBank(0, 3), lazy, samples=True)["covariance"]
    assert found.chunks[:2] == ((5, 5, 2), (8, 8))
    _same(found.compute(scheduler="synchronous"), np.stack(expected), exact=True)
    with pytest.raises(ObservationError, match=r"rows \(time, key, d\) need samples=True"):
        filter_array(TrackerBank(0, 3), lazy)


@pytest.mark.parametrize(
    "tracker",
    [KGMRF(2), KGMRF(gains="zero_lag"), EuclideanEMA()],
    ids=["auto", "one law", "average"],
)
def test_any_tracker_is_a_pattern(tracker: Any) -> None:
    rng = np.random.default_rng(3)
    samples = rng.standard_normal((9, 2, 3, 4, 2)) * [3.0, 1.0]
    samples[3, 1, 1] = np.nan
    samples[6, 0, 2, 1, 0] = np.nan  # ... and for a tracker it does
    lazy = da.from_array(samples, chunks=(4, 1, 2, 4, 2))
    found = filter_array(tracker, lazy, samples=True, fields="covariance", times=np.arange(9) * 0.5)
    expected = tracker.copy().filter(samples, samples=True, times=np.arange(9) * 0.5).covariance
    assert tracker.batch_shape is None
    _same(found["covariance"].compute(scheduler="threads"), expected, exact=False)


def test_rotations() -> None:
    turns = so.exp(so.hat(0.2 * np.random.default_rng(4).standard_normal((8, 16, 3))))
    found = filter_array(
        TrackerBank(0, 3, kind="rotation", noise_std=0.1), da.from_array(turns, chunks=(3, 8, 3, 3))
    )
    bank = TrackerBank(16, 3, kind="rotation", noise_std=0.1)
    assert np.isnan(bank.rotation).all()
    for frame in turns:
        bank.update(frame)
    _same(found["rotation"][-1].compute(scheduler="synchronous"), bank.rotation, exact=True)
    _same(bank.rotation, bank.estimate().rotation, exact=True)
    assert (np.linalg.eigvalsh(bank.covariance) > 0.0).all()  # of the angles
    law = TrackerBank(1, 3, kind="rotation", noise_std=0.1, gains="information")
    with pytest.raises(AttributeError, match="follows a rotation"):
        _ = law.covariance
    with pytest.raises(AttributeError, match="follows a covariance"):
        _ = TrackerBank(1, 3).rotation


def test_wrong_arguments_say_so_before_anything_runs() -> None:
    frames = da.ones((4, 8, 3, 3), chunks=(2, 4, 3, 3))
    bank = TrackerBank(0, 3, n_samples=6)
    begun = KGMRF(3, n_samples=6)
    begun.update(np.eye(3))
    for wrong, message in (
        ("information", "pattern of all tracks is a tracker"),
        (VectorTracker(noise_std=0.1), "pattern of all tracks is a tracker"),
        (TrackerBank(5, 3), "tracks of its own"),
        (begun, "tracks of its own"),
        (TrackerBank(0, 3), "how many samples"),
        (TrackerBank(0, 2), r"d = 2, must have shape \(time, ..., d, d\)"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            filter_array(wrong, frames)
    with pytest.raises(ValueError, match="fields must be one of"):
        filter_array(bank, frames, fields=["speed"])
    with pytest.raises(ObservationError, match="at least one axis of tracks"):
        filter_array(bank, frames[:, 0])
    with pytest.raises(ValueError, match="n_samples is inferred"):
        filter_array(bank, frames, samples=True, n_samples=4)
    with pytest.raises(ObservationError, match="times"):
        filter_array(bank, frames, times=[0.0, 1.0])
    strict = TrackerBank(0, 3, n_samples=6, on_invalid="raise")
    found = filter_array(strict, -da.stack([frames[:, :, 0]] * 3, axis=-1))
    with pytest.raises(ObservationError, match="observations") as caught:
        found["covariance"].compute(scheduler="synchronous")
    assert "frames 0 to 1" in caught.value.__notes__[0]


def test_times_may_be_dates() -> None:
    """They were counted in the unit of their type, such as nanoseconds."""
    frames = _covariances(np.random.default_rng(8), 6, 4, 3)
    lazy, bank = da.from_array(frames, chunks=(3, 4, 3, 3)), TrackerBank(0, 3, n_samples=6)
    dates = np.datetime64("2024-01-01", "ns") + np.arange(6) * np.timedelta64(500, "ms")
    (a, b) = (
        filter_array(bank, lazy, fields="velocity", times=times)["velocity"].compute()
        for times in (dates, np.arange(6) * 0.5)
    )
    _same(a, b, exact=False)


def test_what_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask.array", None)
    with pytest.raises(ImportError, match=r'needs dask: pip install "kgmrf\[dask\]"'):
        filter_array(TrackerBank(0, 3), np.ones((1, 1, 3, 3)))


# ---------------------------------------------------------------------- names


@pytest.mark.parametrize("chunks", [{"time": 20}, {"subject": 1}, {"time": 7, "sensor": 1}])
def test_named_dimensions_in_chunks(chunks: dict[str, int]) -> None:
    xr = pytest.importorskip("xarray", reason="xarray is not installed: no named dimensions")
    from kgmrf.tables import track_array

    data = xr.DataArray(
        np.random.default_rng(5).normal(size=(3, 2, 66))
        * np.asarray([3.0, 1.0, 0.5])[:, None, None],
        dims=("sensor", "subject", "time"),
        coords={"sensor": ["x", "y", "z"], "time": np.arange(66) * 0.01, "subject": ["s1", "s2"]},
    )
    words: dict[str, Any] = {"channel": "sensor", "window": 8, "unit": 0.08}
    expected = track_array(data, **words)
    found = track_array(data.chunk(chunks), **words)
    assert found.covariance.chunks is not None
    xr.testing.assert_allclose(found.compute(scheduler="synchronous"), expected, rtol=1e-12)
    one = data.isel(subject=0)
    alone = track_array(one.chunk({"time": 20}), **words).compute(scheduler="synchronous")
    xr.testing.assert_allclose(alone, track_array(one, **words), rtol=1e-12)
    bank = track_array(data.chunk(chunks), TrackerBank(0, 3), **words)
    single = track_array(data, KGMRF(), **words)
    np.testing.assert_allclose(
        bank.covariance.compute(scheduler="synchronous"), single.covariance, rtol=1e-9
    )


# ---------------------------------------------------------------------- going on


@pytest.mark.parametrize("timed", [True, False])
@pytest.mark.parametrize("alone", [True, False])
def test_a_run_goes_on_from_saved_states(tmp_path: Path, timed: bool, alone: bool) -> None:
    frames = _covariances(np.random.default_rng(6), 11, 20, 3)
    frames[5, 3] = np.nan
    times = 100.0 + np.cumsum(np.random.default_rng(7).random(11))
    pattern: Any = KGMRF(3, n_samples=6) if alone else TrackerBank(0, 3, n_samples=6)
    lazy = da.from_array(frames, chunks=(4, 8, 3, 3))
    words: dict[str, Any] = {"fields": ["covariance", "age", "state"]}

    def stamps(first: int, last: int) -> dict[str, Any]:
        return {"times": times[first:last]} if timed else {}

    whole = filter_array(pattern, lazy, **words, **stamps(0, 11))
    begun = filter_array(pattern, lazy[:7], **words, **stamps(0, 7))
    assert len(begun["state"]) == 3
    for k, state in enumerate(begun["state"]):
        state.compute(scheduler="synchronous").save(tmp_path / f"{k}.npz")
    read = kgmrf.load if alone else TrackerBank.load
    states = [read(tmp_path / f"{k}.npz") for k in range(3)]
    for start in (states, begun["state"]):
        more = filter_array(pattern, lazy[7:], **words, **stamps(6, 11), start=start)
        for name in ("covariance", "age"):
            (a, b, c) = da.compute(whole[name], begun[name], more[name], scheduler="synchronous")
            _same(np.concatenate([b, c]), a, exact=True)
    with pytest.raises(ValueError, match="2 states for 3 chunks of tracks"):
        filter_array(pattern, lazy[7:], start=states[:2])
    with pytest.raises(ObservationError, match=r"times .* one more, in front, \(5,\)"):
        filter_array(pattern, lazy[7:], start=states, times=times[7:])
    # Other chunks, also as many of them, are refused at once; when states are lazy, by name.
    other = lazy[7:].rechunk((4, (4, 8, 8), 3, 3))
    with pytest.raises(ValueError, match=r"state of \(8,\) tracks for a chunk of \(4,\)"):
        filter_array(pattern, other, start=states)
    found = filter_array(pattern, other, start=begun["state"])["covariance"]
    with pytest.raises(ValueError, match=r"state of \(.,\) tracks for a chunk of \(.,\)"):
        found.compute(scheduler="synchronous")


def test_a_killed_worker_is_made_up_for(tmp_path: Path) -> None:
    from distributed import Client, LocalCluster

    frames = _covariances(np.random.default_rng(10), 60, 32, 3)
    expected = _in_memory(frames, n_samples=6)["covariance"]
    da.from_array(frames, chunks=(1, 8, 3, 3)).to_zarr(str(tmp_path / "in"))
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            scheduler_port=0,
            local_directory=str(tmp_path / "scratch"),
            silence_logs="CRITICAL",
        ) as cluster,
        Client(cluster) as client,
    ):
        workers = client.run(os.getpid)
        assert len(workers) == 2
        assert os.getpid() not in workers.values()
        lazy = da.from_zarr(str(tmp_path / "in"))
        found = filter_array(TrackerBank(0, 3, n_samples=6), lazy)["covariance"]
        running = client.compute(found.to_zarr(str(tmp_path / "out"), compute=False))
        _wait(lambda: len(list((tmp_path / "out" / "c").glob("*"))) > 2, "a few chunks")
        os.kill(next(iter(workers.values())), KILL)
        assert not running.done()  # in the middle of it
        running.result(PATIENCE)
    _same(da.from_zarr(str(tmp_path / "out")).compute(), expected, exact=True)
