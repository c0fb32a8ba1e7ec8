"""``kgmrf stream`` as a process: signals, locks, full disks, torn lines, reports."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import kgmrf
from kgmrf.stream import Settings, Stream, run
from kgmrf.stream.endpoints import Sink, Stop
from kgmrf.stream.run import Lock, Locked

BASE = [sys.executable, "-m", "kgmrf", "stream", "-q", "--fields", "covariance"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(kgmrf.__file__).parents[1])}
posix = pytest.mark.skipif(os.name != "posix", reason="signals and limits of POSIX")


def lines(first: int, last: int) -> list[bytes]:
    return [
        b'{"key": "k%d", "time": %d, "x": [%d.5, %d.25]}\n' % (i % 3, i, i % 5, i % 7)
        for i in range(first, last)
    ]


def expected(n: int) -> list[bytes]:
    text = Stream(Settings(fields=("covariance",))).take([row[:-1] for row in lines(0, n)])
    return text.splitlines(keepends=True)


def start(*more: str, **options: Any) -> subprocess.Popen[bytes]:
    given: dict[str, Any] = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT)
    return subprocess.Popen([*BASE, *more], **{**given, "stderr": subprocess.PIPE, **options})


def state_lines(path: Path) -> int:
    stream = Stream(Settings(fields=("covariance",)))
    stream.restore(path)
    return stream.counts.lines


# ---------------------------------------------------------------------- ends


@posix
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_leaves_a_checkpoint(tmp_path: Path, number: int, code: int) -> None:
    """SIGTERM and SIGINT once ended a stream without a checkpoint."""
    state = tmp_path / "state"
    process = start("--state", str(state), "--checkpoint-every", "1000")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"".join(lines(0, 30)))
    process.stdin.flush()
    found = [process.stdout.readline() for _ in range(30)]
    process.send_signal(number)
    assert process.wait(timeout=20) == code
    assert found == expected(30)
    assert state_lines(state) == 30
    # Nothing has to be sent again.
    done = subprocess.run(
        [*BASE, "--state", str(state)],
        input=b"".join(lines(30, 50)),
        capture_output=True,
        env=ENVIRONMENT,
        check=True,
    )
    assert done.stdout.splitlines(keepends=True) == expected(50)[30:]


@posix
def test_a_signal_while_nobody_reads(tmp_path: Path) -> None:
    """The output that was not delivered is part of the state."""
    state = tmp_path / "state"
    (tmp_path / "in").write_bytes(b"".join(lines(0, 4000)))  # 300 kB out: more than a pipe takes
    with open(tmp_path / "in", "rb") as source:
        process = start("--state", str(state), stdin=source)
    assert process.stdout is not None
    first = process.stdout
    assert select.select([first], [], [], 120)[0]  # it writes
    time.sleep(1.0)
    assert process.poll() is None
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    read = first.read()
    done = subprocess.run(
        [*BASE, "--state", str(state)], input=b"", capture_output=True, env=ENVIRONMENT, check=True
    )
    whole = expected(4000)
    taken = read[: read.rfind(b"\n") + 1].splitlines(keepends=True)
    assert 0 < len(taken) < 4000
    assert [*taken, *done.stdout.splitlines(keepends=True)] == whole


@posix
def test_a_reader_that_goes_away_leaves_a_checkpoint(tmp_path: Path) -> None:
    """A closed output once ended the stream with exit code 0 and no checkpoint."""
    state = tmp_path / "state"
    process = start("--state", str(state), "--checkpoint-every", "1000")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"".join(lines(0, 30)))
    process.stdin.flush()
    for _ in range(30):
        process.stdout.readline()
    process.stdout.close()
    process.stdin.write(b"".join(lines(30, 40)))
    process.stdin.flush()
    assert process.wait(timeout=20) == 0
    assert state_lines(state) == 40
    done = subprocess.run(
        [*BASE, "--state", str(state)],
        input=b"".join(lines(40, 50)),
        capture_output=True,
        env=ENVIRONMENT,
        check=True,
    )
    # The lines that nobody read come again.
    assert done.stdout.splitlines(keepends=True) == expected(50)[30:]


def test_a_line_that_stops_the_stream_leaves_a_checkpoint(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_bytes(b"".join([*lines(0, 5), b"{\n", *lines(5, 8)]))
    fault = pytest.raises(ValueError, match=r"^line 6")
    with open(source, "rb") as i, open(tmp_path / "out", "wb") as o, fault:
        run(Settings(fields=("covariance",)), i.fileno(), o.fileno(), state=tmp_path / "s")
    assert state_lines(tmp_path / "s") == 5
    assert (tmp_path / "out").read_bytes().splitlines(keepends=True) == expected(5)


# ---------------------------------------------------------------------- one process per state


def test_a_second_process_says_who_has_the_state(tmp_path: Path) -> None:
    """Of two processes on one state the last writer won, and the tracks of the other vanished."""
    state = tmp_path / "state"
    process = start("--state", str(state))
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(lines(0, 1)[0])
    process.stdin.flush()
    process.stdout.readline()
    other = subprocess.run(
        [*BASE, "--state", str(state)], input=b"", capture_output=True, env=ENVIRONMENT
    )
    assert other.returncode == 2
    assert re.search(rf"in use by process {process.pid} on \S+; stop it first", str(other.stderr))
    assert len(other.stderr.splitlines()) == 1
    process.kill()  # the lock ends with the process, also so
    process.wait()
    again = subprocess.run(
        [*BASE, "--state", str(state)], input=b"", capture_output=True, env=ENVIRONMENT
    )
    assert again.returncode == 0, again.stderr


def test_a_lock_that_is_left_behind_locks_nothing(tmp_path: Path) -> None:
    (tmp_path / "s.lock").write_text("4194304 elsewhere\n")
    with Lock(tmp_path / "s"), pytest.raises(Locked, match=f"process {os.getpid()} on"):
        Lock(tmp_path / "s").__enter__()
    with Lock(tmp_path / "s"):
        pass


# ---------------------------------------------------------------------- links, torn lines, disks


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="needs links")
def test_no_link_is_followed(tmp_path: Path) -> None:
    """A link with the name of the temporary file was followed and its target overwritten."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    for name in (".st.part", ".st.0123456789abcdef.part", "st"):
        os.symlink(precious, tmp_path / name)
    stream = Stream(Settings())
    stream.take([lines(0, 1)[0]])
    stream.save(tmp_path / "st")
    assert precious.read_text() == "precious"
    assert not (tmp_path / "st").is_symlink()
    os.symlink(precious, tmp_path / "other.lock")
    with pytest.raises(OSError, match="symbolic links"):
        Lock(tmp_path / "other").__enter__()


