"""Each fault, provoked on purpose, is found; a healthy run is called healthy."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgmrf import (
    KGMRF,
    AlphaBeta,
    EuclideanEMA,
    HoldLast,
    RiemannianEMA,
    RotationTracker,
    gains,
    simulate,
    theory,
)
from kgmrf.diagnosis import Report, diagnose
from kgmrf.geometry import so
from kgmrf.results import Result
from kgmrf.trackers.vector import VectorTracker


def _covariances(rng: int = 3, **options: Any) -> np.ndarray:
    settings = {"rate": 0.05, "n_samples": 8, "noise_floor": 0.0, "n_frames": 500} | options
    return simulate.rotating_covariance(3, rng=rng, **settings).observations


def _ellipse(rate: float = 0.05) -> np.ndarray:
    """Nearly without noise, as in the paper's tables."""
    return simulate.ellipse(rate, n_samples=1280, noise_floor=0.0, rng=0).observations


def _rotations(rng: int = 1) -> np.ndarray:
    return simulate.rotating_frame(rng=rng, n_frames=400, acceleration_std=1e-3).observations


def _examine(tracker: Any, observations: np.ndarray, **options: Any) -> Report:
    if isinstance(tracker, KGMRF):
        options = {"n_samples": tracker.n_samples} | options
    return diagnose(tracker.filter(observations), observations, **options)


# ------------------------------------------------------------------ health


@pytest.mark.parametrize("seed", range(5))
def test_a_healthy_run_is_called_healthy(seed: int) -> None:
    assert _examine(KGMRF(gains="information", n_samples=8), _covariances(seed)).faults == ()
    turning = _covariances(seed, acceleration_std=np.sqrt(1e-5))
    matched = KGMRF(n_samples=8, gains=gains.information(1e-5))
    assert _examine(matched, turning).faults == ()
    hidden = _rotations(seed)
    hidden[np.random.default_rng(seed).random(400) < 0.2] = np.nan
    assert (
        _examine(
            RotationTracker(noise_std=0.05, gains="information"), hidden, noise_std=0.05
        ).faults
        == ()
    )
    rng = np.random.default_rng(seed)
    x = np.cumsum(np.cumsum(0.1 * rng.standard_normal((400, 2)), axis=0), axis=0)
    x += 2.0 * rng.standard_normal(x.shape)
    report = _examine(VectorTracker(noise_std=2.0, acceleration=0.01), x, noise_std=2.0)
    assert report.faults == ()
    assert report.healthy


def test_a_self_tuned_rotation_tracker_is_examined_as_rotations() -> None:
    turns = _rotations()
    report = _examine(RotationTracker(), turns)  # its covariance is that of the error
    assert {f.name for f in report.findings} >= {"persistent lag", "off the manifold"}
    assert "near-degenerate gaps" not in {f.name for f in report.findings}


# ------------------------------------------------------------------ lag


def test_the_printed_law_lags_by_what_theory_says() -> None:
    observations = _ellipse(0.02)
    law = gains.printed(velocity_gain=0.2, damping=0.95)
    report = _examine(KGMRF(n_samples=1280, gains=law), observations)
    assert "persistent lag" in report.faults
    finding = report["persistent lag"]
    assert "retention 0.05" in finding.remedy
    # The innovation is (1/2) sin 2 lag of the predicted estimate.
    lag = theory.steady_lag(0.02, 0.0, 0.2, 0.05, predicted=True)
    assert abs(finding.measured["mean_innovation"]) == pytest.approx(0.5 * np.sin(2 * lag), rel=0.1)
    zero = _examine(KGMRF(n_samples=1280, gains="zero_lag"), observations)
    assert "persistent lag" not in zero.faults


def test_a_moving_average_lags_and_is_sent_to_a_tracker_with_velocity() -> None:
    observations = _covariances()
    report = diagnose(EuclideanEMA(gain=0.1).filter(observations), observations, n_samples=8)
    assert "persistent lag" in report.faults
    assert "KGMRF" in report["persistent lag"].remedy
    report = _examine(RiemannianEMA(kind="rotation", gain=0.2), _rotations())
    assert "RotationTracker" in report["persistent lag"].remedy


