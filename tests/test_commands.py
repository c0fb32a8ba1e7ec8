"""The commands on files and streams: results, messages, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer", reason="typer is not installed: no command line")
pytest.importorskip("rich", reason="rich is not installed: no command line")

import kgmrf
from kgmrf import KGMRF, EuclideanEMA, RotationTracker, simulate
from kgmrf.cli import main
from kgmrf.commands import _run
from kgmrf.geometry import so
from kgmrf.io import open_source, text
from kgmrf.results import Result

track = sys.modules["kgmrf.commands.track"]  # the package has a command of this name

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simulated files of every kind."""
    folder = tmp_path_factory.mktemp("scenes")
    for scene, name in (("ellipse", "ellipse.csv"), ("steady-camera", "camera.npz")):
        main(["simulate", scene, "-o", str(folder / name), "--dropout", "0.1"])
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(600, 3)) * [3.0, 1.0, 0.5]
    samples[100:110] = np.nan
    samples[200, 1] = np.nan
    lines = ["time,a,b,c"]
    for k, row in enumerate(samples):
        cells = ["" if np.isnan(v) else repr(float(v)) for v in row]
        lines.append(",".join([repr(1000 + 0.004 * k), *cells]))
    (folder / "samples.csv").write_text("\n".join(lines) + "\n")
    np.save(folder / "samples.npy", samples)
    return folder


def call(capsys: Capture, *arguments: Any, code: int = 0) -> str:
    capsys.readouterr()
    assert main([str(a) for a in arguments]) == code
    return capsys.readouterr().out


def written(path: Path, key: str | None = None) -> Any:
    chunks = list(open_source(path, key=key))
    return np.concatenate([c.values for c in chunks])


# ---------------------------------------------------------------------- track


def test_tracking_a_file_is_tracking_its_observations(
    scenes: Path, tmp_path: Path, capsys: Capture
) -> None:
    out = tmp_path / "out.csv"
    about = json.loads(call(capsys, "track", scenes / "ellipse.csv", "-m", 8, "-o", out, "--json"))
    seen = written(scenes / "ellipse.csv")
    expected = KGMRF(n_samples=8).filter(seen)
    assert np.array_equal(written(out), expected.covariance)
    assert about["frames"] == 400
    assert about["observed"] == int((~np.isnan(seen[:, 0, 0])).sum())
    scored = np.isfinite(expected.log_likelihood)
    assert about["mean_log_likelihood"] == pytest.approx(expected.log_likelihood[scored].mean())
    assert about["spectrum"] == pytest.approx(expected.spectrum[-1])


def test_chunks_and_windows_make_no_difference(
    scenes: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "BLOCK", 2000)
    out = tmp_path / "out.npz"
    call(
        capsys, "track", scenes / "samples.csv", "--window", 7, "-o", out, "--fields", "covariance"
    )
    rows = np.vstack([np.load(scenes / "samples.npy"), np.full((2, 3), np.nan)])
    expected = KGMRF(3).filter(rows.reshape(-1, 7, 3), samples=True)
    # All but the last frame, which is not full and comes a little early.
    found = written(out, "covariance")
    assert np.allclose(found[:-1], expected.covariance[:-1], rtol=1e-6, atol=1e-9)
    assert len(found) == 86
    with np.load(out) as file:
        assert set(file.files) == {"time", "covariance", "channels"}
        assert file["channels"].tolist() == ["a", "b", "c"]
        assert file["time"][0] == 1000 + 0.004 * 6


def test_time_is_in_the_units_of_the_file(scenes: Path, tmp_path: Path, capsys: Capture) -> None:
    """The default clock is one unit per frame; velocities come back per unit of the time column."""
    camera = simulate.steady_camera(seed=0)
    np.savez(tmp_path / "ms.npz", rotation=camera.observations, times=5000 + 40.0 * camera.times)
    out = tmp_path / "out.npz"
    about = json.loads(
        call(capsys, "track", tmp_path / "ms.npz", "--noise-std", 0.05, "-o", out, "--json")
    )
    expected = RotationTracker(noise_std=0.05).filter(camera.observations)
    assert about["time_unit"] == pytest.approx(40.0)
    with np.load(out) as file:
        assert np.allclose(file["velocity"], expected.velocity / 40.0)
        assert np.allclose(file["time"], 5000 + 40.0 * camera.times)
    slow = json.loads(
        call(capsys, "track", tmp_path / "ms.npz", "--noise-std", 0.05, "--time-unit", 80, "--json")
    )
    assert slow["mean_log_likelihood"] != about["mean_log_likelihood"]


