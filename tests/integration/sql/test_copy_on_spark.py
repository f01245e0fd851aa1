"""COPY INTO on a real Spark: formats, types, lines that cannot be read, names of files.

One session for all tests, which take about half a second each.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.avro_files import avro_file, avro_file_of_values, flat
from tests.bucket_roots import gcs_root
from tests.spark_world import SparkWorld
from tilth.base.errors import TilthError
from tilth.query.worker import copy_spark
from tilth.testing import FakeBucket
from tilth.warehouse import WorkerSession
from tools.s3server import KEY, SECRET

pytestmark = pytest.mark.integration


_numbers = count()


class Folder:
    """A folder of files for one test, below that of the node's storage."""

    def __init__(self, world: SparkWorld, name: str) -> None:
        self.world = world
        self.path = world.folder / "tables" / "files" / name
        self.path.mkdir(parents=True)

    def put(self, name: str, data: bytes | str | pa.Table) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(data, pa.Table):
            pq.write_table(data, path)
        else:
            path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def copy(self, table: str, form: str, more: str = "", **settings: str) -> str:
        return self.world.run(f"COPY INTO {table} FROM '{self.path}' FORMAT {form} {more}", **settings).message

    def refused(self, table: str, form: str, more: str = "", **settings: str) -> TilthError:
        return self.world.refused(f"COPY INTO {table} FROM '{self.path}' FORMAT {form} {more}", **settings)


@pytest.fixture
def folder(world: SparkWorld, request: pytest.FixtureRequest) -> Folder:
    # Parameters of a test may have characters that a path in a statement has to escape.
    return Folder(world, f"{request.node.originalname}{next(_numbers)}")


def made(world: SparkWorld, columns: str, more: str = "ORDER BY a") -> None:
    world.run("DROP TABLE IF EXISTS c")
    world.run(f"CREATE TABLE c ({columns}) ENGINE = MergeTree {more}")


VALUES: Sequence[Mapping[str, object]] = [
    {
        "a": -(1 << 63),
        "f": math.nan,
        "m": Decimal("12345678901234567890123456789012345678"),
        "s": "q'\"\n\0ü",
        "d": date(1, 1, 1),
        "t": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        "l": [1, None],
        "x": [("k.1", 1)],
        "p": {"u": 1, "v": None},
        "b": True,
    },
    {"a": 2, "f": -0.0, "m": None, "s": "", "d": None, "t": None, "l": [], "x": [], "p": None, "b": None},
]
TYPES = (
    "a Int64, f Float64, m Decimal(38, 0), s String, d Date32, t DateTime64(6), l Array(Int32), x Map(String, Int64), "
)
TYPES += "p Tuple(u Int64, v String), b Bool"
ARROW = pa.schema(
    [
        ("b", pa.bool_()),
        ("a", pa.int64()),
        ("f", pa.float64()),
        ("m", pa.decimal128(38, 0)),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("l", pa.list_(pa.int32())),
        ("x", pa.map_(pa.string(), pa.int64())),
        ("p", pa.struct([("u", pa.int64()), ("v", pa.string())])),
    ]
)


def test_parquet_has_its_values_by_name(world: SparkWorld, folder: Folder) -> None:
    made(world, TYPES)
    folder.put("a.parquet", pa.Table.from_pylist(VALUES, ARROW))
    assert folder.copy("c", "PARQUET") == "copied into shop.c: 2 rows of 1 files"
    first, second = world.run("SELECT * FROM c ORDER BY a").table.to_pylist()
    assert math.isnan(first.pop("f"))
    assert math.copysign(1, second["f"]) == -1
    assert first == {name: value for name, value in VALUES[0].items() if name != "f"}
    assert second == VALUES[1]
    assert folder.copy("c", "PARQUET") == "nothing to copy into shop.c; 1 files loaded before"


def test_files_of_different_columns_get_defaults(world: SparkWorld, folder: Folder) -> None:
    made(world, "a Int64, s String DEFAULT 'none', n Int64 MATERIALIZED a + 1, u Int64 DEFAULT a * 10, o Int16")
    folder.put("1.parquet", pa.table({"a": [1], "s": ["x"]}))
    folder.put("2.parquet", pa.table({"A": pa.array([2], pa.int8())}))
    folder.put("3.parquet", pa.table({"o": pa.array([7], pa.int16()), "a": [3], "u": [1]}))
    folder.put("x/4.parquet", pa.table({"a": pa.array([4], pa.int32()), "s": pa.array([None], pa.string())}))
    assert "4 rows of 4 files" in folder.copy("c", "PARQUET")
    rows = world.rows("SELECT a, s, n, u, o FROM c ORDER BY a")
    assert rows == [(1, "x", 2, 10, None), (2, "none", 3, 20, None), (3, "none", 4, 1, 7), (4, None, 5, 40, None)]


