"""One state of the sources in a process of its own, for `benchmarks.versions`: SOURCES [TRACKS].

Says which cases it has; then takes the name of a case from each line of its input and answers with
seconds of processor time per unit. It runs with older states too, so it uses nothing that is new.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

# An editable install would find its own sources first.
sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "ScikitBuildInplaceFinder"]
sys.path.insert(0, sys.argv[1])
warnings.simplefilter("ignore")

import numpy as np  # noqa: E402

import kgmrf  # noqa: E402
from kgmrf import KGMRF, RotationTracker, TrackerBank  # noqa: E402

TRACKS = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
g = np.random.default_rng(0)
Case = tuple[Callable[[], Any], int]


def rows(n: int, d: int) -> Any:
    """Samples ``(n, d)`` with correlations."""
    return g.normal(size=(n, d)) @ (np.eye(d) + 0.3 * g.normal(size=(d, d)))


def spd(n: int, d: int) -> Any:
    """Covariances ``(n, d, d)`` of 2 d samples."""
    x = g.normal(size=(n, 2 * d, d))
    return np.einsum("nmi,nmj->nij", x, x) / (2 * d)


def in_turn(take: Callable[[Any], Any], things: list[Any]) -> Callable[[], None]:
    """The next of the things at each call."""
    turn = [0]

    def call() -> None:
        turn[0] += 1
        take(things[turn[0] % len(things)])

    return call


def each(take: Callable[[Any], Any], things: Any) -> Callable[[], None]:
    """All of the things, one by one."""

    def call() -> None:
        for thing in things:
            take(thing)

    return call


def sequences() -> dict[str, Case]:
    """Rows of a sequence, and one at a time."""
    cases: dict[str, Case] = {}
    for d in (3, 8, 18):
        x = rows(400, d)
        cases[f"filter, d = {d}"] = (lambda x=x: KGMRF().filter(x), 400)
    tracker = KGMRF()
    tracker.filter(rows(100, 8))
    cases["partial_fit, d = 8"] = (each(tracker.partial_fit, rows(200, 8)), 200)
    ahead = KGMRF()
    ahead.filter(rows(100, 8))
    many = [None] * 100
    cases["forecast(1).covariance, d = 8"] = (
        each(lambda _: ahead.forecast(1).covariance, many),
        100,
    )
    wide = rows(300, 100)
    cases["filter, d = 100 (low rank)"] = (lambda: KGMRF().filter(wide), 300)
    return cases


def banks() -> dict[str, Case]:
    """Steps of many tracks, on one thread."""
    bank, law = (
        TrackerBank(TRACKS, 7, n_threads=1),
        TrackerBank(TRACKS, 7, n_threads=1, gains="information", n_samples=14),
    )
    samples, matrices = list(g.normal(size=(2, TRACKS, 7))), [spd(TRACKS, 7) for _ in range(2)]
    for _ in range(3):
        each(bank.update, samples)()
        each(law.update, matrices)()
    return {
        "default bank, d = 7": (in_turn(bank.update, samples), TRACKS),
        "single-law bank, d = 7": (in_turn(law.update, matrices), TRACKS),
    }


def rotations() -> dict[str, Case]:
    """Rows of a shaken camera, and one at a time."""
    shake = kgmrf.simulate.camera_shake(seed=1).observations
    online = RotationTracker()
    online.filter(shake[:100])
    return {
        "RotationTracker filter": (lambda: RotationTracker().filter(shake), len(shake)),
        "RotationTracker update": (each(online.update, shake[:60]), 60),
    }


def boxes() -> dict[str, Case]:
    """Images of a box that is followed, small and large."""
    try:
        from kgmrf.vision import RegionCovarianceTracker
        from kgmrf.vision.clip import demo_clip

        clip = demo_clip(12)
    except ImportError:
        return {}
    cases: dict[str, Case] = {}
    for name, size in (("180 x 240", 1), ("720 x 960", 4)):
        frames = np.ascontiguousarray(np.repeat(np.repeat(clip.frames, size, 1), size, 2))

        def follow(frames: Any = frames, box: Any = clip.boxes[0] * size) -> None:
            tracker = RegionCovarianceTracker()
            tracker.init(frames[0], box)
            each(tracker.update, frames[1:])()

        cases[f"box, {name} pixels"] = (follow, 11)
    return cases


def main() -> None:
    """Say what there is, then answer."""
    cases = sequences() | rotations() | banks() | boxes()
    for call, _ in cases.values():
        call()
    print(kgmrf.__file__, *cases, sep="|", flush=True)
    for line in sys.stdin:
        call, units = cases[line.strip()]
        start = time.process_time()
        call()
        print((time.process_time() - start) / units, flush=True)


main()
