"""Names for the kinds of values that pass between the files.

Shapes are in docstrings: ``...`` stands for any leading batch axes.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy.typing as npt

Array: TypeAlias = Any
"""An array of any namespace that follows the array API standard (numpy, torch)."""

Numbers: TypeAlias = npt.NDArray[Any]
"""A numpy array of floats."""

Mask: TypeAlias = npt.NDArray[Any]
"""A numpy array of truth values; True where there is an observation."""
