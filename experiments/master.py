"""The master theorem's three terms: error against m, against the variation of the rate, transient.

All with the zero-lag law of the paper's tables (position gain .1, velocity gain .05) and with our
information law, d = 2, spectrum (2, .5), sigma^2 = .1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from experiments.store import Unit, unit
from kgmrf import KGMRF, gains, metrics, simulate, theory, wishart
from kgmrf._types import Numbers
from kgmrf.geometry import orbit, so

SPECTRUM, FLOOR = np.array([2.0, 0.5]), 0.1
POSITION_GAIN, VELOCITY_GAIN = 0.1, 0.05
SAMPLES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


def _law(name: str) -> gains.Gains:
    if name == "information":
        return gains.information(1e-7)
    if name == "zero_lag_gentle":
        return gains.zero_lag(0.1, 0.005)
    return gains.zero_lag(POSITION_GAIN, VELOCITY_GAIN)


def fit_line(x: Numbers, y: Numbers) -> dict[str, float]:
    """Least squares y = intercept + slope x, and R^2."""
    slope, intercept = np.polyfit(x, y, 1)
    rest = y - (intercept + slope * x)
    return {
        "slope": float(slope),
        "intercept": float(intercept),
        "r2": float(1 - (rest**2).sum() / ((y - y.mean()) ** 2).sum()),
    }


def run_samples(law: str, n_seeds: int) -> dict[str, Any]:
    """(a) Error against the number of samples, log-log, for the mean angle and its square."""
    rate, seeds = 0.02, range(10, 10 + n_seeds)
    mean, square, spread = [], [], []
    for m in SAMPLES:
        scenes = [simulate.ellipse(rate, n_samples=m, noise_floor=FLOOR, rng=s) for s in seeds]
        seen = np.stack([s.observations for s in scenes], 1)
        truth = np.stack([s.covariance for s in scenes], 1)
        tracker = KGMRF(
            gains=_law(law), n_samples=m, noise_floor=FLOOR, spectrum=SPECTRUM, initial=truth[0, 0]
        )
        angle = metrics.angular_error(tracker.filter(seen).covariance, truth)[100:]
        mean.append(np.degrees(angle.mean()))
        square.append((angle**2).mean())
        spread.append(1.96 * np.degrees(angle.mean(axis=0).std(ddof=1)) / np.sqrt(n_seeds))
    counts = np.array(SAMPLES, dtype=float)
    linear = counts >= 8  # below, errors reach the size of the circle and saturate
    predicted = None
    if law != "information":
        fixed = _law(law)
        assert isinstance(fixed, gains.FixedGains)
        noise = np.prod(SPECTRUM + FLOOR) / (counts * (SPECTRUM[0] - SPECTRUM[1]) ** 2)
        steady = theory.steady_noise_variance(fixed.position_gain, fixed.velocity_gain)
        predicted = np.degrees(np.sqrt(2 / np.pi * steady * noise))
    return {
        "samples": SAMPLES,
        "mean": mean,
        "half_width": spread,
        "square": square,
        "predicted": predicted,
        "fit_paper_range": fit_line(
            np.log(counts[counts <= 64]), np.log(np.array(mean)[counts <= 64])
        ),
        "fit_linear_range": fit_line(np.log(counts[linear]), np.log(np.array(mean)[linear])),
        "fit_square": fit_line(np.log(counts[linear]), np.log(np.array(square)[linear])),
    }


def run_variation(n_points: int) -> dict[str, Any]:
    """(b) Squared risk against V, the total variation of the rate, without noise, two families.

    One change of growing size, and a growing number of changes of one size: the risk adds up the
    squares of the changes, so it is quadratic in V for the first and linear for the second.
    """
    n_frames, base = 2000, 0.05
    sizes = np.linspace(0.0, 0.06, n_points)
    counts = np.unique(np.linspace(0, 24, n_points).round().astype(int))
    change = 0.01
    one = np.full((len(sizes), n_frames), base)
    one[:, 1000:] += sizes[:, None]
    many = np.full((len(counts), n_frames), base)
    for row, count in zip(many, counts, strict=True):
        for k, t in enumerate(np.linspace(100, 1900, count, dtype=int)):
            row[t:] += change if k % 2 == 0 else -change
    result: dict[str, Any] = {}
    for name, rates in (("one_change", one), ("many_changes", many)):
        angle = np.concatenate([np.zeros((len(rates), 1)), np.cumsum(rates[:, :-1], 1)], 1)
        truth = orbit.compose(so.exp(so.hat(angle.T[..., None])), SPECTRUM)
        seen = truth + FLOOR * np.eye(truth.shape[-1])
        law, start = _law("zero_lag"), truth[0, 0]
        tracker = KGMRF(
            gains=law, n_samples=1000.0, noise_floor=FLOOR, spectrum=SPECTRUM, initial=start
        )
        found = metrics.angular_error(tracker.filter(seen).covariance, truth)[55:]
        variation = np.abs(np.diff(rates, axis=1)).sum(axis=1)
        risk = (found**2).mean(axis=0)
        # What the start alone costs is not the changes' doing.
        risk = risk - risk[0]
        result[name] = {
            "variation": variation,
            "risk": risk,
            "mean_degrees": np.degrees(found.mean(axis=0)),
            "against_v": fit_line(variation, risk),
            "against_v_squared": fit_line(variation**2, risk),
            "mean_against_v": fit_line(variation, np.degrees(found.mean(axis=0))),
        }
    return result


def run_transient(law: str) -> dict[str, Any]:
    """(c) Decay of a start error of 10 degrees without noise; and the time average of its
    square."""
    n_frames, start = 400, np.radians(10.0)
    scene = simulate.ellipse(0.0, n_frames=n_frames, n_samples=None, noise_floor=0.0)
    turned = orbit.compose(so.exp(so.hat(np.array([start]))), SPECTRUM)
    tracker = KGMRF(gains=_law(law), n_samples=1000.0, spectrum=SPECTRUM, initial=turned)
    angle = metrics.angular_error(tracker.filter(scene.observations).covariance, scene.covariance)
    average = np.cumsum(angle**2) / np.arange(1, n_frames + 1)
    # The error oscillates: its decay is that of the peaks of the running maximum from the end.
    envelope = np.maximum.accumulate(angle[::-1])[::-1]
    frames = np.arange(n_frames)
    used = (envelope > 1e-12) & (frames >= 5) & (frames <= 200)
    slope = fit_line(frames[used].astype(float), np.log(envelope[used]))
    late = frames >= 200
    tail = fit_line(np.log(frames[late] + 1.0), np.log(average[late]))
    radius = None
    if law != "information":
        fixed = _law(law)
        assert isinstance(fixed, gains.FixedGains)
        radius = theory.stability_radius(fixed.position_gain, fixed.velocity_gain)
    return {
        "degrees": np.degrees(angle),
        "time_average_of_square": average,
        "kappa_measured": 1 - float(np.exp(slope["slope"])),
        "kappa_predicted": None if radius is None else 1 - radius,
        # The theorem is about the energy, a square.
        "kappa_energy_measured": 1 - float(np.exp(2 * slope["slope"])),
        "kappa_energy_predicted": None if radius is None else 1 - radius**2,
        "r2": slope["r2"],
        "average_exponent": tail["slope"],
    }


def run_energy() -> dict[str, Any]:
    """xi^2/2 + a u^2/2 along noiseless steps of the theorem's law, with unit and best inertia.

    The theorem's order: kick, then drift, damping on the velocity error. Also the Lyapunov form of
    the zero-lag law, which falls for every stable gain.
    """
    cases: dict[str, Any] = {}
    for eta, gamma in ((0.05, 0.95), (0.05, 0.1), (0.5, 0.1)):
        best = theory.energy_inertia(0.0, eta, 1 - gamma, first="kick").best
        entry: dict[str, Any] = {"eta": eta, "gamma": gamma, "best_inertia": best}
        for name, inertia in (("unit", 1.0), ("best", best)):
            if np.isfinite(inertia):
                energies = _energies(eta, gamma, inertia)
                entry[name] = {
                    "energies": energies / energies[0],
                    "rises": int((np.diff(energies) > 0).sum()),
                    "factor": theory.energy_contraction(
                        0.0, eta, 1 - gamma, inertia=inertia, first="kick"
                    ),
                }
        cases[f"eta {eta:g}, gamma {gamma:g}".replace("0.", ".")] = entry
    f, z, form = theory.error_map(POSITION_GAIN, VELOCITY_GAIN), np.array([0.2, 0.0]), []
    for _ in range(120):
        form.append(theory.lyapunov_energy(z[0], z[1], POSITION_GAIN, VELOCITY_GAIN))
        z = f @ z
    return {"cases": cases, "lyapunov_rises": int((np.diff(form) > 0).sum())}


def _energies(eta: float, gamma: float, inertia: float) -> Numbers:
    """120 energies of the theorem's law from an angle error of .2 rad."""
    f = np.array([[1 - eta, 1 - gamma], [-eta, 1 - gamma]])
    z, found = np.array([0.2, 0.0]), []
    for _ in range(120):
        found.append(0.5 * z[0] ** 2 + 0.5 * inertia * z[1] ** 2)
        z = f @ z
    return np.array(found)


