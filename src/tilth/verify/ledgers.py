"""Checks of ledgers: that ranges follow each other, that nothing is missing, and that no offset came twice.

Covers: the ledger of one Kafka table, the ledgers of all that have fed a table. Does not cover: where ledgers of
different tables overlap (twice.py).
Always holds: reads only. See also: docs/policies/consumers.md#ledger.

Tests: tests/unit/ingest/test_ingest_values.py, tests/unit/catalog/offsets/test_ledger.py,
tests/integration/ingest/test_groups_and_logs.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tilth.catalog import Catalog
from tilth.ingest import GONE, MOVED, read_config
from tilth.model.offset import FOLDED, REPLAYED, LedgerEntry, TopicPartition
from tilth.model.table import KafkaDef, TableDef, full_name
from tilth.verify.report import NAMED_MAX, TRIES_MAX, CheckResult
from tilth.verify.twice import read_twice


def check_ledger(catalog: Catalog, kafka: KafkaDef) -> Iterator[CheckResult]:
    stored, entries = _ledger_of(catalog, kafka)
    reached, wrong = follow_ledger(entries)
    rounds = [each for each in entries if each.consumer != REPLAYED]
    messages = sum(each.messages for entry in rounds for each in entry.ranges)
    dead, refused = (sum(getattr(each, name) for e in rounds for each in e.ranges) for name in ("dead", "refused"))
    yield CheckResult(
        subject=full_name(kafka),
        check="the ledger's ranges follow each other",
        is_ok=not wrong,
        detail="; ".join(wrong[:NAMED_MAX])
        or f"{len(rounds)} entries, {messages} messages, {dead} not decoded, {refused} refused by views",
    )
    yield from _check_dead_letters(catalog, kafka, entries)
    for partition, end in sorted(reached.items()):
        yield CheckResult(
            subject=f"{full_name(kafka)} {partition.topic}/{partition.partition}",
            check="the ledger ends at the stored offset",
            is_ok=stored.get(partition) == end,
            detail=f"ledger {end}, stored {stored.get(partition, 'none')}",
        )
    open_gaps = [gap for gap in catalog.offsets.gaps(kafka.uuid) if not gap.resolution]
    yield CheckResult(
        subject=full_name(kafka),
        check="no messages are missing",
        is_ok=not open_gaps,
        detail="; ".join(f"{g.topic}/{g.partition} from {g.start}: {g.reason}" for g in open_gaps) or "no open gap",
    )


def follow_ledger(entries: Iterable[LedgerEntry]) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return the offsets that the ledger's ranges lead to, and each break in their sequence. Pure."""
    reached: dict[TopicPartition, int] = {}
    wrong: list[str] = []
    for entry in entries:
        if entry.consumer == REPLAYED:
            # Its messages had been read before, and are counted there.
            continue
        for each in entry.ranges:
            partition = TopicPartition(each.topic, each.partition)
            if entry.consumer == MOVED and each.end == GONE:
                reached.pop(partition, None)
                continue
            expected = reached.get(partition, each.start)
            if each.start != expected:
                what = "missing" if each.start > expected else "twice"
                wrong.append(f"{each.topic}/{each.partition}: {expected} to {each.start} {what}, at txn {entry.txn}")
            if entry.consumer != MOVED and each.end < each.start:
                wrong.append(f"{each.topic}/{each.partition}: range {each.start} to {each.end}, at txn {entry.txn}")
            reached[partition] = each.end
    return reached, wrong


