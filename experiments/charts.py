"""What is drawn, in the order of the page: one description per figure.

Numbers come from result files only; a figure without results is left out.
"""

from __future__ import annotations

from experiments import charts_structure, charts_tasks, charts_theory, charts_video
from experiments.chart_parts import Figure
from experiments.reading import Results

DRAWN = (
    charts_tasks.omega_sweep,
    charts_tasks.occlusion_coasting,
    charts_tasks.dropout_sweep,
    charts_tasks.camera_trajectories,
    charts_tasks.camera_error,
    charts_theory.first_order_lag,
    charts_theory.stability_map,
    charts_structure.error_map,
    charts_structure.turning,
    charts_theory.master_validation,
    charts_structure.energy_contraction,
    charts_theory.spectral_gap,
    charts_structure.structure,
    charts_structure.energy,
    charts_structure.noise_floor,
    charts_structure.swelling,
    charts_theory.cost,
    charts_video.otb_success,
    charts_video.otb_overlap,
    charts_video.models,
)


def figures(results: Results) -> list[Figure]:
    """All figures for which there are results."""
    made = [draw(results) for draw in DRAWN]
    return [f for f in made if f is not None]
