"""A single law over lines of tracks: the step of :mod:`kgmrf.model.step`, which tells the formulas.

src/core/law.hpp has the same names: drift, measure, correct, adapt. Tracks whose next lines are
there move together, for numpy works on many as on one.
"""

from __future__ import annotations

import numpy as np

from kgmrf._types import Numbers
from kgmrf.constants import INVALID, OBSERVED
from kgmrf.engines import inspected, law_row, rounds
from kgmrf.engines.law import chosen
from kgmrf.model.gains import InformationGains
from kgmrf.model.law_state import Model
from kgmrf.model.step import covariance_step, rotation_step


class Law:
    """The loop over lines, as `kgmrf._core.Law` has it, from the model itself.

    batch: axes of the numbers of the model that differ between tracks, one row each. What an
    interval does is worked out from dt: ``steps`` and ``interval`` are what the core is given of
    it.
    """

    def __init__(
        self, model: Model, d: int, batch: tuple[int, ...] = (), *, rotation: bool = False
    ):
        self.model, self.d, self.batch, self.rotation = model, d, batch, rotation
        self.information = isinstance(model.gains, InformationGains)
        self.size = law_row.row_size(d, self.information)

    def run(
        self,
        rows: Numbers,
        track_index: Numbers,
        values: Numbers,
        counts: Numbers,
        dt: Numbers,
        matrix: bool,
        tolerance: float,
        records: Numbers,
        status: Numbers,
        strength: Numbers,
        steps: Numbers,
        interval: Numbers,
    ) -> None:
        """Take in lines; rows, records and status are written in place."""
        status[:] = inspected(values, counts, tolerance, self.rotation)
        step = rotation_step if self.rotation else covariance_step
        for these in rounds(track_index):
            moving = these[(counts[these] >= 0.0) & (status[these] != INVALID)]
            tracks = track_index[moving]
            if len(tracks):
                state = law_row.state_of(rows[tracks], self.d, self.information)[0]
                observed = status[moving] == OBSERVED
                known = np.where(observed, strength[moving], 1.0)
                new = step(state, self._model(tracks), values[moving], known, dt[moving], observed)
                rows[tracks] = law_row.rows_of(*new, self.information)
            if len(records):
                records[these] = rows[track_index[these], : records.shape[1]]

    def _model(self, tracks: Numbers) -> Model:
        """The model of some tracks."""
        model, known = self.model, self.model.known_spectrum
        if known is not None and np.ndim(known) > 1:
            every = np.broadcast_to(known, (*self.batch, self.d)).reshape(-1, self.d)
            model = model._replace(known_spectrum=every[tracks])
        return model._replace(gains=chosen(model.gains, self.batch, self.d, tracks))
