"""A stream over a catalog and real files, without Spark: offsets, batches that are made again, what is refused."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from tests.sql_world import SqlWorld
from tilth.client.http import Connection
from tilth.datasource.attachment import Attachment
from tilth.datasource.errors import SaidError, SparkOptionError
from tilth.datasource.options import stream_options
from tilth.datasource.stream_reads import ChangesReader, Offset, stream_ddl
from tilth.model.change_feed import ChangeSet
from tilth.query.snapshots.pins import Pins
from tilth.storage import local_root

ALL = ReadAllAvailable()
PLAIN = StructType([StructField("a", LongType()), StructField("s", StringType())])
CHANGES = StructType([*PLAIN.fields, StructField("_change", StringType()), StructField("_version", LongType())])


class _Beside(Connection):
    """Calls the rooms of the world instead of a server."""

    def __init__(self, pins: Pins) -> None:
        super().__init__("http://beside")
        self._pins = pins

    # Any: the same arguments as those of the rooms.
    def pin(self, *given: Any, **named: Any) -> Any:
        return self._pins.pin(*given, **named)

    def unpin(self, lease_id: str) -> None:
        self._pins.close(lease_id)

    def open_feed(self, *given: Any, **named: Any) -> Any:
        return self._pins.feeds.open(*given, **named)

    def feed_changes(self, lease_id: str, start: int, end: int) -> ChangeSet:
        return self._pins.feeds.changes(lease_id, start, end)

    def renew_feed(self, lease_id: str, *, hold_ms: int, version: int | None = None) -> int:
        if version is not None:
            self._pins.feeds.advance(lease_id, version, hold_ms)
        return self._pins.feeds.newest(lease_id, hold_ms)


class World(SqlWorld):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.run("CREATE TABLE t (a Int64, s String) ENGINE = MergeTree ORDER BY a SETTINGS memory_buffer = 0")
        pins = Pins(self.clock, self.catalog, root=local_root(folder), server="s1")

        class Attached(Attachment):
            def connection(self, url: str | None = None, *, timeout_seconds: float | None = None) -> Connection:
                return _Beside(pins)

        self.attachment = Attached("nowhere")

    def insert(self, *values: int) -> None:
        self.run(f"INSERT INTO t VALUES {', '.join(f'({value}, {chr(39)}v{value}{chr(39)})' for value in values)}")

    def reader(self, schema: StructType = PLAIN, /, **options: str) -> ChangesReader:
        return ChangesReader(self.attachment, stream_options({"path": "t", **options}), schema)


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.insert(1, 2)
    made.insert(3)
    return made


def _rows(reader: ChangesReader, start: Offset, end: Offset) -> list[tuple[object, ...]]:
    """What executors read of a batch, sorted."""
    # Any: PySpark's serializers have no types.
    serializer: Any = CloudPickleSerializer()  # type: ignore[no-untyped-call]
    shipped = pickle.loads(serializer.dumps(reader))
    found: list[tuple[object, ...]] = []
    for partition in reader.partitions(_checkpointed(start), _checkpointed(end)):
        for batch in shipped.read(pickle.loads(serializer.dumps(partition))):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return sorted(found, key=repr)


def _checkpointed(offset: Mapping[str, Any]) -> Offset:
    read: Offset = json.loads(json.dumps(offset))
    return read


def test_the_table_and_then_its_changes(world: World) -> None:
    reader = world.reader()
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    assert _rows(reader, start, first) == [(1, "v1"), (2, "v2"), (3, "v3")]
    reader.commit(first)
    assert reader.latestOffset(first, ALL) == first
    assert reader.partitions(first, first) == []
    world.insert(4)
    second = reader.latestOffset(first, ALL)
    assert reader.reportLatestOffset() == second
    assert _rows(reader, first, second) == [(4, "v4")]
    # Made again after a restart of the driver, with other changes meanwhile.
    world.insert(5)
    again = world.reader()
    assert _rows(again, first, second) == [(4, "v4")]
    assert _rows(world.reader(), start, first) == [(1, "v1"), (2, "v2"), (3, "v3")]
    assert _rows(again, second, again.latestOffset(second, ALL)) == [(5, "v5")]
    reader.stop()
    again.stop()


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"startingVersion": "0"}, [(1, "v1"), (2, "v2"), (3, "v3")]),
        ({"startingVersion": "1"}, [(1, "v1"), (2, "v2"), (3, "v3")]),
        ({"startingVersion": "2"}, [(3, "v3")]),
        ({"startingVersion": "latest"}, []),
        ({"startingTimestamp": "1970-01-01"}, [(1, "v1"), (2, "v2"), (3, "v3")]),
    ],
)
def test_a_stream_starts_where_it_is_told(
    world: World, options: dict[str, str], rows: list[tuple[object, ...]]
) -> None:
    reader = world.reader(**options)
    start = reader.initialOffset()
    assert _rows(reader, start, reader.latestOffset(start, ALL)) == rows
    reader.stop()


def test_a_batch_has_so_many_versions_at_most(world: World) -> None:
    world.insert(4)
    reader = world.reader(startingVersion="1", maxVersionsPerTrigger="2")
    start = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    middle = reader.latestOffset(start, limit)
    end = reader.latestOffset(middle, limit)
    assert [row[0] for row in _rows(reader, start, middle)] == [1, 2, 3]
    assert [row[0] for row in _rows(reader, middle, end)] == [4]
    assert reader.latestOffset(start, ALL) == end
    reader.prepareForTriggerAvailableNow()
    world.insert(5)
    assert reader.latestOffset(end, limit) == end
    reader.stop()


def test_rows_say_what_happened_in_which_version(world: World) -> None:
    assert stream_ddl(world.attachment, stream_options({"path": "t", "changes": "true", "columns": "s"})) == (
        "`s` string, _change string, _version bigint"
    )
    reader = world.reader(CHANGES, changes="true", startingVersion="1")
    start = reader.initialOffset()
    assert _rows(reader, start, reader.latestOffset(start, ALL)) == [
        (1, "v1", "insert", 1),
        (2, "v2", "insert", 1),
        (3, "v3", "insert", 2),
    ]
    reader.stop()


def test_an_empty_table_has_no_batch(world: World) -> None:
    world.run("CREATE TABLE e (a Int64, s String) ENGINE = MergeTree ORDER BY a")
    reader = ChangesReader(world.attachment, stream_options({"path": "e"}), PLAIN)
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    reader.stop()


def test_a_table_that_was_altered_dropped_or_made_again_is_refused(world: World) -> None:
    reader = world.reader()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    other = world.reader(StructType([StructField("a", IntegerType())]))
    with pytest.raises(SaidError, match=r"\[COLUMNS_CHANGED\].*column=a frame=int32"):
        other.partitions(start, end)
    world.run("DROP TABLE t SYNC")
    with pytest.raises(SaidError, match=r"\[(TABLE_NOT_FOUND|READER_LOST)\]"):
        reader.latestOffset(end, ALL)
    world.run("CREATE TABLE t (a Int64, s String) ENGINE = MergeTree ORDER BY a")
    world.insert(9)
    with pytest.raises(SaidError, match=r"\[STREAM_TABLE_REPLACED\] \(invalid\).*new checkpoint"):
        world.reader().latestOffset({**start, "version": 1}, ALL)
    reader.stop()


def test_two_streams_of_one_name_do_not_go_on_both(world: World) -> None:
    first, second = world.reader(readerName="r"), world.reader(readerName="r")
    start = first.initialOffset()
    assert second.initialOffset() == start
    with pytest.raises(SaidError, match=r"\[READER_LOST\] \(fenced\).*what to do: give each stream a name"):
        first.latestOffset(start, ALL)
    assert second.latestOffset(start, ALL)["version"] == 2
    assert [lease.name for lease in world.catalog.readers.list()] == ["r"]
    first.stop()
    second.stop()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingVersion": "1", "startingTimestamp": "2026-01-01"}, "not both"),
        ({"startingVersion": "soon"}, "whole number"),
        ({"changes": "yes"}, "true or false"),
        ({"maxVersionsPerTrigger": "0"}, "a version at least"),
        ({"version": "1"}, "option=version"),
    ],
)
def test_options_that_cannot_be_meant(options: dict[str, str], said: str) -> None:
    with pytest.raises(SparkOptionError, match=said):
        stream_options({"path": "t", **options})


def test_a_column_with_the_name_of_a_change_is_refused(world: World) -> None:
    world.run("CREATE TABLE c (a Int64, _version Int64) ENGINE = MergeTree ORDER BY a")
    assert "_version" in stream_ddl(world.attachment, stream_options({"path": "c"}))
    with pytest.raises(SparkOptionError, match="column=_version"):
        stream_ddl(world.attachment, stream_options({"path": "c", "changes": "true"}))
