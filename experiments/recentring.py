"""Brain-computer interfaces between sessions: what takes the change of a recording off?

    python -m experiments run recentring

Simulated epochs of 8 channels mixed from 8 sources, two of which tell the two classes by their
power. A classifier (tangent space, logistic regression) is trained on one session of 80 epochs and
scored (balanced accuracy) on a second of 160, whose mixing has changed at once ("shift") or goes on
changing ("drift"). Classes come in random order and equally often ("balanced"), one of them in 85 %
of the epochs of the second session ("imbalanced"), or in blocks of 20 epochs ("blocks").

Online, with nothing but the past: no recentring, `OnlineRecenter` (going on from the first session,
or told of the second by `new_session`), and a Riemannian mean of the epochs of the session so far,
which must be told too. With data of the new session beforehand: pyRiemann's ``TLCenter`` on
its first 20 epochs. With all of the new session in hand: ``TLCenter``, and
``TangentSpace(tsupdate=True)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import Unit, unit
from kgmrf._types import Numbers

CHANNELS, SAMPLES, TRAIN, TEST, CALIBRATION = 8, 128, 80, 160, 20
CHANGES = ("none", "shift", "drift")
ORDERS = ("balanced", "imbalanced", "blocks")


def labels_of(order: str, n: int, rng: Any) -> Numbers:
    """The class of every epoch: 0 or 1."""
    if order == "blocks":
        return (np.arange(n) // 20) % 2
    share = 0.85 if order == "imbalanced" else 0.5
    return rng.permutation((np.arange(n) < round(share * n)).astype(int))


def epochs_of(labels: Numbers, mixing: Numbers, rng: Any) -> Numbers:
    """Covariances ``(n, d, d)`` of epochs: powers of sources by class, mixed by ``(n, d, d)``."""
    n = len(labels)
    powers = np.exp(0.3 * rng.standard_normal((n, CHANNELS)))
    sign = np.where(labels == 1, 1.0, -1.0)
    powers[:, 0] *= np.exp(0.5 * sign)
    powers[:, 1] *= np.exp(-0.5 * sign)
    sources = rng.standard_normal((n, CHANNELS, SAMPLES)) * np.sqrt(powers)[:, :, None]
    epochs = mixing @ sources
    return epochs @ np.swapaxes(epochs, -1, -2) / SAMPLES


def sessions(change: str, order: str, seed: int) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Training matrices and classes, then those of the second session."""
    rng = np.random.default_rng(seed)
    left, right = (np.linalg.qr(rng.standard_normal((CHANNELS, CHANNELS)))[0] for _ in range(2))
    # Condition number of the covariance 200: chosen; with 1e4 and more our reference is slow.
    first = (left * np.geomspace(np.sqrt(200.0), 1.0, CHANNELS)) @ right
    turn = 0.2 * rng.standard_normal((CHANNELS, CHANNELS))
    amount = {"none": np.zeros(TEST), "shift": np.ones(TEST), "drift": np.linspace(0.0, 1.0, TEST)}
    train_classes = labels_of("balanced", TRAIN, rng)
    test_classes = labels_of(order, TEST, rng)
    later = (np.eye(CHANNELS) + amount[change][:, None, None] * turn) @ first
    train = epochs_of(train_classes, np.broadcast_to(first, (TRAIN, *first.shape)), rng)
    return train, train_classes, epochs_of(test_classes, later, rng), test_classes


def running_mean(train: Numbers, test: Numbers) -> tuple[Numbers, Numbers]:
    """Whitened by the geometric mean so far, which starts anew in every session."""
    from kgmrf.geometry import spd

    found = []
    for matrices in (train, test):
        mean, out = matrices[0], np.empty_like(matrices)
        for k, matrix in enumerate(matrices):
            root = np.asarray(spd.power(mean, -0.5))
            out[k] = root @ matrix @ root
            mean = np.asarray(spd.geodesic(mean, matrix, 1.0 / (k + 1.0)))
        found.append(out)
    return found[0], found[1]


def accuracies(change: str, order: str, seed: int) -> dict[str, float]:
    """Balanced accuracy on the second session of every method."""
    from pyriemann.preprocessing import Whitening
    from pyriemann.tangentspace import TangentSpace
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import balanced_accuracy_score
    from sklearn.pipeline import make_pipeline

    from kgmrf.estimator import OnlineRecenter

    train, y, test, truth = sessions(change, order, seed)

    def score(train: Numbers, test: Numbers, *, update: bool = False) -> float:
        model = make_pipeline(TangentSpace(tsupdate=update), LogisticRegression(max_iter=1000))
        return float(balanced_accuracy_score(truth, model.fit(train, y).predict(test)))

    # TLCenter whitens every domain by its own Riemannian mean.
    centred = Whitening(metric="riemann").fit_transform(train)
    ours = OnlineRecenter(n_samples=SAMPLES)
    followed = ours.fit_transform(train)
    return {
        "no recentring": score(train, test),
        "OnlineRecenter": score(followed, ours.transform(test)),
        "OnlineRecenter, new_session()": score(followed, ours.new_session().transform(test)),
        "running Riemannian mean": score(*running_mean(train, test)),
        "TLCenter, 20 epochs first": score(
            centred, Whitening(metric="riemann").fit(test[:CALIBRATION]).transform(test)
        ),
        "TLCenter, whole session": score(centred, Whitening(metric="riemann").fit_transform(test)),
        "TangentSpace(tsupdate=True)": score(train, test, update=True),
    }


def run(change: str, order: str, n_seeds: int) -> dict[str, Any]:
    """Mean balanced accuracy of every method and its standard error over seeds."""
    found = [accuracies(change, order, seed) for seed in range(n_seeds)]
    values = {name: np.array([each[name] for each in found]) for name in found[0]}
    return {
        "rows": {
            name: {
                "mean": float(each.mean()),
                "error": float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else 0.0,
            }
            for name, each in values.items()
        },
        "n_seeds": n_seeds,
    }


def units(quick: bool) -> list[Unit]:
    """One unit per change of the recording and order of the classes."""
    return [
        unit(
            "recentring",
            f"{change}_{order}",
            run,
            change=change,
            order=order,
            n_seeds=1 if quick else 12,
        )
        for change in (CHANGES[:1] if quick else CHANGES)
        for order in (ORDERS[:1] if quick else ORDERS)
    ]
