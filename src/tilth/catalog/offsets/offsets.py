"""Kafka positions, subscriptions, the ledger and gaps, as they were committed. They change by transactions only
(rules/updates.py), but for old entries of the ledger, many of which are folded into one (ledger.py), and for
the subscriptions of a Kafka table that is dropped (tables/dropped.py).

Tests: tests/unit/ingest/offsets/test_reset.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.base.clock import Clock
from tilth.catalog.commit.load import load_offsets
from tilth.catalog.kv import KeyValue, Precondition, ReadView, Versioned
from tilth.catalog.offsets.ledger import fold_entries, foldable
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack, span, unpack
from tilth.catalog.records.nouns import FormerKafkaTable
from tilth.catalog.records.small_commit import Plan, change, read, read_all, unchanged
from tilth.model.offset import IngestGap, LedgerEntry, StoredOffset, Subscription, TopicPartition

#: Entries that one commit folds.
FOLD_BATCH = 2_000


class Offsets:
    """`catalog.offsets`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def of(self, kafka_table: str) -> dict[TopicPartition, int]:
        """The next offset to read of each topic partition; none where nothing was committed."""
        return {position: stored.offset for position, stored in self.stored(kafka_table).items()}

    def stored(self, kafka_table: str) -> dict[TopicPartition, StoredOffset]:
        """Return what `of` does, with topic ids and leader epochs."""
        return load_offsets(self._kv, kafka_table)

    def subscription(self, cluster: str, topic_id: str, group: str) -> Subscription | None:
        """Return the subscription of a group to a topic; None: no Kafka table has read the topic for the group."""
        return read(self._kv, pack(Space.SUBSCRIPTION, cluster, topic_id, group), codec.SUBSCRIPTIONS)

    def subscriptions(self) -> list[Subscription]:
        return list(read_all(self._kv, codec.SUBSCRIPTIONS, Space.SUBSCRIPTION))

    def ledger(self, kafka_table: str) -> Iterator[LedgerEntry]:
        """All committed rounds, in the order of their transactions; old ones may be folded into one."""
        return read_all(self._kv, codec.LEDGER, Space.LEDGER, kafka_table)

    def ledgers(self) -> list[str]:
        """Return the uuids of all Kafka tables that have a ledger, dropped ones and those that are gone among them."""
        found: list[str] = []
        start, end = span(Space.LEDGER)
        while entry := next(iter(self._kv.scan(start, end, limit=1)), None):
            uuid = str(unpack(entry[0], "si")[0])
            found.append(uuid)
            start = span(Space.LEDGER, uuid)[1]
        return found

    def former(self) -> dict[str, FormerKafkaTable]:
        """Kafka tables that are gone and whose ledgers are kept, by uuid."""
        start, end = span(Space.FORMER)
        return {
            str(unpack(key, "s")[0]): codec.FORMER.decode(key, found.value) for key, found in self._kv.scan(start, end)
        }

    def fold_ledger(self, kafka_table: str, *, before_ts: int, settled_ts: int, kept_max: int) -> int:
        """Fold many old entries into few, see `foldable`; return how many went. Readers of the ledger see it
        before or after, and both have the same sums.
        """
        start, end = span(Space.LEDGER, kafka_table)

        def plan(view: ReadView) -> Plan[int]:
            found: dict[int, Versioned] = {}
            entries: list[LedgerEntry] = []
            for key, value in view.scan(start, end):
                entry = codec.LEDGER.decode(key, value.value)
                found[entry.txn] = value
                entries.append(entry)
            targets = {table for entry in entries for table in entry.tables}
            groups = foldable(
                entries,
                before_ts=before_ts,
                settled_ts=settled_ts,
                kept_max=kept_max,
                limit=FOLD_BATCH,
                borders={_emptied_ts(view, table) for table in targets},
            )
            preconditions: list[Precondition] = []
            puts: dict[bytes, bytes] = {}
            deletes: list[bytes] = []
            for group in groups:
                keys = [pack(Space.LEDGER, kafka_table, entry.txn) for entry in group]
                preconditions += [unchanged(key, found[entry.txn]) for key, entry in zip(keys, group, strict=True)]
                puts[keys[-1]] = codec.LEDGER.encode(fold_entries(group))
                deletes += keys[:-1]
            return Plan(result=len(deletes), preconditions=preconditions, puts=puts, deletes=deletes)

        gone = 0
        while batch := change(self._kv, self._clock, plan):
            gone += batch
        return gone

    def gaps(self, kafka_table: str | None = None) -> list[IngestGap]:
        """Open and resolved ones, by table, topic, partition and offset."""
        fields = () if kafka_table is None else (kafka_table,)
        return list(read_all(self._kv, codec.GAPS, Space.GAP, *fields))


def _emptied_ts(view: ReadView, table: str) -> int:
    version = read(view, pack(Space.VERSION, table), codec.VERSIONS)
    return 0 if version is None else version.emptied_ts
