"""DELETE, UPDATE and AS OF on a real Spark: which rows change, what others do meanwhile, what the past shows."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from tests.spark_world import SparkWorld
from tilth.base.errors import ErrorKind
from tilth.catalog import ReplaceParts
from tilth.model.part import Part
from tilth.model.snapshot import Snapshot
from tilth.model.txn import TxnState
from tilth.statements.rows import delete_update
from tilth.storage import layout_of, read_source, sources_of, write_parts

pytestmark = pytest.mark.integration


def snapshot_of(world: SparkWorld, name: str) -> Snapshot:
    return world.catalog.parts.snapshot(world.table(name).uuid)


def fill(world: SparkWorld, name: str, settings: str = "") -> None:
    world.run(
        f"CREATE TABLE {name} (k Int64, p Int32, n Int32, s String, at DateTime, m Decimal(9, 2)) ENGINE = MergeTree "
        f"PARTITION BY p ORDER BY k {settings}"
    )
    for first in (0, 10):
        values = ", ".join(
            f"({k}, {k % 2}, {k}, 's{k}', '2026-01-01 00:00:{k:02d}', {k}.25)" for k in range(first, first + 10)
        )
        world.run(f"INSERT INTO {name} VALUES {values}")


def merge(world: SparkWorld, name: str, parts: list[Part]) -> None:
    """As a merge does it: the live rows in one part."""
    snapshot = snapshot_of(world, name)
    layout = layout_of(snapshot.table, world.engine._services.root)
    sources = sources_of(snapshot.table, parts, snapshot.deltas)
    tables = [read_source(layout.folder, source)[0] for source in sources]
    txn = world.catalog.transactions.open("merge")
    [written] = write_parts(layout, pa.concat_tables(tables), txn=txn.id, task=0, attempt=0)
    update = ReplaceParts(
        table=snapshot.table.uuid,
        sources=tuple(part.name for part in parts),
        written=written,
        seen=tuple((source.file.name, source.change_ts) for source in sources),
    )
    txn.commit([update])


def test_rows_change_and_no_part_is_rewritten(world: SparkWorld) -> None:
    fill(world, "t")
    before = snapshot_of(world, "t")
    answer = world.run("DELETE FROM t WHERE k >= 5 AND k < 8")
    assert (answer.message, answer.rows_written) == ("deleted from shop.t: 3 rows", 3)
    # The ranges of the sort key rule out parts without such a row.
    assert (answer.parts_read, answer.parts_pruned) == (2, 2)
    answer = world.run(
        "UPDATE t SET n = n + 100, s = concat(s, '!'), m = m + 1, at = TIMESTAMP '2026-02-01 00:00:00' WHERE n >= 8 "
        "AND n <= 11"
    )
    assert (answer.message, answer.rows_written) == ("updated in shop.t: 4 rows", 4)
    after = snapshot_of(world, "t")
    assert [part.file for part in after.parts] == [part.file for part in before.parts]
    assert world.rows("SELECT count(*), sum(k) FROM t") == [(17, sum(range(20)) - 18)]
    assert world.rows(
        "SELECT n, s, cast(m AS string), date_format(at, 'yyyy-MM-dd') FROM t WHERE k IN (4, 8, 11, 12) ORDER BY k"
    ) == [
        (4, "s4", "4.25", "2026-01-01"),
        (108, "s8!", "9.25", "2026-02-01"),
        (111, "s11!", "12.25", "2026-02-01"),
        (12, "s12", "12.25", "2026-01-01"),
    ]
    # The expressions of one statement see the old values, those of the next the new ones; NULL is a value, too.
    world.run("UPDATE t SET n = CAST(k AS INT), s = CAST(n AS STRING) WHERE n > 100")
    world.run("UPDATE t SET s = NULL WHERE s = '108'")
    assert world.rows("SELECT n, s FROM t WHERE k IN (8, 9) ORDER BY k") == [(8, None), (9, "109")]
    assert world.rows("SELECT count(*) FROM t WHERE n = 108") == [(0,)]
    assert world.rows("SELECT sum(rows), sum(deleted_rows) FROM system.parts WHERE table = 't' AND active") == [(17, 3)]
    assert world.rows("SELECT rows, deleted_rows FROM system.partitions WHERE table = 't' ORDER BY partition") == [
        (9, 1),
        (8, 2),
    ]
    told = world.rows(
        "SELECT kind, deleted_rows, updated_rows, columns FROM system.deltas WHERE table = 't' AND active"
    )
    assert sum(int(str(row[1])) for row in told) == 3
    assert {column for row in told for column in list(row[3] or [])} == {"n", "s", "at", "m"}  # type: ignore[call-overload]
    verbs = [(event.verb, event.outcome) for event in world.catalog.audit.recent(10)]
    assert ("DELETE", "done: deleted from shop.t: 3 rows") in verbs


def test_what_matches_nothing_commits_nothing(world: SparkWorld) -> None:
    fill(world, "nothing")
    version = world.catalog.parts.version(world.table("nothing").uuid)
    for text in ("DELETE FROM nothing WHERE n = 1000", "UPDATE nothing SET n = 1 WHERE s > NULL"):
        assert world.run(text).message.endswith(": 0 rows")
    assert world.catalog.parts.version(world.table("nothing").uuid) == version
    assert world.run("DELETE FROM nothing WHERE true").rows_written == 20
    assert world.run("DELETE FROM nothing WHERE true").rows_written == 0


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("UPDATE u SET n = 1.5 WHERE true", "BAD_MUTATION", "might be lost"),
        ("UPDATE u SET n = CAST('x' AS INT) WHERE true", "BAD_QUERY", "x"),
        ("DELETE FROM u WHERE rand() < 1", "BAD_MUTATION", "each time"),
        ("DELETE FROM u WHERE nope = 1", "UNKNOWN_COLUMN", "nope"),
    ],
)
def test_what_is_refused_changes_nothing(world: SparkWorld, text: str, code: str, told: str) -> None:
    world.run("CREATE TABLE IF NOT EXISTS u (k Int64, n Int32) ENGINE = MergeTree ORDER BY k")
    if not snapshot_of(world, "u").parts:
        world.run("INSERT INTO u VALUES (1, 1)")
    before = snapshot_of(world, "u")
    error = world.refused(text)
    assert (error.code, told in str(error)) == (code, True), error
    assert snapshot_of(world, "u") == before


def test_other_columns_of_a_table_with_a_unique_key_change(world: SparkWorld) -> None:
    world.run("CREATE TABLE keyed (k Int64, n Int32) ENGINE = MergeTree UNIQUE KEY k")
    world.run("INSERT INTO keyed VALUES (1, 1), (2, 2), (3, 3)")
    world.run("UPDATE keyed SET n = n * 10 WHERE k < 3")
    world.run("DELETE FROM keyed WHERE k = 3")
    assert world.rows("SELECT * FROM keyed ORDER BY k") == [(1, 10), (2, 20)]
    assert world.rows("SELECT rows, deleted_rows FROM system.segments WHERE table = 'keyed'") == [(2, 1)]


def test_a_part_that_is_merged_or_changed_meanwhile_is_looked_into_again(
    world: SparkWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(world, "race")
    done: list[str] = []
    found = delete_update._Change._found

    def meanwhile(self: delete_update._Change, *given: object) -> list[object]:
        written = found(self, *given)  # type: ignore[arg-type]
        if not done:
            done.append("once")
            odd = [part for part in snapshot_of(world, "race").parts if part.name.partition == "1"]
            merge(world, "race", odd)
            # Another statement takes a row, and rows come that this one does not know.
            world.run("DELETE FROM race WHERE k = 2")
            world.run("INSERT INTO race VALUES (30, 0, 0, 'new', NULL, NULL)")
        return list(written)

    monkeypatch.setattr(delete_update._Change, "_found", meanwhile)
    assert world.run("UPDATE race SET s = 'x' WHERE n < 12").rows_written == 11
    monkeypatch.undo()
    assert world.rows("SELECT count(*), count_if(s = 'x'), max(k) FROM race") == [(20, 11, 30)]
    assert world.rows("SELECT s FROM race WHERE k = 30") == [("new",)]
    left = [txn.actor for txn in world.catalog.transactions.unfinished() if txn.state is TxnState.RUNNING]
    assert left == []


def test_statements_at_once_all_count(world: SparkWorld) -> None:
    fill(world, "busy")
    failed: list[BaseException] = []

    def add(times: int) -> None:
        try:
            for _ in range(times):
                world.run("UPDATE busy SET n = n + 1 WHERE k < 10")
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=add, args=(2,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert world.rows("SELECT sum(n) FROM busy") == [(sum(range(20)) + 40,)]


def test_an_alter_under_way_holds_up_an_update_and_no_delete(world: SparkWorld) -> None:
    fill(world, "altered")
    world.run("ALTER TABLE altered ADD COLUMN x Int64 DEFAULT 7, RENAME COLUMN s TO note")
    error = world.refused("UPDATE altered SET n = 1 WHERE k = 1", mutations_wait_timeout_seconds="0.2")
    assert (error.code, error.kind) == ("COLUMNS_PENDING", ErrorKind.RETRY)
    assert "RENAME COLUMN s TO note" in str(error)
    assert world.run("DELETE FROM altered WHERE note = 's3' OR x = 8").rows_written == 1
    assert world.rows("SELECT count(*), sum(x) FROM altered") == [(19, 133)]


# AS OF


def time_of(world: SparkWorld, name: str, version: int) -> str:
    [(at,)] = world.rows(f"SELECT committed FROM system.table_versions WHERE table = '{name}' AND version = {version}")
    assert isinstance(at, datetime)
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


@pytest.fixture(scope="module")
def past(world: SparkWorld) -> SparkWorld:
    world.run("CREATE TABLE h (k Int64, s String) ENGINE = MergeTree ORDER BY k")
    world.run("INSERT INTO h VALUES (1, 'a'), (2, 'b')")
    clock = threading.Event()
    for text in (
        "INSERT INTO h VALUES (3, 'c')",
        "UPDATE h SET s = 'B' WHERE k = 2",
        "DELETE FROM h WHERE k = 1",
        "ALTER TABLE h RENAME COLUMN s TO t",
        "TRUNCATE TABLE h",
    ):
        # Times have milliseconds.
        clock.wait(0.005)
        world.run(text)
    return world


def test_each_version_reads_as_it_was(past: SparkWorld) -> None:
    seen = [[(1, "a"), (2, "b")], [(1, "a"), (2, "b"), (3, "c")], [(1, "a"), (2, "B"), (3, "c")], [(2, "B"), (3, "c")]]
    seen += [[(2, "B"), (3, "c")], []]
    for version, expected in enumerate(seen, start=1):
        assert past.rows(f"SELECT * FROM h VERSION AS OF {version} ORDER BY k") == expected
        if version in (2, 4):
            at = time_of(past, "h", version)
            assert past.rows(f"SELECT * FROM h TIMESTAMP AS OF '{at}' ORDER BY k") == expected
    assert past.run("SELECT * FROM h FOR SYSTEM_VERSION AS OF 4").table.column_names == ["k", "s"]
    assert past.run("SELECT * FROM h FOR VERSION AS OF '5'").table.column_names == ["k", "t"]
    assert past.catalog.readers.list() == []


def test_several_moments_in_one_query(past: SparkWorld) -> None:
    assert past.rows(
        "SELECT x.k, x.s, y.s, z.t FROM h VERSION AS OF 2 AS x JOIN shop.h FOR SYSTEM_VERSION AS OF 3 y ON x.k = y.k "
        "LEFT JOIN h z ON z.k = x.k WHERE x.s <> y.s"
    ) == [(2, "b", "B", None)]
    at = time_of(past, "h", 1)
    assert past.rows(
        "WITH old AS (SELECT * FROM h TIMESTAMP AS OF date_add(DATE '2000-01-01', 0) + "
        f"(TIMESTAMP '{at}' - TIMESTAMP '2000-01-01 00:00:00')) SELECT count(*), h.k IS NULL FROM old LEFT JOIN h ON "
        "h.k = old.k GROUP BY ALL"
    ) == [(2, True)]
    assert past.rows("SELECT count(*) FROM h TIMESTAMP AS OF now() WHERE k < 10") == [(0,)]
    plan = past.rows(f"EXPLAIN SELECT * FROM h TIMESTAMP AS OF '{at}'")
    assert "Physical Plan" in str(plan)
    past.run("INSERT INTO h SELECT k, s FROM h VERSION AS OF 4")
    assert past.rows("SELECT * FROM shop.h FOR SYSTEM_TIME AS OF now() TABLESAMPLE (100 PERCENT) ORDER BY h.k") == [
        (2, "B"),
        (3, "c"),
    ]


@pytest.mark.parametrize(
    ("clause", "code", "told"),
    [
        ("VERSION AS OF 99", "UNKNOWN_VERSION", "newest="),
        ("VERSION AS OF 0", "UNKNOWN_VERSION", "oldest=1"),
        ("VERSION AS OF 'main'", "BAD_QUERY", "whole number"),
        ("TIMESTAMP AS OF now() + INTERVAL 1 HOUR", "SNAPSHOT_IN_FUTURE", "in the future"),
        ("TIMESTAMP AS OF '2001-01-01'", "INVALID_SNAPSHOT", "ancient_history_mark="),
        ("TIMESTAMP AS OF now() - INTERVAL 30 MINUTE", "INVALID_SNAPSHOT", "did not exist yet"),
        ("TIMESTAMP AS OF 'soon'", "BAD_QUERY", "AS OF needs a time"),
        ("TIMESTAMP AS OF NULL", "BAD_QUERY", "AS OF needs a time"),
        ("TIMESTAMP AS OF (SELECT now())", "BAD_QUERY", "constant"),
    ],
)
def test_moments_that_cannot_be_read(past: SparkWorld, clause: str, code: str, told: str) -> None:
    error = past.refused(f"SELECT * FROM h {clause}")
    assert (error.code, told in str(error)) == (code, True), error
    assert past.catalog.readers.list() == []


def test_only_tables_have_a_past(past: SparkWorld) -> None:
    assert past.refused("WITH c AS (SELECT 1) SELECT * FROM c VERSION AS OF 1").code == "BAD_QUERY"
    error = past.refused("SELECT * FROM system.parts VERSION AS OF 1 JOIN h ON true")
    assert (error.code, "has no history" in str(error)) == ("BAD_QUERY", True)
