"""Transactions: the only way anything becomes true."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

import msgspec

from tilth.model.lease import Fence

_FILE_NAME = re.compile(r"(\d{1,19})-(\d+)\.(\d+)-(\d+)\.(\w+)")


class TxnState(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    ABORTED = "aborted"


class TxnOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Files that a transaction may write: enough to find them by name."""

    table: str
    #: Tasks are numbered from 0; each may be tried several times.
    tasks: int
    #: So many replicas at least have begun a file before the next one is begun.
    quorum: int = 1


class Txn(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction's record."""

    #: Hybrid time of its beginning.
    id: int
    #: Who writes: `consume db.k 0`, `merge db.t`, `insert`.
    actor: str
    state: TxnState
    fences: tuple[Fence, ...]
    outputs: tuple[TxnOutput, ...]
    #: The server whose end makes it lost.
    server: str
    commit_ts: int = 0
    #: Why it was aborted.
    reason: str = ""


class UnsweptTxn(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that landed, as long as files of its failed tries may be there."""

    #: As it was begun.
    txn: Txn
    #: Names of the files that its commit made true.
    keep: tuple[str, ...]
    #: Whether its tasks may have written after the commit.
    may_write_on: bool = False


class LostTxn(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that had landed, and that the catalog's database has lost with the end of its log."""

    #: As it was begun.
    txn: Txn
    commit_ts: int
    #: Uuids of the tables that it changed.
    tables: tuple[str, ...]
    #: Names of the files that its commit made true; nothing removes them for the loss.
    files: tuple[str, ...]
    #: The process that had seen it land, and when it found that it is missing.
    server: str
    found_ms: int
    #: The histories of the database, before and after.
    before: str
    now: str


class FileRun(msgspec.Struct, frozen=True, kw_only=True):
    """Files that one attempt of a task has written with one extension: numbered from 0 without a hole."""

    table: str
    task: int
    attempt: int
    extension: str
    #: A number that none of those seen so far has or exceeds; one that the attempt writes later may.
    files: int


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction that has ended, for as long as a task of it may still write a file that nobody will name."""

    #: As it was begun.
    txn: Txn
    #: Names of the files that its commit made true; none where it was aborted.
    keep: tuple[str, ...] = ()
    #: Time of the first removal of its files.
    since_ms: int
    #: Removals since.
    sweeps: int = 0
    #: Time of the next one.
    due_ms: int
    #: What was found so far: a file that is written later has a higher number, and no file below it leads there.
    runs: tuple[FileRun, ...] = ()


class FileName(NamedTuple):
    """Facts in the name of a file of a table."""

    txn: int
    task: int
    attempt: int
    n: int
    extension: str


def read_file_name(name: str) -> FileName | None:
    """Return what a name says; None: it is not the name of a file that a transaction writes."""
    found = _FILE_NAME.fullmatch(name)
    if found is None:
        return None
    return FileName(int(found[1]), int(found[2]), int(found[3]), int(found[4]), found[5])
