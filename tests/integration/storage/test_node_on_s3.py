"""A node whose tables are in a bucket: everything that is done with a table, what a scan requests from the store, the
store away in the middle, and where its secrets are not."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.waiting import wait_until
from tilth.base.errors import ErrorKind, TilthError
from tools.broker import ROOT, Broker
from tools.node_process import NodeProcess
from tools.s3server import KEY, SECRET, S3Server

pytestmark = pytest.mark.integration
SECONDS_MAX = 120.0
JARS = ROOT / ".cache" / "s3a"
HOSTILE = "it''s \\\\ \"q\" \U0001f680 naïve\u2028"


@dataclass(frozen=True, slots=True)
class Location:
    """A server, and the node whose tables are there."""

    store: S3Server
    node: NodeProcess
    folder: Path


@pytest.fixture(scope="module")
def location(java_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Location]:
    folder = tmp_path_factory.mktemp("s3")
    store = S3Server(folder / "s3")
    store.start()
    store.create_bucket("tilth")
    node = NodeProcess(folder / "node", settings=settings_of(store, folder))
    try:
        node.start()
        node.wait_ready()
        node.connection.sql("CREATE DATABASE d")
        yield Location(store, node, folder)
    finally:
        node.stop()
        store.stop()


def settings_of(store: S3Server, folder: Path, **changed: str) -> dict[str, str]:
    (folder / "key").write_text(KEY)
    (folder / "secret").write_text(changed.get("secret", SECRET))
    endpoint, bucket = changed.get("endpoint", store.endpoint), changed.get("bucket", "tilth")
    keys = f"key=file:{folder / 'key'}&secret=file:{folder / 'secret'}"
    return {
        "storage.root": f"s3://{bucket}/tables?endpoint={endpoint}&region=us-east-1&{keys}",
        "warehouse.jars": str(JARS),
        "warehouse.driver-memory": "1g",
    }


def test_a_table_lives_in_a_bucket(location: Location) -> None:
    sql = location.node.connection.sql
    keep = "old_parts_lifetime = 1, tablet_history_max_age_sec = 1, ttl_for_trash_items = 1, "
    keep += "cleanup_delay_period = 1, cleanup_delay_period_random_add = 1"
    sql(f"CREATE TABLE d.t (id BIGINT, `o dd` STRING, n DECIMAL(10, 2)) ENGINE = MergeTree ORDER BY id SETTINGS {keep}")
    sql(f"INSERT INTO d.t SELECT id, '{HOSTILE}', CAST(id AS DECIMAL(10, 2)) FROM range(5000)")
    for number in range(3):
        sql(f"INSERT INTO d.t VALUES ({5000 + number}, NULL, NULL)")
    sql("DELETE FROM d.t WHERE id % 10 = 3")
    sql("UPDATE d.t SET `o dd` = 'new' WHERE id < 10")
    counts = "SELECT count(*), count(`o dd`), count(DISTINCT `o dd`), sum(n) FROM d.t WHERE id >= 0"
    before = sql(counts).rows
    assert before[0][:3] == (4503, 4500, 2)
    sql("OPTIMIZE TABLE d.t FINAL")
    assert sql(counts).rows == before
    sql("CREATE TABLE d.u (id BIGINT, v STRING) ENGINE = MergeTree ORDER BY id UNIQUE KEY id")
    sql("INSERT INTO d.u VALUES (1, 'a'), (2, 'b')")
    sql("INSERT INTO d.u VALUES (1, 'c')")
    assert sql("SELECT * FROM d.u ORDER BY id").rows == [(1, "c"), (2, "b")]
    for table in ("t", "u"):
        assert all(row[2] for row in sql(f"SYSTEM VERIFY d.{table}").rows)
    gone = "SELECT count(*) FROM system.part_log WHERE event = 'remove' AND table = 't'"
    wait_until(lambda: location.node.value(gone) > 0, "old files to be removed")
    assert sql(counts).rows == before
    assert not any((location.node.data / "tables").iterdir())


def test_files_go_out_and_come_in(location: Location) -> None:
    """Below the storage's folder for files, under a name that is no plain one; about five seconds."""
    sql = location.node.connection.sql
    sql("CREATE TABLE d.out (id BIGINT, s STRING) ENGINE = MergeTree ORDER BY id")
    sql(f"INSERT INTO d.out VALUES (1, '{HOSTILE}'), (2, NULL)")
    rows = sql("SELECT * FROM d.out ORDER BY id").rows
    address = "s3://tilth/tables/files/a b%20+c"
    for form in ("PARQUET", "JSON", "AVRO", "ORC"):
        assert "2 rows" in sql(f"EXPORT TABLE d.out TO '{address}/{form}' FORMAT {form}").summary.message
        sql("CREATE TABLE d.back (id BIGINT, s STRING) ENGINE = MergeTree ORDER BY id")
        assert "2 rows of" in sql(f"COPY INTO d.back FROM '{address}/{form}' FORMAT {form}").summary.message
        assert (
            "nothing to copy"
            in sql(f"COPY INTO d.back FROM '{address}' FORMAT {form} PATTERN '{form}/*'").summary.message
        )
        assert sql("SELECT * FROM d.back ORDER BY id").rows == rows
        assert all(tag for (tag,) in sql("SELECT tag FROM system.loaded_files WHERE table = 'back'").rows)
        sql("DROP TABLE d.back")
    with pytest.raises(TilthError) as refused:
        sql(f"EXPORT TABLE d.out TO '{address}/JSON' FORMAT JSON")
    assert refused.value.code == "EXPORT_NOT_EMPTY"
    for other in ("s3://tilth/tables", "s3://tilth/other", "s3://elsewhere/x"):
        with pytest.raises(TilthError) as refused:
            sql(f"COPY INTO d.out FROM '{other}' FORMAT JSON")
        assert refused.value.code == "BAD_FILE_LOCATION"


