"""INSERT of a body that is too large for the server's memory: it passes through, and Spark's tasks read it.

Covers: storing the body and finding its ranges, the task, labels and limits. Does not cover: receiving the body
(server/bodies.py), reading its rows (spark.py), the transaction of the rows (inserts/commit.py).
Always holds: of the body the server holds a block; no row is read here. The body is a file of a transaction of its own,
which commits nothing: whatever happens, the file is found by that transaction's id and removed, by the cleaner where
the server was killed. The rows are committed by a second transaction, as those of every INSERT.

Tests: tests/integration/sql/test_large_bodies.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import msgspec

from tilth.base.cancel import raise_if_cancelled
from tilth.base.logs import Log
from tilth.base.threads import Completion
from tilth.catalog import TxnHandle
from tilth.control.context.names import table_of
from tilth.control.context.services import Call, Services
from tilth.control.context.warehouse_choice import warehouse_of_write
from tilth.control.slots import Queue
from tilth.formats import Format, RowOptions
from tilth.grammar.statements import Name
from tilth.model.part import DataFile, WrittenPart
from tilth.model.table import TableDef, full_name
from tilth.query.results.answer import Outcome
from tilth.query.snapshots.protocol import BodyRange, BodyTask, InsertResult
from tilth.statements.inserts.arrow_streams import too_large
from tilth.statements.inserts.bodies.arrow_ranges import ArrowRanges
from tilth.statements.inserts.bodies.ranges import BLOCK_BYTES, Ranges, TextRanges
from tilth.statements.inserts.commit import commit_insert
from tilth.statements.inserts.insert import done_once, earlier_answer, inserted, wait_for_merges
from tilth.statements.inserts.rows import target_columns, target_of
from tilth.statements.inserts.spark_tasks import run_insert, tasks_max_of, writing_of
from tilth.storage import Folder, data_folder, make_folder, new_whole_file, output_of, scratch_name

_LIMITS = "send it in several INSERTs, or raise max_insert_bytes or the node's setting insert.body-max"

_log = Log("sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeBody:
    """An INSERT whose body is still coming in."""

    name: Name
    #: The columns that the statement names; none: all of them, or those that the body names.
    columns: tuple[str, ...] = ()
    #: One whose bodies can be read in pieces.
    format: Format
    #: The body, unpacked, in pieces of any size; raises why it does not come.
    pieces: Iterator[bytes]
    bytes_max: int
    #: Maximum size of its rows in memory; 0: no limit.
    rows_bytes_max: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A body in its file."""

    folder: Folder
    file: DataFile
    ranges: tuple[BodyRange, ...]
    #: Columns as the body or the statement names them.
    columns: tuple[str, ...]


def is_cut(form: Format) -> bool:
    """Return whether bodies of the format can be read in pieces."""
    return form.is_arrow or form.cutter is not None


def insert_body(services: Services, call: Call, body: LargeBody) -> Outcome:
    """Store the body, and then its rows. The caller has a slot of INSERTs, which is given back for one of changes."""
    table = table_of(services, call, body.name, what="INSERT")
    earlier = earlier_answer(services, table, call.settings.insertion_label)
    if earlier is not None:
        return earlier
    target_columns(target_of(table), body.columns)
    services.memory.check()
    wait_for_merges(services, call, services.catalog.throttle.delay(table))
    with _stored(services, call, table, body) as stored:
        services.running.move(call.query_id, Queue.CHANGE)

        def act(table: TableDef, names: Sequence[str], _: Completion[Outcome] | None) -> Outcome:
            target_columns(target_of(table), names)
            wait_for_merges(services, call, services.catalog.throttle.delay(table))
            return _written(services, call, table, body, replace(stored, columns=tuple(names)))

        return done_once(services, call, table, stored.columns, act)


@contextmanager
def _stored(services: Services, call: Call, table: TableDef, body: LargeBody) -> Iterator[_Stored]:
    """Write the body to a file that is there inside of the block."""
    transactions = services.catalog.transactions
    outputs = [output_of(table, services.root, tasks=1, quorum=call.settings.insert_quorum)]
    folder = data_folder(services.root, table.uuid)
    with transactions.open(f"body of insert {call.query_id}", outputs=outputs) as txn:
        make_folder(folder, fsync=False)
        started = services.clock.monotonic()
        file, ranges = _write(txn, folder, body, call)
        seconds = services.clock.monotonic() - started
        found = ranges.end()
        columns = body.columns
        if isinstance(ranges, ArrowRanges):
            assert ranges.schema is not None
            columns = tuple(ranges.schema.names)
        services.insert_batches.count_streamed(file.size)
        _log.info(
            "body_stored",
            cause_id=call.query_id,
            table=full_name(table),
            bytes=file.size,
            ranges=len(found),
            seconds=round(seconds, 3),
        )
        yield _Stored(folder=folder, file=file, ranges=tuple(found), columns=columns)


def _write(txn: TxnHandle, folder: Folder, body: LargeBody, call: Call) -> tuple[DataFile, Ranges]:
    """Write the body block by block. Raises what its pieces raise, InvalidInputError (INSERT_TOO_LARGE) and the
    errors of its ranges.
    """
    ranges = _ranges_of(body.format, call)
    with new_whole_file(folder, scratch_name(txn=txn.id, task=0, attempt=0, n=0), fsync=False) as file:
        size = 0
        for block in _blocks(body.pieces):
            raise_if_cancelled()
            size += len(block)
            if size > body.bytes_max:
                raise too_large(size, body.bytes_max, hint=_LIMITS)
            ranges.add(block)
            file.write(block)
    return file.written, ranges


def _ranges_of(form: Format, call: Call) -> Ranges:
    if form.is_arrow:
        return ArrowRanges()
    assert form.cutter is not None
    options = RowOptions(csv_delimiter=call.settings.csv_delimiter, skip_unknown=call.settings.skip_unknown)
    return TextRanges(form.cutter(options), has_names=form.has_names)


def _blocks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the same bytes in blocks of one size, the last one smaller."""
    held = bytearray()
    for piece in pieces:
        view = memoryview(piece)
        while len(view):
            taken = BLOCK_BYTES - len(held)
            held += view[:taken]
            view = view[taken:]
            if len(held) == BLOCK_BYTES:
                yield bytes(held)
                held.clear()
    if held:
        yield bytes(held)


def _written(services: Services, call: Call, table: TableDef, body: LargeBody, stored: _Stored) -> Outcome:
    """Let tasks read the stored body and write its rows, and commit them."""
    settings = call.settings
    tasks_max = tasks_max_of(services, call, warehouse_of_write(call, table))

    def write(txn: TxnHandle) -> Sequence[WrittenPart]:
        task = BodyTask(
            target=table,
            root=services.root.of(table.uuid),
            folder=stored.folder,
            file=stored.file,
            ranges=stored.ranges,
            format=body.format.name,
            columns=stored.columns,
            csv_delimiter=settings.csv_delimiter,
            skip_unknown=settings.skip_unknown,
            zone=_zone_of(call),
            now_us=services.clock.now_ms() * 1000,
            txn=txn.id,
            tasks_max=tasks_max,
            quorum=settings.insert_quorum,
            rows_bytes_max=body.rows_bytes_max,
        )
        answer = run_insert(services, call, table, task, txn=txn, input_bytes=stored.file.size)
        return msgspec.msgpack.decode(answer, type=InsertResult).parts

    return inserted(table, commit_insert(services, writing_of(call, table, tasks=tasks_max), write))


def _zone_of(call: Call) -> str:
    """Raises BadSettingError for an unknown zone."""
    assert call.zone is not None
    return call.zone_name
