"""Pieces of parts that a task of a user's Spark reads, and how they are divided among tasks. Pure.

Always holds: each row of a part is in exactly one piece; a task reads at least a share of bytes that is worth its
start, unless there is less.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec

from tilth.model.change_feed import PartChangeKind
from tilth.model.delta import PartSource
from tilth.model.table import Schema
from tilth.query.snapshots.predicates import Predicate
from tilth.storage.store.root import Folder

#: Bytes of a task; a larger part is cut by its row groups.
PIECE_BYTES = 64 << 20
#: Cost of a file that is opened, in bytes.
OPEN_BYTES = 256 << 10


class PartPiece(msgspec.Struct, frozen=True, kw_only=True):
    """Rows of one part."""

    source: PartSource
    #: The columns that readers see, for rows of this part: with the defaults that these rows have.
    wanted: Schema
    #: Range of rows; a row group belongs to the piece in which it begins.
    first: int
    end: int
    #: True if the statistics in the part's file judge values as Spark does.
    is_filterable: bool = False
    #: Version that brought the rows; 0: a snapshot is read.
    version: int = 0
    #: Deed of the version to the rows of the source.
    change: PartChangeKind = PartChangeKind.INSERT
    #: The part after the version, where its rows are compared; None: there is nothing to compare.
    after: PartSource | None = None
    #: The columns that readers see for rows of this one.
    wanted_after: Schema | None = None

    @property
    def bytes(self) -> int:
        """Bytes that are read at most."""
        share = (self.end - self.first) / max(1, self.source.rows)
        other = 0 if self.after is None else self.after.bytes
        return round((self.source.bytes + other) * share) + OPEN_BYTES


class ReadTask(msgspec.Struct, frozen=True, kw_only=True):
    """Facts that all tasks of a read know."""

    folder: Folder
    #: Ids of the columns, in the order in which rows have them.
    columns: tuple[int, ...]
    #: Arrow schema of the rows, as a message of IPC.
    schema: bytes
    predicate: Predicate
    #: Name of the table, for messages.
    table: str
    #: True if each row says in two more columns what happened to it, and in which version.
    has_changes: bool = False


def cut(piece: PartPiece) -> list[PartPiece]:
    """Cut a piece into such of a task's size. A segment has no row groups, and stays whole."""
    count = -(-piece.source.file.size // PIECE_BYTES)
    # A part that was written anew is compared with its source from end to end.
    is_whole = piece.source.is_segment or piece.change is PartChangeKind.REWRITE
    if is_whole or count < 2 or piece.end - piece.first < count:
        return [piece]
    rows = piece.end - piece.first
    ends = [piece.first + rows * number // count for number in range(count + 1)]
    return [msgspec.structs.replace(piece, first=first, end=end) for first, end in pairwise(ends)]


def shared_out(pieces: Sequence[PartPiece]) -> list[list[PartPiece]]:
    """Divide the pieces among tasks, neighbours together, up to a task's size."""
    tasks: list[list[PartPiece]] = []
    filled = 0
    for piece in pieces:
        if not tasks or filled + piece.bytes > PIECE_BYTES + OPEN_BYTES:
            tasks.append([])
            filled = 0
        tasks[-1].append(piece)
        filled += piece.bytes
    return tasks
