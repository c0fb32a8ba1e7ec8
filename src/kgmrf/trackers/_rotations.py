"""Rotations as observations: what the trackers of rotations share beyond the contract."""

from __future__ import annotations

from typing import Any

from kgmrf import _check
from kgmrf._check import ObservationError
from kgmrf._types import Mask, Numbers
from kgmrf.geometry import so
from kgmrf.trackers._contract import Tracker


class RotationInput(Tracker):
    """Takes matrices ``(..., d, d)`` or scipy's Rotation objects, checked and projected."""

    kind = "rotation"

    def _unwrapped(self, value: Any) -> Any:
        if hasattr(value, "as_matrix"):
            return value.as_matrix()
        if isinstance(value, (list, tuple)):
            return [f.as_matrix() if hasattr(f, "as_matrix") else f for f in value]
        return value

    def _matrices(self, value: Any, name: str, mask: Any = None) -> tuple[Numbers, Mask, bool]:
        shape = _check.real_array(value, name).shape
        if self.d == 3 and shape[-1:] == (4,) and shape[-2:] != (4, 4):
            raise ObservationError(
                f"{name} has shape {shape}: quaternions? Wrap them with "
                "scipy.spatial.transform.Rotation.from_quat(...), which fixes their order"
            )
        return super()._matrices(value, name, mask)

    def _validated(
        self, array: Numbers, observed: Mask, rough: bool, name: str
    ) -> tuple[Numbers, Mask]:
        matrices, observed = _check.rotations(array, observed, name, self.on_invalid, rough)
        return so.project(matrices), observed
