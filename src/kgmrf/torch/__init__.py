"""The tracker as a layer of PyTorch models: the one step, unrolled in time, with learned gains.

The layers hold parameters and loop; all mathematics is that of :mod:`kgmrf.model.step`. Whatever
the parameters become in training, the law stays inside its stability domain and every estimate on
its manifold, because both are parametrised, not projected. Read in this order: `laws` (learned
gains), `loop` (what both layers share), `covariance`, `rotation`; then `losses`.

Batch axes come first and time before the matrix: ``(..., time, d, d)``, usually
``(batch, time, d, d)``. Half precision is computed in float32, also under autocast.
"""

from kgmrf._extras import optional
from kgmrf.model.law_state import State

with optional():
    import torch

    from kgmrf.torch.density import StudentTMixture
    from kgmrf.torch.ensemble import KGMRFLayer
    from kgmrf.torch.filtered import Filtered, Stream, detach
    from kgmrf.torch.forecasts import Forecasts
    from kgmrf.torch.law_layer import LawLayer
    from kgmrf.torch.laws import FixedLaw, InformationLaw
    from kgmrf.torch.losses import StudentTLoss
    from kgmrf.torch.rotation import RotationLayer

# Tuples of tensors: torch.load(file, weights_only=True), the default, reads saved states.
torch.serialization.add_safe_globals([Filtered, Stream, State])

__all__ = [
    "Filtered",
    "FixedLaw",
    "Forecasts",
    "InformationLaw",
    "KGMRFLayer",
    "LawLayer",
    "RotationLayer",
    "Stream",
    "StudentTLoss",
    "StudentTMixture",
    "detach",
]