def run_minimax(n_seeds: int) -> dict[str, Any]:
    """Counterexamples to the minimax theorem, the corrected rates, and the lemmas' constants."""
    variance, variation, n_frames = 0.05, 0.5, 400
    gain, many = 1e-4, 1e9
    best = theory.fixed_gain_minimax(variance, variation, n_frames)
    return {
        "static": _static_risk(gain, 1e4 / gain, variance),
        # Reporting the observation: its risk is R, whatever the target does.
        "many_samples": {"n_samples": many, "over_V_T": _plane_variance(many) * n_frames / 1.0},
        "fixed": {
            "noise_variance": variance,
            "variation": variation,
            "n_frames": n_frames,
            "predicted": best.risk,
            "position_gain": best.position_gain,
            "velocity_gain": best.velocity_gain,
            "simulated": _worst_risk(best, variance, variation, n_frames, n_seeds),
        },
        "lower_bound": theory.minimax_lower_bound(variance, variation, n_frames),
        "lemmas": _lemmas(),
    }


def _static_risk(gain: float, n_frames: float, variance: float) -> dict[str, float]:
    """Mean risk of a moving average of a target at rest, from the worst start of an ellipse.

    e_t has mean (1-g)^t e_0 and variance R g (1 - (1-g)^{2t}) / (2 - g): below any multiple of R
    for small g, once T is many times 1/g.
    """
    start = 0.5 * np.pi
    left = (1 - gain) ** 2
    # sum of left^t over t = 1 .. T, over T
    share = left * -np.expm1(n_frames * np.log(left)) / ((1 - left) * n_frames)
    steady = variance * theory.steady_noise_variance(gain, 0.0)
    risk = start**2 * share + steady * (1 - share)
    return {
        "gain": gain,
        "n_frames": n_frames,
        "over_R": risk / variance,
        "two_point_over_R": float(theory.two_point_bound(1.0, n_frames)),
    }


