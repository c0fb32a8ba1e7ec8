"""Which observations count: one reading of every ``mask``."""

from __future__ import annotations

from typing import Any

import numpy as np

from kgmrf._check import ObservationError
from kgmrf._types import Mask


def as_mask(mask: Any, shape: tuple[int, ...]) -> Mask:
    """True where there is an observation, in the shape of the observations.

    Takes True and False, or 0 and 1 of any type of number. Words such as "False", NaN and other
    numbers are refused: they would all count as True. Missing trailing axes are added.

    >>> as_mask([1, 0], (2, 3)).tolist()
    [[True, True, True], [False, False, False]]
    """
    array = np.asarray(mask)
    if array.dtype.kind == "O" and all(isinstance(x, (bool, np.bool_)) for x in array.flat):
        array = array.astype(bool)
    if array.dtype.kind not in "bfiu":
        raise ObservationError(
            f"mask must hold True and False, got dtype {array.dtype} such as "
            f"{next(iter(array.flat), None)!r}; compare it, as in mask == 'True'"
        )
    wrong = (array != 0) & (array != 1)
    if wrong.any():
        raise ObservationError(
            f"mask must hold True and False, got {array[wrong].flat[0]!r} in an array of shape "
            f"{array.shape}; make it so, as in values > 0"
        )
    array = array.astype(bool)
    if array.ndim < len(shape):
        array = array.reshape(array.shape + (1,) * (len(shape) - array.ndim))
    try:
        return np.broadcast_to(array, shape)
    except ValueError:
        raise ObservationError(
            f"mask has shape {np.shape(mask)}, but the sequence has frames of shape {shape}"
        ) from None