def _check_dead_letters(catalog: Catalog, kafka: KafkaDef, entries: Sequence[LedgerEntry]) -> Iterator[CheckResult]:
    table = catalog.tables.find(kafka.database, read_config(kafka).dead_letter_table)
    if not isinstance(table, TableDef) or catalog.tables.views_into(table.uuid):
        return
    wrong = []
    for entry in entries:
        recorded = sum(each.dead + each.refused for each in entry.ranges)
        stored = entry.stored.get(table.uuid, 0)
        # With kafka_skip_broken_messages a round drops its own; folded rounds may be some of either kind.
        if stored > recorded or (0 < stored < recorded and entry.consumer != FOLDED):
            wrong.append(f"{recorded} recorded, {stored} stored, at txn {entry.txn}")
    stored = sum(entry.stored.get(table.uuid, 0) for entry in entries)
    yield CheckResult(
        subject=full_name(kafka),
        check="the dead letters of the ledger are stored",
        is_ok=not wrong,
        detail="; ".join(wrong[:NAMED_MAX]) or f"{stored} in {full_name(table)}",
    )
    replays = [each for each in entries if each.consumer == REPLAYED and table.uuid in each.tables]
    if replays:
        # Read after the ledger: what the entries name had been removed by then.
        removed = catalog.parts.version(table.uuid).removed_rows
        letters = sum(each.messages for entry in replays for each in entry.ranges)
        yield CheckResult(
            subject=full_name(kafka),
            check="the replayed dead letters were removed",
            is_ok=letters <= removed,
            detail=f"replayed {letters}, removed from {full_name(table)} {removed}",
        )


def _ledger_of(catalog: Catalog, kafka: KafkaDef) -> tuple[dict[TopicPartition, int], list[LedgerEntry]]:
    """Stored offsets and ledger as of one commit; rounds that commit meanwhile are left out."""
    version = catalog.parts.version(kafka.uuid)
    stored = catalog.offsets.of(kafka.uuid)
    for _ in range(TRIES_MAX):
        again = catalog.parts.version(kafka.uuid)
        if again.counter == version.counter:
            break
        version, stored = again, catalog.offsets.of(kafka.uuid)
    # The order is that of commits, not of transactions: a round that began earlier may have been committed later.
    entries = [each for each in catalog.offsets.ledger(kafka.uuid) if each.commit_ts <= version.last_commit_ts]
    return stored, sorted(entries, key=lambda each: each.commit_ts)


def check_twice(catalog: Catalog, table: TableDef, ledgers: Mapping[str, Sequence[LedgerEntry]]) -> CheckResult:
    found = read_twice(ledgers, table.uuid, emptied_ts=catalog.parts.version(table.uuid).emptied_ts)
    more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
    return CheckResult(
        subject=full_name(table),
        check="no offset was read into it by two Kafka tables",
        is_ok=not found,
        detail="; ".join(map(str, found[:NAMED_MAX])) + more or f"fed by {', '.join(sorted(ledgers)) or 'none'}",
    )


def ledgers_into(catalog: Catalog, table: TableDef) -> dict[str, list[LedgerEntry]]:
    """The ledgers of all Kafka tables that have written to a table, those that are dropped or gone too, by name."""
    names = {
        uuid: f"{former.database}.{former.name} (gone, {uuid[:8]})" for uuid, former in catalog.offsets.former().items()
    }
    for dropped in catalog.tables.dropped():
        uuid = dropped.relation.uuid
        names[uuid] = f"{full_name(dropped.relation)} (dropped, {uuid[:8]})"
    names |= {each.uuid: full_name(each) for each in catalog.tables.list()}
    found: dict[str, list[LedgerEntry]] = {}
    for uuid in catalog.offsets.ledgers():
        entries = list(catalog.offsets.ledger(uuid))
        if any(table.uuid in entry.tables for entry in entries):
            found[names.get(uuid, uuid)] = entries
    return found


def feeding(catalog: Catalog, table: TableDef) -> list[KafkaDef]:
    """Kafka tables that write to a table: by a view, or as its dead letters."""
    sources = {view.source for view in catalog.tables.views_into(table.uuid)}
    kafkas = [each for each in catalog.tables.list() if isinstance(each, KafkaDef)]
    return [kafka for kafka in kafkas if kafka.uuid in sources or _is_dead_letters_of(table, kafka)]


def _is_dead_letters_of(table: TableDef, kafka: KafkaDef) -> bool:
    return table.database == kafka.database and table.name == read_config(kafka).dead_letter_table
