"""What every test file may use: the array namespaces, and how hypothesis behaves."""

from __future__ import annotations

import importlib.util
import os
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from groups import GROUPS, group_of

# An editable install finds its own sources before any path: in a second checkout (a worktree) the
# tests would run those of the first. The order of paths decides here.
sys.meta_path[:] = [f for f in sys.meta_path if type(f).__name__ != "ScikitBuildInplaceFinder"]

# No deadlines: a first call compiles or loads, and shared machines stall. The fixtures used with
# @given hold no state, so that sharing them between examples is harmless.
_common: dict[str, Any] = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}
settings.register_profile("local", max_examples=15, **_common)  # other examples every time
settings.register_profile("ci", max_examples=25, derandomize=True, **_common)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_configure(config: pytest.Config) -> None:
    """The groups of tests/groups.py as markers: ``pytest -m laws``."""
    for name, what in GROUPS.items():
        config.addinivalue_line("markers", f"{name}: {what}")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test gets the marker of its group."""
    for item in items:
        slow = item.get_closest_marker("slow") is not None
        doctest = isinstance(item, pytest.DoctestItem)
        item.add_marker(group_of(item.path.stem, slow=slow, doctest=doctest))


def _namespace(name: str) -> Any:
    if name == "torch":
        if importlib.util.find_spec("torch") is None:
            pytest.skip("torch is not installed: this law is checked with numpy only")
        import array_api_compat.torch as xp

        xp.set_num_threads(1)  # small matrices: threads only get in each other's way
        return xp
    import array_api_compat.numpy as xp

    return xp


@pytest.fixture(params=["numpy", "torch"])
def xp(request: pytest.FixtureRequest) -> Any:
    """The array namespace: the same law for numpy and torch."""
    return _namespace(request.param)


@pytest.fixture
def torch() -> Any:
    """The torch module itself, for laws about derivatives."""
    return pytest.importorskip("torch", reason="torch is not installed: derivatives unchecked")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    """A test file that cannot be imported fails; doctests of optional parts are only skipped."""
    report = yield
    lost = report.skipped and "unable to import module" in str(report.longrepr)
    if lost and os.path.dirname(__file__) in str(collector.path):
        report.outcome = "failed"
    return report
