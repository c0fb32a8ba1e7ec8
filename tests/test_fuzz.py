"""Damaged files: a clear error or a correct reading; no crash, no code, no flood of memory."""

from __future__ import annotations

import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kgmrf
from kgmrf import KGMRF, EuclideanEMA, RotationTracker, TrackerBank, load
from kgmrf._npz import arrays_in
from kgmrf.io import DataError, open_source
from kgmrf.stream import Settings, Stream

N_DAMAGED = int(os.environ.get("KGMRF_FUZZ", "40"))
"""Damaged copies of every file; more for a long search."""

# Everything is read in a process of its own with a limit on its memory: a crash in a library or a
# gigabyte that a header asks for ends it.
READER = """
import resource, sys
from pathlib import Path
from kgmrf.io import DataError, open_source
for name in ("h5py", "pyarrow.parquet"):
    try: __import__(name)
    except ImportError: pass
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 1_000_000_000,) * 2)
read = refused = 0
for path in sorted(Path(sys.argv[1]).iterdir()):
    for kind in (None, "covariance"):
        try:
            for chunk in open_source(path, kind=kind):
                assert chunk.values.ndim in (2, 3)
            read += 1
        except DataError as error:
            assert "\\n" not in str(error) and path.name in str(error), (path, error)
            refused += 1
        except MemoryError:
            raise SystemExit(f"{path.name} asked for too much memory")
print(read, refused)
"""


def originals(folder: Path) -> list[Path]:
    """One good file of every format that can be read."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 3))
    scatter = np.einsum("ti,tj->tij", rows, rows)
    lines = ["time,a,b,c", *(f"{k},{','.join(map(repr, r))}" for k, r in enumerate(rows.tolist()))]
    (folder / "a.csv").write_text("\n".join(lines))
    trail = [
        f"{k} 0 0 0 {' '.join(map(repr, q))}"
        for k, q in enumerate(rng.normal(size=(20, 4)).tolist())
    ]
    (folder / "a.tum").write_text("\n".join(trail))
    np.save(folder / "a.npy", rows)
    np.savez(folder / "a.npz", observations=scatter, times=np.arange(40.0), n_samples=5)
    np.savez_compressed(folder / "b.npz", samples=rows)
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.table({"time": np.arange(40.0), "a": rows[:, 0]}), folder / "a.parquet")
    except ImportError:
        pass
    try:
        import h5py

        with h5py.File(folder / "a.h5", "w") as file:
            file["samples"] = rows
            file.create_dataset("packed", data=scatter, chunks=(10, 3, 3), compression="gzip")
    except ImportError:
        pass
    return sorted(folder.iterdir())


def damaged(good: bytes, rng: Any) -> bytes:
    """Cut off, with flipped bits, with a stretch of noise, or with a large number in it."""
    bad = bytearray(good)
    how = rng.integers(4)
    at = int(rng.integers(len(bad)))
    if how == 0:
        return bytes(bad[:at])
    if how == 1:
        for place in rng.integers(len(bad), size=int(rng.integers(1, 6))):
            bad[place] ^= 1 << int(rng.integers(8))
    elif how == 2:
        bad[at : at + 16] = rng.bytes(16)
    else:
        bad[at : at + 8] = b"\xff" * 7 + b"\x7f"
    return bytes(bad)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads its memory from /proc")
def test_damaged_files_of_every_format(tmp_path: Path) -> None:
    source, folder = tmp_path / "good", tmp_path / "bad"
    source.mkdir()
    folder.mkdir()
    rng = np.random.default_rng(7)
    files = originals(source)
    for path in files:
        good = path.read_bytes()
        for k in range(N_DAMAGED):
            (folder / f"{path.stem}{k}{path.suffix}").write_bytes(damaged(good, rng))
    environment = {**os.environ, "PYTHONPATH": str(Path(kgmrf.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", READER, str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    read, refused = map(int, done.stdout.split())
    assert read + refused == 2 * N_DAMAGED * len(files)
    assert refused > N_DAMAGED  # the damage is real


def npy(shape: tuple[int, ...], data: bytes = b"", descr: str = "<f8") -> bytes:
    """A .npy file that claims a shape, whatever comes behind."""
    stream = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue() + data


@pytest.mark.parametrize(
    "shape", [(10**12, 3), (3, 10**12), (10**9, 10**9), (2**63, 2), (-1, 3), (10, 4096, 4096)]
)
def test_a_header_that_promises_too_much(shape: tuple[int, ...], tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(npy(shape, bytes(1000)))
    with pytest.raises(DataError, match=r"a\.npy"):
        list(open_source(path))
    archive = tmp_path / "a.npz"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("samples.npy", npy(shape, bytes(1000)))
    with pytest.raises(DataError, match=r"a\.npz"):
        list(open_source(archive))
    with zipfile.ZipFile(archive, "a") as file:
        file.writestr("header.npy", npy((10**12,), b"{}", "|u1"))
    with pytest.raises(ValueError, match="not a kgmrf state file"):
        load(archive)


class Trap:
    """Unpickled, it would leave a mark."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.mark),))


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    trap = np.array([Trap(mark)], dtype=object)
    np.save(tmp_path / "a.npy", trap, allow_pickle=True)
    np.savez(tmp_path / "a.npz", samples=trap, header=trap)
    (tmp_path / "p.npz").write_bytes(pickle.dumps(Trap(mark)))
    for name in ("a.npy", "a.npz", "p.npz"):
        with pytest.raises(ValueError, match=name):
            list(open_source(tmp_path / name))
        with pytest.raises(ValueError, match=name):
            load(tmp_path / name)
        with pytest.raises(ValueError, match=name):
            TrackerBank.load(tmp_path / name)
        with pytest.raises(ValueError, match=name):
            Stream(Settings()).restore(tmp_path / name)
    assert not mark.exists()


