"""What there is to run: experiments by name, each a list of units."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from experiments.store import Unit

# Run times last and alone: what runs beside them would be measured too.
ORDER = (
    "ellipse camera ablation spectral_gap master lag stability structure noise_floor guide "
    "tensors scenes streams portfolios recentring artefacts signals linear_mean layers alerts "
    "starts horizons late_channels faults rotating motions otb otb_models otb_choice otb_unseen "
    "confidence rotations rotation_faults low_rank steady cost"
)
NAMES = ORDER.split()
ELSEWHERE = {"scenes": "scenes_shown", "streams": "streams.study"}
"""Modules that are not called like their experiment."""


def _units(name: str, quick: bool) -> list[Unit]:
    if name not in NAMES:
        raise SystemExit(f"no experiment {name!r}; there are: all, {', '.join(NAMES)}")
    module = import_module(f"experiments.{ELSEWHERE.get(name, name)}")
    units: Callable[[bool], list[Unit]] = module.units
    return units(quick)


def select(names: list[str], quick: bool) -> list[Unit]:
    """The units behind "all", names of experiments, or keys such as "ellipse/as_run.hold_last"."""
    chosen: list[Unit] = []
    for name in NAMES if "all" in names or not names else names:
        experiment, _, single = name.partition("/")
        units = _units(experiment, quick)
        found = [u for u in units if not single or u.name == single]
        if not found and single:
            raise SystemExit(
                f"no unit {name!r}; {experiment} has: {', '.join(u.key for u in units)}"
            )
        chosen += [u for u in found if u not in chosen]
    return chosen
