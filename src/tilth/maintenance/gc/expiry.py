"""Step 2 of collecting: a partition whose last row has expired is dropped as a whole, by a range.

Covers: when which partition expires, and the transaction that hides it. Does not cover: the verdict (policy.py).
Always holds: what is hidden is what was judged; a part that came meanwhile, or a TTL that was changed, refuses the
commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilth.base.errors import FencedError, InvalidInputError, TilthError
from tilth.base.logs import Log
from tilth.catalog import ExpirePartition, visibility
from tilth.maintenance.gc.policy import judge_expiry
from tilth.maintenance.gc.round import GcTable, Round
from tilth.maintenance.state import NEVER_MS
from tilth.maintenance.table.ttl import TableTtl, partition_end, ttl_of
from tilth.model.part import Entry, Part
from tilth.model.table import TableDef
from tilth.model.ttl import ends_ms

_log = Log("maintenance")


class ExpiryPhase:
    """Phase that drops expired partitions of one table. Lives on the op's thread; `known_ms` may be called on any."""

    def __init__(self, table: GcTable) -> None:
        self._table = table
        self._definition: TableDef | None = None
        self._ttl: TableTtl | None = None
        #: Expiry time of each partition that was checked; NEVER_MS if it is not known.
        self._ends_ms: dict[str, int] = {}

    def known_ms(self, partition: str) -> int | None:
        """Return when the partition expires; None: it has to be read. NEVER_MS without TTL."""
        if self._table.watch.definition.ttl is None:
            return NEVER_MS
        return self._ends_ms.get(partition)

    def forget(self) -> None:
        """Read all partitions again."""
        self._ends_ms = {}
        self._definition = None

    def judge(self, done: Round, partition: str, entries: Sequence[Entry], now_ms: int) -> None:
        """Drop the partition if it has expired. Its entries end with that, so that a later round collects them."""
        ttl = self._known_ttl(done)
        if ttl is None:
            return
        parts = visibility.visible(entries)
        end = partition_end(ttl, parts, settings=done.settings)
        self._ends_ms[partition] = NEVER_MS if end.last is None else ends_ms(ttl.ttl, end.last, ttl.column.type)
        verdict = judge_expiry(partition, end, ttl, now_ms=now_ms)
        if not verdict.goes:
            return
        try:
            self._drop(partition, parts, ttl, verdict.reason)
        except FencedError:
            raise
        except TilthError as error:
            # Most often a part came meanwhile: the partition is read again soon.
            done.failures.append(error)
            return
        done.expired += 1
        self._ends_ms.pop(partition, None)

    def _known_ttl(self, done: Round) -> TableTtl | None:
        """The table's TTL, read once for each definition."""
        definition = self._table.watch.definition
        if definition is not self._definition:
            self._definition, self._ttl = definition, None
            try:
                self._ttl = ttl_of(definition)
            except InvalidInputError as error:
                done.failures.append(error)
        return self._ttl

    def _drop(self, partition: str, parts: Sequence[Part], ttl: TableTtl, reason: str) -> None:
        table = self._table
        update = ExpirePartition(
            table=table.uuid,
            partition=partition,
            parts=tuple(part.name for part in parts),
            ttl=ttl.text,
            reason=f"TTL {ttl.text}: {reason}",
        )
        txn = table.commit("ttl", "expire", [update])
        rows = sum(part.rows for part in parts)
        _log.info("partition_expired", cause_id=str(txn), table=table.watch.name, partition=partition, rows=rows)
