"""Remains of a Kafka table that was dropped and is gone: the positions of its groups, and the offsets that it has read.

    there -> dropped (its subscriptions keep its offsets, its consumers are fenced) -> gone (its ledger is kept while
    a table is there that its rows went to) -> forgotten (ledger and subscriptions without a new owner are removed)

Covers: the pieces that dropped.py plans its batches from. Does not cover: who becomes the owner of a subscription
(tilth.ingest).
Always holds: as long as a table of rows can be read or brought back, the ledgers of all Kafka tables that wrote to it
are stored; so a Kafka table that is made anew goes on where its group stood, and VERIFY can prove that no offset went
in twice.

Tests: tests/unit/catalog/tables/test_tables.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.catalog.commit.load import load_offsets
from tilth.catalog.kv import KeyValue, Precondition, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack, span, text_span, unpack
from tilth.catalog.records.nouns import FormerKafkaTable
from tilth.catalog.records.small_commit import Plan, change, read_all, remove_range, unchanged
from tilth.catalog.rules import state
from tilth.catalog.rules.fold import released
from tilth.catalog.tables.names import Puts
from tilth.model.offset import Subscription
from tilth.model.table import KafkaDef

_log = Log("catalog")


def end_of_reading(view: ReadView, uuid: str) -> tuple[Puts, list[Precondition]]:
    """Return what a drop of a Kafka table writes beside: its subscriptions with its offsets, its consumers fenced.

    The preconditions pin the offsets: a round that commits at the same time is seen, or refused.
    """
    version = pack(Space.VERSION, uuid)
    preconditions = [unchanged(version, view.get(version))]
    puts: Puts = {}
    offsets, targets = load_offsets(view, uuid), _targets(view, uuid)
    for key, found in view.scan(*span(Space.SUBSCRIPTION)):
        subscription = codec.SUBSCRIPTIONS.decode(key, found.value)
        if subscription.kafka_table == uuid and subscription.released is None:
            preconditions.append(unchanged(key, found))
            puts[key] = codec.SUBSCRIPTIONS.encode(released(subscription, offsets, targets))
    for key, found in view.scan(*text_span(Space.LEASE, f"consumer/{uuid}/")):
        lease = codec.LEASES.decode(key, found.value)
        preconditions.append(unchanged(key, found))
        fenced = state.acquired(lease, name=lease.name, holder=state.NOBODY)
        puts[key] = codec.LEASES.encode(fenced)
    return puts, preconditions


def keep_ledger(kv: KeyValue, clock: Clock, kafka: KafkaDef) -> bool:
    """Keep the ledger of a dropped Kafka table if rows that it wrote still exist; and only then what its groups
    stood at. Can be called again after it broke off.
    """
    uuid = kafka.uuid
    key = pack(Space.FORMER, uuid)

    def plan(view: ReadView) -> Plan[bool]:
        alive = tuple(sorted(target for target in _targets(view, uuid) if _is_kept(view, target)))
        over = [
            key
            for key, each in _released_in(view)
            if each.kafka_table == uuid and not any(_is_kept(view, target) for target in each.targets)
        ]
        # Another Kafka table may adopt a subscription concurrently; and a removed table drops only those that it reads.
        pinned = [unchanged(each, view.get(each)) for each in (*over, *_existence(alive))]
        if not alive:
            return Plan(result=False, preconditions=pinned, deletes=over)
        record = FormerKafkaTable(database=kafka.database, name=kafka.name, targets=alive)
        return Plan(result=True, preconditions=pinned, puts={key: codec.FORMER.encode(record)}, deletes=over)

    return change(kv, clock, plan)


def forget_target(kv: KeyValue, clock: Clock, table: str) -> None:
    """Remove what is kept of Kafka tables for the sake of this table of rows alone. Can be called again."""
    _forget_subscriptions(kv, clock, table)
    for uuid in _former_with(kv, table):
        key = pack(Space.FORMER, uuid)

        def plan(view: ReadView, uuid: str = uuid, key: bytes = key) -> Plan[bool]:
            found = view.get(key)
            if found is None:
                return Plan(result=False)
            record = codec.FORMER.decode(key, found.value)
            left = tuple(target for target in record.targets if target != table and _is_kept(view, target))
            pinned = [unchanged(key, found)]
            if left:
                kept = codec.FORMER.encode(msgspec.structs.replace(record, targets=left))
                return Plan(result=False, preconditions=pinned, puts={key: kept})
            # The record goes last: as long as it exists, all of this is repeated.
            return Plan(result=True)

        if change(kv, clock, plan):
            entries = remove_range(kv, clock, Space.LEDGER, uuid)
            remove_range(kv, clock, Space.FORMER, uuid)
            _log.info("ledger_forgotten", cause_id=uuid, entries=entries)


def _former_with(kv: KeyValue, table: str) -> list[str]:
    with kv.view() as view:
        return [
            str(unpack(key, "s")[0])
            for key, found in view.scan(*span(Space.FORMER))
            if table in codec.FORMER.decode(key, found.value).targets
        ]


def _is_kept(view: ReadView, table: str) -> bool:
    """True if a table of rows exists, or can be brought back."""
    return any(view.get(key) is not None for key in _existence([table]))


def _existence(tables: Iterable[str]) -> list[bytes]:
    """Return the keys that show whether tables exist or can be brought back."""
    return [pack(space, table) for table in tables for space in (Space.RELATION, Space.DROPPED)]


def _forget_subscriptions(kv: KeyValue, clock: Clock, table: str) -> None:
    """Remove released subscriptions whose messages went to this table and to no other that exists."""

    def plan(view: ReadView) -> Plan[None]:
        over = [
            key
            for key, each in _released_in(view)
            if table in each.targets and not any(_is_kept(view, other) for other in each.targets if other != table)
        ]
        return Plan(result=None, preconditions=[unchanged(key, view.get(key)) for key in over], deletes=over)

    change(kv, clock, plan)


def _released_in(view: ReadView) -> Iterator[tuple[bytes, Subscription]]:
    for key, found in view.scan(*span(Space.SUBSCRIPTION)):
        subscription = codec.SUBSCRIPTIONS.decode(key, found.value)
        if subscription.released is not None:
            yield key, subscription


def _targets(view: ReadView, uuid: str) -> set[str]:
    return {target for entry in read_all(view, codec.LEDGER, Space.LEDGER, uuid) for target in entry.tables}
