"""Files of users that COPY INTO has loaded into a table."""

from __future__ import annotations

import msgspec


class SkippedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of a file that could not be stored."""

    #: Its line, or its row in a file without lines, counted from 1 where the block of the file begins.
    line: int
    #: Byte at which the block begins: files are read in blocks; 0: the line is counted from the file's beginning.
    block_start: int = 0
    reason: str
    #: The beginning of the line; empty for a file without lines.
    raw: bytes = b""


class LoadedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file whose rows are in a table: a record of the table's ledger of files."""

    #: Address of the file: a path of the local disk, or `s3://bucket/path` and its like.
    file: str
    size: int
    #: Mark of the file's content from its store (an ETag); empty where the store has none.
    tag: str = ""
    #: Time of its last change, by the clock of its store.
    modified_ms: int
    #: Rows that were stored.
    rows: int
    #: Rows that could not be stored, and were skipped.
    skipped: tuple[SkippedRow, ...] = ()
    #: The statement that loaded it.
    query_id: str
    #: The transaction and the time of its commit; 0 until then.
    txn: int = 0
    commit_ts: int = 0

    def is_like(self, other: LoadedFile) -> bool:
        """Return whether the file has the same content, as its store says."""
        if self.tag and other.tag:
            return (self.size, self.tag) == (other.size, other.tag)
        return (self.size, self.modified_ms) == (other.size, other.modified_ms)
