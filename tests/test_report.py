"""The risk report: one page by itself, with numbers that the library gives too."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from kgmrf import KGMRF, metrics
from kgmrf.cli import main

pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def returns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    X = 0.01 * rng.standard_t(4, size=(700, 3)) @ np.array([[1, 0.5, 0], [0, 1, 0.2], [0, 0, 2.0]])
    X[300:310] = np.nan
    X[400, 1] = np.nan
    days = pd.date_range("2018-01-01", periods=700, freq="D")
    table = pd.DataFrame(X, index=days, columns=["a<b", "gold", "oil"])
    path = tmp_path_factory.mktemp("report") / "returns.csv"
    table.to_csv(path, index_label="date")
    return path


def cells(page: str, head: str) -> list[str]:
    row = next(row for row in re.findall(r"<tr>(.*?)</tr>", page) if f"<td>{head}" in row)
    return re.findall(r"<td>(.*?)</td>", row)


def test_one_page_by_itself(returns, tmp_path, capsys):
    out = tmp_path / "risk.html"
    assert main(["track", str(returns), "--report", str(out)]) == 0
    assert str(out) in capsys.readouterr().out
    page = out.read_text(encoding="utf-8")
    assert not re.search(r'(src|href|srcset)="(?!data:)', page)
    assert page.count("<picture>") == 5
    assert "2018-01-01" in page
    assert "2019-12-01" in page
    assert "a&lt;b" in page
    assert "a<b" not in page


def test_numbers_are_those_of_the_library(returns, tmp_path):
    out = tmp_path / "risk.html"
    assert main(["track", str(returns), "--report", str(out), "-q"]) == 0
    page = out.read_text(encoding="utf-8")
    table = pd.read_csv(returns, index_col=0)
    X, tracker = table.to_numpy(), KGMRF()
    beyond, volatility = [], []
    for k, row in enumerate(X):
        if k >= 200 and not np.isnan(row).any():
            one = tracker.forecast(1).density.project(np.full(3, 1 / 3))
            beyond.append(-row.mean() > one.value_at_risk(0.99))
            volatility.append(float(one.volatility))
        tracker.partial_fit(row)
    found = metrics.kupiec_test(np.array(beyond), 0.99)
    expected = f"losses beyond VaR 99 % (expected {found.expected:.1f})"
    assert cells(page, "losses beyond VaR 99 %")[:2] == [expected, str(found.exceeded)]
    mean = np.sqrt(np.mean(np.square(volatility)))
    assert float(cells(page, "forecast volatility")[1]) == pytest.approx(mean, rel=1e-3)
    assert cells(page, "turnover")[1] == "0.000"
    assert float(cells(page, "turnover")[2]) > 0.0
    ahead = tracker.forecast(1).density.project([0.0, 0.0, 1.0])
    oil = [float(cell) for cell in cells(page, "oil")[1:]]
    levels = [
        (one.value_at_risk(lv), one.expected_shortfall(lv))
        for one in [ahead]
        for lv in (0.95, 0.99)
    ]
    assert oil == pytest.approx([float(ahead.volatility), *levels[0], *levels[1]], rel=1e-3)


def test_every_step_has_the_mixture_of_its_own_forecast(returns, tmp_path):
    """A forecast over a weekend is another mixture: business days ended the report."""
    out, path = tmp_path / "risk.html", tmp_path / "business.csv"
    table = pd.read_csv(returns, index_col=0)
    table.index = pd.date_range("2018-01-01", periods=700, freq="B")
    table.to_csv(path, index_label="date")
    assert main(["track", str(path), "--report", str(out), "-q"]) == 0
    page = out.read_text(encoding="utf-8")
    X, tracker = table.to_numpy(), KGMRF()
    seconds = np.diff(table.index.to_numpy(), prepend=table.index.to_numpy()[0])
    beyond = []
    for k, (row, dt) in enumerate(zip(X, seconds / np.timedelta64(1, "s"), strict=True)):
        if k >= 200 and not np.isnan(row).any():
            one = tracker.forecast(float(dt)).density.project(np.full(3, 1 / 3))
            beyond.append(-row.mean() > one.value_at_risk(0.95))
        tracker.partial_fit(row, dt=float(dt))
    assert cells(page, "losses beyond VaR 95 %")[1] == str(np.sum(beyond))


def test_what_has_no_report_is_refused(returns, tmp_path, capsys):
    assert main(["track", str(returns), "--report", str(tmp_path / "risk.pdf")]) == 2
    assert "a report ends in .html" in capsys.readouterr().err
    assert main(["track", str(returns), "-w", "5", "--report", str(tmp_path / "r.html")]) == 2
    assert "leave out --window and --gains" in capsys.readouterr().err
    assert main(["track", str(returns), "--report", str(tmp_path / "no" / "r.html")]) == 2
    assert "does not exist" in capsys.readouterr().err


def test_one_channel_and_few_rows(tmp_path):
    path = tmp_path / "one.csv"
    values = np.random.default_rng(0).normal(size=40)
    path.write_text("x\n" + "\n".join(f"{v:.4f}" for v in values) + "\n")
    out = tmp_path / "one.html"
    assert main(["track", str(path), "--report", str(out), "-q"]) == 0
    page = out.read_text(encoding="utf-8")
    assert "<h2>Correlation" not in page
    assert "20 steps from 20" in page
