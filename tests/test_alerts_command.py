"""``kgmrf alerts``: the alarms of `watch`, with times and names, an exit code, a page."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("typer", reason="typer is not installed: no command line")

from kgmrf.alerts import Alarm, watch
from kgmrf.cli import main

Capture = pytest.CaptureFixture[str]
NAMES = ("flow", "heat", "x & y")


def samples() -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((900, 3)) @ np.array([[1.0, 0.9, 0], [0, 0.4, 0], [0, 0, 2.0]])
    x[500:530, 2] += 20.0
    x[100, 1] = np.nan
    return 50.0 + x


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A row a minute, with dates."""
    start = np.datetime64("2026-03-01T00:00:00")
    rows = [
        f"{start + np.timedelta64(60 * k, 's')}," + ",".join("" if v != v else repr(v) for v in row)
        for k, row in enumerate(samples().tolist())
    ]
    path = tmp_path / "plant.csv"
    path.write_text("\n".join([",".join(["time", *NAMES]), *rows]) + "\n")
    return path


def call(capsys: Capture, *arguments: Any, code: int = 0) -> str:
    capsys.readouterr()
    assert main([str(a) for a in arguments]) == code
    return capsys.readouterr().out


def test_alarms_are_those_of_watch_with_dates_and_names(table: Path, capsys: Capture) -> None:
    out = json.loads(call(capsys, "alerts", table, "--rate", "1e-4", "--json", code=1))
    found = watch(samples(), Alarm(1e-4))
    assert len(out["alarms"]) == len(found.events) > 0
    for alarm, event in zip(out["alarms"], found.events, strict=True):
        for name in ("onset", "begin", "peak"):
            minutes = getattr(event, name)
            stamp = f"2026-03-01T{minutes // 60:02d}:{minutes % 60:02d}:00"
            assert alarm[name] == stamp
        shares = sorted(found.blame(event).values())
        assert sorted(alarm["channels"].values()) == pytest.approx(shares, abs=1e-3)
    assert next(iter(out["alarms"][0]["channels"])) == "x & y"


def test_the_exit_code_says_whether_there_is_an_alarm(table: Path, capsys: Capture) -> None:
    assert "x & y" in call(capsys, "alerts", table, code=1)
    quiet = table.with_name("quiet.csv")
    quiet.write_text("\n".join(table.read_text().splitlines()[:400]) + "\n")
    assert "0 alarms" in call(capsys, "alerts", quiet)
    assert main(["alerts", str(table), "--rate", "2"]) == 2


def test_a_rate_in_words_is_that_of_the_files_clock(table: Path, capsys: Capture) -> None:
    out = json.loads(call(capsys, "alerts", table, "--rate", "1/day", "--json", code=1))
    assert out["rate"] == pytest.approx(1 / 1440)
    plain = table.with_name("plain.npy")
    np.save(plain, samples())
    assert main(["alerts", str(plain), "--rate", "1/day"]) == 2
    assert "seconds between two rows" in capsys.readouterr().err


def test_the_report_is_one_page_that_needs_nothing_else(table: Path, capsys: Capture) -> None:
    pytest.importorskip("matplotlib")
    page, picture = table.with_name("a.html"), table.with_name("a.png")
    call(capsys, "alerts", table, "--report", page, "--plot", picture, code=1)
    text = page.read_text()
    assert picture.stat().st_size > 1000
    assert text.count("<picture>") >= 2
    assert "x &amp; y" in text
    assert "x & y" not in text
    refs = re.findall(r'(?:src|srcset|href)="([^"]{0,20})', text)
    assert refs
    assert all(ref.startswith("data:image/png") for ref in refs)
    assert "2026-03-01 08:20:00" in text
    with pytest.raises(SystemExit):
        raise SystemExit(main(["alerts", str(table), "--report", str(page.with_suffix(".txt"))]))


def test_windows_are_watched_as_covariances(table: Path, capsys: Capture) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3000, 3))
    x[2000:2100] *= 4.0
    np.save(table.with_name("eeg.npy"), x)
    words = ("alerts", table.with_name("eeg.npy"), "--window", "20", "--rate", "1e-3")
    out = json.loads(call(capsys, *words, "--warm-up", "50", "--json", code=1))
    assert out["rows"] == 150
    assert next(int(alarm["begin"]) for alarm in out["alarms"]) == 100


def test_what_it_is_not_for_is_refused(tmp_path: Path, capsys: Capture) -> None:
    main(["simulate", "steady-camera", "-o", str(tmp_path / "camera.npz")])
    capsys.readouterr()
    assert main(["alerts", str(tmp_path / "camera.npz")]) == 2
    assert "rotations" in capsys.readouterr().err
    np.save(tmp_path / "long.npy", np.zeros((50, 2)))
    assert main(["alerts", str(tmp_path / "long.npy"), "--frames", "20"]) == 2
    assert "--frames" in capsys.readouterr().err
