"""The compiled loops over the frames of a sequence, for one track or the items of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf.kernels.blocks import (
    N_LANES,
    at_vector,
    check_covariances,
    check_rotations,
    gather,
    judge,
)
from kgmrf.kernels.compile import compiled
from kgmrf.kernels.core import covariance_frame, rotation_frame
from kgmrf.kernels.door import take_covariance, take_rotation
from kgmrf.kernels.layout import ROTATION, SCRATCH_A, SCRATCH_B, SCRATCH_C, TURN
from kgmrf.kernels.products import matrix, multiply_transposed
from kgmrf.kernels.rows import (
    close_row,
    new_desk,
    note_record,
    open_row,
    pack_up,
    use_tables,
)


@compiled(
    "void(float64[:, ::1], float64[:, :, :, ::1], boolean[:, ::1], float64[:, ::1],"
    " float64[:, :, ::1], int64[:, ::1], float64[::1], float64[:, :, :, ::1], float64[:, ::1],"
    " float64[::1])",
)
def run(
    rows: Any,
    sequence: Any,
    observed: Any,
    counts: Any,
    steps: Any,
    which: Any,
    head: Any,
    tables: Any,
    known: Any,
    records: Any,
) -> None:
    """Step every row ``(n, size)`` through its frames of the sequence ``(T, n, d, d)``.

    steps ``(K, 1 or n, 7)`` tells what the intervals do, which ``(T, 1 or n)`` says which of them
    leads to a frame; counts ``(T, n)`` as `m` of `online.advance`. The records of all frames,
    ``(T, n, record_size)``, are written to the flat array ``records``. Observations are trusted.
    """
    n_frames, n, d = sequence.shape[0], sequence.shape[1], sequence.shape[2]
    s = -(-d // 8) * 8
    rotation = head[ROTATION] != 0.0
    flat, packed = sequence.reshape(sequence.size), rows.reshape(rows.size)
    size, record = rows.shape[1], records.size // (n_frames * n)
    w = new_desk(head, d, s)
    for i in range(n):
        use_tables(w, tables, known, i, d, s)
        open_row(packed, i * size, w, d, s)
        for t in range(n_frames):
            interval = which[t, min(i, which.shape[1] - 1)]
            for k in range(7):
                w[TURN + k] = steps[interval, min(i, steps.shape[1] - 1), k]
            here, at = observed[t, i], (t * n + i) * d * d
            if rotation:
                if here:
                    take_rotation(w, flat, at, d, s, -1.0)
                rotation_frame(w, d, s, here, counts[t, i])
            else:
                if here:
                    take_covariance(w, flat, at, d, s, -1.0)
                covariance_frame(w, d, s, here, counts[t, i])
            note_record(w, records, (t * n + i) * record, d, s)
        close_row(w, packed, i * size, d, s)


@compiled("void(float64[:, :, ::1], boolean[::1], float64, boolean, int8[::1])")
def inspect(matrices: Any, present: Any, tolerance: float, rotation: bool, status: Any) -> None:
    """Which of the matrices ``(n, d, d)`` are OBSERVED, MISSING or INVALID, eight at a time."""
    d = matrices.shape[1]
    w, lane = np.zeros(at_vector(4, d)), np.zeros(N_LANES)
    for first in range(0, matrices.shape[0], 8):
        gather(matrices, present, first, w, lane, d)
        if rotation:
            check_rotations(w, lane, d, tolerance)
        else:
            check_covariances(w, lane, d, tolerance)
        judge(matrices, first, w, lane, d, False, status)


@compiled("void(float64[:, ::1], int64, float64[:, :, ::1])")
def compose(records: Any, d: int, out: Any) -> None:
    """M = Q diag(lam) Q^T from the frames and spectra at the head of records."""
    s = -(-d // 8) * 8
    flat, packed = records.reshape(records.size), out.reshape(out.size)
    w = new_desk(flat[:0], d, s)
    left, right, product = matrix(s, SCRATCH_A), matrix(s, SCRATCH_B), matrix(s, SCRATCH_C)
    for k in range(records.shape[0]):
        at = k * records.shape[1]
        for j in range(d):
            lam = flat[at + d * d + j]
            for i in range(d):
                v = flat[at + i * d + j]
                w[left + j * s + i] = v
                w[right + j * s + i] = lam * v
        multiply_transposed(w, left, right, product, d, s)
        for i in range(d):  # symmetric to the last bit
            for j in range(i):
                w[product + i * s + j] = w[product + j * s + i]
        pack_up(w, product, packed, k * d * d, (k + 1) * d * d, d, s)
