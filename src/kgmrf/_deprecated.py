"""Old names that go on for one release: modules, methods, settings and words, with a warning.

Everything here is removed in version 0.3. ``docs/upgrading.md`` lists old and new names.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODULES = {
    **{
        f"kgmrf.{name}": f"kgmrf.model.{name}"
        for name in ("density", "tail", "contribution", "factors", "stationary", "centring")
    },
    "kgmrf.integrated_time": "kgmrf.model.integrated_time",
    "kgmrf.state": "kgmrf.model.law_state",
    "kgmrf.motion": "kgmrf.model.law_motion",
    "kgmrf.step": "kgmrf.model.step",
    "kgmrf.smoother": "kgmrf.smoothing.law",
    "kgmrf.estimator": "kgmrf.sklearn.estimator",
    "kgmrf.detector": "kgmrf.sklearn.detector",
    "kgmrf.recentring": "kgmrf.sklearn.recentring",
    "kgmrf.labelled": "kgmrf.tables",
    "kgmrf.trackers.baselines": "kgmrf.baselines",
    "kgmrf.engines.members": "kgmrf.members",
}
"""Modules that have another place."""

STAYING = {"kgmrf.gains": "kgmrf.model.gains", "kgmrf.wishart": "kgmrf.model.wishart"}
"""Modules that are found in both places, ``from kgmrf import gains, wishart``: no warning."""

MEANS = {"running": "expanding", "drift": "ewm"}
"""Words for ``mean=``."""


def warn(old: str, new: str, level: int = 3) -> None:
    """Say once for each place of a caller that a name has another."""
    warnings.warn(
        f"{old} is now {new}; the old name goes in version 0.3", DeprecationWarning, level
    )


def word(value: Any, table: Mapping[str, str], setting: str) -> Any:
    """The word that stands for ``value`` now.

    >>> import warnings
    >>> with warnings.catch_warnings(action="ignore"):
    ...     word("running", MEANS, "mean")
    'expanding'
    """
    if not isinstance(value, str) or value not in table:
        return value
    warn(f"{setting}={value!r}", f"{setting}={table[value]!r}", 4)
    return table[value]


def settings(given: dict[str, Any], table: Mapping[str, str], what: str) -> dict[str, Any]:
    """What is given by old names, by the new ones; raises TypeError for all other names."""
    out = {}
    for name, value in given.items():
        if name not in table:
            raise TypeError(f"{what} has no setting {name!r}")
        warn(f"{what}({name}=)", f"{table[name]}=", 4)
        out[table[name]] = value
    return out


def methods(kind: type, table: Mapping[str, str]) -> None:
    """Give a class its old methods, which call the new ones."""

    def renamed(old: str, new: str) -> Any:
        def method(self: Any, *given: Any, **words: Any) -> Any:
            warn(f"{kind.__name__}.{old}", f"{new}", 3)
            return getattr(self, new)(*given, **words)

        method.__name__, method.__doc__ = old, f"Deprecated: `{new}`."
        return method

    for old, new in table.items():
        setattr(kind, old, renamed(old, new))


def attribute(new: str) -> property:
    """A field or attribute under its old name."""

    def read(self: Any) -> Any:
        warn("this name", new, 3)
        return getattr(self, new)

    return property(read, doc=f"Deprecated: `{new}`.")


def names(module: str, table: Mapping[str, tuple[str, str]]) -> Any:
    """A ``__getattr__`` of a module for names that are elsewhere: old -> (module, name)."""

    def get(name: str) -> Any:
        if name not in table:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        place, new = table[name]
        warn(f"{module}.{name}", f"{place}.{new}", 3)
        return getattr(import_module(place), new)

    return get


class _Elsewhere(Loader):
    """Puts the module of the new place under the old name."""

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        new = {**MODULES, **STAYING}[old]
        if old in MODULES:
            warn(old, new, 7)
        sys.modules[old] = import_module(new)


class _Finder(MetaPathFinder):
    """Finds modules under their old names."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname in MODULES or fullname in STAYING:
            return ModuleSpec(fullname, _Elsewhere())
        return None


def install() -> None:
    """Let Python find modules under their old names; once."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