def test_centring_takes_the_mean_off(tmp_path: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 2)) + [50.0, -20.0]
    np.save(tmp_path / "a.npy", rows)
    plain = json.loads(call(capsys, "track", tmp_path / "a.npy", "--json"))
    centred = json.loads(call(capsys, "track", tmp_path / "a.npy", "--json", "--mean", "expanding"))
    assert plain["spectrum"][0] > 1000
    assert centred["spectrum"][0] < 5
    assert main(["track", str(tmp_path / "a.npy")]) == 0
    assert "--mean expanding subtracts the mean" in capsys.readouterr().err


def test_the_noise_of_rotations_is_estimated_and_told(scenes: Path, capsys: Capture) -> None:
    about = json.loads(call(capsys, "track", scenes / "camera.npz", "--json"))
    assert about["noise_std"] == pytest.approx(0.05, rel=0.2)
    assert main(["track", str(scenes / "camera.npz"), "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")


def test_the_noise_behind_a_motion() -> None:
    scene = simulate.rotating_frame(n_frames=400, noise_std=0.05, rng=0)
    assert _run.noise_of(scene.observations) == pytest.approx(0.05, rel=0.1)
    line = np.arange(300.0)[:, None] * np.ones(3)
    shaken = line + 0.1 * np.random.default_rng(0).normal(size=(300, 3))
    assert _run.noise_of_places(shaken) == pytest.approx(0.1, rel=0.2)


def test_a_figure_of_a_long_run(scenes: Path, tmp_path: Path, capsys: Capture) -> None:
    pytest.importorskip("matplotlib")
    figure = tmp_path / "out.png"
    assert str(figure) in call(capsys, "track", scenes / "samples.csv", "--plot", figure)
    assert figure.stat().st_size > 10_000


def test_a_figure_shows_every_kth_step(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []
    monkeypatch.setattr(track, "MOST_DRAWN", 30)
    monkeypatch.setattr(Result, "plot", lambda self, path: shown.append(self.time))
    pytest.importorskip("matplotlib")
    for block in (500, 2000, 100_000):
        monkeypatch.setattr(text, "BLOCK", block)
        figure = tmp_path / "out.png"
        assert main(["track", str(scenes / "samples.csv"), "-q", "--plot", str(figure)]) == 0
        steps = np.round(np.diff(shown[-1]) / 0.004)
        assert 20 <= len(shown[-1]) <= 40
        assert shown[-1][0] == 1000.0
        assert len(set(steps)) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["track", "none.csv"], "No such file or directory: none.csv"),
        (["track", "bad.csv"], "bad.csv, line 3, column 'b': 'x' is not a number"),
        (["track", "cov.csv"], "how many samples are behind each? Give --n-samples"),
        (["track", "cov.csv", "-m", "8"], "cov.csv, line 4: has a negative eigenvalue -2"),
        (["track", "good.csv", "-o", "out.xls"], "results end in .csv, .parquet, .npz"),
        (["track", "good.csv", "--plot", "out.gif"], "a figure ends in .png, .svg or .pdf"),
        (["track", "good.csv", "--fields", "mood"], "--fields has no 'mood'"),
        (["track", "good.csv", "--columns", "a,z"], "no column 'z'"),
        (["track", "good.csv", "--gains", "bold"], "'bold' is not one of 'auto', 'information'"),
        (["track", "good.csv", "--window", "0"], "--window"),
        (["track", "cov.csv", "--window", "5"], "only samples can be windowed"),
        (["track", "good.csv", "--kind", "song"], "--kind"),
        (["forecast", "bad.csv"], "bad.csv, line 3"),
        (["compare", "bad.csv"], "bad.csv, line 3"),
        (["diagnose", "bad.csv"], "bad.csv, line 3"),
        (["track", "good.csv", "-o", "good.csv"], "good.csv would overwrite the input good.csv"),
        (["smooth", "good.csv", "-o", "same.csv"], "same.csv would overwrite the input good.csv"),
        (["forecast", "good.csv", "-o", "good.csv"], "would overwrite the input"),
        (["forecast", "good.csv", "-n", "100000000"], "--steps can be 100000 at most"),
        (["track", "-"], "-: a pipe cannot be read twice; save it in a file first"),
        (["track", "index.csv"], "choose the channels with --columns, or a clock with --time"),
        (["stream", "--replay"], "--replay needs --state"),
        (["stream", "--gains", "bold"], "'bold' is not one of 'auto', 'information'"),
        (["stream", "--fields", "mood"], "--fields has no 'mood'"),
    ],
)
def test_a_wrong_call_or_file_is_one_line_and_exit_code_2(
    arguments: list[str],
    message: str,
    capsys: Capture,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("good.csv").write_text("a,b\n1,2\n3,4\n")
    os.link("good.csv", "same.csv")
    Path("bad.csv").write_text("a,b\n1,2\n3,x\n")
    Path("index.csv").write_text(",a,b\ny,1,2\nx,3,4\n")
    header = "covariance_0_0,covariance_0_1,covariance_1_1\n"
    Path("cov.csv").write_text(header + "2,0,1\n2,0,1\n1,3,1\n")
    before = sorted(p.name for p in tmp_path.iterdir())
    assert main(arguments) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("kgmrf: ")
    assert error.count("\n") == 1
    assert message in error
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("pyarrow", ["track", "a.parquet"]),
        ("pyarrow", ["track", "a.csv", "-o", "out.parquet"]),
        ("h5py", ["track", "a.h5"]),
    ],
)
def test_a_missing_reader_is_named_with_its_remedy(
    module: str,
    arguments: list[str],
    tmp_path: Path,
    capsys: Capture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.parquet", "a.h5", "a.csv"):
        Path(name).write_text("a,b\n1,2\n2,-1\n")
    for name in [m for m in sys.modules if m.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    assert main(arguments) == 2
    assert capsys.readouterr().err == f'kgmrf: this needs {module}: pip install "kgmrf[files]"\n'


def test_a_bad_cell_half_way_leaves_no_output(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text, "BLOCK", 100)
    lines = ["a,b", *["1,2", "2,-1"] * 100, "1,x"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    assert main(["track", str(tmp_path / "a.csv"), "-o", str(tmp_path / "out.csv")]) == 2
    assert "line 202, column 'b'" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


def test_what_was_assumed_is_told(tmp_path: Path, capsys: Capture) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 2))
    plain, index = tmp_path / "plain.csv", tmp_path / "index.csv"
    plain.write_text("".join(["n,a,b\n", *(f"{k},{a},{b}\n" for k, (a, b) in enumerate(rows))]))
    index.write_text(plain.read_text()[1:])

    def told(*arguments: Any) -> str:
        call(capsys, *arguments)
        assert main([str(a) for a in arguments]) == 0
        return capsys.readouterr().err

    assert "column 'n' increases in every row: if it is a clock, give --time n" in told(
        "track", plain
    )
    assert told("track", plain, "--time", "n") == ""
    timed = tmp_path / "timed.csv"
    timed.write_text(
        "".join(["t,n,a\n", *(f"{2 * k},{k},{a}\n" for k, a in enumerate(rows[:, 0]))])
    )
    assert "column 'n' increases in every row: if it is a counter, leave it out" in told(
        "track", timed
    )
    assert "no name and its values grow: taken as the time" in told("track", index)
    assert told("track", index, "-q") == ""
    assert "--n-samples is for covariances" in told("track", index, "-m", 5)
    np.save(tmp_path / "a.npy", np.column_stack([np.arange(20), rows]))
    assert "keep it in an array of its own" in told("track", tmp_path / "a.npy")


def test_dates_in_are_dates_out(tmp_path: Path, capsys: Capture) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 2))
    days = [str(np.datetime64("2024-02-20") + k) for k in range(20)]
    path, out = tmp_path / "days.csv", tmp_path / "out.csv"
    lines = [f"{day},{a},{b}\n" for day, (a, b) in zip(days, rows, strict=True)]
    path.write_text("date,a,b\n" + "".join(lines))
    call(capsys, "track", path, "-o", out)
    assert [line.partition(",")[0] for line in out.read_text().splitlines()[1:]] == days
    assert "  2024-03-11  " in call(capsys, "forecast", path, "-n", 1, "-o", out)
    assert out.read_text().splitlines()[1].startswith("2024-03-11,86400.0,")
    # The same days as numbers of eight digits, and as instants with a zone.
    path.write_text("Date,a,b\n" + "".join(line.replace("-", "", 2) for line in lines))
    assert "  2024-03-11  " in call(capsys, "forecast", path, "-n", 1)
    path.write_text(
        "time,a,b\n"
        + "".join(f"2024-02-20T01:00:{k:02d}.5+01:00,{a},{b}\n" for k, (a, b) in enumerate(rows))
    )
    capsys.readouterr()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert main(["track", str(path), "-o", str(out), "-q"]) == 0
    assert capsys.readouterr() == ("", "")
    assert out.read_text().splitlines()[1].startswith("2024-02-20T00:00:00.500000Z,")
    pq = pytest.importorskip("pyarrow.parquet")
    call(capsys, "smooth", path, "-o", tmp_path / "out.parquet")
    table = pq.read_table(tmp_path / "out.parquet")
    assert str(table.schema.field("time").type) == "timestamp[us, tz=UTC]"
    assert json.loads(table.schema.metadata[b"channels"]) == ["a", "b"]
    again = open_source(tmp_path / "out.parquet")
    assert (again.kind, again.dates) == ("covariance", "usZ")


