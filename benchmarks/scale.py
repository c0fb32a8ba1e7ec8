"""`python -m benchmarks.scale [run|report]`: what a track costs, alone, through dask, and on disk.

Everything is counted in processor time, summed over the processes that do the work, so that a busy
machine does not count; the tables for many tracks are those costs times their number.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before numpy is loaded, here and in the workers

import numpy as np  # noqa: E402

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BEGIN, END = "<!-- tables: python -m benchmarks.scale report -->", "<!-- end of tables -->"
FRAMES, TIME_CHUNK = 32, 16
TRACK_CHUNK = {3: 8192, 7: 2048, 16: 512}
"""Tracks per block, by dimension: some ten megabytes of frames at once."""


def scene(n_frames: int, n: int, d: int) -> Any:
    """Sample covariances of 2 d samples each, (n_frames, n, d, d)."""
    rng = np.random.default_rng(0)
    out = np.empty((n_frames, n, d, d))
    for frame in out:
        x = rng.standard_normal((n, 2 * d, d)) * np.geomspace(3.0, 0.5, d)
        frame[:] = np.swapaxes(x, -1, -2) @ x / (2 * d)
    return out


def pattern(d: int) -> Any:
    """A bank without tracks, of the single information law."""
    from kgmrf import TrackerBank

    return TrackerBank(0, d, n_samples=2 * d, n_threads=1, gains="information")


def one_process(frames: Any, *, told: bool) -> float:
    """Seconds per track and frame of a bank in memory, with or without reading its covariances."""
    bank = pattern(frames.shape[-1])
    bank.add(frames.shape[1])
    bank.update(frames[0])
    start = time.process_time()
    for frame in frames:
        bank.update(frame)
        if told:
            _ = bank.covariance
    return (time.process_time() - start) / (frames.shape[0] * frames.shape[1])


def through_dask(folder: Path, d: int, client: Any, rounds: int) -> dict[str, Any]:
    """Seconds per track and frame of `filter_array` from zarr, all processes together."""
    import dask.array as da

    from kgmrf.dask import filter_array

    source = str(folder / "in.zarr")

    def lazy() -> None:
        frames = da.from_zarr(source, chunks=(TIME_CHUNK, TRACK_CHUNK[d], d, d))
        total = filter_array(pattern(d), frames)["covariance"].sum()
        total.compute(**({"scheduler": "synchronous"} if client is None else {}))

    return {"filter_array": _race(lazy, client, _size(source), rounds)}


def _size(source: str) -> int:
    import zarr

    shape = zarr.open_array(source, mode="r").shape
    return int(shape[0] * shape[1])


def _race(run: Callable[[], None], client: Any, units: int, rounds: int) -> dict[str, float]:
    """Least processor seconds per unit: of the workers, and of everything else."""
    run()  # compile, fill caches
    work, other = [], []
    for _ in range(rounds):
        here, there = time.process_time(), _workers(client)
        run()
        work.append((_workers(client) - there) / units)
        other.append((time.process_time() - here) / units)
    if client is None:
        return {"workers": min(other), "scheduler and client": 0.0}
    return {"workers": min(work), "scheduler and client": min(other)}


def _workers(client: Any) -> float:
    return 0.0 if client is None else sum(client.run(time.process_time).values())


def on_disk(folder: Path, frames: Any) -> dict[str, float]:
    """Bytes per track and frame of covariances as zarr stores them, and of estimates likewise."""
    import zarr

    bank = pattern(frames.shape[-1])
    bank.add(frames.shape[1])
    estimates = np.empty_like(frames)
    for frame, estimate in zip(frames, estimates, strict=True):
        bank.update(frame)
        estimate[:] = bank.covariance
    found = {}
    for name, values in (("observations", frames), ("estimates", estimates)):
        for how, words in (("compressed", {}), ("plain", {"compressors": None})):
            path = folder / f"{name}-{how}"
            chunks = (TIME_CHUNK, TRACK_CHUNK[frames.shape[-1]], *frames.shape[2:])
            array = zarr.create_array(
                str(path), shape=values.shape, chunks=chunks, dtype="float64", **words
            )
            array[:] = values
            size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
            found[f"{name}, {how}"] = size / (values.shape[0] * values.shape[1])
    return found


def checkpoint(folder: Path, frames: Any, rounds: int) -> dict[str, float]:
    """Bytes of state and of its file per track, seconds to write and read 100,000 tracks."""
    from kgmrf import TrackerBank

    n, d = frames.shape[1:3]
    bank = pattern(d)
    bank.add(n)
    fresh = bank.nbytes / n
    for k in range(2 * d + 1):  # until the pools of the start are gone
        bank.update(frames[k % len(frames)])
    path = folder / "bank.npz"
    written, read = [], []
    for _ in range(rounds):
        start = time.process_time()
        bank.save(path)
        written.append(time.process_time() - start)
        start = time.process_time()
        TrackerBank.load(path)
        read.append(time.process_time() - start)
    return {
        "state, while it starts": fresh,
        "state": bank.nbytes / n,
        "file": path.stat().st_size / n,
        "seconds to write 100,000": min(written) * 1e5 / n,
        "seconds to read 100,000": min(read) * 1e5 / n,
    }


def run(*, quick: bool = False) -> Path:
    """Measure everything and write ``results/scale.json``."""
    from distributed import Client, LocalCluster

    import kgmrf
    from benchmarks.rivals import version
    from benchmarks.run import _commit, _processor

    rounds = 1 if quick else 3
    tracks = {d: size * (1 if quick else 4) for d, size in TRACK_CHUNK.items()}
    results: dict[str, Any] = {str(d): {"tracks": tracks[d]} for d in TRACK_CHUNK}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for d in TRACK_CHUNK:
            print(f"scale: d = {d}", flush=True)
            frames, row = scene(FRAMES, tracks[d], d), results[str(d)]
            place = folder / str(d)
            place.mkdir()
            one_process(frames, told=False)
            for what, told in (("bank", False), ("bank, covariances read", True)):
                costs = [one_process(frames, told=told) for _ in range(rounds)]
                row[what] = min(costs)
            row["zarr"] = on_disk(place, frames)
            row["checkpoint"] = checkpoint(place, frames, rounds)
            (place / "observations-plain").rename(place / "in.zarr")
            row["in process"] = through_dask(place, d, None, rounds)
        for workers in (1, 2):
            print(f"scale: {workers} workers", flush=True)
            with (
                LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    dashboard_address=":0",
                    local_directory=str(folder / "scratch"),
                ) as cluster,
                Client(cluster) as client,
            ):
                for d in TRACK_CHUNK:
                    found = through_dask(folder / str(d), d, client, rounds)
                    results[str(d)][f"{workers} workers"] = found
    report_of_run = {
        "settings": {
            "date": date.today().isoformat(),
            "quick": quick,
            "kgmrf": kgmrf.__version__,
            "commit": _commit(),
            "processor": _processor(),
            "processors": len(os.sched_getaffinity(0)),
            "python": platform.python_version(),
            "packages": {name: version(name) for name in ("numpy", "dask", "zarr")},
            "frames": FRAMES,
            "time_chunk": TIME_CHUNK,
            "track_chunk": {str(d): size for d, size in TRACK_CHUNK.items()},
            "rounds": rounds,
            "seed": 0,
        },
        "results": results,
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / ("scale-quick.json" if quick else "scale.json")
    path.write_text(json.dumps(report_of_run, indent=1) + "\n")
    return path


# ---------------------------------------------------------------------- tables, from the file alone


def tables(found: dict[str, Any]) -> str:
    """What was measured, and the same times 10^6 to 10^9, as Markdown."""
    settings, results = found["settings"], found["results"]
    lines = [
        f"Measured {settings['date']} on {settings['processors']} processors "
        f"({settings['processor']}), Python {settings['python']}, dask "
        f"{settings['packages']['dask']}, zarr {settings['packages']['zarr']}; blocks of "
        f"{', '.join(f'{n:,}' for n in settings['track_chunk'].values())} tracks and "
        f"{settings['time_chunk']} frames, information gains, covariances in and out in double "
        f"precision. Processor time of all processes together, least of {settings['rounds']} "
        "rounds on a machine that others were using.",
        "",
        "| one track | " + " | ".join(f"d = {d}" for d in results) + " |",
        "|---" * (len(results) + 1) + "|",
    ]

    def row(name: str, value: Callable[[dict[str, Any]], str]) -> None:
        lines.append(f"| {name} | " + " | ".join(value(r) for r in results.values()) + " |")

    row("state, bytes", lambda r: f"{r['checkpoint']['state']:,.0f}")
    row("state file, bytes", lambda r: f"{r['checkpoint']['file']:,.0f}")
    row("a frame: bank in memory, ns", lambda r: f"{1e9 * r['bank']:,.0f}")
    row("and its covariance read, ns", lambda r: f"{1e9 * r['bank, covariances read']:,.0f}")
    for place in ("in process", "1 workers", "2 workers"):
        name = place.replace("1 workers", "1 worker")
        row(f"`filter_array`, {name}, ns", lambda r, p=place: f"{1e9 * _cost(r[p]):,.0f}")
    for name in ("observations", "estimates"):
        row(
            f"{name} on disk, bytes a frame: plain, zarr's default compression",
            lambda r, n=name: (
                f"{r['zarr'][f'{n}, plain']:,.0f}, {r['zarr'][f'{n}, compressed']:,.0f}"
            ),
        )
    row(
        "100,000 states written, read, s",
        lambda r: (
            f"{r['checkpoint']['seconds to write 100,000']:.2f}, "
            f"{r['checkpoint']['seconds to read 100,000']:.2f}"
        ),
    )
    lines += [
        "",
        "| tracks | d | state, and one checkpoint of it | in and out per frame "
        "| cores at 1 Hz: in memory, through dask | at 10 Hz | shuffle |",
        "|---|---|---|---|---|---|---|",
    ]
    for power in (6, 7, 8, 9):
        for d, r in results.items():
            n = 10**power
            disk = r["zarr"]["observations, plain"] + r["zarr"]["estimates, plain"]
            costs = r["bank, covariances read"], _cost(r["2 workers"])
            cores = [" and ".join(_number(n * hertz * cost) for cost in costs) for hertz in (1, 10)]
            lines.append(
                f"| 10^{power} | {d} | {_bytes(n * r['checkpoint']['state'])}, "
                f"{_bytes(n * r['checkpoint']['file'])} | {_bytes(n * disk)} | {cores[0]} | "
                f"{cores[1]} | none |"
            )
    return "\n".join(lines)


def _cost(place: dict[str, Any]) -> float:
    entry = place["filter_array"]
    return float(entry["workers"] + entry["scheduler and client"])


def _bytes(value: float) -> str:
    units = ["B", "kB", "MB", "GB", "TB", "PB"]
    while value >= 1000.0 and len(units) > 1:
        value /= 1000.0
        units.pop(0)
    return f"{value:.3g} {units[0]}"


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{float(f'{value:.2g}'):,.0f}"


def page(text: str, found: dict[str, Any]) -> str:
    """The page of the documentation with its tables replaced by those of the result file."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{tables(found)}\n\n{END}{tail}"


def report() -> Path:
    """Write the tables into the documentation. Measures nothing."""
    found = json.loads((RESULTS / "scale.json").read_text())
    PAGE.write_text(page(PAGE.read_text(), found))
    return PAGE


def main() -> None:
    """Run, report, or both."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument("what", nargs="?", choices=("run", "report", "all"), default="all")
    parser.add_argument("--quick", action="store_true", help="small and rough: does it work?")
    requested = parser.parse_args()
    if requested.what in ("run", "all"):
        print(run(quick=requested.quick))
    if requested.what in ("report", "all") and not requested.quick:
        print(report())


if __name__ == "__main__":
    main()
