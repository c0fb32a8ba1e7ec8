"""Alarms of a stream: those of `watch` for every key, however lines come, and over restarts."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from kgmrf.alerts import Alarm, watch
from kgmrf.stream import Settings, Stream
from kgmrf.stream.report import prometheus
from kgmrf.trackers import KGMRF

ROWS, KEYS, D = 400, 3, 2
ALERT = Settings(alert="1e-3", memory=30, mean="ewm", digits=17, time_unit=1.0)


def recordings(seed: int = 0) -> np.ndarray:
    """Samples ``(KEYS, ROWS, D)``, correlated; two keys have a fault, one of them two."""
    rng = np.random.default_rng(seed)
    x = 5.0 + rng.standard_normal((KEYS, ROWS, D)) @ np.array([[1.0, 0.9], [0.0, 0.4]])
    x[0, 200:230, 1] *= 2.0
    x[0, 300:320] += 4.0
    x[1, 250:, 0] *= 3.0
    x[2, 100:110] = np.nan
    return x


def lines_of(x: np.ndarray) -> list[bytes]:
    empty = [None] * D
    return [
        json.dumps(
            {"key": f"k{k}", "time": t, "x": empty if np.isnan(x[k, t]).any() else list(x[k, t])}
        ).encode()
        for t in range(x.shape[1])
        for k in range(len(x))
    ]


def told(text: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def through(settings: Settings, lines: list[bytes], cut: int) -> list[dict[str, Any]]:
    stream = Stream(settings)
    return told(b"".join(stream.take(lines[k : k + cut]) for k in range(0, len(lines), cut)))


@pytest.mark.parametrize("adapt", ["yes", "slow", "no"])
@pytest.mark.parametrize(("cut", "mean"), [(1, "ewm"), (37, "linear"), (10_000, "ewm")])
def test_every_key_has_the_alarms_of_its_own_recording(adapt: str, cut: int, mean: Any) -> None:
    x = recordings()
    found = through(replace(ALERT, adapt=adapt, mean=mean), lines_of(x), cut)
    alarm, words = Alarm(1e-3, 30), ["quiet", "begins", "lasts", "ends"]
    for k in range(KEYS):
        mine = [line for line in found if line["key"] == f"k{k}"]
        one = watch(x[k], alarm, tracker=KGMRF(mean=mean), adapt=adapt)
        assert [line["alarm"] or "quiet" for line in mine] == [words[s] for s in one.status]
        p = np.array([line["p_value"] for line in mine], dtype=float)
        np.testing.assert_allclose(p, one.p_value, rtol=1e-9)
        for line, row in zip(mine, one.contribution, strict=True):
            shares = line["channels"] or {}
            assert bool(shares) == (line["alarm"] in ("begins", "lasts"))
            for name, share in shares.items():
                assert share == pytest.approx(row[int(name)] / row.sum(), abs=1e-3)
            assert (line["since"] is None) == (line["alarm"] is None)
    assert {line["key"] for line in found if line["alarm"]} >= {"k0", "k1"}


def test_a_restart_in_an_alarm_changes_nothing(tmp_path: Path) -> None:
    x, settings = recordings(), replace(ALERT, adapt="slow")
    lines = lines_of(x)
    whole = through(settings, lines, 64)
    cut = [line["alarm"] for line in whole].index("lasts") + 1
    first = Stream(settings)
    before = told(first.take(lines[:cut]))
    first.save(tmp_path / "state")
    after = Stream(settings)
    after.restore(tmp_path / "state")
    assert before + told(after.take(lines[cut:])) == whole
    assert after.counts.alarms == sum(line["alarm"] == "begins" for line in whole)


def test_alarms_can_be_switched_on_and_off_over_restarts(tmp_path: Path) -> None:
    lines, off = lines_of(recordings()), replace(ALERT, alert=None, fields=("p_value",))
    plain = Stream(off)
    plain.take(lines[: KEYS * 150])
    plain.save(tmp_path / "state")
    on = Stream(ALERT)
    on.restore(tmp_path / "state")
    assert any(line["alarm"] for line in told(on.take(lines[KEYS * 150 :])))
    on.save(tmp_path / "state")
    again = Stream(off)
    again.restore(tmp_path / "state")
    assert "alarm" not in told(again.take([b'{"key": "k0", "time": 999, "x": [5, 5]}']))[0]


def test_damaged_alarms_of_a_state_are_refused(tmp_path: Path) -> None:
    stream = Stream(ALERT)
    stream.take(lines_of(recordings())[:30])
    assert stream.pool is not None
    stream.pool.columns["alarm"][1, 3] = np.nan
    stream.save(tmp_path / "state")
    with pytest.raises(ValueError, match="no evidence"):
        Stream(ALERT).restore(tmp_path / "state")


def test_only_the_lines_at_which_an_alarm_begins_or_ends() -> None:
    lines = lines_of(recordings())
    every = through(ALERT, lines, 100)
    few = through(replace(ALERT, alerts_only=True), lines, 100)
    assert few == [line for line in every if line["alarm"] in ("begins", "ends")]
    assert len(few) > 3
    stream = Stream(replace(ALERT, alerts_only=True))
    stream.take(lines)
    begun = sum(line["alarm"] == "begins" for line in few)
    assert f"kgmrf_stream_alarms_total {begun}" in prometheus(stream.counts, KEYS, 1.0, None)


def test_csv_and_tables_say_what_json_says() -> None:
    pa = pytest.importorskip("pyarrow")
    x, settings = recordings(), replace(ALERT, alerts_only=True, columns=("flow", "heat, left"))
    rows = [(f"k{k}", t, *x[k, t]) for t in range(ROWS) for k in range(KEYS)]
    named = [
        json.dumps(
            {
                "key": key,
                "time": t,
                "x": {
                    "flow": None if np.isnan(a) else a,
                    "heat, left": None if np.isnan(b) else b,
                },
            }
        ).encode()
        for key, t, a, b in rows
    ]
    wanted = through(settings, named, 500)
    text = Stream(replace(settings, format="csv")).take(
        [b'key,time,flow,"heat, left"', *(f"{k},{t},{a},{b}".encode() for k, t, a, b in rows)]
    )
    import csv

    found = list(csv.DictReader(text.decode().splitlines()))
    assert [row["alarm"] for row in found] == [line["alarm"] for line in wanted]
    first = next(iter(wanted[0]["channels"].items()))
    assert found[0]["channels"].split("; ")[0] == f"{first[0]}={first[1]:g}"
    keys, times, a, b = zip(*rows, strict=True)
    table = pa.record_batch({"key": keys, "time": times, "flow": a, "heat, left": b})
    stream = Stream(replace(settings, format="arrow"))
    raw = stream.take(table)
    import base64

    schema = base64.b64decode(stream.header[0])
    batch = pa.ipc.open_stream(schema + raw).read_all()
    assert batch["alarm"].to_pylist() == [line["alarm"] for line in wanted]
    assert batch["channels"].to_pylist() == [row["channels"] or None for row in found]


def test_rows_of_other_software_get_numbers() -> None:
    x = recordings()
    stream = Stream(ALERT)
    moved = stream.take_rows(["a"] * ROWS, np.arange(ROWS, dtype=float), x[0])
    assert moved.fields["alarm"].shape == (ROWS,)
    assert moved.fields["channels"].shape == (ROWS, D)
    inside = moved.fields["alarm"] == 1.0
    np.testing.assert_allclose(moved.fields["channels"][inside].sum(axis=1), 1.0)


def test_covariances_and_rotations_are_watched() -> None:
    rng = np.random.default_rng(1)
    lines = []
    for t in range(220):
        y = rng.standard_normal((20, 2)) * (1.0 if t < 200 else 3.0)
        c = (y.T @ y / 20).tolist()
        lines.append(json.dumps({"key": "a", "time": t, "covariance": c, "n_samples": 20}).encode())
    found = through(replace(ALERT, mean="zero"), lines, 50)
    begun = [line for line in found if line["alarm"] == "begins"]
    assert [line["time"] // 10 for line in begun] == [20.0]
    assert sum(begun[0]["channels"].values()) == pytest.approx(1.0, abs=2e-3)
    turns = []
    for t in range(220):
        turn = Rotation.from_rotvec([0.0, 0.0, 0.01 * t + (0.0 if t < 200 else 1.0)])
        q = (turn * Rotation.from_rotvec(0.01 * rng.standard_normal(3))).as_quat().tolist()
        turns.append(json.dumps({"key": "a", "time": t, "quaternion": q}).encode())
    found = through(replace(ALERT, mean="zero", adapt="no"), turns, 50)
    assert 200.0 in [line["time"] for line in found if line["alarm"] == "begins"]
    assert all(line["channels"] is None for line in found)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="--alerts-only needs --alert"):
        Stream(Settings(alerts_only=True))
    with pytest.raises(ValueError, match="--time-unit"):
        Stream(Settings(alert="1/day"))
    with pytest.raises(ValueError, match="rate"):
        Stream(Settings(alert="often"))
    assert Stream(Settings(alert="1/day", time_unit=60.0)).alarm is not None


def test_the_operator_for_spark_carries_alarms_over_micro_batches() -> None:
    pd = pytest.importorskip("pandas")
    path = Path(__file__).parents[1] / "examples" / "spark_stream.py"
    spec = importlib.util.spec_from_file_location("spark_stream", path)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    x = recordings()[0]
    times = np.arange(ROWS, dtype=float)
    rows = pd.DataFrame({"key": "a", "time": times, "x": list(x)})
    settings = replace(ALERT, fields=example.FIELDS)
    state, alarms = None, []
    for part in (rows[:205], rows[205:]):
        state, found = example.Operator(settings, D).step(state, part.reset_index(drop=True))
        assert {name.split()[0] for name in example.ESTIMATES.split(", ")} == set(found)
        alarms += found["alarm"]
        assert [row is None for row in found["shares"]] == [
            word not in ("begins", "lasts") for word in found["alarm"]
        ]
    whole = watch(x, Alarm(1e-3, 30), tracker=KGMRF(mean="ewm"))
    assert alarms == [[None, "begins", "lasts", "ends"][s] for s in whole.status]
    plain = example.Operator(replace(settings, alert=None), D).step(None, rows)[1]
    assert plain["alarm"] == [None] * ROWS


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_loop_of_the_page_posts_every_alarm_to_a_webhook(tmp_path: Path) -> None:
    """`samples | kgmrf stream ... | while read ...` of docs/howto_alerts.md, with a server."""
    page = (Path(__file__).parents[1] / "docs" / "howto_alerts.md").read_text()
    loop = re.search(r"    (samples \| kgmrf stream .*?done)$", page, re.M | re.S)
    assert loop is not None
    posted: list[dict[str, Any]] = []

    class Webhook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *words: Any) -> None:
            pass

    x = recordings()
    x[0, 200:230] += 30.0
    (tmp_path / "in").write_bytes(b"\n".join(lines_of(x)) + b"\n")
    words = loop[1].replace("/var/lib/kgmrf", str(tmp_path)).replace("1e-6", "1e-4")
    python = Path(sys.executable).as_posix()
    tools = f'samples() {{ cat {tmp_path}/in; }}\nkgmrf() {{ "{python}" -m kgmrf "$@"; }}\n'
    server = HTTPServer(("127.0.0.1", 0), Webhook)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}/"
        script = f"set -euo pipefail\nexport URL={url}\n{tools}{words}"
        subprocess.run(["bash", "-c", script], check=True, capture_output=True, timeout=60)
    finally:
        server.shutdown()
    begun = [(line["key"], line["time"]) for line in posted if line["alarm"] == "begins"]
    assert ("k0", 200.0) in begun
    assert posted[0]["channels"]