def test_progress_appears_after_a_while(
    scenes: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_run, "PATIENCE", 0.0)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert main(["track", str(scenes / "ellipse.csv"), "-m", "8"]) == 0
    assert "ellipse.csv" in capsys.readouterr().err
    assert main(["track", str(scenes / "ellipse.csv"), "-m", "8", "-q"]) == 0
    assert capsys.readouterr().err == ""


# ---------------------------------------------------------------------- forecast, compare, diagnose


def test_a_forecast_is_that_of_the_tracker(scenes: Path, tmp_path: Path, capsys: Capture) -> None:
    path, out = scenes / "ellipse.csv", tmp_path / "ahead.csv"
    found = json.loads(call(capsys, "forecast", path, "-m", 8, "-n", 3, "-o", out, "--json"))
    tracker = KGMRF(n_samples=8)
    tracker.filter(written(path))
    for k, row in enumerate(found["forecast"]):
        ahead = tracker.forecast(k + 1)
        assert row["time"] == ahead.time
        assert np.allclose(row["covariance"], ahead.covariance)
    assert np.allclose(written(out)[2], ahead.covariance)
    assert call(capsys, "forecast", path, "-m", 8, "-n", 3).count("\n") == 4


def test_a_forecast_shows_the_fields_that_were_asked_for(scenes: Path, capsys: Capture) -> None:
    """``--fields volatility`` printed covariances."""
    words = ("forecast", scenes / "ellipse.csv", "-m", 8, "-n", 2, "--fields")
    tracker = KGMRF(n_samples=8)
    tracker.filter(written(scenes / "ellipse.csv"))
    ahead = tracker.forecast(2)
    row = json.loads(call(capsys, *words, "volatility,age", "--json"))["forecast"][1]
    assert list(row) == ["step", "time", "age", "volatility"]
    assert np.allclose(row["volatility"], ahead.volatility)
    lines = call(capsys, *words, "volatility").splitlines()
    assert lines[0].endswith("volatility")
    assert [float(cell) for cell in lines[2].split()[2:]] == pytest.approx(
        ahead.volatility.tolist(), rel=1e-3
    )
    call(capsys, *words, "rotation", code=2)


