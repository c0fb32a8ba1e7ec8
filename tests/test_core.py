"""The core as a whole: the same bits however work is cut up, threads, forks, refusals."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kgmrf
from kgmrf import KGMRF, RotationTracker, TrackerBank, simulate
from kgmrf.engines import core
from kgmrf.vision.cells import cell_moments, colour_and_gradient
from kgmrf.vision.resample import cut_window, sample_window

SOURCES = str(Path(kgmrf.__file__).parents[1])
PATIENCE = 300  # seconds; a busy machine takes its time, a child that hangs never ends

BANKS: dict[str, dict[str, Any]] = {
    "ensemble": {},
    "law": {"gains": "information"},
    "printed": {"gains": "printed"},
}


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python with these sources."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": SOURCES, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


# ------------------------------------------------------------------------- determinism


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(sorted(BANKS)), st.integers(2, 9), st.integers(0, 2**32 - 1))
def test_chunks_and_order_of_a_bank_give_the_same_bits(kind: str, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, order = 23, rng.permutation(23)
    x = rng.normal(size=(12, n, 2 * d, d))
    x[rng.random(x.shape[:2]) < 0.1] = np.nan
    x = np.swapaxes(x, -1, -2) @ x / (2 * d)
    banks = [
        TrackerBank(n, d, n_threads=1, n_samples=2 * d, time_unit=1.0, **BANKS[kind])
        for _ in range(3)
    ]
    for frame in x:
        banks[0].update(frame)
        banks[1].update(frame[order])
        for part in np.array_split(np.arange(n), 3):
            banks[2].feed(
                part, frame[part], dt=np.ones(len(part)), n_samples=np.full(len(part), 2.0 * d)
            )
    np.testing.assert_array_equal(banks[1].covariance, banks[0].covariance[order])
    np.testing.assert_array_equal(banks[2].covariance, banks[0].covariance)


def test_many_threads_give_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(3, 4096, 8, 4))
    x = np.swapaxes(x, -1, -2) @ x / 8
    banks = [TrackerBank(4096, 4, n_samples=8, n_threads=k, gains="information") for k in (1, 4)]
    for frame in x:
        for bank in banks:
            bank.update(frame)
    np.testing.assert_array_equal(banks[0].covariance, banks[1].covariance)


SAME = """
import hashlib, numpy as np, kgmrf
x = np.random.default_rng(0).normal(size=(60, 5))
parts = [kgmrf.KGMRF(gains=g).filter(x).covariance for g in ("information", "zero_lag")]
parts += [kgmrf.KGMRF().filter(x).covariance]
parts += [kgmrf.KGMRF(rank=2).filter(np.tile(x, 4)).covariance]
shake = kgmrf.simulate.camera_shake(seed=1).observations[:60]
parts += [kgmrf.RotationTracker().filter(shake).rotation]
from kgmrf.vision import BoxTracker
scene = np.random.default_rng(0).integers(0, 255, (60, 80, 3)).astype(np.uint8)
box = BoxTracker()
box.init(scene, (20, 15, 24, 20))
parts += [np.array(box.update(np.roll(scene, k, 1))[1]) for k in range(3)]
print(hashlib.sha256(b"".join(np.ascontiguousarray(p).tobytes() for p in parts)).hexdigest())
"""


def test_every_process_gives_the_same_bits() -> None:
    done = [run(SAME) for _ in range(2)]
    assert not any(one.returncode for one in done), done[0].stderr
    assert done[0].stdout == done[1].stdout


LEVELS = () if core.compiled() is None else core.compiled().levels[1:]


def everything(x: np.ndarray, turns: np.ndarray, image: np.ndarray) -> dict[str, np.ndarray]:
    """Of each engine what its trackers show."""
    found = {str(g): KGMRF(gains=g).filter(x) for g in ("auto", "information", "zero_lag")}
    found["low rank"] = KGMRF(rank=2).filter(np.tile(x, 3))
    shown = {name: result.covariance for name, result in found.items()}
    shown["rotations"] = RotationTracker().filter(turns).rotation
    window = cut_window(image, 2.0, 3.0, 40.0, 30.0, 1.0, 1.0)
    planes = sample_window(window, 4.0, 5.0, 0.8, 0.9, 26, 26)
    features = colour_and_gradient(planes, *np.ones((2, 5), np.float32))
    return shown | {"vision": cell_moments(features, 6, 3, 0.01)}


@pytest.mark.skipif(not LEVELS, reason="a build for one level of processor")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("d", [3, 8, 11])
def test_levels_of_processor_differ_by_conditioning(
    level: str, d: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = np.random.default_rng(d)
    x = g.normal(size=(120, d)) @ (np.eye(d) + 0.3 * g.normal(size=(d, d)))
    x[g.random(x.shape) < 0.05] = np.nan
    turns = simulate.camera_shake(seed=1).observations[:60]
    image = g.uniform(0, 255, (60, 60, 3)).astype(np.float32)
    best = everything(x, turns, image)
    near = everything(np.nextafter(x, np.inf), np.nextafter(turns, 2.0), np.nextafter(image, 300))
    monkeypatch.setenv("KGMRF_LEVEL", level)
    for name, found in everything(x, turns, image).items():
        expected = best[name]
        share = 1e-9 if found.dtype == np.float64 else 100 * np.finfo(np.float32).eps
        spread = np.nanmax(np.abs(expected - near[name]))
        bound = share * np.nanmax(np.abs(expected)) + 200 * spread
        assert np.nanmax(np.abs(found - expected)) <= bound, name


@pytest.mark.parametrize("kind", ["ensemble", "law", "rotation"])
def test_chunks_are_the_whole(kind: str) -> None:
    if kind == "rotation":
        seen = simulate.camera_shake(seed=1).observations[:80]
        trackers = [RotationTracker(), RotationTracker()]
    else:
        seen = np.random.default_rng(0).normal(size=(80, 6))
        trackers = [KGMRF(**BANKS[kind]), KGMRF(**BANKS[kind])]
    whole = trackers[0].filter(seen)
    parts = [trackers[1].filter(seen[k : k + 7]) for k in range(0, 80, 7)]
    for name in ("rotation",) if kind == "rotation" else ("covariance", "log_likelihood"):
        pieces = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(pieces, getattr(whole, name))


# ------------------------------------------------------------------------- threads and forks

TOGETHER = """
import threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from kgmrf import KGMRF
start = threading.Barrier(4)
x = np.random.default_rng(0).normal(size=(40, 3))
def first(_):
    start.wait()
    return KGMRF().filter(x).covariance.tobytes()
