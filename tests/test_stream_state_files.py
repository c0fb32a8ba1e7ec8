"""What stands in the way of a state and its lock, and streams whose keys differ in width."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kgmrf.stream import Settings, Stream, StreamError, run
from kgmrf.stream.run import Lock, Locked

LINE = b'{"key": "a", "time": 0, "x": [1, 2]}'


def follow(state: Path) -> None:
    source, feed = os.pipe()
    os.write(feed, LINE + b"\n")
    os.close(feed)
    sink = os.open(os.devnull, os.O_WRONLY)
    run(Settings(), source, sink, state=state)


@pytest.mark.skipif(not hasattr(os, "link"), reason="needs hard links")
def test_a_lock_that_is_a_hard_link_is_left_alone(tmp_path: Path) -> None:
    """The file behind it was emptied."""
    precious = tmp_path / "precious"
    precious.write_text("years of work")
    os.link(precious, tmp_path / "s.lock")
    with pytest.raises(Locked, match="hard link"), Lock(tmp_path / "s"):
        pass
    with pytest.raises(Locked, match="hard link"):
        follow(tmp_path / "s")
    assert precious.read_text() == "years of work"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
@pytest.mark.parametrize("name", ["s", "s.lock"])
def test_a_pipe_is_no_state(name: str, tmp_path: Path) -> None:
    """It waited for ever."""
    os.mkfifo(tmp_path / name)
    with pytest.raises(ValueError, match="is a pipe or device"):
        follow(tmp_path / "s")


@pytest.mark.parametrize("other", [b"[1, 2, 3]", b"1.5", b"[1]"])
def test_keys_of_another_width_are_refused_with_the_remedy(other: bytes) -> None:
    with pytest.raises(StreamError, match=r"expected \(2,\).* name them.*one stream for each"):
        Stream(Settings()).take([LINE, b'{"key": "b", "time": 0, "x": %b}' % other])
