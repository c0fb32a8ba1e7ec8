"""The paper's tuning guide, rule by rule: each as a measurement with a number before and after.

Gamma is read as the guide defines it, a damping: W <- (1 - gamma) W + eta w (Algorithm 1). The
tables' reading, a retention while nothing is seen, is tested where a rule speaks of coasting. The
ellipse, spectrum (2, .5), everything on d = 2 angles; noise is 8 samples per frame unless stated.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.recursions import half_turn
from experiments.store import Unit, unit
from kgmrf import metrics, paper, simulate, theory
from kgmrf._types import Numbers
from kgmrf.geometry import so

GAP = 1.5
N_FRAMES = 400


def algorithm_1(seen: Numbers, eta: float, gamma: float) -> Numbers:
    """Angles of Algorithm 1 along ``(T, n, 2, 2)``, forecasts included: M_{t+1} after C_t.

    Returned is the estimate at the time of each observation, before it is used; NaN is no data.
    """
    x, w = np.zeros(seen.shape[1]), np.zeros(seen.shape[1])
    path = []
    for c in seen:
        path.append(x)
        there = ~np.isnan(c[:, 0, 0])
        c = np.where(there[:, None, None], c, 0.0)
        across = 0.5 * (c[:, 1, 1] - c[:, 0, 0])
        turn = (across * np.sin(2 * x) + c[:, 0, 1] * np.cos(2 * x)) / GAP
        w = (1 - gamma) * w + eta * np.where(there, turn, 0.0)
        x = x + w
    return np.stack(path)


def _error(
    rate: float,
    eta: float,
    gamma: float,
    *,
    n_samples: int | None = 8,
    hidden: bool = False,
    n_seeds: int = 20,
) -> float:
    """Mean angle error from frame 100 on, degrees."""
    observed = simulate.occlusions(N_FRAMES) if hidden else None
    scenes = [
        simulate.ellipse(rate, n_samples=n_samples, observed=observed, rng=seed)
        for seed in range(10, 10 + n_seeds)
    ]
    seen = np.stack([s.observations for s in scenes], 1)
    truth = metrics.axis_angle(np.stack([s.covariance for s in scenes], 1))
    off = half_turn(algorithm_1(seen, eta, gamma) - truth)
    return float(np.degrees(np.abs(off))[100:].mean())


def _response(eta: float, gamma: float) -> Numbers:
    """Error after a small step of the target, without noise: linear."""
    target = so.exp(so.hat(np.array([0.02])))
    seen = np.broadcast_to((target * [2.0, 0.5]) @ target.T, (N_FRAMES, 1, 2, 2))
    return 0.02 - algorithm_1(seen, eta, gamma)[:, 0]


def _overshoot(eta: float, gamma: float) -> float:
    """How far the response passes the target, in percent of the step."""
    return float(max(0.0, -_response(eta, gamma).min() / 0.02) * 100)


def _swings(eta: float, gamma: float) -> int:
    """Sign changes of the error before it has fallen to a thousandth."""
    e = _response(eta, gamma)
    e = e[np.abs(e) > 2e-5]
    return int((np.diff(np.sign(e)) != 0).sum())


def _settling(eta: float, gamma: float) -> int:
    """Frames until the error stays below a tenth of the step."""
    late = np.flatnonzero(np.abs(_response(eta, gamma)) > 0.002)
    return int(late[-1]) + 1


def _noise(eta: float, gamma: float) -> float:
    """Standard deviation of the angle at rest, degrees."""
    r = (2.1 * 0.6) / (8 * GAP**2)
    variance = theory.steady_noise_variance(0.0, eta, 1 - gamma, observation_variance=r)
    return float(np.degrees(np.sqrt(variance)))


def _coasted(share: float) -> float:
    """Radians turned in 30 hidden frames by a velocity of 1 of which ``share`` is kept."""
    return float(np.sum(share ** np.arange(30)))


def _retention_occluded(gamma: float) -> float:
    """Occlusion error of the tables' law, where gamma is what is kept while nothing is seen."""
    scene = simulate.ellipse(0.08, n_samples=1280, observed=simulate.occlusions(N_FRAMES), rng=10)
    tracker = paper.kgmrf_ellipse(coast_retention=gamma)
    found = tracker.filter(scene.observations).covariance
    return float(metrics.angular_error(found, scene.covariance, degrees=True)[50:].mean())


def _best_gamma(rate: float, n_samples: int | None, hidden: bool) -> tuple[float, float]:
    """The best damping for eta = .05 on a grid, and its error."""
    grid = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 0.95, 0.98, 1.0)
    errors = [_error(rate, 0.05, g, n_samples=n_samples, hidden=hidden) for g in grid]
    k = int(np.argmin(errors))
    return grid[k], errors[k]


