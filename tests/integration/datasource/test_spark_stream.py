"""A stream of a table's changes in a user's Spark: each version exactly once, whatever maintenance does in between.

The oracle is the difference of two versions as `VERSION AS OF` reads them. Costs about 90 s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.served_world import ServedWorld

pytestmark = pytest.mark.integration
Rows = Counter[tuple[object, ...]]


class Applied:
    """What a program makes of a stream's batches: the rows by what happened to them, in their versions."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[object, ...]]] = {}

    def __call__(self, frame: DataFrame, batch: int) -> None:
        # Again after a restart: the same rows.
        rows = sorted((tuple(row) for row in frame.collect()), key=repr)
        assert self.batches.setdefault(batch, rows) == rows

    @property
    def rows(self) -> list[tuple[object, ...]]:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]

    def table(self, version: int) -> Rows:
        """The rows that a table has which was filled by this stream, up to a version."""
        found: Rows = Counter()
        for *row, change, of in self.rows:
            if isinstance(of, int) and of <= version:
                found[_key(row)] += 1 if change in ("insert", "update_after") else -1
        assert all(count >= 0 for count in found.values()), found
        return +found


@pytest.fixture
def run(user: SparkSession, tmp_path: Path) -> Callable[..., None]:
    """Reads all changes of a table that there are."""

    def once(table: str, applied: Applied, *, checkpoint: str = "c", **options: str) -> None:
        stream = user.readStream.format("tilth").options(**options).load(f"shop.{table}")
        writer = stream.writeStream.foreachBatch(applied).option("checkpointLocation", str(tmp_path / checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()

    return once


def _at(world: ServedWorld, table: str, version: int) -> Rows:
    return Counter(_key(row) for row in world.rows(f"SELECT * FROM {table} VERSION AS OF {version}"))


def _key(row: Sequence[object]) -> tuple[object, ...]:
    """The row with a NaN that is like another one."""
    return tuple("NaN" if cell != cell else cell for cell in row)  # only NaN is unlike itself


def _newest(world: ServedWorld, table: str) -> int:
    return world.catalog.parts.version(world.table(table).uuid).counter


def test_rows_that_came_are_read_once(world: ServedWorld, run: Callable[..., None]) -> None:
    world.run("CREATE TABLE i (k BIGINT, v STRING) ENGINE = MergeTree ORDER BY k")
    applied = Applied()
    for k in range(3):
        world.run(f"INSERT INTO i VALUES ({k}, 'a{k}')")
    run("i", applied, readerName="mine")
    assert sorted(applied.rows) == [(0, "a0"), (1, "a1"), (2, "a2")]
    [lease] = [each for each in world.catalog.readers.list() if each.name]
    assert (lease.name, lease.table) == ("mine", world.table("i").uuid)
    for k in range(3, 6):
        world.run(f"INSERT INTO i VALUES ({k}, 'a{k}')")
    run("i", applied, readerName="mine", maxVersionsPerTrigger="2")
    assert sorted(applied.rows) == [(k, f"a{k}") for k in range(6)]
    assert len(applied.batches) == 3
    run("i", applied, readerName="mine")
    assert len(applied.rows) == 6


def test_changes_are_the_difference_of_versions(world: ServedWorld, run: Callable[..., None]) -> None:
    world.run("CREATE TABLE c (k BIGINT, v STRING, n DOUBLE, p BIGINT) ENGINE = MergeTree ORDER BY k PARTITION BY p")
    applied = Applied()
    world.run("INSERT INTO c SELECT id, concat('v', id), id / 2, id % 2 FROM range(20)")
    first = _newest(world, "c")
    run("c", applied, changes="true")
    for text in (
        "INSERT INTO c SELECT id + 100, 'x', CAST('NaN' AS DOUBLE), id % 2 FROM range(6)",
        "DELETE FROM c WHERE k % 5 = 0",
        "UPDATE c SET v = 'new', n = -n WHERE k < 8",
        "UPDATE c SET v = 'new' WHERE k < 8",
        "INSERT INTO c SELECT id + 200, 'y', 0, 1 FROM range(3)",
        "ALTER TABLE c DROP PARTITION 0",
        "DELETE FROM c WHERE k >= 200",
    ):
        world.run(text)
    newest = _newest(world, "c")
    assert newest - first >= 6
    run("c", applied, changes="true")
    for version in range(first, newest + 1):
        assert applied.table(version) == _at(world, "c", version), version
    # The second UPDATE changes nothing: it sets what was there.
    words = Counter((row[-2], row[-1]) for row in applied.rows)
    assert (("update_after", first + 4) in words, words["update_after", first + 3] > 0) == (False, True)


def test_a_row_of_a_unique_key_is_a_delete_and_an_insert(world: ServedWorld, run: Callable[..., None]) -> None:
    world.run("CREATE TABLE u (k BIGINT, v STRING) ENGINE = MergeTree ORDER BY k UNIQUE KEY (k)")
    applied = Applied()
    for value in ("a", "b", "c"):
        world.run(f"INSERT INTO u VALUES (1, '{value}'), (2, 'same')")
    run("u", applied, changes="true", startingVersion="0")
    for version in range(1, 4):
        assert applied.table(version) == _at(world, "u", version)
    assert Counter(row[2] for row in applied.rows) == {"insert": 6, "delete": 4}


def test_what_a_stream_cannot_read_any_more_fails(world: ServedWorld, run: Callable[..., None]) -> None:
    world.run("CREATE TABLE g (k BIGINT) ENGINE = MergeTree ORDER BY k")
    applied = Applied()
    for k in range(3):
        world.run(f"INSERT INTO g VALUES ({k})")
    run("g", applied, startingVersion="1", hold_seconds="1")
    world.run("INSERT INTO g VALUES (9)")
    uuid = world.table("g").uuid
    for lease in world.catalog.readers.list():
        world.catalog.readers.close(lease)
    ts = world.catalog.history.time_of(uuid, 4)
    assert ts is not None
    world.catalog.history.trim(uuid, ts)
    with pytest.raises(StreamingQueryException, match=r"INVALID_SNAPSHOT.*\(invalid\).*new checkpoint"):
        run("g", applied, startingVersion="1")
    with pytest.raises(StreamingQueryException, match="UNKNOWN_VERSION"):
        run("g", Applied(), checkpoint="other", startingVersion="77")
    world.run("DROP TABLE g SYNC")
    world.run("CREATE TABLE g (k BIGINT) ENGINE = MergeTree ORDER BY k")
    with pytest.raises(StreamingQueryException, match=r"STREAM_TABLE_REPLACED|UNKNOWN_VERSION"):
        run("g", applied, startingVersion="1")