def test_a_plan_requests_nothing_and_a_scan_once_for_each_file(location: Location) -> None:
    sql = location.node.connection.sql
    sql("SYSTEM STOP MERGES")
    try:
        sql("CREATE TABLE d.many (id BIGINT, p INT) ENGINE = MergeTree PARTITION BY p ORDER BY id")
        sql("INSERT INTO d.many SELECT id, CAST(id % 100 AS INT) FROM range(3000)")
        parts = location.node.value("SELECT count(*) FROM system.parts WHERE table = 'many' AND active")
        [uuid_] = sql("SELECT uuid FROM system.tables WHERE name = 'many'").rows[0]
        location.store.requests()
        assert sql("SELECT count(*), sum(id) FROM d.many WHERE id >= 0").rows == [(3000, 4498500)]
        every = location.store.requests()
        # A listing is a GET of the bucket itself.
        assert [path for verb, path in every if verb == "GET" and path.strip("/") == "tilth"] == []
        # The table costs the two requests of each file, which are those of the scan; other work of the node may request
        # files of its own.
        requests = [(verb, path) for verb, path in every if uuid_ in path]
        assert parts >= 100
        assert sorted(verb for verb, _ in requests) == ["GET"] * parts + ["HEAD"] * parts
        assert len({path for _, path in requests}) == parts
        # Partitions that the query rules out cost no request.
        assert sql("SELECT count(*) FROM d.many WHERE p = 7 AND id >= 0").rows == [(30,)]
        assert len({path for _, path in location.store.requests() if uuid_ in path}) <= parts / 100
    finally:
        sql("SYSTEM START MERGES")


def test_a_round_requests_little_more_than_its_files(location: Location, broker: Broker) -> None:
    sql, topic = location.node.connection.sql, f"s3-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, 1)
    sql("CREATE TABLE d.r (id BIGINT) ENGINE = MergeTree ORDER BY id")
    sql(
        f"CREATE TABLE d.k (id BIGINT) ENGINE = Kafka SETTINGS kafka_broker_list = '{broker.bootstrap}', "
        f"kafka_topic_list = '{topic}', kafka_group_name = '{topic}', kafka_format = 'JSONEachRow', "
        "stream_flush_interval_ms = 300"
    )
    sql("CREATE MATERIALIZED VIEW d.v TO d.r AS SELECT id FROM d.k")
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    rounds = "SELECT count(*) FROM system.ingest_ledger WHERE table = 'k'"
    for number in range(4):
        if number == 1:
            location.store.requests()
        for id_ in range(100):
            producer.produce(topic, b'{"id": %d}' % (100 * number + id_))
        producer.flush(30)
        wait_until(lambda wanted=number + 1: location.node.value(rounds) >= wanted, "a round")  # type: ignore[misc]
    [uuid_] = sql("SELECT uuid FROM system.tables WHERE name = 'r'").rows[0]
    requests = [(verb, path) for verb, path in location.store.requests() if uuid_ in path]
    files = [path for verb, path in requests if verb == "PUT"]
    count = location.node.value(rounds) - 1
    assert len(files) >= count
    # The dead letters' table has no file, and costs nothing.
    assert len(requests) <= len(files) + 3 * count, requests
    assert sql("SELECT count(*), count(DISTINCT id) FROM d.r WHERE id >= 0").rows == [(400, 400)]


