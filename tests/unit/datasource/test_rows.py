"""Rows that a task of a user's Spark reads: changes, columns by id, row groups that are skipped, errors."""

from __future__ import annotations

import io
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from pyspark.serializers import CloudPickleSerializer

from tests.part_sources import as_delta
from tilth.base.errors import UnavailableError
from tilth.datasource.batch import PieceReader, PiecesPartition
from tilth.datasource.errors import RootUnreadableError, SaidError
from tilth.datasource.pieces import PartPiece, ReadTask
from tilth.datasource.rows import batches_of_pieces
from tilth.datasource.shipped import opener
from tilth.model.delta import Delta, PartSource
from tilth.model.part import PartName
from tilth.model.table import Column, Schema
from tilth.model.types import Kind, Simple
from tilth.query.errors import SnapshotLostError
from tilth.query.snapshots.predicates import AllOf, Compare, Comparison, Predicate
from tilth.storage import TableLayout, write_parts
from tilth.storage.deltas.deltas import DeltaWriter
from tilth.storage.parts.segments import write_segments
from tilth.storage.store.root import Folder, local_root

INT = Simple(Kind.INT64)
STORED = Schema(columns=(Column(id=1, name="k", type=INT), Column(id=2, name="a.b", type=Simple(Kind.STRING))))
#: The second column was renamed, a third one came.
PRESENT = Schema(
    columns=(
        Column(id=2, name="text", type=Simple(Kind.STRING)),
        Column(id=3, name="later", type=INT),
        Column(id=1, name="k", type=INT),
    )
)
SPARK = pa.schema([("text", pa.string()), ("later", pa.int64()), ("k", pa.int64())])
ROWS = 40


class World:
    """One part in a folder."""

    def __init__(self, root: Path, *, is_segment: bool = False) -> None:
        self.txn = 1
        self.folder = Folder(local_root(root), "uuid/data")
        Path(str(self.folder)).mkdir(parents=True)
        self.layout = TableLayout(folder=self.folder, schema=STORED, order_by=("k",), row_group_rows=10, fsync=False)
        rows = pa.table({"k": range(ROWS), "a.b": [f"v{k}" for k in range(ROWS)]})
        write = write_segments if is_segment else write_parts
        [written] = write(self.layout, rows, txn=1, task=0, attempt=0)
        self.source = PartSource(
            name=PartName("all", 1, 1, 0, 1), file=written.file, rows=ROWS, is_segment=is_segment, schema=STORED
        )

    def change(self, rows: list[int], values: list[str | None]) -> Delta:
        """New texts of rows; None: deleted."""
        columns = {
            "file": pa.array([self.source.file.name] * len(rows)),
            "row": pa.array(rows, pa.int64()),
            "op": pa.array([int(value is not None) for value in values], pa.int8()),
            "c2": pa.array(values, pa.string()),
            "p2": pa.array([value is not None for value in values]),
        }
        self.txn += 1
        written = DeltaWriter(self.layout, txn=self.txn, task=0, attempt=0).changes("all", pa.table(columns))
        return as_delta(written, self.txn)

    def task(self, predicate: Predicate = AllOf(()), schema: pa.Schema = SPARK) -> ReadTask:
        ids = {column.name: column.id for column in PRESENT.columns}
        return ReadTask(
            folder=self.folder,
            columns=tuple(ids[name] for name in schema.names),
            schema=schema.serialize().to_pybytes(),
            predicate=predicate,
            table="db.t",
        )

    def piece(self, first: int = 0, end: int = ROWS, *, deltas: tuple[Delta, ...] = ()) -> PartPiece:
        source = msgspec.structs.replace(self.source, deltas=deltas)
        return PartPiece(source=source, wanted=PRESENT, first=first, end=end, is_filterable=True)


def _rows(task: ReadTask, *pieces: PartPiece) -> list[dict[str, object]]:
    batches = list(batches_of_pieces(task, pieces))
    schema = pa.ipc.read_schema(pa.py_buffer(task.schema))
    assert all(batch.schema.equals(schema) for batch in batches)
    rows: list[dict[str, object]] = pa.Table.from_batches(batches, schema).to_pylist()
    return rows


