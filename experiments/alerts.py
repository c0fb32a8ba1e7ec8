"""Alarms: which faults are found, how soon, and how many false alarms there are.

    python -m experiments run alerts

For every set of :mod:`experiments.alerts_data` and every detector: the area under the curve of
precision and recall, row by row without any adjustment, of the scores and of their means over 20
rows; and at a threshold that 1 % of the rows without fault exceed, the share of faults of which a
row is found and the rows until then. Calibration: of simulated streams and of recordings without
faults, how many rows have a p-value of at most 1e-3, and how many alarms there are at a rate of
1e-3. Speed: rows per second of processor time at d = 4.

Rivals that are not installed (see benchmarks/requirements.txt) are left out, with the reason.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from experiments.alerts_data import BACKGROUNDS, Labelled, background, load
from experiments.alerts_detectors import FITTED, ONLINE, watched
from experiments.store import Unit, unit
from kgmrf import KGMRF, TrackerBank, simulate
from kgmrf._types import Numbers
from kgmrf.alerts import Alarm

FALSE = 0.01
"""Share of the rows without fault that exceed the threshold for delays."""

SMOOTHED = 20
"""Rows over which scores are averaged, in the second column."""

SETS = ("skab", "shuttle", *BACKGROUNDS)


def average_precision(faulty: Numbers, scores: Numbers) -> float:
    """Mean precision over the faulty rows, ties at once; the share of faults for a score that knows
    nothing.

    >>> average_precision(np.array([True, False, True]), np.array([3.0, 1.0, 2.0]))
    1.0
    """
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(faulty[order])
    last = np.flatnonzero(np.append(np.diff(scores[order]) != 0.0, True))
    recall = hits[last] / hits[-1]
    return float((hits[last] / (last + 1.0) * np.diff(recall, prepend=0.0)).sum())


def smoothed(scores: Numbers) -> Numbers:
    """Means over the last rows."""
    sums = np.cumsum(np.concatenate([[0.0], scores]))
    first = np.maximum(np.arange(1, len(sums)) - SMOOTHED, 0)
    return (sums[1:] - sums[first]) / (np.arange(1, len(sums)) - first)


def delays(faulty: Numbers, scores: Numbers) -> tuple[float, float]:
    """Share of the faults that are found, and the mean of rows until then (of those found)."""
    limit = np.quantile(scores[~faulty], 1.0 - FALSE)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], faulty.astype(int), [0]])))
    found = []
    for start, stop in zip(edges[::2], edges[1::2], strict=True):
        over = np.flatnonzero(scores[start:stop] > limit)
        found.append(over[0] if over.size else np.nan)
    rows = np.array(found, dtype=float)
    seen = ~np.isnan(rows)
    return float(seen.mean()), float(rows[seen].mean()) if seen.any() else np.nan


def judged(part: Labelled, scores: Numbers) -> dict[str, float]:
    """All figures of one recording, of the rows behind those to fit on."""
    faulty = part.faulty[part.fit :]
    rows = np.nan_to_num(scores, nan=0.0, posinf=1e300)
    whole = smoothed(rows)[part.fit :]
    rows = rows[part.fit :]
    share, delay = delays(faulty, rows)
    return {
        "precision": average_precision(faulty, rows),
        "smoothed": average_precision(faulty, whole),
        "found": share,
        "delay": delay,
    }


def detect(data: str, online: bool) -> dict[str, Any]:
    """Every detector of a kind on every recording of a set: means, and who is absent and why."""
    parts = load(data)
    out: dict[str, Any] = {
        "recordings": len(parts),
        "rows": sum(len(part.rows) - part.fit for part in parts),
        "faulty": float(np.mean([part.faulty[part.fit :].mean() for part in parts])),
        "detectors": {},
    }
    for word, score in (ONLINE if online else FITTED).items():
        began = time.process_time()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                each = [judged(part, score(part)) for part in parts]
        except ImportError as error:
            out["detectors"][word] = {"absent": str(error)}
            continue
        row = {key: float(np.nanmean([one[key] for one in each])) for key in each[0]}
        spent = time.process_time() - began
        row["rows_per_second"] = sum(len(part.rows) for part in parts) / max(spent, 1e-9)
        out["detectors"][word] = row
    return out


# ---------------------------------------------------------------------- false alarms


def simulated(name: str, n: int, seed: int) -> Numbers:
    """Streams of the model: independent rows of a covariance that stays, turns or breathes."""
    rng = np.random.default_rng(seed)
    if name == "turning":
        scene = simulate.rotating_covariance(4, rate=0.005, n_frames=n, rng=rng)
        root = np.linalg.cholesky(scene.covariance)
        return np.einsum("tij,tj->ti", root, rng.standard_normal((n, 4)))
    d = {"one channel": 1, "eight channels": 8}.get(name, 4)
    x = rng.standard_normal((n, d)) @ rng.standard_normal((d, d))
    if name == "heavy tails":
        x /= np.sqrt(rng.chisquare(5.0, (n, 1)) / 5.0)
    if name == "breathing":
        x *= np.exp(0.7 * np.sin(np.arange(n) / 60.0))[:, None]
    if name == "gaps":
        x[rng.random(x.shape) < 0.1] = np.nan
    return x


STREAMS = (
    *("constant", "one channel", "eight channels", "turning", "breathing", "heavy tails", "gaps"),
)


def of_itself(n_tracks: int, steps: int) -> tuple[Numbers, Numbers]:
    """p-values ``(tracks, steps)`` of rows that are drawn from the tracker's own forecast."""
    rng = np.random.default_rng(0)
    bank = TrackerBank(n_tracks, 4, time_unit=1.0)
    bank.update(rng.standard_normal((n_tracks, 4)))
    found = []
    for _ in range(steps):
        bank.update(bank.forecast(1).density.sample(1, rng)[0])
        found.append(bank.estimate().p_value)
    p = np.stack(found, axis=1)
    return p[:, :9], p[:, 9:]


