"""Real segments and files of changes: what is refused, how damage is reported, how they are cleaned."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pytest

from tilth.model.delta import Delta, DeltaKind, PartSource, WrittenDelta
from tilth.model.part import ColumnRange, DataFile, PartName, WrittenPart
from tilth.model.table import Column, Schema, Transform, TransformKind
from tilth.model.txn import Txn, TxnOutput, TxnState
from tilth.model.types import Kind, Simple
from tilth.storage import (
    BadColumnError,
    DeltaFileCorruptError,
    DeltaFileNotFoundError,
    DeltaWriter,
    PartFileCorruptError,
    PartFileNotFoundError,
    StoreAwayError,
    TableLayout,
    UniqueKeyNullError,
    check_file,
    clean_transaction,
    data_folder,
    iter_source,
    load_changes,
    local_root,
    read_changes,
    read_deletes,
    read_segment,
    read_source,
    remove_data,
    write_parts,
    write_rows,
    write_segments,
)

pytestmark = pytest.mark.integration
TABLE = "ab" * 16
SCHEMA = Schema(
    columns=(
        Column(id=4, name="note", type=Simple(Kind.STRING)),
        Column(id=7, name="k", type=Simple(Kind.INT64), nullable=False),
        Column(id=9, name="Day", type=Simple(Kind.STRING), nullable=False),
    )
)
BY_DAY = (Transform(kind=TransformKind.IDENTITY, column="day"),)
AT = {"txn": 3, "task": 0, "attempt": 0}


@pytest.fixture
def layout(tmp_path: Path) -> TableLayout:
    return TableLayout(
        folder=data_folder(local_root(tmp_path), TABLE), schema=SCHEMA, partition_by=BY_DAY, unique_key=("K",)
    )


def _rows(*keys: int | None, day: str | None = "mon") -> pa.Table:
    count = len(keys)
    notes = pa.array([f"n{key}" for key in keys])
    return pa.table({"k": pa.array(keys, pa.int64()), "note": notes, "day": pa.array([day] * count, pa.string())})


def _source(part: WrittenPart, *written: WrittenDelta) -> PartSource:
    deltas = [
        Delta(
            kind=each.kind,
            partition=each.partition,
            file=each.file,
            targets=each.targets,
            columns=each.columns,
            change_ts=number,
            commit_ts=number,
        )
        for number, each in enumerate(written, start=1)
    ]
    return PartSource(
        name=PartName(part.partition, 1, 1, 0, 1),
        file=part.file,
        rows=part.rows,
        is_segment=part.is_segment,
        schema=SCHEMA,
        deltas=tuple(deltas),
    )


def _segment(layout: TableLayout, *keys: int) -> WrittenPart:
    (part,) = write_segments(layout, _rows(*keys), txn=1, task=0, attempt=0)
    return part


def test_a_segment_rolls_at_a_size_and_keeps_the_order(layout: TableLayout) -> None:
    rows = pa.table(
        {
            "note": [f"n{number}" for number in range(1000)],
            "k": list(range(1000)),
            "day": ["a" if number % 3 else "b" for number in range(1000)],
        }
    )
    small = dataclasses.replace(layout, segment_bytes=4000)
    written = write_segments(small, rows, **AT)
    assert len(written) > 4
    assert len({each.file.name for each in written}) == len(written)
    for day in "ab":
        found = [
            key
            for each in written
            if each.partition == day
            for piece in read_segment(small.folder, each.file, SCHEMA, ["k"])
            for key in piece.column("k").to_pylist()
        ]
        assert found == [number for number in range(1000) if ("a" if number % 3 else "b") == day]
    # One row above the limit is one segment; without a limit there is one for each partition.
    assert len(write_segments(dataclasses.replace(layout, segment_bytes=1), rows.slice(0, 5), **AT | {"task": 1})) == 5
    assert len(write_segments(dataclasses.replace(layout, segment_bytes=0), rows, **AT | {"task": 2})) == 2


def test_a_segment_holds_one_partition_and_keeps_the_order(layout: TableLayout) -> None:
    rows = pa.concat_tables([_rows(5), _rows(9, day="tue"), _rows(1, 7)])
    monday, tuesday = write_segments(layout, rows, txn=2, task=1, attempt=3, first_n=4)
    assert [part.file.name for part in (monday, tuesday)] == ["2-1.3-4.arrow", "2-1.3-5.arrow"]
    assert (monday.partition, monday.values, monday.rows, monday.is_segment) == ("mon", ("mon",), 3, True)
    assert monday.ranges == {"Day": ColumnRange("mon", "mon", 0), "k": ColumnRange(1, 7, 0)}
    table, numbers = read_source(layout.folder, _source(monday), ["k"])
    assert (table.to_pydict(), numbers.tolist()) == ({"k": [5, 1, 7]}, [0, 1, 2])
    check_file(layout.folder, tuesday.file)


def test_large_segments_come_in_batches(layout: TableLayout) -> None:
    rows = _rows(*range(5)).set_column(1, "note", pa.array(["x" * (9 << 20)] * 5))
    (part,) = write_segments(layout, rows, **AT)
    blocks = list(iter_source(layout.folder, _source(part), columns=["k"], block_rows=100))
    assert len(blocks) > 1
    assert [key for table, _ in blocks for key in table.column("k").to_pylist()] == [0, 1, 2, 3, 4]


def test_rows_are_written_as_in_the_layout(layout: TableLayout) -> None:
    buffered = TableLayout(folder=layout.folder, schema=SCHEMA, is_buffered=True)
    plain = TableLayout(folder=layout.folder, schema=SCHEMA)
    assert [part.file.name for part in write_rows(buffered, _rows(2, 1), **AT)] == ["3-0.0-0.arrow"]
    assert [part.file.name for part in write_rows(plain, _rows(2, 1), **AT)] == ["3-0.0-0.parquet"]
    assert write_segments(layout, _rows(), txn=4, task=0, attempt=0) == []


def test_rows_of_one_key_in_several_partitions_keep_their_order(layout: TableLayout) -> None:
    by_day = (Transform(kind=TransformKind.IDENTITY, column="Day"),)
    rows = pa.table(
        {"k": [1, 2, 1, 1, 2], "Day": ["mon", "mon", "tue", "mon", "mon"], "_op": pa.array([0] * 5, pa.int8())}
    )
    keyed = TableLayout(
        folder=layout.folder, schema=SCHEMA, partition_by=by_day, unique_key=("k",), is_buffered=True,
        is_keyed_across=True, is_partial=True, fsync=False,
    )  # fmt: skip
    written = write_rows(keyed, rows, **AT)
    found = [(part.partition, read_source(layout.folder, _source(part), ["k"])[0].to_pydict()["k"]) for part in written]
    assert found == [("mon", [1, 2, 2]), ("tue", [1]), ("mon", [1])]
    whole = dataclasses.replace(keyed, is_partial=False)
    newest = write_rows(whole, rows, txn=9, task=0, attempt=0)
    assert [(part.partition, part.rows) for part in newest] == [("mon", 2)]


def test_rows_that_delete_need_no_more_than_the_key(layout: TableLayout) -> None:
    schema = Schema(columns=(*SCHEMA.columns, Column(id=11, name="must", type=Simple(Kind.INT64), nullable=False)))
    layout = TableLayout(folder=layout.folder, schema=schema, unique_key=("k",))
    rows = _rows(1, 2).append_column("_op", [[0, 1]])
    with pytest.raises(BadColumnError, match="must"):
        write_segments(layout, rows, **AT)
    (part,) = write_segments(layout, rows.append_column("must", pa.array([5, None])), **AT)
    source = msgspec.structs.replace(_source(part), schema=schema)
    table, _ = read_source(layout.folder, source, ["_op", "k", "must"])
    assert table.to_pydict() == {"_op": [0, 1], "k": [1, 2], "must": [5, None]}
    assert read_source(layout.folder, source)[0].column_names == list(schema.names)
    (plain,) = write_segments(layout, _rows(3).append_column("must", pa.array([5])), txn=9, task=0, attempt=0)
    for each in (plain, *write_parts(layout, _rows(3).append_column("must", pa.array([5])), **AT)):
        source = msgspec.structs.replace(_source(each), schema=schema)
        assert read_source(layout.folder, source, ["_op"])[0].to_pydict() == {"_op": [0]}
        assert [
            table.to_pydict() for table, _ in iter_source(layout.folder, source, columns=["_op"], block_rows=5)
        ] == [{"_op": [0]}]


def test_rows_without_a_key_are_refused(layout: TableLayout) -> None:
    loose = Schema(columns=tuple(msgspec.structs.replace(column, nullable=True) for column in SCHEMA.columns))
    layout = TableLayout(folder=layout.folder, schema=loose, unique_key=("K",))
    for rows in (_rows(1, None), _rows(1, None).append_column("_op", [[1, 1]]), _rows(1).drop_columns(["k"])):
        with pytest.raises(UniqueKeyNullError, match="column=K rows=1"):
            write_segments(layout, rows, **AT)
    with pytest.raises(BadColumnError, match="_op"):
        write_segments(layout, _rows(1).append_column("_op", pa.array([None], pa.int8())), **AT)


def _deltas(layout: TableLayout, file: str) -> dict[DeltaKind, WrittenDelta]:
    changes = pa.table({"file": [file], "row": [0], "op": pa.array([0], pa.int8())})
    updates = pa.table({"row": [1], "c4": ["new"]})
    return {
        DeltaKind.CHANGES: DeltaWriter(layout, **AT).changes("mon", changes),
        DeltaKind.DELETE: DeltaWriter(layout, **AT).deletes("mon", file, np.array([0])),
        DeltaKind.UPDATE: DeltaWriter(layout, **AT).updates("mon", file, updates),
        DeltaKind.COLUMN: DeltaWriter(layout, **AT, first_n=1).columns("mon", file, [pa.table({"c4": ["a", "b"]})]),
    }


@pytest.mark.parametrize("kind", list(DeltaKind))
def test_a_delta_that_is_lost_or_damaged_is_reported(layout: TableLayout, kind: DeltaKind) -> None:
    part = _segment(layout, 1, 2)
    written = _deltas(layout, part.file.name)[kind]
    source, path = _source(part, written), Path(layout.folder, written.file.name)
    assert read_source(layout.folder, source)[0].num_rows in (1, 2)
    check_file(layout.folder, written.file, is_delta=True)
    content = path.read_bytes()

    def is_refused(wanted: type[Exception]) -> None:
        for read in (
            lambda: load_changes(layout.folder, source),
            lambda: check_file(layout.folder, written.file, is_delta=True),
        ):
            with pytest.raises(wanted, match=written.file.name):
                read()

    path.write_bytes(content[:-1])
    is_refused(DeltaFileCorruptError)
    path.write_bytes(content[: len(content) // 2] + b"\xff" + content[len(content) // 2 + 1 :])
    is_refused(DeltaFileCorruptError)
    path.unlink()
    is_refused(DeltaFileNotFoundError)
    Path(layout.folder).rename(Path(layout.folder).with_name("elsewhere"))
    is_refused(StoreAwayError)


def test_a_segment_that_is_lost_or_damaged_is_reported(layout: TableLayout) -> None:
    part = _segment(layout, 1, 2)
    path, source = Path(layout.folder, part.file.name), _source(part)
    with pytest.raises(PartFileCorruptError, match="expected_rows=3"):
        read_source(layout.folder, msgspec.structs.replace(source, rows=3))
    content = path.read_bytes()
    for broken in (content[:-9], content.replace(b"n2", b"n3", 1)):
        path.write_bytes(broken)
        with pytest.raises(PartFileCorruptError, match=part.file.name):
            read_source(layout.folder, source)
    path.unlink()
    with pytest.raises(PartFileNotFoundError, match=part.file.name):
        list(iter_source(layout.folder, source, block_rows=5))


def test_changes_that_do_not_fit_their_part_are_reported(layout: TableLayout) -> None:
    part, other = _segment(layout, 1, 2), "8-0.0-0.arrow"
    beyond = DeltaWriter(layout, **AT).deletes("mon", part.file.name, np.array([2]))
    short = DeltaWriter(layout, **AT).columns("mon", part.file.name, [pa.table({"c4": ["a"]})])
    foreign = DeltaWriter(layout, **AT, first_n=1).deletes("mon", other, np.array([0]))
    changes = pa.table({"file": [other], "row": [0], "op": pa.array([0], pa.int8())})
    elsewhere = DeltaWriter(layout, **AT).changes("mon", changes)
    for written in (beyond, short, foreign, elsewhere):
        with pytest.raises(DeltaFileCorruptError, match=written.file.name):
            load_changes(layout.folder, _source(part, written))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"c5": [1]}, "column=5"),
        ({"note": ["x"]}, "column=note"),
        ({"c7": ["x"]}, "column=k"),
        ({"c7": pa.array([None], pa.int64())}, "column=k nulls=1"),
    ],
)
def test_new_values_must_fit_their_column(layout: TableLayout, columns: dict[str, object], message: str) -> None:
    def refuses(write: Callable[[pa.Table], WrittenDelta], **more: object) -> None:
        with pytest.raises(BadColumnError, match=message):
            write(pa.table({**more, **columns}))

    refuses(lambda rows: DeltaWriter(layout, **AT).changes("mon", rows), file=["f"], row=[0], op=[1])
    refuses(lambda rows: DeltaWriter(layout, **AT).updates("mon", "f", rows), row=[0])
    refuses(lambda rows: DeltaWriter(layout, **AT).columns("mon", "f", [rows]))


def test_a_null_that_is_not_given_is_none(layout: TableLayout) -> None:
    part = _segment(layout, 1, 2)
    nothing = pa.array([None, 9], pa.int64())
    changes = pa.table({"file": [part.file.name] * 2, "row": [0, 1], "op": [1, 1], "c7": nothing, "p7": [False, True]})
    written = DeltaWriter(layout, **AT).changes("mon", changes)
    assert (written.columns, written.targets[0].updated, written.targets[0].deleted) == ((7,), 2, 0)
    assert read_source(layout.folder, _source(part, written), ["k"])[0].to_pydict() == {"k": [1, 9]}
    assert read_changes(layout.folder, written.file).column("p7").to_pylist() == [False, True]
    assert read_deletes(layout.folder, _source(part, written).deltas[0], part.file.name).tolist() == []


def test_all_files_of_a_transaction_and_what_lies_beside_them_are_cleaned(tmp_path: Path, layout: TableLayout) -> None:
    folder = Path(layout.folder)
    _deltas(layout, "1-0.0-0.parquet")
    for attempt in (0, 1):
        write_parts(layout, _rows(1), txn=4, task=0, attempt=attempt)
        for kind in ("map", "filter"):
            (folder / f"4-0.{attempt}-0.{kind}").touch()
        write_segments(layout, pa.concat_tables([_rows(1), _rows(2, day="tue")]), txn=4, task=0, attempt=attempt)
    outputs = (TxnOutput(table=TABLE, tasks=1),)
    txn = Txn(id=4, actor="insert", state=TxnState.ABORTED, fences=(), outputs=outputs, server="s")
    kept = {"4-0.1-0.parquet", "4-0.1-1.arrow"}
    assert clean_transaction(local_root(tmp_path), txn, keep=kept) == 4
    left = {path.name for path in folder.iterdir() if path.name.startswith("4-")}
    assert left == kept | {"4-0.1-0.map", "4-0.1-0.filter"}
    assert clean_transaction(local_root(tmp_path), msgspec.structs.replace(txn, id=3)) == 4
    segment, part = (DataFile(name=name, size=0, checksum=0) for name in ("4-0.1-0.arrow", "4-0.1-0.parquet"))
    assert remove_data(local_root(tmp_path), TABLE, [segment]) == {}
    assert (folder / "4-0.1-0.map").exists()
    assert remove_data(local_root(tmp_path), TABLE, [part]) == {}
    assert [path.name for path in folder.iterdir()] == ["4-0.1-1.arrow"]