def test_columns_of_files_are_those_of_the_table(world: SparkWorld, folder: Folder) -> None:
    made(world, "a Int64 NOT NULL, b Int32, s String")
    path = folder.put("1.parquet", pa.table({"a": [1], "odd.name`": [1]}))
    error = folder.refused("c", "PARQUET")
    assert (error.code, error.facts["column"], error.facts["file"]) == ("UNKNOWN_COLUMN", "odd.name`", str(path))
    assert "1 rows" in folder.copy("c", "PARQUET", "SETTINGS input_format_skip_unknown_fields = 1")
    cases = [
        (pa.table({"a": [1.5]}), "BAD_VALUE"),
        (pa.table({"a": ["1"]}), "BAD_VALUE"),
        (pa.table({"a": [1], "b": [1 << 31]}), "BAD_FILE_ROW"),
        (pa.table({"a": pa.array([None], pa.int64())}), "BAD_FILE_ROW"),
        (pa.table({"z": [1]}), "UNKNOWN_COLUMN"),
        (b"no parquet", "FILE_UNREADABLE"),
        (b"", "FILE_UNREADABLE"),
    ]
    for data, code in cases:
        path = folder.put("2.parquet", data)
        error = folder.refused("c", "PARQUET")
        assert error.code == code, error
        assert error.facts["file"] == str(path), error
    assert world.rows("SELECT count(*) FROM c") == [(1,)]
    assert world.rows("SELECT count(*) FROM system.loaded_files WHERE file LIKE '%test_columns_of_files%'") == [(1,)]


def test_rows_of_parquet_are_skipped_or_refuse_all(world: SparkWorld, folder: Folder) -> None:
    made(world, "a Int64 NOT NULL, b Int8, m Decimal(4, 1)")
    values = [None, Decimal("999.90"), Decimal("1000.00"), None, None]
    rows = pa.table({"a": [1, 2, 3, None, 5], "b": [1, -128, 1, 1, 128], "m": pa.array(values, pa.decimal128(10, 1))})
    path = folder.put("a.parquet", rows)
    error = folder.refused("c", "PARQUET")
    assert (error.code, error.facts["file"], error.facts["line"]) == ("BAD_FILE_ROW", str(path), "3")
    assert "2 rows of 1 files; 3 rows skipped" in folder.copy("c", "PARQUET", "OPTIONS (ON_ERROR = 'skip')")
    assert world.rows("SELECT a, b, m FROM c ORDER BY a") == [(1, 1, None), (2, -128, Decimal("999.9"))]
    skipped = world.rows(f"SELECT line, reason FROM system.skipped_rows WHERE file = '{path}' ORDER BY line")
    assert skipped == [
        (3, "column `m`: out of range: 1000.0"),
        (4, "column `a`: NULL in a column that is NOT NULL"),
        (5, "column `b`: out of range: 128"),
    ]


def test_orc_has_its_values(world: SparkWorld, folder: Folder) -> None:
    made(world, "a Int64, s String, d Date, m Decimal(10, 2)")
    rows = pa.table({"a": [1, 2], "s": ["x", None], "d": [date(2020, 1, 2), None], "m": [Decimal("1.50"), None]})
    orc.write_table(rows, str(folder.path / "a.orc"))
    assert "2 rows of 1 files" in folder.copy("c", "ORC")
    assert world.run("SELECT * FROM c ORDER BY a").table.to_pylist() == rows.to_pylist()


AVRO = {
    "type": "record",
    "name": "n.Row",
    "fields": [
        {"name": "b", "type": ["boolean", "null"]},
        {"name": "a", "type": "long"},
        {"name": "f", "type": "double"},
        {"name": "m", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0}]},
        {"name": "s", "type": "string"},
        {"name": "d", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "t", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "l", "type": {"type": "array", "items": ["null", "int"]}},
        {"name": "x", "type": {"type": "map", "values": "long"}},
        {
            "name": "p",
            "type": [
                "null",
                {
                    "type": "record",
                    "name": "P",
                    "fields": [{"name": "u", "type": "long"}, {"name": "v", "type": ["null", "string"]}],
                },
            ],
        },
    ],
}