def test_smoothing_looks_back(scenes: Path, tmp_path: Path, capsys: Capture) -> None:
    out = tmp_path / "out.npz"
    path = scenes / "ellipse.csv"
    about = json.loads(call(capsys, "smooth", path, "-m", 8, "-o", out, "--json"))
    expected = KGMRF(n_samples=8).smooth(written(path))
    assert about["frames"] == 400
    assert np.allclose(written(out, "covariance"), expected.covariance)
    camera = scenes / "camera.npz"
    seen = written(camera, "observations")
    for lag in (None, 5):
        more = [] if lag is None else ["--lag", lag]
        call(capsys, "smooth", camera, "--noise-std", 0.05, "-o", out, *more)
        tracker = RotationTracker(noise_std=0.05)
        expected = tracker.smooth(seen, **({} if lag is None else {"lag": lag}))
        assert np.allclose(written(out, "rotation"), expected.rotation, atol=1e-8)
    assert main(["smooth", str(scenes / "samples.csv"), "-n", "100"]) == 2
    assert "more than 100 steps" in capsys.readouterr().err


def test_comparing_ranks_by_one_step_ahead_likelihood(
    scenes: Path, tmp_path: Path, capsys: Capture
) -> None:
    path = scenes / "ellipse.csv"
    found = json.loads(call(capsys, "compare", path, "-m", 8, "--json"))
    scores = [row["score"] for row in found["rows"]]
    assert scores == sorted(scores, reverse=True)
    assert found["rows"][0]["tracker"] == "KGMRF"
    seen = written(path)
    gain = 1 - 2 ** (-1 / 16)
    by_hand = {
        ("KGMRF", "gains=auto"): KGMRF(n_samples=8),
        ("KGMRF", "gains=information"): KGMRF(n_samples=8, gains="information"),
        ("EuclideanEMA", "half_life=16"): EuclideanEMA(gain=gain, n_samples=8),
    }
    scored = np.arange(400) >= 80
    runs = {name: tracker.filter(seen).log_likelihood for name, tracker in by_hand.items()}
    for likelihood in runs.values():
        scored &= np.isfinite(likelihood)
    assert found["scored"] == scored.sum()
    for (name, settings), likelihood in runs.items():
        rows = [r for r in found["rows"] if (r["tracker"], r["settings"]) == (name, settings)]
        measure = "score" if settings == "gains=auto" else "gaussian"  # of what is forecast
        assert [r[measure] for r in rows] == [pytest.approx(likelihood[scored].mean())]


