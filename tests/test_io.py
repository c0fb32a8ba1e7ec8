"""Files in, files out: what is read is what was written, in chunks, with the place of errors."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import kgmrf
from kgmrf import KGMRF, simulate
from kgmrf.geometry import so
from kgmrf.io import DataError, Source, Writer, open_source
from kgmrf.io import text as text_module
from kgmrf.io.columns import quaternions
from kgmrf.io.write import DEFAULT, columns_of

ROWS = np.array([[0.5, -1.0, 2.0], [np.nan, 3.0, 1e-7], [1e10, -0.25, 0.125], [4.0, 5.0, 6.0]])
TIMES = np.array([0.0, 0.5, 1.0, 2.5])


def whole(source: Source) -> tuple[Any, Any, Any]:
    chunks = list(source)
    values = np.concatenate([c.values for c in chunks])
    stamps = [c.times for c in chunks if c.times is not None]
    return (
        values,
        np.concatenate(stamps) if stamps else None,
        np.concatenate([c.places for c in chunks]),
    )


def write(path: Path, values: Any = ROWS, times: Any = TIMES) -> Path:
    """A table of samples in the format that the ending says."""
    names = ["a", "b", "c"]
    if path.suffix == ".parquet":
        pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed: no Parquet")
        import pyarrow.parquet as pq

        table = {"time": times, **{n: values[:, k] for k, n in enumerate(names)}}
        pq.write_table(pa.table(table), path)
    elif path.suffix in (".h5", ".hdf5"):
        h5py = pytest.importorskip("h5py", reason="h5py is not installed: no HDF5")
        with h5py.File(path, "w") as file:
            file["run/samples"] = values
            file["run/times"] = times
    elif path.suffix == ".npz":
        np.savez(path, samples=values, times=times)
    else:
        mark = "\t" if path.suffix == ".tsv" else ","
        lines = [mark.join(["time", *names])]
        for t, row in zip(times, values, strict=True):
            cells = ["" if np.isnan(v) else repr(float(v)) for v in row]
            lines.append(mark.join([repr(float(t)), *cells]))
        path.write_text("\n".join(lines) + "\n")
    return path


FORMATS = [".csv", ".tsv", ".txt", ".parquet", ".npz", ".h5"]


@pytest.mark.parametrize("suffix", FORMATS)
def test_samples_come_back_from_every_format(suffix: str, tmp_path: Path) -> None:
    source = open_source(write(tmp_path / f"data{suffix}"))
    values, times, places = whole(source)
    assert source.kind == "samples"
    assert source.d == 3
    assert np.array_equal(values, ROWS, equal_nan=True)
    assert np.array_equal(times, TIMES)
    first = 2 if source.word == "line" else 0
    assert places.tolist() == list(range(first, first + 4))
    # A source can be gone through again.
    assert np.array_equal(whole(source)[0], ROWS, equal_nan=True)


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_larger_than_a_chunk_is_the_same_sequence(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    rows, times = rng.normal(size=(500, 3)), np.cumsum(rng.random(500))
    rows[rng.random(rows.shape) < 0.05] = np.nan
    path = write(tmp_path / f"data{suffix}", rows, times)
    monkeypatch.setattr(text_module, "BLOCK", 1000)
    monkeypatch.setattr("kgmrf.io.source.rows_per_chunk", lambda n: 37)
    source = open_source(path)
    assert len(list(source)) > 5
    values, stamps, _ = whole(source)
    assert np.array_equal(values, rows, equal_nan=True)
    assert np.array_equal(stamps, times)


numbers = st.floats(allow_infinity=False, width=64)


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=20), st.sampled_from(",;\t "))
def test_any_numbers_between_any_marks(tmp_path: Path, rows: list[Any], mark: str) -> None:
    path = tmp_path / "data.txt"
    cell = (lambda v: "nan" if np.isnan(v) else repr(v)) if mark == " " else repr
    path.write_text("".join(mark.join(map(cell, row)) + "\r\n" for row in rows))
    values, times, _ = whole(open_source(path, kind="samples"))
    assert np.array_equal(values, np.array(rows), equal_nan=True)
    assert times is None


def test_the_slow_way_reads_what_the_quick_way_reads(tmp_path: Path) -> None:
    plain = write(tmp_path / "plain.csv")
    quoted = tmp_path / "quoted.csv"
    lines = plain.read_text().splitlines()
    # A remark, a quoted header, other words for a gap, an empty line.
    text = ["# made by hand", '"time","a","b","c"', *lines[1:2], "", "0.5,NA,3.0,1e-07", *lines[3:]]
    quoted.write_text("\n".join(text))
    values, times, places = whole(open_source(quoted))
    assert np.array_equal(values, ROWS, equal_nan=True)
    assert np.array_equal(times, TIMES)
    assert places.tolist() == [3, 5, 6, 7]


def test_dates_become_seconds(tmp_path: Path) -> None:
    path = tmp_path / "returns.csv"
    path.write_text("date,spy,agg\n2024-03-01,0.5,0.1\n2024-03-04,-0.25,0.2\n")
    _, times, _ = whole(open_source(path))
    assert np.diff(times).tolist() == [3 * 86400.0]
    stamped = tmp_path / "stamped.csv"
    stamped.write_text("time,a\n2024-03-01T10:00:00.5Z,1\n2024-03-01T10:00:01Z,2\n")
    assert np.diff(whole(open_source(stamped))[1]).tolist() == [0.5]
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    days = np.array(["2024-03-01", "2024-03-04"], dtype="datetime64[ns]")
    pq.write_table(pa.table({"date": days, "a": [1.0, 2.0]}), tmp_path / "r.parquet")
    assert np.diff(whole(open_source(tmp_path / "r.parquet"))[1]).tolist() == [3 * 86400.0]


def table(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# ---------------------------------------------------------------------- clocks and headers


def test_the_index_of_a_data_frame_is_the_time(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    source = open_source(table(path, ",a,b\n3,1,2\n5,2,1\n"))
    assert source.names == ("a", "b")
    assert whole(source)[1].tolist() == [3.0, 5.0]
    assert "no name" in source.remarks[0]
    # Days, columns that are numbered, and a time beside the index.
    source = open_source(table(path, ",0,1\n2024-03-01,1,2\n2024-03-04,2,1\n"))
    assert (source.names, source.dates) == (("0", "1"), "D")
    assert np.diff(whole(source)[1]).tolist() == [3 * 86400.0]
    source = open_source(table(path, ",time,a\n9,1,2\n8,2,1\n"))
    assert (source.names, whole(source)[1].tolist()) == (("a",), [1.0, 2.0])
    assert "left out" in source.remarks[0]
    # One that is no time: said by the user, or refused.
    table(path, ",a,b\ny,1,2\nx,2,1\n")
    with pytest.raises(DataError, match="--columns, or a clock with --time"):
        open_source(path)
    assert whole(open_source(path, columns=["a", "b"]))[1] is None
    table(path, ",a,b\n2,1,2\n1,2,1\n")
    assert open_source(path, columns=["index", "a"]).names == ("index", "a")


def test_the_index_of_a_stored_data_frame_is_the_time(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path = tmp_path / "a.parquet"

    def stored(**columns: Any) -> Source:
        pq.write_table(pa.table(columns), path)
        return open_source(path)

    source = stored(a=[1.0, 2.0], on=[True, None], __index_level_0__=[3, 5])
    assert source.names == ("a", "on")
    assert np.array_equal(whole(source)[0], [[1.0, 1.0], [2.0, np.nan]], equal_nan=True)
    assert whole(source)[1].tolist() == [3.0, 5.0]
    days = np.array(["2024-03-01", "2024-03-04"], dtype="datetime64[D]")
    source = stored(a=[1.0, 2.0], when=days)
    assert (source.names, source.dates) == (("a",), "D")
    source = stored(a=[1.0, 2.0], day=[20240301, 20240304], time=[1.0, 2.0])
    assert source.names == ("a", "day")
    source = stored(a=[1.0, 2.0], date=[20240301, 20240304])
    assert np.diff(whole(source)[1]).tolist() == [3 * 86400.0]
    for bad in (["x", "y"], [5, 3]):
        with pytest.raises(DataError, match="--columns, or a clock with --time"):
            stored(a=[1.0, 2.0], __index_level_0__=bad)
    with pytest.raises(DataError, match="choose another with --time"):
        stored(a=[1.0, 2.0], time=["x", "y"])
    with pytest.raises(DataError, match="other columns with --columns"):
        stored(a=[1.0, 2.0], b=["x", "y"])


@pytest.mark.parametrize("mark", ["#", "# ", "%", ""])
def test_quaternions_under_a_header_with_units(mark: str, tmp_path: Path) -> None:
    header = mark + "timestamp [ns],p_RS_R_x [m],q_RS_w [],q_RS_x [],q_RS_y [],q_RS_z [],b_w [s^-1]"
    rows = [f"{1403636580838555648 + 5000000 * k},1,1,0,0,{0.1 * k},2" for k in range(3)]
    source = open_source(table(tmp_path / "data.csv", "\n".join([header, *rows])))
    values, times, places = whole(source)
    assert (source.kind, source.d) == ("rotation", 3)
    expected = quaternions(np.array([[0.0, 0.0, 0.1 * k, 1.0] for k in range(3)]))
    assert np.allclose(values, expected)
    assert np.allclose(np.diff(times), 5e6, atol=600)
    assert places.tolist() == [2, 3, 4]
    # With the unit or without, a column is found by its name.
    path = tmp_path / "data.csv"
    assert open_source(path, columns=["p_RS_R_x [m]"]).names == ("p_RS_R_x",)


def test_comments_that_are_headers_and_comments_that_are_not(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    source = open_source(table(path, "# made by hand\n# t a b\n0 1 2\n% half\n1 2 1\n"))
    assert source.names == ("a", "b")
    assert whole(source)[1].tolist() == [0.0, 1.0]
    assert open_source(table(path, "# made by hand\n0 1\n1 2\n")).names == ("0", "1")
    assert open_source(table(path, "# 0 1 2\n0 1 2\n1 2 3\n")).names == ("0", "1", "2")
    assert open_source(table(path, "# a a b\n0 1 2\n1 2 3\n")).names == ("0", "1", "2")
    pose = "0 1 2 3 0 0 0 1\n1 1 2 3 0 0 0 1\n"
    for words in ("eight words that say nothing of the file", "timestamp tx ty tz qx qy qz qw"):
        source = open_source(table(path, f"# {words}\n{pose}"))
        assert (source.kind, whole(source)[1].tolist()) == ("rotation", [0.0, 1.0])
    two = "qx,qy,qz,qw,q_a_x,q_a_y,q_a_z,q_a_w\n0,0,0,1,0,0,0,1\n"
    with pytest.raises(DataError, match="choose one with --columns"):
        open_source(table(tmp_path / "two.csv", two))


def test_days_as_numbers(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "Date,a\n20240229,1\n20240301,2\n")
    source = open_source(path)
    assert source.dates == "D"
    assert np.diff(whole(source)[1]).tolist() == [86400.0]
    table(path, "Date,a\n" + "".join(f"202402{k:02d},1\n" for k in range(1, 29)) + "20240230,1\n")
    assert len(whole(open_source(table(path, path.read_bytes()[:-11])))[0]) == 28
    table(path, "Date,a\n" + "20240229,1\n" * 300 + "20240230,1\n")
    with pytest.raises(DataError, match=r"line 302: '20240230' is not a day"):
        whole(open_source(path))
    # Other numbers under that name stay numbers, and so do these under other names.
    assert whole(open_source(table(path, "date,a\n1,1\n2,2\n")))[1].tolist() == [1.0, 2.0]
    table(path, "time,a\n20240229,1\n20240301,2\n")
    assert np.diff(whole(open_source(path))[1]).tolist() == [72.0]


def test_dates_without_a_header_and_with_a_zone(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "2024-03-01,1,2\n2024-03-02,2,1\n")
    source = open_source(path)
    assert (source.names, len(whole(source)[0])) == (("1", "2"), 2)
    table(path, "when,a\n2024-03-01T10:00:00+02:00,1\n2024-03-01 08:00:01Z,1\n")
    source = open_source(path)
    assert source.dates == "sZ"
    assert np.diff(whole(source)[1]).tolist() == [1.0]
    table(path, "time,a\n03/01/2024,1\n")
    with pytest.raises(DataError, match=r"line 2: the time '03/01/2024' is neither"):
        whole(open_source(path))


# ---------------------------------------------------------------------- numbers of other writers


@given(st.lists(st.one_of(st.none(), st.integers(-9, 9)), min_size=1, max_size=30), st.data())
def test_a_blank_line_of_one_column_is_a_gap(
    tmp_path: Path, values: list[int | None], data: st.DataObject
) -> None:
    values = [*values, 1]
    text = "a\n" + "".join("\n" if v is None else f"{v}\n" for v in values)
    text += "\n" * data.draw(st.integers(0, 3))
    path = table(tmp_path / "a.csv", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module, "BLOCK", data.draw(st.integers(1, 40)))
        found, _, places = whole(open_source(path))
    expected = [np.nan if v is None else float(v) for v in values]
    assert np.array_equal(found[:, 0], expected, equal_nan=True)
    assert places.tolist() == list(range(2, 2 + len(values)))


def test_marks_inside_quotes_do_not_divide(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", '"time","Fp1 (uV; ref)","Price, USD"\n0,1,2\n1,2,1\n')
    assert open_source(path).names == ("Fp1 (uV; ref)", "Price, USD")
    assert open_source(table(path, '"Fp1 uV"\n1\n2\n')).names == ("Fp1 uV",)


@pytest.mark.parametrize("mark", [";", "\t"])
@pytest.mark.parametrize("header", ["time{}a{}b\n", ""])
def test_decimal_commas(mark: str, header: str, tmp_path: Path) -> None:
    rows = [["0,5", "1", ""], ["1,5", "-2,25", "1e-3"], ["2", ",5", "1,5e2"]]
    text = header.replace("{}", mark) + "".join(mark.join(row) + "\n" for row in rows)
    source = open_source(table(tmp_path / "a.csv", text))
    values, times, _ = whole(source)
    found = values if times is None else np.column_stack([times, values])
    expected = [[0.5, 1.0, np.nan], [1.5, -2.25, 0.001], [2.0, 0.5, 150.0]]
    assert np.array_equal(found, expected, equal_nan=True)
    assert "decimal comma" in source.remarks[0]
    # The exact way reads what the quick way reads.
    quoted = text.replace("-2,25", '"-2,25"')
    assert np.array_equal(
        whole(open_source(table(tmp_path / "a.csv", quoted)))[0], values, equal_nan=True
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('a,b\n"1,5",2\n', "'1,5' is not a number; choose other columns with --columns"),
        ("a;b\n1.234,5;2,5\n", "'1.234,5' is not a number (others here have a decimal comma)"),
        ("a,b\n5 %,2\n", "'5 %' is not a number; choose other"),
        ("time,a\n1,2024-03-01\n", "'2024-03-01' is not a number; choose other"),
    ],
)
def test_a_cell_that_is_no_number_is_named(text: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="line 2, column") as caught:
        whole(open_source(table(tmp_path / "a.csv", text)))
    assert words in str(caught.value)


def test_truths_are_numbers(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "a,on\n1,True\n2,false\n")
    assert whole(open_source(path))[0].tolist() == [[1.0, 1.0], [2.0, 0.0]]


def test_other_encodings(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", "H\u00f6he,b\n1,2\n".encode("latin-1"))
    source = open_source(path)
    assert source.names == ("H\u00f6he", "b")
    assert open_source(table(path, "\ufeffH\u00f6he,b\n1,2\n".encode())).names[0] == "H\u00f6he"
    with pytest.raises(DataError, match="UTF-16: save it again as UTF-8"):
        open_source(table(path, "a,b\n1,2\n".encode("utf-16")))


def test_packed_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows, times = rng.normal(size=(300, 3)), np.cumsum(rng.random(300))
    plain = write(tmp_path / "a.csv", rows, times)
    packed = table(tmp_path / "a.csv.gz", gzip.compress(plain.read_bytes()))
    monkeypatch.setattr(text_module, "BLOCK", 1000)
    source = open_source(packed)
    for mine, other in zip(whole(source), whole(open_source(plain)), strict=True):
        assert np.array_equal(mine, other)
    assert list(source)[-1].done == 1.0
    data = packed.read_bytes()
    for damaged in (data[:-9], data[: len(data) // 2], data[:100] + b"x" * 50 + data[150:]):
        with pytest.raises(DataError, match=r"cannot be unpacked|is not a number|cells where"):
            whole(open_source(table(packed, damaged)))
    with pytest.raises(DataError, match="unsupported file extension"):
        open_source(table(tmp_path / "a.npy.gz", data))


def test_pipes_are_refused(tmp_path: Path) -> None:
    for path in ("-", "/dev/stdin"):
        with pytest.raises(DataError, match="save it in a file first"):
            open_source(path)


# ---------------------------------------------------------------------- matrices


@pytest.mark.parametrize("suffix", [".csv", ".npz"])
def test_simulated_scenes_are_understood(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("typer")
    from kgmrf.cli import main

    path = tmp_path / f"scene{suffix}"
    main(["simulate", "rotating-covariance", "-d", "3", "-o", str(path), "--dropout", "0.2"])
    source = open_source(path)
    assert source.kind == "covariance"
    assert source.n_samples == 8
    values, times, _ = whole(source)
    observed = simulate.iid(len(values), 0.2, np.random.default_rng([0, 1]))
    scene = simulate.rotating_covariance(3, rng=0, observed=observed)
    assert np.array_equal(values, scene.observations, equal_nan=True)
    assert np.array_equal(times, scene.times)
    main(["simulate", "steady-camera", "-o", str(path)])
    assert open_source(path).kind == "rotation"


def test_quaternions_are_those_of_scipy() -> None:
    Rotation = pytest.importorskip("scipy.spatial.transform").Rotation
    quats = np.random.default_rng(0).normal(size=(20, 4))
    assert np.allclose(quaternions(quats), Rotation.from_quat(quats).as_matrix())


def test_tum_trajectories_and_named_quaternions(tmp_path: Path) -> None:
    Rotation = pytest.importorskip("scipy.spatial.transform").Rotation
    turns = so.exp(so.hat(np.random.default_rng(1).normal(size=(5, 3))))
    quats = Rotation.from_matrix(turns).as_quat()
    rows = [f"{k * 0.1} 1 2 3 {' '.join(map(repr, q))}" for k, q in enumerate(quats.tolist())]
    for name in ("path.tum", "path.txt"):
        path = tmp_path / name
        path.write_text("# timestamp tx ty tz qx qy qz qw\n" + "\n".join(rows) + "\n")
        source = open_source(path)
        values, times, _ = whole(source)
        assert source.kind == "rotation"
        assert np.allclose(values, turns)
        assert np.allclose(times, np.arange(5) * 0.1)
    named = tmp_path / "named.csv"
    cells = "\n".join(",".join(map(repr, [q[3], q[0], q[1], q[2]])) for q in quats.tolist())
    named.write_text("qw,qx,qy,qz\n" + cells)
    assert np.allclose(whole(open_source(named))[0], turns)
    np.savez(tmp_path / "q.npz", q=quats)
    assert np.allclose(whole(open_source(tmp_path / "q.npz", kind="rotation"))[0], turns)


def test_matrices_of_named_channels(tmp_path: Path) -> None:
    head = "covariance_O_1_O_1,covariance_O_1_Oz,covariance_Oz_Oz"
    source = open_source(table(tmp_path / "a.csv", f"{head}\n2,0.5,1\n"))
    assert source.names == ("O_1", "Oz")
    assert whole(source)[0].tolist() == [[[2.0, 0.5], [0.5, 1.0]]]


def test_matrices_in_columns_without_names(tmp_path: Path) -> None:
    path = tmp_path / "upper.csv"
    path.write_text("2.0,0.5,1.0\n3.0,0.25,1.5\n")
    values, _, _ = whole(open_source(path, kind="covariance"))
    assert values[1].tolist() == [[3.0, 0.25], [0.25, 1.5]]
    path.write_text("2.0,0.5,0.5,1.0\n")
    assert whole(open_source(path, kind="covariance"))[0][0].tolist() == [[2.0, 0.5], [0.5, 1.0]]
    path.write_text("1,2,3,4,5\n")
    with pytest.raises(DataError, match="5 columns of values"):
        open_source(path, kind="covariance")


def test_arrays_in_the_other_order_and_of_other_types(tmp_path: Path) -> None:
    rows = np.arange(12.0).reshape(4, 3)
    np.save(tmp_path / "f.npy", np.asfortranarray(rows))
    assert np.array_equal(whole(open_source(tmp_path / "f.npy"))[0], rows)
    np.save(tmp_path / "i.npy", rows.astype(np.int16))
    assert np.array_equal(whole(open_source(tmp_path / "i.npy"))[0], rows)
    np.savez_compressed(tmp_path / "c.npz", X=rows.astype(">f4"))
    assert np.array_equal(whole(open_source(tmp_path / "c.npz"))[0], rows)


# ---------------------------------------------------------------------- windows


@given(st.integers(1, 40), st.integers(1, 9), st.lists(st.integers(0, 40), max_size=3))
def test_windows_do_not_depend_on_chunks(n: int, size: int, cuts: list[int]) -> None:
    from kgmrf.io import Chunk

    rows, times = np.arange(3.0 * n).reshape(n, 3), np.arange(float(n))

    def read() -> Any:
        parts = np.split(np.arange(n), sorted(min(c, n) for c in cuts))
        return (Chunk(rows[p], times[p], p, 0.5) for p in parts if len(p))

    blocks, stamps, places = whole(
        Source(Path("x"), "samples", ("a", "b", "c"), read).windows(size)
    )
    if size == 1:
        assert np.array_equal(blocks, rows)
        return
    flat = blocks.reshape(-1, 3)
    assert np.array_equal(flat[:n], rows)
    assert np.isnan(flat[n:]).all()
    assert len(flat) - n < size
    assert stamps.tolist() == [min(k + size, n) - 1 for k in range(0, n, size)]
    assert places.tolist() == list(range(0, n, size))


# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("name", "content", "fault"),
    [
        ("a.csv", "a,b\n1,2\n3,oops\n", "a.csv, line 3, column 'b': 'oops' is not a number"),
        ("a.csv", "a,b\n1,2\n3\n", "a.csv, line 3: 1 cells where the table has 2 columns"),
        ("a.csv", "a,b\n1,2\n\n3,inf\n", "a.csv, line 4, column 'b': infinite"),
        ("a.csv", "a,b\n1,1_000\n", "line 2, column 'b': '1_000' is not a number"),
        ("a.csv", "time,a\n1,2\n0,3\n", "line 3: the time 0 lies before the 1 above it"),
        (
            "a.csv",
            "time,a\n1,2\nnoon,3\n",
            "line 3: the time 'noon' is neither a number nor a date",
        ),
        ("a.csv", "time,a\n1,2\nnan,3\n", "line 3: no time"),
        ("a.csv", "time\n1\n2\n", "no column of values beside the time"),
        ("a.csv", "a,a\n1,2\n", "the column 'a' occurs twice"),
        ("a.csv", "a,b\n", "a header and no data"),
        ("a.csv", "", "is empty"),
        ("a.csv", "a\0b\n1\n", "line 1: contains a zero byte"),
        ("a.csv", "covariance_0_0,covariance_1_1\n1,2\n", "no column covariance_0_1"),
        ("a.csv", "covariance_0_0,covariance_9999_9999\n1,2\n", "d = 10000"),
        ("a.tum", "0 0 0 0 0 0 0 0\n", "line 1: a quaternion of length zero"),
        ("a.tum", "0 1 2 3\n", "line 1: a TUM file has 8 columns"),
        ("a.doc", "", "unsupported file extension '.doc'"),
    ],
)
def test_errors_name_the_file_and_the_line(
    name: str, content: str, fault: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError) as caught:
        whole(open_source(tmp_path / name))
    assert fault in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_errors_in_a_later_block_have_the_right_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_module, "BLOCK", 200)
    lines = ["a,b", *(f"{k},{k}" for k in range(500))]
    lines[437] = "1,two"
    (tmp_path / "a.csv").write_text("\n".join(lines))
    with pytest.raises(DataError, match="line 438, column 'b': 'two'"):
        whole(open_source(tmp_path / "a.csv"))


def test_what_the_user_asks_for_must_be_there(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv")
    with pytest.raises(DataError, match="no column 'z'; it has time, a, b, c"):
        open_source(path, columns=["z"])
    with pytest.raises(DataError, match="choose columns instead of a key"):
        open_source(path, key="z")
    assert open_source(path, columns=["c", "a"]).names == ("c", "a")
    archive = write(tmp_path / "a.npz")
    with pytest.raises(DataError, match=r"no array 'z'; it has samples \(4, 3\), times \(4,\)"):
        open_source(archive, key="z")
    with pytest.raises(DataError, match="arrays, not columns"):
        open_source(archive, columns=["a"])
    np.savez(tmp_path / "two.npz", a=ROWS, b=ROWS)
    with pytest.raises(DataError, match="which array"):
        open_source(tmp_path / "two.npz")
    np.save(tmp_path / "deep.npy", np.zeros((2, 3, 4, 5)))
    with pytest.raises(DataError, match=r"has shape \(2, 3, 4, 5\)"):
        open_source(tmp_path / "deep.npy")
    np.save(tmp_path / "words.npy", np.array([["a"]]))
    with pytest.raises(DataError, match="not numbers"):
        open_source(tmp_path / "words.npy")
    with pytest.raises(FileNotFoundError):
        open_source(tmp_path / "none.csv")


# ---------------------------------------------------------------------- results


def result() -> Any:
    scene = simulate.ellipse(0.05, n_frames=50, n_samples=8, rng=0)
    return KGMRF(n_samples=8).filter(scene.observations)


def test_columns_are_those_of_to_frame() -> None:
    pytest.importorskip("pandas")
    table = result().to_frame()
    columns = columns_of(result(), (*DEFAULT, "p_value"))  # files have it on request
    assert set(columns) == set(table.columns)
    assert all(np.array_equal(columns[n], table[n], equal_nan=True) for n in columns)


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_results_written_in_pieces_read_back_whole(suffix: str, tmp_path: Path) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    run, path = result(), tmp_path / f"out{suffix}"
    with Writer(path) as writer:
        for part in (run[:20], run[20:]):
            writer.write(part)
        assert not path.exists()
    source = open_source(path, **({"key": "covariance"} if suffix == ".npz" else {}))
    values, times, _ = whole(source)
    assert source.kind == "covariance"
    assert np.array_equal(values, run.covariance)
    assert np.array_equal(times, run.time)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_a_run_that_fails_leaves_nothing_behind(suffix: str, tmp_path: Path) -> None:
    if suffix == ".parquet":
        pytest.importorskip("pyarrow")
    path = tmp_path / f"out{suffix}"
    path.write_text("what was there")

    def fail() -> None:
        with Writer(path, ["covariance", "spectrum"]) as writer:
            writer.write(result())
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_text() == "what was there"


def test_results_that_cannot_be_written_are_refused_first(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"results end in \.csv, \.parquet, \.npz"):
        Writer(tmp_path / "out.xls")
    with pytest.raises(DataError, match="does not exist"):
        Writer(tmp_path / "nowhere" / "out.csv")


# ---------------------------------------------------------------------- memory


@pytest.mark.skipif(sys.platform == "win32", reason="memory is measured by POSIX only")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A file of 120 MB (1.5 million rows of ten numbers, mostly holes in it) in 60 MB more."""
    path = tmp_path / "large.npy"
    np.lib.format.open_memmap(path, "w+", np.float64, (1_500_000, 10)).flush()
    program = (
        "import resource, sys\n"
        "from kgmrf.io import open_source\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "source = open_source(sys.argv[1])\n"
        "next(iter(source)); before = peak()\n"
        "rows = sum(len(chunk.values) for chunk in source)\n"
        "print(rows, peak() - before)"
    )
    environment = {"PYTHONPATH": str(Path(kgmrf.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    rows, growth = map(int, done.stdout.split())
    unit = 1 if sys.platform == "darwin" else 1024
    assert rows == 1_500_000
    assert growth * unit < 60e6


@example(" ", [("", "3,5")])  # a comma was taken as the end of a cell
@given(
    st.sampled_from([",", ";", "\t", " "]),
    st.lists(
        st.tuples(
            *[st.sampled_from(["1", "-0.5", "1e3", "+2", ".5", "", "nan", "NA", "1_0", "x", "3,5"])]
            * 2
        ),
        min_size=1,
        max_size=6,
    ),
)
def test_plain_blocks_are_read_as_line_by_line(
    tmp_path: Path, delimiter: str, rows: list[Any]
) -> None:
    path = tmp_path / "a.txt"
    lines = [delimiter.join(["time", "a", "b"])]
    lines += [delimiter.join([str(k), *row]) for k, row in enumerate([("1", "2"), *rows])]
    path.write_text("\n".join(lines) + "\n")

    def outcome() -> str:
        try:
            return repr([chunk.values.tolist() for chunk in open_source(path)])
        except DataError as error:
            return str(error)

    quick = outcome()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_module._Table, "_plain", lambda *block: None)
        assert outcome() == quick


def test_entries_by_channel_are_samples_if_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    path.write_text("time,covariance_a_a,covariance_a_b,covariance_b_b\n0,1,0.5,2\n1,1,0.5,2\n")
    assert open_source(path).names == ("a", "b")
    assert open_source(path, kind="samples").d == 3


def test_seconds_and_nanoseconds_of_parquet_are_one_time(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    columns = {"header.stamp.secs": [5, 5, 6], "header.stamp.nsecs": [0, 500_000_000, 0]}
    pq.write_table(pa.table({**columns, "a": [1.0, 2.0, 3.0]}), tmp_path / "ros.parquet")
    source = open_source(tmp_path / "ros.parquet")
    assert source.names == ("a",)
    assert [list(chunk.times) for chunk in source if chunk.times is not None] == [[5.0, 5.5, 6.0]]
