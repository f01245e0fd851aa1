"""The runner of mutations over real files and a real Spark: what each file becomes, and its message when it fails."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from tests.part_sources import as_delta, plain_source
from tilth.base.errors import ErrorKind, TilthError
from tilth.maintenance.mutate.task_spark import (
    MutateFacts,
    MutateResult,
    MutateSource,
    MutateTask,
    mutate_runner,
)
from tilth.model.delta import PartSource, WrittenDelta
from tilth.model.mutation import MutationKind
from tilth.model.table import Column, Schema
from tilth.model.task import Cost, TaskKind, TaskSpec
from tilth.model.txn import Txn, TxnOutput, TxnState
from tilth.model.types import Array, Kind, Simple
from tilth.storage import (
    BadColumnError,
    DeltaFileNotFoundError,
    DeltaWriter,
    PartFileCorruptError,
    PartFileNotFoundError,
    PartRebaser,
    TableLayout,
    check_file,
    clean_transaction,
    data_folder,
    local_root,
    read_changes,
    read_part,
    write_parts,
    write_segments,
)
from tilth.warehouse import WRITE_WAREHOUSE, TaskCancelledError, TaskContext, WorkerSession

pytestmark = pytest.mark.integration
UUID = "cd" * 16
OLD = Schema(
    columns=(
        Column(id=1, name="k", type=Simple(Kind.INT64), nullable=False),
        Column(id=2, name="v", type=Simple(Kind.INT32)),
        Column(id=3, name="text", type=Simple(Kind.STRING)),
        # Nothing that the runner adds for itself is taken for it.
        Column(id=4, name="_file", type=Array(Simple(Kind.STRING))),
    )
)
NEW = Schema(
    columns=(
        Column(id=1, name="k", type=Simple(Kind.INT64), nullable=False),
        Column(id=2, name="text", type=Simple(Kind.INT64)),
        Column(id=5, name="v", type=Simple(Kind.STRING), nullable=False, default="concat('n', 'ew')"),
        Column(id=4, name="_file", type=Array(Simple(Kind.STRING))),
    )
)


class Runs:
    """Runs mutations over the files of a folder."""

    def __init__(self, folder: Path, spark: WorkerSession) -> None:
        self._spark = spark
        self.root = local_root(folder)
        self.layout = TableLayout(
            folder=data_folder(self.root, UUID), schema=OLD, order_by=("k",), row_group_rows=700, fsync=False
        )
        self.cancelled = threading.Event()

    def source(self, number: int, rows: int = 50, *, layout: TableLayout | None = None) -> MutateSource:
        """A part whose keys are a stretch of their own."""
        keys = range(number * 1000, number * 1000 + rows)
        table = pa.table(
            {
                "k": keys,
                "v": pa.array([key % 10 if key % 7 else None for key in keys], pa.int32()),
                "text": [str(key) if key % 1000 else "none" for key in keys],
                "_file": pa.array([["x"] * (key % 3) for key in keys], pa.list_(pa.string())),
            }
        )
        (part,) = write_parts(layout or self.layout, table, txn=number, task=0, attempt=0)
        return MutateSource(source=plain_source(part.file, OLD, number=number, rows=rows), values=())

    def run(self, sources: list[MutateSource], kind: MutationKind, txn: int = 99, **task: Any) -> list[MutateResult]:
        given = {"layout": self.layout, "sources": tuple(sources), "txn": txn, "kind": kind} | task
        payload = msgspec.msgpack.encode(msgspec.convert(given, MutateTask))
        spec = TaskSpec(
            id=f"t{txn}",
            kind=TaskKind.MUTATE,
            warehouse=WRITE_WAREHOUSE,
            table="d.t",
            txn=txn,
            estimate=Cost(),
            payload=payload,
        )
        context = TaskContext(
            spec=spec, session=self._spark.new_session(pool=WRITE_WAREHOUSE), cancelled=self.cancelled
        )
        result = mutate_runner()(context)
        facts = msgspec.msgpack.decode(result.payload, type=MutateFacts)
        assert [each.name for each in facts.results] == [source.name for source in sources]
        assert result.actual.output_bytes == sum(each.written.file.size for each in facts.results if each.written)
        return list(facts.results)

    def rows(self, of: MutateResult | MutateSource) -> list[dict[str, Any]]:
        if isinstance(of, MutateSource):
            file = of.file
        else:
            assert of.written is not None
            file = of.written.file
        check_file(self.layout.folder, file)
        rows: list[dict[str, Any]] = read_part(self.layout.folder, file).to_pylist()
        return rows


@pytest.fixture
def runs(tmp_path: Path, spark: WorkerSession) -> Runs:
    return Runs(tmp_path, spark)


def test_an_update_rewrites_the_files_that_have_a_row_of_it(runs: Runs) -> None:
    sources = [runs.source(1, 1000), runs.source(2), runs.source(3)]
    before = [runs.rows(source) for source in sources]
    assignments = (("V", "k + 1"), ("text", "concat(text, '/', v)"))
    results = runs.run(
        sources, MutationKind.UPDATE, assignments=assignments, predicate="v = 3 AND (k < 2000 OR k >= 3000)"
    )
    assert [result.is_untouched for result in results] == [False, True, False]
    assert [result.rows_in for result in results] == [result.rows_out for result in results] == [1000, 50, 50]
    assert results[1].written is None
    for index in (0, 2):
        expected = [
            row | {"v": row["k"] + 1, "text": f"{row['text']}/3"} if row["v"] == 3 else row for row in before[index]
        ]
        assert runs.rows(results[index]) == expected
    written = results[0].written
    assert written is not None
    assert written.file.name == "99-0.0-0.parquet"
    assert (written.ranges["k"].low, written.ranges["k"].high) == (1000, 1999)
    parquet = pq.ParquetFile(Path(runs.layout.folder, written.file.name))
    assert [parquet.metadata.row_group(n).num_rows for n in range(parquet.num_row_groups)] == [700, 300]
    assert [parquet.schema_arrow.field(n).metadata[b"PARQUET:field_id"] for n in range(4)] == [b"1", b"2", b"3", b"4"]


def test_double_quotes_name_columns_in_a_mutation(runs: Runs) -> None:
    results = runs.run([runs.source(1)], MutationKind.DELETE, predicate="\"text\" = 'none'")
    assert [result.rows_out for result in results] == [49]


def test_a_delete_keeps_the_rows_for_which_it_is_not_true(runs: Runs) -> None:
    sources = [runs.source(1), runs.source(2), runs.source(3)]
    before = runs.rows(sources[2])
    results = runs.run(sources, MutationKind.DELETE, predicate="v > 4 OR k < 2000")
    all_gone, some, others = results
    assert (all_gone.written, all_gone.is_untouched, all_gone.rows_out) == (None, False, 0)
    assert (some.is_untouched, others.is_untouched) == (False, False)
    assert runs.rows(others) == [row for row in before if row["v"] is None or row["v"] <= 4]
    assert others.rows_out == len(runs.rows(others)) < others.rows_in == 50
    (untouched,) = runs.run([sources[2]], MutationKind.DELETE, txn=100, predicate="v > 1000")
    assert (untouched.is_untouched, untouched.written, untouched.rows_out) == (True, None, 50)


def test_parts_are_brought_into_new_columns(runs: Runs) -> None:
    sources = [runs.source(1), runs.source(2)]
    layout = TableLayout(folder=runs.layout.folder, schema=NEW, order_by=("k",), fsync=False)
    results = runs.run(sources, MutationKind.COLUMNS, layout=layout)
    for source, result in zip(sources, results, strict=True):
        expected = [{"k": row["k"], "text": row["v"], "v": "new", "_file": row["_file"]} for row in runs.rows(source)]
        assert runs.rows(result) == expected
    assert clean_transaction(runs.root, _aborted(99, tasks=2)) == 2


def test_sources_of_two_shapes_are_rewritten_together(runs: Runs) -> None:
    new = TableLayout(folder=runs.layout.folder, schema=NEW, order_by=("k",), fsync=False)
    old_source = runs.source(1)
    (part,) = write_parts(new, pa.table({"k": [1, 2], "text": [1, 2], "v": ["a", "b"]}), txn=7, task=0, attempt=0)
    new_source = MutateSource(source=plain_source(part.file, NEW, number=7), values=())
    results = runs.run(
        [old_source, new_source],
        MutationKind.UPDATE,
        layout=new,
        assignments=(("v", "upper(v)"),),
        predicate="text < 5",
    )
    assert [row["v"] for row in runs.rows(results[1])] == ["A", "B"]
    assert {(row["v"], (9 if row["text"] is None else row["text"]) < 5) for row in runs.rows(results[0])} == {
        ("NEW", True),
        ("new", False),
    }


def test_changed_parts_of_two_shapes_stay_apart(runs: Runs) -> None:
    """Each shape is read in one Spark partition, and Spark would lay those of a UNION together."""
    new = TableLayout(folder=runs.layout.folder, schema=NEW, order_by=("k",), fsync=False)
    rows = pa.table({"k": [1, 2], "text": [1, 2], "v": ["a", "b"]})
    (segment,) = write_segments(new, rows, txn=8, task=0, attempt=0)
    old = runs.source(1)
    gone = DeltaWriter(runs.layout, txn=50, task=0, attempt=0).deletes("all", old.file.name, np.array([0]))
    sources = [
        MutateSource(source=replace(old.source, deltas=(as_delta(gone, 1),)), values=()),
        MutateSource(source=replace(plain_source(segment.file, NEW, number=8, rows=2), is_segment=True), values=()),
    ]
    results = runs.run(sources, MutationKind.UPDATE, layout=new, assignments=(("v", "upper(v)"),), predicate="k > 0")
    assert [len(runs.rows(result)) for result in results] == [49, 2]
    assert [row["v"] for row in runs.rows(results[1])] == ["A", "B"]


@pytest.mark.parametrize(
    ("task", "condition"),
    [
        ({"assignments": (("v", "CAST(text AS INT)"),), "predicate": "k >= 0"}, "CAST_INVALID_INPUT"),
        ({"assignments": (("v", "nosuch + 1"),), "predicate": "true"}, "UNRESOLVED_COLUMN"),
        ({"assignments": (("v", "1"),), "predicate": "v = = 1"}, "PARSE_SYNTAX_ERROR"),
        ({"assignments": (("v", "1"),), "predicate": "1 / (k - 1000) > 0"}, "DIVIDE_BY_ZERO"),
        ({"assignments": (("v", "k * 1000000000"),), "predicate": "true"}, "CAST_OVERFLOW"),
        ({"assignments": (("v", "array(1)"),), "predicate": "true"}, "DATATYPE_MISMATCH"),
    ],
)
def test_an_expression_that_fails_has_its_reason_in_one_line(runs: Runs, task: dict[str, Any], condition: str) -> None:
    with pytest.raises(TilthError) as raised:
        runs.run([runs.source(1)], MutationKind.UPDATE, **task)
    error = raised.value
    assert (error.code, error.kind) == ("MUTATION_EXPRESSION", ErrorKind.INVALID)
    assert error.facts["condition"].startswith(condition)
    assert "\n" not in error.message


def test_a_not_null_column_gets_no_null(runs: Runs) -> None:
    layout = TableLayout(
        folder=runs.layout.folder,
        schema=Schema(
            columns=(
                *OLD.columns[:2],
                Column(id=3, name="text", type=Simple(Kind.STRING), nullable=False),
                OLD.columns[3],
            )
        ),
        order_by=("k",),
        fsync=False,
    )
    with pytest.raises(BadColumnError, match="column=text"):
        runs.run(
            [runs.source(1)], MutationKind.UPDATE, layout=layout, assignments=(("text", "NULL"),), predicate="v = 3"
        )


def test_a_damaged_a_missing_and_an_unsorted_file_are_named(runs: Runs) -> None:
    whole, damaged, missing = runs.source(1), runs.source(2, 5000), runs.source(3)
    path = Path(runs.layout.folder, damaged.file.name)
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(PartFileCorruptError, match=damaged.file.name):
        runs.run([whole, damaged], MutationKind.UPDATE, assignments=(("v", "v"),), predicate="text <> ''")
    Path(runs.layout.folder, missing.file.name).unlink()
    with pytest.raises(PartFileNotFoundError, match=missing.file.name):
        runs.run([whole, missing], MutationKind.DELETE, predicate="v = 1")
    plain = TableLayout(folder=runs.layout.folder, schema=OLD, fsync=False)
    (part,) = write_parts(plain, pa.table({"k": [2, 1]}), txn=8, task=0, attempt=0)
    unsorted = MutateSource(source=plain_source(part.file, OLD, number=8), values=())
    with pytest.raises(PartFileCorruptError, match=f"not sorted.*{part.file.name}"):
        runs.run([unsorted], MutationKind.COLUMNS, txn=101)


def test_what_was_deleted_or_changed_before_is_so_in_the_new_files(runs: Runs) -> None:
    """A part with deletes and new values, and a segment, which is not sorted."""
    plain, changed = runs.source(1), runs.source(2)
    layout, where = runs.layout, {"txn": 50, "task": 0, "attempt": 0}
    gone = DeltaWriter(layout, **where).deletes("all", changed.file.name, np.array([0, 49]))
    news = pa.table({"row": [3, 4], "c2": pa.array([3, None], pa.int32()), "p2": [True, True]})
    values = DeltaWriter(layout, **where).updates("all", changed.file.name, news)
    (part,) = write_segments(layout, pa.table({"k": [9, 7, 8, 6], "v": [3, 4, 3, 3]}), txn=7, task=0, attempt=0)
    no_six = DeltaWriter(layout, first_n=1, **where).deletes("all", part.file.name, np.array([3]))

    def source(of: PartSource, *deltas: WrittenDelta) -> MutateSource:
        made = (as_delta(each, ts) for ts, each in enumerate(deltas, start=1))
        return MutateSource(source=replace(of, deltas=tuple(made)), values=())

    segment = replace(plain_source(part.file, OLD, number=7, rows=4), is_segment=True)
    sources = [plain, source(changed.source, gone, values), source(segment, no_six)]
    results = runs.run(sources, MutationKind.UPDATE, assignments=(("text", "'x'"),), predicate="v = 3 AND k <> 8")
    assert [(each.rows_in, each.rows_out) for each in results] == [(50, 50), (48, 48), (3, 3)]
    before = runs.rows(changed)
    before[3]["v"], before[4]["v"] = 3, None
    assert runs.rows(results[1]) == [row | {"text": "x"} if row["v"] == 3 else row for row in before[1:49]]
    assert [(row["k"], row["v"], row["text"]) for row in runs.rows(results[2])] == [
        (7, 4, None),
        (8, 3, None),
        (9, 3, "x"),
    ]
    # The row map beside each file rebases changes that arrive meanwhile.
    for index, at, to in ((0, 5, 5), (1, 5, 4), (2, 2, 1)):
        made = results[index].written
        assert made is not None
        name = sources[index].file.name
        later = DeltaWriter(layout, txn=51, task=index, attempt=0).deletes("all", name, np.array([at]))
        rebaser = PartRebaser(layout, "all", made.file)
        found = rebaser.rebase([source(sources[index].source, later).source], txn=99, task=index, n=0)
        assert found is not None
        assert read_changes(layout.folder, found.file)["row"].to_pylist() == [to]
    left = runs.run(sources, MutationKind.DELETE, txn=100, predicate="k BETWEEN 1000 AND 1999 OR v = 3")
    assert [each.rows_out for each in left] == [0, sum(row["v"] != 3 for row in before[1:49]), 1]
    Path(layout.folder, gone.file.name).unlink()
    with pytest.raises(DeltaFileNotFoundError, match=gone.file.name):
        runs.run(sources, MutationKind.DELETE, txn=101, predicate="v = 3")


def test_a_cancelled_mutation_writes_nothing(runs: Runs) -> None:
    runs.cancelled.set()
    with pytest.raises(TaskCancelledError):
        runs.run([runs.source(1)], MutationKind.UPDATE, assignments=(("v", "1"),), predicate="true")
    assert clean_transaction(runs.root, _aborted(99, tasks=1)) == 0


def _aborted(txn: int, tasks: int) -> Txn:
    outputs = (TxnOutput(table=UUID, tasks=tasks),)
    return Txn(id=txn, actor="mutate", state=TxnState.ABORTED, fences=(), outputs=outputs, server="s")
