"""State files: written whole or not at all, read strictly, and nothing built that is not ours."""

from __future__ import annotations

import json
import os
import stat
import struct
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kgmrf
from kgmrf import KGMRF, RotationTracker, TrackerBank, _npz, load
from kgmrf.baselines import EuclideanEMA
from kgmrf.trackers import KineticGaussian, ProductTracker

posix = pytest.mark.skipif(os.name != "posix", reason="links and limits of POSIX")


def started(tracker: Any) -> Any:
    for k in range(4):
        tracker.update(np.diag([2.0 + k, 1.0]))
    return tracker


# ---------------------------------------------------------------------- writing


@posix
def test_a_full_disk_leaves_the_old_state(tmp_path: Path) -> None:
    """Files were written in place: a full disk destroyed the old state."""
    path = tmp_path / "state.npz"
    started(EuclideanEMA()).save(path)
    before = path.read_bytes()
    code = (
        "import resource, signal, sys, numpy as np\n"
        "from kgmrf.baselines import EuclideanEMA\n"
        "tracker = EuclideanEMA()\n"
        "tracker.update(np.tile(np.eye(2), (2000, 1, 1)))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "try: tracker.save(sys.argv[1])\n"
        "except OSError as error: print(error.strerror)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(kgmrf.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "File too large\n", done.stderr
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["state.npz"]


@posix
def test_links_are_replaced_and_modes_kept(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    path = tmp_path / "state.npz"
    path.symlink_to(precious)
    started(EuclideanEMA()).save(path)
    assert precious.read_text() == "precious"
    path.chmod(0o600)
    started(EuclideanEMA()).save(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(IsADirectoryError):
        started(EuclideanEMA()).save(tmp_path)


@given(
    st.dictionaries(
        st.text("abc_", min_size=1, max_size=5),
        st.sampled_from(
            [
                np.zeros(0),
                np.float64(3.0),
                np.arange(12.0).reshape(3, 4),
                np.asfortranarray(np.arange(12.0).reshape(3, 4)),
                np.array([True, False]),
                np.arange(3, dtype=np.int32),
            ]
        ),
        max_size=4,
    ),
    st.dictionaries(st.text(max_size=4), st.integers() | st.text(max_size=4), max_size=3),
)
def test_what_is_written_is_read(
    tmp_path: Path, arrays: dict[str, Any], header: dict[str, Any]
) -> None:
    header.pop("format", None)
    _npz.write(tmp_path / "s", header, arrays)
    for found, values in (_npz.read(tmp_path / "s"), _npz.unpack(_npz.pack(header, arrays))):
        assert found == {**header, "format": _npz.FORMAT}
        assert set(values) == set(arrays)
        for name, array in arrays.items():
            assert values[name].dtype == np.asarray(array).dtype
            np.testing.assert_array_equal(values[name], array)
    # numpy reads it too.
    with np.load(tmp_path / "s") as other:
        assert len(other.files) == len(arrays) + 1


# ---------------------------------------------------------------------- reading


def test_another_format_is_refused_by_its_number(tmp_path: Path) -> None:
    text = json.dumps({"format": 1, "tracker": "KGMRF"}).encode()
    np.savez(tmp_path / "s.npz", header=np.frombuffer(text, dtype=np.uint8))
    with pytest.raises(
        ValueError, match=rf"s\.npz .*it has format 1, this version reads {_npz.FORMAT}"
    ):
        load(tmp_path / "s.npz")


STATES = Path(__file__).parent / "states"
"""An average with gain 0.5 after diag(2, 1) and diag(4, 3), as versions of formats 5 and 6
saved it. A new format adds its file; the older ones stay, to be refused."""


@pytest.mark.parametrize("read", [load, EuclideanEMA.load, TrackerBank.load])
def test_a_file_of_an_older_version_is_refused_by_its_number(read: Any) -> None:
    """The policy of docs/versioning.md, although but for the number this file could be read."""
    with pytest.raises(ValueError, match="it has format 5, this version reads") as caught:
        read(STATES / "format_5.npz")
    assert "format_5.npz" in str(caught.value)
    assert str(caught.value).endswith("make the state again from its data")
    with pytest.raises(ValueError, match="it has format 5, this version reads"):
        _npz.unpack((STATES / "format_5.npz").read_bytes())


def test_a_file_of_this_format_is_read_as_it_was_written(tmp_path: Path) -> None:
    """Files of the present format are there, so that none can change without a new number."""
    path = STATES / f"format_{_npz.FORMAT}.npz"
    tracker = load(path)
    assert type(tracker) is EuclideanEMA
    assert tracker.gain == 0.5
    np.testing.assert_array_equal(tracker.forecast(1).covariance, np.diag([3.0, 2.0]))
    tracker.save(tmp_path / "again.npz")
    header, arrays = _npz.read(path)
    again, same = _npz.read(tmp_path / "again.npz")
    assert again == header
    assert set(same) == set(arrays)
    for name, array in arrays.items():
        np.testing.assert_array_equal(same[name], array)


def overlapping(n: int, size: int) -> bytes:
    """A zip file whose n entries share one stretch of data."""
    data = _npy(size)
    name = b"a0.npy"
    local = struct.pack(
        "<4s5H3I2H", b"PK\3\4", 20, 0, 0, 0, 0, zlib.crc32(data), len(data), len(data), len(name), 0
    )
    text = local + name + data
    directory = b"".join(
        struct.pack(
            "<4s6H3I5H2I",
            *(b"PK\1\2", 20, 20, 0, 0, 0, 0, zlib.crc32(data), len(data), len(data), 8),
            *(0, 0, 0, 0, 0, 0),
        )
        + b"a%03d.npy" % k
        for k in range(n)
    )
    end = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, n, n, len(directory), len(text), 0)
    return text + directory + end


def _npy(size: int) -> bytes:
    import io

    stream = io.BytesIO()
    np.save(stream, np.zeros(size, dtype=np.uint8))
    return stream.getvalue()


def test_entries_that_overlap_are_read_once(tmp_path: Path) -> None:
    """Overlapping zip entries turned 5 MB into 2.1 GB."""
    path = tmp_path / "s.npz"
    path.write_bytes(overlapping(400, 1_000_000))
    with zipfile.ZipFile(path) as archive:
        assert sum(info.file_size for info in archive.infolist()) > 3e8
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"s\.npz is not a kgmrf state file"):
        load(path)
    assert tracemalloc.get_traced_memory()[1] < 4 * path.stat().st_size
    tracemalloc.stop()


def test_a_large_state_takes_no_more_than_a_few_times_its_size(tmp_path: Path) -> None:
    tracker = EuclideanEMA()
    tracker.update(np.tile(np.eye(4), (20_000, 1, 1)))
    path = tmp_path / "s.npz"
    tracker.save(path)
    load(path)  # modules that are imported for it do not count
    tracemalloc.start()
    load(path)
    largest = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert largest < 14 * path.stat().st_size  # the estimate is looked at: frames, spectra
    tracemalloc.start()
    _npz.read(path)
    assert tracemalloc.get_traced_memory()[1] < 2 * path.stat().st_size
    tracemalloc.stop()


@pytest.mark.parametrize("place", ["d", "batch", "settings"])
def test_a_product_that_promises_too_much(tmp_path: Path, place: str) -> None:
    path = tmp_path / "s.npz"
    tracker = KineticGaussian(covariance=EuclideanEMA())
    tracker.filter(np.random.default_rng(0).normal(size=(20, 2)))
    tracker.save(path)
    header, arrays = _npz.read(path)
    header.pop("format")
    if place == "d":
        header["d"] = 10**8
    elif place == "batch":
        header["batch_shape"] = [10**8]
    else:
        header["settings"]["d"] = header["settings"]["covariance"]["d"] = 10**8
    _npz.write(path, header, arrays)
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"s\.npz is not a kgmrf state file"):
        load(path)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


