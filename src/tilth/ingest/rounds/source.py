"""Task that reads the topic: it fetches its ranges, decodes each message once, and serves all views from that.

Covers: rows and refused messages of views that pick columns or have kernels, dead letters, rows for views that Spark
SQL computes, what is kept for the round, the counts of the ledger. Does not cover: decoding (messages/decode.py), what
is kept (keep.py), the Spark jobs (spark.py).
Always holds: which rows a task writes follows from its ranges alone; a message that a view refuses is refused with all
of its rows, and the other views get it as usual.

Tests: tests/integration/ingest/test_source_tasks.py.
"""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from tilth.base.clock import SystemClock
from tilth.ingest.batch import MessageBatch
from tilth.ingest.compiled import WITHOUT_KERNEL
from tilth.ingest.errors import KernelUnfitError
from tilth.ingest.kafka.fetch import Fetched
from tilth.ingest.messages.dead import dead_letter_rows
from tilth.ingest.messages.decode import Broken, Decoded, Decoder, Owners, broken, micros_of
from tilth.ingest.messages.json_blocks import LOADER
from tilth.ingest.rounds.keep import Keeper, Kept
from tilth.ingest.rounds.round import NewestRead, RoundFacts, RoundJob
from tilth.ingest.rounds.timed import Stopwatch, Timed
from tilth.ingest.rounds.write import HELD_BYTES_MAX, RoundPartWriter
from tilth.ingest.settings import ErrorMode
from tilth.ingest.views.kernels import UnfitError
from tilth.ingest.views.ops import ops_of
from tilth.ingest.views.plans import FusedPlan, Picked, SqlPlan, ViewPlan
from tilth.ingest.views.refusals import Refused, by_message, failed_checks, misfits, without
from tilth.model.offset import LedgerRange
from tilth.model.table import OP_COLUMN
from tilth.storage import TableLayout, arrow_schema

#: Dead letters that a task holds before it writes them.
HELD_BROKEN_MAX = 20_000


