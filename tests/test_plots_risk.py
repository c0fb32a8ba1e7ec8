"""Pictures of risk: they show the fields, with names and dates, and refuse what they cannot."""

from __future__ import annotations

import numpy as np
import pytest

from kgmrf import KGMRF, EuclideanEMA
from kgmrf.plots import plot_risk

pytest.importorskip("matplotlib", reason="matplotlib is not installed: no pictures")
pd = pytest.importorskip("pandas")

KINDS = ("volatility", "correlation", "weights", "surprise")


def returns(d: int = 3, rows: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    X = 0.01 * rng.standard_t(4, size=(rows, d)) * np.exp(np.sin(np.arange(rows) / 40))[:, None]
    days = pd.date_range("2020-01-01", periods=rows, freq="B")
    return pd.DataFrame(X, index=days, columns=[f"asset {k}" for k in range(d)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("d", [3, 12])
@pytest.mark.parametrize("width", [7.2, 3.6])
def test_every_kind_is_drawn_on_dates(kind, d, width, tmp_path):
    result = KGMRF().filter(returns(d))
    path = tmp_path / "picture.png"
    figure = plot_risk(result, kind, path, width)
    assert path.stat().st_size > 5_000
    words = [t.get_text() for axes in figure.axes for t in axes.get_xticklabels()]
    assert any(word in ("2020", "2021", "Jul") for word in words)


def test_lines_are_the_fields():
    table = returns()
    table.iloc[100:150] = np.nan
    result = KGMRF().filter(table)
    axes = result.plot("volatility").axes[0]
    last = sorted(float(line.get_ydata()[-1]) for line in axes.get_lines())
    np.testing.assert_allclose(last, sorted(result.volatility[-1]))
    assert {text.get_text() for text in axes.texts} == set(table.columns)
    axes, matrix = result.plot("correlation").axes
    pairs = result.correlation[-1][np.triu_indices(3, 1)]
    last = sorted(float(line.get_ydata()[-1]) for line in axes.get_lines())
    np.testing.assert_allclose(last, sorted(pairs))
    shown = [float(text.get_text()) for text in matrix.texts]
    np.testing.assert_allclose(shown, result.correlation[-1].ravel(), atol=0.005)
    half_life = result.plot("weights").axes[1].get_lines()[0].get_ydata()
    np.testing.assert_array_equal(half_life, result.half_life)


def test_surprise_names_the_outlier():
    table = returns(rows=800)
    table.iloc[500] *= 30.0
    figure = KGMRF().filter(table).plot("surprise")
    assert str(table.index[500])[:10] in {text.get_text() for text in figure.axes[0].texts}
    share = figure.axes[1].get_lines()[0].get_ydata()
    assert 0.0 <= np.nanmean(share) < 15.0


def test_a_path_alone_is_the_picture_of_all(tmp_path):
    result = KGMRF().filter(returns())
    result.plot(tmp_path / "all.png")
    result.plot(str(tmp_path / "words.svg"))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["all.png", "words.svg"]
    result.plot("volatility", tmp_path / "v.pdf")
    assert (tmp_path / "v.pdf").exists()


def test_what_cannot_be_shown_is_refused():
    result = KGMRF().filter(returns())
    with pytest.raises(ValueError, match="kind must be one of volatility, correlation"):
        result.plot("variance")
    with pytest.raises(ValueError, match="nis is NaN"):
        EuclideanEMA().filter(returns()).plot("surprise")
    with pytest.raises(AttributeError, match="has no 'weights'"):
        EuclideanEMA().filter(returns()).plot("weights")
    with pytest.raises(ValueError, match="one channel has no correlation"):
        KGMRF().filter(returns(1)).plot("correlation")
    batch = KGMRF().filter(np.random.default_rng(0).normal(size=(50, 4, 2)), samples=True)
    assert batch.time.ndim == 1
    many = KGMRF().filter(np.random.default_rng(0).normal(size=(50, 4, 1, 2)), samples=True)
    with pytest.raises(ValueError, match=r"holds a batch of shape \(4,\)"):
        many.plot("volatility")


def test_many_channels_of_few_factors():
    result = KGMRF().filter(np.random.default_rng(0).normal(size=(120, 70)))
    for kind in KINDS:
        assert result.plot(kind).axes
