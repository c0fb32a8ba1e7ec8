"""The compiled forecast of the rotation engine; apart, so that filtering does not wait for it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kgmrf.kernels.compile import compiled
from kgmrf.kernels.rotation_rows import MISSING, R_LIKELIHOOD, R_NIS, R_STATUS
from kgmrf.kernels.rotations import SCRATCH, drift, show


@compiled(
    "void(float64[:, ::1], float64[::1], float64[:, ::1], float64[:, ::1], float64[::1],"
    " float64[:, :, ::1])",
)
def ahead(rows: Any, dt: Any, laws: Any, table: Any, settings: Any, records: Any) -> None:
    """The records of all rows ``dt[t]`` later, without observations; rows are left alone."""
    w = np.empty(SCRATCH)
    for i in range(rows.shape[0]):
        for t in range(len(dt)):
            x = rows[i].copy()
            with_dense = drift(x, dt[t], laws, table, settings, w)
            show(x, with_dense, laws, table, settings, records[t, i], w)
            records[t, i, R_NIS] = math.nan
            records[t, i, R_LIKELIHOOD] = math.nan
            records[t, i, R_STATUS] = MISSING
