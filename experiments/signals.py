"""Covariances of a signal: which one does a classifier need, and which forecasts the next seconds?

    python -m experiments run signals

Real EEG (`experiments.ssvep`), nine sessions of five people, rest and three flickering lights:
a filter bank (24 channels) and 1-40 Hz (8 channels). Covariances are followed through the whole
recording, and read 2, 3, 4 and 5 s after the beginning of every trial. pyRiemann's MDM is trained
on those of 5 s and scored on all four, by cross-validation over trials (eight folds, twice). The
forecast is scored on the next 2 s: the Student-t density (6 degrees of freedom) of the mean of
x x^T over the block as that of 16 rows, and the Gaussian density, both per row.

"one row ahead" is what `KGMRF(time_scale=1)` believes: the forecast of the next row. Of each epoch
by itself (1 to 5 s of a trial): `KineticCovariance` and pyRiemann's estimators.
"""

from __future__ import annotations

from math import lgamma
from typing import Any

import numpy as np

from experiments import ssvep
from experiments.store import Unit, unit
from kgmrf._types import Numbers

STEP = 32
"""Rows between two covariances that are kept."""
READ = (2, 3, 4, 5)
EMAS = (0.25, 0.5, 1.0, 2.0, 16.0)
BLOCK, FIRST = 512, 4096
NU, ROWS = 6.0, 16


def averages(rows: Numbers, half_life: float) -> Numbers:
    """Moving averages of x x^T after every 32 rows, half-life in rows."""
    keep = 0.5 ** (STEP / half_life)
    mean, mass, out = np.zeros((rows.shape[1],) * 2), 0.0, []
    for block in rows.reshape(-1, STEP, rows.shape[1]):
        mass = keep * mass + 1.0
        mean = mean + (block.T @ block / STEP - mean) / mass
        out.append(mean)
    return np.stack(out)


def followed(rows: Numbers) -> dict[str, Numbers]:
    """Covariances after every 32 rows, judged one row ahead and on the time scale of the signal."""
    from kgmrf import KGMRF

    tracker = KGMRF(time_scale="auto")
    found: dict[str, list[Numbers]] = {"KGMRF, one row ahead": [], 'KGMRF(time_scale="auto")': []}
    for block in rows.reshape(-1, STEP, rows.shape[1]):
        tracker.filter(block, fields=["log_likelihood"])
        for values, estimate in zip(
            found.values(), (tracker.forecast(0.0), tracker.estimate()), strict=True
        ):
            values.append(np.array(estimate.covariance))
    return {name: np.stack(values) for name, values in found.items()}


def with_ridge(C: Numbers) -> Numbers:
    """Covariances that have an inverse: the same small ridge for every method."""
    d = C.shape[-1]
    return C + 1e-6 * np.trace(C, axis1=-2, axis2=-1)[..., None, None] / d * np.eye(d)


def accuracy(C: dict[int, Numbers], classes: Numbers) -> float:
    """Mean accuracy of MDM, trained on covariances at 5 s, over trials and times of reading."""
    from pyriemann.classification import MDM
    from sklearn.model_selection import RepeatedStratifiedKFold

    folds = RepeatedStratifiedKFold(n_splits=8, n_repeats=2, random_state=1)
    found = []
    for train, test in folds.split(classes, classes):
        model = MDM().fit(C[READ[-1]][train], classes[train])
        found += [np.mean(model.predict(C[t][test]) == classes[test]) for t in READ]
    return float(np.mean(found))


def densities(S: Numbers, C: Numbers) -> tuple[float, float]:
    """Mean log-density per row of blocks C under scales S: Student-t of 16 rows, Gaussian."""
    d = S.shape[-1]
    log_det = np.linalg.slogdet(S)[1]
    distance = np.trace(np.linalg.solve(S, C), axis1=-2, axis2=-1)
    gauss = -0.5 * (log_det + distance + d * np.log(2.0 * np.pi))
    constant = (
        lgamma(0.5 * (NU + ROWS * d)) - lgamma(0.5 * NU) - 0.5 * ROWS * d * np.log(NU * np.pi)
    )
    t = constant - 0.5 * ROWS * log_det - 0.5 * (NU + ROWS * d) * np.log1p(ROWS * distance / NU)
    return float(t.mean() / ROWS), float(gauss.mean())


def online(session: str, kind: str) -> dict[str, Any]:
    """Accuracy and densities of every covariance that is followed through one session."""
    from kgmrf.model.integrated_time import integrated_time

    found = ssvep.session(session, kind)
    rows = found.rows[: len(found.rows) // STEP * STEP]
    blocks = {f"EMA, half-life {s:g} s": averages(rows, s * ssvep.RATE) for s in EMAS}
    blocks |= followed(rows)
    starts = np.arange(FIRST, len(rows) - BLOCK, ssvep.RATE)
    later = np.stack([rows[k : k + BLOCK].T @ rows[k : k + BLOCK] / BLOCK for k in starts])
    out = {}
    for name, C in blocks.items():
        whole = with_ridge(C)
        at = {t: whole[(found.onsets + t * ssvep.RATE) // STEP - 1] for t in READ}
        t, gauss = densities(whole[starts // STEP - 1], later)
        out[name] = {"accuracy": accuracy(at, found.classes), "t": t, "gauss": gauss}
    return {"rows": out, "integrated_time": integrated_time(rows)}


def by_epoch(session: str) -> dict[str, Any]:
    """Accuracy of MDM on covariances of single epochs, by estimator."""
    from pyriemann.estimation import Covariances

    from kgmrf.sklearn.estimator import KineticCovariance

    epochs, classes = ssvep.windows(ssvep.session(session), 4 * ssvep.RATE, ssvep.RATE, 1)
    found = {name: Covariances(name).transform(epochs) for name in ("scm", "oas", "lwf")}
    for name, scale in (("KineticCovariance()", "auto"), ("KineticCovariance(time_scale=1)", 1)):
        found[name] = np.stack(
            [KineticCovariance(time_scale=scale).fit(epoch.T).covariance_ for epoch in epochs]
        )
    rows = {}
    for name, C in found.items():
        rows[name] = accuracy(dict.fromkeys(READ, with_ridge(C)), classes)
    return {"rows": rows}


RETURNS = ("etf18", "factors8")


def unchanged(stream: str) -> dict[str, Any]:
    """Whether time_scale="auto" leaves every bit of the estimates of returns as it is."""
    from experiments.streams import data
    from kgmrf import KGMRF

    x, first = data.load(stream)
    one, other = (KGMRF(time_scale=scale).filter(x) for scale in (1, "auto"))
    names = ("covariance", "scale", "log_likelihood", "nis", "weights")
    same = [np.array_equal(getattr(one, n), getattr(other, n), equal_nan=True) for n in names]
    return {
        "unchanged": bool(all(same) and (other.time_scale == 1.0).all()),
        "integrated_time": other.integrated_time,
        "score": float(np.nanmean(other.log_likelihood[first:])),
    }


def units(quick: bool) -> list[Unit]:
    """One unit per session and way of looking."""
    names = ssvep.everyone()[-1:] if quick else ssvep.everyone()
    kinds = ("wide",) if quick else ("bank", "wide")
    found = [
        unit("signals", f"{kind}_{name}", online, session=name, kind=kind)
        for kind in kinds
        for name in names
    ]
    found += [unit("signals", f"epochs_{name}", by_epoch, session=name) for name in names]
    return found + [
        unit("signals", f"unchanged_{name}", unchanged, stream=name) for name in RETURNS
    ]
