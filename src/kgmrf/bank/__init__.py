"""Many tracks at once: one state array, one compiled pass per step, threads beside each other."""

from kgmrf.bank.bank import TrackerBank
from kgmrf.bank.steps import UpdateStatus

__all__ = ["TrackerBank", "UpdateStatus"]
