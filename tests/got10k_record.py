"""Numbers of the got10k toolkit for boxes of our own: ``python tests/got10k_record.py``.

Writes ``got10k_record.json``: true and found boxes drawn at random (some outside the image, some
frames without the target), and what got10k 0.1.3 reports when it reads the files that
:func:`kgmrf.vision.evaluation.write_run` writes for them. The tests compare with these numbers
always, and record them again where the toolkit is installed (it needs six, which it does not say).
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from kgmrf.vision.evaluation import Run, write_run

FILE = Path(__file__).with_suffix(".json")
SIZE = (320, 240)


def scenes() -> dict[str, dict[str, Any]]:
    """Two sequences: true boxes, found boxes with three decimals, and whether it is visible."""
    rng = np.random.default_rng(10)
    out = {}
    for name, n in (("Near", 40), ("Edge", 31)):
        walk = rng.normal(0, 9, (n, 2)).cumsum(0) + ([120, 90] if name == "Near" else [-10, 190])
        size = np.exp(rng.normal(0, 0.05, (n, 2)).cumsum(0)) * [48, 36]
        truth = np.concatenate([walk, size], 1).round(3)
        found = (truth + rng.normal(0, 1, (n, 4)) * rng.gamma(2, 3, (n, 1))).round(3)
        found[:, 2:] = np.maximum(found[:, 2:], 2.0)
        found[:3] = truth[:3]  # exact boxes, at which the thresholds are tried
        cover = np.where(rng.random(n) < 0.15, 0, 8)
        cover[0] = 8
        out[name] = {"truth": truth.tolist(), "found": found.tolist(), "cover": cover.tolist()}
    return out


def record(sequences: dict[str, dict[str, Any]], folder: Path) -> dict[str, Any]:
    """What the toolkit's two experiments report; their files live in ``folder``."""
    from got10k.experiments import ExperimentGOT10k, ExperimentOTB

    data, results = folder / "data" / "val", folder / "results"
    data.mkdir(parents=True)
    (data / "list.txt").write_text("\n".join(sequences))
    for name, parts in sequences.items():
        truth, found = np.array(parts["truth"]), np.array(parts["found"])
        (data / name).mkdir()
        for k in range(len(truth)):
            (data / name / f"{k:08d}.jpg").touch()
        np.savetxt(data / name / "groundtruth.txt", truth, fmt="%.4f", delimiter=",")
        (data / name / "meta_info.ini").write_text(f"[METAINFO]\nresolution: {SIZE}\n")
        for label in ("cover", "absence", "cut_by_image"):
            values = parts["cover"] if label == "cover" else np.zeros(len(truth))
            np.savetxt(data / name / f"{label}.label", values, fmt="%d")
        run = Run(found, np.ones(len(found), bool), np.full(len(found), 0.01))
        write_run(results / "GOT-10k", "ours", name, run)
    got = ExperimentGOT10k(str(data.parent), "val", str(results), str(folder / "reports"))
    got.plot_curves = lambda *names: None
    report = got.report(["ours"])["ours"]
    # The constructor for OTB would download the data set: ours takes its place.
    otb: Any = object.__new__(ExperimentOTB)
    otb.dataset = _Boxes(sequences)
    otb.result_dir, otb.report_dir = str(folder / "otb"), str(folder / "otb_reports")
    otb.nbins_iou, otb.nbins_ce = 21, 51
    otb.plot_curves = lambda names: None
    (folder / "otb" / "ours").mkdir(parents=True)
    for name in sequences:
        written = results / "GOT-10k" / "ours" / name / f"{name}_001.txt"
        (folder / "otb" / "ours" / f"{name}.txt").write_bytes(written.read_bytes())
    one_pass = otb.report(["ours"])["ours"]
    return {
        "got10k": {
            "overall": {key: report["overall"][key] for key in ("ao", "sr", "succ_curve")},
            "seq_wise": {
                name: {key: row[key] for key in ("ao", "sr")}
                for name, row in report["seq_wise"].items()
            },
        },
        "otb": {
            "overall": _without_speed(one_pass["overall"]),
            "seq_wise": {n: _without_speed(row) for n, row in one_pass["seq_wise"].items()},
        },
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
        "image_size": SIZE,
        "sequences": drawn,
        **reported,
    }
    FILE.write_text(json.dumps(whole, separators=(",", ":")) + "\n")
