"""The compiled loops.

Read in this order: `compile` (how), `lanes` (eight numbers at a time), `layout` (where they lie),
`plane` (the formulas of one plane), `products` and `eigen` (one matrix), `turning` (an eigenframe
that turns), `law` (single laws; :mod:`kgmrf.step` is the readable step), `adjoint` (a loop
backwards, for gradients), `quaternions`, `rotation_rows`, `rotation_core`, `rotation_dense` and
`rotations` (the self-tuned orientations), `engine` (how the loops are called).
"""

from kgmrf.kernels.engine import warmup

__all__ = ["warmup"]