def test_too_stiff_an_acceleration_lags_behind_changes() -> None:
    observations = _covariances(acceleration_std=3e-3)
    report = _examine(KGMRF(n_samples=8, gains=gains.information(1e-10)), observations)
    assert "persistent lag" in report.faults
    assert "raise acceleration" in report["persistent lag"].remedy
    assert report["persistent lag"].measured["autocorrelation"] > 0.2


# ------------------------------------------------------------------ oscillation, overshoot


@pytest.mark.parametrize(("position", "velocity"), [(0.05, 0.1), (0.1, 0.05)])
def test_too_large_a_velocity_gain_oscillates(position: float, velocity: float) -> None:
    law = gains.zero_lag(position, velocity)
    finding = _examine(KGMRF(n_samples=1280, gains=law), _ellipse())["oscillation"]
    assert finding.verdict == "fault"
    assert "velocity_gain" in finding.remedy
    root = np.linalg.eigvals(theory.error_map(position, velocity))[0]
    assert finding.measured["period"] == pytest.approx(2 * np.pi / abs(np.angle(root)), rel=0.05)
    remedied = gains.zero_lag(position, position**2 / (2 - position))
    report = _examine(KGMRF(n_samples=1280, gains=remedied), _ellipse())
    assert "oscillation" not in report.faults
    assert _examine(KGMRF(n_samples=1280), _ellipse()).faults == ()
    law = gains.zero_lag(0.1, 0.2)
    assert "oscillation" in _examine(RotationTracker(gains=law), _rotations()).faults


def test_the_loop_is_measured_from_the_run_alone() -> None:
    law = gains.zero_lag(0.3, 0.02)
    finding = _examine(RotationTracker(gains=law), _rotations())["overshoot"]
    assert finding.measured["position_gain"] == pytest.approx(0.3, abs=1e-6)
    assert finding.measured["velocity_gain"] == pytest.approx(0.02, abs=1e-6)


def test_chasing_noise_overshoots() -> None:
    still = _covariances(rate=0.0)
    report = diagnose(EuclideanEMA(gain=0.8).filter(still), still, n_samples=8)
    assert "overshoot" in report.faults
    # A moving average of gain g has innovations with autocorrelation -g/2.
    assert report["overshoot"].measured["autocorrelation"] == pytest.approx(-0.4, abs=0.05)
    still_turns = simulate.rotating_frame(rate=0.0, rng=0).observations
    report = _examine(HoldLast(kind="rotation"), still_turns)
    assert "overshoot" in report.faults
    assert report["overshoot"].measured["autocorrelation"] == pytest.approx(-0.5, abs=0.1)


# ------------------------------------------------------------------ wrong m


@pytest.mark.parametrize("said", [2.0, 32.0])
def test_a_wrong_number_of_samples_is_found_and_corrected(said: float) -> None:
    observations = _covariances()
    finding = _examine(KGMRF(gains="information", n_samples=said), observations)["wrong noise"]
    assert finding.verdict == "fault"
    assert finding.measured["n_samples"] == pytest.approx(8, rel=0.15)
    assert ("lower n_samples" if said > 8 else "raise n_samples") in finding.remedy
    # Even without the observations.
    blind = diagnose(
        KGMRF(gains="information", n_samples=said).filter(observations), n_samples=said
    )
    assert blind.faults == ("wrong noise",)


@pytest.mark.parametrize("said", [0.0125, 0.2])
def test_a_wrong_noise_of_rotations_is_found(said: float) -> None:
    report = _examine(
        RotationTracker(noise_std=said, gains="information"), _rotations(), noise_std=said
    )
    assert "wrong noise" in report.faults
    assert "noise_std" in report["wrong noise"].remedy


# ------------------------------------------------------------------ divergence, manifold, gaps


