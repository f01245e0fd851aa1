"""What the updates of one table make of its state. Pure; see fold.py.

Covers: inserts, merges, drops and their undoing, mutations. Does not cover: who may commit (requirements.py).
Always holds: a part is replaced only while it is visible; what is not visible any more is counted out of its partition;
rows that a mutation found in the table get it once, in the order of the mutations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

import msgspec

from tilth.base.errors import ConflictError, InvalidInputError
from tilth.catalog.changes import CommitTimes, TableChange, TableState
from tilth.catalog.errors import (
    BadMergeError,
    MutationEndedError,
    MutationNotFoundError,
    NothingToUndropError,
    PartsGoneError,
)
from tilth.catalog.records import PartitionRecord, TableVersion
from tilth.catalog.requirements import check_planned, check_visible
from tilth.catalog.updates import (
    AcceptMutation,
    DropPartition,
    ExpirePartition,
    InsertPart,
    ReplaceParts,
    RewritePart,
    StartMutation,
    TableUpdate,
    TruncateTable,
    UndropPartition,
)
from tilth.catalog.visibility import visible
from tilth.model.mutation import Mutation, MutationKind, MutationState, first_needed, needs
from tilth.model.part import (
    Bound,
    ColumnRange,
    DropRange,
    Entry,
    Mark,
    Part,
    PartEvent,
    PartName,
    WrittenPart,
    drop_range,
    mark_of,
)
from tilth.model.table import TableDef, full_name


class TableFold:
    """The fold of one table half-way. Lives for one call of `fold`."""

    def __init__(
        self,
        uuid: str,
        state: TableState,
        times: CommitTimes,
        *,
        blocks: Iterator[int],
        events: list[PartEvent],
        parts: list[tuple[str, Part]],
    ) -> None:
        """Block ids are drawn from the commit's, events and new parts are added to the commit's."""
        self.change = TableChange(version=raised(state.version, times.commit_ts))
        self._uuid = uuid
        self._state = state
        self._times = times
        self._blocks = blocks
        self._events = events
        self._parts = parts
        #: By partition, of those looked into so far: what is visible now.
        self._shown: dict[str, dict[PartName, Part]] = {}
        self._mutations = {mutation.id: mutation for mutation in state.mutations}

    def apply(self, update: TableUpdate) -> None:
        match update:
            case InsertPart():
                self._insert(update)
            case ReplaceParts():
                self._replace(update)
            case DropPartition(partition=partition):
                self._drop(partition)
            case ExpirePartition():
                self._expire(update)
            case TruncateTable():
                added = {entry.name.partition for entry in self.change.added}
                for partition in sorted(added.union(self._state.entries)):
                    self._drop(partition)
            case UndropPartition(partition=partition):
                self._undrop(partition)
            case StartMutation():
                self._start(update)
            case RewritePart():
                self._rewrite(update)
            case AcceptMutation():
                self._accept(update)
            case _:
                assert_never(update)

    # --- parts ---

    def _insert(self, update: InsertPart) -> None:
        written, commit_ts = update.written, self._times.commit_ts
        block = next(self._blocks)
        assert block < commit_ts
        definition = self._definition
        part = _part(
            PartName(written.partition, block, block, 0, self._times.txn),
            written,
            schema_version=definition.schema_version,
            min_row_ts=commit_ts,
            max_row_ts=commit_ts,
            commit_ts=commit_ts,
            columns_commit_ts=definition.columns_commit_ts,
            mutation_ts=definition.mutation_ts,
        )
        self._add_part(part)
        self._count_parts(part.name.partition, 1, written.values)
        self._count_rows(inserted=written.rows)
        key = written.ranges.get(definition.order_by[0]) if definition.order_by else None
        self._tell("new", part.name, rows=part.rows, size=part.bytes, key=key)

    def _replace(self, update: ReplaceParts) -> None:
        name = _merged_name(update, txn=self._times.txn, table=self._told)
        shown = self._visible(name.partition)
        sources = check_visible(self._definition, shown, update.sources)
        self._check_alike(sources)
        written, commit_ts = update.written, self._times.commit_ts
        for source in sources:
            mark = mark_of(source.name, txn=self._times.txn)
            self.change.added.append(msgspec.structs.replace(mark, commit_ts=commit_ts))
            del shown[source.name]
        if written is None:
            self.change.added.append(Mark(name=name, commit_ts=commit_ts))
        else:
            part = _part(
                name,
                written,
                schema_version=max(source.schema_version for source in sources),
                min_row_ts=min(source.min_row_ts for source in sources),
                max_row_ts=max(source.max_row_ts for source in sources),
                commit_ts=commit_ts,
                columns_commit_ts=sources[0].columns_commit_ts,
                mutation_ts=max(source.mutation_ts for source in sources),
            )
            self._add_part(part)
        rows, size = (0, 0) if written is None else (written.rows, written.file.size)
        self._count_parts(name.partition, (written is not None) - len(sources))
        self._count_rows(removed=sum(source.rows for source in sources) - rows)
        self._tell(
            "merge",
            name,
            rows=rows,
            size=size,
            sources=len(sources),
            duration_ms=update.duration_ms,
            reason=update.reason,
        )

    def _check_alike(self, sources: Sequence[Part]) -> None:
        # Schema versions may differ in defaults and comments.
        if len({part.columns_commit_ts for part in sources}) > 1:
            raise BadMergeError("parts of different columns cannot be merged", table=self._told)
        pending = self._pending()
        needed = [first_needed(part, pending) for part in sources]
        if len({None if mutation is None else mutation.id for mutation in needed}) > 1:
            # The result would either get the mutation for rows that came after it, or not at all.
            hint = "merge them when the mutation is done"
            told = next(mutation.id for mutation in needed if mutation is not None)
            raise BadMergeError("a mutation stands between these parts", table=self._told, mutation=told, hint=hint)

    def _expire(self, update: ExpirePartition) -> None:
        definition = self._definition
        if definition.ttl != update.ttl:
            hint = "judge the partition anew"
            raise ConflictError("the TTL has changed meanwhile", table=self._told, ttl=definition.ttl, hint=hint)
        shown = self._visible(update.partition)
        parts = check_visible(definition, shown, update.parts)
        last = max((part.name.max_block for part in parts), default=-1)
        others = [name for name in shown.keys() - set(update.parts) if name.max_block <= last]
        if others:
            hint = "judge the partition anew"
            told = "the partition has parts that were not judged"
            raise PartsGoneError(told, table=self._told, partition=update.partition, part=min(others), hint=hint)
        self._hide(update.partition, parts, update.reason)

    def _drop(self, partition: str) -> None:
        self._hide(partition, list(self._visible(partition).values()))

    def _hide(self, partition: str, parts: Sequence[Part], reason: str = "") -> None:
        """By a range. They are all visible ones up to the newest of them."""
        if not parts:
            return
        last = max(part.name.max_block for part in parts)
        hidden = drop_range(partition, max_block=last, txn=self._times.txn, parts=len(parts))
        self.change.added.append(msgspec.structs.replace(hidden, commit_ts=self._times.commit_ts))
        for part in parts:
            del self._visible(partition)[part.name]
        self._count_parts(partition, -len(parts))
        rows = sum(part.rows for part in parts)
        self._count_rows(removed=rows)
        size = sum(part.bytes for part in parts)
        self._tell("hide", hidden.name, rows=rows, size=size, sources=len(parts), reason=reason)

    def _undrop(self, partition: str) -> None:
        """Only the newest drop: what it hid is what was visible, so nothing else can hide it once the range is gone."""
        entries = self._entries(partition)
        ranges = [entry for entry in entries if isinstance(entry, DropRange)]
        trash = self._state.trash.get(partition, ())
        drops = [each.commit_ts for each in ranges] + [item.end_ts for item in trash]
        if not drops:
            hint = "the trash keeps dropped parts for ttl_for_trash_items"
            raise NothingToUndropError(table=self._told, partition=partition, hint=hint)
        newest = max(drops)
        gone = [each for each in ranges if each.commit_ts == newest]
        items = [item for item in trash if item.end_ts == newest]
        before = self._visible(partition)
        self.change.removed.extend(gone)
        self.change.restored.extend(item.part for item in items)
        self._shown[partition] = after = {part.name: part for part in visible(self._entries(partition))}
        back = [part for name, part in after.items() if name not in before]
        hidden = max((*(each.parts for each in gone), *(item.dropped_parts for item in items)), default=0)
        if not back or len(back) < hidden:
            raise NothingToUndropError(
                "files of what was dropped last are being removed already",
                table=self._told,
                partition=partition,
                dropped=hidden,
                left=len(back),
                hint="the trash keeps dropped parts for ttl_for_trash_items",
            )
        self._ask_again(back)
        self._count_parts(partition, len(back), back[0].values)
        rows = sum(part.rows for part in back)
        self._count_rows(removed=-rows)
        name = drop_range(partition, max_block=max(part.name.max_block for part in back), txn=self._times.txn).name
        self._tell("undrop", name, rows=rows, size=sum(part.bytes for part in back), sources=len(back))

    # --- mutations ---

    def _ask_again(self, back: Sequence[Part]) -> None:
        """Mutations that ended while these parts were hidden, but which their rows are older than, are due again.

        Pending ones are written as they are: whoever is about to end one has not seen these parts.
        """
        definition = self._definition
        for mutation in self._mutations.values():
            if mutation.state is MutationState.KILLED or not any(needs(part, mutation) for part in back):
                continue
            due = msgspec.structs.replace(mutation, state=MutationState.PENDING, ended_ms=0, parts_left=-1)
            self.change.mutations[due.id] = self._mutations[due.id] = due
            if definition.schema_of(due.schema.version) is None:
                older = sorted((*definition.older_schemas, due.schema), key=lambda each: each.version)
                definition = msgspec.structs.replace(definition, older_schemas=tuple(older))
                self.change.definition = definition

    def _start(self, update: StartMutation) -> None:
        definition, commit_ts = self._definition, self._times.commit_ts
        check_planned(definition, update.from_version)
        if self._times.txn in self._mutations:
            raise InvalidInputError("a transaction starts one mutation of a table only", table=self._told)
        if (update.kind is MutationKind.COLUMNS) != (update.schema is not None):
            raise InvalidInputError("a mutation of columns brings the new ones, others do not", kind=update.kind)
        if update.schema is None:
            definition = msgspec.structs.replace(definition, mutation_ts=commit_ts)
        else:
            definition = msgspec.structs.replace(
                definition,
                schema=update.schema,
                schema_version=definition.schema_version + 1,
                columns_commit_ts=commit_ts,
                older_schemas=(*definition.older_schemas, definition.schema_now),
                next_column_id=max(definition.next_column_id, update.next_column_id),
            )
        mutation = Mutation(
            table=self._uuid,
            id=self._times.txn,
            commit_ts=commit_ts,
            kind=update.kind,
            command=update.command,
            assignments=update.assignments,
            predicate=update.predicate,
            schema=definition.schema_now,
            created_ms=self._times.now_ms,
            parts_done=0,
        )
        self.change.definition = definition
        self.change.mutations[mutation.id] = self._mutations[mutation.id] = mutation

    def _rewrite(self, update: RewritePart) -> None:
        mutation = self._running(update.mutation)
        [source] = self._needing(mutation, (update.source,))
        written, commit_ts = update.written, self._times.commit_ts
        old = source.name
        name = PartName(old.partition, old.min_block, old.max_block, old.level + 1, self._times.txn)
        del self._visible(old.partition)[old]
        if written is None:
            self.change.added.append(Mark(name=name, commit_ts=commit_ts))
            self._count_parts(old.partition, -1)
        else:
            if written.partition != old.partition:
                raise InvalidInputError("a rewritten part stays in its partition", part=old, now=written.partition)
            part = _part(
                name,
                written,
                schema_version=mutation.schema.version,
                min_row_ts=source.min_row_ts,
                max_row_ts=source.max_row_ts,
                commit_ts=commit_ts,
                columns_commit_ts=mutation.schema.columns_commit_ts,
                mutation_ts=_mutated_ts(source, mutation),
                is_rewritten=True,
            )
            self._add_part(part)
        rows, size = (0, 0) if written is None else (written.rows, written.file.size)
        self._count_rows(removed=source.rows - rows)
        self._count_done(mutation, 1)
        self._tell(
            "mutate", name, rows=rows, size=size, sources=1, duration_ms=update.duration_ms, reason=update.reason
        )

    def _accept(self, update: AcceptMutation) -> None:
        mutation = self._running(update.mutation)
        if mutation.kind is MutationKind.COLUMNS:
            raise InvalidInputError("new columns need a part to be rewritten", table=self._told, mutation=mutation.id)
        parts = self._needing(mutation, update.parts)
        for part in parts:
            accepted = msgspec.structs.replace(part, mutation_ts=_mutated_ts(part, mutation))
            self.change.accepted[part.name] = accepted
            self._visible(part.name.partition)[part.name] = accepted
        self._count_done(mutation, len(parts))

    def _count_done(self, mutation: Mutation, parts: int) -> None:
        """With the parts, so that the count is right whatever breaks off."""
        if mutation.parts_done >= 0:
            counted = msgspec.structs.replace(mutation, parts_done=mutation.parts_done + parts)
            self.change.mutations[counted.id] = self._mutations[counted.id] = counted

    def _running(self, mutation_id: int) -> Mutation:
        """Raises MutationEndedError, MutationNotFoundError."""
        mutation = self._mutations.get(mutation_id)
        if mutation is None:
            raise MutationNotFoundError(table=self._told, mutation=mutation_id, hint="it ended long ago")
        if mutation.state is not MutationState.PENDING:
            raise MutationEndedError(
                table=self._told, mutation=mutation_id, state=mutation.state, hint="drop what was written for it"
            )
        return mutation

    def _needing(self, mutation: Mutation, names: Sequence[PartName]) -> list[Part]:
        """The visible parts of these names; raises PartsGoneError unless each has this mutation before it next."""
        pending = self._pending()
        found: list[Part] = []
        for name in names:
            found += check_visible(self._definition, self._visible(name.partition), (name,))
        for part in found:
            if first_needed(part, pending) != mutation:
                hint = "look at the part again: it has the mutation already, or an older one comes first"
                raise PartsGoneError(
                    "a part does not wait for the mutation",
                    table=self._told,
                    part=part.name,
                    mutation=mutation.id,
                    hint=hint,
                )
        return found

    def _pending(self) -> list[Mutation]:
        pending = (each for each in self._mutations.values() if each.state is MutationState.PENDING)
        return sorted(pending, key=lambda each: each.commit_ts)

    # --- the state so far ---

    @property
    def _definition(self) -> TableDef:
        return self.change.definition or self._state.definition

    @property
    def _told(self) -> str:
        return full_name(self._definition)

    def _entries(self, partition: str) -> list[Entry]:
        """Those before the commit, and what it has made of them so far."""
        everything = self.change.entries_after(self._state.entries.get(partition, ()))
        return [entry for entry in everything if entry.name.partition == partition]

    def _visible(self, partition: str) -> dict[PartName, Part]:
        """What is visible now, to be changed by whoever changes it."""
        shown = self._shown.get(partition)
        if shown is None:
            self._shown[partition] = shown = {part.name: part for part in visible(self._entries(partition))}
        return shown

    def _add_part(self, part: Part) -> None:
        self.change.added.append(part)
        self._parts.append((self._uuid, part))
        if part.name.partition in self._shown:
            self._shown[part.name.partition][part.name] = part
        version = self.change.version
        self.change.version = msgspec.structs.replace(version, parts_added=version.parts_added + 1)

    def _count_parts(self, partition: str, more: int, values: tuple[Bound, ...] = ()) -> None:
        record = self.change.partitions.get(partition) or self._state.partitions.get(partition)
        if record is None:
            record = PartitionRecord(partition=partition, values=values, created_ts=self._times.commit_ts, parts=0)
        self.change.partitions[partition] = msgspec.structs.replace(record, parts=record.parts + more)
        version = self.change.version
        self.change.version = msgspec.structs.replace(version, parts=version.parts + more)

    def _count_rows(self, *, inserted: int = 0, removed: int = 0) -> None:
        version = self.change.version
        self.change.version = msgspec.structs.replace(
            version, inserted_rows=version.inserted_rows + inserted, removed_rows=version.removed_rows + removed
        )

    def _tell(
        self,
        event: str,
        name: PartName,
        *,
        rows: int,
        size: int,
        sources: int = 0,
        duration_ms: int = 0,
        reason: str = "",
        key: ColumnRange | None = None,
    ) -> None:
        self._events.append(
            PartEvent(
                event=event,
                at_ms=self._times.now_ms,
                table=self._uuid,
                part=str(name),
                rows=rows,
                bytes=size,
                sources=sources,
                duration_ms=duration_ms,
                reason=reason,
                key=key,
            )
        )


def raised(version: TableVersion, commit_ts: int) -> TableVersion:
    """The version after one more commit."""
    assert commit_ts > version.last_commit_ts
    return msgspec.structs.replace(version, counter=version.counter + 1, last_commit_ts=commit_ts)


def _mutated_ts(part: Part, mutation: Mutation) -> int:
    """What the part has of UPDATE and DELETE once this mutation was applied."""
    return part.mutation_ts if mutation.kind is MutationKind.COLUMNS else max(part.mutation_ts, mutation.commit_ts)


def _merged_name(update: ReplaceParts, *, txn: int, table: str) -> PartName:
    """POLICIES.md 1.1: min of the first, max of the last, one level above the highest."""
    sources = sorted(update.sources)
    if not sources:
        raise BadMergeError("nothing to merge", table=table)
    partitions = {source.partition for source in sources}
    if update.written is not None:
        partitions.add(update.written.partition)
    if len(partitions) > 1:
        raise BadMergeError("parts of one partition only can be merged", table=table, partitions=sorted(partitions))
    if len(set(sources)) < len(sources):
        raise BadMergeError("a part is named twice", table=table)
    low, high = sources[0].min_block, max(source.max_block for source in sources)
    same = [source for source in sources if source.blocks == (low, high)]
    if same:
        # The result would be in one chain with that source's mark, and hidden by it.
        raise BadMergeError("the result would have the blocks of one source", table=table, source=same[0])
    level = max(source.level for source in sources) + 1
    return PartName(sources[0].partition, low, high, level, txn)


def _part(
    name: PartName,
    written: WrittenPart,
    *,
    schema_version: int,
    min_row_ts: int,
    max_row_ts: int,
    commit_ts: int,
    columns_commit_ts: int,
    mutation_ts: int,
    is_rewritten: bool = False,
) -> Part:
    return Part(
        name=name,
        schema_version=schema_version,
        rows=written.rows,
        file=written.file,
        values=written.values,
        ranges=written.ranges,
        min_row_ts=min_row_ts,
        max_row_ts=max_row_ts,
        commit_ts=commit_ts,
        columns_commit_ts=columns_commit_ts,
        mutation_ts=mutation_ts,
        is_rewritten=is_rewritten,
    )
