"""From disk to disk, larger than memory, and to be gone on with after a kill.

The folder of checkpoints holds ``run.json``, what is being computed, and for each block of tracks
one state file, whose name says up to which frame it has come. A state file appears, complete, after
the results that lead to it are in the target: what was under way at a kill is done once more, from
the same state, and gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf import _npz
from kgmrf._types import Numbers
from kgmrf.bank import TrackerBank
from kgmrf.dask._block import Kind, Plan, advance, needed, planned
from kgmrf.trackers import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    import zarr

FORMAT = 1
"""Version of the folders of checkpoints."""

RUN = "kgmrf_run"
"""Attribute of the target: which run it belongs to."""


def filter_zarr(
    tracker: Any,
    source: Any,
    target: Any,
    *,
    checkpoint: str | Path,
    fields: str | Sequence[str] | None = None,
    samples: bool = False,
    n_samples: float | None = None,
    times: Any = None,
    time_chunk: int | None = None,
    track_chunk: int | None = None,
    client: Any = None,
) -> zarr.Group:
    """The estimates of every track at every time, from a zarr array to a zarr group of fields.

    tracker, fields, samples, n_samples, times: as for `filter_array`.
    source: path of a zarr array, or the array: ``(time, track, d, d)``, or with ``samples=True``
    ``(time, track, m, d)``.
    target: path of a zarr group; gets one array ``(time, track, *field)`` per field.
    checkpoint: a folder for the states, on a disk that all workers see.
    time_chunk, track_chunk: frames and tracks that are in memory at once, per worker; also the
    chunks of the target. Default: the chunks of the source.
    client: a ``dask.distributed.Client``; default: the one at hand, or else threads.

    A block of tracks is one task and goes through its chunks of time in order; nothing but its
    place travels between processes. Killed, and called again with the same arguments, it goes on
    after the last chunk of each block, and the result is the same to the bit. Called once more when
    all is done, it does nothing; when the source has grown along time, only the new frames.

    >>> import tempfile, zarr
    >>> from kgmrf import TrackerBank
    >>> folder = tempfile.mkdtemp()
    >>> frames = zarr.create_array(
    ...     f"{folder}/in", shape=(30, 16, 2, 2), chunks=(10, 8, 2, 2), dtype="float64"
    ... )
    >>> frames[:] = np.broadcast_to(np.diag([2.0, 0.5]), frames.shape)
    >>> pattern = TrackerBank(0, 2, n_samples=8)
    >>> found = filter_zarr(pattern, f"{folder}/in", f"{folder}/out", checkpoint=f"{folder}/at")
    >>> found["covariance"].shape
    (30, 16, 2, 2)
    """
    zarr, dask = needed("zarr"), needed("dask")
    array = zarr.open(source, mode="r") if isinstance(source, (str, Path)) else source
    if not isinstance(array, zarr.Array):
        raise ValueError(f"{source} is a group; name the array in it: {list(array)[:5]}")
    plan, kinds = planned(tracker, array.shape, fields, samples, n_samples, times)
    if array.ndim != 4:
        raise ValueError(f"the source must have one axis of tracks, got shape {array.shape}")
    frames_at_once = _size(time_chunk or array.chunks[0], "time_chunk")
    tracks_at_once = _size(track_chunk or array.chunks[1], "track_chunk")
    folder = Path(checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    about = _described(plan, array, frames_at_once, tracks_at_once)
    run = _agreed(folder, about, array.shape[0], plan.times, target)
    group = _prepared(zarr, target, folder, run, kinds, array.shape, about)
    task = dask.delayed(_run_block)
    told = dask.delayed(plan, traverse=False)
    outputs = {name: group[name] for name in plan.fields}
    tasks = [
        task(told, array, outputs, folder, first, frames_at_once, tracks_at_once)
        for first in range(0, array.shape[1], tracks_at_once)
        if _newest(folder, first)[0] < array.shape[0]
    ]
    if client is not None:
        client.gather(client.compute(tasks))
    else:
        dask.compute(tasks)
    for left in folder.glob(".*.part"):  # of workers that were killed
        left.unlink(missing_ok=True)
    return group


def _run_block(
    plan: Plan,
    source: Any,
    outputs: dict[str, Any],
    folder: Path,
    first: int,
    frames_at_once: int,
    tracks_at_once: int,
) -> None:
    """All that is left to do for the tracks from ``first`` on."""
    n_frames = source.shape[0]
    tracks = slice(first, min(first + tracks_at_once, source.shape[1]))
    begin, path = _newest(folder, first)
    state = None
    if path is not None:
        state = TrackerBank.load(path) if isinstance(plan.pattern, TrackerBank) else load(path)
    while begin < n_frames:
        # Up to the next edge of the target's chunks: no two tasks write to the same one.
        end = min((begin // frames_at_once + 1) * frames_at_once, n_frames)
        state, found = advance(plan, state, source[begin:end, tracks], begin)
        for name, values in found.items():
            outputs[name][begin:end, tracks] = values
        _save(state, folder, first, end)
        begin = end


# ---------------------------------------------------------------------- state files


def _newest(folder: Path, first: int) -> tuple[int, Path | None]:
    """Up to which frame the tracks from ``first`` on have come, and the file of their state."""
    known = [(int(path.name.split(".")[1]), path) for path in folder.glob(f"{first:012d}.*.npz")]
    return max(known, default=(0, None))


def _save(state: Any, folder: Path, first: int, frames: int) -> None:
    name = f"{first:012d}.{frames:012d}.npz"
    state.save(folder / name)  # whole or not at all
    for path in folder.glob(f"{first:012d}.*.npz"):
        if path.name < name:
            path.unlink(missing_ok=True)


# ---------------------------------------------------------------------- the same run?


def _described(plan: Plan, source: Any, time_chunk: int, track_chunk: int) -> dict[str, Any]:
    """What must be the same when a run goes on."""
    first = np.ascontiguousarray(source[:1, : min(track_chunk, source.shape[1])])
    about = {
        "the tracker": type(plan.pattern).__name__,
        **{f"the tracker's {name}": value for name, value in plan.pattern.settings().items()},
        "fields": list(plan.fields),
        "samples": plan.samples,
        "n_samples": plan.n_samples,
        "time_chunk": time_chunk,
        "track_chunk": track_chunk,
        "source": [str(source.dtype), *source.shape[1:]],
        "first frame of the source": _digest(first),
    }
    return json.loads(json.dumps(about))


def _agreed(
    folder: Path, about: dict[str, Any], n_frames: int, times: Numbers | None, target: Any
) -> str:
    """The name of the run in this folder: a new one, or the old one if it is the same."""
    path = folder / "run.json"
    remedy = (
        f"to start afresh, give another checkpoint folder and target, or delete {folder} and "
        f"{target}"
    )
    if not path.exists():
        stamps = None if times is None else _digest(times)
        kept = {"format": FORMAT, "run": uuid.uuid4().hex, "n_frames": n_frames, "times": stamps}
        with _npz.replacing(path) as file:
            file.write(json.dumps({**kept, "about": about}, indent=1).encode())
        return str(kept["run"])
    try:
        old = json.loads(path.read_text(encoding="utf-8"))
        if old["format"] != FORMAT:
            raise ValueError(f"it has format {old['format']}, this version reads {FORMAT}")
        then, known = old["about"], int(old["n_frames"])
        stamps = None if times is None else _digest(times[:known])
        changes = [
            f"{name} was {then.get(name)}, is {about.get(name)}"
            for name in then | about
            if json.dumps(then.get(name)) != json.dumps(about.get(name))
        ]
        changes += ["times are others"] * (stamps != old["times"])
        changes += [f"the source had {known} frames, has {n_frames}"] * (n_frames < known)
        run = str(old["run"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is not a kgmrf run file: {error}; {remedy}") from error
    if changes:
        raise ValueError(
            f"{folder} holds the checkpoints of another run: {'; '.join(changes)}. Give the same "
            f"arguments to go on with it; {remedy}"
        )
    return run


def _prepared(
    zarr: Any,
    target: Any,
    folder: Path,
    run: str,
    kinds: dict[str, Kind],
    shape: tuple[int, ...],
    about: dict[str, Any],
) -> zarr.Group:
    """The target, with room for all frames."""
    group = zarr.open_group(target, mode="a")
    owner = group.attrs.get(RUN, run)
    if owner != run:
        raise ValueError(
            f"{target} belongs to another run than {folder}; give the checkpoint folder of that "
            f"run to go on with it, or another target"
        )
    absent = [name for name in kinds if name not in group]
    if RUN not in group.attrs:
        if len(absent) < len(kinds):
            raise ValueError(f"{target} already has some of {', '.join(kinds)}; give another path")
        group.attrs[RUN] = run  # first of all: a kill may come at any time
    if absent and any(folder.glob("*.npz")):
        raise ValueError(
            f"{target} lacks {', '.join(absent)}, but {folder} says that some of it is done; "
            f"delete {folder} and {target} to start afresh"
        )
    for name in absent:
        shape_of_one = kinds[name].shape
        group.create_array(
            name,
            shape=(*shape[:2], *shape_of_one),
            chunks=(about["time_chunk"], about["track_chunk"], *shape_of_one),
            dtype=kinds[name].dtype,
            fill_value=np.nan,
        )
    for name, kind in kinds.items():
        if group[name].shape[0] < shape[0]:
            group[name].resize((*shape[:2], *kind.shape))
    return group


def _size(value: int, name: str) -> int:
    if int(value) != value or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def _digest(array: Numbers) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
