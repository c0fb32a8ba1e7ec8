"""The paper's trackers on the command line: ``--paper``, ``--eta``, ``--gamma``, ``--start``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kgmrf import paper
from kgmrf._types import Numbers
from kgmrf.io import DataError

if TYPE_CHECKING:
    from kgmrf.commands._given import FileOptions

ALGORITHM_1 = "algorithm1"
WORDS = (ALGORITHM_1, *paper.NAMES, *(f"{name}_printed" for name in paper.NAMES[1:]))
"""What may follow ``--paper``; the printed K-GMRF is Algorithm 1."""


def check_words(given: FileOptions) -> None:
    """Refuse settings of Algorithm 1 for any other tracker."""
    own = {"eta": given.eta, "gamma": given.gamma, "start": given.start}
    passed = [f"--{name}" for name, value in own.items() if value is not None]
    if passed and given.paper not in (ALGORITHM_1, "all"):
        other = f", not {given.paper}" if given.paper else ""
        raise DataError(f"{', '.join(passed)} is for --paper algorithm1{other}")


def paper_tracker(given: FileOptions, word: str, kind: str, d: int, **shared: Any) -> Any:
    """The tracker of this word, for covariances or rotations of dimension d."""
    if word not in WORDS:
        raise DataError(f"--paper has no {word!r}; there are {', '.join(WORDS)}")
    if word != ALGORITHM_1:
        suffix = "_so3" if kind == "rotation" else ""
        reading = "so3" if suffix else "ellipse"
        if word.endswith("_printed"):
            reading = f"printed{suffix}"
        return paper.column(word.removesuffix("_printed"), reading, d, **shared)
    if kind == "rotation":
        raise DataError("--paper algorithm1 follows covariances; for rotations give --paper kgmrf")
    own = {"eta": given.eta, "gamma": given.gamma}
    settings: dict[str, Any] = {name: value for name, value in own.items() if value is not None}
    settings["initial"] = "first" if given.start in (None, "first") else _matrix(given.start, d)
    settings["noise_floor"] = given.noise_floor or None
    return paper.algorithm1(**settings, d=d, **shared)


def _matrix(name: Any, d: int) -> Numbers:
    path = Path(name)
    if not path.is_file():
        raise DataError(f"--start is first or a file with the matrix M_0, and there is no {path}")
    try:
        if path.suffix == ".npy":
            matrix = np.load(path, allow_pickle=False)
        else:
            matrix = np.loadtxt(path, delimiter=",", ndmin=2)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} of --start cannot be read as a matrix: {error}") from error
    if matrix.shape != (d, d):
        raise DataError(f"{path} of --start holds shape {matrix.shape}; it must be ({d}, {d})")
    return np.asarray(matrix, dtype=float)
