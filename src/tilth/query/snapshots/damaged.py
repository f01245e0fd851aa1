"""Damaged parts under a query: named where it fails, left out where the user says so.

With `skip_damaged_parts = 1` a query whose parts cannot all be read is run without those that cannot, and a notice says
which and how many rows are missing. Files that are missing or cut are found before the query begins; a damaged footer
or page shows while it runs, which then begins anew without that part. So that nothing has been answered by then, the
rows of such a query wait for its end.

Statements that change or copy rows are refused with that setting: what they did not see would be missing for good, and
no notice would stand beside the result. DELETE and UPDATE would leave rows unchanged in a part that comes back from a
backup.

Covers: SELECT and EXPLAIN, errors of all statements that read. Does not cover: how a file becomes known as damaged
(maintenance/damage/book.py).
Always holds: without the setting an answer has the rows of all parts, or there is none.

Tests: tests/integration/sql/test_damaged_on_spark.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa

from tilth.base.errors import CorruptError, InvalidInputError, TilthError
from tilth.maintenance import CURE, DamageBook, DamagedFile, unreadable
from tilth.model.delta import deleted_rows
from tilth.model.part import Part
from tilth.model.snapshot import Snapshot
from tilth.model.table import full_name
from tilth.query.errors import QueryFailedError
from tilth.query.settings import SessionSettings
from tilth.query.snapshots.snapshots import narrowed

#: Maximum attempts of a query that finds another damaged part in each; then the error stands.
TRIES_MAX = 50
#: Maximum restarts of a query because another replica may have what it could not read.
COPIES_TRIED_MAX = 5
#: Parts that a notice names; the others it counts.
NAMED_MAX = 5

_SKIP = "skip_damaged_parts"
_HINT = f"{CURE}; SELECT .. SETTINGS {_SKIP} = 1 reads the other parts"
#: Errors of a reader in Spark that does not say which file it read.
_READ_ERROR = re.compile(
    r"parquet|snappy|zstd|lz4|gzip|zlib|inflat|decompress|corrupt|checksum|thrift|dictionary|page|"
    r"IOException|EOFException|IndexOutOfBounds|NegativeArraySize|BufferUnderflow|IllegalArgument|NullPointer",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A part that cannot be read."""

    table: str
    part: str
    #: Rows that are not deleted.
    rows: int
    reason: str