def test_what_killed_writers_left_is_cleared(tmp_path: Path) -> None:
    left = tmp_path / ".st.0123456789abcdef.part"
    other = tmp_path / ".st2.0123456789abcdef.part"
    for path in (left, other):
        path.write_text("half")
    (tmp_path / "in").write_bytes(b"".join(lines(0, 3)))
    with open(tmp_path / "in", "rb") as i, open(tmp_path / "out", "wb") as o:
        run(Settings(), i.fileno(), o.fileno(), state=tmp_path / "st")
    assert not left.exists()
    assert other.exists()


def test_a_torn_line_is_cut_off_by_who_goes_on(tmp_path: Path) -> None:
    """A full disk left a torn line, which a replay with >> joined to the next one."""
    settings = Settings(fields=("covariance",))
    out, state, source = tmp_path / "out", tmp_path / "state", tmp_path / "in"
    source.write_bytes(b"".join(lines(0, 10)))
    with open(source, "rb") as i, open(out, "ab") as o:
        run(settings, i.fileno(), o.fileno(), state=state)
    good = out.read_bytes()
    for torn in (expected(11)[10][:17], expected(11)[10][:-1]):
        out.write_bytes(good + torn)
        stream = Stream(settings)
        stream.restore(state)
        source.write_bytes(b"".join(lines(10, 11)))
        copy = tmp_path / "copy"
        copy.write_bytes(state.read_bytes())
        with open(source, "rb") as i, open(out, "ab") as o:
            run(settings, i.fileno(), o.fileno(), state=copy)
        assert out.read_bytes().splitlines(keepends=True) == expected(11)
    # Without a state nothing is known of the file: its last line is ended, not cut off.
    out.write_bytes(b"notes")
    with open(source, "rb") as i, open(out, "ab") as o:
        run(settings, i.fileno(), o.fileno())
    assert out.read_bytes().splitlines()[0] == b"notes"
    assert len(out.read_bytes().splitlines()) == 2


@posix
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """The output may grow to 40 kB and no further; then there is room again."""
    out, state = tmp_path / "out", tmp_path / "state"
    limited = (
        "import resource, signal, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (40_000,) * 2)"
    )
    code = f"{limited}; from kgmrf.cli import main; sys.exit(main(sys.argv[1:]))"
    text = b"".join(lines(0, 700))
    call = [sys.executable, "-c", code, *BASE[3:], "--state", str(state)]
    with open(out, "ab") as sink:
        done = subprocess.run(
            call, input=text, stdout=sink, stderr=subprocess.PIPE, env=ENVIRONMENT
        )
    assert done.returncode == 2
    assert b"File too large" in done.stderr
    assert out.stat().st_size == 40_000
    with open(out, "ab") as sink:
        call = [*BASE, "--state", str(state), "--replay"]
        subprocess.run(call, input=text, stdout=sink, env=ENVIRONMENT, check=True)
    assert out.read_bytes().splitlines(keepends=True) == expected(700)


