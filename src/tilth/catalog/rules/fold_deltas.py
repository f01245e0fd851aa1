"""The deltas of a table while a commit is folded: which are open, what they change, who knew of them. Pure.

Covers: finding, adding and ending them. Does not cover: what updates mean (fold_table.py).
Always holds: what the commit itself adds is distinguished from what was there, as writers know of their own changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tilth.base.errors import InvalidInputError
from tilth.catalog.errors import ColumnsPendingError, DeltasGoneError, PartsChangedError, PartsGoneError
from tilth.model.delta import Delta, DeltaKind, Seen, Target, WrittenDelta, by_file, deleted_rows
from tilth.model.part import Part
from tilth.model.table import TableDef, full_name


class OpenDeltas:
    """Deltas that have not ended, by partition. Lives for one call of `fold`."""

    def __init__(self, before: Mapping[str, tuple[Delta, ...]]) -> None:
        self._before = before
        #: Deltas before the commit by partition and by the part's file that they change, loaded on demand.
        self._old: dict[str, dict[str, tuple[Delta, ...]]] = {}
        #: Open deltas by partition and name.
        self._open: dict[str, dict[str, Delta]] = {}
        #: Open deltas by partition and part's file.
        self._now: dict[str, dict[str, list[Delta]]] = {}

    def find(self, partition: str, name: str) -> Delta | None:
        return self._of(partition).get(name)

    def changing(self, part: Part) -> list[Delta]:
        return self._by_file(part.name.partition).get(part.file.name, [])

    def live_rows(self, part: Part) -> int:
        return part.rows - deleted_rows(part.file.name, self.changing(part))

    def newest(self, part: Part) -> int:
        """Time of the newest change of a part; 0: it has none."""
        return max((delta.change_ts for delta in self.changing(part)), default=0)

    def newest_before(self, partition: str, file: str) -> int:
        old = self._old.get(partition)
        if old is None:
            self._old[partition] = old = by_file(self._before.get(partition, ()))
        return max((delta.change_ts for delta in old.get(file, ())), default=0)

    def add(self, delta: Delta) -> None:
        known, files = self._of(delta.partition), self._by_file(delta.partition)
        if delta.file.name in known:
            raise InvalidInputError("a delta is named twice", file=delta.file.name)
        known[delta.file.name] = delta
        for target in delta.targets:
            files.setdefault(target.file, []).append(delta)

    def end(self, delta: Delta) -> None:
        files = self._by_file(delta.partition)
        del self._of(delta.partition)[delta.file.name]
        for target in delta.targets:
            files[target.file].remove(delta)

    def _of(self, partition: str) -> dict[str, Delta]:
        known = self._open.get(partition)
        if known is None:
            self._open[partition] = known = {each.file.name: each for each in self._before.get(partition, ())}
        return known

    def _by_file(self, partition: str) -> dict[str, list[Delta]]:
        files = self._now.get(partition)
        if files is None:
            changes = by_file(self._of(partition).values())
            self._now[partition] = files = {file: list(deltas) for file, deltas in changes.items()}
        return files


def delta_of(written: WrittenDelta, *, commit_ts: int, txn: int) -> Delta:
    check_written(written)
    if written.change_ts > commit_ts:
        raise InvalidInputError("a delta is older than its changes", file=written.file.name, change=written.change_ts)
    return Delta(
        kind=written.kind,
        partition=written.partition,
        file=written.file,
        targets=written.targets,
        columns=written.columns,
        change_ts=written.change_ts or commit_ts,
        commit_ts=commit_ts,
        txn=txn,
    )


def check_written(written: WrittenDelta) -> None:
    """Raises InvalidInputError for a delta without targets."""
    files = [target.file for target in written.targets]
    file = written.file.name
    if not files or len(set(files)) < len(files):
        raise InvalidInputError("a delta must name the parts that it changes, each once", file=file)
    if written.kind is not DeltaKind.CHANGES and len(files) > 1:
        raise InvalidInputError("a delta of this kind changes one part", file=file, kind=written.kind)
    if any(target.deleted < 0 or target.updated < 0 for target in written.targets):
        raise InvalidInputError("a delta cannot change a negative number of rows", file=file)


def check_seen(definition: TableDef, newest: Mapping[str, int], seen: Seen) -> None:
    """`newest`: of each file the newest change. Raises PartsChangedError naming the files that have newer ones."""
    known = dict(seen)
    changed = [file for file, ts in newest.items() if ts > known.get(file, 0)]
    if changed:
        raise PartsChangedError(
            table=full_name(definition),
            files=",".join(changed),
            hint="read the newest changes of these parts, and commit again",
        )


def check_columns(definition: TableDef, written: WrittenDelta, parts: Iterable[Part]) -> None:
    """Raises ColumnsPendingError for new values of rows whose part does not have the table's columns yet."""
    if not written.columns:
        return
    older = [part.file.name for part in parts if part.columns_commit_ts != definition.columns_commit_ts]
    if older:
        raise ColumnsPendingError(
            table=full_name(definition),
            files=",".join(older),
            hint="wait for the ALTER's mutation (system.mutations), and write again",
        )


def find_targets(definition: TableDef, targets: Iterable[Target], shown: Mapping[str, Part]) -> list[Part]:
    """Return the visible parts that the targets name by their files; raises PartsGoneError."""
    files = [target.file for target in targets]
    gone = [file for file in files if file not in shown]
    if gone:
        raise PartsGoneError(
            table=full_name(definition),
            files=",".join(gone),
            count=len(gone),
            hint="they were merged or dropped meanwhile: find the rows again",
        )
    return [shown[file] for file in files]


def check_compacted(
    definition: TableDef, sources: Iterable[Delta], written: Iterable[Delta], files: Iterable[str]
) -> None:
    """Raises DeltasGoneError unless each of these parts, which are visible or may be again, loses as many rows by the
    written deltas as by their sources.
    """
    old, new = by_file(sources), by_file(written)
    for file in sorted(files):
        before, after = deleted_rows(file, old.get(file, ())), deleted_rows(file, new.get(file, ()))
        if before != after:
            raise DeltasGoneError(
                "a compaction would bring rows back or lose some",
                table=full_name(definition),
                part=file,
                deleted=before,
                deleted_after=after,
                hint="choose the deltas again, with all parts that they change, those that a drop hides too",
            )
        if _is_updated(file, old) and not _is_updated(file, new):
            raise DeltasGoneError(
                "a compaction would lose new values",
                table=full_name(definition),
                part=file,
                hint="choose the deltas again, with all parts that they change, those that a drop hides too",
            )


def _is_updated(file: str, deltas: Mapping[str, Sequence[Delta]]) -> bool:
    return any(target.updated for delta in deltas.get(file, ()) for target in delta.targets if target.file == file)


def ended(delta: Delta, commit_ts: int) -> Delta:
    return msgspec.structs.replace(delta, end_ts=commit_ts)
