"""Docstrings of the public API: a section "Parameters" that says all of the signature."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

MODULES = (
    "kgmrf",
    "kgmrf.alerts",
    "kgmrf.bank",
    "kgmrf.baselines",
    "kgmrf.dask",
    "kgmrf.diagnosis",
    "kgmrf.geometry.orbit",
    "kgmrf.geometry.so",
    "kgmrf.geometry.spd",
    "kgmrf.io",
    "kgmrf.learn",
    "kgmrf.members",
    "kgmrf.metrics",
    "kgmrf.model.density",
    "kgmrf.model.gains",
    "kgmrf.model.stationary",
    "kgmrf.model.wishart",
    "kgmrf.paper",
    "kgmrf.plots",
    "kgmrf.portfolio",
    "kgmrf.results",
    "kgmrf.simulate",
    "kgmrf.skfolio",
    "kgmrf.sklearn",
    "kgmrf.stream",
    "kgmrf.tables",
    "kgmrf.theory",
    "kgmrf.torch",
    "kgmrf.trackers",
    "kgmrf.vision",
)
OF_THE_FIRST_USE = ("KineticCovariance", "KineticDetector", "KineticTransformer", "OnlineRecenter")
"""Names of kgmrf that are not in ``__all__``: they need scikit-learn."""

SECTION = re.compile(r"^Parameters\n-{10}\n(.*?)(?=\n\n|\Z)", re.M | re.S)
ENTRY = re.compile(r"^([*\w]+(?:, [*\w]+)*)( : \S.*)?$")


def public(module: str) -> Iterator[tuple[str, Any]]:
    """The classes and functions that a module exports, by name."""
    try:
        loaded = importlib.import_module(module)
    except ImportError as error:
        pytest.skip(f"{module} needs {error.name}")
    own = [n for n, x in vars(loaded).items() if getattr(x, "__module__", None) == module]
    names = list(getattr(loaded, "__all__", [n for n in own if not n.startswith("_")]))
    if module == "kgmrf" and importlib.util.find_spec("sklearn"):
        names += OF_THE_FIRST_USE
    for name in names:
        thing = getattr(loaded, name)
        if inspect.isfunction(thing) or (
            inspect.isclass(thing) and not issubclass(thing, BaseException)
        ):
            yield name, thing


def described(thing: Any) -> list[str]:
    """The names in the section "Parameters" of an own docstring; errors where it has no form."""
    found = SECTION.search(inspect.cleandoc(vars(thing).get("__doc__") or thing.__doc__ or ""))
    names: list[str] = []
    for line in found[1].splitlines() if found else ():
        if line.startswith("    "):
            assert names, f"text before the first parameter: {line!r}"
            continue
        entry = ENTRY.match(line)
        assert entry, f"not `name : type, default x`: {line!r}"
        names += [name.lstrip("*") for name in entry[1].split(", ")]
    assert len(set(names)) == len(names), f"described twice: {names}"
    return names


def faults(name: str, thing: Any) -> list[str]:
    """What is wrong with a docstring.

    What a class passes on to the class that it derives from may be described there.
    """
    signature = inspect.signature(thing)
    taken = [p for p in signature.parameters if p != "self" and not p.startswith("_")]
    own = described(thing)
    bases = thing.__mro__[1:] if inspect.isclass(thing) else ()
    above = [
        n for base in bases if (base.__module__ or "").startswith("kgmrf") for n in described(base)
    ]
    missing = [p for p in taken if p not in own and p not in above]
    return [f"{name}: {p} is not described" for p in missing] + [
        f"{name}: there is no {p}" for p in own if p not in taken
    ]


@pytest.mark.parametrize("module", MODULES)
def test_every_parameter_is_described(module: str) -> None:
    found = list(public(module))
    assert found
    assert [fault for name, thing in found for fault in faults(name, thing)] == []


def test_faults_are_seen() -> None:
    def function(a: int, b: int = 2) -> None:
        """One.

        Parameters
        ----------
        a : int
            The first.
        c
            Gone.
        """

    assert faults("f", function) == ["f: b is not described", "f: there is no c"]
