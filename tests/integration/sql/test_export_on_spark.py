"""EXPORT on a real Spark: each format is read back by COPY INTO. One session for all tests, a second each."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.spark_world import SparkWorld

pytestmark = pytest.mark.integration

COLUMNS = (
    "a Int64, f Float64, m Decimal(38, 2), s String, d Date32, t DateTime64(6), l Array(Int32), "
    "x Map(String, Int64), p Tuple(u Int64, v String), b Bool, y Binary"
)
ROWS = (
    "(1, NaN, 1234567890.12, 'q''\"\\t,;ü', '0001-01-01', '9999-12-31 23:59:59.999999', [1, NULL], {'k.1': 1}, "
    "(1, NULL), true, X'00ff'), (2, -0.0, NULL, '', NULL, NULL, [], {}, NULL, NULL, NULL)"
)


@pytest.fixture(scope="module")
def world(world: SparkWorld) -> SparkWorld:
    world.run(f"CREATE TABLE e ({COLUMNS}) ENGINE = MergeTree ORDER BY a")
    world.run(f"INSERT INTO e VALUES {ROWS}")
    return world


def files(world: SparkWorld) -> Path:
    return world.folder / "tables" / "files"


@pytest.mark.parametrize("form", ["PARQUET", "AVRO", "JSON", "CSV"])
def test_what_is_exported_is_copied_back(world: SparkWorld, form: str) -> None:
    address = files(world) / f"back {form}"
    assert "2 rows in" in world.run(f"EXPORT TABLE e TO '{address}' FORMAT {form}").message
    world.run("DROP TABLE IF EXISTS back")
    world.run(f"CREATE TABLE back ({COLUMNS}) ENGINE = MergeTree ORDER BY a")
    header = " OPTIONS (HEADER = true)" if form == "CSV" else ""
    assert "2 rows of" in world.run(f"COPY INTO back FROM '{address}' FORMAT {form}{header}").message
    [first, second] = world.run("SELECT * FROM back ORDER BY a").table.to_pylist()
    [one, other] = world.run("SELECT * FROM e ORDER BY a").table.to_pylist()
    assert math.isnan(first.pop("f"))
    assert math.isnan(one.pop("f"))
    assert math.copysign(1, second["f"]) == -1
    assert (first, second) == (one, other)


def test_avro_is_read_by_java(world: SparkWorld) -> None:
    address = files(world) / "avro of java"
    query = "SELECT a, m, s, l, x, p, b FROM e ORDER BY a LIMIT 10"
    world.run(f"EXPORT {query} TO '{address}' FORMAT AVRO SETTINGS max_insert_tasks = 1")
    [path] = address.glob("part-*.avro")
    # Any: handles of py4j have no types.
    jvm: Any = world.session.session._jvm
    reader = jvm.org.apache.avro.file.DataFileReader(
        jvm.java.io.File(str(path)), jvm.org.apache.avro.generic.GenericDatumReader()
    )
    rows = []
    while reader.hasNext():
        rows.append(json.loads(reader.next().toString()))
    first = {"a": 1, "s": "q'\"\t,;ü", "l": [1, None], "x": {"k.1": 1}, "p": {"u": 1, "v": None}, "b": True}
    assert {name: rows[0][name] for name in first} == first
    assert rows[1] == {**dict.fromkeys(first), "a": 2, "s": "", "l": [], "x": {}, "m": None}
    assert '"precision":38,"scale":2' in reader.getSchema().toString()
    reader.close()


def test_orc_is_copied_back_or_refused(world: SparkWorld) -> None:
    address = files(world) / "back ORC"
    error = world.refused(f"EXPORT TABLE e TO '{address}' FORMAT ORC")
    assert (error.code, error.facts["column"], error.facts["value"]) == ("BAD_VALUE", "d", "0001-01-01")
    # Seconds and microseconds at whose borders calendars and signs differ.
    micros = (-12_219_292_800_000_000, -2_717_640_000_000_000, -1_000_000, 999_999, 253_402_300_799_999_999)
    times = ", ".join(f"timestamp_micros({each})" for each in micros)
    query = f"SELECT * EXCEPT (d), DATE'1582-10-15' AS d, array({times}) AS i, NULL AS z FROM e"
    assert "2 rows in" in world.run(f"EXPORT {query} TO '{address}' FORMAT ORC").message
    world.run("DROP TABLE IF EXISTS back")
    columns = f"{COLUMNS}, i Array(DateTime64(6)), z String"
    world.run(f"CREATE TABLE back ({columns}) ENGINE = MergeTree ORDER BY a")
    assert "2 rows of" in world.run(f"COPY INTO back FROM '{address}' FORMAT ORC").message
    names = "a, m, s, d, t, l, x, p, b, y, i, z, CAST(f AS STRING)"
    text = f"SELECT {names} FROM {{}} ORDER BY a"
    assert world.rows(text.format("back")) == world.rows(text.format(f"({query})"))


def test_a_query_is_exported_in_several_files(world: SparkWorld) -> None:
    address = files(world) / "many"
    text = "SELECT id % 7 AS k, count(*) AS n FROM range(0, 10000, 1, 8) GROUP BY id % 7"
    message = world.run(f"EXPORT {text} TO '{address}' FORMAT PARQUET SETTINGS max_insert_tasks = 3").message
    assert message.startswith(f"exported to {address}: 7 rows in ")
    manifest = json.loads((address / "_manifest.json").read_text())
    names = sorted(each["name"] for each in manifest["files"])
    assert sorted(path.name for path in address.iterdir()) == ["_SUCCESS", "_manifest.json", *names]
    assert sum(pq.read_metadata(address / name).num_rows for name in names) == 7
    assert sum(each["rows"] for each in manifest["files"]) == 7


def test_no_rows_are_a_file_with_columns(world: SparkWorld) -> None:
    address = files(world) / "none"
    world.run(f"EXPORT SELECT a, NULL AS z FROM e WHERE a > 9 TO '{address}' FORMAT PARQUET")
    [path] = address.glob("part-*.parquet")
    assert pq.read_schema(path).names == ["a", "z"]
    world.run(f"EXPORT SELECT a FROM e WHERE a > 9 TO '{address}-csv' FORMAT CSV OPTIONS (HEADER = true)")
    [path] = Path(f"{address}-csv").glob("part-*.csv")
    assert path.read_text() == '"a"\n'


def test_a_query_that_fails_leaves_nothing(world: SparkWorld) -> None:
    address = files(world) / "failed"
    error = world.refused(f"EXPORT SELECT raise_error('no') FROM e TO '{address}' FORMAT JSON")
    assert error.code in ("BAD_QUERY", "QUERY_FAILED"), error
    assert list(address.iterdir()) == []
    assert world.refused(f"EXPORT SELECT nope FROM e TO '{address}' FORMAT JSON").code == "UNKNOWN_COLUMN"
    assert world.refused(f"EXPORT SELECT * FROM parquet.`/etc` TO '{address}' FORMAT JSON").code != "BAD_FILE_LOCATION"
    assert "1 rows" in world.run(f"EXPORT SELECT 1 AS a TO '{address}' FORMAT JSON").message