def test_only_classes_of_kgmrf_are_built_from_files(tmp_path: Path) -> None:
    """Any imported subclass of Tracker was built with the settings of the file."""
    built = []

    class Foreign(EuclideanEMA):
        def __init__(self, d: int | None = None, *, gain: float = 0.1) -> None:
            built.append(gain)
            super().__init__(d, gain=gain)

    path = tmp_path / "s.npz"
    started(Foreign()).save(path)
    built.clear()
    with pytest.raises(ValueError, match="'Foreign', which kgmrf does not define"):
        load(path)
    with pytest.raises(ValueError, match="'Foreign', which kgmrf does not define"):
        EuclideanEMA.load(path)
    assert not built
    # Who names the class means it.
    assert Foreign.load(path).forecast(1).covariance.shape == (2, 2)
    # Nor inside others, nor under a name of ours.
    inner = {"tracker": "Foreign", "settings": {}, "d": 2, "batch_shape": None}
    built.clear()
    for make in (
        lambda table: KineticGaussian(covariance=table),
        lambda table: ProductTracker({"a": table}),
    ):
        with pytest.raises(ValueError, match="kgmrf does not define"):
            make(inner)
    type("EuclideanEMA", (Foreign,), {"__module__": "elsewhere"})
    started(EuclideanEMA()).save(path)
    assert type(load(path)) is EuclideanEMA
    assert not built


