"""Result files: one per unit of work, written at once or not at all."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import re
import signal
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

import kgmrf

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
QUICK_RESULTS = HERE.parent / "out" / "experiments-quick"
TIMES = HERE.parent / "out" / "experiments-times.json"


TIMED = re.compile(
    r"(cost|otb|otb_unseen|steady|streams)/.+|low_rank/(cost|crossover_.+)|rotations/cost|layers/cost"
)
"""Units that measure time; all others give the same file in every run of the same sources."""


class NotAvailable(Exception):
    """A unit that cannot be run with this version of the package, and why."""


@dataclass(frozen=True)
class Unit:
    """One piece of work and the file that holds its result.

    ``function`` is "module:name" inside this package; it gets ``settings`` as keyword arguments
    and returns plain numbers, words, lists and tables.
    """

    experiment: str
    name: str
    function: str
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """What to type after ``run`` to do this unit alone."""
        return f"{self.experiment}/{self.name}"

    def path(self, results: Path) -> Path:
        """Where the result goes."""
        return results / self.experiment / f"{self.name}.json"

    def call(self) -> Any:
        """Compute the result."""
        module, name = self.function.split(":")
        function: Callable[..., Any] = getattr(import_module(f"experiments.{module}"), name)
        return function(**self.settings)


def unit(experiment: str, name: str, function: Callable[..., Any], **settings: Any) -> Unit:
    """A unit that calls a function of an experiment's module with ``settings``."""
    module = function.__module__.removeprefix("experiments.")
    return Unit(experiment, name, f"{module}:{function.__name__}", settings)


def load(path: Path) -> dict[str, Any] | None:
    """The record in a file; None where there is none or it is damaged."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def finished(unit: Unit, results: Path) -> bool:
    """Whether the unit's result is there, whole, and of the same settings."""
    record = load(unit.path(results))
    return (
        record is not None
        and record.get("status") == "done"
        and record.get("settings") == json.loads(json.dumps(unit.settings))
    )


RIVALS = {
    r"otb(_unseen)?/(CSRT|KCF|KCF-0|MIL|MOSSE)\..+": (
        "experiments/otb.py",
        "experiments/otb_unseen.py",
        "experiments/drawn_videos.py",
        "experiments/evaluation.py",
        "experiments/otb_rivals.py",
        "experiments/sequences.py",
        "src/kgmrf/vision/regions.py",
        "src/kgmrf/vision/videos.py",
    ),
}
"""Units of other people's programs, and all files of ours that their results depend on."""


def current(unit: Unit, results: Path) -> bool:
    """Whether the unit's result is there and these very sources made it, or would make it again.

    A rival's result stays valid while none of the files it depends on has changed since the commit
    that made it, with the same OpenCV and processor; `confirm` then says so in the record.
    """
    record = load(unit.path(results)) or {}
    made, now = record.get("made_with", {}), provenance()
    alike = all(made.get(k) == now[k] for k in ("processor", "opencv-contrib-python-headless"))
    valid = alike and _unchanged(made.get("commit"), files_of(unit))
    return (valid or state(record) == fingerprint()) and finished(unit, results)


def files_of(unit: Unit) -> tuple[str, ...]:
    """The files that a rival's result depends on; none where it depends on all sources."""
    return next((files for key, files in RIVALS.items() if re.fullmatch(key, unit.key)), ())


def state(record: dict[str, Any]) -> str | None:
    """The state of the sources for which a record was made or confirmed."""
    found: dict[str, Any] = record.get("confirmed_for") or record.get("made_with", {})
    return found.get("source")


def confirm(unit: Unit, results: Path) -> None:
    """Write into a rival's record that it is valid for the present sources, and why."""
    record = load(unit.path(results))
    if record is not None and state(record) != fingerprint() and files_of(unit):
        record["confirmed_for"] = {
            "commit": _commit(),
            "source": fingerprint(),
            "unchanged_since_it_was_made": list(files_of(unit)),
        }
        write(unit.path(results), record)


@functools.cache
def _unchanged(commit: str | None, files: tuple[str, ...]) -> bool:
    """Whether the files are there and as they were at a commit; "+" is a state that no one kept."""
    there = bool(files) and all((HERE.parent / name).exists() for name in files)
    if not there or not commit or commit.endswith("+"):
        return False
    return _git("diff", "--quiet", commit, "--", *files) is not None


