"""SYSTEM VERIFY: proves from the ledger, the catalog and the files that everything is in exactly once.

Covers: the checks of one table of rows and of the Kafka tables that feed it. Does not cover: mending.
Always holds: reads only; each check is reported, those that hold too. See also:
docs/policies/consumers.md#ledger.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilth.base.errors import TilthError
from tilth.catalog import Catalog
from tilth.ingest.reset import GONE, MOVED
from tilth.ingest.settings import read_config
from tilth.ingest.twice import read_twice
from tilth.model.delta import PartSource, deleted_rows
from tilth.model.offset import FOLDED, LedgerEntry, TopicPartition
from tilth.model.snapshot import Snapshot
from tilth.model.table import KafkaDef, TableDef, full_name
from tilth.storage import (
    check_file,
    data_folder,
    footer_rows,
    layout_of,
    load_changes,
    read_segment,
    repeated_keys,
    sources_of,
    storage_settings,
)

#: Damaged files that a check names.
_NAMED_MAX = 20
#: Reads of two records that belong together, while commits go on.
_TRIES_MAX = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One statement about a table, and whether it holds."""

    #: What was looked at: `db.t`, `db.k topic/0`.
    subject: str
    #: What should be so, in words.
    check: str
    is_ok: bool
    #: The figures; or what is wrong.
    told: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """All checks of one table."""

    #: `database.table`.
    table: str
    checks: tuple[Check, ...]

    @property
    def is_ok(self) -> bool:
        return all(check.is_ok for check in self.checks)


def verify(catalog: Catalog, root: str, relation: TableDef | KafkaDef) -> VerifyReport:
    """A table of rows: its counts, its files, and the ledgers of all that feeds it. A Kafka table: its ledger."""
    if isinstance(relation, KafkaDef):
        return VerifyReport(table=full_name(relation), checks=tuple(_check_ledger(catalog, relation)))
    ledgers = _ledgers_into(catalog, relation)
    checks = [*_check_counts(catalog, relation, ledgers), *_check_files(catalog, root, relation)]
    checks.append(_check_twice(catalog, relation, ledgers))
    for kafka in _feeding(catalog, relation):
        checks.extend(_check_ledger(catalog, kafka))
    return VerifyReport(table=full_name(relation), checks=tuple(checks))


def follow_ledger(entries: Iterable[LedgerEntry]) -> tuple[dict[TopicPartition, int], list[str]]:
    """Return the offsets that the ledger's ranges lead to, and each place where they do not follow each other. Pure."""
    reached: dict[TopicPartition, int] = {}
    wrong: list[str] = []
    for entry in entries:
        for each in entry.ranges:
            place = TopicPartition(each.topic, each.partition)
            if entry.consumer == MOVED and each.end == GONE:
                reached.pop(place, None)
                continue
            expected = reached.get(place, each.start)
            if each.start != expected:
                what = "missing" if each.start > expected else "twice"
                wrong.append(f"{each.topic}/{each.partition}: {expected} to {each.start} {what}, at txn {entry.txn}")
            if entry.consumer != MOVED and each.end < each.start:
                wrong.append(f"{each.topic}/{each.partition}: range {each.start} to {each.end}, at txn {entry.txn}")
            reached[place] = each.end
    return reached, wrong


def _check_counts(catalog: Catalog, table: TableDef, ledgers: Mapping[str, Sequence[LedgerEntry]]) -> Iterator[Check]:
    snapshot, version = catalog.parts.snapshot(table.uuid), catalog.parts.version(table.uuid)
    for _ in range(_TRIES_MAX):
        if snapshot.version == version.counter:
            break
        snapshot, version = catalog.parts.snapshot(table.uuid), catalog.parts.version(table.uuid)
    expected = version.inserted_rows - version.removed_rows
    yield Check(
        subject=full_name(table),
        check="the visible rows are those inserted less those removed",
        is_ok=snapshot.rows == expected,
        told=f"visible {snapshot.rows}, inserted {version.inserted_rows}, removed {version.removed_rows}",
    )
    fed = 0
    for ledger in ledgers.values():
        # A folded entry is older than any version read here; its time is that of the last round in it, of any table.
        old = (each for each in ledger if each.consumer == FOLDED or each.commit_ts <= version.last_commit_ts)
        fed += sum(each.stored.get(table.uuid, 0) for each in old)
    yield Check(
        subject=full_name(table),
        check="the rows in the ledgers were inserted",
        is_ok=fed <= version.inserted_rows,
        told=f"from Kafka {fed}, from other inserts {version.inserted_rows - fed}",
    )


