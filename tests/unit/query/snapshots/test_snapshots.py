"""What running queries and readers outside hold: snapshots, leases, their renewal and their end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sql_world import SqlWorld, answer_view_tasks
from tilth.base.errors import ErrorKind, TilthError
from tilth.catalog import ResultFolder, SchemaChangedError
from tilth.control.running import SHOWN_CHARACTERS_MAX, Origin
from tilth.grammar.errors import UnsupportedSqlError
from tilth.model.snapshot import Snapshot
from tilth.model.task import TaskSpec
from tilth.query.errors import SnapshotLostError
from tilth.query.snapshots import snapshots
from tilth.query.snapshots.pins import PIN_MS, Pins
from tilth.query.snapshots.predicates import Compare, Comparison, Undecided
from tilth.query.snapshots.snapshots import READER_LEASE_MS
from tilth.storage import Folder, PartFileNotFoundError, local_root


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    made = SqlWorld(tmp_path)
    made.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a")
    for value in (1, 2, 3):
        made.run(f"INSERT INTO t VALUES ({value})")
    return made


def test_references_to_one_table_share_a_snapshot_and_each_gets_its_parts(world: SqlWorld) -> None:
    service = world.engine.snapshots
    tables = {"databases": pa.table({"name": ["default"]})}
    with service.opened("q", database="default", prune=True, system_table=tables.__getitem__) as query:
        found = service.resolve("q", [("t",), ("default", "t"), ("system", "databases")])
        assert [one.table for one in found] == ["t", "t", "databases"]
        assert service.rows_to_read("q") is None
        first, second, rows = service.pin(
            "q", [Compare("a", Comparison.EQUAL, 1), Compare("a", Comparison.GREATER, 2), Undecided()]
        )
        assert first.snapshot is not None
        assert second.snapshot is not None
        assert [part.ranges["a"].low for part in first.snapshot.parts] == [1]
        assert [part.ranges["a"].low for part in second.snapshot.parts] == [3]
        assert first.snapshot.ts == second.snapshot.ts
        assert rows.rows is not None
        assert pa.ipc.open_stream(rows.rows).read_all().column("name").to_pylist() == ["default"]
        assert (query.parts_read, query.parts_pruned) == (2, 1)
        assert service.rows_to_read("q") == 2
        (lease,) = world.catalog.readers.list()
        assert lease.snapshot_ts <= world.catalog.clock.now()
    assert world.catalog.readers.list() == []
    assert service.rows_to_read("q") is None
    with pytest.raises(TilthError, match="this query has ended"):
        service.resolve("q", [("t",)])


def test_a_large_result_gets_a_folder_in_the_storage_of_its_table_until_its_end(
    world: SqlWorld, tmp_path: Path
) -> None:
    service = world.engine.snapshots
    with service.opened("q", database="default", prune=True):
        service.resolve("q", [("t",)])
        folder = service.open_result("q")
        # A call that is sent again, and a result of another query.
        assert service.open_result("q") == folder
        [(path, record)] = world.catalog.results.all().items()
        assert (path, record.server, record.removed_ms) == (folder.path, world.catalog.server, 0)
        with service.opened("other", database="default", prune=True):
            assert service.open_result("other").path != folder.path
        local = Path(folder)
        local.mkdir(parents=True)
        (local / "000000.1.000000.arrow").write_bytes(b"rows")
    assert not local.exists()
    assert all(each.removed_ms for each in world.catalog.results.all().values())
    with pytest.raises(TilthError, match="this query has ended"):
        service.open_result("q")


def test_a_result_that_cannot_be_removed_or_comes_after_the_end_is_left_to_the_cleaner(
    world: SqlWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, results = world.engine.snapshots, world.catalog.results

    def fail(folder: Folder) -> None:
        raise OSError(f"the storage is away: {folder}")

    with monkeypatch.context() as patched, service.opened("q", database="default", prune=True):
        folder = service.open_result("q")
        patched.setattr(snapshots, "remove_folder", fail)
    assert results.all()[folder.path].removed_ms
    opened = service.opened("late", database="default", prune=True)
    opened.__enter__()
    add = results.add

    def end_first(path: str, folder: ResultFolder) -> None:
        opened.__exit__(None, None, None)
        add(path, folder)

    monkeypatch.setattr(results, "add", end_first)
    with pytest.raises(TilthError, match="this query has ended"):
        service.open_result("late")
    assert len(results.all()) == 2
    assert all(each.removed_ms for each in results.all().values())


def test_a_lease_is_of_the_time_of_its_snapshot_though_somebody_commits_in_between(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = world.catalog.parts
    take = parts.snapshot

    def later(*given: Any, **named: Any) -> Snapshot:
        world.run("INSERT INTO t VALUES (4)")
        return take(*given, **named)

    monkeypatch.setattr(parts, "snapshot", later)
    service = world.engine.snapshots
    with service.opened("q", database="default", prune=True):
        service.resolve("q", [("t",)])
        (source,) = service.pin("q", [Undecided()])
        (lease,) = world.catalog.readers.list()
        assert source.snapshot is not None
        assert max(part.commit_ts for part in source.snapshot.parts) == source.snapshot.ts == lease.snapshot_ts
        service.renew_all()
        assert world.catalog.readers.list()[0].snapshot_ts == source.snapshot.ts
    snapshot, lease, _ = Pins(world.clock, world.catalog, root=local_root(tmp_path), server="s1").pin(
        "default", "t", None
    )
    assert len(snapshot.parts) == 5
    assert max(part.commit_ts for part in snapshot.parts) == snapshot.ts == lease.snapshot_ts
    assert world.catalog.readers.list() == [lease]


def test_a_query_whose_columns_were_altered_before_its_files_were_found_is_refused(world: SqlWorld) -> None:
    """The query was planned with the old columns: Spark would read files by a wrong schema."""
    service = world.engine.snapshots
    with service.opened("q", database="default", prune=True):
        service.resolve("q", [("t",)])
        world.run("ALTER TABLE t ADD COLUMN b String")
        with pytest.raises(SchemaChangedError):
            service.pin("q", [Undecided()])
    assert world.catalog.readers.list() == []


def test_leases_are_renewed_while_a_query_runs(world: SqlWorld) -> None:
    service = world.engine.snapshots
    with service.opened("q", database="default", prune=True):
        service.resolve("q", [("t",)])
        service.pin("q", [Undecided()])
        before = world.catalog.readers.list()[0].expires_ms
        world.clock.advance(READER_LEASE_MS // 2 / 1000)
        service.renew_all()
        assert world.catalog.readers.list()[0].expires_ms == before + READER_LEASE_MS // 2


@pytest.mark.parametrize("is_renewed_late", [False, True])
def test_a_file_that_went_after_the_end_of_its_lease_is_no_damage(world: SqlWorld, is_renewed_late: bool) -> None:
    """The server stood still for longer than the lease lasts: others have collected what it kept."""
    service = world.engine.snapshots
    missing = PartFileNotFoundError(file="t/data/1-0.0-0.parquet")

    def read(seconds: float) -> None:
        with service.opened("q", database="default", prune=True):
            service.resolve("q", [("t",)])
            service.pin("q", [Undecided()])
            world.clock.advance(seconds)
            if is_renewed_late:
                service.renew_all()
            raise missing

    with pytest.raises(PartFileNotFoundError):
        read(READER_LEASE_MS / 1000 - 1)
    with pytest.raises(SnapshotLostError, match="send the statement again") as raised:
        read(READER_LEASE_MS / 1000 + 1)
    assert raised.value.kind is ErrorKind.RETRY
    with service.opened("q", database="default", prune=True):
        service.resolve("q", [("t",)])
        assert service.pin("q", [Undecided()])[0].snapshot is not None


def test_a_query_whose_files_went_begins_anew(world: SqlWorld) -> None:
    rows = pa.table({"a": [1]})

    def answer(_: TaskSpec) -> bytes:
        if len(world.dispatch.specs) == 1:
            raise SnapshotLostError(server="s")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return bytes(sink.getvalue())

    world.dispatch.answer = answer
    assert world.run("SELECT * FROM t").table == rows
    assert len(world.dispatch.specs) == 2


def test_a_view_is_read_as_its_target_and_a_kafka_table_is_not_read(world: SqlWorld) -> None:
    world.run("CREATE TABLE k (a Int64) ENGINE = Kafka('b:9092', 'topic', 'g', 'JSONEachRow')")
    world.dispatch.answer = answer_view_tasks(("k",))
    world.run("CREATE MATERIALIZED VIEW v TO t AS SELECT a FROM k")
    service = world.engine.snapshots
    with service.opened("q", database="default", prune=False):
        assert service.resolve("q", [("v",)])[0].schema.names == ("a",)
        with pytest.raises(TilthError, match=r"default\.t"):
            service.resolve("q", [("k",)])
        with pytest.raises(TilthError, match="at most two parts"):
            service.resolve("q", [("spark_catalog", "default", "t")])


def test_a_snapshot_for_a_reader_outside(world: SqlWorld, tmp_path: Path) -> None:
    pins = Pins(world.clock, world.catalog, root=local_root(tmp_path), server="s1")
    snapshot, lease, root = pins.pin("default", "t", None)
    assert (len(snapshot.parts), root) == (3, str(tmp_path))
    world.clock.advance(60)
    pins.renew(lease.id)
    assert world.catalog.readers.list()[0].expires_ms == lease.expires_ms + 60_000
    pins.close(lease.id)
    pins.close(lease.id)
    assert world.catalog.readers.list() == []
    with pytest.raises(TilthError, match="was released"):
        pins.renew(lease.id)
    assert lease.expires_ms - PIN_MS <= world.clock.now_ms()
    with pytest.raises(TilthError):
        pins.pin("default", "nope", None)


def test_a_reader_outside_goes_on_under_the_next_process_of_the_server(world: SqlWorld, tmp_path: Path) -> None:
    client = Origin("10.0.0.7", "5", "report\n\x1b[31mbuilder" + "x" * 500).shown
    pins = Pins(world.clock, world.catalog, root=local_root(tmp_path), server="s1")
    _, lease, _ = pins.pin("default", "t", None, client=client)
    assert lease.client.startswith("10.0.0.7:5 (report[31mbuilder")
    assert len(lease.client) <= SHOWN_CHARACTERS_MAX
    assert world.catalog.readers.close_left_behind("s1", {"s1"}) == 0
    world.clock.advance(60)
    pins = Pins(world.clock, world.catalog, root=local_root(tmp_path), server="s2")
    pins.renew(lease.id)
    [renewed] = world.catalog.readers.list()
    assert renewed.expires_ms == lease.expires_ms + 60_000
    assert (renewed.client, renewed.opened_ms) == (lease.client, lease.opened_ms)
    # The lease of a query is its own: nobody renews or ends it from outside.
    query = world.catalog.readers.open(lease.table, lease.snapshot_ts, "s2", 1_000)
    with pytest.raises(TilthError, match="was released"):
        pins.renew(query.id)
    pins.close(query.id)
    assert len(world.catalog.readers.list()) == 2
    Pins(world.clock, world.catalog, root=local_root(tmp_path), server="s3").close(lease.id)
    assert [each.id for each in world.catalog.readers.list()] == [query.id]


def test_columns_of_another_zone_are_refused_where_one_is_asked_for(world: SqlWorld) -> None:
    world.run("CREATE TABLE z (a DateTime('Europe/Berlin'), b DateTime('UTC')) ENGINE = MergeTree ORDER BY a")
    service = world.engine.snapshots
    for zone in ("UTC", "Europe/Berlin", "America/St_Johns"):
        with (
            service.opened("q", database="default", prune=True, zone=zone),
            pytest.raises(UnsupportedSqlError, match=r"of default\.z in a session in"),
        ):
            service.resolve("q", [("z",)])
    world.run("CREATE TABLE y (a DateTime('Europe/Berlin'), b DateTime) ENGINE = MergeTree ORDER BY a")
    for zone in ("", "Europe/Berlin"):
        with service.opened("q", database="default", prune=True, zone=zone):
            assert service.resolve("q", [("y",), ("t",)])


def test_tables_are_pinned_together_as_of_one_time(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.run("CREATE TABLE u (a Int64) ENGINE = MergeTree ORDER BY a")
    world.run("INSERT INTO u VALUES (1)")
    pins = Pins(world.clock, world.catalog, root=local_root(tmp_path), server="s1")
    parts, take = world.catalog.parts, world.catalog.parts.snapshot
    before: list[Snapshot] = []

    def later(uuid: str, **named: Any) -> Snapshot:
        found = take(uuid, **named)
        if not before:
            # After the first table was read, both change.
            before.append(found)
            world.run("INSERT INTO t VALUES (5)")
            world.run("INSERT INTO u VALUES (2)")
        return found

    monkeypatch.setattr(parts, "snapshot", later)
    first, missing, second = pins.pin_together([("default", "t"), ("nope", "t"), ("default", "u")], client="c")
    assert first is not None
    assert second is not None
    assert missing is None
    assert first[0].ts == second[0].ts == first[1].snapshot_ts == second[1].snapshot_ts > before[0].ts
    assert (len(first[0].parts), len(second[0].parts)) == (4, 2)
    assert {lease.id for lease in world.catalog.readers.list()} == {first[1].id, second[1].id}
    pins.renew(first[1].id)
    pins.close(first[1].id)
    pins.close(second[1].id)
    assert pins.pin_together([]) == []
    world.run("DROP TABLE u")
    assert pins.pin_together([("default", "u")]) == [None]
    with pytest.raises(TilthError, match="too many tables"):
        pins.pin_together([("default", "t")] * 101)
    assert world.catalog.readers.list() == []
