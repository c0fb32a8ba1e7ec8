"""The paper's own trackers: Algorithm 1 as printed, and the columns of its tables.

They are here to be read and to be run on your own data beside the package's trackers; nothing else
uses them. The letters are the paper's, with its two meanings of gamma kept apart: in `Algorithm1`
it is a damping, in the columns of the tables it is a retention and has that name.

`COLUMNS` has one table of trackers with their settings for each reading of an experiment:

ellipse      as the ellipse tables were run
so3          as the camera table was run
printed      what the text and the tables of settings print, for covariances
printed_so3  the same for rotations

>>> import numpy as np
>>> from kgmrf import metrics, simulate
>>> scenes = [simulate.ellipse(0.08, n_samples=3750, rng=seed) for seed in range(5, 10)]
>>> seen, truth = ([getattr(s, name) for s in scenes] for name in ("observations", "covariance"))
>>> found = [column("kgmrf", "ellipse").filter(one).covariance for one in seen]
>>> errors = metrics.angular_error(np.array(found), np.array(truth), degrees=True)
>>> errors[:, 50:].mean().round(2).item()  # printed: .29
0.33
"""

from __future__ import annotations

from typing import Any

from kgmrf import _check
from kgmrf.baselines import AlphaBeta, EuclideanEMA, LogEuclideanEMA, RiemannianEMA, TangentKalman
from kgmrf.model.gains import FixedGains
from kgmrf.paper.columns import (
    KineticEllipse,
    KineticRotation,
    LocalTangentKalman,
    PrintedAlphaBeta,
)
from kgmrf.paper.literal import Algorithm1
from kgmrf.trackers import RotationTracker, Tracker

NAMES = ("kgmrf", "riemannian_ema", "euclidean_ema", "tangent_kalman", "alpha_beta")
"""The columns of the paper's tables, in their order."""

Column = tuple[type[Tracker], dict[str, Any]]

_TURNS = {"kind": "rotation"}
_NOISES = {"position_noise": 0.005, "velocity_noise": 0.005, "noise_std": 0.1**0.5}

COLUMNS: dict[str, dict[str, Column]] = {
    "ellipse": {
        "kgmrf": (KineticEllipse, {}),
        # Called Riemannian; its numbers are those of the log-Euclidean average, with weight
        # 1 - beta = .2 on the new observation.
        "riemannian_ema": (LogEuclideanEMA, {"gain": 0.2}),
        "euclidean_ema": (EuclideanEMA, {"gain": 0.2}),
        "tangent_kalman": (TangentKalman, {"velocity_noise": 0.005, "noise_std": 0.1}),
        "alpha_beta": (AlphaBeta, {"position_gain": 0.4, "velocity_gain": 0.1}),
    },
    "so3": {
        "kgmrf": (KineticRotation, {}),
        "riemannian_ema": (RiemannianEMA, {"gain": 0.2, **_TURNS}),
        "euclidean_ema": (EuclideanEMA, {"gain": 0.2, **_TURNS}),
        "tangent_kalman": (
            TangentKalman,
            {**_NOISES, "prior_var": 0.01, "coast": False, **_TURNS},
        ),
        # S <- S Exp(v + .5 e), v <- v + .05 e, in the words of KineticRotation.
        "alpha_beta": (
            KineticRotation,
            {"position_gain": 0.45, "velocity_gain": 0.05, "retention": 1.0},
        ),
    },
    "printed": {
        "kgmrf": (Algorithm1, {"eta": 0.05, "gamma": 0.95}),
        "riemannian_ema": (RiemannianEMA, {"gain": 0.8}),
        "euclidean_ema": (EuclideanEMA, {"gain": 0.8}),
        "tangent_kalman": (LocalTangentKalman, _NOISES),
        "alpha_beta": (PrintedAlphaBeta, {"position_gain": 0.4, "velocity_gain": 0.1}),
    },
    "printed_so3": {
        # Algorithm 1 is for covariances; these are the printed settings, predicted then corrected.
        "kgmrf": (RotationTracker, {"gains": FixedGains(0.5, 0.05, 0.98, 0.98)}),
        "riemannian_ema": (RiemannianEMA, {"gain": 0.8, **_TURNS}),
        "euclidean_ema": (EuclideanEMA, {"gain": 0.8, **_TURNS}),
        "tangent_kalman": (TangentKalman, {**_NOISES, **_TURNS}),
        "alpha_beta": (AlphaBeta, {"position_gain": 0.5, "velocity_gain": 0.05, **_TURNS}),
    },
}


def column(name: str, reading: str = "ellipse", d: int | None = None, **settings: Any) -> Any:
    """The tracker of a column of the paper's tables, under a reading of its experiment.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    reading : str, default "ellipse"
        a key of `COLUMNS`.
    d : int, default None
        The dimension, if it is known.
    **settings
        What is to be different.

    Examples
    --------
    >>> column("riemannian_ema", "so3")
    RiemannianEMA(gain=0.2, kind='rotation', on_invalid='raise')
    """
    _check.choice(reading, tuple(COLUMNS), "reading")
    _check.choice(name, NAMES, "name")
    kind, standard = COLUMNS[reading][name]
    shape: dict[str, Any] = {} if d is None else {"d": d}
    return kind(**shape, **{**standard, **settings})


def algorithm1(eta: float = 0.05, gamma: float = 0.95, **settings: Any) -> Algorithm1:
    """Algorithm 1 as printed; ``spectrum`` and ``initial`` are Lambda and M_0.

    Parameters
    ----------
    eta : float, default 0.05
        Step of the kick, the paper's.
    gamma : float, default 0.95
        Retention of the velocity per step, the paper's.
    **settings
        Other settings of `Algorithm1`.

    Examples
    --------
    >>> algorithm1(0.05, 0.95, initial=[[2.0, 0.0], [0.0, 0.5]]).gamma
    0.95
    """
    return Algorithm1(eta, gamma, **settings)


def kgmrf_ellipse(**settings: Any) -> KineticEllipse:
    """The column "K-GMRF" of the ellipse tables as it was run.

    Parameters
    ----------
    **settings
        Settings of `KineticEllipse` that are to be different.

    Examples
    --------
    >>> kgmrf_ellipse().coast_retention
    0.95
    """
    return KineticEllipse(**settings)


def kgmrf_so3(**settings: Any) -> KineticRotation:
    """The column "K-GMRF" of the camera table as it was run.

    Parameters
    ----------
    **settings
        Settings of `KineticRotation` that are to be different.

    Examples
    --------
    >>> kgmrf_so3().retention
    0.98
    """
    return KineticRotation(**settings)


__all__ = [
    "COLUMNS",
    "NAMES",
    "Algorithm1",
    "KineticEllipse",
    "KineticRotation",
    "LocalTangentKalman",
    "PrintedAlphaBeta",
    "algorithm1",
    "column",
    "kgmrf_ellipse",
    "kgmrf_so3",
]