class QueryParts:
    """Parts that one query reads, the damaged ones among them, over all of its tries."""

    def __init__(self, book: DamageBook, *, skips: bool, explains: bool = False) -> None:
        self._book = book
        self._skips = skips
        self._is_checking = skips or explains
        #: Files that fail though their bytes are what was written: number of failures, by table and name.
        self._failed: dict[tuple[str, str], int] = {}
        self._unreadable: dict[str, dict[str, DamagedFile]] = {}
        #: Snapshots of this attempt, as they were taken.
        self._snapshots: list[Snapshot] = []
        self.left_out: list[LeftOut] = []
        self._tries_of_copies = 0

    @property
    def may_begin_early(self) -> bool:
        """True if rows may be sent before the query has ended."""
        return not self._skips

    def begin(self) -> None:
        self._snapshots.clear()
        self.left_out.clear()

    def seen(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot as the query may read it."""
        self._snapshots.append(snapshot)
        if not self._is_checking:
            return snapshot
        self._book.check_sizes(snapshot)
        uuid = snapshot.table.uuid
        known = {**self._book.of(uuid), **self._unreadable.get(uuid, {})}
        damaged = unreadable(snapshot.parts, snapshot.deltas, known)
        if not damaged:
            return snapshot
        self.left_out += [
            _left_out(snapshot, part, damaged[str(part.name)]) for part in snapshot.parts if str(part.name) in damaged
        ]
        return narrowed(snapshot, lambda part: str(part.name) not in damaged) if self._skips else snapshot

    def may_try_again(self, error: TilthError) -> bool:
        """True if the query may succeed without what the error is about."""
        return self._finds_other_copies(error) or (self._skips and self._learns(error))

    def _finds_other_copies(self, error: TilthError) -> bool:
        self._tries_of_copies += 1
        if self._tries_of_copies > COPIES_TRIED_MAX:
            return False
        return any(self._book.has_other_copies(snapshot, error) for snapshot in self._snapshots)

    def named(self, error: TilthError) -> TilthError:
        """Return the error with the part that it is about, if a file is why."""
        if isinstance(error, QueryFailedError) and _READ_ERROR.search(str(error)):
            return self._first_damaged() or (self._first_damaged() if self._learns(error) else None) or error
        for snapshot in self._snapshots:
            found = named(self._book, snapshot, error, hint=_HINT)
            if found is not error:
                return found
        return error

    def _first_damaged(self) -> CorruptError | None:
        for snapshot in self._snapshots:
            damaged = unreadable(snapshot.parts, snapshot.deltas, self._book.of(snapshot.table.uuid))
            for name, file in damaged.items():
                return CorruptError.coded(
                    "PART_DAMAGED",
                    "a part of the table cannot be read",
                    table=full_name(snapshot.table),
                    part=name,
                    because=file.reason,
                    hint=_HINT,
                )
        return None

    def notices(self) -> tuple[str, ...]:
        """Notices of rows that the answer lacks."""
        if not self.left_out or not self._skips:
            return ()
        rows = sum(each.rows for each in self.left_out)
        listed = "; ".join(f"{each.table} {each.part}, {each.rows} rows" for each in self.left_out[:NAMED_MAX])
        more = len(self.left_out) - NAMED_MAX
        listed += f"; and {more} more parts" if more > 0 else ""
        count = f"{len(self.left_out)} damaged part{'s' * (len(self.left_out) > 1)}"
        return (f"{count} left out, {rows} rows are missing ({_SKIP} = 1): {listed}",)

    def explained(self, plan: pa.Table) -> pa.Table:
        """Add a row about damaged parts to the answer of EXPLAIN."""
        if not self.left_out or plan.num_columns != 1:
            return plan
        fate = "is left out" if self._skips else "makes this query fail"
        hint = CURE if self._skips else _HINT
        lines = [f"{each.table}: part {each.part} ({each.rows} rows) {fate}: {each.reason}" for each in self.left_out]
        text = "\n".join(["== Damaged Parts ==", *lines, f"What to do: {hint}"])
        row = pa.table({plan.column_names[0]: pa.array([text], plan.schema.field(0).type)}, schema=plan.schema)
        return pa.concat_tables([plan, row])

    def _learns(self, error: TilthError) -> bool:
        """Note the damaged files that the error is about; return true if some are new."""
        if isinstance(error, CorruptError) and "file" in error.facts:
            return any(self._learns_of(snapshot, error) for snapshot in self._snapshots)
        if not isinstance(error, QueryFailedError) or not _READ_ERROR.search(str(error)):
            return False
        # A page in the middle of a file: Spark does not say of which. Only reading all of them shows it.
        before = self._known()
        for snapshot in self._snapshots:
            self._book.check_all(snapshot)
        return bool(self._known() - before)

    def _known(self) -> set[str]:
        return {name for snapshot in self._snapshots for name in self._book.of(snapshot.table.uuid)}

    def _learns_of(self, snapshot: Snapshot, error: CorruptError) -> bool:
        uuid, name = snapshot.table.uuid, os.path.basename(error.facts["file"])
        found = self._book.report(uuid, error, snapshot.parts, snapshot.deltas)
        if found is not None:
            return True
        files = {part.file.name: part.file for part in snapshot.parts} | {
            delta.file.name: delta.file for delta in snapshot.deltas
        }
        if name not in files:
            return False
        # Its bytes are what was written: once may be an accident, twice is not.
        self._failed[uuid, name] = count = self._failed.get((uuid, name), 0) + 1
        if count > 1:
            self._unreadable.setdefault(uuid, {})[name] = DamagedFile(
                table=uuid, file=files[name], is_delta=False, reason=str(error), since_ms=0, parts=()
            )
        return count <= 2


def named(book: DamageBook, snapshot: Snapshot, error: TilthError, *, hint: str = CURE) -> TilthError:
    """Return the error with table and part, if it is about a file of the snapshot, which is noted in the book."""
    if not isinstance(error, CorruptError) or "part" in error.facts or not (path := error.facts.get("file")):
        return error
    book.report(snapshot.table.uuid, error, snapshot.parts, snapshot.deltas)
    name = os.path.basename(path)
    targets = {target.file for delta in snapshot.deltas if delta.file.name == name for target in delta.targets}
    part = next((part for part in snapshot.parts if part.file.name == name or part.file.name in targets), None)
    if part is None:
        return error
    return error.with_facts(table=full_name(snapshot.table), part=part.name, hint=hint)


@contextmanager
def naming(name: Callable[[TilthError], TilthError]) -> Iterator[None]:
    """Raise the error that `name` makes of an error instead of it."""
    try:
        yield
    except TilthError as error:
        found = name(error)
        if found is error:
            raise
        raise found from error


def check_reads_all(settings: SessionSettings) -> None:
    """Raise InvalidInputError where damaged parts are skipped, which is not for changing or copying rows."""
    if settings.skip_damaged_parts:
        raise InvalidInputError.coded(
            "DAMAGED_PARTS_NOT_SKIPPED",
            "a statement that changes or copies rows cannot leave out damaged parts",
            setting=_SKIP,
            hint=f"set {_SKIP} = 0 for this statement; the rows of the damaged parts would be missing for good, "
            "without a notice",
        )


def _left_out(snapshot: Snapshot, part: Part, file: DamagedFile) -> LeftOut:
    rows = part.rows - deleted_rows(part.file.name, snapshot.deltas)
    return LeftOut(full_name(snapshot.table), str(part.name), rows, file.reason)
