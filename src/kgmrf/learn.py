"""Fit a tracker's settings to a recording by maximum likelihood.

The objective is the sum of one-step-ahead log-likelihoods of a filter run. For covariances that is
the density of the samples under the predicted covariance. It does not depend on the true number of
samples: :func:`kgmrf.diagnose` measures that.

Settings move on a logarithmic scale (a retention by its decay, -log): first decade by decade along
each axis, then by Nelder and Mead's simplex.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.trackers import ProductTracker, Tracker

__all__ = ["Fit", "fit", "score"]

FIRST_STEP = math.log(3.0)
"""Edge of the first simplex: a factor of three."""

CLOSE = 0.02
"""Where the search ends: settings within 2 %, likelihoods within 0.02 nats."""

INVALID = 1e300  # loss of settings that a tracker refuses

_STARTS = {
    "acceleration": 1e-6,
    "angle_noise": 1e-6,
    "spectrum_rate": 1e-4,
    "mean_noise": 1e-4,
    "position_noise": 1e-4,
    "velocity_gain": 1e-2,
}
"""Where to start from a setting of 0, which has no logarithm; 1e-3 for the others."""


@dataclass(frozen=True)
class Fit:
    """A fitted tracker (fresh, not yet run) and how it was found.

    Parameters
    ----------
    tracker
        The fitted tracker, fresh.
    start : dict[str, Any]
        Settings before, by name.
    end : dict[str, Any]
        Settings after, by name.
    log_likelihood_start : float
        Sum over the scored steps before, nats.
    log_likelihood : float
        The same after.
    frames : int
        Number of scored steps.
    evaluations : int
        Runs of the tracker that it took.
    """

    tracker: Any
    start: dict[str, Any]
    end: dict[str, Any]
    log_likelihood_start: float
    log_likelihood: float
    frames: int
    evaluations: int

    @property
    def gain(self) -> float:
        """Increase of the log-likelihood over the whole recording, in nats."""
        return self.log_likelihood - self.log_likelihood_start

    def __str__(self) -> str:
        width = max([len(name) for name in self.start], default=7)
        rows = [("setting", "start", "fitted")]
        rows += [(name, _brief(self.start[name]), _brief(self.end[name])) for name in self.start]
        lines = [f"{name:<{width}}  {start:>12}  {end:>12}" for name, start, end in rows]
        lines.append(
            f"likelihood: {self.log_likelihood_start:.2f} -> {self.log_likelihood:.2f} nats "
            f"over {self.frames} frames ({self.gain:+.2f}), {self.evaluations} evaluations"
        )
        return "\n".join(lines)


def fit(
    tracker: Tracker,
    sequence: Any = None,
    *,
    parameters: Sequence[str] | None = None,
    max_evaluations: int = 200,
    **filter_options: Any,
) -> Fit:
    """argmax over settings of sum_t log p(observation_t | observations before t).

    Components of a `ProductTracker` are independent: fit each of them.

    Parameters
    ----------
    tracker : Tracker
        Gives the settings to start from; its state does not matter and it is not changed.
    sequence : default None
        What ``tracker.filter`` takes.
    parameters : Sequence[str], default None
        Names of settings or of numbers of the gain law, such as "acceleration", "retention",
        "rate_prior", "spectrum_rate", "scale_rate", "noise_std", "position_gain". Default: the
        acceleration (or the gains), the rates that are not zero, and noise_std where there is one.
    max_evaluations : int, default 200
        Runs of the tracker, at most.
    **filter_options
        The arguments times, mask, n_samples and samples, passed on to ``tracker.filter``.

    Examples
    --------
    >>> from kgmrf import RotationTracker, simulate
    >>> scene = simulate.rotating_frame(noise_std=0.02, n_frames=150, rng=1)
    >>> found = fit(
    ...     RotationTracker(noise_std=0.1, gains="information"),
    ...     scene.observations,
    ...     parameters=["noise_std"],
    ... )
    >>> round(found.tracker.noise_std, 2)
    0.02
    """
    _needs_tracker("fit", tracker, sequence)
    if isinstance(tracker, ProductTracker):
        raise ValueError(
            "the components of a product are fitted one by one: fit(tracker.components[name], "
            f"sequence[name]) for name in {', '.join(map(repr, tracker.components))}"
        )
    settings = tracker.settings()
    names = tuple(_default_parameters(settings) if parameters is None else parameters)
    if not names and parameters is None:
        raise ValueError(
            f"this {type(tracker).__name__} tunes itself and has nothing to fit: run "
            "tracker.filter(X), or tracker.partial_fit(x) row by row; only a single law, such as "
            'gains="information", has settings that are fitted'
        )
    if not names or len(set(names)) != len(names):
        raise ValueError(f"parameters must name different settings, got {names}")
    if "n_samples" in names and tracker.kind == "covariance":
        raise ValueError(
            "n_samples of covariances has no likelihood to fit: fewer samples would always look "
            "better; diagnose(tracker.filter(X), X) measures it"
        )
    axes = [_Axis(settings, name) for name in names]

    def measure(settings: dict[str, Any]) -> tuple[float, int]:
        values = type(tracker)(**settings).filter(sequence, **filter_options).log_likelihood
        return float(np.nansum(values)), int((~np.isnan(values)).sum())

    def shifted(z: Numbers) -> dict[str, Any]:
        there = copy.deepcopy(settings)
        for axis, step in zip(axes, z, strict=True):
            axis.put(there, float(step))
        return there

    first, frames = measure(settings)
    if frames == 0:
        raise ValueError(
            "this tracker has no likelihood for the sequence; covariances need n_samples, "
            "rotations and vectors a noise_std, and the recording must outlast the start-up"
        )

    def loss(z: Numbers) -> float:
        try:
            value, scored = measure(shifted(z))
        except (ValueError, FloatingPointError):
            return INVALID  # a setting outside its range
        # A run that loses its likelihood half-way must not win by having fewer terms.
        return -value if scored >= frames and math.isfinite(value) else INVALID

    count, best, lowest = _search(loss, np.asarray([axis.start for axis in axes]), max_evaluations)
    improved = -lowest > first
    end = shifted(best) if improved else settings
    return Fit(
        tracker=type(tracker)(**end),
        start={axis.name: axis.table(settings)[axis.name] for axis in axes},
        end={axis.name: axis.table(end)[axis.name] for axis in axes},
        log_likelihood_start=first,
        log_likelihood=-lowest if improved else first,
        frames=frames,
        evaluations=count + 1,
    )


def score(tracker: Tracker, sequence: Any = None, **filter_options: Any) -> float:
    """Sum of one-step-ahead log-likelihoods of a fresh tracker with the same settings.

    Parameters
    ----------
    tracker : Tracker
        Tracker to score; it is not changed.
    sequence : default None
        Observations in time order.
    **filter_options
        Other arguments of its ``filter``, such as times.

    Examples
    --------
    >>> from kgmrf import KGMRF, simulate
    >>> scene = simulate.ellipse(n_frames=50, rng=1)
    >>> score(KGMRF(gains="information", n_samples=8), scene.observations) < 0
    True
    """
    _needs_tracker("score", tracker, sequence)
    result = tracker.with_settings().filter(sequence, **filter_options)
    return float(np.nansum(result.log_likelihood))


def _needs_tracker(word: str, tracker: Any, sequence: Any) -> None:
    if not isinstance(tracker, Tracker):
        raise TypeError(
            f"{word} takes a tracker, then the recording, got a {type(tracker).__name__} first; "
            f'for example {word}(KGMRF(gains="information", n_samples=8), observations)'
        )
    if sequence is None:
        raise TypeError(f"{word} needs a recording: {word}(tracker, observations)")


class _Axis:
    """One setting as a coordinate: its logarithm, or for a retention that of its decay."""

    def __init__(self, settings: dict[str, Any], name: str) -> None:
        self.name = name
        numbers = {**settings, **_law(settings)}
        names = [n for n, value in numbers.items() if not isinstance(value, (bool, str, dict))]
        value = numbers[name] if name in names else ""
        if value is None:
            value = _missing(settings, name)
        if np.asarray(value).dtype.kind not in "fi":
            raise ValueError(f"there is no setting {name!r} to fit; there are {', '.join(names)}")
        self.decays = name.endswith("retention")
        base = np.asarray(value, dtype=float)
        if self.decays:
            base = -np.log(np.clip(base, 1e-6, 1.0 - 1e-4))
        base = np.where(base > 0, base, _STARTS.get(name, 1e-3))
        # Arrays keep their proportions: one factor moves them all.
        self.start = float(np.log(base).mean())
        self.shape = np.log(base) - self.start

    def table(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Where the setting is: in the gain law, or at the top."""
        return _law(settings) if self.name in _law(settings) else settings

    def put(self, settings: dict[str, Any], z: float) -> None:
        value = np.exp(np.clip(z + self.shape, -60.0, 60.0))
        self.table(settings)[self.name] = (np.exp(-value) if self.decays else value).tolist()