def shares(p: Numbers, alarm: Alarm) -> dict[str, float]:
    """Share of p-values up to 1e-2, 1e-3, 1e-4, and alarms a row, of tracks ``(n, T)``."""
    rows = alarm.init(len(p))
    track = np.repeat(np.arange(len(p)), p.shape[1])
    begun = (alarm.take(rows, track, p.ravel()).status == 1).sum()
    known = p[~np.isnan(p)]
    return {
        **{f"{level:g}": float((known <= level).mean()) for level in (1e-2, 1e-3, 1e-4)},
        "alarms": float(begun / known.size),
        "rows": int(known.size),
    }


def false_simulated(n: int, seeds: int) -> dict[str, Any]:
    """Realised rates on simulated streams, from row 100 on; and of the first rows of a track."""
    out, alarm = {}, Alarm(1e-3, warm_up=0)
    first, later = of_itself(n // 2, 60)
    out["its own forecast, rows 1 to 9"] = shares(first, alarm)
    out["its own forecast, later"] = shares(later, alarm)
    for name in STREAMS:
        found = [KGMRF().filter(simulated(name, n, s), samples=True) for s in range(seeds)]
        out[name] = shares(np.stack([one.p_value[100:] for one in found]), alarm)
    return out


def false_real() -> dict[str, Any]:
    """Realised rates on recordings without faults, from row 200 on, as the sensors give them and
    as differences."""
    out, alarm = {}, Alarm(1e-3, warm_up=0)
    for name in BACKGROUNDS[:-1]:
        rows = background(name)
        for word, values, mean in (
            ("as it is", rows, "ewm"),
            ("differences", np.diff(rows, axis=0), "zero"),
            ("linear mean", rows, "linear"),
        ):
            if name == "weather" and word == "differences":  # it is differences already
                continue
            p = KGMRF(mean=mean).filter(values, samples=True, layout="channels_last").p_value
            out[f"{name}, {word}"] = shares(p[None, 200:], alarm)
    return out


# ---------------------------------------------------------------------- speed


class Tracks:
    """Tracks of samples with mean zero, as `kgmrf.alerts.lines.Home` wants them."""

    def __init__(self, n: int, alarm: Alarm) -> None:
        self.bank = TrackerBank(n, 4, time_unit=1.0, n_threads=1)
        self.columns = {"alarm": alarm.init(n)}

    def centred(self, tracks: Numbers, values: Numbers) -> Numbers:
        """The samples as they are."""
        return values


def speed(n: int) -> dict[str, float]:
    """Rows per second of processor time at d = 4: the best of three rounds, each way in turn."""
    from kgmrf.alerts.alarm import WIDTH
    from kgmrf.alerts.lines import Observed, take_watched

    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n, 4))
    part = Labelled(rows, np.zeros(n, bool), n // 2)
    lines = Observed(np.arange(n) % 1000, rows, np.ones(n), np.ones(n))

    def bank() -> None:
        tracks = TrackerBank(1000, 4, time_unit=1.0, n_threads=1)
        tracks.feed(lines.tracks, lines.values, dt=lines.dt, fields=("p_value",))

    def bank_with_alarms() -> None:
        alarm = Alarm(1e-4)
        take_watched(Tracks(1000, alarm), alarm, "yes", lines, ("p_value",))

    ways: dict[str, Callable[[], Any]] = {
        "filter, p-values": lambda: KGMRF().filter(rows, fields=["p_value"]),
        "watch": lambda: watched(part, "yes", "zero"),
        "1,000 keys": bank,
        "1,000 keys, alarms": bank_with_alarms,
    }
    best = dict.fromkeys(ways, 0.0)
    for _ in range(4):  # the first loads what is imported late
        for name, way in ways.items():
            began = time.process_time()
            way()
            best[name] = max(best[name], n / (time.process_time() - began))
    return best | {"bytes_of_an_alarm": 8.0 * WIDTH}


def units(quick: bool) -> list[Unit]:
    """One per set and kind of detector, two of false alarms, one of speed."""
    found = [
        unit("alerts", f"{kind}_{name}", detect, data=name, online=kind == "online")
        for name in (("simulated",) if quick else SETS)
        for kind in ("fitted", "online")
    ]
    n, seeds = (400, 2) if quick else (8000, 12)
    found.append(unit("alerts", "false_simulated", false_simulated, n=n, seeds=seeds))
    if not quick:
        found.append(unit("alerts", "false_real", false_real))
    found.append(unit("alerts", "speed", speed, n=2000 if quick else 60_000))
    return found