def run() -> dict[str, Any]:
    """All rules: what was measured with the setting before and after, and whether it helped."""
    rules: list[dict[str, Any]] = []

    def rule(where: str, says: str, measured: str, before: Any, after: Any, holds: bool) -> None:
        rules.append(
            {
                "where": where,
                "rule": says,
                "measured": measured,
                "before": before,
                "after": after,
                "holds": holds,
            }
        )

    thumb, table, modes, tasks = "rule of thumb", "parameters", "failure modes", "tasks"
    slow, fast = _error(0.02, 0.05, 0.95), _error(0.08, 0.05, 0.95)
    rule(
        thumb,
        "start with γ = .95, η = .05",
        "error at ω = .02 and at .08 rad per frame, degrees (a blind guess: 45)",
        slow,
        fast,
        fast < 40,
    )
    before, after = _swings(0.5, 0.1), _swings(0.5, 0.95)
    rule(thumb, "it oscillates: raise γ towards 1", "swings, γ .1 → .95, η = .5", before, after,
         after < before)  # fmt: skip
    before, after = (_error(0.02, 0.05, g, n_samples=None) for g in (0.95, 0.8))
    rule(thumb, "it lags: lower γ towards .8", "lag at ω = .02 without noise, γ .95 → .8, degrees",
         before, after, after < before)  # fmt: skip
    before, after = (theory.stability_radius(0.0, eta, 0.5) for eta in (4.0, 2.0))
    rule(thumb, "it diverges: halve η", "largest root, γ = .5, η 4 → 2 (stable below 1)",
         before, after, after < 1 <= before)  # fmt: skip
    settling = [_settling(eta, 0.95) for eta in (0.05, 0.2)]
    rule(table, "larger η: faster response", "frames to a tenth, η .05 → .2, γ = .95", *settling,
         settling[1] < settling[0])  # fmt: skip
    noise = [_noise(eta, 0.95) for eta in (0.05, 0.2)]
    rule(table, "larger η: more noise", "deviation at rest, η .05 → .2, degrees", *noise,
         noise[1] > noise[0])  # fmt: skip
    noise = [_noise(0.05, g) for g in (0.5, 0.95)]
    rule(table, "larger γ: smoother", "deviation at rest, γ .5 → .95, η = .05, degrees", *noise,
         noise[1] < noise[0])  # fmt: skip
    lag = [float(np.degrees(theory.printed_lag(0.02, 0.05, g))) for g in (0.5, 0.95)]
    rule(table, "larger γ: more lag", "lag at ω = .02, γ .5 → .95, degrees", *lag,
         lag[1] > lag[0])  # fmt: skip
    coast = [_coasted(1 - g) for g in (0.95, 0.5)]
    rule(table, "smaller γ: longer coasting (γ a damping)", "turn in 30 hidden frames, in "
         "velocities, γ .95 → .5", *coast, coast[1] > coast[0])  # fmt: skip
    kept = [_retention_occluded(g) for g in (0.98, 0.9)]
    rule(table, "smaller γ: longer coasting (γ as in the tables, a retention)",
         "error with occlusions, γ .98 → .9, degrees", *kept, kept[1] < kept[0])  # fmt: skip
    swings = [_swings(eta, 0.5) for eta in (2.7, 1.35)]
    rule(modes, "high-frequency oscillation: halve η", "swings, η 2.7 → 1.35, γ = .5", *swings,
         swings[1] < swings[0])  # fmt: skip
    over = [_overshoot(0.05, g) for g in (0.1, 0.98)]
    rule(modes, "overshoot: raise γ towards .98", "overshoot, %, γ .1 → .98, η = .05", *over,
         over[1] < over[0])  # fmt: skip
    before, after = (_error(0.02, 0.05, g, n_samples=None) for g in (0.95, 0.9))
    rule(modes, "persistent lag: lower γ towards .9", "lag at ω = .02 without noise, degrees",
         before, after, after < before)  # fmt: skip
    held = theory.printed_domain(0.01, 0.99)
    limit = float(theory.lock_limit(0.0, 0.01, 0.01))
    rule(modes, "divergence: reset to η = .01, γ = .99", "largest root, and the fastest turn it "
         "can follow, rad per frame", theory.stability_radius(0.0, 0.01, 0.01), limit,
         bool(held))  # fmt: skip
    for says, rate, m, hidden, allowed in (
        ("low noise, fast: γ in [.9, .95]", 0.08, None, False, (0.9, 0.95)),
        ("high noise, slow: γ in [.98, 1]", 0.005, 1, False, (0.98, 1.0)),
        ("frequent occlusions: γ < .95", 0.02, 8, True, (0.9, 0.8)),
        ("unknown dynamics: η = .05, γ = .95", 0.02, 8, False, (0.95,)),
    ):
        advised = min(_error(rate, 0.05, g, n_samples=m, hidden=hidden) for g in allowed)
        gamma, best = _best_gamma(rate, m, hidden)
        rule(tasks, says, f"error with the advice, and with the best γ ({gamma:g}); ω = {rate:g}, "
             f"{'no noise' if m is None else f'{m} samples'}, degrees", advised, best,
             advised < 1.1 * best)  # fmt: skip
    return {"rules": rules, "seeds": [10, 29]}


def units(quick: bool) -> list[Unit]:
    """One unit."""
    del quick  # a few seconds
    return [unit("guide", "rules", run)]