def test_a_line_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with open(path, "wb") as file:
        file.write(b"a,b\n1,2\n")
        file.truncate(60_000_000)  # a hole: sixty million zero bytes on no disk
    with pytest.raises(DataError, match=r"a\.csv"):
        list(open_source(path))


# ---------------------------------------------------------------------- state files


def states(folder: Path) -> list[tuple[Path, Any]]:
    """Good state files, and how each is read."""
    trackers: list[Any] = [KGMRF(n_samples=5), EuclideanEMA(), RotationTracker(noise_std=0.1)]
    found: list[tuple[Path, Any]] = []
    for tracker in trackers:
        path = folder / f"{type(tracker).__name__}.npz"
        for _ in range(3):
            tracker.update(np.eye(3))
        tracker.save(path)
        found.append((path, load))
    bank = TrackerBank(3, 3, n_samples=5)
    for _ in range(3):
        bank.update(np.tile(np.eye(3), (3, 1, 1)))
    bank.save(folder / "bank.npz")
    found.append((folder / "bank.npz", TrackerBank.load))
    stream = Stream(Settings())
    stream.take([json.dumps({"key": k, "x": [1.0, 2.0]}).encode() for k in "abcab"])
    stream.save(folder / "stream.state")
    found.append((folder / "stream.state", lambda path: Stream(Settings()).restore(path)))
    return found


def outcome(read: Any, path: Path) -> tuple[Any, str | None]:
    """What was read, or what was said about it; anything but a ValueError is a failure."""
    try:
        return read(path), None
    except ValueError as error:
        return None, str(error)


def test_damaged_state_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    refused = 0
    for path, read in states(tmp_path):
        good = path.read_bytes()
        read(path)
        for _ in range(N_DAMAGED):
            path.write_bytes(damaged(good, rng))
            _, fault = outcome(read, path)
            assert fault is None or path.name in fault
            refused += fault is not None
        path.write_bytes(good)
    assert refused > 2 * N_DAMAGED


