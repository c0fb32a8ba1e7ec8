"""The rotation filter: three experts follow one rotation, weighed by what they said of it before.

    isotropic members   angle and velocity, weights of all axes together or of each axis
    dense members       constant velocity and oscillators
    observe             motion, a jump or an outlier; where in doubt the next observation says it
    write_record                moments of the mixture of all members

A unit quaternion is (w, x, y, z). src/core/rotations.hpp has the same names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from scipy.spatial.transform import Rotation
from scipy.special import expit

from kgmrf import constants as c
from kgmrf._types import Numbers
from kgmrf.engines.rotation_row import field
from kgmrf.readable.dense import Dense
from kgmrf.readable.dense import Scored as DenseScored
from kgmrf.readable.isotropic import Isotropic, Levels, Scored, Track, log, turned
from kgmrf.readable.rotation_ahead import Ahead
from kgmrf.readable.rotation_record import Recorder, Said


class Verdict(NamedTuple):
    """What the members say of an observation."""

    e: Numbers  # Log(Q^T Z)
    evidence: list[float]  # of the experts
    posterior: Numbers
    likelihood: float  # log densities over the group
    outlier: float
    nis: float
    lost: bool
    scored: Scored
    dense: DenseScored | None


class Choice(NamedTuple):
    """An observation as motion and as an outlier: log weights of both."""

    mode: int  # TAKE, START or START_FAST
    motion: float
    outlier: float


class Rotations(Recorder):
    """The loop over lines, as `kgmrf._core.Rotations` has it.

    isotropic, dense: laws of the members. places: see :mod:`kgmrf.engines.rotation_row`.
    """

    def __init__(self, isotropic: Numbers, dense: Numbers, places: Mapping[str, int]) -> None:
        self.isotropic, self.dense = Isotropic(isotropic), Dense(dense)
        self.ahead = Ahead(self.isotropic, self.dense)
        self.oscillations, self.size = "spread" in places, places["end"]

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
        settings: Numbers,
        rates: Numbers,
    ) -> None:
        """Take in lines (`kgmrf.engines.Lines`); settings: for all rows, or one for each.

        rates: of each line a measured rate and its deviation, NaN where there is none, or no line.
        """
        for line, index in enumerate(track_index):
            t = Track(rows[index], self.oscillations)
            levels = Levels(settings[min(index, len(settings) - 1)])
            found, said = c.MISSING, Said(c.MISSING)
            if counts[line] > 0.0:
                found = inspect(values[line], tolerance)
            if counts[line] >= 0.0 and found != c.INVALID:
                t.time += dt[line]
                over, known = dt[line], levels.unit > 0.0 or t.intervals > 0.0
                if not levels.rated:
                    self.keep_unit(t, dt[line], levels)
                elif found == c.OBSERVED and not t.unseen:
                    over = over if known else t.time - t.seen
                    self.keep_unit(t, t.time - t.seen, levels)
                elif not known:
                    over = 0.0  # until the second observation says the unit
                by, walk = self.measure(t, rates[line] if len(rates) else None, dt[line])
                if t.open > 0.0:
                    t.behind, t.walk = t.behind + dt[line], t.walk + walk
                    turn = Rotation.from_quat(by, scalar_first=True)
                    t.turned[:] = turned(t.turned, turn.as_rotvec())
                elif not t.unseen:
                    if levels.rated:
                        self.isotropic.turn(t, by, walk)
                    self.drift(t, over, levels)
                if found == c.OBSERVED:
                    z = Rotation.from_matrix(values[line]).as_quat(scalar_first=True)
                    bounds = c.LEAST_RELATIVE_NOISE, c.MOST_RELATIVE_NOISE
                    with np.errstate(over="ignore"):
                        rel = float(np.clip(1.0 / counts[line], *bounds))
                    said = self.observe(rows[index], z, rel, levels)
            status[line] = found
            if len(records) and t.open > 0.0:
                self.note_open(rows[index], said, levels, records[line])
            elif len(records):
                self.write_record(t, said, levels, records[line])

    # ------------------------------------------------------------------ time

    def keep_unit(self, t: Track, dt: float, levels: Levels) -> None:
        """The unit of time is the median of the first positive intervals, unless it is given."""
        n = int(t.intervals)
        if n >= c.INTERVALS or not dt > 0.0 or levels.unit > 0.0:
            return
        t.gaps[: n + 1] = np.sort(np.append(t.gaps[:n], dt))
        t.intervals = n + 1
        f = np.median(t.gaps[: n + 1]) / t.unit
        t.unit *= f
        if t.unseen or n == 0:
            return
        self.isotropic.rescale(t, f)
        self.ahead.rescale(t, f)
        if self.oscillations:
            self.dense.rescale(t, f)

    def measure(self, t: Track, rate: Numbers | None, dt: float) -> tuple[Numbers, float]:
        """How the body turned over dt by the rate, and the variance of what is not known of it.

        Between two rates it is their mean; without a new one the last is held, of which the
        variance after h is u h^3/3, with u the unrest, |change|^2/3 per unit of time.
        """
        none, last = np.array([1.0, 0.0, 0.0, 0.0]), t.omega.copy()
        if rate is None or np.isnan(rate[0]):
            if t.held < 0.0:
                return none, 0.0
            before, t.held = t.held, t.held + dt
            return turned(none, dt * last), t.unrest * (t.held**3 - before**3) / 3
        mean = now = rate[:3]
        if t.held >= 0.0:
            mean, over = (now + last) / 2, t.held + dt
            if over > 0.0:
                found = (now - last) @ (now - last) / (3 * over)
                t.unrest = found + c.UNREST_MEMORY * (t.unrest - found) if t.unrest > 0.0 else found
        t.held, t.omega[:] = 0.0, now
        return turned(none, dt * mean), (rate[3] * dt) ** 2

    def catch_up(self, t: Track, levels: Levels) -> None:
        """The row as it stands when its last observation was left open, brought to now."""
        if levels.rated:
            self.isotropic.turn(t, t.turned, t.walk)
        self.drift(t, t.behind, levels)

    def drift(self, t: Track, dt: float, levels: Levels) -> None:
        """All members over dt, in units of the stamps."""
        if not dt > 0.0:
            return
        h = min(dt / t.unit, c.LONGEST_STEP)
        t.now = 0.0
        pieces = max(math.ceil(min(h, c.LONGEST_GAP) - 0.5), 1)
        for _ in range(pieces):  # of about one unit: coasting over several is forecasting them
            self.isotropic.predict(t, h / pieces)
        if self.dense_in_use(t, levels):
            self.dense.drift(t, h)

    # ------------------------------------------------------------------ observations

    def observe(self, row: Numbers, z: Numbers, rel: float, levels: Levels) -> Said:
        """One observation: motion, a jump, an outlier, or left open for the next to say."""
        t = Track(row, self.oscillations)
        if t.unseen:
            self.isotropic.begin(t, z, levels)
            self.ahead.begin(t)
            t.now, t.seen, t.last[:] = rel, t.time, z
            if self.oscillations:
                self.dense.start_all(t)
                self.keep_first(t, z, rel)
            return Said(c.OBSERVED)
        if self.stale(t, z, levels):
            return Said(c.STALE)
        before = self.close(row, z, rel, levels) if t.open > 0.0 else c.MISSING
        verdict = self.score(t, z, rel, levels)
        choice = self.posterior(t, verdict, z)
        t.observed += 1.0
        odds = choice.outlier - choice.motion
        status = c.OBSERVED if choice.mode == c.TAKE else c.RESTARTED
        said = Said(
            c.REFUSED if odds > 0.0 else status,
            verdict.likelihood,
            verdict.nis,
            float(expit(odds)),
            before,
        )
        if odds < math.log(c.DOUBT):
            self.take(t, z, rel, verdict, choice.mode, t.time, levels)
            return said
        t.refused, t.now, t.last[:] = 1.0, 0.0, z
        if odds > -math.log(c.DOUBT):
            t.outliers += 1.0
        else:
            t.open, t.odds, t.open_noise = choice.mode, odds, rel
            t.behind, t.walk, t.turned[:] = 0.0, 0.0, (1.0, 0.0, 0.0, 0.0)
        return said

    def stale(self, t: Track, z: Numbers, levels: Levels) -> bool:
        """Whether Z is an exact repeat of the last observation that says nothing new.

        A source that is slower than its stamps repeats poses, a few times in a row and often. So
        does one at rest whose quantum is larger than its noise, but then runs are long.
        """
        repeat = repeats(t, z)
        t.repeats = t.repeats + 1.0 if repeat else 0.0
        share = max(1.0 - c.REPEAT_MEMORY, 1.0 / (2.0 + t.observed))
        t.repeated += share * (repeat - t.repeated)
        t.longest = max(c.REST_MEMORY * t.longest, t.repeats)
        if not repeat or t.repeats > c.LONGEST_REPEAT or levels.repeats == c.REPEATS_TAKEN:
            return False
        frequent = t.observed < c.FIRST_REPEATS or t.repeated > c.FREQUENT_REPEATS
        return levels.repeats == c.REPEATS_MISSING or (frequent and t.longest <= c.LONGEST_REPEAT)

    def score(self, t: Track, z: Numbers, rel: float, levels: Levels) -> Verdict:
        """What the members of a row say of Z, of noise variance rel r."""
        with_dense = self.dense_in_use(t, levels)
        e, n = log(t.frame, z), 3 if with_dense else 2
        dense = self.dense.score(t, z, t.noise * rel) if with_dense else None
        volume = 2 * math.log(np.sinc(float(np.linalg.norm(e)) / 2 / math.pi))  # over the group
        scored = self.isotropic.score(t, e, rel, levels)
        evidence = [*(scored.evidence - volume), *([dense.evidence] if dense else [])]
        prior = (1 - c.EXPERT_SWITCHING) * t.experts[:n]
        prior = prior + c.EXPERT_SWITCHING * np.array(c.EXPERT_PRIORS[:n])
        top = max(evidence)
        posterior = prior * np.exp(np.array(evidence) - top)
        likelihood = top + math.log(posterior.sum() / prior.sum())
        if n == 2:
            posterior = np.append(posterior, posterior.sum())
        return Verdict(
            e,
            evidence,
            posterior,
            likelihood,
            self.isotropic.outlier(t, e, volume, scored),
            self.isotropic.distance(t, scored),
            self.isotropic.lost(t),
            scored,
            dense,
        )

    def posterior(self, t: Track, verdict: Verdict, z: Numbers) -> Choice:
        """Motion or an outlier: (1 - p) f and p o, with p the share of outliers so far.

        Where Z agrees with the observation that was refused before, that one does not count and
        this is a jump rather, o JUMP_RATE, than one more outlier.
        """
        near = float(np.linalg.norm(log(t.last, z)))
        agree = t.refused > 0.0 and near < min(1.0, float(np.linalg.norm(verdict.e)) / 2)
        p = (c.OUTLIERS_BEFORE + t.outliers - agree) / (c.OBSERVED_BEFORE + t.observed)
        motion, outlier = math.log1p(-p) + verdict.likelihood, math.log(p) + verdict.outlier
        if verdict.lost:
            return Choice(c.START, motion, -1e300)
        jump = verdict.outlier + math.log(c.JUMP_RATE)
        if agree and motion < jump:
            return Choice(c.START_FAST, jump, outlier)
        return Choice(c.TAKE, motion, outlier)

    def take(
        self,
        t: Track,
        z: Numbers,
        rel: float,
        verdict: Verdict,
        mode: int,
        when: float,
        levels: Levels,
    ) -> None:
        """Take in what was judged; when: its time."""
        time, repeat = t.time, repeats(t, z)
        since = (when - t.seen) / t.unit
        t.open = t.refused = 0.0
        t.now, t.seen, t.time, t.last[:] = rel, when, when, z
        if mode == c.TAKE:
            t.experts[:] = verdict.posterior
            t.experts[:] = np.maximum(t.experts / t.experts.sum(), 1e-300)
            r = t.noise * rel
            self.isotropic.take(t, verdict.e, rel, repeat, levels, verdict.scored)
            if verdict.dense:
                self.dense.take(t, r, verdict.dense)
            if not levels.rated:
                self.ahead.observe(t, z, rel, since, self.dense_in_use(t, levels))
        else:
            fast = verdict.e @ verdict.e / (3 * t.noise) if mode == c.START_FAST else 0.0
            self.isotropic.begin_again(t, z, fast)
            self.ahead.begin(t)
            if self.dense_in_use(t, levels):
                self.dense.start_all(t)
        if self.oscillations and not levels.given and t.stored < c.LONGEST_START:
            if mode == c.TAKE:
                t.evidence[:] += verdict.evidence[:2]
            else:
                t.stored, t.evidence[:] = 0.0, 0.0
            self.keep_first(t, z, rel)
        t.time = time

    def follow_motion(self, row: Numbers, levels: Levels) -> Numbers:
        """The row as it is now if the open observation was motion."""
        found = row.copy()
        t = Track(found, self.oscillations)
        z, rel, mode = t.last.copy(), t.open_noise, int(t.open)
        t.last[:] = 0.0  # refused if it was an outlier; here it is taken in
        self.take(t, z, rel, self.score(t, z, rel, levels), mode, t.time - t.behind, levels)
        self.catch_up(t, levels)
        return found

    def close(self, row: Numbers, z: Numbers, rel: float, levels: Levels) -> int:
        """The next observation says whether the open one was motion or an outlier; its status."""
        t, motion = Track(row, self.oscillations), self.follow_motion(row, levels)
        odds, mode, other = t.odds, t.open, Track(motion, self.oscillations)
        t.open, t.outliers = 0.0, t.outliers + 1.0
        self.catch_up(t, levels)
        as_outlier, as_motion = (
            self.posterior(way, self.score(way, z, rel, levels), z) for way in (t, other)
        )
        if np.logaddexp(*as_outlier[1:]) + odds > np.logaddexp(*as_motion[1:]):
            return c.REFUSED
        row[:] = motion
        return c.OBSERVED if mode == c.TAKE else c.RESTARTED

    def keep_first(self, t: Track, z: Numbers, rel: float) -> None:
        """While the noise is young: store Z; after 8 and 16 run the dense members again."""
        n = int(t.stored)
        if n >= c.LONGEST_START:
            return
        t.first[n] = t.time, rel, *z
        t.stored = n + 1
        if n + 1 not in (c.FIRST_START, c.LONGEST_START):
            return
        self.dense.start_all(t)
        t.quaternion[:], t.motion[:3] = t.first[0, 2:, None], 0.0
        total = 0.0
        for before, (time, relative, *seen) in zip(t.first[:n], t.first[1 : n + 1], strict=True):
            if time > before[0]:
                self.dense.drift(t, (time - before[0]) / t.unit)
            scored = self.dense.score(t, np.array(seen), t.noise * relative)
            self.dense.take(t, t.noise * relative, scored)
            total += scored.evidence
        evidence = np.append(t.evidence, total)
        t.experts[:] = np.array(c.EXPERT_PRIORS) * np.exp(evidence - evidence.max())
        t.experts[:] = np.maximum(t.experts / t.experts.sum(), 1e-300)

    # ------------------------------------------------------------------ records

    def note_open(self, row: Numbers, said: Said, levels: Levels, record: Numbers) -> None:
        """While an observation is open the more probable of both ways is shown.

        Its covariance is that of both: sum w P + w_other d d^T, d from the one to the other.
        """
        without = Track(row.copy(), self.oscillations)
        self.catch_up(without, levels)
        ways = [Track(self.follow_motion(row, levels), self.oscillations), without]
        share = float(expit(without.odds))
        if share > 0.5:
            ways, share = ways[::-1], 1.0 - share
        other = np.empty_like(record)
        for way, out in zip(ways, (record, other), strict=True):
            self.write_record(way, said, levels, out)
        d = log(field(record, "quaternion"), field(other, "quaternion"))
        v = field(other, "velocity") - field(record, "velocity")
        apart = {"angle": d**2, "cross": d * v, "rate": v**2, "off": d[[1, 2, 0]] * d[[2, 0, 1]]}
        for name, square in apart.items():
            here = field(record, name)
            here += share * (field(other, name) - here + square)


def repeats(t: Track, z: Numbers) -> bool:
    """Whether Z is the last observation once more, but for rounding."""
    apart = min(np.abs(z - t.last).max(), np.abs(z + t.last).max())
    return bool(apart < c.REPEAT_ROUNDING)


def inspect(z: Numbers, tolerance: float) -> int:
    """MISSING if Z is NaN, INVALID if it is no rotation to the tolerance (below 0: trusted)."""
    if np.isnan(z).all():
        return c.MISSING
    if tolerance < 0.0:
        return c.OBSERVED
    defect = np.abs(z.T @ z - np.eye(3)).max()
    return c.OBSERVED if defect <= tolerance and np.linalg.det(z) > 0.0 else c.INVALID