def test_unstable_gains_diverge() -> None:
    report = _examine(RotationTracker(gains=gains.zero_lag(0.1, 4.2)), _rotations())
    assert "divergence" in report.faults
    assert report["divergence"].measured["radius"] > 1.02
    fixed = KGMRF(n_samples=8, gains=gains.zero_lag(0.1, 4.2), spectrum=[4.0, 2.0, 1.0])
    assert "divergence" in _examine(fixed, _covariances()).faults


def test_a_fixed_spectrum_that_is_wrong_is_worse_than_none() -> None:
    tracker = KGMRF(gains="information", n_samples=8, spectrum=[40.0, 2.0, 0.1])
    report = _examine(tracker, _covariances())
    assert report.faults == ("divergence",)


def _altered(result: Result, **fields: np.ndarray) -> Result:
    return Result({name: getattr(result, name) for name in result.fields()} | fields)


def test_estimates_that_are_not_finite_are_a_divergence() -> None:
    observations = _covariances()
    result = KGMRF(gains="information", n_samples=8).filter(observations)
    broken = result.covariance.copy()
    broken[300:] = np.nan
    report = diagnose(_altered(result, covariance=broken), observations, n_samples=8)
    assert "divergence" in report.faults
    assert "step 300" in report["divergence"].evidence


def test_drift_off_the_manifold_is_found() -> None:
    """The truncated Neumann series loses orthogonality; the exact map does not."""
    step = so.hat(np.asarray([0.1, 0.2, 0.05]))
    for approximate, faults in ((True, ("off the manifold",)), (False, ())):
        R = np.eye(3)
        frames = []
        for _ in range(200):
            R = R @ (so.cayley_neumann(step, 3) if approximate else so.exp(step))
            frames.append(R)
        nan = np.full((200, 3, 3), np.nan)
        lone = np.full(200, np.nan)
        result = Result(
            {
                "time": np.arange(200.0),
                "age": np.zeros(200),
                "rotation": np.asarray(frames),
                "velocity": np.tile(step, (200, 1, 1)),
                "angle_std": nan,
                "nis": lone,
                "log_likelihood": lone,
            }
        )
        assert diagnose(result).faults == faults
    # Entries that are extrapolated leave the cone.
    observations = simulate.ellipse(0.15, n_samples=2, noise_floor=0.0, rng=0).observations
    tracker = AlphaBeta(position_gain=0.4, velocity_gain=0.4)
    report = diagnose(tracker.filter(observations), observations)
    assert "off the manifold" in report.faults
    assert report["off the manifold"].measured["lowest"] < 0


def test_near_degenerate_gaps_are_found() -> None:
    observations = _covariances(spectrum=[4.0, 2.0, 1.95])
    finding = _examine(KGMRF(gains="information", n_samples=8), observations)[
        "near-degenerate gaps"
    ]
    assert finding.verdict == "note"  # a property of the data, not an error
    assert "axes 1 and 2" in finding.evidence
    ball = _covariances(spectrum=[1.0, 1.0, 1.0])
    report = diagnose(EuclideanEMA(gain=0.01).filter(ball), ball, n_samples=8)
    assert report["near-degenerate gaps"].verdict == "note"
    assert "near-degenerate gaps" not in report.faults
    assert "note   near-degenerate gaps" in str(report)


@pytest.mark.parametrize("unit", [1.0 / 200.0, 3600.0])
def test_the_unit_of_time_does_not_change_the_report(unit: float) -> None:
    turns = _rotations()
    tracker = RotationTracker(noise_std=0.05, gains="information")
    result = tracker.filter(turns)
    fields = {name: getattr(result, name) for name in result.fields()}
    fields["time"], fields["velocity"] = fields["time"] * unit, fields["velocity"] / unit
    plain = diagnose(result, turns, noise_std=0.05)
    scaled = diagnose(Result(fields), turns, noise_std=0.05)
    assert plain.faults == scaled.faults == ()
    assert scaled["overshoot"].measured == pytest.approx(plain["overshoot"].measured, rel=1e-6)


