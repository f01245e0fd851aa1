"""A small data folder of this version and what it answered: later versions must read it.

    python -m tools.data_fixture        writes data-VERSION.tar.gz and data-VERSION.json to tests/fixtures

Once for each release whose formats differ from those of the release before. The archive has the catalog of a node, the
files of its tables and its journal; the JSON has the rows of each table, and statements that need no Spark with their
answers. tests/unit/recovery/test_released_data.py reads both.
Always holds: one of each kind of file and record that a single node writes is in it, except those that name a path of
this machine (storages) and those of several servers.
"""

from __future__ import annotations

import json
import tarfile
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tools.broker import ROOT
from tools.stage import Stage, wait

FOLDER = ROOT / "tests" / "fixtures"
TOPIC = "orders"
#: Changes become deltas at once, and those of single rows stay patches.
SETTINGS = {"flush_threshold_secs": "0", "catalog.journal-seconds": "0.2"}
PATCHES = {"enable_major_delta_compaction": "false", "enable_minor_delta_compaction": "false"}
COLUMNS = {"enable_major_delta_compaction": "true"}

TABLES = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.sales (id Int64 NOT NULL, day Date, price Decimal(10, 2) DEFAULT 1.5, small UInt8, "
    "kind Enum8('a' = 1, 'b' = 2), tags Array(String) DEFAULT ['x', 'y'], counts Map(String, Int32), "
    "pair Tuple(a Int8, b String), at DateTime64(3) DEFAULT now(), local TIMESTAMP_NTZ, ratio Float64, raw Binary, "
    "note LowCardinality(String) COMMENT 'it''s a \"note\"') ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY id "
    "TTL day + INTERVAL 100 YEAR COMMENT 'all types' SETTINGS parquet_compression_level = 19",
    "CREATE TABLE shop.prices (code String, price Decimal(9, 3), version Int64) ENGINE = MergeTree(version) "
    "UNIQUE KEY code",
    "CREATE TABLE shop.fresh (id Int64, name String) ENGINE = MergeTree ORDER BY id SETTINGS memory_buffer = 1",
    "CREATE TABLE shop.wide (id Int64, a Int64, b String) ENGINE = MergeTree ORDER BY id",
    "CREATE TABLE shop.gone (id Int64) ENGINE = MergeTree ORDER BY id",
    "CREATE TABLE shop.orders_topic (id Int64, name String, amount Decimal(9, 2) DEFAULT 2) ENGINE = Kafka SETTINGS "
    "kafka_broker_list = '{bootstrap}', kafka_topic_list = 'orders', kafka_group_name = 'shop', "
    "kafka_format = 'JSONEachRow'",
    "CREATE TABLE shop.orders (id Int64, name String, amount Decimal(9, 2)) ENGINE = MergeTree ORDER BY id",
    "CREATE MATERIALIZED VIEW shop.orders_view TO shop.orders AS SELECT id, upper(name) AS name, amount "
    "FROM shop.orders_topic WHERE id > 0",
    "CREATE TABLE shop.secret_topic (id Int64) ENGINE = Kafka SETTINGS kafka_broker_list = '127.0.0.1:1', "
    "kafka_topic_list = 'secret', kafka_format = 'JSONEachRow', kafka_sasl_password = 'hunter2'",
    "CREATE WAREHOUSE reports",
    "SYSTEM STOP MERGES",
    "SYSTEM STOP SCRUBS shop.wide BECAUSE 'the disks are busy'",
)
ROWS = (
    "INSERT INTO shop.sales (id, day, small, kind, counts, pair, local, ratio, raw, note) SELECT id, "
    "make_date(2026, CAST(1 + id % 2 AS INT), 3), id, if(id % 2 = 0, 'a', 'b'), map('k', CAST(id AS INT)), "
    "named_struct('a', CAST(id AS TINYINT), 'b', 'é'), TIMESTAMP_NTZ'2026-01-01 00:00:00', if(id = 5, 'NaN', id / 4), "
    "X'00ff', if(id = 3, NULL, 'n') FROM range(8)",
    "INSERT INTO shop.sales (id, day, price) VALUES (100, '2026-01-31', 7), (101, '1582-10-04', NULL)",
    "INSERT INTO shop.prices VALUES ('a', 1.5, 1), ('b', 2.25, 1), ('c', 3, 1)",
    "INSERT INTO shop.prices VALUES ('a', 1.75, 2), ('d', 4, 1), ('c', 9, 0)",
    "INSERT INTO shop.wide SELECT id, id * 2, concat('b', id) FROM range(20)",
    "INSERT INTO shop.gone VALUES (1)",
)
CHANGES = (
    "OPTIMIZE TABLE shop.sales",
    "ALTER TABLE shop.sales ADD COLUMN later String DEFAULT 'since', RENAME COLUMN ratio TO share",
    "ALTER TABLE shop.sales UPDATE note = 'changed' WHERE id = 4",
    "INSERT INTO shop.sales (id, day, later) VALUES (102, '2026-02-28', 'now')",
    "UPDATE shop.sales SET note = 'patched', small = 9 WHERE id IN (2, 102)",
    "DELETE FROM shop.sales WHERE id = 6",
)
#: In the second run of the node.
LATE_CHANGES = (
    "UPDATE shop.wide SET a = a + 1 WHERE id >= 0",
    "INSERT INTO shop.sales (id, day) VALUES (103, '2026-03-01'), (104, '2026-04-01')",
    "ALTER TABLE shop.sales DROP PARTITION 202604",
    "DROP TABLE shop.gone",
)
#: Nothing of the table is made into something else any more.
LAST_CHANGES = (
    "SYSTEM STOP FLUSH shop.fresh",
    "SYSTEM STOP DELTAS",
    "INSERT INTO shop.fresh VALUES (1, 'one'), (2, 'two')",
    "INSERT INTO shop.fresh SETTINGS insertion_label = 'once' VALUES (3, NULL)",
    "UPDATE shop.sales SET note = 'last' WHERE id = 1",
    "DELETE FROM shop.sales WHERE id = 100",
)
SHOWN = ("sales", "prices", "fresh", "wide", "orders")
#: Statements that a server answers of its catalog alone.
QUERIES = (
    *(f"SHOW CREATE TABLE shop.{name}" for name in (*SHOWN, "orders_topic", "orders_view", "secret_topic")),
    "SHOW CREATE TABLE shop.orders_topic_dead_letters",
    "SELECT table, kind, sum(deleted_rows), sum(updated_rows) FROM system.deltas GROUP BY table, kind ORDER BY 1, 2",
    "SELECT name, engine FROM system.dropped_tables",
    'SELECT "table", topic, partition, start, "end", messages, rows, dead, topic_id FROM system.ingest_ledger '
    "ORDER BY start",
    "SELECT command, kind, is_done, parts_done FROM system.mutations ORDER BY commit_ts",
    "SELECT table, name, level, rows, deleted_rows, schema_version, ranges FROM system.parts WHERE active "
    "ORDER BY table, name",
    "SELECT table, name, rows FROM system.segments ORDER BY table, name",
    "SELECT table, version, kind FROM system.table_versions ORDER BY table, version",
    "SELECT verb, statement FROM system.audit_log ORDER BY time",
)
MESSAGES = (*({"id": number, "name": f"n{number}"} for number in range(4)), {"id": 9, "name": "x", "amount": 7.25})


