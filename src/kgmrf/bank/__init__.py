"""Many tracks at once: one state array, one compiled pass per step, threads beside each other."""

from kgmrf import _deprecated
from kgmrf.bank.bank import TrackerBank
from kgmrf.bank.steps import UpdateStatus

__all__ = ["TrackerBank", "UpdateStatus"]

__getattr__ = _deprecated.names(__name__, {"Taken": ("kgmrf.bank", "UpdateStatus")})
_deprecated.methods(
    TrackerBank, {"take": "feed", "memory": "state_dict", "restore": "load_state_dict"}
)