def test_ordinary_returns_are_healthy() -> None:
    # Twenty assets: one market, heavy tails, volatility that comes in clusters.
    rng = np.random.default_rng(5)
    level = np.exp(np.cumsum(0.05 * rng.standard_normal(1500)) * 0.5)[:, None]
    tails = np.sqrt(4.0 / rng.chisquare(4.0, (1500, 1)))
    market = rng.standard_normal((1500, 1)) * rng.uniform(0.5, 1.5, 20)
    returns = level * tails * (market + rng.standard_normal((1500, 20)))
    report = diagnose(KGMRF().filter(returns), returns)
    assert report.faults == (), str(report)


# ------------------------------------------------------------------ recordings, self-tuned


def _recording(seed: int, noise_std: float = 1e-3) -> tuple[np.ndarray, np.ndarray]:
    """A camera in a hand: smooth turns of all speeds, heavy tails, gaps. Times and rotations."""
    rng = np.random.default_rng(seed)
    times = np.arange(1200) / 30.0
    waves = np.sin(2 * np.pi * rng.uniform(0.1, 1.2, 6) * times[:, None] + rng.uniform(0, 6, 6))
    steps = so.exp(so.hat(waves @ (0.3 * rng.standard_normal((6, 3))) / 30.0))
    turns = np.stack(list(itertools.accumulate(steps, np.matmul)))
    tails = np.sqrt(3.0 / rng.chisquare(3.0, (1200, 1)))
    seen = turns @ so.exp(so.hat(noise_std * tails * rng.standard_normal((1200, 3))))
    kept = np.ones(1200, dtype=bool)
    for start in rng.integers(50, 1100, 4):
        kept[start : start + rng.integers(5, 40)] = False
    return times[kept], seen[kept]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("noise_std", [1e-3, 1e-6])
def test_a_usual_recording_of_rotations_is_healthy(seed: int, noise_std: float) -> None:
    times, seen = _recording(seed, noise_std)
    report = diagnose(RotationTracker().filter(seen, times=times), seen)
    assert report.faults == (), str(report)
    if noise_std == 1e-3:
        told = RotationTracker(noise_std=noise_std).filter(seen, times=times)
        assert diagnose(told, seen, noise_std=noise_std).faults == ()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("factor", [1 / 30, 30.0])
def test_a_noise_that_is_wrong_by_far_is_a_fault(seed: int, factor: float) -> None:
    times, seen = _recording(seed)
    said = 1e-3 * factor
    report = diagnose(RotationTracker(noise_std=said).filter(seen, times=times), seen)
    assert not report.healthy
    words = " ".join(finding.remedy for finding in report.findings)
    assert "noise_std" in words
    # The default has none of these.
    assert not any(name in words for name in ("position_gain", "acceleration", "rate_prior"))


def test_gains_that_are_too_low_for_a_turning_target_are_a_fault() -> None:
    times, seen = _recording(0)
    slow = RotationTracker(gains=gains.zero_lag(0.02, 0.0002)).filter(seen, times=times)
    report = diagnose(slow, seen)
    assert "persistent lag" in report.faults
    assert "position_gain" in report["persistent lag"].remedy


def test_a_self_tuned_run_that_is_lost_is_a_fault() -> None:
    times, seen = _recording(1)
    result = RotationTracker().filter(seen, times=times)
    lost = result.rotation @ so.exp(so.hat(np.asarray([0.5, 0.0, 0.0])))
    assert "divergence" in diagnose(_altered(result, rotation=lost), seen).faults
    broken = result.rotation.copy()
    broken[300:] = np.nan
    assert "divergence" in diagnose(_altered(result, rotation=broken), seen).faults
    late = np.concatenate([np.tile(result.rotation[:1], (30, 1, 1)), result.rotation[:-30]])
    still = _altered(result, rotation=late, velocity=0.0 * result.velocity)
    assert {"persistent lag", "divergence"} <= {*diagnose(still, seen).faults}