def test_avro_has_its_values(world: SparkWorld, folder: Folder) -> None:
    made(world, TYPES)
    rows: list[dict[str, Any]] = [dict(each) for each in VALUES]
    for each in rows:
        each["x"] = dict(each["x"])
    folder.put("a.avro", avro_file(AVRO, rows, codec="deflate"))
    assert folder.copy("c", "AVRO", "VALIDATE ONLY") == "can be copied into shop.c: 2 rows of 1 files"
    assert folder.copy("c", "AVRO") == "copied into shop.c: 2 rows of 1 files"
    first, second = world.run("SELECT * FROM c ORDER BY a").table.to_pylist()
    assert math.isnan(first.pop("f"))
    assert math.copysign(1, second["f"]) == -1
    assert first == {name: value for name, value in VALUES[0].items() if name != "f"}
    assert second == VALUES[1]
    assert folder.copy("c", "AVRO") == "nothing to copy into shop.c; 1 files loaded before"


def test_avro_files_of_one_statement_have_different_columns(world: SparkWorld, folder: Folder) -> None:
    made(world, "a Int64, s String DEFAULT 'none', u Tuple(member0 Int32, member1 String), n DateTime64(6)")
    folder.put("1.avro", avro_file(flat(A="int"), [{"A": 1}]))
    union = ["int", "string", "null"]
    folder.put("2.avro", avro_file(flat(u=union, a="long", s="null"), [{"a": 2, "u": "x"}, {"a": 3, "u": 7}]))
    time = {"type": "long", "logicalType": "timestamp-millis"}
    folder.put("3.avro", avro_file(flat(n=time, a="long"), [{"a": 4, "n": -1}]))
    folder.put("none.avro", avro_file(flat(a="long"), []))
    assert "4 rows of 4 files" in folder.copy("c", "AVRO")
    assert world.rows("SELECT a, s, u.member0, u.member1, unix_micros(n) FROM c ORDER BY a") == [
        (1, "none", None, None, None),
        (2, None, None, "x", None),
        (3, None, 7, None, None),
        (4, "none", None, None, -1000),
    ]


