"""Real streams: the self-tuning trackers against tuned rivals, on data that nobody simulated.

    python -m experiments.streams          computes everything, writes results/streams.json
    python -m experiments.streams report   prints the tables from that file again

Three parts. *Streams*: returns of funds and factors and two recordings of EEG, one zero-mean sample
per frame; the score is the mean one-step-ahead log-likelihood of one Gaussian with the forecast
covariance, in nats per frame, from frame 500 on. *Carried*: M_t = R_t diag(lam) R_t^T with R_t from
motion capture, seen through Wishart noise of 8 samples; the score is the angle between eigenframes.
*Rotations*: the same R_t with noise of .05 rad and gaps of 9 frames; the score is the angle.

Rivals with settings get those that turn out best on the very frames they are scored on; ours has
none. Differences come with 95 % intervals of a paired bootstrap of blocks of 50 frames. The data
are found through $KGMRF_DATA or at ../shared/data; what is absent is skipped and said so, as are
rivals whose package is not installed. Riemannian averages need matrices of full rank: they cannot
take single samples and enter where there are 8.
"""

from __future__ import annotations

import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from experiments import store
from kgmrf import KGMRF, AlphaBeta, EuclideanEMA, HoldLast, RotationTracker, metrics
from kgmrf import gains as laws
from kgmrf._types import Numbers
from kgmrf.geometry import so
from kgmrf.kernels.members import EMA, KIND
from kgmrf.mixture import bank, ema_member, follow, fresh_row, read

OUT = store.RESULTS / "streams.json"
SCORED_FROM = 500
BLOCK = 50
HALF_LIVES = (4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096)
PAIRS = ((10, 21), (21, 63), (63, 125), (125, 250), (250, 500))
LAM, FLOOR, SAMPLES = np.array([4.0, 2.0, 0.5]), 0.1, 8
MOTION_FRAMES, MOTION_RATE, MOTION_FROM = 1500, 30.0, 50

# ----------------------------------------------------------------------- data


def find(*parts: str) -> Path | None:
    """A file of the real data, or None."""
    here = store.HERE.parent
    for root in (os.environ.get("KGMRF_DATA"), here.parent / "shared" / "data"):
        if root and Path(root, *parts).exists():
            return Path(root, *parts)
    return None


def _table(name: str) -> Numbers | None:
    path = find("streams", name)
    return None if path is None else np.genfromtxt(path, delimiter=",", skip_header=1)


def streams() -> Iterator[tuple[str, Numbers | None]]:
    """Name and samples ``(T, d)`` of every stream; None where its file is not there."""
    table = _table("etf18_returns.csv")
    yield "ETF18", None if table is None else 100.0 * table[:, 1:]
    table = _table("factors8_returns.csv")
    yield "factors8", None if table is None else 100.0 * table[:6000, 1:]
    path = find("streams", "ssvep8_subject02.npz")
    if path is None:
        yield "SSVEP8", None
    else:
        rows = np.load(path)["data"].astype(float)[20000:32000]
        yield "SSVEP8", np.diff((rows - rows.mean(0)) / rows.std(0), axis=0)[:6000]
    table = _table("eeg14_eye_state.csv")
    if table is None:
        yield "EEG14", None
    else:
        rows = table[:, :14] - np.median(table[:, :14], axis=0)
        rows = rows / (1.4826 * np.median(np.abs(rows), axis=0))
        yield "EEG14", np.diff(np.clip(rows, -50, 50), axis=0)


def motions() -> Iterator[tuple[str, Numbers]]:
    """Name and rotations ``(T, 3, 3)`` of every motion capture, at 30 frames per second."""
    folder = find("rotation", "tum")
    for path in sorted(folder.glob("*.txt")) if folder else ():
        rows = np.loadtxt(path)
        stamps, first = np.unique(rows[:, 0] - rows[0, 0], return_index=True)
        yield path.stem, _at_rate(stamps, rows[first, 4:8])
    path = find("rotation", "broad", "06_undisturbed_fast_rotation_A.mat")
    if path is not None:
        try:
            from scipy.io import loadmat
        except ImportError:
            return
        record = loadmat(path)
        quaternions = record["opt_quat"][:, [1, 2, 3, 0]]
        seen = np.isfinite(quaternions).all(axis=1) & (record["movement"].ravel() > 0)
        stamps = np.arange(len(quaternions)) / float(record["sampling_rate"].item())
        yield "broad_06", _at_rate(stamps[seen] - stamps[seen][0], quaternions[seen])


