"""Real files: what stands in their footers, how damage is reported, how they are cleaned."""

from __future__ import annotations

import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.part_sources import new_part, plain_source
from tilth.model.delta import PartSource
from tilth.model.part import DataFile
from tilth.model.table import Column, Schema, Transform, TransformKind
from tilth.model.txn import Txn, TxnOutput, TxnState
from tilth.model.types import Kind, Simple
from tilth.storage import (
    FILTER_EXTENSION,
    BadColumnError,
    Expiry,
    PartFileCorruptError,
    PartFileNotFoundError,
    PartWriter,
    TableLayout,
    check_file,
    clean_transaction,
    conform,
    data_folder,
    drop_table_folder,
    footer_rows,
    local_folder,
    local_root,
    merge_parts,
    read_part,
    remove_data,
    sidecar_name,
    write_parts,
)

pytestmark = pytest.mark.integration
TABLE = "ab" * 16
SCHEMA = Schema(
    columns=(
        Column(id=4, name="note", type=Simple(Kind.STRING)),
        Column(id=7, name="k", type=Simple(Kind.INT64), nullable=False),
        Column(id=9, name="day", type=Simple(Kind.STRING)),
    )
)
BY_DAY = (Transform(kind=TransformKind.IDENTITY, column="day"),)


@pytest.fixture
def layout(tmp_path: Path) -> TableLayout:
    return TableLayout(folder=data_folder(local_root(tmp_path), TABLE), schema=SCHEMA, order_by=("k",))


def _rows(*keys: int, day: str = "mon") -> pa.Table:
    return pa.table({"k": list(keys), "note": [f"n{key}" for key in keys], "day": [day] * len(keys)})


def _write(layout: TableLayout, txn: int, rows: pa.Table) -> DataFile:
    (part,) = write_parts(layout, rows, txn=txn, task=0, attempt=0)
    return part.file


def _damage(layout: TableLayout, file: DataFile, at: int) -> None:
    path = Path(layout.folder, file.name)
    written = bytearray(path.read_bytes())
    written[at] ^= 0xFF
    path.write_bytes(written)


def test_the_footer_carries_ids_order_checksums_and_indexes(layout: TableLayout) -> None:
    file = _write(layout, 1, _rows(*range(1000)))
    parquet = pq.ParquetFile(Path(layout.folder, file.name))
    ids = {field.name: field.metadata[b"PARQUET:field_id"] for field in parquet.schema_arrow}
    assert ids == {"note": b"4", "k": b"7", "day": b"9"}
    group = parquet.metadata.row_group(0)
    assert group.sorting_columns == (pq.SortingColumn(column_index=1, descending=False, nulls_first=True),)
    key = group.column(1)
    assert key.compression == "ZSTD"
    assert (key.has_column_index, key.has_offset_index) == (True, True)
    assert (key.statistics.min, key.statistics.max) == (0, 999)
    # Few distinct values get a dictionary, many do not.
    assert (group.column(2).has_dictionary_page, key.has_dictionary_page) == (True, False)


def test_a_flipped_bit_in_a_page_is_found_by_its_checksum(layout: TableLayout) -> None:
    file = _write(layout, 1, _rows(*range(1000)))
    offset = pq.read_metadata(Path(layout.folder, file.name)).row_group(0).column(1).data_page_offset
    _damage(layout, file, offset + 60)
    for read in (lambda: read_part(layout.folder, file), lambda: check_file(layout.folder, file)):
        with pytest.raises(PartFileCorruptError, match=file.name):
            read()
    with pytest.raises(PartFileCorruptError, match=file.name):
        merge_parts(
            new_part(layout, txn=3),
            _plain(layout, _write(layout, 2, _rows(1)), file),
            task=0,
            attempt=0,
        )


def test_a_cut_off_or_missing_file_is_named(layout: TableLayout) -> None:
    file = _write(layout, 1, _rows(1, 2))
    path = Path(layout.folder, file.name)
    path.write_bytes(path.read_bytes()[:-5])
    for read in (lambda: read_part(layout.folder, file), lambda: check_file(layout.folder, file)):
        with pytest.raises(PartFileCorruptError, match=file.name):
            read()
    path.unlink()
    for call in (lambda: footer_rows(layout.folder, file), lambda: check_file(layout.folder, file)):
        with pytest.raises(PartFileNotFoundError, match=file.name):
            call()