def test_the_command_ends_with_1_for_faults_of_rotations_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("typer")
    from kgmrf.cli import main

    times, seen = _recording(0)
    file = tmp_path / "camera.npz"
    np.savez(file, rotation=seen, times=times)
    assert main(["diagnose", str(file)]) == 0, capsys.readouterr().out
    assert main(["diagnose", str(file), "--noise-std", "0.03"]) == 1
    assert main(["diagnose", str(file), "--gains", "printed"]) == 1
    assert "persistent lag" in capsys.readouterr().out


def test_a_still_recording_is_healthy() -> None:
    for noise in (0.0, 1e-3):
        rng = np.random.default_rng(0)
        seen = so.exp(so.hat(noise * rng.standard_normal((300, 3))))
        report = diagnose(RotationTracker().filter(seen), seen)
        assert report.faults == (), str(report)


# ------------------------------------------------------------------ the report


def test_a_report_reads_and_prints() -> None:
    observations = _covariances()
    report = _examine(KGMRF(gains="information", n_samples=32), observations)
    text = str(report)
    assert text.splitlines()[1].startswith("  FAULT  wrong noise")
    assert "-> " in text
    assert text.startswith("500 steps: ")
    assert "frames" not in text
    table = json.loads(json.dumps(report.to_dict()))
    assert not table["healthy"]
    assert {f["name"] for f in table["findings"]} == {f.name for f in report.findings}
    with pytest.raises(KeyError, match="no finding"):
        _ = report["hiccups"]


def test_what_cannot_be_checked_is_said() -> None:
    report = diagnose(KGMRF(gains="information", n_samples=8).filter(_covariances()))
    assert report.healthy
    assert "unchecked" in str(report)
    assert report["persistent lag"].verdict == "unknown"
    assert "observations" in report["oscillation"].evidence


def test_odd_streams_do_not_break_it() -> None:
    """One channel, a silent channel, nearly nothing observed, a short run."""
    rng = np.random.default_rng(0)
    one = rng.chisquare(8, (200, 1, 1)) / 8
    assert _examine(KGMRF(gains="information", n_samples=8), one).faults == ()
    X = rng.standard_normal((200, 4, 3)) * [2.0, 1.0, 0.0]
    silent = X.swapaxes(-1, -2) @ X / 4
    assert len(_examine(KGMRF(gains="information", n_samples=4), silent).findings) == 7
    rare = _covariances()
    rare[10:] = np.nan
    assert (
        _examine(KGMRF(gains="information", n_samples=8), rare)["persistent lag"].verdict
        == "unknown"
    )
    assert len(_examine(KGMRF(gains="information", n_samples=8), _covariances()[:30]).findings) == 7
    nothing = np.full((50, 2), np.nan)
    assert _examine(VectorTracker(2, noise_std=1.0), nothing).healthy


def test_batches_lists_and_bad_input() -> None:
    observations = _covariances()
    batch = np.stack([observations, observations], axis=1)
    result = KGMRF(gains="information", n_samples=8).filter(batch)
    alone = _examine(KGMRF(gains="information", n_samples=8), observations)
    assert diagnose(result, batch, n_samples=8, item=1).faults == alone.faults
    counts = np.full(500, 8.0)
    again = diagnose(result, batch, n_samples=counts, item=(0,))
    assert again["wrong noise"].measured == pytest.approx(alone["wrong noise"].measured)
    with pytest.raises(ValueError, match="item"):
        diagnose(result)
    single = KGMRF(gains="information", n_samples=8).filter(observations)
    with pytest.raises(ValueError, match="shape"):
        diagnose(single, observations[:100], n_samples=8)
    with pytest.raises(ValueError, match="one per step"):
        diagnose(single, n_samples=np.ones(3))
    with pytest.raises(ValueError, match="at least 30"):
        diagnose(single[:10])
    listed: list[Any] = list(observations)
    listed[100] = None
    gap = diagnose(KGMRF(gains="information", n_samples=8).filter(listed), listed, n_samples=8)
    assert gap.faults == ()
