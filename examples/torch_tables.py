"""Write the measured tables of docs/torch.md and docs/torch_laws.md from the files in results/.

A page holds ``<!-- measured NAME -->`` and ``<!-- end of measured -->``; what stands between is
written by ``python examples/torch_tables.py`` and compared with the files by the tests.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGES = [HERE.parent / "docs" / name for name in ("torch.md", "torch_laws.md")]
BLOCK = re.compile(r"(<!-- measured (\w+) -->\n).*?(<!-- end of measured -->)", re.S)


def _table(head: list[str], body: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _spread(one: dict[str, Any], factor: float, digits: int) -> str:
    return f"{factor * one['mean']:.{digits}f} ± {factor * one['interval']:.{digits}f}"


def transformer(results: dict[str, Any], name: str) -> str:
    """Accuracy in percent against the number of training sequences."""
    head = ["training sequences", "without the layer", "with the layer", "difference"]
    body = [
        [size, *(_spread(row[key], 100.0, 1) for key in ("without", "with", "difference"))]
        for size, row in results[name].items()
    ]
    return _table(head, body)


def inertia(results: dict[str, Any]) -> str:
    """Degrees in both worlds."""
    names = [name for name in results["unequal"] if "better" not in name and "planes" not in name]
    better = [name for name in results["unequal"] if "better" in name]
    body = [
        [name, *(_spread(results[world][name], 1.0, 2) for world in ("unequal", "equal"))]
        for name in (*names, *better)
    ]
    return _table(["degrees", "unequal planes", "equal planes"], body)


def speed(results: dict[str, Any]) -> str:
    """Microseconds per step of the whole batch."""
    head = ["batch, d", "layer", "geodesic", "GRU", "layer", "geodesic", "GRU", "readable step"]
    body = []
    for name, row in results.items():
        if "layer_forward_us" in row:
            keys = [f"{who}_{what}_us" for what in ("forward", "forward_backward")
                    for who in ("layer", "geodesic", "gru")]  # fmt: skip
            cells = [f"{row[key]:.0f}" for key in (*keys, "readable_forward_backward_us")]
            body.append([name.replace("batch ", "").replace(" d ", " "), *cells])
    return _table(head, body)


def spdnet(results: dict[str, Any]) -> str:
    """Accuracy in percent of every kind, and its difference to the mean."""
    kinds = [name for name in results if "less mean" not in name]
    body = []
    for kind in kinds:
        less = results.get(f"{kind}, less mean")
        body.append([kind, _spread(results[kind], 1.0, 1), _spread(less, 1.0, 1) if less else ""])
    return _table(["SPDNet on", "accuracy, %", "less that on the mean"], body)


def rewritten(text: str) -> str:
    """The page with every table as its result file has it."""

    def load(name: str) -> Any:
        return json.loads((HERE / "results" / f"{name}.json").read_text())["results"]

    def fill(found: re.Match[str]) -> str:
        name = found[2]
        if name in ("direction", "flicker"):
            table = transformer(load("torch_transformer"), name)
        else:
            write = {"inertia": inertia, "speed": speed, "spdnet": spdnet}[name]
            table = write(load(f"torch_{name}"))
        return f"{found[1]}{table}{found[3]}"

    return BLOCK.sub(fill, text)


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
