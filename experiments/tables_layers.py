"""Tables of the page on PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from experiments import layers
from experiments.markup import markdown

WORDS = {
    "tracker": "`KGMRF()`, nothing trained",
    "layer": "**`KGMRFLayer`, trained**",
    "layer mean": "**`KGMRFLayer(lags=2)`, trained**",
    "gru layer": "**GRU on the untrained layer's outputs**",
    "transformer layer": "**Transformer on the untrained layer's outputs**",
    "ewma": "average with `StudentTLoss`",
    "gru": "GRU on rows",
    "gru squares": "GRU on rows and squares",
    "transformer": "Transformer on rows",
    "transformer squares": "Transformer on rows and squares",
}


def read(results: Path, name: str) -> dict[str, Any]:
    """The data of one unit."""
    found: dict[str, Any] = json.loads((results / "layers" / f"{name}.json").read_text())["data"]
    return found


def densities(results: Path) -> str:
    """Nats per row of every model on every stream, and the lead over the tracker."""
    names = [n for n in layers.STREAMS if (results / "layers" / f"{n}.json").exists()]
    streams = {name: read(results, name)["models"] for name in names}
    for name, found in streams.items():
        if (results / "layers" / f"{name}_more.json").exists():
            found |= read(results, f"{name}_more")["models"]
    rows = []
    for model, words in WORDS.items():
        if not any(model in found for found in streams.values()):
            continue
        cells = []
        for found in streams.values():
            if model not in found:
                cells.append("")
                continue
            row = found[model]
            lead = f" ({row['ahead']:+.3f}: {row['low']:+.3f} to {row['high']:+.3f})"
            cells.append(f"{row['score']:.3f}{'' if model == 'tracker' else lead}")
        rows.append([words, *cells])
    return markdown(["nats per row", *streams], rows)