def test_a_checkpoint_that_does_not_fit_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    stream = Stream(Settings())
    stream.take([row[:-1] for row in lines(0, 5)])
    stream.save(state)
    before = state.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        stream.save(state)
    assert state.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


# ---------------------------------------------------------------------- reports


def test_bad_lines_are_kept_and_named(tmp_path: Path) -> None:
    """Bad lines were counted at the end only, and never named."""
    letters = tmp_path / "bad.jsonl"
    bad = [b"{\n", b'{"key":"a","time":[],"x":[1,2]}\n', b"\xff\xfe\n", *[b"3\n"] * 5]
    text = b"".join([*lines(0, 3), *bad, *lines(3, 6)])
    done = subprocess.run(
        [*BASE, "--on-error", "skip", "--bad-lines", str(letters)],
        input=text,
        capture_output=True,
        env=ENVIRONMENT,
        check=True,
    )
    assert done.stdout.splitlines(keepends=True) == expected(6)
    found = [json.loads(row) for row in letters.read_text().splitlines()]
    assert [row["line"] for row in found] == list(range(4, 12))
    assert found[1]["reason"] == "'time' is an array, not a number"
    assert found[1]["text"] == bad[1].decode()[:-1]
    assert found[2]["text"] == "\\xff\\xfe"
    told = done.stderr.decode().splitlines()
    assert told[0].startswith("kgmrf: line 4 skipped: not JSON")
    assert len(told) == 6
    # Also the line at which a stream stops.
    subprocess.run(
        [*BASE, "--bad-lines", str(letters)], input=b'{"x": [1]}\n{', env=ENVIRONMENT, check=False
    )
    assert json.loads(letters.read_text().splitlines()[-1])["line"] == 2


@posix
def test_statistics_while_it_runs(tmp_path: Path) -> None:
    metrics = tmp_path / "kgmrf.prom"
    process = start("--stats", "0.5", "--metrics", str(metrics), "--on-error", "skip")
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b"".join([*lines(0, 30), b"{\n"]))
    process.stdin.flush()
    first = process.stderr.readline().decode()
    assert first.startswith("kgmrf: line 31 skipped")
    told = process.stderr.readline().decode()
    numbers = "lines=31 keys=3 bad=1 late=0 duplicate=0 forgotten=0 alarms=0"
    pattern = rf"kgmrf: stats {numbers} lines/s=\d+ memory="
    assert re.match(pattern, told)
    text = metrics.read_text()
    assert "kgmrf_stream_lines_total 31\n" in text
    assert "kgmrf_stream_tracks 3\n" in text
    assert re.search(r"^kgmrf_stream_resident_bytes \d+$", text, re.M)
    for row in text.splitlines():
        assert re.fullmatch(r"# (HELP|TYPE) \w+ .+|\w+ -?[0-9.e+]+", row)
    process.stdin.close()
    assert process.wait(timeout=20) == 0


def test_a_line_without_end_is_skipped(tmp_path: Path) -> None:
    text = b"".join([*lines(0, 2), b"x" * 17_000_000, b"\n", *lines(2, 4)])
    (tmp_path / "in").write_bytes(text)
    with open(tmp_path / "in", "rb") as i, open(tmp_path / "out", "wb") as o:
        settings = Settings(fields=("covariance",), on_error="skip")
        stream = run(settings, i.fileno(), o.fileno())
    assert (tmp_path / "out").read_bytes().splitlines(keepends=True) == expected(4)
    assert (stream.counts.lines, stream.counts.bad) == (5, 1)


def test_names_and_dates_through_the_shell() -> None:
    """ISO dates were refused, and a header sensor,ts was taken for channels."""
    text = b"sensor,ts,p,q\nk1,2024-03-01T10:00:00Z,1,2\nk1,2024-03-01T10:00:01Z,2,2\n"
    done = subprocess.run(
        [*BASE, "--format", "csv", "--mean", "expanding"],
        input=text,
        capture_output=True,
        env=ENVIRONMENT,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[2].startswith(b"k1,2024-03-01T10:00:01Z,1.0,")


def test_a_sink_keeps_what_it_could_not_write() -> None:
    read, write = os.pipe()
    stop = Stop()
    stop.signal = signal.SIGTERM
    sink = Sink(write, stop)
    text = b"".join(b"%06d\n" % k for k in range(50_000))
    sink.write(text)
    os.close(write)
    with open(read, "rb") as file:
        taken = file.read()
    if sink.pipe:
        whole = taken[: taken.rfind(b"\n") + 1]
        assert whole + sink.pending == text
        assert 0 < len(whole) < len(text)
