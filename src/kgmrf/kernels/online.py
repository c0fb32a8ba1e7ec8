"""The compiled loop of one online update: check, step and report in one call.

The state of the track stays on the desk between calls.
"""

from __future__ import annotations

from typing import Any

from kgmrf.kernels.compile import compiled
from kgmrf.kernels.core import covariance_frame, rotation_frame
from kgmrf.kernels.door import (
    INVALID,
    MISSING,
    OBSERVED,
    take_covariance,
    take_rotation,
)
from kgmrf.kernels.layout import ROTATION
from kgmrf.kernels.rows import close_row, note_record, open_row


@compiled("int64(float64[::1], float64[:, ::1], float64[::1], float64, float64)")
def advance(desk: Any, observation: Any, record: Any, m: float, tolerance: float) -> int:
    """Take in one observation and write what an estimate needs into ``record``.

    m: samples behind the matrix, or for rotations the noise variance. tolerance: see
    `take_covariance`; -1 trusts the observation, -2 says that there is none. The interval's
    numbers are on the desk already. Returns OBSERVED, MISSING, or INVALID with the state unchanged.
    """
    d = observation.shape[0]
    s = -(-d // 8) * 8
    rotation = desk[ROTATION] != 0.0
    status = MISSING
    if tolerance >= -1.0:
        flat = observation.reshape(d * d)
        if rotation:
            status = take_rotation(desk, flat, 0, d, s, tolerance)
        else:
            status = take_covariance(desk, flat, 0, d, s, tolerance)
        if status == INVALID:
            return INVALID
    if rotation:
        rotation_frame(desk, d, s, status == OBSERVED, m)
    else:
        covariance_frame(desk, d, s, status == OBSERVED, m)
    note_record(desk, record, 0, d, s)
    return status


@compiled("void(float64[::1], float64[::1], int64, boolean)")
def move_state(desk: Any, row: Any, d: int, onto_desk: bool) -> None:
    """The state from a row onto the desk, or back into the row."""
    s = -(-d // 8) * 8
    if onto_desk:
        open_row(row, 0, desk, d, s)
    else:
        close_row(desk, row, 0, d, s)
