"""The page about many tracks says what the result file says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
if not (ROOT / "benchmarks").exists():
    pytest.skip("not in a source tree", allow_module_level=True)
if str(ROOT) not in sys.path:
    # The benchmarks are not part of the installed package.
    sys.path.insert(0, str(ROOT))

from benchmarks import scale  # noqa: E402


def test_the_tables_are_those_of_the_result_file() -> None:
    found = json.loads((scale.RESULTS / "scale.json").read_text())
    text = scale.PAGE.read_text()
    assert scale.BEGIN in text
    assert scale.END in text
    assert scale.page(text, found) == text, "run python -m benchmarks.scale report"


def test_the_state_is_what_the_result_file_says() -> None:
    found = json.loads((scale.RESULTS / "scale.json").read_text())["results"]
    for d, row in found.items():
        bank = scale.pattern(int(d))
        bank.add(64)
        assert bank.nbytes / 64 == row["checkpoint"]["state, while it starts"]
        assert row["zarr"]["observations, plain"] == pytest.approx(8 * int(d) ** 2, rel=0.01)


@pytest.mark.parametrize(
    ("value", "text"),
    [(12.0, "12 B"), (297e6, "297 MB"), (6.2254e12, "6.23 TB"), (3e18, "3e+03 PB")],
)
def test_bytes_in_words(value: float, text: str) -> None:
    assert scale._bytes(value) == text
