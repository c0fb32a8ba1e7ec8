"""Alerts: is this row improbable, for how long, and which channel says so?

>>> import numpy as np
>>> from kgmrf.alerts import Alarm, watch
>>> x = np.random.default_rng(1).normal(size=(1000, 2))
>>> x[700] = [9.0, -9.0]
>>> [event.begin for event in watch(x, Alarm(rate=1e-4)).events]
[700]
"""

from kgmrf.alerts.alarm import Alarm, Event, Heard
from kgmrf.alerts.sequence import Alerts, watch

__all__ = ["Alarm", "Alerts", "Event", "Heard", "watch"]
