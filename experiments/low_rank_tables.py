"""Tables about many channels for the documentation (``python -m experiments tables``)."""

from __future__ import annotations

from pathlib import Path

from experiments.markup import markdown
from experiments.reading import read

KINDS = ("Ledoit-Wolf", "EWMA + QIS,", "EWMA + QIS + size clock")
SCENES = {
    "simulated_200": "d = 200, constant volatility",
    "simulated_200_clustered": "d = 200, clustered",
    "simulated_500": "d = 500, constant volatility",
    "simulated_500_clustered": "d = 500, clustered",
}


def simulated(results: Path) -> str:
    """Log-likelihood per row and risk, from row 20 on; rivals at their best setting for each."""
    head = ["nats per row (risk)", "true covariance", "**KGMRF()**", "Ledoit-Wolf", "EWMA + QIS"]
    lines = []
    for unit, name in SCENES.items():
        found = read(results, "low_rank", unit)
        if found is None:
            continue
        cells = []
        for kind in ("true covariance", "ours", *KINDS):
            rows = [row for key, row in found["methods"].items() if key.startswith(kind)]
            score = max(row["log_likelihood"]["20 to 2 d"] for row in rows)
            risk = min(row["risk"]["20 to 2 d"] for row in rows)
            cells.append(f"{score:.1f} ({risk:.4f})")
        lines.append([name, *cells])
    return markdown([*head, "EWMA + QIS + size clock"], lines)


def subspace(results: Path) -> str:
    """Error of the subspace, ours and OPAST's with its best forgetting factor."""
    lines = []
    for speed, row in (read(results, "low_rank", "subspace") or {}).items():
        best = min(value for name, value in row.items() if name != "ours")
        lines.append([speed, f"{row['ours']:.3f}", f"{best:.3f}"])
    return markdown(["axes turn by, radians per row", "**KGMRF(rank=5)**", "OPAST"], lines)
