"""Writers as Spark pickles them between its processes, without Spark: under a second."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StructField, StructType

from tests.codes import WithCode
from tests.outside_world import OutsideWorld
from tests.unit.datasource.test_commits import Calls
from tilth.base.errors import TilthError
from tilth.datasource import stream_writes, writes
from tilth.datasource.attachment import Attachment, new_attachment
from tilth.datasource.errors import SaidError
from tilth.datasource.frame_writes import write_frame
from tilth.datasource.stream_writes import StreamTableWriter, TaskStreamWriter
from tilth.datasource.task_files import TaskFacts
from tilth.datasource.write_options import WriteOptions
from tilth.datasource.writes import FilesMessage, TableWriter, table_writer

SCHEMA = StructType([StructField("a", LongType())])


class Served(Calls):
    """Calls as a connection that is closed."""

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *given: object) -> None:
        return


@pytest.fixture
def world(tmp_path: Path) -> OutsideWorld:
    return OutsideWorld(tmp_path, table="(a BIGINT NOT NULL) ENGINE = MergeTree ORDER BY a")


@pytest.fixture
def attachment(world: OutsideWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attachment]:
    made = new_attachment()
    made.add_server("http://h:1", "")
    monkeypatch.setattr(Attachment, "connection", lambda self, url=None: Served(world))
    yield made
    made.remove()


def pickled(thing: object) -> bytes:
    """As Spark does it."""
    packed: bytes = cloudpickle.dumps(thing)  # type: ignore[no-untyped-call]  # PySpark has no types for it
    return packed


def opened(packed: bytes) -> Any:
    return cloudpickle.loads(packed)


def options(**given: Any) -> WriteOptions:
    return WriteOptions(database="default", table="t", tasks=8, **given)


def message(world: OutsideWorld, task: Any, *numbers: int, number: int = 0, query: str = "") -> FilesMessage:
    """What a task sends back."""
    facts = world.write(task.opened, [{"a": each} for each in numbers], task=number)
    return FilesMessage(msgspec.msgpack.encode(facts), query)


def test_the_process_that_commits_gets_the_writer_of_the_tasks(world: OutsideWorld, attachment: Attachment) -> None:
    sent = pickled(table_writer(attachment, options(), SCHEMA))
    in_task, in_commit = opened(sent), opened(pickled(opened(sent)))
    assert (type(in_task), type(in_commit)) == (TableWriter, TableWriter)
    found = [message(world, in_task._sent.task, 1, 2), None, message(world, in_task._sent.task, 3, number=2)]
    in_commit.commit([opened(pickled(each)) for each in found])
    assert world.values() == [1, 2, 3]
    assert attachment.writes() == []
    # Spark reports a failed commit by an abort: the write is held no more.
    in_commit.abort(found)
    assert world.values() == [1, 2, 3]


def test_an_abort_ends_the_write(world: OutsideWorld, attachment: Attachment) -> None:
    writer = table_writer(attachment, options(), SCHEMA)
    writer.abort([None, None])
    assert (attachment.writes(), world.engine.outside_writes._all_open()) == ([], [])
    with pytest.raises(SaidError, match=r"\[WRITE_UNKNOWN\]"):
        writer.commit([])


def test_a_label_that_is_taken_begins_nothing(world: OutsideWorld, attachment: Attachment) -> None:
    first = table_writer(attachment, options(label="x"), SCHEMA)
    first.commit([message(world, first._sent.task, 1)])
    again = table_writer(attachment, options(label="x"), SCHEMA)
    assert (again._sent.task.opened.id, attachment.writes()) == ("", [])
    empty = FilesMessage(msgspec.msgpack.encode(TaskFacts(txn=0, task=0, attempt=0, parts=())))
    again.commit([empty])
    again.abort([])
    assert world.values() == [1]


def test_a_batch_begins_when_its_writer_is_sent(
    world: OutsideWorld, attachment: Attachment, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[int] = []

    def begin(*given: Any) -> Any:
        begun.append(1)
        return writes.begun_write(*given)

    monkeypatch.setattr(stream_writes, "begun_write", begin)
    planned = StreamTableWriter(attachment, options(), SCHEMA)
    sent = [pickled(planned) for _ in range(2)]
    in_task = opened(sent[1])
    assert (type(in_task), len(begun)) == (TaskStreamWriter, 1)
    # Another process commits, with a writer of its own that begins nothing.
    committing = StreamTableWriter(attachment, options(), SCHEMA)
    found = [message(world, in_task._task, 1, query="q"), message(world, in_task._task, number=1, query="q")]
    committing.commit([*found, None], 7)
    assert (len(begun), world.values()) == (1, [1])
    [record] = world.catalog.streams.of(in_task._task.opened.table.uuid)
    assert (record.stream, record.query, record.batch, record.rows) == ("q", "q", 7, 1)
    committing.commit([], 8)
    committing.commit([None], 8)
    assert len(world.catalog.streams.of(in_task._task.opened.table.uuid)) == 1


def test_a_batch_that_fails_is_aborted_by_its_messages(world: OutsideWorld, attachment: Attachment) -> None:
    planned = StreamTableWriter(attachment, options(), SCHEMA)
    in_task = opened(pickled(planned))
    committing = StreamTableWriter(attachment, options(), SCHEMA)
    committing.abort([None], 0)
    assert len(world.engine.outside_writes._all_open()) == 1
    committing.abort([None, message(world, in_task._task, 1, query="q")], 0)
    assert (attachment.writes(), world.engine.outside_writes._all_open()) == ([], [])


def test_what_refuses_a_write_names_its_code(world: OutsideWorld, attachment: Attachment) -> None:
    world.run("DROP TABLE t")
    with pytest.raises(SaidError, match=r"\[TABLE_NOT_FOUND\]"):
        pickled(StreamTableWriter(attachment, options(), SCHEMA))


def test_modes_that_there_are_not() -> None:
    frame: Any = None
    for mode, partitions in (("ignore", ()), ("append", ("x",))):
        with pytest.raises(TilthError, check=WithCode("BAD_SPARK_OPTION")):
            write_frame(frame, "t", label="", mode=mode, partitions=partitions, tasks=1, url=None)
