"""What commands on files say and write: names, dates, means, measures, exit codes."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kgmrf import KGMRF, EuclideanEMA
from kgmrf.model.centring import RunningMean
from kgmrf.stream import Settings, Stream

pytest.importorskip("typer")
from kgmrf.cli import main

DAYS = np.busday_offset("2024-01-01", np.arange(320)).astype(str)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Daily returns of three assets until a Friday."""
    rng = np.random.default_rng(0)
    returns = rng.standard_t(5, (320, 3)) @ np.linalg.cholesky(0.6 * np.eye(3) + 0.4).T
    path = tmp_path_factory.mktemp("files") / "returns.csv"
    lines = [
        f"{day},{','.join(map(repr, row))}" for day, row in zip(DAYS, returns.tolist(), strict=True)
    ]
    path.write_text("\n".join(["date,SPY,TLT,GLD", *lines]) + "\n")
    return path


TIMES = np.array(DAYS, dtype="datetime64[D]").astype(float)


def rows(file: Path) -> np.ndarray:
    return np.array([row[1:] for row in csv.reader(file.open())][1:], dtype=float)


def test_written_columns_carry_the_names(file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    fields = ["--fields", "covariance,volatility,correlation"]
    assert main(["track", str(file), "-q", "-o", str(out), *fields]) == 0
    table = list(csv.DictReader(out.open()))
    assert {"covariance_SPY_TLT", "correlation_SPY_GLD", "volatility_GLD"} <= set(table[0])
    assert table[-1]["time"] == DAYS[-1]
    expected = KGMRF().filter(rows(file), times=TIMES)
    assert float(table[-1]["volatility_GLD"]) == pytest.approx(expected.volatility[-1, 2])
    assert float(table[-1]["correlation_SPY_TLT"]) == pytest.approx(expected.correlation[-1, 0, 1])


def test_daily_data_without_weekends_are_forecast_on_business_days(
    file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "ahead.csv"
    assert main(["forecast", str(file), "-n", "6", "-q", "-o", str(out)]) == 0
    found = [row["time"] for row in csv.DictReader(out.open())]
    assert found == np.busday_offset(DAYS[-1], np.arange(1, 7)).astype(str).tolist()
    text = file.read_text().replace(DAYS[3], "2024-01-06")  # a Saturday in the file
    every = tmp_path / "every.csv"
    every.write_text(text.replace(DAYS[4], "2024-01-07"))
    assert main(["forecast", str(every), "-n", "2", "-q", "-o", str(out)]) == 0
    found = [row["time"] for row in csv.DictReader(out.open())]
    assert found == (np.datetime64(DAYS[-1]) + np.arange(1, 3)).astype(str).tolist()


@pytest.mark.parametrize("mean", ["expanding", "ewm"])
def test_the_mean_is_said_in_words(file: Path, tmp_path: Path, mean: str) -> None:
    out = tmp_path / "out.npz"
    assert main(["track", str(file), "-q", "-o", str(out), "--mean", mean]) == 0
    expected = KGMRF().filter(RunningMean(mean).centre(rows(file)), times=TIMES)
    np.testing.assert_allclose(np.load(out)["covariance"][-1], expected.covariance[-1])


def test_options_of_a_stream_that_do_not_fit_are_refused() -> None:
    """--noise-std ended a stream of samples with a traceback; one field was key and time."""
    call = [sys.executable, "-m", "kgmrf", "stream", "-q"]
    for words, fault in (
        (["--noise-std", "0.1"], b"--noise-std is for rotations; these lines hold samples"),
        (["--key", "a", "--time", "a"], b"--key and --time both name 'a'"),
    ):
        found = subprocess.run(
            [*call, *words], input=b'{"a": 1, "x": [1, 2]}\n', capture_output=True
        )
        assert found.returncode == 2
        assert fault in found.stderr
        assert b"Traceback" not in found.stderr


def test_an_option_that_does_nothing_is_named(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--n-samples", "8", "--noise-std", "0.1"]
    assert main(["track", str(file), *words]) == 0
    error = capsys.readouterr().err
    assert "--n-samples is for covariances" in error
    assert "--noise-std is for rotations" in error
    assert main(["smooth", str(file)]) == 0
    assert "nothing is written without --output or --plot" in capsys.readouterr().out


def test_a_stream_takes_the_same_words_for_the_mean() -> None:
    lines = [b'{"x": [%d, 5]}' % (k % 3) for k in range(9)]
    found = subprocess.run(
        [sys.executable, "-m", "kgmrf", "stream", "-q", "--mean", "expanding"],
        input=b"\n".join(lines),
        stdout=-1,
        check=True,
    ).stdout
    assert found == Stream(Settings(mean="expanding", tracker={"gains": "auto"})).take(lines)


def test_compare_measures_what_it_says(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(file), "--json", "--skip", "100"]) == 0
    found = json.loads(capsys.readouterr().out)
    life = next(row for row in found["rows"] if row["settings"] == "half_life=64")
    x = rows(file)
    average = EuclideanEMA(gain=1.0 - 2.0 ** (-1.0 / 64)).filter(x, times=TIMES)
    ours = KGMRF().filter(x, times=TIMES)
    before, now = average.covariance[99:-1], x[100:]
    distance = np.einsum("ni,nij,nj->n", now, np.linalg.inv(before), now)
    log_det = np.linalg.slogdet(before)[1]
    assert found["scored"] == 220
    assert life["qlike"] == pytest.approx((log_det + distance).mean() / 3)
    assert life["gaussian"] == pytest.approx(average.log_likelihood[100:].mean())
    assert life["covered"] == pytest.approx((distance <= 7.8147).mean(), abs=0.006)
    assert life["score"] > life["gaussian"]  # a rival has tails too
    gap = ours.log_likelihood[100:].mean() - life["score"]
    assert life["lead"] == pytest.approx(gap)
    assert life["lead_within"] > 0
    best = next(row for row in found["rows"] if row["settings"] == "gains=auto")
    assert best["score"] > best["gaussian"]  # the tails of these returns are heavy
    assert 0.9 < best["covered"] < 0.99
    assert best["lead"] == 0.0
    assert main(["compare", str(file), "--skip", "100"]) == 0
    text = capsys.readouterr().out
    assert "QLIKE" in text
    assert "in 95 %" in text


def test_diagnose_ends_with_1_for_faults_only(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["diagnose", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["healthy"]


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main([*words, "--help"]) == 0
    return capsys.readouterr().out


def test_flags_do_not_look_as_if_they_took_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    """No option that is given without a value is shown with one, as in --json <bool>."""
    assert "<bool>" not in help_of(capsys)
    for command in ("track", "compare", "stream", "demo", "simulate", "warmup", "info"):
        assert "<bool>" not in help_of(capsys, command)


def test_one_word_for_one_thing_in_every_command(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command in ("track", "smooth", "forecast", "compare", "diagnose"):
        text = help_of(capsys, command)
        for word in ("--kind", "--n-samples", "--on-invalid", "--time-unit", "--noise-std"):
            assert word in text, (command, word)
    for command in ("stream", "simulate"):
        assert "--n-samples" in help_of(capsys, command)
    for command in ("track", "stream", "simulate"):
        text = help_of(capsys, command)
        assert "…" not in text  # nothing is cut off at 80 columns
        assert not any(word in text for word in ("--present", "--follows", "--invalid "))


def test_daily_data_turn_per_day(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rates of daily data were 1e-20 rad per second."""
    assert main(["track", str(file), "-q", "--json"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["rate"] == "rad per second"  # as in the files that are written
    assert main(["track", str(file)]) == 0
    words = capsys.readouterr().out.splitlines()
    speed, unit = next(line for line in words if "angular" in line).split(maxsplit=3)[2:]
    assert unit == "rad per day"
    per_day = 86400.0 * about["speed"]
    assert float(speed) == pytest.approx(per_day if per_day > 1e-12 else 0.0, rel=1e-3)
    assert main(["forecast", str(file), "-n", "1"]) == 0
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[1] == "rad/day"
    tracker = KGMRF()
    tracker.filter(rows(file), times=TIMES)
    turn = np.linalg.norm(tracker.forecast(3.0).velocity) / np.sqrt(2.0)  # from Friday to Monday
    assert float(row.split()[1]) == pytest.approx(turn, rel=1e-3)


def test_track_and_forecast_show_the_same_speed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The estimate leans on its best members and the forecast does not: two speeds of one file."""
    path = tmp_path / "ellipse.csv"
    assert main(["simulate", "ellipse", "-o", str(path), "--seed", "2"]) == 0
    assert main(["track", str(path), "-q", "--json"]) == 0
    about = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert main(["track", str(path)]) == 0
    line = next(w for w in capsys.readouterr().out.splitlines() if "angular" in w)
    assert main(["forecast", str(path), "-n", "1"]) == 0
    row = capsys.readouterr().out.splitlines()[1]
    assert line.split()[2] == row.split()[1] == f"{about['speed']:.4g}"


def test_the_speed_of_a_rotation_is_that_of_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the forecast of a shaken camera the speed changes; track shows where that begins."""
    path, out = tmp_path / "shake.npz", tmp_path / "out.npz"
    assert main(["simulate", "camera-shake", "-o", str(path)]) == 0
    capsys.readouterr()
    assert main(["track", str(path), "--json", "-o", str(out)]) == 0
    speed = json.loads(capsys.readouterr().out)["speed"]
    last = np.linalg.norm(np.load(out)["velocity"][-1]) / np.sqrt(2.0)
    assert speed == pytest.approx(last)


def test_rates_that_are_rounding_are_0() -> None:
    from kgmrf.commands.track import _spoken

    def spoken(speed: float, unit: float, dates: str) -> tuple[float, str]:
        run: Any = SimpleNamespace(unit=unit, per_second=1.0, rate="rad per second")
        run.source = SimpleNamespace(dates=dates)
        return _spoken(run, speed * np.array([[0.0, -1.0], [1.0, 0.0]]))

    assert spoken(3.6e-20, 86400.0, "D") == (0.0, "rad per day")
    assert spoken(1e-6, 86400.0, "D") == (pytest.approx(0.0864), "rad per day")
    assert spoken(1e-6, 60.0, "s") == (pytest.approx(1e-6), "rad per second")
    assert spoken(1e-6, 86400.0, "") == (pytest.approx(1e-6), "rad per second")


def test_a_channel_that_is_always_0_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The eigenvalues were all "-" beside a column of labels that are 0."""
    x = np.random.default_rng(0).normal(size=(200, 3)) * [3.0, 1.0, 0.0]
    path = tmp_path / "labels.csv"
    np.savetxt(path, x, delimiter=",", header="a,b,label", comments="")
    assert main(["track", str(path)]) == 0
    line = next(w for w in capsys.readouterr().out.splitlines() if "eigenvalues" in w)
    assert "label has had no value other than 0" in line
    found = [float(word.strip(",")) for word in line.split()[2:4]]
    expected = KGMRF().filter(x).covariance[-1][:2, :2]
    np.testing.assert_allclose(found, np.linalg.eigvalsh(expected)[::-1], rtol=1e-3)
