"""What a bank shows of all its tracks: single fields, without the rest of an estimate."""

from __future__ import annotations

from typing import Any

from kgmrf._types import Numbers
from kgmrf.engines import SEEN, TIME


def _field(name: str, text: str) -> Any:
    """One field of the estimate of all tracks, without the rest of it."""
    return property(lambda bank: getattr(bank.estimate(), name), doc=text)


class Shown:
    """Fields of all tracks of a bank."""

    ids: Numbers
    _rows: Numbers
    _records: Numbers
    _fresh: Numbers
    _means: Numbers
    _clock: Any

    @property
    def time(self) -> Numbers:
        """Time of every track, (n,)."""
        return self._rows[:, TIME] * self._clock.unit

    @property
    def age(self) -> Numbers:
        """Time since the last observation of every track, NaN before the first, (n,)."""
        return self.time - self._rows[:, SEEN] * self._clock.unit

    nis = _field("nis", "How surprising the last observation of every track was, (n,).")
    p_value = _field("p_value", "Probability of an observation as far out, of every track, (n,).")
    log_likelihood = _field("log_likelihood", "One-step-ahead, of every track, (n,).")
    covariance = _field("covariance", "Covariance of every track, (n, d, d).")
    rotation = _field("rotation", "Rotation of every track, (n, d, d).")

    @property
    def nbytes(self) -> int:
        """Memory of the state of all tracks."""
        arrays = (self.ids, self._rows, self._records, self._fresh, self._means)
        return sum(array.nbytes for array in arrays)