def _check_twice(catalog: Catalog, table: TableDef, ledgers: Mapping[str, Sequence[LedgerEntry]]) -> Check:
    found = read_twice(ledgers, table.uuid, emptied_ts=catalog.parts.version(table.uuid).emptied_ts)
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    return Check(
        subject=full_name(table),
        check="no offset was read into it by two Kafka tables",
        is_ok=not found,
        told="; ".join(map(str, found[:_NAMED_MAX])) + more or f"fed by {', '.join(sorted(ledgers)) or 'none'}",
    )


def _ledgers_into(catalog: Catalog, table: TableDef) -> dict[str, list[LedgerEntry]]:
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


def _check_files(catalog: Catalog, root: str, table: TableDef) -> Iterator[Check]:
    folder = data_folder(root, table.uuid)
    snapshot = catalog.parts.snapshot(table.uuid)
    wrong: dict[str, str] = {}
    sources = []
    for part in snapshot.parts:
        try:
            sources += sources_of(snapshot.table, [part], snapshot.deltas)
            check_file(folder, part.file)
            rows = _rows_in(folder, sources[-1])
        except TilthError as error:
            wrong[part.file.name] = f"{part.name}: {error}"
            continue
        if rows != part.rows:
            wrong[part.file.name] = f"{part.name}: the file has {rows} rows, the catalog {part.rows}"
    for delta in snapshot.deltas:
        try:
            check_file(folder, delta.file, is_delta=True)
        except TilthError as error:
            wrong[delta.file.name] = f"{delta.file.name}: {error}"
    if not wrong:
        wrong = _wrong_deletes(folder, sources)
    if wrong and catalog.parts.version(table.uuid).counter != snapshot.version:
        # Merges and garbage collection went on meanwhile: what is visible now must hold.
        now = catalog.parts.snapshot(table.uuid)
        visible = {part.file.name for part in now.parts} | {delta.file.name for delta in now.deltas}
        wrong = {file: what for file, what in wrong.items() if file in visible}
    files = len(snapshot.parts) + len(snapshot.deltas)
    yield Check(
        subject=full_name(table),
        check="size, checksum and rows of every visible file",
        is_ok=not wrong,
        told="; ".join(list(wrong.values())[:_NAMED_MAX]) or f"{files} files, {_bytes(snapshot)} bytes",
    )
    if table.unique_key and not wrong:
        yield from _check_keys(catalog, root, snapshot, sources)


def _rows_in(folder: str, source: PartSource) -> int:
    if not source.is_segment:
        return footer_rows(folder, source.file)
    first = source.schema.columns[0].name
    return sum(rows.num_rows for rows in read_segment(folder, source.file, source.schema, [first]))


def _wrong_deletes(folder: str, sources: Iterable[PartSource]) -> dict[str, str]:
    """Return by file the differences between the rows that deltas delete and the catalog's count of them."""
    wrong = {}
    for source in sources:
        if not source.deltas:
            continue
        expected = deleted_rows(source.file.name, source.deltas)
        try:
            found = len(load_changes(folder, source, ()).deleted)
        except TilthError as error:
            wrong[source.file.name] = f"{source.name}: {error}"
            continue
        if found != expected:
            wrong[source.file.name] = f"{source.name}: {found} rows are deleted, by the catalog {expected}"
    return wrong


def _check_keys(catalog: Catalog, root: str, snapshot: Snapshot, sources: Sequence[PartSource]) -> Iterator[Check]:
    table = snapshot.table
    scopes: dict[str, list[PartSource]] = {}
    for source in sources:
        scope = source.name.partition if storage_settings(table).partition_level_unique_keys else ""
        scopes.setdefault(scope, []).append(source)
    try:
        repeated = sum(repeated_keys(layout_of(table, root), group) for group in scopes.values())
    except TilthError as error:
        if catalog.parts.version(table.uuid).counter != snapshot.version:
            # A file went while it was read: what it held is in others now.
            return
        raise error
    yield Check(
        subject=full_name(table),
        check="each unique key has one row",
        is_ok=not repeated,
        told=f"{snapshot.rows} rows, {repeated} of them with a key that another one has",
    )