def rewritten(path: Path, **changes: Any) -> None:
    """The same state file with another header, checksums and all."""
    with open(path, "rb") as file:
        arrays: dict[str, Any] = arrays_in(file)
    place = "bank" if "bank" in arrays else "header"
    header = {**json.loads(bytes(arrays[place])), **changes}
    arrays[place] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with open(path, "wb") as file:
        np.savez(file, **arrays)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**12), 10**12)
    | st.floats()
    | st.sampled_from(["KGMRF", "Tracker", "os.system", "", "information"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["d", "gains", "law", "x", "n_samples"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


@given(
    st.sampled_from(["format", "tracker", "settings", "d", "batch_shape"]),
    json_values,
)
def test_a_tracker_with_any_header_is_refused_or_whole(
    tmp_path: Path, name: str, value: Any
) -> None:
    path, read = states(tmp_path)[0]
    rewritten(path, **{name: value})
    tracker, fault = outcome(read, path)
    assert fault is None or path.name in fault
    if tracker is not None and tracker.batch_shape is not None:
        assert tracker.forecast(1).covariance.shape == (3, 3)


@given(
    st.sampled_from(["format", "kind", "d", "dtype", "on_invalid", "next_id", "settings"]),
    json_values,
)
def test_a_bank_with_any_header_is_refused_or_whole(tmp_path: Path, name: str, value: Any) -> None:
    path, read = states(tmp_path)[-2]
    rewritten(path, **{name: value})
    bank, fault = outcome(read, path)
    assert fault is None or path.name in fault
    if bank is not None:
        assert len(bank) == 3
        assert bank.forecast(1).covariance.shape == (3, 3, 3)


@pytest.mark.parametrize("changes", [{"d": 10**5}, {"d": -3}, {"d": 2.5}, {"d": 10**200}])
def test_a_bank_that_promises_too_much(changes: dict[str, Any], tmp_path: Path) -> None:
    path, read = states(tmp_path)[-2]
    rewritten(path, settings=read(path).settings() | changes)
    with pytest.raises(ValueError, match=r"bank\.npz is not a bank file"):
        read(path)
    TrackerBank(0, 3, n_samples=5).save(path)
    assert len(read(path)) == 0
    rewritten(path, settings=read(path).settings() | changes)
    with pytest.raises(ValueError, match=r"bank\.npz is not a bank file"):
        read(path)


@given(
    st.sampled_from(["format", "kind", "settings", "counts", "told", "reader", "clock", "more"]),
    json_values,
)
def test_a_stream_with_any_header_is_refused_or_whole(
    tmp_path: Path, name: str, value: Any
) -> None:
    path = states(tmp_path)[-1][0]
    rewritten(path, **{name: value})
    stream = Stream(Settings())
    _, fault = outcome(stream.restore, path)
    assert fault is None or path.name in fault
    assert fault is not None or stream.pool is None or len(stream.pool) == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"d": 10**6},
        {"batch_shape": [10**9]},
        {"batch_shape": [-1]},
        {"d": -3},
        {"d": 2.5},
        {"settings": {"d": 10**7, "n_samples": 5}, "d": 10**7},
    ],
)
def test_a_state_that_promises_too_much(changes: dict[str, Any], tmp_path: Path) -> None:
    path, read = states(tmp_path)[0]
    rewritten(path, **changes)
    with pytest.raises(ValueError, match=path.name):
        read(path)


def test_a_compressed_state_is_refused_before_it_unfolds(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    np.savez_compressed(path, header=np.zeros(50_000_000, dtype=np.uint8))
    assert path.stat().st_size < 100_000
    with pytest.raises(ValueError, match="compressed"):
        load(path)
    with pytest.raises(ValueError, match="compressed"):
        TrackerBank.load(path)
    with pytest.raises(ValueError, match="compressed"):
        Stream(Settings()).restore(path)
