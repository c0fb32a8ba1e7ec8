"""Damaged lines, data files and state files, and whether reading them does any harm."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kgmrf import KGMRF, RotationTracker, TrackerBank, _npz, load
from kgmrf.baselines import (
    AlphaBeta,
    EuclideanEMA,
    HoldLast,
    LogEuclideanEMA,
    RiemannianEMA,
    TangentKalman,
)
from kgmrf.geometry import so
from kgmrf.stream import Settings, Stream
from kgmrf.trackers import KineticGaussian

WORDS = (b"null", b"true", b"[]", b"{}", b'""', b"1e999", b"-1e308", b"NaN", b'"2024"', b"[1]")


def damaged(good: bytes, dice: Any) -> bytes:
    """Cut off, with flipped bits, with a stretch of noise, or with a large number in it."""
    bad = bytearray(good)
    how, at = dice.integers(4), int(dice.integers(len(bad)))
    if how == 0:
        return bytes(bad[:at])
    if how == 1:
        for place in dice.integers(len(bad), size=int(dice.integers(1, 6))):
            bad[place] ^= 1 << int(dice.integers(8))
    elif how == 2:
        bad[at : at + 16] = dice.bytes(16)
    else:
        bad[at : at + 8] = b"\xff" * 7 + b"\x7f"
    return bytes(bad)


def line(good: bytes, dice: Any) -> bytes:
    """A line with damage, with another value somewhere, or with a piece of itself behind it."""
    how = dice.integers(4)
    if how == 0:
        return damaged(good, dice)
    word = WORDS[int(dice.integers(len(WORDS)))]
    if how == 1:
        record = json.loads(good)
        name = list(record)[int(dice.integers(3))]
        record[name] = "MARK"
        return json.dumps(record).encode().replace(b'"MARK"', word)
    at = int(dice.integers(len(good)))
    return good[:at] + (word if how == 2 else good[at // 2 :])


# ---------------------------------------------------------------------- data files

# In a process of its own with a limit on its memory: a crash or a gigabyte ends it.
READER = """
import resource, sys
from pathlib import Path
from kgmrf.io import DataError, open_source
for name in ("h5py", "pyarrow.parquet"):
    try: __import__(name)
    except ImportError: pass
try:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 1_000_000_000,) * 2)
except OSError: pass
read = refused = crashed = 0
for path in sorted(Path(sys.argv[1]).iterdir()):
    try:
        for chunk in open_source(path):
            assert chunk.values.ndim in (2, 3)
        read += 1
    except DataError:
        refused += 1
    except Exception as error:
        sys.stderr.write(f"{path.name}: {error!r}\\n")
        crashed += 1