def _plane_variance(n_samples: float) -> float:
    d = SPECTRUM + FLOOR
    return float(d.prod() / (n_samples * (SPECTRUM[0] - SPECTRUM[1]) ** 2))


def _worst_risk(
    best: theory.FixedGainMinimax, variance: float, variation: float, n_frames: int, n_seeds: int
) -> float:
    """Mean squared angle of the best gains on their worst path, one jump of the rate, simulated."""
    rng = np.random.default_rng(10)
    n_runs, settle = 100 * n_seeds, 200
    x, w = np.zeros((2, n_runs))
    target = rate = total = 0.0
    for t in range(settle + n_frames):
        target += rate
        miss = target + np.sqrt(variance) * rng.standard_normal(n_runs) - (x + w)
        x, w = x + w + best.position_gain * miss, w + best.velocity_gain * miss
        if t >= settle:
            total += float(((x - target) ** 2).mean())
        if t == settle:
            rate = variation
    return total / n_frames


def _lemmas() -> dict[str, float]:
    """The torque's variance against the paper's bound; its slope against two constants."""
    rng = np.random.default_rng(10)
    loose, off = [], []
    for d in (2, 3, 5, 7):
        lam = np.geomspace(4.0, 0.25, d)
        s = np.diag(lam + FLOOR)
        exact = theory.torque_variance(lam, 8, noise_floor=FLOOR)
        seen = wishart.sample(np.broadcast_to(s, (40_000, d, d)), 8, rng)
        tau = orbit.torque(np.broadcast_to(np.diag(lam), seen.shape), seen, FLOOR)
        off.append(abs((tau**2).sum((-1, -2)).mean() / exact - 1))
        printed = 4 * lam[0] ** 2 / (lam[-1] + FLOOR) ** 4
        printed *= ((s**2).sum() + np.trace(s) ** 2) / 8
        loose.append(printed / exact)
    scale, step = 100.0, 1e-6
    c, lam = scale * np.diag([3.0, 1.0]), scale * SPECTRUM
    pair = [orbit.torque(orbit.compose(so.exp(so.hat(np.array([x]))), lam), c) for x in (0.0, step)]
    return {
        "loose_low": min(loose),
        "loose_high": max(loose),
        "simulated_off": max(off),
        "lipschitz": theory.torque_lipschitz(c, lam),
        "printed_lipschitz": float(np.linalg.norm(c) / lam[-1] ** 3),
        "measured_lipschitz": float(abs(pair[1] - pair[0])[0, 1] / step),
    }


def units(quick: bool) -> list[Unit]:
    """Three terms for three laws, the energy, and what became of the minimax theorem."""
    n_seeds, n_points = (4, 5) if quick else (60, 13)
    laws = ("zero_lag", "zero_lag_gentle", "information")
    listed = []
    for law in laws:
        listed += [
            unit("master", f"samples.{law}", run_samples, law=law, n_seeds=n_seeds),
            unit("master", f"transient.{law}", run_transient, law=law),
        ]
    return [
        *listed,
        unit("master", "variation.zero_lag", run_variation, n_points=n_points),
        unit("master", "energy", run_energy),
        unit("master", "minimax", run_minimax, n_seeds=n_seeds),
    ]