def main() -> None:
    """Run a node and a broker, and write both files."""
    name = f"data-{version('tilth')}"
    with tempfile.TemporaryDirectory() as folder, Stage(Path(folder)) as stage:
        stage.start_broker()
        stage.broker.create_topic(TOPIC)
        stage.start_node(SETTINGS | PATCHES)
        stage.sql(*TABLES, *ROWS, *CHANGES)
        _produce(stage.broker.bootstrap, [*(json.dumps(each).encode() for each in MESSAGES), b"{"])
        wait(lambda: stage.node.value("SELECT count(*) FROM shop.orders") == len(MESSAGES) - 1, "rows of the topic")
        wait(lambda: _kinds(stage, "sales") == {"delete", "update"}, "deltas")
        stage.sql("SYSTEM STOP DELTAS shop.sales")
        stage.node.stop()
        stage.node.change_settings(COLUMNS)
        stage.node.start()
        stage.node.wait_ready()
        stage.sql(*LATE_CHANGES)
        wait(lambda: "column" in _kinds(stage, "wide"), "a delta of a column")
        stage.sql(*LAST_CHANGES)
        found = {
            "version": version("tilth"),
            "rows": {f"shop.{table}": _rows(stage, f"SELECT * FROM shop.{table}") for table in SHOWN},
            "answers": {query: _rows(stage, query) for query in QUERIES},
        }
        stage.node.stop()
        FOLDER.mkdir(exist_ok=True)
        (FOLDER / f"{name}.json").write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        _pack(stage.node.data, FOLDER / f"{name}.tar.gz")


def _produce(bootstrap: str, values: Sequence[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(TOPIC, value)
    if producer.flush(60):
        raise RuntimeError("the broker did not take all messages")


def _kinds(stage: Stage, table: str) -> set[str]:
    query = f"SELECT DISTINCT kind FROM system.deltas WHERE active AND table = '{table}'"
    return {str(kind) for (kind,) in stage.node.connection.sql(query).rows}


def _rows(stage: Stage, query: str) -> list[dict[str, str]]:
    """Return the answer's rows, sorted, each value as a text."""
    rows: list[dict[str, Any]] = stage.node.connection.sql(query).arrow().to_pylist()
    return [{name: str(value) for name, value in row.items()} for row in sorted(rows, key=str)]


def _pack(data: Path, archive: Path) -> None:
    """Write the catalog and the tables of a data folder, without logs and locks of RocksDB."""
    with tarfile.open(archive, "w:gz", compresslevel=9) as packed:
        for path in sorted([*(data / "catalog").rglob("*"), *(data / "tables").rglob("*")]):
            if path.is_file() and not path.name.startswith("LO"):
                packed.add(path, path.relative_to(data))


if __name__ == "__main__":
    main()