@pytest.mark.parametrize("is_segment", [False, True])
def test_changes_are_laid_over_and_columns_are_found_by_id(tmp_path: Path, is_segment: bool) -> None:
    world = World(tmp_path, is_segment=is_segment)
    found = _rows(world.task(), world.piece(deltas=(world.change([3, 5, 39], [None, "new", None]),)))
    assert found == [
        {"text": "new" if k == 5 else f"v{k}", "later": None, "k": k} for k in range(ROWS) if k not in (3, 39)
    ]


def test_pieces_read_each_row_once(tmp_path: Path) -> None:
    world = World(tmp_path)
    deltas = (world.change([9, 10, 29, 30], [None, "x", "y", None]),)
    cuts = [0, 1, 13, 20, 21, 39, 40]
    found = [_rows(world.task(), world.piece(*each, deltas=deltas)) for each in pairwise(cuts)]
    assert [row for each in found for row in each] == _rows(world.task(), world.piece(deltas=deltas))
    assert [len(each) for each in found] == [9, 10, 0, 10, 9, 0]


def test_row_groups_are_skipped_by_their_statistics(tmp_path: Path) -> None:
    world = World(tmp_path)
    task = world.task(Compare("k", Comparison.GREATER_OR_EQUAL, 25))
    assert [row["k"] for row in _rows(task, world.piece())] == list(range(20, 40))
    # New values are not in the statistics.
    text = world.task(Compare("text", Comparison.EQUAL, "zzz"))
    deltas = (world.change([7], ["zzz"]),)
    assert "zzz" in [row["text"] for row in _rows(text, world.piece(deltas=deltas))]
    # Neither is what a name with a dot stands for.
    assert len(_rows(text, world.piece())) == ROWS


def test_rows_without_a_stored_column_are_counted(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert _rows(world.task(schema=pa.schema([("later", pa.int64())])), world.piece()) == [{"later": None}] * ROWS


def test_values_that_must_be_computed_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    later = msgspec.structs.replace(PRESENT.columns[1], default="CAST(7 AS bigint)")
    wanted = Schema(columns=(PRESENT.columns[0], later, PRESENT.columns[2]))
    piece = msgspec.structs.replace(world.piece(), wanted=wanted)
    with pytest.raises(UnavailableError, match=r"column=later part=all_1_1_0_1 \(wait until the mutation"):
        _rows(world.task(), piece)


def test_an_executor_without_the_folder_says_so(tmp_path: Path) -> None:
    world = World(tmp_path / "tables")
    (tmp_path / "tables").rename(tmp_path / "elsewhere")
    with pytest.raises(RootUnreadableError, match=r"root=.*/tables host=.*no such folder"):
        _rows(world.task(), world.piece())


def test_a_file_that_is_gone_is_a_lost_snapshot(tmp_path: Path) -> None:
    world = World(tmp_path)
    Path(world.folder.uri(world.source.file.name)).unlink()
    with pytest.raises(SnapshotLostError, match="lease has ended"):
        _rows(world.task(), world.piece())


def test_a_reader_travels_to_an_executor_without_the_address(tmp_path: Path) -> None:
    world = World(tmp_path)
    packed = _pickled(PieceReader(world.task()))
    partition = PiecesPartition(msgspec.msgpack.encode([world.piece()]))
    assert sum(batch.num_rows for batch in pickle.loads(packed).read(partition)) == ROWS
    Path(world.folder.uri(world.source.file.name)).unlink()
    assert isinstance(_WithoutTilth(io.BytesIO(packed)).load(), PieceReader)
    with pytest.raises(SaidError, match=r"^\[SNAPSHOT_LOST\] \(retry\) .*; what to do: read the table again"):
        list(pickle.loads(packed).read(partition))


def test_an_executor_without_tilth_says_so() -> None:
    packed = _pickled(opener("no_such_package.module:name"))
    with pytest.raises(ImportError, match=r"\[NOT_INSTALLED\].*missing=no_such_package.*pip install"):
        _WithoutTilth(io.BytesIO(packed)).load()(b"")


def _pickled(given: object) -> bytes:
    """As Spark pickles it."""
    # Any: PySpark's serializers have no types.
    serializer: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    packed: bytes = serializer.dumps(given)
    return packed


class _WithoutTilth(pickle.Unpickler):
    """Finds no class and no function of the package, as where it is not installed."""

    def find_class(self, module: str, name: str, /) -> object:
        assert not module.startswith("tilth"), (module, name)
        return super().find_class(module, name)