def test_statements_of_one_row_request_little_more_than_their_files(location: Location) -> None:
    sql = location.node.connection.sql
    sql("SYSTEM STOP MERGES")
    sql("CREATE TABLE d.one (id BIGINT, a BIGINT) ENGINE = CnchMergeTree ORDER BY id UNIQUE KEY id")
    statements = (
        "INSERT INTO d.one VALUES (1, 5)",
        "UPDATE d.one SET a = 6 WHERE id = 1",
        "DELETE FROM d.one WHERE id = 2",
        "INSERT INTO d.one SELECT id + 10, id FROM range(3)",
        # Nothing to delete.
        "DELETE FROM d.one WHERE id = 77",
    )
    sql("INSERT INTO d.one SELECT id, id FROM range(10)")
    location.store.requests()
    for text in statements:
        sql(text)
    assert sql("SELECT count(*), sum(a) FROM d.one").rows == [(12, 45 + 5 - 2 + 3)]
    requests = location.store.requests()
    others = [(verb, path) for verb, path in requests if verb != "PUT"]
    assert len(others) <= 6 * len(statements), others
    assert not [each for each in others if each[0] in ("POST", "DELETE")]
    sql("SYSTEM START MERGES")


def test_a_bucket_that_is_away_is_named_and_comes_back(location: Location) -> None:
    sql = location.node.connection.sql
    sql("CREATE TABLE d.away (id BIGINT) ENGINE = MergeTree ORDER BY id")
    sql("INSERT INTO d.away VALUES (1)")
    buckets = location.store.folder / "buckets"
    (buckets / "tilth").rename(buckets / "elsewhere")
    try:
        with pytest.raises(TilthError) as unread:
            sql("SELECT count(*) FROM d.away WHERE id > 0")
        assert unread.value.code == "STORE_AWAY", str(unread.value)
        with pytest.raises(TilthError) as refused:
            sql("INSERT INTO d.away VALUES (2)")
        assert "tilth" in str(refused.value)
        assert location.node.connection.health().components["tables folder"] != "ok"
    finally:
        (buckets / "elsewhere").rename(buckets / "tilth")
    assert sql("SELECT count(*) FROM d.away WHERE id > 0").rows == [(1,)]
    sql("INSERT INTO d.away VALUES (2)")
    assert sql("SELECT count(*) FROM d.away WHERE id > 0").rows == [(2,)]
    assert location.node.connection.health().components["tables folder"] == "ok"


def test_no_secret_is_shown(location: Location) -> None:
    shown = "".join(path.read_text(errors="replace") for path in location.node.data.glob("log/*"))
    shown += (location.folder / "node" / "node.log").read_text(errors="replace")
    for statement in ("SHOW SETTINGS", "SELECT * FROM system.settings", "EXPLAIN EXTENDED SELECT * FROM d.u"):
        shown += str(location.node.connection.sql(statement).rows)
    assert SECRET not in shown
    assert KEY not in shown


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"secret": "wrong-secret-of-the-bucket"}, "STORE_REFUSED"),
        pytest.param({"bucket": "nowhere"}, "nowhere", marks=pytest.mark.long),
        pytest.param({"endpoint": "http://127.0.0.1:9"}, "STORE_AWAY", marks=pytest.mark.long),
    ],
)
def test_a_location_that_cannot_be_used_is_named_at_the_first_start(
    location: Location, tmp_path: Path, changed: dict[str, str], words: str
) -> None:
    node = NodeProcess(tmp_path, settings=settings_of(location.store, tmp_path, **changed))
    node.start()
    assert node.wait_end(SECONDS_MAX)
    assert words in node.log_tail()
    assert "wrong-secret-of-the-bucket" not in node.log_tail()
    assert not (node.data / "storage-root").exists()


def test_a_store_that_stops_is_no_damage_of_files(location: Location) -> None:
    sql = location.node.connection.sql
    sql("CREATE TABLE d.stops (id BIGINT) ENGINE = MergeTree ORDER BY id")
    sql("INSERT INTO d.stops SELECT id FROM range(1000)")
    port = int(location.store.endpoint.rpartition(":")[2])
    location.store.kill()
    try:
        with pytest.raises(TilthError) as unread:
            sql("SELECT sum(id) FROM d.stops WHERE id >= 0")
        assert unread.value.kind in (ErrorKind.UNAVAILABLE, ErrorKind.RETRY), str(unread.value)
        with pytest.raises(TilthError) as refused:
            sql("INSERT INTO d.stops SELECT id FROM range(10)")
        assert refused.value.kind in (ErrorKind.UNAVAILABLE, ErrorKind.RETRY), str(refused.value)
    finally:
        location.store.start(port)
    assert sql("SELECT sum(id) FROM d.stops WHERE id >= 0").rows == [(499500,)]
    damaged = "SELECT count(*) FROM system.parts WHERE table = 'stops' AND damaged IS NOT NULL"
    assert location.node.value(damaged) == 0


def test_another_location_than_the_chosen_one_is_refused(location: Location, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "storage-root").write_text("s3://tilth/another\n")
    node = NodeProcess(tmp_path, settings=settings_of(location.store, tmp_path))
    node.start()
    assert node.wait_end(SECONDS_MAX)
    assert "STORE_LOCATION" in node.log_tail()