def test_states_that_cannot_be_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.npz"
    started(EuclideanEMA()).save(path)
    header, arrays = _npz.read(path)
    header.pop("format")
    for name, value in (
        ("arrays.matrix", np.diag([1.0, -1.0])),
        ("arrays.matrix", np.array([[1.0, 0.5], [0.0, 1.0]])),
        ("arrays.matrix", np.full((2, 2), np.nan)),
        ("arrays.matrix", np.full((2, 2), np.inf)),
        ("arrays.matrix", np.eye(3)),
        ("arrays.matrix", np.eye(2, dtype=np.float32)),
        ("time", np.asarray(np.nan)),
    ):
        _npz.write(path, header, {**arrays, name: value})
        with pytest.raises(ValueError, match=r"s\.npz is not a kgmrf state file"):
            load(path)
    _npz.write(path, header, {**arrays, "more": np.zeros(3)})
    with pytest.raises(ValueError, match=r"s\.npz is not a kgmrf state file"):
        load(path)


def test_gaussians_and_averages_come_back(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).normal(size=(40, 2))
    for tracker in (KineticGaussian(covariance=EuclideanEMA()), EuclideanEMA()):
        for row in rows[:20]:
            tracker.partial_fit(row)
        tracker.save(tmp_path / "s")
        other = load(tmp_path / "s")
        for row in rows[20:]:
            expected, found = tracker.partial_fit(row), other.partial_fit(row)
        np.testing.assert_array_equal(found.covariance, expected.covariance)


def _changed(path: Path, name: str, change: Any) -> None:
    header, arrays = _npz.read(path)
    header.pop("format")
    arrays[name] = arrays[name].copy()
    change(arrays[name])
    _npz.write(path, header, arrays)


BANKS = [
    {"d": 2, "gains": "information"},
    {"d": 2},
    {"d": 3, "kind": "rotation", "noise_std": 0.1, "gains": "information"},
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # numbers that cannot be are meant here
@pytest.mark.parametrize("length", [3, 20])  # during the start-up, and behind it
@pytest.mark.parametrize("settings", BANKS)
def test_any_one_number_of_a_bank_may_be_any(
    tmp_path: Path, settings: dict[str, Any], length: int
) -> None:
    """Whatever stands in one place of a row, the file is refused or the bank works.

    A count of observations that was set to 0 beside a state that has seen some once made the kernel
    write out of bounds, and later gave NaN.
    """
    turns = settings.get("kind") == "rotation"
    bank, dice = TrackerBank(1, **settings), np.random.default_rng(0)
    rows = np.broadcast_to(np.eye(3), (length, 3, 3)) if turns else dice.normal(size=(length, 2))
    for row in rows:
        bank.update(row[None])
    path = tmp_path / "bank.npz"
    bank.save(path)
    header, arrays = _npz.read(path)
    header.pop("format")
    refused = 0
    for place in range(arrays["rows"].shape[1]):
        for value in (np.nan, 1e300, -1.0, 0.0):
            changed = arrays["rows"].copy()
            changed[0, place] = value
            path.write_bytes(_npz.pack(header, {**arrays, "rows": changed}))
            try:
                found = TrackerBank.load(path)
            except ValueError:
                refused += 1
                continue
            for row in rows:
                found.update(row[None])
            estimate = found.estimate()
            matrix = estimate.rotation if turns else estimate.covariance
            assert np.isfinite(matrix).all(), (place, value)
    assert refused > arrays["rows"].shape[1]


def test_a_rotation_row_with_its_numbers_in_disorder_is_refused(tmp_path: Path) -> None:
    tracker = RotationTracker()
    for _ in range(12):
        tracker.update(np.eye(3))
    path = tmp_path / "state.npz"
    for seed in range(8):
        tracker.save(path)
        shuffle = np.random.default_rng(seed).shuffle
        _changed(path, "rows", lambda rows, shuffle=shuffle: shuffle(rows[0]))
        with pytest.raises(ValueError, match="rows"):
            RotationTracker.load(path)


def test_a_tracker_with_a_channel_that_was_always_zero_comes_back(tmp_path: Path) -> None:
    tracker = KGMRF(2)
    for value in (1.0, -2.0, 0.5):
        tracker.partial_fit([value, 0.0])
    tracker.save(tmp_path / "state.npz")
    again = KGMRF.load(tmp_path / "state.npz")
    found = again.partial_fit([1.0, 0.3]).covariance
    assert np.array_equal(found, tracker.partial_fit([1.0, 0.3]).covariance)
    assert np.isfinite(found).all()