def test_avro_of_java_is_read_in_each_codec(world: SparkWorld, folder: Folder) -> None:
    """Files of Avro's own library, which Spark brings, in blocks of a record each."""
    made(world, "a Int64, s String")
    # Any: handles of py4j have no types.
    jvm: Any = world.session.session._jvm
    schema = getattr(jvm, "org.apache.avro.Schema$Parser")().parse(json.dumps(flat(a="long", s="string")))
    codecs = ("null", "deflate", "snappy", "zstandard", "bzip2", "xz")
    for number, codec in enumerate(codecs):
        writer = jvm.org.apache.avro.file.DataFileWriter(jvm.org.apache.avro.generic.GenericDatumWriter(schema))
        writer.setCodec(jvm.org.apache.avro.file.CodecFactory.fromString(codec))
        writer.create(schema, jvm.java.io.File(str(folder.path / f"{codec}.avro")))
        for row in range(3):
            record = getattr(jvm, "org.apache.avro.generic.GenericData$Record")(schema)
            record.put("a", (1 << 40) + 3 * number + row)
            record.put("s", codec * 1000)
            writer.append(record)
            writer.sync()
        writer.close()
    assert "18 rows of 6 files" in folder.copy("c", "AVRO")
    expected = [((1 << 40) + row, codecs[row // 3] * 1000) for row in range(18)]
    assert world.rows("SELECT * FROM c ORDER BY a") == expected


def test_bad_avro_refuses_all(world: SparkWorld, folder: Folder) -> None:
    made(world, "a Int32 NOT NULL, s String, m Decimal(4, 1)")
    good = avro_file(flat(a="long"), [{"a": number} for number in range(100)], sync_interval=20)
    cases = [
        (avro_file(flat(a="long", z="int"), [{"a": 1, "z": 1}]), "UNKNOWN_COLUMN"),
        (avro_file(flat(a="long", A="int"), [{"a": 1, "A": 1}]), "FILE_UNREADABLE"),
        (avro_file(flat(a="string"), [{"a": "1"}]), "BAD_VALUE"),
        (avro_file(flat(a="long"), [{"a": 1 << 31}]), "BAD_FILE_ROW"),
        (avro_file(flat(a=["null", "int"]), [{"a": None}]), "BAD_FILE_ROW"),
        (avro_file(flat(a="int", s="string"), [{"a": 1, "s": "x"}]).replace(b"x", b"\xff"), "BAD_FILE_ROW"),
        (good[:-20], "FILE_UNREADABLE"),
        (good[:-30] + b"\0" * 30, "FILE_UNREADABLE"),
        (good[:20], "FILE_UNREADABLE"),
        (b"", "FILE_UNREADABLE"),
        (b"PAR1", "FILE_UNREADABLE"),
    ]
    for data, code in cases:
        path = folder.put("1.avro", data)
        error = folder.refused("c", "AVRO")
        assert error.code == code, error
        assert error.facts["file"] == str(path), error
    assert world.rows("SELECT count(*) FROM c") == [(0,)]


def test_rows_of_avro_are_skipped(world: SparkWorld, folder: Folder) -> None:
    made(world, "a Int32, m Decimal(4, 1)", "UNIQUE KEY a")
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}
    schema = flat(a="long", m=decimal, _op=["null", "string"])
    raw = flat(a="long", m="bytes", _op=["null", "string"])
    rows = [
        {"a": 1, "m": b"\1", "_op": "upsert"},
        {"a": 2, "m": b"\x7f\xff"},
        {"a": 1 << 40, "m": b"\1"},
        {"a": 4, "m": b"\xff", "_op": "upsert"},
    ]
    path = folder.put("a.avro", avro_file_of_values(schema, raw, rows))
    error = folder.refused("c", "AVRO")
    assert error.facts.get("line") == "2", error
    assert (error.code, error.facts["file"]) == ("BAD_FILE_ROW", str(path))
    assert "2 rows of 1 files; 2 rows skipped" in folder.copy("c", "AVRO", "OPTIONS (ON_ERROR = 'skip')")
    assert world.rows("SELECT a, m FROM c ORDER BY a") == [(1, Decimal("0.1")), (4, Decimal("-0.1"))]


def test_json_is_judged_as_insert_judges_it(world: SparkWorld, folder: Folder) -> None:
    made(world, "a Int64 NOT NULL, s String DEFAULT 'none', d Date, m Decimal(10, 2), e Int64 DEFAULT a + 1")
    lines = [
        '{"a": 1, "s": "ü\\n", "d": "2020-01-02", "m": 1.5}',
        "",
        '{"a": "2", "s": null}\r',
        '{"a": 3, "m": "0.01", "e": 7} {"a": 4}',
    ]
    folder.put("a.json", "\n".join(lines))
    folder.put("b.json.gz", gzip.compress(b'{"a": 5}\n'))
    folder.put("empty.json", b"")
    assert "5 rows of 3 files" in folder.copy("c", "JSON")
    assert world.rows("SELECT a, s, d, m, e FROM c ORDER BY a") == [
        (1, "ü\n", date(2020, 1, 2), Decimal("1.50"), 2),
        (2, None, None, None, 3),
        (3, "none", None, Decimal("0.01"), 7),
        (4, "none", None, None, 5),
        (5, "none", None, None, 6),
    ]
    rows = world.rows("SELECT rows FROM system.loaded_files WHERE file LIKE '%judged%' ORDER BY file")
    assert rows == [(4,), (1,), (0,)]


@pytest.mark.parametrize(
    "bad",
    [
        b'{"a": 9223372036854775808}',
        b'{"a": 1.5}',
        b'{"a": 1, "d": "2020-02-30"}',
        b'{"a": 1, "m": 1.005}',
        b'{"a": 1, "m": 123456789.00}',
        b'{"a": null}',
        b"{}",
        b'{"a": 1, "nope": 1}',
        b'{"a": 1',
        b'{"a": 1, "s": "\xff"}',
        b'{"a": 1, "s": "\\ud800"}',
        b"[1]",
        b"null",
    ],
)
def test_a_bad_line_refuses_all_or_is_skipped(world: SparkWorld, folder: Folder, bad: bytes) -> None:
    made(world, "a Int64 NOT NULL, s String, d Date, m Decimal(10, 2)")
    path = folder.put("a b'.json", b'{"a": 7}\n\n' + bad + b'\n{"a": 8}\n')
    error = folder.refused("c", "JSON")
    assert (error.code, error.facts["file"], error.facts["line"]) == ("BAD_FILE_ROW", str(path), "3"), error
    assert world.rows("SELECT count(*) FROM c") == [(0,)]
    assert "2 rows of 1 files; 1 rows skipped" in folder.copy("c", "JSON", "OPTIONS (ON_ERROR = 'skip')")
    assert world.rows("SELECT a FROM c ORDER BY a") == [(7,), (8,)]
    name = str(path).replace("'", "''")
    rows = world.rows(f"SELECT line, block_start, raw FROM system.skipped_rows WHERE file = '{name}'")
    assert rows == [(3, 0, bad.decode(errors="backslashreplace"))]


def test_lines_of_large_files_are_counted_in_their_blocks(world: SparkWorld, folder: Folder) -> None:
    made(world, "a Int64")
    lines = [json.dumps({"a": number}) for number in range(20_000)]
    lines[15_000] = "bad"
    text = "\n".join(lines)
    path = folder.put("a.json", text)
    settings = {"spark.sql.files.maxPartitionBytes": "65536", "spark.sql.files.openCostInBytes": "0"}
    more = "OPTIONS (ON_ERROR = 'skip')"
    assert "19999 rows of 1 files; 1 rows skipped" in folder.copy("c", "JSON", more, **settings)
    [(line, block)] = world.rows(f"SELECT line, block_start FROM system.skipped_rows WHERE file = '{path}'")
    assert isinstance(line, int)
    assert isinstance(block, int)
    assert block > 0
    # The line on the border is that of the block before.
    rest = text.encode()[block:].split(b"\n")[1:]
    assert rest[line - 1] == b"bad"
    expected = (19_999, 19_999, sum(range(20_000)) - 15_000)
    assert world.rows("SELECT count(*), count(DISTINCT a), sum(a) FROM c") == [expected]
    # One block, in several batches.
    made(world, "a Int64")
    assert "19999 rows of 1 files; 1 rows skipped" in folder.copy("c", "JSON", more)
    assert world.rows("SELECT count(*), count(DISTINCT a), sum(a) FROM c") == [expected]
    assert world.rows("SELECT line, block_start FROM system.skipped_rows WHERE table = 'c'") == [(15_001, 0)]


def test_more_rows_than_may_be_skipped_refuse_all(world: SparkWorld, folder: Folder) -> None:
    made(world, "a Int64")
    folder.put("a.json", '{"a": 1}\nx\n')
    folder.put("b.json", "y\n")
    error = folder.refused("c", "JSON", "OPTIONS (ON_ERROR = 'skip', SKIPPED_MAX = 1)")
    assert (error.code, error.facts) == ("BAD_FILE_ROW", {"skipped_max": "1"})
    assert "1 rows of 2 files; 2 rows skipped" in folder.copy(
        "c", "JSON", "OPTIONS (ON_ERROR = 'skip', SKIPPED_MAX = 2)"
    )


def test_csv_has_columns_by_position_or_by_name(world: SparkWorld, folder: Folder) -> None:
    made(world, "a Int64, s String DEFAULT 'none', m Decimal(10, 2) DEFAULT 2")
    folder.put("1.csv", '1,"x, ""y""",1.5\n2,,\r\n\n3,\\N,0\n')
    assert "3 rows" in folder.copy("c", "CSV", "PATTERN '1.csv'")
    assert world.rows("SELECT a, s, m FROM c ORDER BY a") == [
        (1, 'x, "y"', Decimal("1.50")),
        (2, "", Decimal("2.00")),
        (3, None, Decimal("0.00")),
    ]
    folder.put("2.csv", "\ufeffm;a\n7.25;4\n")
    folder.put("3.csv", "a\n5\n6\n")
    folder.put("4.csv", "s;a\n")
    names = "OPTIONS (HEADER = true) SETTINGS format_csv_delimiter = ';'"
    assert "3 rows of 3 files" in folder.copy("c", "CSV", f"PATTERN '[234].csv' {names}")
    assert world.rows("SELECT a, s, m FROM c WHERE a > 3 ORDER BY a") == [
        (4, "none", Decimal("7.25")),
        (5, "none", Decimal("2.00")),
        (6, "none", Decimal("2.00")),
    ]
    folder.put("5.csv", "a;nope\n8;x\n")
    assert folder.refused("c", "CSV", f"PATTERN '5.csv' {names}").code == "UNKNOWN_COLUMN"
    assert "1 rows" in folder.copy("c", "CSV", f"PATTERN '5.csv' {names}, input_format_skip_unknown_fields = 1")
    for bad in ("1\n", '1,"x\ny",1\n', "1,x,1,1\n", "x,x,1\n"):
        folder.put("6.csv", bad)
        error = folder.refused("c", "CSV", "PATTERN '6.csv'")
        assert (error.code, error.facts["line"]) == ("BAD_FILE_ROW", "1"), error


def test_any_name_is_that_of_a_file(world: SparkWorld, folder: Folder) -> None:
    made(world, "a Int64")
    names = ["a b", "a%20b", "a'b", 'a"b', "a\nb", "[ab]*?{c}", "ü", "a\\b", "a#b", "a+b&c=d", "x/y"]
    for number, name in enumerate(names):
        folder.put(f"{name}.json", json.dumps({"a": number}))
        folder.put(f"{name}.parquet", pa.table({"a": [100 + number]}))
    for hidden in ("_SUCCESS", ".a.json.crc", "_x/a.json"):
        folder.put(hidden, "bad")
    assert f"{len(names)} rows of {len(names)} files" in folder.copy("c", "JSON", "PATTERN '**/*.json'")
    assert f"{len(names)} rows of {len(names)} files" in folder.copy("c", "PARQUET", "PATTERN '**/*.parquet'")
    rows = world.rows("SELECT a FROM c ORDER BY a")
    assert rows == [(number,) for number in (*range(len(names)), *range(100, 100 + len(names)))]
    assert {
        rows for (rows,) in world.rows("SELECT rows FROM system.loaded_files WHERE file LIKE '%test_any_name%'")
    } == {1}


def test_keys_are_replaced_and_deleted(world: SparkWorld, folder: Folder) -> None:
    made(world, "a Int64, s String", "UNIQUE KEY a")
    folder.put("1.parquet", pa.table({"a": [1, 2, 3], "s": ["x", "y", "z"]}))
    assert "3 rows" in folder.copy("c", "PARQUET")
    folder.put("2.parquet", pa.table({"a": [1, 2], "s": ["new", None], "_op": ["upsert", "delete"]}))
    assert "2 rows" in folder.copy("c", "PARQUET")
    assert world.rows("SELECT a, s FROM c ORDER BY a") == [(1, "new"), (3, "z")]
    folder.put("3.json", '{"a": 3, "s": "w"}\n{"a": 1, "_op": "delete"}\n')
    assert "2 rows" in folder.copy("c", "JSON", "PATTERN '*.json'")
    assert world.rows("SELECT a, s FROM c ORDER BY a") == [(3, "w")]


@pytest.mark.parametrize("form", ["PARQUET", "JSON", "CSV"])
def test_large_rows_are_loaded_as_small_ones_are(world: SparkWorld, folder: Folder, form: str) -> None:
    """A job whose batches are not measured fails at such a row, and another one follows."""
    made(world, "a Int64, s String")
    rows: list[Mapping[str, object]] = [{"a": 1, "s": "x"}, {"a": 2, "s": "y" * 200_000}, {"a": 3, "s": None}]
    match form:
        case "PARQUET":
            folder.put("1", pa.Table.from_pylist([*rows]))
        case "JSON":
            folder.put("1", "\n".join(json.dumps(row) for row in rows))
        case _:
            folder.put("1", "1,x\n2," + "y" * 200_000 + "\n3,\\N\n")
    assert "3 rows of 1 files" in folder.copy("c", form, "VALIDATE ONLY")
    assert "3 rows of 1 files" in folder.copy("c", form)
    assert world.rows("SELECT a, length(s) FROM c ORDER BY a") == [(1, 1), (2, 200_000), (3, None)]


def test_an_error_that_looks_like_a_large_row_is_said(
    world: SparkWorld, folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run measures, and no text in its error is taken for a large row."""
    monkeypatch.setattr(copy_spark, "has_large_row", lambda _: True)
    made(world, "a Int64")
    data = folder.put("1", pa.table({"a": pa.array(range(1000), pa.int64())})).read_bytes()
    folder.put("1", data[:4] + bytes(200) + data[204:])
    assert folder.refused("c", "PARQUET").code == "FILE_UNREADABLE"


def test_a_check_reads_all_and_stores_nothing(world: SparkWorld, folder: Folder) -> None:
    made(world, "a Int64 NOT NULL")
    folder.put("1.json", '{"a": 1}\n{"a": 2}\n')
    assert folder.copy("c", "JSON", "VALIDATE ONLY") == "can be copied into shop.c: 2 rows of 1 files"
    folder.put("2.json", '{"a": "x"}\n')
    assert folder.refused("c", "JSON", "VALIDATE ONLY").facts["line"] == "1"
    assert world.rows("SELECT count(*) FROM c") == [(0,)]
    assert world.rows("SELECT count(*) FROM system.loaded_files WHERE file LIKE '%a_check_reads%'") == [(0,)]
    assert not list((world.folder / "tables" / world.table("c").uuid / "data").glob("*.parquet"))


def test_rows_go_to_partitions_and_columns_that_are_named(world: SparkWorld, folder: Folder) -> None:
    made(world, "a Int64, d Date DEFAULT '2020-01-01', s String", "PARTITION BY d ORDER BY a")
    folder.put("1.json", '{"a": 1, "d": "2021-05-01"}\n{"a": 2}\n')
    assert "2 rows" in folder.copy("c (a, d)", "JSON")
    folder.put("2.json", '{"a": 3, "s": "x"}\n')
    assert folder.refused("c (a, d)", "JSON").code == "BAD_FILE_ROW"
    assert world.rows("SELECT a, d FROM c ORDER BY a") == [(1, date(2021, 5, 1)), (2, date(2020, 1, 1))]


@contextmanager
def world_of_bucket(spark: WorkerSession, folder: Path, location: str) -> Iterator[SparkWorld]:
    """A world whose statements may name files of a bucket, with two rows in the table `c`."""
    world = SparkWorld(folder, spark, settings={"storage.file-locations": location})
    try:
        world.run("CREATE DATABASE shop", database="default")
        made(world, "a Int64, s String")
        world.run("INSERT INTO c VALUES (1, 'x'), (2, NULL)")
        yield world
    finally:
        world.stop()


def test_an_export_to_s3_needs_no_jars(spark: WorkerSession, tmp_path: Path) -> None:
    """A fake of S3; about three seconds."""
    (tmp_path / "key").write_text(KEY)
    (tmp_path / "secret").write_text(SECRET)
    with FakeBucket() as bucket:
        keys = f"?endpoint={bucket.endpoint}&key=file:{tmp_path}/key&secret=file:{tmp_path}/secret"
        with world_of_bucket(spark, tmp_path / "w", f"s3://tilth/in{keys}") as world:
            assert "2 rows in" in world.run("EXPORT TABLE c TO 's3://tilth/in/c' FORMAT PARQUET").message
            assert world.refused("COPY INTO c FROM 's3://tilth/in/c' FORMAT PARQUET").code == "SPARK_WITHOUT_S3"


def test_avro_comes_from_every_store_and_all_formats_go_there(spark: WorkerSession, tmp_path: Path) -> None:
    """A fake of GCS, which Spark has no reader for; about five seconds."""
    with FakeBucket(is_gcs=True) as bucket:
        root = gcs_root(bucket.endpoint, tmp_path)
        address = f"gs://{root.bucket}/{root.prefix}"
        keys = f"?endpoint={bucket.endpoint}&credentials=file:{tmp_path}/gcs.json"
        with world_of_bucket(spark, tmp_path / "w", f"{address}{keys}") as world:
            for form in ("AVRO", "ORC"):
                assert "2 rows in" in world.run(f"EXPORT TABLE c TO '{address}/a b%20/{form}' FORMAT {form}").message
            made(world, "a Int64, s String")
            copy = f"COPY INTO c FROM '{address}/a b%20/AVRO' FORMAT AVRO"
            assert "2 rows of 1 files" in world.run(copy).message
            assert world.run(copy).message == "nothing to copy into shop.c; 1 files loaded before"
            assert world.rows("SELECT * FROM c ORDER BY a") == [(1, "x"), (2, None)]
            error = world.refused(f"COPY INTO c FROM '{address}/a b%20/ORC' FORMAT ORC")
            assert (error.code, "Avro" in (error.hint or "")) == ("SPARK_WITHOUT_STORE", True)
            assert error.facts["store"].startswith(address)
            assert "gcs.json" not in str(error)
