"""Learning the inertia: fit a tracker's settings to a recording by maximum likelihood.

The likelihood is the sum over frames of the one-step-ahead log-likelihood that every filter run
tells anyway, so a setting is good if it predicts well. For covariances it is the density of the
samples under the predicted covariance; that says nothing about how many samples there were, so
``n_samples`` is fitted by the innovations instead: the residual of every plane against its
predicted variance, and the total power against its chi-squared law.

Settings are moved on a logarithmic scale (a retention by its decay, -log), first decade by decade,
then by Nelder and Mead's simplex. No derivative and no optional package is needed.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kgmrf._types import Numbers
from kgmrf.geometry import orbit
from kgmrf.trackers import Tracker
from kgmrf.trackers.gaussian import KineticGaussian
from kgmrf.trackers.product import ProductTracker

__all__ = ["Fit", "fit", "fit_in_place", "innovation_log_likelihood", "score"]

DECADE = math.log(10.0)
FIRST_STEP = math.log(3.0)
"""Edge of the first simplex: a factor of three."""

CLOSE = 0.02
"""Where the search ends: settings within 2 %, likelihoods within 0.02 nats."""

_STARTS = {
    "acceleration": 1e-6,
    "angle_noise": 1e-6,
    "spectrum_rate": 1e-4,
    "scale_rate": 1e-3,
    "noise_floor": 1e-3,
    "mean_noise": 1e-4,
    "position_noise": 1e-4,
    "velocity_gain": 1e-2,
}
"""Where to start from a setting of 0, which has no logarithm."""


@dataclass(frozen=True)
class Fit:
    """A fitted tracker (fresh, not yet run) and how it came about.

    ``start`` and ``end`` hold the settings before and after by name; log-likelihoods are sums over
    ``frames`` scored frames, in nats; ``objective`` is "likelihood" or "innovations".
    """

    tracker: Any
    start: dict[str, Any]
    end: dict[str, Any]
    log_likelihood_start: float
    log_likelihood: float
    frames: int
    evaluations: int
    objective: str = "likelihood"
    parts: dict[str, Fit] = field(default_factory=dict)

    @property
    def gain(self) -> float:
        """How many nats the fit gained over the whole recording."""
        return self.log_likelihood - self.log_likelihood_start

    def to_dict(self) -> dict[str, Any]:
        """Everything but the tracker itself, as plain numbers and words."""
        return {
            "tracker": type(self.tracker).__name__,
            "settings": self.tracker.settings(),
            "start": self.start,
            "end": self.end,
            "log_likelihood_start": self.log_likelihood_start,
            "log_likelihood": self.log_likelihood,
            "frames": self.frames,
            "evaluations": self.evaluations,
            "objective": self.objective,
        }

    def __str__(self) -> str:
        width = max([len(name) for name in self.start], default=7)
        lines = [f"{'setting':<{width}}  {'start':>12}  {'fitted':>12}"]
        for name in self.start:
            lines.append(
                f"{name:<{width}}  {_brief(self.start[name]):>12}  {_brief(self.end[name]):>12}"
            )
        lines.append(
            f"{self.objective}: {self.log_likelihood_start:.2f} -> {self.log_likelihood:.2f} nats "
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

    tracker: gives the settings to start from; its state does not matter and it is not changed.
    sequence: what ``tracker.filter`` takes; ``filter_options`` (times, mask, n_samples, samples)
    go there too.
    parameters: names of settings or of numbers of the gain law, such as "acceleration",
    "retention", "rate_prior", "spectrum_rate", "scale_rate", "noise_std", "n_samples",
    "position_gain"; of a component, "place.acceleration". Default: the acceleration (or the gains)
    with the clocks that run, and noise_std where there is one.

    Components of a `ProductTracker` are independent and are fitted one after the other.

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
    if isinstance(tracker, ProductTracker) and not isinstance(tracker, KineticGaussian):
        return _fit_parts(tracker, sequence, parameters, max_evaluations, filter_options)
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
    axes = [_Axis(settings, name) for name in names]
    counted = any(axis.key == "n_samples" for axis in axes)
    if counted and "n_samples" in filter_options:
        raise ValueError("n_samples is to be fitted: leave it out of the call")
    by_innovations = counted and tracker.kind == "covariance"
    if by_innovations:
        _needs_innovations(settings)

    def measure(settings: dict[str, Any]) -> tuple[float, int]:
        if by_innovations and settings.get("warmup_samples", 0.0) is None:
            # The warm-up must not depend on n_samples, or other frames would be compared.
            settings = {**settings, "warmup_samples": 1e9}
        result = type(tracker)(**settings).filter(sequence, **filter_options)
        values = result.log_likelihood
        if by_innovations:
            values = innovation_log_likelihood(
                result, settings["n_samples"], settings.get("noise_floor", 0.0)
            )
        scored = ~np.isnan(values)
        return float(np.where(scored, values, 0.0).sum()), int(scored.sum())

    first, frames = measure(settings)
    if frames == 0:
        raise ValueError(
            "this tracker tells no likelihood for the sequence; covariances need n_samples, "
            "rotations and vectors a noise_std, and the recording must outlast the warm-up"
        )

    def loss(z: Numbers) -> float:
        moved = copy.deepcopy(settings)
        for axis, step in zip(axes, z, strict=True):
            axis.put(moved, float(step))
        try:
            value, scored = measure(moved)
        except (ValueError, FloatingPointError, np.linalg.LinAlgError):
            return math.inf  # a setting outside its range
        # A run that loses its likelihood on the way is no better than one that never had it.
        return -value if scored >= frames and math.isfinite(value) else math.inf

    count, best, lowest = _search(loss, np.asarray([axis.start for axis in axes]), max_evaluations)
    end_settings, total = settings, first
    if -lowest > first:
        end_settings, total = copy.deepcopy(settings), -lowest
        for axis, step in zip(axes, best, strict=True):
            axis.put(end_settings, float(step))
    return Fit(
        tracker=type(tracker)(**end_settings),
        start={axis.name: axis.get(settings) for axis in axes},
        end={axis.name: axis.get(end_settings) for axis in axes},
        log_likelihood_start=first,
        log_likelihood=total,
        frames=frames,
        evaluations=count + 1,
        objective="innovations" if by_innovations else "likelihood",
    )


def fit_in_place(tracker: Any, sequence: Any, **options: Any) -> Any:
    """`fit`, then give the tracker itself the fitted settings; it starts afresh and is returned.

    The `Fit` is left in ``tracker.fit_``.

    >>> from kgmrf import RotationTracker, simulate
    >>> scene = simulate.rotating_frame(noise_std=0.02, n_frames=150, rng=1)
    >>> tracker = RotationTracker(noise_std=0.1, gains="information")
    >>> fit_in_place(tracker, scene.observations, parameters=["noise_std"]) is tracker
    True
    """
    found = fit(tracker, sequence, **options)
    tracker.__dict__.clear()
    tracker.__dict__.update(found.tracker.copy().__dict__)
    tracker.fit_ = found
    return tracker


def score(tracker: Tracker, sequence: Any = None, **filter_options: Any) -> float:
    """Sum over frames of the one-step-ahead log-likelihood, of a fresh tracker with its settings.

    >>> from kgmrf import KGMRF, simulate
    >>> scene = simulate.ellipse(n_frames=50, rng=1)
    >>> score(KGMRF(gains="information", n_samples=8), scene.observations) < 0
    True
    """
    _needs_tracker("score", tracker, sequence)
    result = type(tracker)(**tracker.settings()).filter(sequence, **filter_options)
    return float(np.nansum(result.log_likelihood))


def _needs_tracker(word: str, tracker: Any, sequence: Any) -> None:
    if not isinstance(tracker, Tracker):
        raise TypeError(
            f"{word} takes a tracker, then the recording, got a {type(tracker).__name__} first; "
            f'for example {word}(KGMRF(gains="information", n_samples=8), observations)'
        )
    if sequence is None:
        raise TypeError(f"{word} needs a recording: {word}(tracker, observations)")


def innovation_log_likelihood(result: Any, n_samples: float, noise_floor: float = 0.0) -> Numbers:
    """sum_{i<j} log N(C~_ij; 0, p_ij G_ij^2 + d_i d_j / m) + log chi2(m tr D^{-1} C~; m d).

    The innovations' likelihood of a run of ``KGMRF`` with information gains, ``(T, ...)``, as a
    function of ``n_samples`` too. Everything is told by the `Result`: the variance of a residual
    follows from the angle's variance after the update, v, as r^2 / (r - v G^2), r = d_i d_j / m.
    NaN in the first frame and where nothing was observed. The wandering of the spectrum counts as
    noise: on simulated data the fitted ``n_samples`` is 1-15 % low, most at m = 2.

    >>> from kgmrf import KGMRF, simulate
    >>> scene = simulate.ellipse(n_samples=8, n_frames=300, noise_floor=0.0, rng=1)
    >>> runs = {
    ...     m: KGMRF(gains="information", n_samples=m).filter(scene.observations)
    ...     for m in (2, 8, 32)
    ... }
    >>> likelihood = {m: np.nansum(innovation_log_likelihood(r, m)) for m, r in runs.items()}
    >>> max(likelihood, key=likelihood.get)
    8
    """
    m = float(n_samples)
    spectrum, variance = result.spectrum[:-1], result.angle_std[1:] ** 2
    d = spectrum.shape[-1]
    level = np.where(np.isnan(spectrum), 1.0, spectrum) + noise_floor
    rows, columns = np.triu_indices(d, 1)
    noise = (level[..., rows] * level[..., columns]) / m
    gap = orbit.gaps(level)[..., rows, columns]
    left = np.maximum(noise - variance[..., rows, columns] * gap**2, 1e-12 * noise)
    predicted = noise**2 / left
    planes = -0.5 * (result.nis[1:] + np.sum(np.log(2.0 * math.pi * predicted), axis=-1))
    log_level = np.log(level).sum(axis=-1)
    power = -2.0 * result.log_likelihood[1:] / m - d * math.log(2.0 * math.pi) - log_level
    power = np.where(power > 0, power, np.nan)
    half = 0.5 * m * d
    total = half * math.log(m / 2.0) + (half - 1.0) * np.log(power) - 0.5 * m * power
    values = planes + total - math.lgamma(half)
    return np.concatenate([np.full_like(values[:1], np.nan), values])


# --------------------------------------------------------------------------- settings as axes


class _Axis:
    """One setting as a coordinate: its logarithm, or for a retention that of its decay."""

    def __init__(self, settings: dict[str, Any], name: str) -> None:
        self.name = name
        self.path = _find(settings, name)
        self.key = self.path[-1]
        self.decays = self.key.endswith("retention")
        value = self.get(settings)
        if value is None:
            value = _missing(settings, name)
        base = np.asarray(value, dtype=float)
        if self.decays:
            base = -np.log(np.clip(base, 1e-6, 1.0 - 1e-4))
        elif not (base > 0).all():
            base = np.where(base > 0, base, _STARTS.get(self.key, 1e-3))
        # Arrays keep their proportions: one factor moves them all.
        self.start = float(np.log(base).mean())
        self.shape = np.log(base) - self.start

    def get(self, settings: dict[str, Any]) -> Any:
        table: Any = settings
        for key in self.path:
            table = table[key]
        return table

    def put(self, settings: dict[str, Any], z: float) -> None:
        table: Any = settings
        for key in self.path[:-1]:
            table = table[key]
        value = np.exp(np.clip(z + self.shape, -60.0, 60.0))
        value = np.exp(-value) if self.decays else value
        table[self.key] = value.tolist()


def _find(settings: dict[str, Any], name: str) -> tuple[str, ...]:
    """Where a setting lives: at the top, in the gain law, or in a component."""
    head, _, rest = name.partition(".")
    if rest and isinstance(settings.get(head), dict) and "settings" in settings[head]:
        return (head, "settings", *_find(settings[head]["settings"], rest))
    law = settings.get("gains")
    if isinstance(law, dict) and name in law and name not in ("law", "ridge"):
        return ("gains", name)
    if name in settings and (settings[name] is None or _is_numbers(settings[name])):
        return (name,)
    raise ValueError(f"there is no setting {name!r} to fit; there are {', '.join(_all(settings))}")


def _is_numbers(value: Any) -> bool:
    if isinstance(value, (bool, str, dict)) or value is None:
        return False
    return bool(np.asarray(value).dtype.kind in "fi")


def _all(settings: dict[str, Any]) -> list[str]:
    names = [name for name, value in settings.items() if _is_numbers(value) and name != "d"]
    for name, value in settings.items():
        if isinstance(value, dict) and name == "gains":
            names += [key for key, number in value.items() if _is_numbers(number)]
        elif isinstance(value, dict) and "settings" in value:
            names += [f"{name}.{inner}" for inner in _all(value["settings"])]
    return names


def _missing(settings: dict[str, Any], name: str) -> Any:
    """A start for a setting that is None because a default is derived from the noise."""
    noise = settings.get("noise_std")
    if name in ("acceleration", "rate_prior") and noise is not None:
        share = 1e-2 if name == "acceleration" else 1.0
        return share * float(np.mean(np.square(noise)))
    raise ValueError(f"{name} is not set; give the tracker a value to start from")


def _needs_innovations(settings: dict[str, Any]) -> None:
    law = settings.get("gains")
    if not isinstance(law, dict) or law["law"] != "InformationGains" or settings["scale_rate"]:
        raise ValueError(
            'n_samples can be fitted for KGMRF(gains="information", scale_rate=0) only: other laws '
            "predict no variance to compare with"
        )


def _default_parameters(settings: dict[str, Any]) -> list[str]:
    names: list[str] = []
    law = settings.get("gains")
    if isinstance(law, dict):
        fixed = law["law"] == "FixedGains"
        names += ["position_gain", "velocity_gain"] if fixed else ["acceleration"]
    if settings.get("spectrum") == "adaptive" and law != "auto":
        names.append("spectrum_rate")
    if settings.get("scale_rate"):
        names.append("scale_rate")
    if isinstance(settings.get("covariance"), dict):
        inner = _default_parameters(settings["covariance"]["settings"])
        names += ["mean_acceleration", *(f"covariance.{name}" for name in inner)]
    own = ("gain", "position_gain", "velocity_gain", "velocity_noise")
    if law is None:
        names += [name for name in own if name in settings]
        names += ["acceleration"] if "acceleration" in settings else []
    if settings.get("noise_std") is not None:
        names.append("noise_std")
    return names


def _fit_parts(
    tracker: ProductTracker,
    sequence: Mapping[str, Any],
    parameters: Sequence[str] | None,
    max_evaluations: int,
    filter_options: dict[str, Any],
) -> Fit:
    options = dict(filter_options)
    times, mask = options.pop("times", None), options.pop("mask", None)
    parts: dict[str, Fit] = {}
    fitted: dict[str, Tracker] = {}
    for name, part in tracker.components.items():
        wanted = None
        if parameters is not None:
            wanted = [p.partition(".")[2] for p in parameters if p.partition(".")[0] == name]
        fitted[name] = type(part)(**part.settings())
        if sequence.get(name) is None or wanted == []:
            continue
        own = {key: table[name] for key, table in options.items() if name in table}
        if mask is not None:
            own["mask"] = mask.get(name) if isinstance(mask, Mapping) else mask
        if times is not None:
            own["times"] = times
        parts[name] = fit(
            part, sequence[name], parameters=wanted, max_evaluations=max_evaluations, **own
        )
        fitted[name] = parts[name].tracker
    strangers = {p for p in parameters or () if p.partition(".")[0] not in parts}
    if strangers or not parts:
        raise ValueError(
            f"cannot fit {', '.join(sorted(strangers)) or 'anything'}: write parameters like "
            f"{next(iter(tracker.components))}.acceleration, and give that component a sequence"
        )
    return Fit(
        tracker=type(tracker)(fitted),
        start={f"{n}.{k}": v for n, part in parts.items() for k, v in part.start.items()},
        end={f"{n}.{k}": v for n, part in parts.items() for k, v in part.end.items()},
        log_likelihood_start=sum(part.log_likelihood_start for part in parts.values()),
        log_likelihood=sum(part.log_likelihood for part in parts.values()),
        frames=max(part.frames for part in parts.values()),
        evaluations=sum(part.evaluations for part in parts.values()),
        parts=parts,
    )


# --------------------------------------------------------------------------- the search


def _search(
    loss: Callable[[Numbers], float], start: Numbers, max_evaluations: int
) -> tuple[int, Numbers, float]:
    """Decade by decade along every axis, then a simplex; returns (evaluations, point, loss)."""
    count = 0

    def counted(z: Numbers) -> float:
        nonlocal count
        count += 1
        return loss(z)

    best, lowest = start.copy(), counted(start)
    for k in range(start.size):
        for sign in (1.0, -1.0):
            # On while it gets better; one bad step is forgiven, ridges are rarely straight.
            tried, bad = best.copy(), 0
            while bad < 2 and count < max_evaluations:
                tried = tried.copy()
                tried[k] += sign * DECADE
                value = counted(tried)
                if value < lowest:
                    best, lowest, bad = tried, value, 0
                else:
                    bad += 1
    best, lowest = _simplex(counted, best, lowest, lambda: count < max_evaluations)
    return count, best, lowest


def _simplex(
    loss: Callable[[Numbers], float], start: Numbers, value: float, go_on: Callable[[], bool]
) -> tuple[Numbers, float]:
    """Nelder and Mead: reflect the worst corner, stretch, contract, or shrink to the best."""
    corners = [start] + [start + FIRST_STEP * e for e in np.eye(start.size)]
    values = [value] + [loss(corner) for corner in corners[1:]]
    while go_on():
        order = np.argsort(values, kind="stable")
        corners, values = [corners[k] for k in order], [values[k] for k in order]
        spread = max(float(np.abs(corner - corners[0]).max()) for corner in corners)
        if spread < CLOSE or (values[-1] - values[0] < CLOSE and spread < 1.0):
            break
        centre = np.mean(corners[:-1], axis=0)
        across = centre - corners[-1]
        mirrored = centre + across
        value = loss(mirrored)
        if value < values[0]:
            far = centre + 2.0 * across
            further = loss(far)
            corners[-1], values[-1] = (far, further) if further < value else (mirrored, value)
        elif value < values[-2]:
            corners[-1], values[-1] = mirrored, value
        else:
            outside = value < values[-1]
            near = centre + (0.5 if outside else -0.5) * across
            closer = loss(near)
            if closer < min(value, values[-1]):
                corners[-1], values[-1] = near, closer
            else:
                corners = [corners[0]] + [0.5 * (c + corners[0]) for c in corners[1:]]
                values = [values[0]] + [loss(c) for c in corners[1:]]
    k = int(np.argmin(values))
    return corners[k], values[k]


def _brief(value: Any) -> str:
    if value is None:
        return "default"
    return f"{value:.4g}" if np.ndim(value) == 0 else f"array{np.shape(value)}"
