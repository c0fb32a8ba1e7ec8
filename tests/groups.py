"""Which tests run together: the first pattern that fits the name of a file says its group.

`make test` runs laws, contract and doctests, `make test-all` all of them; CI runs all beside
each other.
What is marked slow is in the group soak, whatever its file.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

QUICK = ("laws", "contract", "doctests")
"""Groups of `make test`."""

GROUPS = {
    "laws": "the mathematics: geometry, engines, trackers; core equals readable",
    "contract": "what every tracker, bank and file keeps: input, time, names, state, errors",
    "doctests": "examples of the package's docstrings",
    "streams": "kgmrf stream, keys, tables of lines, alerts, Kafka",
    "commands": "the command line, files, reports, pictures",
    "statistics": "long simulations: accuracy, calibration, detection, learning",
    "vision": "boxes, steady video",
    "torch": "layers and losses",
    "experiments": "studies and what they show",
    "documents": "pages, their snippets and their numbers",
    "processes": "kills, fresh environments, wheels, dask workers",
    "soak": "minutes to an hour each: marked slow",
}

PATTERNS = (
    ("torch", "test_torch_*"),
    ("vision", "test_vision_*"),
    ("vision", "test_video_*"),
    ("vision", "test_core_vision"),
    ("vision", "test_otb_experiment"),
    ("experiments", "test_experiments"),
    ("experiments", "test_*_experiment"),
    ("experiments", "test_streams_study"),
    ("experiments", "test_sources"),
    ("experiments", "test_paper_slips"),
    ("experiments", "test_fair_comparison"),
    ("experiments", "test_trajectories"),
    ("experiments", "test_backtests"),
    ("experiments", "test_scale"),
    ("documents", "test_docs"),
    ("documents", "test_readme_numbers"),
    ("documents", "test_faces"),
    ("documents", "test_demo"),
    ("processes", "test_processes"),
    ("processes", "test_packaging"),
    ("processes", "test_containers"),
    ("processes", "test_systems"),
    ("processes", "test_hashes"),
    ("processes", "test_dask"),
    ("processes", "test_soak"),
    ("processes", "test_fuzz"),
    ("processes", "test_many_keys"),
    ("processes", "test_kafka_example"),
    ("streams", "test_stream*"),
    ("streams", "test_feed_table"),
    ("streams", "test_command_words"),
    ("commands", "test_commands"),
    ("commands", "test_*_command"),
    ("commands", "test_cli"),
    ("commands", "test_io"),
    ("commands", "test_gyroscope_files"),
    ("commands", "test_report"),
    ("commands", "test_plots*"),
    ("statistics", "test_alarms"),
    ("statistics", "test_detector"),
    ("statistics", "test_diagnose"),
    ("statistics", "test_estimator"),
    ("statistics", "test_horizons"),
    ("statistics", "test_late_channels"),
    ("statistics", "test_learn"),
    ("statistics", "test_linear_mean"),
    ("statistics", "test_long_run"),
    ("statistics", "test_p_values"),
    ("statistics", "test_paper"),
    ("statistics", "test_recentring"),
    ("statistics", "test_risk"),
    ("statistics", "test_safe_laws"),
    ("statistics", "test_time_scale"),
    ("statistics", "test_effective_samples"),
    ("statistics", "test_gyroscope"),
    ("statistics", "test_sign_errors"),
    ("contract", "test_contract"),
    ("contract", "test_deprecated"),
    ("contract", "test_docstrings"),
    ("contract", "test_groups"),
    ("contract", "test_input_checks"),
    ("contract", "test_align"),
    ("contract", "test_names"),
    ("contract", "test_package"),
    ("contract", "test_past_faults"),
    ("contract", "test_state_files"),
    ("contract", "test_time"),
    ("contract", "test_extreme_input"),
    ("contract", "test_unaligned"),
    ("contract", "test_missing_cells"),
    ("contract", "test_cost_of_looking"),
    ("laws", "test_*"),
)


def group_of(name: str, *, slow: bool = False, doctest: bool = False) -> str:
    """The group of a test in the file of this name (without its folder and ending)."""
    if slow:
        return "soak"
    if doctest:
        return "doctests"
    return next(group for group, pattern in PATTERNS if fnmatchcase(name, pattern))