class SourceTask:
    """Reads the ranges of one task: iterate once, then call `facts`."""

    def __init__(self, job: RoundJob, split: int, *, attempt: int) -> None:
        self._job = job
        self._split = split
        self._attempt = attempt
        self._ranges = job.splits[split]
        self._is_inline = job.fetch_inline is not None
        loader = WITHOUT_KERNEL if self._is_inline else LOADER
        self._decoder = Decoder(job.schema, job.config, columns=job.columns, defaults=job.defaults, loader=loader)
        self._writer = RoundPartWriter(txn=job.txn, task=split, attempt=attempt)
        self._fused: list[_FusedView] = [_PickingView(plan, job.layouts[plan.target]) for plan in job.fused]
        self._fused += [_KernelView(plan, job.layouts[plan.target]) for plan in job.by_kernel]
        self._held_bytes = 0
        self._counts = {(each.topic, each.partition): _Counts() for each in self._ranges}
        self._dead: list[Broken] = []
        self._bytes = 0
        self._first_broken = ""
        self._refusing: dict[str, None] = {}
        self._fetched = Timed(SystemClock(), job.messages(split))
        self._decoding, self._writing = Stopwatch(SystemClock()), Stopwatch(SystemClock())

    @property
    def has_written(self) -> bool:
        """`True` once a file is there under one of its names."""
        return bool(self._writer.written)

    def run(self) -> RoundFacts:
        for _ in self._decoded():
            pass
        return self.facts()

    def keep(self) -> RoundFacts:
        """All of it, with the rows kept for the views that Spark SQL computes."""
        with Keeper(self._job, self._split, self._decoder.arrow_schema, attempt=self._attempt) as keeper:
            for fetched, decoded in self._decoded():
                keeper.keep(fetched.topic, fetched.partition, decoded, fetched.messages)
                for plan in self._job.computed:
                    self._check(plan, fetched, decoded)
        return self.facts()

    def stream(self, plan: SqlPlan) -> Iterator[pa.RecordBatch]:
        """All of it, and the rows for the one view that Spark SQL computes."""
        for fetched, decoded in self._decoded():
            refused = self._check(plan, fetched, decoded)
            rows, _ = without(decoded.rows.select(list(plan.needed)), decoded.owners, refused)
            if rows.num_rows:
                yield rows

    def facts(self) -> RoundFacts:
        """Return the counts of what was read and written."""
        return RoundFacts(
            ranges=tuple(
                self._counts[each.topic, each.partition].of(each.topic, each.partition, each.start, each.end)
                for each in self._ranges
            ),
            parts=tuple(self._writer.written),
            bytes=self._bytes,
            broken=self._first_broken,
            refusing=tuple(self._refusing),
            attempt=self._attempt,
            newest=tuple(
                NewestRead(topic=topic, partition=partition, sent_ms=counts.newest_ms)
                for (topic, partition), counts in self._counts.items()
                if counts.newest_ms
            ),
            fetch_seconds=self._fetched.seconds,
            decode_seconds=self._decoding.seconds,
            write_seconds=self._writing.seconds,
            view_seconds={
                view.plan.view: round(view.watch.seconds, 3) for view in self._fused if isinstance(view, _KernelView)
            },
        )

    def _decoded(self) -> Iterator[tuple[Fetched, Decoded]]:
        """Yield each batch of messages, decoded once; fused views and dead letters have it already."""
        # Decoding makes many small objects and no cycles: a search for cycles would be a tenth of the time. In a
        # server other threads make cycles meanwhile.
        if not self._is_inline:
            gc.disable()
        try:
            for fetched in self._fetched:
                with self._decoding.running():
                    decoded = self._decoder.decode(fetched.topic, fetched.partition, fetched.messages)
                    size = fetched.messages.values.size
                    self._count(fetched, decoded, size)
                    for view in self._fused:
                        with view.watch.running():
                            self._refuse(view.plan.view, view.add(decoded), fetched)
                self._flush_if_full(size)
                yield fetched, decoded
            self._flush()
        finally:
            if not self._is_inline:
                gc.enable()

    def _check(self, plan: SqlPlan, fetched: Fetched, decoded: Decoded) -> Refused:
        """Return the messages that the view's checks refuse, and record them."""
        refused = by_message(failed_checks(decoded.rows, plan.checks), decoded.owners)
        self._refuse(plan.view, refused, fetched)
        return refused

    def _count(self, fetched: Fetched, decoded: Decoded, size: int) -> None:
        counts = self._counts[fetched.topic, fetched.partition]
        counts.messages += decoded.messages
        counts.rows += decoded.rows.num_rows
        counts.newest_ms = max(counts.newest_ms, _sent_ms(fetched.messages))
        self._bytes += size
        if self._job.config.error_mode is not ErrorMode.STREAM:
            # In stream mode they are rows.
            counts.dead += len(decoded.broken)
            self._hold_dead_letters(decoded.broken)
        elif decoded.broken and not self._first_broken:
            self._first_broken = decoded.broken[0].text

    def _refuse(self, view: str, refused: Mapping[int, str], fetched: Fetched) -> None:
        if not refused:
            return
        self._counts[fetched.topic, fetched.partition].refused += len(refused)
        self._refusing[view] = None
        self._hold_dead_letters(
            [
                broken(fetched.topic, fetched.partition, fetched.messages, position, reason, view=view)
                for position, reason in refused.items()
            ]
        )

    def _hold_dead_letters(self, found: Sequence[Broken]) -> None:
        if found and not self._first_broken:
            self._first_broken = found[0].text
        if self._job.dead_letters is not None:
            self._dead.extend(found)

    def _flush_if_full(self, size: int) -> None:
        self._held_bytes += size
        held = max(self._held_bytes, sum(view.computed_bytes for view in self._fused))
        if held >= HELD_BYTES_MAX or len(self._dead) >= HELD_BROKEN_MAX:
            self._flush()

    def _flush(self) -> None:
        with self._writing.running():
            for view in self._fused:
                with view.watch.running():
                    view.flush(self._writer)
            self._held_bytes = 0
            write_dead_letters(self._job, self._writer, self._dead)
            self._dead.clear()


def write_refused(kept: Kept, split: int, *, attempt: int) -> RoundFacts:
    """Write the kept messages that computed views have refused to the dead-letter table."""
    job = kept.job
    writer = RoundPartWriter(txn=job.txn, task=job.task_of_dead + split, attempt=attempt)
    held: list[Broken] = []
    held_bytes = 0
    for each in kept.refused_messages(split):
        held.append(each)
        held_bytes += len(each.raw or b"")
        if len(held) >= HELD_BROKEN_MAX or held_bytes >= HELD_BYTES_MAX:
            write_dead_letters(job, writer, held)
            held, held_bytes = [], 0
    write_dead_letters(job, writer, held)
    return RoundFacts(parts=tuple(writer.written))


