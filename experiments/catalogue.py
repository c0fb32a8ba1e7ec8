"""What there is to run: experiments by name, each a list of units."""

from __future__ import annotations

from collections.abc import Callable

from experiments import (
    ablation,
    camera,
    cost,
    ellipse,
    faults,
    guide,
    lag,
    low_rank,
    master,
    motions,
    noise_floor,
    otb,
    otb_choice,
    otb_models,
    otb_unseen,
    recentring,
    rotating,
    rotations,
    scenes_shown,
    spectral_gap,
    stability,
    starts,
    structure,
    tensors,
)
from experiments.store import Unit
from experiments.streams import study

EXPERIMENTS: dict[str, Callable[[bool], list[Unit]]] = {
    "ellipse": ellipse.units,
    "camera": camera.units,
    "ablation": ablation.units,
    "spectral_gap": spectral_gap.units,
    "master": master.units,
    "lag": lag.units,
    "stability": stability.units,
    "structure": structure.units,
    "noise_floor": noise_floor.units,
    "guide": guide.units,
    "tensors": tensors.units,
    "scenes": scenes_shown.units,
    "streams": study.units,
    "recentring": recentring.units,
    "starts": starts.units,
    "faults": faults.units,
    "rotating": rotating.units,
    "motions": motions.units,
    "otb": otb.units,
    "otb_models": otb_models.units,
    "otb_choice": otb_choice.units,
    "otb_unseen": otb_unseen.units,
    "rotations": rotations.units,
    "low_rank": low_rank.units,
    # Run times last and alone: what runs beside them would be measured too.
    "cost": cost.units,
}


def select(names: list[str], quick: bool) -> list[Unit]:
    """The units behind "all", names of experiments, or keys such as "ellipse/as_run.hold_last"."""
    wanted = list(EXPERIMENTS) if "all" in names or not names else names
    chosen: list[Unit] = []
    for name in wanted:
        experiment, _, single = name.partition("/")
        if experiment not in EXPERIMENTS:
            raise SystemExit(
                f"no experiment {experiment!r}; there are: all, {', '.join(EXPERIMENTS)}"
            )
        found = [u for u in EXPERIMENTS[experiment](quick) if not single or u.name == single]
        if not found and single:
            keys = ", ".join(u.key for u in EXPERIMENTS[experiment](quick))
            raise SystemExit(f"no unit {name!r}; {experiment} has: {keys}")
        chosen += [u for u in found if u not in chosen]
    return chosen