def _at_rate(stamps: Numbers, quaternions: Numbers) -> Numbers:
    wanted = np.arange(0.0, stamps[-1], 1.0 / MOTION_RATE)
    chosen = np.unique(np.searchsorted(stamps, wanted).clip(0, len(stamps) - 1))
    q = quaternions[chosen][:MOTION_FRAMES]
    x, y, z, w = (q / np.linalg.norm(q, axis=1, keepdims=True)).T
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)],
        [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)],
        [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)],
    ]
    return np.moveaxis(np.array(rows), -1, 0)


# ----------------------------------------------------------------------- scores


def log_likelihood(X: Numbers, forecasts: dict[int, Numbers]) -> Numbers:
    """Of every frame from SCORED_FROM on under the Gaussian forecast for it; NaN without one."""
    score = np.full(len(X), np.nan)
    frames = [t for t in forecasts if SCORED_FROM <= t < len(X)]
    S = np.array([forecasts[t] for t in frames])
    sign, log_det = np.linalg.slogdet(S)
    squares = np.einsum("ti,ti->t", X[frames], np.linalg.solve(S, X[frames][..., None])[..., 0])
    d = X.shape[1]
    score[frames] = np.where(sign > 0, -0.5 * (d * np.log(2 * np.pi) + log_det + squares), -np.inf)
    return score[SCORED_FROM:]