def write_dead_letters(job: RoundJob, writer: RoundPartWriter, found: Sequence[Broken]) -> None:
    """Write messages to the round's dead-letter table, where it has one."""
    if found and job.dead_letters is not None:
        layout = job.dead_letters.layout
        writer.write(job.dead_letters.table, layout, dead_letter_rows(found))


def _sent_ms(messages: MessageBatch) -> int:
    """Return the time of the last message; 0: there is none, or it has none."""
    micros = micros_of(messages.time(-1), 1000) if len(messages) else None
    return 0 if micros is None else micros // 1000


class _Counts:
    """Counts of one topic partition."""

    def __init__(self) -> None:
        self.messages = self.rows = self.dead = self.refused = 0
        #: Time of the last message; 0: none had a valid time.
        self.newest_ms = 0

    def of(self, topic: str, partition: int, start: int, end: int) -> LedgerRange:
        return LedgerRange(
            topic=topic,
            partition=partition,
            start=start,
            end=end,
            messages=self.messages,
            rows=self.rows,
            dead=self.dead,
            refused=self.refused,
        )


class _FusedView(ABC):
    """A view whose rows one task makes in the pass that decodes."""

    def __init__(self, plan: ViewPlan, layout: TableLayout) -> None:
        self.plan = plan
        #: Time to make, check and write its rows.
        self.watch = Stopwatch(SystemClock())
        self._layout = layout
        self._held: list[pa.Table] = []
        #: Bytes of the buffered rows, beside those that columns of messages have.
        self.computed_bytes = 0

    def add(self, decoded: Decoded) -> Refused:
        """Buffer the rows that fit the target; return the messages with rows that do not fit."""
        refused = by_message(failed_checks(decoded.rows, self.plan.checks), decoded.owners)
        rows, owners = self._made(*without(decoded.rows, decoded.owners, refused))
        unfit = by_message(misfits(self._layout, rows), owners)
        self._held.append(without(rows, owners, unfit)[0])
        return refused | unfit

    def flush(self, writer: RoundPartWriter) -> None:
        """Write what it holds; raises ViewFailedError."""
        if self._held:
            writer.write_view(self.plan, self._layout, pa.concat_tables(self._held))
        self._held.clear()
        self.computed_bytes = 0

    @abstractmethod
    def _made(self, rows: pa.RecordBatch, owners: Owners) -> tuple[pa.Table, Owners]:
        """Return rows of the target, and the message of each."""


class _PickingView(_FusedView):
    """A view that picks columns."""

    def __init__(self, plan: FusedPlan, layout: TableLayout) -> None:
        super().__init__(plan, layout)
        self._picked = plan
        self._types = arrow_schema(layout.schema, field_ids=False)

    def _made(self, rows: pa.RecordBatch, owners: Owners) -> tuple[pa.Table, Owners]:
        # Arrow searches for each name among all.
        by_name = dict(zip(rows.schema.names, rows.columns, strict=True))
        arrays = [self._column(by_name, rows.num_rows, each) for each in self._picked.columns]
        names = [each.target for each in self._picked.columns]
        if self._picked.op is not None:
            arrays.append(ops_of(pa.chunked_array([by_name[self._picked.op]])))
            names.append(OP_COLUMN)
        return pa.table(arrays, names=names), owners

    def _column(self, by_name: Mapping[str, pa.Array], rows: int, picked: Picked) -> pa.Array:
        if picked.source is None:
            return pa.repeat(pa.scalar(picked.constant, self._types.field(picked.target).type), rows)
        return by_name[picked.source]


class _KernelView(_FusedView):
    """A view that kernels compute."""

    def __init__(self, plan: SqlPlan, layout: TableLayout) -> None:
        super().__init__(plan, layout)
        assert plan.kernel is not None
        self._kernel = plan.kernel

    def _made(self, rows: pa.RecordBatch, owners: Owners) -> tuple[pa.Table, Owners]:
        try:
            made, positions = self._kernel.run(rows)
        except UnfitError as error:
            raise KernelUnfitError(view=self.plan.view, why=error) from error
        self.computed_bytes += made.nbytes
        if positions is None:
            return made, owners
        return made, positions if owners is None else owners[positions]
