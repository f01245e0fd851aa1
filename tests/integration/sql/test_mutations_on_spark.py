"""ALTER, DELETE and UPDATE on a whole node: what Spark's analysis refuses, tables that change while they are read."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.lane_spark import LaneSpark
from tilth.base.errors import ErrorKind, TilthError
from tilth.model.mutation import MutationState
from tilth.model.table import TableDef
from tilth.node import Node

pytestmark = pytest.mark.integration

#: Generous: two cores share this with all other tests.
SECONDS_MAX = 120.0


@pytest.fixture(scope="module")
def node(lane_spark: LaneSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with lane_spark.node(tmp_path_factory.mktemp("node")) as made:
        made.engine.run("CREATE TABLE checks (k Int64 NOT NULL, n Int32, s String) ENGINE = MergeTree ORDER BY k")
        yield made


def rows(node: Node, text: str, **settings: str) -> list[tuple[object, ...]]:
    table = node.engine.run(text, settings=settings).table
    return [tuple(column[row].as_py() for column in table.columns) for row in range(table.num_rows)]


def refused(node: Node, text: str) -> TilthError:
    with pytest.raises(TilthError) as caught:
        node.engine.run(text)
    return caught.value


def uuid_of(node: Node, name: str) -> str:
    return node.catalog.tables.get("default", name).uuid


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("DELETE FROM checks WHERE nope = 1", "UNKNOWN_COLUMN", "nope"),
        ("DELETE FROM checks WHERE nope(n)", "UNKNOWN_FUNCTION", "nope"),
        ("DELETE FROM checks WHERE n + 1", "BAD_MUTATION", "int"),
        ("DELETE FROM checks WHERE n = 1 GROUP BY n", "SYNTAX_ERROR", "GROUP"),
        ("DELETE FROM checks WHERE n = 1) OR (n = 2", "SYNTAX_ERROR", ")"),
        ("DELETE FROM checks WHERE n IN (SELECT 1)", "BAD_MUTATION", "subqueries"),
        ("DELETE FROM checks WHERE EXISTS (SELECT 1)", "BAD_MUTATION", "subqueries"),
        ("DELETE FROM checks WHERE n = (SELECT max(k) FROM checks)", "BAD_MUTATION", "subqueries"),
        ("DELETE FROM checks WHERE max(n) = 1", "BAD_MUTATION", "row by row"),
        ("DELETE FROM checks WHERE row_number() OVER (ORDER BY k) = 1", "BAD_MUTATION", "row by row"),
        ("DELETE FROM checks WHERE rand() < 0.5", "BAD_MUTATION", "each time"),
        ("DELETE FROM checks WHERE n = 1 AS x", "BAD_MUTATION", "cannot have a name"),
        ("UPDATE checks SET n = explode(array(1, 2)) WHERE true", "BAD_MUTATION", "row by row"),
        ("UPDATE checks SET s = uuid() WHERE true", "BAD_MUTATION", "each time"),
        ("UPDATE checks SET n = 'x' WHERE true", "BAD_MUTATION", "might be lost"),
        ("UPDATE checks SET n = n * 1.5 WHERE true", "BAD_MUTATION", "might be lost"),
        ("UPDATE checks SET n = inline(array(struct(1, 2))) WHERE true", "BAD_MUTATION", "one expression"),
        ("DELETE FROM checks WHERE CAST('today' AS DATE) > DATE '2026-01-01'", "BAD_MUTATION", "when it is"),
        ("DELETE FROM checks WHERE TIMESTAMP '2026-01-01 00:00:00' < 'yesterday'", "BAD_MUTATION", "when it is"),
        ("UPDATE checks SET s = to_timestamp('now') WHERE true", "BAD_MUTATION", "when it is"),
        ("ALTER TABLE checks ADD COLUMN x Int32 NOT NULL DEFAULT nullif(1, 1)", "BAD_MUTATION", "may be NULL"),
        ("ALTER TABLE checks ADD COLUMN x Int32 DEFAULT n / 2", "BAD_MUTATION", "does not fit"),
        ("ALTER TABLE checks ADD COLUMN x Int32 NOT NULL DEFAULT n + 1", "BAD_VALUE", "coalesce(n + 1, ..)"),
        ("ALTER TABLE checks ADD COLUMN x Int32 DEFAULT nope + 1", "UNKNOWN_COLUMN", "expression=nope + 1"),
        ("UPDATE checks SET n = k WHERE true", "BAD_MUTATION", "might be lost"),
        ("UPDATE checks SET n = 5000000000 WHERE true", "BAD_MUTATION", "does not fit the column"),
        ("DELETE FROM checks WHERE s = 7", "BAD_MUTATION", "taken for a number"),
        ("UPDATE checks SET n = s + 1 WHERE true", "BAD_MUTATION", "taken for a number"),
        ("ALTER TABLE checks ADD COLUMN x Int32 DEFAULT upper('a')", "BAD_MUTATION", "does not fit"),
    ],
)
def test_what_cannot_be_a_mutation_is_refused_before_it_is_one(node: Node, text: str, code: str, told: str) -> None:
    error = refused(node, text)
    assert (error.code, told in str(error)) == (code, True), error
    assert node.catalog.mutations.all(uuid_of(node, "checks")) == []


def test_what_keeps_its_value_is_taken(node: Node) -> None:
    node.engine.run("CREATE TABLE fits (k Int64, n Int16, s String) ENGINE = MergeTree ORDER BY k")
    for change in ("n = 7", "n = -7, s = 7", "n = CAST(k AS SMALLINT)", "s = CAST(k AS STRING)"):
        node.engine.run(f"ALTER TABLE fits UPDATE {change} WHERE s = '7' AND CAST(s AS INT) = 7 AND length(s) > 0")
    assert rows(node, 'SELECT "k" FROM fits') == []
    assert refused(node, 'SELECT "k"').code == "UNKNOWN_COLUMN"


def test_now_is_one_instant(node: Node) -> None:
    node.engine.run("CREATE TABLE times (k Int64, at DateTime, d Date) ENGINE = MergeTree ORDER BY k")
    text = "ALTER TABLE times UPDATE at = now(), d = current_date() WHERE at < now() -- old\n - INTERVAL 1 DAY"
    node.engine.run(text)
    (entry,) = node.catalog.mutations.all(uuid_of(node, "times"))
    fixed = {expression.partition("(")[0] for _, expression in entry.assignments}
    assert fixed == {"timestamp_micros", "to_date"}
    assert "now" not in entry.predicate
    assert entry.predicate.endswith("\n")
    assert "now()" in entry.command


def test_a_table_changes_while_it_is_read_and_written(node: Node) -> None:
    node.engine.run(
        "CREATE TABLE t (k Int64, n Int32, s String, old String) ENGINE = MergeTree PARTITION BY truncate(4, k) "
        "ORDER BY k"
    )
    for start in (0, 4, 8):
        values = ", ".join(f"({k}, {k}, 's{k}', 'o')" for k in range(start, start + 4))
        node.engine.run(f"INSERT INTO t VALUES {values}")
    stopping, seen = threading.Event(), []

    def read() -> None:
        while not stopping.wait(0.2):
            seen.append(rows(node, "SELECT count(*), sum(k) FROM t"))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        node.engine.run(
            "ALTER TABLE t ADD COLUMN x Int64 DEFAULT 40 + 2 AFTER k, RENAME COLUMN s TO note, MODIFY COLUMN n Int64, "
            "DROP COLUMN old"
        )
        # At once, before any part is rewritten.
        assert rows(node, "SELECT * FROM t WHERE k = 5") == [(5, 42, 5, "s5")]
        node.engine.run("INSERT INTO t VALUES (12, 1, 5000000000, 'new')")
        answer = node.engine.run("UPDATE t SET n = n + x, note = upper(note) WHERE k >= 5 AND k < 8")
        assert answer.message == "updated in default.t: 3 rows"
    finally:
        stopping.set()
        reader.join(SECONDS_MAX)
    assert rows(node, "SELECT n, note FROM t WHERE k IN (4, 5, 12) ORDER BY k") == [
        (4, "s4"),
        (47, "S5"),
        (5_000_000_000, "new"),
    ]
    assert {answer for one in seen for answer in one} <= {(12, 66), (13, 78)}
    node.engine.run("ALTER TABLE t DELETE WHERE k < 4 OR note = 'new'", settings={"mutations_sync": "1"})
    assert rows(node, "SELECT count(*), min(k), max(k) FROM t") == [(8, 4, 11)]
    states = {entry.state for entry in node.catalog.mutations.all(uuid_of(node, "t"))}
    assert states == {MutationState.DONE}
    assert rows(node, "SELECT count(*) FROM system.parts WHERE table = 't' AND active AND schema_version = 1") == [(0,)]
    told = rows(node, "SELECT is_done, parts_to_do FROM system.mutations WHERE table = 't'")
    assert told == [(True, 0)] * 2


def test_an_expression_that_fails_is_told_at_once_and_holds_up_nobody_once_killed(node: Node) -> None:
    node.engine.run("CREATE TABLE fails (k Int64, n Int32) ENGINE = MergeTree ORDER BY k")
    node.engine.run("INSERT INTO fails VALUES (1, 2147483647), (2, 1)")
    text = "ALTER TABLE fails UPDATE n = CAST(CAST(n AS BIGINT) + 1 AS INT) WHERE true SETTINGS mutations_sync = 1"
    error = refused(node, text)
    assert (error.code, error.kind) == ("MUTATION_FAILED", ErrorKind.CONFLICT)
    assert "CAST_OVERFLOW" in error.message
    entry = error.facts["mutation"]
    [(done, to_do, why)] = rows(
        node,
        f"SELECT parts_done, parts_to_do, latest_fail_reason FROM system.mutations WHERE mutation_id = '{entry}'",
    )
    assert (done, to_do, "CAST_OVERFLOW" in str(why)) == (0, 1, True)
    assert node.engine.run(f"KILL MUTATION '{entry}'").message.endswith("0 of 1 parts were done before and stay so")
    node.engine.run("ALTER TABLE fails UPDATE n = n - 1 WHERE true", settings={"mutations_sync": "1"})
    assert rows(node, "SELECT k, n FROM fails ORDER BY k") == [(1, 2147483646), (2, 0)]


def test_a_mutation_keeps_what_its_columns_promise(node: Node) -> None:
    node.engine.run("CREATE TABLE promises (k Int64, u UInt8, e Enum('a', 'b')) ENGINE = MergeTree ORDER BY k")
    node.engine.run("INSERT INTO promises VALUES (1, 254, 'a'), (2, 255, 'b')")
    text = "ALTER TABLE promises UPDATE u = CAST(u + 1 AS SMALLINT) WHERE true SETTINGS mutations_sync = 1"
    error = refused(node, text)
    assert (error.code, "column=u" in error.message, "256" in error.message) == ("MUTATION_FAILED", True, True)
    node.engine.run(f"KILL MUTATION '{error.facts['mutation']}'")
    assert refused(node, "ALTER TABLE promises UPDATE e = 'c' WHERE true").code == "BAD_MUTATION"
    # A wider promise: the type that stores it grows, in the background.
    waiting = {"mutations_sync": "1"}
    node.engine.run(
        "ALTER TABLE promises MODIFY COLUMN u UInt16, ADD COLUMN l Array(UInt8) DEFAULT [7]", settings=waiting
    )
    node.engine.run("ALTER TABLE promises UPDATE u = u + CAST(1 AS INT) WHERE k = 2", settings=waiting)
    node.engine.run("INSERT INTO promises (k, u) VALUES (3, 65535)")
    assert rows(node, "SELECT k, u, l FROM promises ORDER BY k") == [(1, 254, [7]), (2, 256, [7]), (3, 65535, [7])]
    assert rows(
        node, "SELECT count(*) FROM system.parts WHERE table = 'promises' AND active AND schema_version = 1"
    ) == [(0,)]


def test_a_change_of_promises_alone_rewrites_nothing(node: Node) -> None:
    node.engine.run("CREATE TABLE loose (k Int64, s VARCHAR(2)) ENGINE = MergeTree ORDER BY k")
    node.engine.run("INSERT INTO loose VALUES (1, 'ab')")
    before = rows(node, "SELECT name, file FROM system.parts WHERE table = 'loose' AND active")
    node.engine.run("ALTER TABLE loose MODIFY COLUMN s VARCHAR(5)", settings={"mutations_sync": "1"})
    node.engine.run("INSERT INTO loose VALUES (2, 'abcde')")
    assert (
        rows(node, "SELECT name, file FROM system.parts WHERE table = 'loose' AND active ORDER BY committed")[:1]
        == before
    )
    assert node.catalog.mutations.all(uuid_of(node, "loose")) == []


def test_killed_mutations_stay_killed(node: Node) -> None:
    node.engine.run("CREATE TABLE kills (k Int64, s String) ENGINE = MergeTree ORDER BY k")
    node.engine.run("INSERT INTO kills VALUES (1, 'a'), (2, 'b')")
    node.engine.run("SYSTEM STOP MUTATIONS kills")
    node.engine.run("ALTER TABLE kills DELETE WHERE k = 1")
    node.engine.run("ALTER TABLE kills RENAME COLUMN s TO t")
    assert rows(node, "SELECT k, t FROM kills ORDER BY k") == [(1, "a"), (2, "b")]
    assert len(rows(node, "KILL MUTATION WHERE table = 'kills' AND kind = 'delete'")) == 1
    node.engine.run("SYSTEM START MUTATIONS kills")
    node.engine.run("DELETE FROM kills WHERE t = 'b'")
    assert rows(node, "SELECT k, t FROM kills") == [(1, "a")]
    table = node.catalog.tables.get("default", "kills")
    assert isinstance(table, TableDef)
    states = [entry.state for entry in node.catalog.mutations.all(table.uuid)]
    assert states[0] is MutationState.KILLED
    assert len(states) == 2


def test_columns_that_are_computed_from_others_are_written_for_rows_that_are_there(node: Node) -> None:
    waiting = {"mutations_sync": "1"}
    node.engine.run("CREATE TABLE computed (k Int64, s String) ENGINE = MergeTree ORDER BY k")
    node.engine.run("INSERT INTO computed VALUES (1, 'a'), (2, 'bb')")
    added = (
        "ADD COLUMN n Int32 MATERIALIZED length(s), ADD COLUMN d Int64 DEFAULT n + k, ADD COLUMN x Int64 ALIAS d + n"
    )
    node.engine.run(f"ALTER TABLE computed {added}", settings=waiting)
    table = node.catalog.tables.get("default", "computed")
    assert isinstance(table, TableDef)
    assert {part.schema_version for part in node.catalog.parts.snapshot(table.uuid).parts} == {table.schema_version}
    assert rows(node, "SELECT *, x FROM computed ORDER BY k") == [(1, "a", 2, 3), (2, "bb", 4, 6)]
    node.engine.run("ALTER TABLE computed UPDATE s = concat(s, s) WHERE x > 3", settings=waiting)
    node.engine.run("ALTER TABLE computed DELETE WHERE x = 3", settings=waiting)
    assert rows(node, "SELECT s, n, d, x FROM computed ORDER BY k") == [("bbbb", 4, 4, 8)]