def _law(settings: dict[str, Any]) -> dict[str, Any]:
    law = settings.get("gains")
    return law if isinstance(law, dict) else {}


def _missing(settings: dict[str, Any], name: str) -> Any:
    """A start for a setting that is None because its default is derived from the noise."""
    noise = settings.get("noise_std")
    if name in ("acceleration", "rate_prior") and noise is not None:
        share = 1e-2 if name == "acceleration" else 1.0
        return share * float(np.mean(np.square(noise)))
    raise ValueError(f"{name} is not set; give the tracker a value to start from")


def _default_parameters(settings: dict[str, Any]) -> list[str]:
    names: list[str] = []
    if law := _law(settings):
        fixed = law["law"] == "FixedGains"
        names += ["position_gain", "velocity_gain"] if fixed else ["acceleration"]
        if settings.get("spectrum") == "adaptive":
            names.append("spectrum_rate")
    if settings.get("scale_rate"):
        names.append("scale_rate")
    if settings.get("gains") is None:
        own = (
            *("gain", "position_gain", "velocity_gain", "velocity_noise", "acceleration"),
            "mean_acceleration",
        )
        names += [name for name in own if name in settings]
    if settings.get("noise_std") is not None:
        names.append("noise_std")
    return names


def _search(
    loss: Callable[[Numbers], float], start: Numbers, max_evaluations: int
) -> tuple[int, Numbers, float]:
    """Decade by decade along every axis, then a simplex; returns (evaluations, point, loss)."""
    from scipy.optimize import minimize

    count, best, lowest = 1, start, loss(start)
    for axis in np.eye(start.size):
        for decade in (math.log(10.0) * axis, -math.log(10.0) * axis):
            # Go on while it improves; allow one step that does not.
            tried, bad = best, 0
            while bad < 2 and count < max_evaluations:
                tried, count = tried + decade, count + 1
                value = loss(tried)
                bad += 1
                if value < lowest:
                    best, lowest, bad = tried, value, 0
    if count < max_evaluations:
        corners = np.vstack([best, best + FIRST_STEP * np.eye(start.size)])
        limits = {"xatol": CLOSE, "fatol": CLOSE, "maxfev": max_evaluations - count}
        options = {"initial_simplex": corners, **limits}
        found = minimize(loss, best, method="Nelder-Mead", options=options)
        count += found.nfev
        if found.fun < lowest:
            best, lowest = found.x, float(found.fun)
    return count, best, lowest


def _brief(value: Any) -> str:
    if value is None:
        return "default"
    return f"{value:.4g}" if np.ndim(value) == 0 else f"array{np.shape(value)}"