with ThreadPoolExecutor(4) as pool:
    assert len(set(pool.map(first, range(4)))) == 1
"""


def test_threads_that_start_together_find_the_core_complete() -> None:
    done = run(TOGETHER)
    assert done.returncode == 0, done.stderr


FORK = """
import os, signal, threading, time
import numpy as np
from kgmrf import TrackerBank

bank = TrackerBank(2_048, 2, n_threads=2{settings})
x = np.random.default_rng(0).normal(size=(3, 2_048, 2))
bank.update(x[0])
busy = {busy}
def work():
    while busy:
        bank.update(x[0])
worker = threading.Thread(target=work)
worker.start()
children = []
for _ in range(6 if busy else 1):
    child = os.fork()
    if child == 0:
        bank.update(x[1])
        os._exit(0 if np.isfinite(bank.covariance).all() else 3)
    children.append(child)
    time.sleep(0.02)
end, states = time.monotonic() + 60, []
while children and time.monotonic() < end:
    for child in list(children):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            children.remove(child)
            states.append(status)
    time.sleep(0.05)
busy = False
worker.join()
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
assert not children, "a child hangs"
assert not any(states), states
bank.update(x[2])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="fork beside threads: Linux only")
@pytest.mark.parametrize("settings", ["", ', gains="zero_lag"'], ids=["default", "zero_lag"])
@pytest.mark.parametrize("busy", [False, True], ids=["after", "beside"])
def test_a_fork_after_or_beside_a_threaded_bank_goes_on(settings: str, busy: bool) -> None:
    """The child of a fork hung for ever, after a threaded bank or while another thread used one."""
    done = run(FORK.format(settings=settings, busy=busy))
    assert done.returncode == 0, done.stderr


# ------------------------------------------------------------------------- what it is built from


def test_no_function_leaks_between_levels_of_processor() -> None:
    """A weak function of one level could be the copy that the linker keeps for all."""
    built = Path(SOURCES).parent / "build" / "core"
    objects = [p for name in ("loops", "law") for p in built.rglob(f"{name}.cpp.o")]
    if not objects or not sys.platform.startswith("linux"):
        pytest.skip("no objects of the core: it was not built here")
    names = subprocess.run(["nm", "-C", *objects], capture_output=True, text=True, check=True)
    defined = [line for line in names.stdout.splitlines() if line[:16].strip()]
    assert not [line for line in defined if line[17:18] == "W"]


def test_a_core_of_other_sources_is_refused() -> None:
    """A stale core beside newer Python files fails with odd errors, or not at all."""
    if core.compiled() is None:
        pytest.skip("no compiled core")
    stale = SimpleNamespace(checksum=core.compiled().checksum ^ 1, __file__="/there/_core.so")
    with pytest.raises(
        ImportError, match=r"/there/_core\.so was built from another version.*make core"
    ):
        core._require_same_sources(stale)
    core._require_same_sources(core.compiled())


def test_warmup_says_that_it_does_nothing() -> None:
    with pytest.warns(DeprecationWarning, match="does nothing"):
        kgmrf.warmup()


def test_arrays_of_another_kind_are_refused() -> None:
    """Nothing is converted: what is written into a copy would be lost."""
    compiled = core.compiled()
    if compiled is None:
        pytest.skip("no compiled core")
    with pytest.raises(TypeError):
        compiled.inspect(np.eye(2, dtype=np.float32)[None], 1e-8, np.zeros(1, np.int8))
    with pytest.raises(ValueError, match="square"):
        compiled.inspect(np.ones((1, 2, 3)), 1e-8, np.zeros(1, np.int8))
    with pytest.raises(ValueError, match="one number each"):
        compiled.inspect(np.ones((2, 2, 2)), 1e-8, np.zeros(1, np.int8))
