"""A bank is fed with tables of keyed rows: pandas, polars, pyarrow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kgmrf import KGMRF, TrackerBank
from kgmrf._check import ObservationError

pd = pytest.importorskip("pandas")


def rows_of(n: int = 120, keys: int = 3) -> Any:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "sensor": [f"s{k % keys}" for k in range(n)],
            "time": np.arange(n) // keys,
            "a": rng.normal(size=n),
            "b": rng.normal(size=n),
        }
    )


def as_kind(kind: str, table: Any) -> Any:
    if kind == "pandas":
        return table
    module = pytest.importorskip(kind)
    return module.from_pandas(table) if kind == "polars" else module.Table.from_pandas(table)


def test_every_row_is_the_estimate_of_its_own_tracker() -> None:
    table, bank = rows_of(), TrackerBank(0, 2)
    found = bank.feed_table(table, key="sensor", fields=["covariance", "log_likelihood"])
    assert list(found["sensor"]) == list(table["sensor"])
    for key, part in table.groupby("sensor"):
        alone = KGMRF().filter(part[["a", "b"]].to_numpy())
        mine = found[found["sensor"] == key]
        np.testing.assert_allclose(mine["covariance_a_b"], alone.covariance[:, 0, 1], rtol=1e-12)
        np.testing.assert_allclose(mine["log_likelihood"], alone.log_likelihood, rtol=1e-12)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow"])
def test_the_same_kind_of_table_comes_back(kind: str) -> None:
    given = as_kind(kind, rows_of())
    found = TrackerBank(0, 2).feed_table(given, key="sensor", time="time")
    assert type(found) is type(given)
    wanted = TrackerBank(0, 2).feed_table(rows_of(), key="sensor")
    names = ["sensor", "time", "covariance_a_a", "covariance_a_b", "covariance_b_b"]
    columns = found.column_names if kind == "pyarrow" else list(found.columns)
    assert columns == names
    for name in names[2:]:
        np.testing.assert_array_equal(np.asarray(found[name]), wanted[name].to_numpy())


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("numbers", [False, True])
def test_parts_give_what_the_whole_gives(saved: bool, numbers: bool, tmp_path: Path) -> None:
    """Also with columns in another order, missing cells, and over a file."""
    table = rows_of()
    table.loc[50:60, "a"] = np.nan
    if numbers:
        table["sensor"] = table["sensor"].str[1:].astype(int)
    whole = TrackerBank(0, 2, time_unit=1.0).feed_table(table, key="sensor")
    bank, parts = TrackerBank(0, 2, time_unit=1.0), []
    for first in range(0, 120, 50):
        part = table.iloc[first : first + 50][["b", "time", "sensor", "a"]]
        part = part if first else part[["time", "a", "b", "sensor"]]
        parts.append(bank.feed_table(part, key="sensor"))
        if saved:
            bank.save(tmp_path / "bank.npz")
            bank = TrackerBank.load(tmp_path / "bank.npz")
    assert bank.keys == ([0, 1, 2] if numbers else ["s0", "s1", "s2"])
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), whole)


def test_rows_that_overlap_raise_or_are_skipped() -> None:
    table, bank = rows_of(), TrackerBank(0, 2)
    bank.feed_table(table.iloc[:60], key="sensor")
    before = bank.state_dict()
    with pytest.raises(ObservationError, match=r"row 0, key 's0', time 15.*on_overlap=\"skip\""):
        bank.feed_table(table.iloc[45:], key="sensor")
    late = table.iloc[[0, 1, 119]].assign(sensor=["new", "new", "new"], time=[5, 5, 6])
    with pytest.raises(ObservationError, match="row 1, key 'new'"):
        bank.feed_table(late, key="sensor")
    assert bank.keys == ["s0", "s1", "s2"]
    for name, array in before.items():
        np.testing.assert_array_equal(bank.state_dict()[name], array)
    found = bank.feed_table(table.iloc[45:], key="sensor", on_overlap="skip")
    assert len(found) == 60
    whole = TrackerBank(0, 2).feed_table(table, key="sensor")
    np.testing.assert_array_equal(found["covariance_a_b"], whole["covariance_a_b"][60:])


def test_dates_count_in_seconds_and_the_unit_is_learned() -> None:
    table = rows_of()
    plain = TrackerBank(0, 2).feed_table(table, key="sensor", fields=["half_life", "covariance"])
    table["time"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(table["time"], unit="h")
    dated = TrackerBank(0, 2).feed_table(table, key="sensor", fields=["half_life", "covariance"])
    np.testing.assert_allclose(dated["covariance_a_b"], plain["covariance_a_b"], rtol=1e-12)
    np.testing.assert_allclose(dated["half_life"], 3600 * plain["half_life"])


def test_tracks_can_be_forgotten_and_come_back() -> None:
    bank = TrackerBank(0, 2)
    bank.feed_table(rows_of(), key="sensor")
    bank.remove([1])
    assert bank.keys == ["s0", "s2"]
    one = bank.select([1])
    assert one.keys == ["s2"]
    later = rows_of(6)
    later["time"] += 100
    bank.feed_table(later, key="sensor")
    assert bank.keys == ["s0", "s2", "s1"]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"sensor": [1.5, 2, 3]}, "must be all words or all whole numbers, not 1.5"),
        ({"sensor": ["a", None, "b"]}, "must be all words or all whole numbers"),
        ({"time": [0, None, 1]}, "row 1 has no time"),
        ({"a": ["x", "y", "z"]}, "'a' holds .*, not numbers"),
        ({"c": [1.0, 2.0, 3.0]}, "unknown channels 'c'"),
    ],
)
def test_what_cannot_be_used_is_named(change: dict[str, Any], fault: str) -> None:
    bank = TrackerBank(0, 2)
    bank.feed_table(rows_of(), key="sensor")
    table = rows_of(3).assign(**change)
    table["time"] += 1000
    with pytest.raises(ObservationError, match=fault):
        bank.feed_table(table, key="sensor")


def test_wrong_banks_and_columns() -> None:
    with pytest.raises(ObservationError, match="no column 'id'; it has sensor, time, a, b"):
        TrackerBank(0, 2).feed_table(rows_of(), key="id")
    with pytest.raises(ObservationError, match="has 2 channels, a, b; this bank has d = 3"):
        TrackerBank(0, 3).feed_table(rows_of(), key="sensor")
    with pytest.raises(ValueError, match=r"4 tracks of this bank have no key; .*TrackerBank\(0, 2"):
        TrackerBank(4, 2).feed_table(rows_of(), key="sensor")
    with pytest.raises(ObservationError, match="follows rotations"):
        TrackerBank(0, 3, kind="rotation").feed_table(rows_of(), key="sensor")
    with pytest.raises(TypeError, match="got list"):
        TrackerBank(0, 2).feed_table([[1.0]], key="sensor")


# ---------------------------------------------------------------------- kgmrf track --by


def run(capsys: Any, *arguments: Any, code: int = 0) -> str:
    from kgmrf.cli import main

    assert main([str(word) for word in arguments]) == code
    out = capsys.readouterr()
    return out.out if code == 0 else out.err


@pytest.mark.parametrize("name", ["in.csv", "in.csv.gz", "in.parquet", "in.feather"])
@pytest.mark.parametrize("out", ["out.csv", "out.parquet"])
def test_a_file_is_tracked_by_key(name: str, out: str, tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("pyarrow")
    table, path = rows_of(), tmp_path / name
    table.loc[7, "a"] = np.nan
    if "csv" in name:
        table.to_csv(path, index=False)
    elif "parquet" in name:
        table.to_parquet(path)
    else:
        table.to_feather(path)
    told = run(capsys, "track", path, "--by", "sensor", "-o", tmp_path / out)
    assert "120 rows of 3 tracks by 'sensor', d = 2" in told
    read = pd.read_csv if out == "out.csv" else pd.read_parquet
    found = read(tmp_path / out)
    bank = TrackerBank(0, 2)
    wanted = bank.feed_table(table, key="sensor", fields=["covariance", "log_likelihood"])
    pd.testing.assert_frame_equal(found, wanted, check_dtype=False, rtol=1e-12)


def test_what_tracks_by_key_do_not_have(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "in.csv"
    rows_of().to_csv(path, index=False)
    assert "no --report" in run(
        capsys, "track", path, "--by", "sensor", "--report", "r.html", code=2
    )
    told = run(capsys, "track", path, "--by", "sensor", "--mean", "expanding", code=2)
    assert "no --mean" in told
    assert "writes .csv and" in run(capsys, "track", path, "--by", "s", "-o", "o.npz", code=2)
    assert "no column 'id'; it has sensor" in run(capsys, "track", path, "--by", "id", code=2)
    rows_of().iloc[::-1].to_csv(path, index=False)
    assert "rows from 1 on: row 3, key 's2'" in run(capsys, "track", path, "--by", "sensor", code=2)
    told = run(capsys, "track", path, "--by", "sensor", "--columns", "zz", code=2)
    assert "no column 'zz'" in told