def interval(difference: Numbers, seed: int = 0) -> list[float]:
    """95 % interval of the mean of a difference by frame: bootstrap of circular blocks."""
    n = len(difference)
    rng = np.random.default_rng(seed)
    twice = np.concatenate([[0.0], np.cumsum(np.concatenate([difference, difference]))])
    sums = twice[BLOCK : n + BLOCK] - twice[:n]
    n_blocks = -(-n // BLOCK)
    means = sums[rng.integers(0, n, size=(2000, n_blocks))].sum(axis=1) / (n_blocks * BLOCK)
    return [float(q) for q in np.quantile(means, [0.025, 0.975])]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What the work returns, and the processor time that it took."""
    began = time.process_time()
    found = work()
    return found, time.process_time() - began


# ----------------------------------------------------------------------- part one: streams


def ewma(X: Numbers) -> tuple[dict[str, Numbers], float]:
    """Every half-life of the grid; bias-corrected, started from the same pool as ours."""
    kind = bank(X.shape[1], [ema_member(float(h)) for h in HALF_LIVES])
    brought = np.ones((len(X), 3))
    C = X[:, :, None] * X[:, None, :]
    records, seconds = timed(lambda: follow(kind, fresh_row(kind), C, brought, detailed=False))
    scores = read(records, kind).member_log_density[SCORED_FROM:]
    return {f"half-life {h}": scores[:, k] for k, h in enumerate(HALF_LIVES)}, seconds / len(
        HALF_LIVES
    )


def iterated_ewma(X: Numbers) -> tuple[dict[str, Numbers], float]:
    """EWMA of the channels' variances, then of the correlations (cvxcovariance)."""
    import pandas as pd
    from cvx.covariance.ewma import iterated_ewma as run

    table, d = pd.DataFrame(X), X.shape[1]

    def one(pair: tuple[int, int]) -> Numbers:
        found = run(
            table,
            vola_halflife=pair[0],
            cov_halflife=pair[1],
            min_periods_vola=2 * d,
            min_periods_cov=2 * d,
        )
        return log_likelihood(X, {r.time + 1: r.covariance.values for r in found})

    scores, seconds = timed(lambda: {f"half-lives {p}": one(p) for p in PAIRS[:4]})
    return scores, seconds / 4


def cm_iewma(X: Numbers) -> tuple[dict[str, Numbers], float]:
    """Convex combination of iterated EWMAs, by a program solved every frame (cvxcovariance)."""
    import pandas as pd
    from cvx.covariance.combination import from_ewmas

    d = X.shape[1]

    def one() -> Numbers:
        combination = from_ewmas(
            pd.DataFrame(X), list(PAIRS), min_periods_vola=max(2 * d, 20), min_periods_cov=3 * d
        )
        found = [r for r in combination.solve(window=10) if r is not None]
        return log_likelihood(X, {r.time + 1: r.covariance.values for r in found})

    score, seconds = timed(one)
    return {"window 10": score}, seconds


def precise_dcc(X: Numbers) -> tuple[dict[str, Numbers], float]:
    """Dynamic conditional correlations (precise)."""
    from precise import DCCCovariance

    def one(rate: float, volatility: float) -> Numbers:
        model, forecasts = DCCCovariance(r=rate, vol_r=volatility), {}
        for t in range(len(X) - 1):
            model.partial_fit(X[t : t + 1])
            if t + 1 >= SCORED_FROM:
                forecasts[t + 1] = model.covariance_
        return log_likelihood(X, forecasts)

    grid = [(0.01, 0.03), (0.01, 0.06), (0.03, 0.06)]
    scores, seconds = timed(lambda: {f"rates {p}": one(*p) for p in grid})
    return scores, seconds / len(grid)


def ledoit_wolf(X: Numbers) -> tuple[dict[str, Numbers], float]:
    """Shrunk covariance of a rolling window (scikit-learn)."""
    from sklearn.covariance import ledoit_wolf as shrunk

    def one(window: int) -> Numbers:
        forecasts = {
            t: shrunk(X[t - window : t], assume_centered=True)[0]
            for t in range(SCORED_FROM, len(X))
        }
        return log_likelihood(X, forecasts)

    grid = (60, 125, 250, 500)
    scores, seconds = timed(lambda: {f"window {w}": one(w) for w in grid})
    return scores, seconds / len(grid)


RIVALS: dict[str, Callable[[Numbers], tuple[dict[str, Numbers], float]]] = {
    "EWMA": ewma,
    "iterated EWMA": iterated_ewma,
    "CM-IEWMA": cm_iewma,
    "precise DCC": precise_dcc,
    "Ledoit-Wolf window": ledoit_wolf,
}
TOO_LONG = {("EEG14", "CM-IEWMA")}
"""A quarter of an hour of solving, on a stream that four frames of artefacts decide."""


def run_stream(name: str, X: Numbers) -> dict[str, Any]:
    """Ours and every rival on one stream."""
    KGMRF().filter(X[:200])  # compiles, if it has to
    ours, seconds = timed(lambda: KGMRF().filter(X))
    score, late = ours.log_likelihood[SCORED_FROM:], slice(SCORED_FROM, None)
    forgetting = KGMRF(forgetting=0.95).filter(X)
    single = KGMRF(gains="information", n_samples=1).filter(X)
    moving = bank(X.shape[1]).table[:, KIND] != EMA
    rows: dict[str, Any] = {
        "KGMRF()": {
            "score": score.mean(),
            "mixture": ours.log_mixture[late].mean(),
            "microseconds": 1e6 * seconds / len(X),
            "weight_with_velocity": ours.weights[late][:, moving].sum(axis=1).mean(),
            "half_life": float(np.median(ours.half_life[late])),
        },
        "KGMRF(forgetting=.95)": {
            "score": forgetting.log_likelihood[late].mean(),
            "mixture": forgetting.log_mixture[late].mean(),
        },
        'KGMRF(gains="information")': {"score": single.log_likelihood[late].mean()},
    }
    for rival, run in RIVALS.items():
        if (name, rival) in TOO_LONG:
            rows[rival] = {"skipped": "takes too long here"}
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found, seconds = run(X)
        except ImportError as reason:
            rows[rival] = {"skipped": str(reason)}
            continue
        means = {k: v.mean() if np.isfinite(v).all() else -np.inf for k, v in found.items()}
        best = max(means, key=lambda k: means[k])
        rows[rival] = {
            "score": means[best],
            "settings": best,
            "microseconds": 1e6 * seconds / len(X),
            "ours_ahead": (score - found[best]).mean(),
            "interval": interval(score - found[best]) if np.isfinite(means[best]) else None,
        }
    return {"frames": len(X), "d": X.shape[1], "rows": rows}


# ----------------------------------------------------------------------- part two: carried


def geodesic_ema(C: Numbers, gain: float) -> Numbers:
    """M <- M #_gain C on the cone (pyRiemann)."""
    try:
        from pyriemann.geometry.geodesic import geodesic_riemann
    except ImportError:  # before 0.12
        from pyriemann.utils.geodesic import geodesic_riemann

    out = [C[0]]
    for seen in C[1:]:
        out.append(geodesic_riemann(out[-1], seen, gain))
    return np.array(out)


def run_carried(R: Numbers) -> dict[str, Any]:
    """Covariances that a real motion turns."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(len(R), SAMPLES, 3)) * np.sqrt(LAM + FLOOR)
    x = np.einsum("tij,tmj->tmi", R, x)
    C = np.einsum("tmi,tmj->tij", x, x) / SAMPLES
    truth = np.einsum("tij,j,tkj->tik", R, LAM, R)

    def error(covariance: Numbers) -> Numbers:
        return metrics.orbit_error(covariance[MOTION_FROM:], truth[MOTION_FROM:], degrees=True)

    ours = KGMRF(n_samples=SAMPLES).filter(C)
    mine = error(ours.covariance)
    moving = bank(3).table[:, KIND] != EMA
    tried: dict[str, dict[str, Numbers]] = {
        "hold last": {"": error(C)},
        "EMA": {f"gain {g}": error(EuclideanEMA(gain=g).filter(C).covariance) for g in GAINS},
        "alpha-beta": {
            f"gains {a}, {b}": error(
                AlphaBeta(position_gain=a, velocity_gain=b).filter(C).covariance
            )
            for a in (0.1, 0.2, 0.4)
            for b in (0.005, 0.02, 0.1)
        },
        "KGMRF information": {
            f"acceleration {q}": error(
                KGMRF(gains=laws.information(q), n_samples=SAMPLES).filter(C).covariance
            )
            for q in (1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
        },
    }
    try:
        tried["pyRiemann geodesic EMA"] = {
            f"gain {g}": error(geodesic_ema(C, g)) for g in GAINS[1:4]
        }
    except ImportError:
        tried["pyRiemann geodesic EMA"] = {}
    return {
        "frames": len(R),
        "speed": float(np.degrees(so.distance(R[1:], R[:-1])).mean()),
        "weight_with_velocity": ours.weights[MOTION_FROM:][:, moving].sum(axis=1).mean(),
        "rows": _against("KGMRF()", mine, tried),
    }


GAINS = (0.02, 0.05, 0.1, 0.2, 0.4)


def _against(name: str, mine: Numbers, tried: dict[str, dict[str, Numbers]]) -> dict[str, Any]:
    """Mean errors; rivals with the best of their settings and how far ours is ahead."""
    rows: dict[str, Any] = {name: {"score": mine.mean()}}
    for rival, found in tried.items():
        if not found:
            rows[rival] = {"skipped": "package not installed"}
            continue
        best = min(found, key=lambda k: found[k].mean())
        rows[rival] = {
            "score": found[best].mean(),
            "settings": best,
            "ours_ahead": (found[best] - mine).mean(),
            "interval": interval(found[best] - mine),
        }
    return rows


# ----------------------------------------------------------------------- part three: rotations


def run_rotations(R: Numbers) -> dict[str, Any]:
    """The motion itself, seen with noise and gaps."""
    rng = np.random.default_rng(1)
    seen = R @ so.exp(so.hat(0.05 * rng.normal(size=(len(R), 3))))
    t = 1
    while t < len(R):
        if rng.random() < 0.1:
            seen[t : t + 9] = np.nan
            t += 9
        t += 1

    def error(tracker: Any) -> Numbers:
        found = tracker.filter(seen).rotation[MOTION_FROM:]
        return metrics.geodesic_error(found, R[MOTION_FROM:], degrees=True)

    tracker: Any = RotationTracker(noise_std=0.05, gains="auto")
    mine, seconds = timed(lambda: error(tracker))
    tried = {
        "hold last": {"": error(HoldLast(follows="rotation"))},
        "EMA": {
            f"gain {g}": error(EuclideanEMA(gain=g, follows="rotation")) for g in (0.4, 0.6, 0.8)
        },
        "alpha-beta": {
            f"gains {a}, {b}, retention {r}": error(
                AlphaBeta(position_gain=a, velocity_gain=b, retention=r, follows="rotation")
            )
            for a in (0.4, 0.6, 0.8)
            for b in (0.05, 0.2, 0.4)
            for r in (0.9, 1.0)
        },
        "RotationTracker information": {
            f"acceleration {q}": error(RotationTracker(noise_std=0.05, gains=laws.information(q)))
            for q in (1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
        },
    }
    return {
        "frames": len(R),
        "missing": float(np.isnan(seen[:, 0, 0]).mean()),
        "microseconds": 1e6 * seconds / len(R),
        "rows": _against('RotationTracker(gains="auto")', mine, tried),
    }


# ----------------------------------------------------------------------- all of it


def run() -> dict[str, Any]:
    """Everything; says on stderr what it is at."""
    data: dict[str, Any] = {"streams": {}, "carried": {}, "rotations": {}}
    for name, X in streams():
        if X is None:
            data["streams"][name] = None
            _tell(f"{name}: skipped, no such file; set KGMRF_DATA to the folder of the data")
            continue
        data["streams"][name], seconds = timed(lambda n=name, x=X: run_stream(n, x))
        _tell(f"{name}: {seconds:.0f} s")
    found = False
    for name, R in motions():
        found = True
        data["carried"][name], seconds = timed(lambda r=R: run_carried(r))
        data["rotations"][name], more = timed(lambda r=R: run_rotations(r))
        _tell(f"{name}: {seconds + more:.0f} s")
    if not found:
        _tell("motions: skipped, no such files; set KGMRF_DATA to the folder of the data")
    return data


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def show(data: dict[str, Any]) -> None:
    """The tables, as text."""
    titles = {
        "streams": "one-step-ahead log-likelihood, nats per frame (more is better)",
        "carried": "covariances carried by real motion, 8 samples: degrees (less is better)",
        "rotations": "rotations with noise .05 rad and gaps: degrees (less is better)",
    }
    for part, title in titles.items():
        print(f"\n{title}")
        for name, found in data[part].items():
            if found is None:
                print(f"  {name}: no data")
                continue
            print(f"  {name}, {found['frames']} frames")
            for row, values in found["rows"].items():
                print(f"    {row:30s}{_line(values)}")


def _line(row: dict[str, Any]) -> str:
    if "skipped" in row:
        return f"skipped: {row['skipped']}"
    score = "    -inf" if row["score"] is None else f"{row['score']:8.3f}"
    words = [score]
    if row.get("interval"):
        low, high = row["interval"]
        words.append(f"ours ahead by {row['ours_ahead']:.3f} ({low:.3f} to {high:.3f})")
    if "mixture" in row:
        words.append(f"mixture {row['mixture']:.3f}")
    if "weight_with_velocity" in row:
        words.append(f"velocity {row['weight_with_velocity']:.3f}")
    if "half_life" in row:
        words.append(f"half-life {row['half_life']:.0f}")
    if "microseconds" in row:
        words.append(f"{row['microseconds']:.0f} us")
    if row.get("settings"):
        words.append(f"[{row['settings']}]")
    return "  ".join(words)


def main(arguments: list[str]) -> int:
    """Compute and write, or only read and print."""
    if arguments == ["report"]:
        record = store.load(OUT)
        if record is None:
            _tell(f"no results at {OUT.name}: run python -m experiments.streams first")
            return 1
    else:
        began = time.perf_counter()
        record = {
            "experiment": "streams",
            "rerun": "python -m experiments.streams",
            "data": run(),
            "made_with": store.provenance(),
        }
        record["wall_seconds"] = round(time.perf_counter() - began, 1)
        store.write(OUT, record)
        record = json.loads(OUT.read_text(encoding="utf-8"))
    show(record["data"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