def _bytes(snapshot: Snapshot) -> int:
    return snapshot.bytes + sum(delta.bytes for delta in snapshot.deltas)


def _check_ledger(catalog: Catalog, kafka: KafkaDef) -> Iterator[Check]:
    stored, entries = _ledger_of(catalog, kafka)
    reached, wrong = follow_ledger(entries)
    messages = sum(each.messages for entry in entries for each in entry.ranges)
    dead, refused = (sum(getattr(each, name) for e in entries for each in e.ranges) for name in ("dead", "refused"))
    yield Check(
        subject=full_name(kafka),
        check="the ledger's ranges follow each other",
        is_ok=not wrong,
        told="; ".join(wrong[:_NAMED_MAX])
        or f"{len(entries)} entries, {messages} messages, {dead} not decoded, {refused} refused by views",
    )
    yield from _check_dead_letters(catalog, kafka, entries)
    for place, end in sorted(reached.items()):
        yield Check(
            subject=f"{full_name(kafka)} {place.topic}/{place.partition}",
            check="the ledger ends at the stored offset",
            is_ok=stored.get(place) == end,
            told=f"ledger {end}, stored {stored.get(place, 'none')}",
        )
    open_gaps = [gap for gap in catalog.offsets.gaps(kafka.uuid) if not gap.resolution]
    yield Check(
        subject=full_name(kafka),
        check="no messages are missing",
        is_ok=not open_gaps,
        told="; ".join(f"{g.topic}/{g.partition} from {g.start}: {g.reason}" for g in open_gaps) or "no open gap",
    )


def _check_dead_letters(catalog: Catalog, kafka: KafkaDef, entries: Sequence[LedgerEntry]) -> Iterator[Check]:
    table = catalog.tables.find(kafka.database, read_config(kafka).dead_letter_table)
    if not isinstance(table, TableDef) or catalog.tables.views_into(table.uuid):
        return
    wrong = []
    for entry in entries:
        expected = sum(each.dead + each.refused for each in entry.ranges)
        stored = entry.stored.get(table.uuid, 0)
        # With kafka_skip_broken_messages a round drops its own; folded rounds may be some of either kind.
        if stored > expected or (0 < stored < expected and entry.consumer != FOLDED):
            wrong.append(f"{expected} expected, {stored} stored, at txn {entry.txn}")
    stored = sum(entry.stored.get(table.uuid, 0) for entry in entries)
    yield Check(
        subject=full_name(kafka),
        check="the dead letters in the ledger are stored",
        is_ok=not wrong,
        told="; ".join(wrong[:_NAMED_MAX]) or f"{stored} in {full_name(table)}",
    )


def _ledger_of(catalog: Catalog, kafka: KafkaDef) -> tuple[dict[TopicPartition, int], list[LedgerEntry]]:
    """Stored offsets and ledger as of one commit; rounds that commit meanwhile are left out."""
    version = catalog.parts.version(kafka.uuid)
    stored = catalog.offsets.of(kafka.uuid)
    for _ in range(_TRIES_MAX):
        again = catalog.parts.version(kafka.uuid)
        if again.counter == version.counter:
            break
        version, stored = again, catalog.offsets.of(kafka.uuid)
    # By commit, not by transaction: a round that began earlier may have been committed later.
    entries = [each for each in catalog.offsets.ledger(kafka.uuid) if each.commit_ts <= version.last_commit_ts]
    return stored, sorted(entries, key=lambda each: each.commit_ts)


def _feeding(catalog: Catalog, table: TableDef) -> list[KafkaDef]:
    """The Kafka tables that write to a table: by a view, or as its dead letters."""
    sources = {view.source for view in catalog.tables.views_into(table.uuid)}
    kafkas = [each for each in catalog.tables.list() if isinstance(each, KafkaDef)]
    return [kafka for kafka in kafkas if kafka.uuid in sources or _is_dead_letters_of(table, kafka)]


def _is_dead_letters_of(table: TableDef, kafka: KafkaDef) -> bool:
    return table.database == kafka.database and table.name == read_config(kafka).dead_letter_table
