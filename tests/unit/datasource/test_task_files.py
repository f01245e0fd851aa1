"""Files of tasks: missing columns, operations, hostile values, bounds of memory; over a real folder, about a second."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests import hostile
from tests.codes import WithCode
from tests.outside_world import OutsideWorld
from tilth.base.errors import InvalidInputError, TilthError
from tilth.base.rand import new_rng
from tilth.datasource import task_files
from tilth.datasource.task_files import TaskWrite, check_columns, write_task
from tilth.formats import BadValueError
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct, spark_name
from tilth.storage import BadColumnError, UniqueKeyNullError, UnmappedTypeError, arrow_type

_TYPES: tuple[DataType, ...] = (
    *(Simple(kind) for kind in Kind),
    Decimal(38, 10),
    Decimal(5, 0),
    Array(Simple(Kind.FLOAT64)),
    Map(Simple(Kind.STRING), Simple(Kind.DATE)),
    Struct((Field("x", Simple(Kind.TIMESTAMP)), Field("y.z", Simple(Kind.STRING)))),
)


@pytest.mark.parametrize("data_type", _TYPES, ids=spark_name)
def test_hostile_values_come_back_as_they_were(tmp_path: Path, data_type: DataType) -> None:
    world = OutsideWorld(tmp_path, table=f"(a {spark_name(data_type)}) ENGINE = MergeTree")
    values = hostile.array(new_rng(hostile.seed_of_run()), data_type, 200)
    opened = world.begin("a")
    batches = [pa.table({"a": part}) for part in (values.slice(0, 150), values.slice(150))]
    facts = [world.write(opened, batch, task=task) for task, batch in enumerate(batches)]
    world.commit(opened, *facts)
    found = pa.concat_arrays([stored(world, part.file.name) for each in facts for part in each.parts])
    assert hostile.bits_of(hostile.plain(found)) == hostile.bits_of(hostile.plain(values.cast(found.type)))


def stored(world: OutsideWorld, name: str) -> pa.Array:
    [path] = world.folder.rglob(name)
    return pq.read_table(path).column("a").combine_chunks()


def test_missing_columns_get_their_defaults(tmp_path: Path) -> None:
    columns = "a BIGINT NOT NULL, `b.c` STRING NOT NULL DEFAULT 'it''s', d DATE, f DECIMAL(9,2) DEFAULT 1.50"
    world = OutsideWorld(tmp_path, table=f"({columns}) ENGINE = MergeTree ORDER BY a")
    opened = world.begin("A")
    world.commit(opened, world.write(opened, [{"A": 2}, {"A": 1}]))
    assert (world.values("a"), world.values("b.c")) == ([1, 2], ["it's", "it's"])
    assert [str(each) for each in world.values("f")] == ["1.50", "1.50"]


def test_rows_that_no_insert_takes(tmp_path: Path) -> None:
    world = OutsideWorld(tmp_path, table="(a TINYINT NOT NULL, b STRING) ENGINE = MergeTree ORDER BY a UNIQUE KEY a")
    opened = world.begin("a", "b", "_op")
    rows = {"a": 1, "b": "x", "_op": "upsert"}
    for change, error in (
        ({"a": 300}, BadColumnError),
        ({"a": None}, UniqueKeyNullError),
        ({"_op": "no word"}, BadValueError),
        ({"_op": None}, TilthError),
    ):
        with pytest.raises(error):
            world.write(opened, [rows | change, rows])
    assert world.commit(opened, world.write(opened, [rows], task=1)).rows == 1


def test_more_tasks_than_were_said(tmp_path: Path) -> None:
    world = OutsideWorld(tmp_path, table="(a BIGINT) ENGINE = MergeTree")
    opened = world.begin("a", tasks=2)
    with pytest.raises(InvalidInputError, check=WithCode("TOO_MANY_TASKS")):
        world.write(opened, [{"a": 1}], task=2)
    assert world.files() == []


def test_what_a_task_holds_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_files, "BUFFER_BYTES", 100)
    world = OutsideWorld(tmp_path, table="(a BIGINT) ENGINE = MergeTree ORDER BY a")
    opened = world.begin("a")
    batches = [pa.record_batch({"a": list(range(start, start + 10))}) for start in (50, 0, 20)]
    facts = write_task(TaskWrite(opened=opened, names=("a",)), iter(batches), task=0, attempt=0)
    assert [part.rows for part in facts.parts] == [20, 10]
    assert world.commit(opened, facts).rows == 30
    assert world.values() == [*range(10), *range(20, 30), *range(50, 60)]


def test_names_are_by_position(tmp_path: Path) -> None:
    """Spark may name columns of batches anew."""
    world = OutsideWorld(tmp_path, table="(a BIGINT, b BIGINT) ENGINE = MergeTree ORDER BY a")
    opened = world.begin("b", "a")
    batch = pa.record_batch({"0": [1], "1": [2]})
    world.commit(opened, write_task(TaskWrite(opened=opened, names=("b", "a")), iter([batch]), task=0, attempt=0))
    assert (world.values("a"), world.values("b")) == ([2], [1])


def test_types_are_checked_without_rows(tmp_path: Path) -> None:
    world = OutsideWorld(tmp_path, table="(a DECIMAL(5,2), b TIMESTAMP) ENGINE = MergeTree")
    write = TaskWrite(opened=world.begin("a", "b"), names=("a", "b"))
    check_columns(write, pa.schema([("x", arrow_type(Decimal(5, 2))), ("y", pa.timestamp("us", "Europe/Berlin"))]))
    with pytest.raises(BadValueError, match="column=b"):
        check_columns(write, pa.schema([("x", pa.int8()), ("y", pa.timestamp("us"))]))
    with pytest.raises(BadValueError, match="column=a"):
        check_columns(write, pa.schema([("x", pa.string()), ("y", pa.null())]))
    with pytest.raises(UnmappedTypeError):
        check_columns(write, pa.schema([("x", pa.int8()), ("y", pa.duration("us"))]))


@pytest.mark.parametrize(
    ("column", "given"),
    [
        ("STRING", pa.int32()),
        ("STRING", pa.decimal128(5, 2)),
        ("STRING", pa.binary()),
        ("TIMESTAMP", pa.date32()),
        ("ARRAY<STRING>", pa.list_(pa.float64())),
        ("MAP<STRING, INT>", pa.map_(pa.int64(), pa.int32())),
        ("STRUCT<x: STRING>", pa.struct([("x", pa.bool_())])),
        ("INT", pa.float64()),
        ("DATE", pa.timestamp("us", "UTC")),
        ("TIMESTAMP", pa.timestamp("us")),
    ],
)
def test_types_of_which_somebody_else_would_make_something_else(
    tmp_path: Path, column: str, given: pa.DataType
) -> None:
    world = OutsideWorld(tmp_path, table=f"(a {column}) ENGINE = MergeTree")
    with pytest.raises(BadValueError) as refused:
        check_columns(TaskWrite(opened=world.begin("a"), names=("a",)), pa.schema([("a", given)]))
    assert "CAST" in refused.value.hint
