"""Effect of updates on one table's state. Pure; see fold.py.

Covers: inserts, merges, changes of rows, drops and their undoing, mutations. Does not cover: who may commit
(requirements.py), finding deltas (fold_deltas.py).
Always holds: a part is replaced only while it is visible; what is not visible any more is counted out of its partition;
rows that a mutation found in the table get it once, in the order of the mutations.

Tests: tests/unit/catalog/rules/test_fold_deltas.py, tests/unit/catalog/tables/test_mutations.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import assert_never

import msgspec

from tilth.base.errors import ConflictError, InvalidInputError
from tilth.catalog.errors import (
    BadMergeError,
    DeltasGoneError,
    LabelTakenError,
    MutationEndedError,
    MutationNotFoundError,
    NothingToUndropError,
    PartsGoneError,
)
from tilth.catalog.records.nouns import LabelRecord
from tilth.catalog.rules.changes import CommitTimes, TableState
from tilth.catalog.rules.fold_deltas import (
    check_columns,
    check_compacted,
    check_seen,
    delta_of,
    ended,
    find_targets,
)
from tilth.catalog.rules.fold_parts import PartTimes, cut_of, merged_name, new_part
from tilth.catalog.rules.fold_state import LoggedCounts, TableNow
from tilth.catalog.rules.fold_streams import batch_record, check_batch
from tilth.catalog.rules.requirements import check_loaded, check_planned, check_visible
from tilth.catalog.rules.updates import (
    AcceptMutation,
    AddDelta,
    ExpirePartition,
    HideEverything,
    HidePartition,
    InsertBatch,
    InsertLabel,
    InsertPart,
    LoadFile,
    ReplaceDeltas,
    ReplaceParts,
    RestorePartition,
    RewritePart,
    StartMutation,
    TableUpdate,
)
from tilth.catalog.rules.visibility import lasting
from tilth.model.delta import Delta, Seen
from tilth.model.mutation import Mutation, MutationKind, MutationState, first_needed, needs
from tilth.model.part import (
    DropRange,
    Mark,
    Part,
    PartEvent,
    PartName,
    drop_range,
    mark_of,
)

#: Undone drops whose times a table remembers.
UNDONE_MAX = 32
_UNDROP_HINT = (
    "UNDROP restores the last DROP of a partition, within ttl_for_trash_items; rows that were deleted, replaced or "
    "dropped otherwise are read with VERSION AS OF (system.table_versions) while history lasts: INSERT them from there"
)


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
        self._now = TableNow(uuid, state, times, events=events, parts=parts)
        self.change = self._now.change
        self._uuid = uuid
        self._state = state
        self._times = times
        self._blocks = blocks
        self._events = events
        self._mutations = {mutation.id: mutation for mutation in state.mutations}

    def apply(self, update: TableUpdate) -> None:
        match update:
            case InsertPart():
                self._insert(update)
            case InsertLabel():
                self._label(update)
            case LoadFile(loaded=file):
                known = self.change.loaded.get(file.file) or self._state.loaded.get(file.file)
                check_loaded(self._now.name, update, known)
                times = {"txn": self._times.txn, "commit_ts": self._times.commit_ts}
                self.change.loaded[file.file] = msgspec.structs.replace(file, **times)
            case InsertBatch():
                self._land(update)
            case AddDelta():
                self._change(update)
            case ReplaceDeltas():
                self._compact(update)
            case ReplaceParts():
                self._replace(update)
            case HidePartition(partition=partition):
                self._drop(partition)
            case ExpirePartition():
                self._expire(update)
            case HideEverything():
                added = {entry.name.partition for entry in self.change.added}
                for partition in sorted(added.union(self._state.entries)):
                    self._drop(partition)
                emptied_ts = self._times.commit_ts
                self.change.version = msgspec.structs.replace(self.change.version, emptied_ts=emptied_ts)
            case RestorePartition(partition=partition):
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
        definition = self._now.definition
        shapes = (definition.schema_now, *definition.older_schemas)
        shape = next((each for each in shapes if each.version == update.schema_version), definition.schema_now)
        part = new_part(
            PartName(written.partition, block, block, 0, self._times.txn),
            written,
            PartTimes(
                min_row_ts=commit_ts,
                max_row_ts=commit_ts,
                commit_ts=commit_ts,
                columns_commit_ts=shape.columns_commit_ts,
                mutation_ts=definition.mutation_ts,
            ),
            schema_version=shape.version,
        )
        self._now.add_part(part)
        self._now.count_parts(part.name.partition, added=(part,), values=written.values)
        self._now.count_rows(inserted=written.rows)
        key = written.ranges.get(definition.order_by[0]) if definition.order_by else None
        self._now.log("new", part.name, LoggedCounts(rows=part.rows, bytes=part.bytes), key=key)

    def _label(self, update: InsertLabel) -> None:
        known = self.change.labels.get(update.label) or self._state.labels.get(update.label)
        if known is not None:
            hint = "the insert is stored already: leave it, or use another label for another insert"
            raise LabelTakenError(
                table=self._now.name,
                label=update.label,
                rows=known.rows,
                txn=known.txn,
                commit_ts=known.commit_ts,
                hint=hint,
            )
        record = LabelRecord(txn=self._times.txn, commit_ts=self._times.commit_ts, rows=update.rows)
        self.change.labels[update.label] = record

    def _land(self, update: InsertBatch) -> None:
        known = self.change.streams.get(update.stream) or self._state.streams.get(update.stream)
        check_batch(self._now.name, update, known, count=self._state.streams_count)
        self.change.streams[update.stream] = batch_record(update, self._times)

    def _replace(self, update: ReplaceParts) -> None:
        name = merged_name(update, txn=self._times.txn, table=self._now.name)
        shown = self._now.visible(name.partition)
        sources = check_visible(self._now.definition, shown, update.sources)
        self._check_alike(sources)
        self._check_unchanged(sources, update.seen)
        live = sum(self._now.deltas.live_rows(source) for source in sources)
        commit_ts = self._times.commit_ts
        names = self._names_of(update, name)
        # A source with the result's blocks is in one chain with it, and hidden by it; a mark would hide the result.
        below = next((source for source in sources if source.name.blocks == names[0].blocks), None)
        for source in sources:
            if source is not below:
                mark = mark_of(source.name, txn=self._times.txn)
                self.change.added.append(msgspec.structs.replace(mark, commit_ts=commit_ts))
            del shown[source.name]
        if not update.made:
            self.change.added.append(Mark(name=name, commit_ts=commit_ts))
        times = PartTimes(
            min_row_ts=min(source.min_row_ts for source in sources),
            max_row_ts=max(source.max_row_ts for source in sources),
            commit_ts=commit_ts,
            columns_commit_ts=sources[0].columns_commit_ts,
            mutation_ts=max(source.mutation_ts for source in sources),
        )
        version, cut = max(source.schema_version for source in sources), cut_of(update, sources, txn=self._times.txn)
        result = [
            new_part(each, written, times, schema_version=version, is_rewritten=below is not None, cut=cut)
            for each, written in zip(names, update.made, strict=False)
        ]
        for part in result:
            self._now.add_part(part)
        rows, size = sum(part.rows for part in result), sum(part.bytes for part in result)
        self._now.count_parts(name.partition, added=result, gone=sources)
        self._now.count_rows(removed=live - rows)
        self._end_lost(sources)
        counts = LoggedCounts(rows=rows, bytes=size, sources=len(sources))
        self._now.log(update.event, names[0], counts, duration_ms=update.duration_ms, reason=update.reason)

    def _names_of(self, update: ReplaceParts, whole: PartName) -> list[PartName]:
        """Return the names of the parts of the result, that of the whole where it is not cut.

        Ranges begin with the same block, so that nothing comes between them, and end with blocks of their own, which no
        other entry of the partition ever had: a chain is of one range.
        """
        if not update.more:
            return [whole]
        blocks = (next(self._blocks) for _ in update.made)
        return [msgspec.structs.replace(whole, max_block=block) for block in blocks]

    def _check_alike(self, sources: Sequence[Part]) -> None:
        # Schema versions may differ in defaults and comments.
        if len({part.columns_commit_ts for part in sources}) > 1:
            raise BadMergeError("parts of different columns cannot be merged", table=self._now.name)
        pending = self._pending()
        needed = [first_needed(part, pending) for part in sources]
        if len({None if mutation is None else mutation.id for mutation in needed}) > 1:
            # The result would either get the mutation for rows that came after it, or not at all.
            hint = "merge them when the mutation is done"
            blocking = next(mutation.id for mutation in needed if mutation is not None)
            raise BadMergeError(
                "a mutation stands between these parts", table=self._now.name, mutation=blocking, hint=hint
            )

    def _expire(self, update: ExpirePartition) -> None:
        definition = self._now.definition
        if definition.ttl != update.ttl:
            hint = "check the partition again"
            raise ConflictError("the TTL has changed meanwhile", table=self._now.name, ttl=definition.ttl, hint=hint)
        shown = self._now.visible(update.partition)
        parts = check_visible(definition, shown, update.parts)
        last = max((part.name.max_block for part in parts), default=-1)
        # A delta that changes a dropped part and a part that stays could not be split if the drop is undone.
        is_linked = bool(self._state.deltas.get(update.partition))
        others = [name for name in shown.keys() - set(update.parts) if is_linked or name.max_block <= last]
        if others:
            hint = "check the partition again"
            message = "the partition has parts that were not judged"
            raise PartsGoneError(message, table=self._now.name, partition=update.partition, part=min(others), hint=hint)
        self._hide(update.partition, parts, update.reason)

    def _drop(self, partition: str) -> None:
        self._hide(partition, list(self._now.visible(partition).values()))

    def _hide(self, partition: str, parts: Sequence[Part], reason: str = "") -> None:
        """Hide parts by a range. They must be all visible parts up to the newest of them."""
        if not parts:
            return
        last = max(part.name.max_block for part in parts)
        hidden = drop_range(partition, max_block=last, txn=self._times.txn, parts=len(parts))
        self.change.added.append(msgspec.structs.replace(hidden, commit_ts=self._times.commit_ts))
        for part in parts:
            del self._now.visible(partition)[part.name]
        self._now.count_parts(partition, gone=parts)
        rows = sum(self._now.deltas.live_rows(part) for part in parts)
        self._now.count_rows(removed=rows)
        counts = LoggedCounts(rows=rows, bytes=sum(part.bytes for part in parts), sources=len(parts))
        self._now.log("hide", hidden.name, counts, reason=reason)

    def _undrop(self, partition: str) -> None:
        """Only the newest drop: what it hid is what was visible, so nothing else can hide it once the range is gone."""
        entries = self._now.entries(partition)
        ranges = [entry for entry in entries if isinstance(entry, DropRange)]
        trash = self._state.trash.get(partition, ())
        drops = [each.commit_ts for each in ranges] + [item.end_ts for item in trash]
        if not drops:
            raise NothingToUndropError(table=self._now.name, partition=partition, hint=_UNDROP_HINT)
        newest = max(drops)
        gone = [each for each in ranges if each.commit_ts == newest]
        items = [item for item in trash if item.end_ts == newest]
        before = self._now.visible(partition)
        if self._now.definition.unique_key and before:
            hint = "insert missing rows again: newer rows with the same keys may exist"
            raise NothingToUndropError(
                "rows were inserted into the partition since it was dropped, and keys must stay unique",
                table=self._now.name,
                partition=partition,
                hint=hint,
            )
        self.change.removed.extend(gone)
        self.change.restored.extend(item.part for item in items)
        after = self._now.recompute_visible(partition)
        back = [part for name, part in after.items() if name not in before]
        hidden = max((*(each.parts for each in gone), *(item.dropped_parts for item in items)), default=0)
        if not back or len(back) < hidden:
            raise NothingToUndropError(
                "files of the last drop are being removed already",
                table=self._now.name,
                partition=partition,
                dropped=hidden,
                left=len(back),
                hint=_UNDROP_HINT,
            )
        self._reopen_mutations(back)
        self._now.count_parts(partition, added=back, values=back[0].values)
        rows = sum(self._now.deltas.live_rows(part) for part in back)
        self._now.count_rows(removed=-rows)
        version = self.change.version
        undone = (*version.undone, (newest, self._times.commit_ts))[-UNDONE_MAX:]
        # Rows from before the TRUNCATE may be among those that are back.
        emptied_ts = 0 if newest <= version.emptied_ts else version.emptied_ts
        self.change.version = msgspec.structs.replace(version, undone=undone, emptied_ts=emptied_ts)
        name = drop_range(partition, max_block=max(part.name.max_block for part in back), txn=self._times.txn).name
        counts = LoggedCounts(rows=rows, bytes=sum(part.bytes for part in back), sources=len(back))
        self._now.log("undrop", name, counts)

    # --- deltas ---

    def _change(self, update: AddDelta) -> None:
        written = update.written
        delta = delta_of(written, commit_ts=self._times.commit_ts, txn=self._times.txn)
        parts = find_targets(self._now.definition, written.targets, self._now.shown_files(written.partition))
        # Parts of this commit are as their writer made them.
        older = [part for part in parts if part.commit_ts < self._times.commit_ts]
        newest = {part.file.name: self._now.deltas.newest_before(written.partition, part.file.name) for part in older}
        check_seen(self._now.definition, newest, update.seen)
        check_columns(self._now.definition, written, older)
        self._add_delta(delta)
        deleted = sum(target.deleted for target in delta.targets)
        self._now.count_rows(removed=deleted)
        counts = LoggedCounts(rows=deleted, bytes=delta.bytes, sources=len(parts))
        self._now.log("delete", parts[0].name, counts)

    def _compact(self, update: ReplaceDeltas) -> None:
        sources: list[Delta] = []
        if not update.sources:
            raise InvalidInputError("nothing to compact", table=self._now.name, partition=update.partition)
        for name in update.sources:
            found = self._now.deltas.find(update.partition, name)
            if found is None or found in sources:
                hint = "they were compacted, or their parts are gone: choose again"
                raise DeltasGoneError(table=self._now.name, partition=update.partition, file=name, hint=hint)
            sources.append(found)
        parts = self._now.lasting_files(update.partition)
        changed = self._check_compactions(update, parts)
        made = [delta_of(each, commit_ts=self._times.commit_ts, txn=self._times.txn) for each in update.written]
        check_compacted(self._now.definition, sources, made, parts)
        for source in sources:
            self._end_delta(source)
        for delta in made:
            self._add_delta(delta)
        self._events.append(
            PartEvent(
                event=update.event,
                at_ms=self._times.now_ms,
                table=self._uuid,
                part=str(changed[0].name) if changed else sources[0].file.name,
                rows=sum(target.deleted for delta in made for target in delta.targets),
                bytes=sum(delta.bytes for delta in made),
                sources=len(sources),
                duration_ms=update.duration_ms,
                reason=update.reason,
            )
        )

    def _check_compactions(self, update: ReplaceDeltas, parts: Mapping[str, Part]) -> list[Part]:
        """Return those of the parts that the written deltas change; raises PartsGoneError for a delta that changes
        none.
        """
        changed: list[Part] = []
        for written in update.written:
            if written.partition != update.partition or not written.change_ts:
                hint = "it has the partition and time of its sources"
                raise InvalidInputError("not a compacted delta", file=written.file.name, hint=hint)
            kept = [parts[target.file] for target in written.targets if target.file in parts]
            changed += kept or find_targets(self._now.definition, written.targets, parts)
        return changed

    def _add_delta(self, delta: Delta) -> None:
        self._now.deltas.add(delta)
        self.change.deltas_added.append(delta)

    def _end_delta(self, delta: Delta) -> None:
        self._now.deltas.end(delta)
        if delta in self.change.deltas_added:
            # Nobody has seen it, so it has no past; its record is kept for the sake of its file.
            self.change.deltas_added.remove(delta)
        self.change.deltas_ended.append(ended(delta, self._times.commit_ts))

    def _end_lost(self, sources: Sequence[Part]) -> None:
        """End the deltas of replaced parts that change nothing which is visible, or may be again after an UNDROP."""
        changing = {delta.file.name: delta for source in sources for delta in self._now.deltas.changing(source)}
        if not changing:
            return
        partition = sources[0].name.partition
        entries = self._now.entries(partition)
        kept = {part.file.name for part in lasting(entries)}
        lost = {entry.file.name for entry in entries if isinstance(entry, Part)} - kept
        for delta in changing.values():
            if lost.issuperset(target.file for target in delta.targets):
                self._end_delta(delta)

    def _check_unchanged(self, sources: Sequence[Part], seen: Seen) -> None:
        """Raises PartsChangedError, for what this commit itself has changed too."""
        check_seen(self._now.definition, {part.file.name: self._now.deltas.newest(part) for part in sources}, seen)

    # --- mutations ---

    def _reopen_mutations(self, back: Sequence[Part]) -> None:
        """Reopen mutations that ended while these parts were hidden, if the rows of the parts are older.

        Pending ones are written as they are: a commit that is about to end one has not seen these parts.
        """
        definition = self._now.definition
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
        definition, commit_ts = self._now.definition, self._times.commit_ts
        check_planned(definition, update.from_version)
        if self._times.txn in self._mutations:
            raise InvalidInputError("a transaction can start only one mutation of a table", table=self._now.name)
        if (update.kind is MutationKind.COLUMNS) != (update.schema is not None):
            raise InvalidInputError("only a mutation of columns brings new columns", kind=update.kind)
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
        )
        self.change.definition = definition
        self.change.mutations[mutation.id] = self._mutations[mutation.id] = mutation

    def _rewrite(self, update: RewritePart) -> None:
        mutation = self._running(update.mutation)
        [source] = self._needing(mutation, (update.source,))
        self._check_unchanged([source], update.seen)
        live = self._now.deltas.live_rows(source)
        written, commit_ts = update.written, self._times.commit_ts
        old = source.name
        name = PartName(old.partition, old.min_block, old.max_block, old.level + 1, self._times.txn)
        del self._now.visible(old.partition)[old]
        result: list[Part] = []
        if written is None:
            self.change.added.append(Mark(name=name, commit_ts=commit_ts))
        else:
            if written.partition != old.partition:
                raise InvalidInputError("a rewritten part stays in its partition", part=old, now=written.partition)
            part = new_part(
                name,
                written,
                PartTimes(
                    min_row_ts=source.min_row_ts,
                    max_row_ts=source.max_row_ts,
                    commit_ts=commit_ts,
                    columns_commit_ts=mutation.schema.columns_commit_ts,
                    mutation_ts=_mutated_ts(source, mutation),
                ),
                schema_version=mutation.schema.version,
                is_rewritten=True,
                cut=source.cut,
            )
            self._now.add_part(part)
            result.append(part)
        rows, size = (0, 0) if written is None else (written.rows, written.file.size)
        self._now.count_parts(old.partition, added=result, gone=(source,))
        self._now.count_rows(removed=live - rows)
        self._end_lost((source,))
        self._count_done(mutation, 1)
        counts = LoggedCounts(rows=rows, bytes=size, sources=1)
        self._now.log("mutate", name, counts, duration_ms=update.duration_ms, reason=update.reason)

    def _accept(self, update: AcceptMutation) -> None:
        mutation = self._running(update.mutation)
        if mutation.kind is MutationKind.COLUMNS:
            raise InvalidInputError(
                "new columns need a part to be rewritten", table=self._now.name, mutation=mutation.id
            )
        parts = self._needing(mutation, update.parts)
        for part in parts:
            accepted = msgspec.structs.replace(part, mutation_ts=_mutated_ts(part, mutation))
            self.change.accepted[part.name] = accepted
            self._now.visible(part.name.partition)[part.name] = accepted
        self._count_done(mutation, len(parts))

    def _count_done(self, mutation: Mutation, parts: int) -> None:
        """Count the parts in the same commit that adds them, so that the count is right whatever breaks off."""
        counted = msgspec.structs.replace(mutation, parts_done=mutation.parts_done + parts)
        self.change.mutations[counted.id] = self._mutations[counted.id] = counted

    def _running(self, mutation_id: int) -> Mutation:
        """Raises MutationEndedError, MutationNotFoundError."""
        mutation = self._mutations.get(mutation_id)
        if mutation is None:
            raise MutationNotFoundError(table=self._now.name, mutation=mutation_id, hint="it ended long ago")
        if mutation.state is not MutationState.PENDING:
            raise MutationEndedError(
                table=self._now.name, mutation=mutation_id, state=mutation.state, hint="drop what was written for it"
            )
        return mutation

    def _needing(self, mutation: Mutation, names: Sequence[PartName]) -> list[Part]:
        """The visible parts of these names; raises PartsGoneError unless each has this mutation before it next."""
        pending = self._pending()
        found: list[Part] = []
        for name in names:
            found += check_visible(self._now.definition, self._now.visible(name.partition), (name,))
        for part in found:
            if first_needed(part, pending) != mutation:
                hint = "read the part again: it has the mutation already, or an older one comes first"
                raise PartsGoneError(
                    "a part does not wait for the mutation",
                    table=self._now.name,
                    part=part.name,
                    mutation=mutation.id,
                    hint=hint,
                )
        return found

    def _pending(self) -> list[Mutation]:
        pending = (each for each in self._mutations.values() if each.state is MutationState.PENDING)
        return sorted(pending, key=lambda each: each.commit_ts)


def _mutated_ts(part: Part, mutation: Mutation) -> int:
    return part.mutation_ts if mutation.kind is MutationKind.COLUMNS else max(part.mutation_ts, mutation.commit_ts)
