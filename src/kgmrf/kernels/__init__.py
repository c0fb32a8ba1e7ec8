"""The same loops, compiled: one update, one sequence, many tracks.

:mod:`kgmrf.step` says what a step is; here it is once more for a processor. Read in this order:
`layout` (where the numbers lie), `lanes` (eight at a time), `core` (the step), `online`,
`sequence` and `many` (the loops), `adjoint` (a loop backwards, for gradients), `engine` (how
trackers call them). The self-tuning trackers have loops of their own: `small_linalg`, `members` and
`mixture` for covariances, `quaternions`, `rotation_rows`, `rotation_core`,
`rotation_dense` and `rotations` for orientations;
`text` turns numbers into lines and back.
"""

from kgmrf.kernels.engine import warmup

__all__ = ["warmup"]
