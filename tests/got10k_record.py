"""Numbers of the got10k toolkit for boxes of our own: ``python tests/got10k_record.py``.

Writes ``got10k_record.json``: true and found boxes drawn at random (some outside the image), and
what the toolkit's one-pass evaluation (OTB) reports for them. The tests compare with these numbers
always, and record them again where got10k 0.1.3 is installed (it needs six, which it does not say).
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).with_suffix(".json")


def scenes() -> dict[str, dict[str, Any]]:
    """Two sequences: true boxes, and found boxes with three decimals."""
    rng = np.random.default_rng(10)
    out = {}
    for name, n in (("Near", 40), ("Edge", 31)):
        walk = rng.normal(0, 9, (n, 2)).cumsum(0) + ([120, 90] if name == "Near" else [-10, 190])
        size = np.exp(rng.normal(0, 0.05, (n, 2)).cumsum(0)) * [48, 36]
        truth = np.concatenate([walk, size], 1).round(3)
        found = (truth + rng.normal(0, 1, (n, 4)) * rng.gamma(2, 3, (n, 1))).round(3)
        found[:, 2:] = np.maximum(found[:, 2:], 2.0)
        found[:3] = truth[:3]  # exact boxes, at which the thresholds are tried
        rng.random(n)
        out[name] = {"truth": truth.tolist(), "found": found.tolist()}
    return out


def record(sequences: dict[str, dict[str, Any]], folder: Path) -> dict[str, Any]:
    """What the toolkit's experiment on OTB reports; its files live in ``folder``."""
    from got10k.experiments import ExperimentOTB

    # The constructor would download the data set: ours takes its place.
    otb: Any = object.__new__(ExperimentOTB)
    otb.dataset = _Boxes(sequences)
    otb.result_dir, otb.report_dir = str(folder / "otb"), str(folder / "otb_reports")
    otb.nbins_iou, otb.nbins_ce = 21, 51
    otb.plot_curves = lambda names: None
    (folder / "otb" / "ours").mkdir(parents=True)
    for name, parts in sequences.items():
        file = folder / "otb" / "ours" / f"{name}.txt"
        np.savetxt(file, parts["found"], fmt="%.3f", delimiter=",")
    found = otb.report(["ours"])["ours"]
    return {
        "overall": _without_speed(found["overall"]),
        "seq_wise": {name: _without_speed(row) for name, row in found["seq_wise"].items()},
    }


class _Boxes:
    def __init__(self, sequences: dict[str, dict[str, Any]]) -> None:
        self.seq_names = list(sequences)
        self._truth = [np.array(parts["truth"]) for parts in sequences.values()]

    def __len__(self) -> int:
        return len(self._truth)

    def __getitem__(self, k: int) -> tuple[None, np.ndarray]:
        return None, self._truth[k]


def _without_speed(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "speed_fps"}


if __name__ == "__main__":
    drawn = scenes()
    with tempfile.TemporaryDirectory() as place:
        reported = record(drawn, Path(place))
    whole = {
        "made_by": "got10k 0.1.3 through tests/got10k_record.py",
        "sequences": drawn,
        "otb": reported,
    }
    FILE.write_text(json.dumps(whole, separators=(",", ":")) + "\n")