def test_a_name_is_never_written_twice(layout: TableLayout) -> None:
    file = _write(layout, 1, _rows(1))
    with pytest.raises(FileExistsError):
        _write(layout, 1, _rows(2))
    check_file(layout.folder, file)


def test_row_groups_have_the_size_that_was_set(tmp_path: Path) -> None:
    layout = TableLayout(folder=local_folder(tmp_path), schema=SCHEMA, order_by=("k",), row_group_rows=100)
    file = _write(layout, 1, _rows(*range(250)))
    metadata = pq.read_metadata(tmp_path / file.name)
    assert [metadata.row_group(number).num_rows for number in range(3)] == [100, 100, 50]


def test_a_merge_takes_renamed_and_younger_columns(layout: TableLayout) -> None:
    old = _write(layout, 1, _rows(3, 1))
    columns = (
        Column(id=7, name="key", type=Simple(Kind.INT64)),
        Column(id=4, name="note", type=Simple(Kind.STRING)),
        Column(id=10, name="day", type=Simple(Kind.STRING)),
    )
    newer = TableLayout(folder=layout.folder, schema=Schema(columns=columns), order_by=("key",))
    new = _write(newer, 2, pa.table({"key": [2], "note": ["n2"], "day": ["tue"]}))
    sources = [*_plain(layout, old), *_plain(newer, new)]
    merged = merge_parts(new_part(newer, txn=3), sources, task=0, attempt=0).written
    assert merged is not None
    assert read_part(layout.folder, merged.file).to_pylist() == [
        {"key": 1, "note": "n1", "day": None},
        {"key": 2, "note": "n2", "day": "tue"},
        {"key": 3, "note": "n3", "day": None},
    ]


def test_a_merge_knows_defaults_that_are_literals(layout: TableLayout) -> None:
    old = _write(layout, 1, _rows(1))
    given = {
        "n": (Kind.INT16, "-7"),
        "f": (Kind.FLOAT64, "0.5"),
        "b": (Kind.BOOLEAN, "TRUE"),
        "s": (Kind.STRING, "'x y'"),
    }
    given |= {"d": (Kind.DATE, "'2020-02-02'"), "z": (Kind.STRING, "null")}
    columns = [
        Column(id=20 + n, name=name, type=Simple(kind), default=text)
        for n, (name, (kind, text)) in enumerate(given.items())
    ]
    newer = TableLayout(folder=layout.folder, schema=Schema(columns=(*SCHEMA.columns, *columns)), order_by=("k",))
    merged = merge_parts(new_part(newer, txn=3), _plain(layout, old), task=0, attempt=0).written
    assert merged is not None
    (row,) = read_part(layout.folder, merged.file).to_pylist()
    assert [row[name] for name in given] == [-7, 0.5, True, "x y", datetime.date(2020, 2, 2), None]
    for text in ("now()", "'a\\'b'", "70000"):
        late = Column(id=30, name="late", type=Simple(Kind.INT16), default=text)
        newest = TableLayout(folder=layout.folder, schema=Schema(columns=(*SCHEMA.columns, late)), order_by=("k",))
        with pytest.raises(BadColumnError, match="column=late"):
            merge_parts(new_part(newest, txn=4), _plain(layout, old), task=0, attempt=0)


def test_rows_expire_only_by_a_time(layout: TableLayout) -> None:
    old = _write(layout, 1, _rows(1))
    with pytest.raises(BadColumnError, match="column=k"):
        merge_parts(
            new_part(layout, txn=3),
            _plain(layout, old),
            task=0,
            attempt=0,
            expired=Expiry(column="k", below=2),
        )


def test_a_file_that_is_not_sorted_is_refused(layout: TableLayout) -> None:
    plain = TableLayout(folder=layout.folder, schema=SCHEMA)
    with pytest.raises(PartFileCorruptError, match="not sorted"):
        merge_parts(
            new_part(layout, txn=2),
            _plain(layout, _write(plain, 1, _rows(2, 1))),
            task=0,
            attempt=0,
        )