def test_comparing_samples_leaves_out_what_needs_full_rank(
    scenes: Path, tmp_path: Path, capsys: Capture
) -> None:
    pytest.importorskip("matplotlib")
    figure = tmp_path / "lead.svg"
    text_ = call(capsys, "compare", scenes / "samples.csv", "--plot", figure)
    assert "left out: RiemannianEMA" in text_
    assert "KGMRF" in figure.read_text()


def test_comparing_rotations_measures_angles(scenes: Path, capsys: Capture) -> None:
    path = scenes / "camera.npz"
    found = json.loads(call(capsys, "compare", path, "--json", "--skip", 20, "--noise-std", 0.05))
    assert "angle" in found["measure"]
    hold = next(row["score"] for row in found["rows"] if row["tracker"] == "HoldLast")
    # By hand: what was seen last, against what is seen next.
    seen, angles, last = written(path, "observations"), [], None
    for k, frame in enumerate(seen):
        if np.isnan(frame).any():
            continue
        if k >= 20 and last is not None:
            angles.append(np.degrees(so.distance(last, frame)))
        last = frame
    assert hold == pytest.approx(np.mean(angles))
    assert found["rows"][0]["tracker"] == "RotationTracker"


def test_diagnosis_of_a_good_and_a_bad_run(scenes: Path, capsys: Capture) -> None:
    path = scenes / "ellipse.csv"
    good = json.loads(call(capsys, "diagnose", path, "-m", 8, "--json"))
    assert good["healthy"]
    bad = call(capsys, "diagnose", path, "-m", 8, "--gains", "printed", code=1)
    assert "FAULT  persistent lag" in bad
    assert main(["diagnose", str(scenes / "samples.csv"), "-w", "5", "-q"]) in (0, 1)


# ---------------------------------------------------------------------- stream, speed


def test_a_stream_through_the_shell(tmp_path: Path) -> None:
    path = {**os.environ, "PYTHONPATH": str(Path(kgmrf.__file__).parents[1])}
    lines = [{"key": "a", "time": t, "x": [1.0 + t, 2.0 - t]} for t in range(5)]
    text_in = "".join(json.dumps(line) + "\n" for line in lines)
    base = [sys.executable, "-m", "kgmrf", "stream", "--state", str(tmp_path / "state")]

    def run(given: str, *more: str) -> Any:
        return subprocess.run(
            [*base, *more], input=given, capture_output=True, text=True, env=path, timeout=120
        )

    first = run("".join(text_in.splitlines(keepends=True)[:3]))
    assert "3 lines, 1 tracks, dropped: none" in first.stderr
    second = run(text_in, "--replay", "--quiet")
    assert (second.returncode, second.stderr) == (0, "")
    times = [json.loads(line)["time"] for line in (first.stdout + second.stdout).splitlines()]
    assert times == [0, 1, 2, 3, 4]
    third = run('{"key": "a", "time": 9, "x": [1]}\n')
    assert third.returncode == 2
    assert third.stderr.startswith("kgmrf: line 6: 'x' has shape (1,), expected (2,): all keys")


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ('{"key": "a", "time": 1}\n', []),
        ('{"key": "a", "Y": 1}\n', ["--on-error", "skip"]),
        ("key,time,a\n", ["--format", "csv"]),
    ],
)
def test_a_stream_without_any_observation_is_an_error(text: str, more: list[str]) -> None:
    path = {**os.environ, "PYTHONPATH": str(Path(kgmrf.__file__).parents[1])}
    arguments = [sys.executable, "-m", "kgmrf", "stream", "-q", *more]
    done = subprocess.run(
        arguments, input=text, capture_output=True, text=True, env=path, timeout=120
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "had an observation" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("kgmrf: no ")


def test_warmup_says_that_it_does_nothing(capsys: Capture) -> None:
    assert main(["warmup"]) == 0
    assert "nothing to do" in capsys.readouterr().err


def test_every_command_and_option_explains_itself(capsys: Capture) -> None:
    import typer.main

    from kgmrf.commands import app

    group: Any = typer.main.get_command(app)
    for name, command in group.commands.items():
        assert f"kgmrf {name}" in call(capsys, name, "--help")
        assert [option.name for option in command.params if not option.help] == []
