"""What the torch examples share: where results go, and where data come from."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

import kgmrf

HERE = Path(__file__).resolve().parent


def save(name: str, parameters: dict[str, Any], results: dict[str, Any]) -> None:
    """Write results/<name>.json and show it; the documentation quotes these files."""
    content = {
        "parameters": parameters,
        "results": results,
        "versions": {
            "kgmrf": kgmrf.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
    }
    path = HERE / "results" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")
    print(json.dumps(results, indent=2))
    print(f"written to {path.relative_to(HERE.parent)}")


def interval(values: list[float]) -> dict[str, Any]:
    """Mean of the seeds' values, half of its 95 % interval (Student's t), and the values."""
    from scipy.stats import t

    x = np.asarray(values, dtype=float)
    half = t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x))
    return {"mean": float(x.mean()), "interval": float(half), "of_each_seed": x.tolist()}


def data_file(*parts: str) -> Path | None:
    """A file of real data, under $KGMRF_DATA or ../shared/data; None if it is not there."""
    root = os.environ.get("KGMRF_DATA")
    folder = Path(root) if root else HERE.parent.parent / "shared" / "data"
    path = folder.joinpath(*parts)
    return path if path.is_file() else None