def test_a_merge_that_fails_midway_leaves_what_the_cleaner_finds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = data_folder(local_root(tmp_path), TABLE)
    layout = TableLayout(folder=folder, schema=SCHEMA, order_by=("k",), row_group_rows=10)
    files = [_write(layout, txn, _rows(*range(5000))) for txn in (1, 2)]
    pieces = iter([PartWriter.write, PartWriter.write])
    monkeypatch.setattr(PartWriter, "write", lambda writer, rows: next(pieces)(writer, rows))
    new = new_part(layout, txn=3)
    with pytest.raises(StopIteration):
        merge_parts(new, _plain(layout, *files), task=0, attempt=0, block_rows=1000)
    assert clean_transaction(local_root(tmp_path), _txn(3)) == 1
    assert sorted(path.name for path in Path(folder).iterdir()) == sorted(file.name for file in files)


def _plain(layout: TableLayout, *files: DataFile) -> list[PartSource]:
    return [plain_source(file, layout.schema) for file in files]


def _txn(number: int, tasks: int = 1) -> Txn:
    outputs = (TxnOutput(table=TABLE, tasks=tasks),)
    return Txn(id=number, actor="insert", state=TxnState.ABORTED, fences=(), outputs=outputs, server="s")


def test_a_transaction_is_cleaned_by_name_alone(tmp_path: Path) -> None:
    layout = TableLayout(
        folder=data_folder(local_root(tmp_path), TABLE), schema=SCHEMA, partition_by=BY_DAY, order_by=("k",)
    )
    two_days = pa.concat_tables([_rows(1), _rows(2, day="tue")])
    kept = write_parts(layout, two_days, txn=1, task=0, attempt=0)
    for task, attempt in ((0, 0), (0, 2), (1, 1)):
        write_parts(layout, two_days, txn=2, task=task, attempt=attempt)
    assert clean_transaction(local_root(tmp_path), _txn(2, tasks=2)) == 6
    assert clean_transaction(local_root(tmp_path), _txn(2, tasks=2)) == 0
    assert clean_transaction(local_root(tmp_path), _txn(1), keep={part.file.name for part in kept}) == 0
    # Row map of a merge that was killed before the first row group was full.
    (Path(layout.folder) / "5-0.0-0.map").touch()
    clean_transaction(local_root(tmp_path), _txn(5))
    assert {path.name for path in Path(layout.folder).iterdir()} == {"1-0.0-0.parquet", "1-0.0-1.parquet"}


def test_an_aborted_writer_keeps_its_number(layout: TableLayout) -> None:
    small = TableLayout(folder=layout.folder, schema=SCHEMA, order_by=("k",), row_group_rows=1)
    writer = PartWriter(small, name="5-0.0-0.parquet", partition="all", values=())
    writer.write(conform(_rows(1), SCHEMA))
    writer.abort()
    path = Path(layout.folder, "5-0.0-0.parquet")
    assert path.stat().st_size == 0


def test_a_writer_without_rows_makes_no_file(layout: TableLayout) -> None:
    assert PartWriter(layout, name="5-0.0-0.parquet", partition="all", values=()).close() is None
    assert write_parts(layout, _rows(), txn=1, task=0, attempt=0) == []
    assert not Path(layout.folder).exists()


def test_what_cannot_be_removed_stays_with_its_reason_and_stops_no_other(tmp_path: Path, layout: TableLayout) -> None:
    files = [_write(layout, n, _rows(1)) for n in range(1, 6)]
    folder = Path(layout.folder)
    # Nobody removes a folder as a file.
    (folder / sidecar_name(files[2].name, FILTER_EXTENSION)).mkdir()
    failed = remove_data(local_root(tmp_path), TABLE, files, deleters=3)
    assert failed.keys() == {files[2].name}
    assert [path.name for path in folder.iterdir()] == [sidecar_name(files[2].name, FILTER_EXTENSION)]
    (folder / sidecar_name(files[2].name, FILTER_EXTENSION)).rmdir()
    assert remove_data(local_root(tmp_path), TABLE, files, deleters=3) == {}


def test_removing_twice_is_no_error(tmp_path: Path, layout: TableLayout) -> None:
    file = _write(layout, 1, _rows(1))
    assert remove_data(local_root(tmp_path), TABLE, [file]) == {}
    assert remove_data(local_root(tmp_path), TABLE, [file]) == {}
    drop_table_folder(local_root(tmp_path), TABLE)
    drop_table_folder(local_root(tmp_path), TABLE)
    assert not list(tmp_path.iterdir())