print(read, refused, crashed)
"""


def originals(folder: Path) -> list[Path]:
    """Good files of the formats that kgmrf itself parses."""
    dice = np.random.default_rng(0)
    rows = dice.normal(size=(40, 3))
    text = [f"{k},{','.join(map(repr, r))}" for k, r in enumerate(rows.tolist())]
    (folder / "a.csv").write_text("\n".join(["time,a,b,c", *text]))
    turns = dice.normal(size=(20, 4)).tolist()
    trail = [f"{k} 0 0 0 {' '.join(map(repr, q))}" for k, q in enumerate(turns)]
    (folder / "a.tum").write_text("\n".join(trail))
    np.save(folder / "a.npy", rows)
    np.savez(folder / "a.npz", observations=rows[:, :, None] * rows[:, None], times=np.arange(40.0))
    np.savez_compressed(folder / "b.npz", samples=rows)
    return sorted(folder.iterdir())


def data_files(n: int, folder: Path) -> dict[str, Any]:
    """Damaged data files: read, or refused by one DataError."""
    source = folder / "good"
    source.mkdir()
    files = originals(source)
    dice = np.random.default_rng(7)
    total = {"files": 0, "read": 0, "refused": 0, "crashed": 0}
    while total["files"] < n:
        batch = min(1000, n - total["files"])
        place = folder / f"bad{total['files']}"
        place.mkdir()
        for k in range(batch):
            path = files[k % len(files)]
            (place / f"{k}{path.suffix}").write_bytes(damaged(path.read_bytes(), dice))
        call = [sys.executable, "-c", READER, str(place)]
        done = subprocess.run(call, capture_output=True, text=True)
        found = map(int, done.stdout.split()) if done.returncode == 0 else (0, 0, batch)
        for name, value in zip(("read", "refused", "crashed"), found, strict=True):
            total[name] += value
        if total["crashed"]:
            sys.stderr.write(done.stderr[-2000:])
        total["files"] += batch
    return total


# ---------------------------------------------------------------------- state files

SAMPLES = np.random.default_rng(0).normal(size=(12, 6, 3))
TURNS = so.exp(so.hat(np.random.default_rng(0).normal(size=(12, 3)) * 0.1))
LINES = [
    b'{"key":"k%d","x":%s}' % (k % 3, json.dumps(r).encode())
    for k, r in enumerate(SAMPLES[:, 0].tolist())
]


class Subject(NamedTuple):
    """Something that keeps a state: how to save it, load it, and use what was loaded.

    use: goes on with it and returns everything that must be finite.
    """

    name: str
    save: Callable[[Path], None]
    load: Callable[[Path], Any]
    use: Callable[[Any], list[Any]]


def subjects() -> list[Subject]:
    """One of each kind, after some updates."""
    covariances: list[Any] = [
        KGMRF(),
        KGMRF(gains="information"),
        AlphaBeta(),
        EuclideanEMA(),
        HoldLast(),
        LogEuclideanEMA(),
        RiemannianEMA(),
        TangentKalman(),
        KineticGaussian(covariance=EuclideanEMA()),
    ]
    rotations = [RotationTracker(), RotationTracker(noise_std=0.1, gains="information")]
    found = [_tracker(tracker, tracker.partial_fit, SAMPLES) for tracker in covariances]
    found += [_tracker(tracker, tracker.update, TURNS) for tracker in rotations]
    for settings in ({}, {"gains": "information"}, {"kind": "rotation"}):
        found.append(_bank(TrackerBank(5, 3, **settings)))
    stream = Stream(Settings())
    stream.take(LINES)
    return [*found, Subject("Stream", stream.save, _stream, _use_stream)]


def _tracker(tracker: Any, update: Callable[[Any], Any], seen: Any) -> Subject:
    for one in seen:
        update(one)
    word = "rotation" if seen is TURNS else "covariance"

    def use(other: Any) -> list[Any]:
        more = getattr(other, update.__name__)
        fields = [getattr(more(one), word) for one in seen[:3]]
        return [*fields, getattr(other.forecast(1.0), word)]

    law = getattr(tracker, "gains", "")
    return Subject(f"{type(tracker).__name__} {law}".strip(), tracker.save, load, use)


def _bank(bank: TrackerBank) -> Subject:
    turns = bank.kind == "rotation"
    word = "rotation" if turns else "covariance"

    def use(other: Any) -> list[Any]:
        # Long enough to leave the start-up behind.
        for one in (*TURNS, *TURNS) if turns else SAMPLES.reshape(-1, 3)[:40]:
            other.update(np.broadcast_to(one, (len(other), *one.shape)))
        return [getattr(other.estimate(), word), getattr(other.forecast(1.0), word)]

    for one in TURNS if turns else SAMPLES[:, 0]:
        bank.update(np.broadcast_to(one, (len(bank), *one.shape)))
    return Subject(f"TrackerBank {bank.settings()['gains']}", bank.save, TrackerBank.load, use)


def _stream(path: Path) -> Stream:
    stream = Stream(Settings())
    stream.restore(path)
    return stream


def _use_stream(stream: Stream) -> list[Any]:
    rows = [json.loads(row)["covariance"] for row in stream.take(LINES).splitlines()]
    return [np.array(rows, dtype=float)]


def mutated(header: dict[str, Any], arrays: dict[str, Any], dice: Any) -> bytes:
    """Other numbers in a state file, its checksums being right."""
    header = json.loads(json.dumps(header))
    arrays = {name: array.copy() for name, array in arrays.items()}
    name = list(arrays)[int(dice.integers(len(arrays)))]
    array, how = arrays[name], dice.integers(7)
    flat = array.reshape(-1)
    at = int(dice.integers(max(1, flat.size)))
    if array.dtype.kind != "f" and how in (0, 1, 4):
        # The size decides: flags are flipped, bytes and whole numbers become any others.
        raw = flat[at : at + 1].view(np.uint8)
        raw[:] = 1 - raw if array.dtype == bool else dice.integers(0, 256, size=raw.size)
    elif how == 0:
        flat[at : at + 1] = [np.nan, np.inf, -1e300, 1e300, -1.0, 0.0][int(dice.integers(6))]
    elif how == 1:
        flat[:] = -flat
    elif how == 2:
        flat[:] = dice.permutation(flat)
    elif how == 3:
        arrays[name] = array[..., :-1] if array.ndim else np.zeros(2)
    elif how == 4:
        flat[at : at + 1] = flat[at : at + 1] * 10.0 ** dice.integers(-30, 30)
    elif how == 5:
        del arrays[name]
    else:
        words: list[Any] = [None, -1, 10**9, 2.5, "KGMRF", [3], {"a": 1}, [10**6]]
        key = list(header)[int(dice.integers(len(header)))]
        header[key] = words[int(dice.integers(len(words)))]
    header.pop("format", None)
    return _npz.pack(header, arrays)


def state_files(n: int, folder: Path) -> dict[str, Any]:
    """State files with other numbers in them: refused, or something that works."""
    path = folder / "state.npz"
    dice = np.random.default_rng(8)
    good = []
    for subject in subjects():
        subject.save(path)
        assert all(np.isfinite(part).all() for part in subject.use(subject.load(path)))
        good.append((subject, path.read_bytes(), _npz.read(path)))
    total = {"files": n, "refused": 0, "accepted": 0, "crashed": 0, "silent": 0}
    for k in range(n):
        subject, raw, (header, arrays) = good[k % len(good)]
        # One in four with damage, the others with the right checksums.
        how = "damaged" if dice.random() < 0.25 else "changed"
        path.write_bytes(damaged(raw, dice) if how == "damaged" else mutated(header, arrays, dice))
        try:
            with np.errstate(all="ignore"):
                found = subject.load(path)
        except ValueError:
            total["refused"] += 1
            continue
        except Exception as error:
            total["crashed"] += 1
            sys.stderr.write(f"{k}: {subject.name}: load: {error!r}\n")
            continue
        total["accepted"] += 1
        try:
            with np.errstate(all="ignore"):
                fine = all(np.isfinite(part).all() for part in subject.use(found))
        except ValueError:
            continue  # it says so: not in silence
        except Exception as error:
            total["crashed"] += 1
            sys.stderr.write(f"{k}: {subject.name}: {error!r}\n")
            continue
        if not fine:
            total["silent"] += 1
            sys.stderr.write(f"{k}: {subject.name}: accepted, and not finite\n")
    return total