def execute(unit: Unit, results: Path) -> dict[str, Any]:
    """Run a unit and write its record; returns the record without the data, with its CPU seconds.

    What a unit took is no part of its record: two runs of the same sources write the same files,
    but for units that measure time.
    """
    busy = time.process_time()
    record: dict[str, Any] = {
        "experiment": unit.experiment,
        "unit": unit.name,
        "settings": unit.settings,
        "rerun": f"python -m experiments run {unit.key} --fresh",
    }
    try:
        record["data"] = unit.call()
        record["status"] = "done"
    except NotAvailable as reason:
        record["status"] = "not available"
        record["reason"] = str(reason)
    record["made_with"] = provenance()
    write(unit.path(results), record)
    spent = {"cpu_seconds": round(time.process_time() - busy, 3)}
    return {k: v for k, v in record.items() if k != "data"} | spent


def prepare_worker() -> None:
    """Workers leave Ctrl-C to the parent, and tell only what they return."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Rivals with absurd trial settings overflow; their error counts as infinite.
    warnings.simplefilter("ignore", RuntimeWarning)


def write(path: Path, record: Any) -> None:
    """Write JSON beside the target and move it into place: a reader sees all of it or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(brief(record), indent=None, separators=(",", ":"), allow_nan=False)
    handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.chmod(scratch, 0o644)
        os.replace(scratch, path)
    except BaseException:
        Path(scratch).unlink(missing_ok=True)
        raise


def clear(results: Path, known: set[Path] | None = None) -> int:
    """Remove what a killed run left half written, and files that no unit of ``known`` writes."""
    for part in results.glob("*/.*.part"):
        part.unlink(missing_ok=True)
    old = [p for p in results.glob("*/*.json") if known is not None and p not in known]
    for path in old:
        path.unlink(missing_ok=True)
    return len(old)


def costs(spent: dict[str, float] | None = None) -> dict[str, float]:
    """CPU seconds of every unit in its last run on this machine, after adding those ``spent``."""
    known = {**(load(TIMES) or {}), **(spent or {})}
    if spent:
        write(TIMES, known)
    return known


def brief(value: Any, digits: int = 5) -> Any:
    """Plain JSON: arrays as lists, numbers to ``digits`` significant places, NaN and inf as
    null."""
    if isinstance(value, dict):
        return {str(k): brief(v, digits) for k, v in value.items()}
    if isinstance(value, np.ndarray):
        return brief(value.tolist(), digits)
    if isinstance(value, (list, tuple)):
        return [brief(v, digits) for v in value]
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        return int(value)
    if isinstance(value, (float, np.floating)):
        return float(f"{float(value):.{digits}g}") if np.isfinite(value) else None
    return value


@functools.cache
def provenance() -> dict[str, Any]:
    """Versions, commit and source fingerprint behind a result."""
    return {
        "kgmrf": kgmrf.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        **{name: _version(name) for name in ("scipy", "opencv-contrib-python-headless")},
        "commit": _commit(),
        "source": fingerprint(),
        "processor": _processor(),
    }


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The checked-out commit, with a plus sign if the sources differ from it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    if head is None:
        return None
    changed = _git("status", "--porcelain", "--", "src", "experiments/*.py")
    return head + "+" if changed else head


def _git(*words: str) -> str | None:
    """What git says; None where it fails or is not there."""
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=HERE.parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


READERS = re.compile(
    r"(chart|figures|report|verdicts|markup|reading|comparison|claims|spoken|headline|tables|shown"
    r"|markdown|low_rank_tables|__main__)\w*\.py"
)
"""Files that only show results: editing a caption does not make a result old."""


FACES = ("__main__", "cli", "commands", "dask", "demo", "diagnosis", "plots", "stream")
"""Parts of the package that no result is computed with; a test holds them to that."""


@functools.cache
def fingerprint() -> str:
    """A short hash of the sources that compute results: same code, same hash."""
    package = Path(kgmrf.__file__).resolve().parent
    digest = hashlib.sha256()
    for root in (package, HERE):
        for path in sorted(root.rglob("*.py")):
            if root == HERE and READERS.fullmatch(path.name):
                continue
            if root == package and path.relative_to(root).parts[0].removesuffix(".py") in FACES:
                continue
            digest.update(path.relative_to(root).as_posix().encode())
            digest.update(path.read_bytes())
    for path in sorted(package.parent.glob("core/*pp")):  # in a source tree
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _processor() -> str:
    """The processor's own name, because run times mean nothing without it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
