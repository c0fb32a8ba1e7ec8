"""Lazy: dask arrays in, dask arrays out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf.dask._block import advance, needed, planned

if TYPE_CHECKING:
    from collections.abc import Sequence

    import dask.array as da


def filter_array(
    tracker: Any,
    frames: Any,
    *,
    fields: str | Sequence[str] | None = None,
    samples: bool = False,
    n_samples: float | None = None,
    times: Any = None,
) -> dict[str, da.Array]:
    """The estimates of every track at every time, as dask arrays ``(time, ..., *field)`` by name.

    tracker: the pattern of all tracks: a bank without any, ``TrackerBank(0, d, ...)``, which is
    fastest, or a tracker that has seen nothing, such as ``KGMRF(d)``, which tunes itself.
    frames: dask array ``(time, ..., d, d)`` of covariances or rotations, or with ``samples=True``
    ``(time, ..., m, d)``; one or more axes of tracks; NaN: no observation.
    fields: which of `kgmrf.results.FIELDS`; default the covariance or the rotation.
    n_samples: samples behind each matrix, unless the tracker knows.
    times: ``(time,)`` time stamps that do not decrease; default one unit per frame.

    The chunks of the result are those of the frames. In a chunk of tracks the state goes from one
    chunk of time to the next, so neither all tracks nor all times need be in memory. Blocks of
    tracks that are multiples of 8 give what one bank gives, bit by bit; others to rounding.

    >>> import dask.array as da
    >>> from kgmrf import TrackerBank
    >>> frames = da.tile(da.from_array(np.diag([2.0, 0.5])), (30, 16, 1, 1)).rechunk((10, 8, 2, 2))
    >>> found = filter_array(TrackerBank(0, 2, n_samples=8), frames, fields=["velocity", "age"])
    >>> found["age"].chunks
    ((10, 10, 10), (8, 8))
    >>> found["velocity"].compute().shape
    (30, 16, 2, 2)
    """
    da, delayed = needed("dask.array"), needed("dask").delayed
    frames = da.asarray(frames)
    plan, kinds = planned(tracker, frames.shape, fields, samples, n_samples, times)
    frames = frames.rechunk({frames.ndim - 2: -1, frames.ndim - 1: -1})
    blocks = frames.to_delayed()[..., 0, 0]
    chunks = frames.chunks[:-2]
    starts = np.concatenate([[0], np.cumsum(chunks[0])])
    told = delayed(plan, traverse=False)
    step = delayed(advance, nout=2)
    grids = {name: np.empty(blocks.shape, dtype=object) for name in plan.fields}
    for place in np.ndindex(blocks.shape[1:]):
        state = None
        for k in range(blocks.shape[0]):
            at = (k, *place)
            state, found = step(told, state, blocks[at], int(starts[k]))
            size = tuple(axis[i] for axis, i in zip(chunks, at, strict=True))
            for name, (shape, dtype) in kinds.items():
                grids[name][at] = da.from_delayed(found[name], (*size, *shape), dtype)
    return {name: _joined(da.concatenate, grid, 0) for name, grid in grids.items()}


def _joined(concatenate: Any, grid: Any, axis: int) -> Any:
    """Blocks in their places as one array."""
    if not isinstance(grid, np.ndarray):
        return grid
    return concatenate([_joined(concatenate, part, axis + 1) for part in grid], axis=axis)
