"""Which files a result depends on, and whether they are as they were when it was made.

A unit depends on every Python file of ours that its module imports, directly or not, inside
functions too; on the part of the compiled core behind each engine that these files ask for; and on
data files that they name. A result is current while all of these say the same. Comments and
docstrings may change, and files that only show results do not count.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path

import kgmrf
from experiments import store
from experiments.store import HERE, Unit

ROOT = HERE.parent
PACKAGES = {"kgmrf": Path(kgmrf.__file__).resolve().parent, "experiments": HERE}
CORE = PACKAGES["kgmrf"].parent / "core"

SHOWN = re.compile(
    r"experiments\.(streams\.)?(chart|figures|report|verdicts|markup|reading|comparison|spoken|"
    r"headline|tables|shown|markdown|sources|catalogue|running|__main__)\w*"
)
"""Modules that only show results or keep them: editing a caption does not make a result old."""

FACES = ("__main__", "cli", "commands", "dask", "demo", "diagnosis", "plots", "stream")
"""Parts of the package that no result is computed with; a test holds them to that."""

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


def files(unit: Unit) -> list[Path]:
    """All files that the unit's result depends on."""
    for key, names in RIVALS.items():
        if re.fullmatch(key, unit.key):
            return [ROOT / name for name in names]
    return _files(f"experiments.{unit.function.partition(':')[0]}")


def state(unit: Unit) -> str:
    """A short hash of the files that the unit's result depends on."""
    digest = hashlib.sha256()
    for path in files(unit):
        digest.update("/".join(path.parts[-2:]).encode())
        if path.exists():  # it may go while a run goes on
            stat = path.stat()
            digest.update(_content(path, stat.st_mtime_ns, stat.st_size).encode())
    return digest.hexdigest()[:12]


def current(unit: Unit, results: Path) -> bool:
    """Whether the unit's result is there and the files that it depends on are as they were."""
    record = store.load(unit.path(results)) or {}
    made = record.get("made_with", {}).get("source")
    return made == state(unit) and store.finished(unit, results)


def stale(units: Iterable[Unit], results: Path) -> list[Unit]:
    """Units whose results are there, but made by other files or settings than these."""
    return [u for u in units if u.path(results).exists() and not _same(u, results)]


def _same(unit: Unit, results: Path) -> bool:
    """Current, or not available here for a reason that these files gave."""
    record = store.load(unit.path(results)) or {}
    made = record.get("made_with", {}).get("source")
    refused = record.get("status") == "not available"
    return made == state(unit) and (refused or store.finished(unit, results))


def forget() -> None:
    """Read the files again: they may have changed."""
    for function in (_files, _path):
        function.cache_clear()


# --------------------------------------------------------------------------- the graph of imports


@functools.cache
def _files(module: str) -> list[Path]:
    modules = reachable(module)
    paths = [path for name in modules if (path := _path(name)) is not None]
    found = {*paths, *(data for path in paths for data in _read(path).data)}
    found |= _core_files({part for path in paths for part in _read(path).core})
    return sorted(found)


def reachable(module: str, *, shown: bool = False) -> set[str]:
    """Our modules that ``module`` imports, itself included; ``shown``: through those that only
    show results as well."""
    found: set[str] = set()
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _path(name)
        if name in found or path is None or (not shown and _only_shows(name)):
            continue
        found.add(name)
        waiting += [name.rpartition(".")[0], *_read(path).modules]
    return found


def _only_shows(module: str) -> bool:
    package, _, rest = module.partition(".")
    if package == "kgmrf":
        return rest.partition(".")[0] in FACES
    return SHOWN.fullmatch(module) is not None


@functools.cache
def _path(module: str) -> Path | None:
    """The file of one of our modules; None where there is none."""
    package, *parts = module.split(".")
    if package not in PACKAGES:
        return None
    place = PACKAGES[package].joinpath(*parts)
    for path in (place / "__init__.py", place.with_suffix(".py") if parts else place):
        if path.is_file():
            return path
    return None


class _Read:
    """What one Python file names: modules of ours, engines of the core, files beside it."""

    def __init__(self, path: Path) -> None:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        words = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
        texts = {word for word in words if isinstance(word, str)}
        self.data = {path.parent / w for w in texts if re.fullmatch(r"\w+\.(json|toml|csv)", w)}
        self.data = {place for place in self.data if place.is_file()}
        self.core = set(_engines(tree, path))
        self.modules = set(_imports(tree, path))
        if self.core:  # the readable twin stands in where the core has no loop
            self.modules |= {f"kgmrf.readable.{name}" for name in self.core}


def _read(path: Path) -> _Read:
    stat = path.stat()
    return _read_once(path, stat.st_mtime_ns, stat.st_size)


@functools.cache
def _read_once(path: Path, _changed: int, _size: int) -> _Read:
    return _Read(path)


def _imports(tree: ast.AST, path: Path) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: import of a relative name"
            yield node.module or ""
            for alias in node.names:
                yield f"{node.module}.{alias.name}"
                yield from _late_names().get((node.module or "", alias.name), ())
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield from _late_names().get((node.value.id, node.attr), ())


@functools.cache
def _late_names() -> dict[tuple[str, str], list[str]]:
    """(package, name) -> the module that the package imports when the name is first asked for."""
    return {("kgmrf", name): [module] for name, module in vars(kgmrf)["_OPTIONAL"].items()}


def _engines(tree: ast.AST, path: Path) -> Iterator[str]:
    """Names of parts of the core: ``core.loop("LowRank", ...)`` is "low_rank"."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            named = getattr(node.args[0], "value", None)
            if called in ("loop", "functions", "readable") and isinstance(named, str):
                part = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", named).lower()
                yield part
                if path.parent.name == "torch":
                    yield f"{part}_adjoint"


# ------------------------------------------------------------------------------- the compiled core

FRAME = ("module.cpp", "loops.cpp", "processor.cpp", "processor.hpp", "declare.py")
"""What every engine needs; loops.cpp is a table of all, so what it includes does not count."""


def _core_files(parts: set[str]) -> set[Path]:
    """The sources of these engines with all that they include; none outside a source tree."""
    if not parts or not CORE.is_dir():
        return set()
    waiting = [CORE / f"{start}{part}{end}" for part in parts
               for start, end in (("", ".hpp"), ("", ".cpp"), ("bind_", ".cpp"))]  # fmt: skip
    found = {path for name in FRAME if (path := CORE / name).is_file()}
    found |= {path for path in (ROOT / "CMakeLists.txt",) if path.is_file()}
    while waiting:
        path = waiting.pop()
        if path.is_file() and path not in found:
            found.add(path)
            included = re.findall(r'#include "(.+?)"', path.read_text(encoding="utf-8"))
            waiting += [CORE / name for name in included]
    return found


# --------------------------------------------------------------------------- what a file says


@functools.lru_cache(maxsize=4096)
def _content(path: Path, _changed: int, _size: int) -> str:
    """A hash of a file without blank lines, comments and docstrings."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        text = _code(text)
    elif path.suffix in (".hpp", ".cpp"):
        text = re.sub(r"(?m)^\s*//.*$", "", text)
    lines = [line for line in text.splitlines() if line.strip()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _code(text: str) -> str:
    """Python without comments and docstrings (and other statements that are only a text)."""
    lines = text.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            row, column = token.start
            lines[row - 1] = lines[row - 1][:column].rstrip()
    for node in ast.walk(ast.parse(text)):
        said = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if said and isinstance(node.value.value, str):
            for row in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                lines[row - 1] = ""
    return "\n".join(lines)
