"""Brain-computer interfaces between sessions: what takes the change of a recording off?

    python -m experiments run recentring

Real EEG (`experiments.ssvep`): four people with two sessions each, rest and three flickering
lights. Windows of one second, 24 channels (a filter bank), covariances by Ledoit-Wolf, in random
order. A classifier (pyRiemann's MDM) is trained on the first session and scored (balanced
accuracy) on the second: as recorded; with another gain on every electrode ("gain"); with a mixing
of the electrodes that is there at once ("shift") or grows through the session ("drift"); and with
one class in 85 % of the windows ("imbalanced").

Online, with nothing but the past: no recentring; `OnlineRecenter`, which goes on from the first
session, with `new_session` at the start of the second, or with the tracker as its reference; and
a Riemannian moving average of gain .05 or .1. With data of the new session beforehand: pyRiemann's
``TLCenter`` on its first 20 windows, or on all of them. Each classifier is trained about the
reference at the end of the first session.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments import ssvep
from experiments.store import Unit, unit
from kgmrf._types import Numbers

ELECTRODES, CALIBRATION = 8, 20
CHANGES = ("as recorded", "gain", "shift", "drift", "imbalanced")
GAIN, MIXING = 0.5, 0.2
"""Standard deviations of the log of a gain and of an entry of the mixing; a drift ends at twice."""
COMMON, RARE = 34, 2
"""Windows of the frequent class (two of its 32 twice) and of each other: 85 %."""


def mixing_of(change: str, n: int, rng: Any) -> Numbers:
    """What happened to the electrodes at each of n windows, ``(n, 8, 8)``."""
    eye = np.eye(ELECTRODES)
    if change == "gain":
        return np.broadcast_to(
            np.diag(np.exp(GAIN * rng.standard_normal(ELECTRODES))), (n, *eye.shape)
        )
    amount = {"shift": np.ones(n), "drift": np.linspace(0.0, 2.0, n)}.get(change, np.zeros(n))
    return eye + amount[:, None, None] * MIXING * rng.standard_normal(eye.shape)


def covariances(name: str) -> tuple[Numbers, Numbers, Numbers]:
    """Windows, their covariances and classes, of one session."""
    from pyriemann.estimation import Covariances

    found, classes = ssvep.windows(ssvep.session(name))
    return found, Covariances("lwf").transform(found), classes


def changed(C: Numbers, mixing: Numbers) -> Numbers:
    """Covariances after a change of the electrodes, which is that of every band of the bank."""
    full = np.stack([np.kron(np.eye(C.shape[-1] // ELECTRODES), m) for m in mixing])
    return full @ C @ np.swapaxes(full, -1, -2)


def order_of(classes: Numbers, change: str, rng: Any) -> Numbers:
    """Which windows are shown, and when."""
    shuffled = rng.permutation(len(classes))
    if change != "imbalanced":
        return shuffled
    common = rng.choice(np.unique(classes))
    kept = []
    for each in np.unique(classes):
        mine = shuffled[classes[shuffled] == each]
        kept.append(np.resize(mine, COMMON) if each == common else mine[:RARE])
    return rng.permutation(np.concatenate(kept))


def moving_average(C: Numbers, gain: float, start: Numbers | None = None) -> Numbers:
    """Riemannian moving averages before each matrix and after the last, ``(n + 1, d, d)``."""
    from kgmrf.geometry import spd

    out = [C[0] if start is None else start]
    for k, matrix in enumerate(C, 1):
        step = max(gain, 1.0 / k) if start is None else gain
        out.append(np.asarray(spd.geodesic(out[-1], matrix, step)))
    return np.stack(out)


def whitened(C: Numbers, reference: Numbers) -> Numbers:
    """Matrices about one reference, or about one each."""
    from kgmrf.geometry import spd

    root = np.asarray(spd.power(reference, -0.5))
    return root @ C @ root


def both(train: Numbers, test: Numbers) -> dict[str, tuple[Numbers, Numbers]]:
    """Training and test matrices as every method hands them to the classifier."""
    from pyriemann.utils.mean import mean_riemann

    from kgmrf.sklearn.recentring import OnlineRecenter

    ours = OnlineRecenter()
    first = ours.fit_transform(train)
    going_on = ours.transform(test)
    tracker = OnlineRecenter(reference="tracker", n_samples=ssvep.RATE)
    found = {
        "no recentring": (train, test),
        "OnlineRecenter": (first, going_on),
        "OnlineRecenter, new_session()": (first, ours.new_session().transform(test)),
        'OnlineRecenter(reference="tracker")': (
            tracker.fit_transform(train),
            tracker.transform(test),
        ),
    }
    for gain in (0.05, 0.1):
        end = moving_average(train, gain)[-1]
        after = whitened(test, moving_average(test, gain, end)[:-1])
        found[f"Riemannian moving average, gain {gain:g}"] = whitened(train, end), after
    centred = whitened(train, mean_riemann(train))
    few = mean_riemann(test[:CALIBRATION])
    found[f"TLCenter, {CALIBRATION} windows first"] = centred, whitened(test, few)
    found["TLCenter, whole session"] = centred, whitened(test, mean_riemann(test))
    return found


def run(subject: int, n_seeds: int) -> dict[str, Any]:
    """Mean balanced accuracy of every method under every change, over seeds."""
    from pyriemann.classification import MDM
    from sklearn.metrics import balanced_accuracy_score

    first, second = ssvep.SESSIONS[subject]
    (_, train, y), (_, test, truth) = covariances(first), covariances(second)
    rows: dict[str, dict[str, list[float]]] = {}
    for seed in range(n_seeds):
        for change in CHANGES:
            rng = np.random.default_rng([seed, CHANGES.index(change)])
            before, after = order_of(y, "", rng), order_of(truth, change, rng)
            later = changed(test[after], mixing_of(change, len(after), rng))
            for name, (known, new) in both(train[before], later).items():
                guess = MDM().fit(known, y[before]).predict(new)
                score = float(balanced_accuracy_score(truth[after], guess))
                rows.setdefault(name, {}).setdefault(change, []).append(score)
    means = {
        name: {change: float(np.mean(values)) for change, values in row.items()}
        for name, row in rows.items()
    }
    return {"rows": means, "n_seeds": n_seeds}


def units(quick: bool) -> list[Unit]:
    """One unit per person."""
    people = list(ssvep.SESSIONS)[: 1 if quick else None]
    return [
        unit("recentring", f"subject_{n}", run, subject=n, n_seeds=1 if quick else 6)
        for n in people
    ]
