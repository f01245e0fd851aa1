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
    #: Minimum number of replicas that have begun a file before the next one is begun.
    quorum: int = 1


class Txn(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction's record."""

    #: Hybrid time of its beginning.
    id: int
    #: Writer: `consume db.k 0`, `merge db.t`, `insert`.
    actor: str
    state: TxnState
    fences: tuple[Fence, ...]
    outputs: tuple[TxnOutput, ...]
    #: The server whose end makes it lost.
    server: str
    commit_ts: int = 0
    #: Reason why it was aborted.
    reason: str = ""


class LeftoverNote(msgspec.Struct, frozen=True, kw_only=True):
    """Note of a committed transaction, stored as long as files of its failed tries may exist."""

    #: Transaction as it was begun.
    txn: Txn
    #: Names of the files that its commit made true.
    keep: tuple[str, ...]
    #: `True` if its tasks may have written after the commit.
    may_write_on: bool = False


class LostTxn(msgspec.Struct, frozen=True, kw_only=True):
    """A committed transaction that the catalog's database has lost with the end of its log."""

    #: The transaction as it was begun.
    txn: Txn
    commit_ts: int
    #: Uuids of the tables that it changed.
    tables: tuple[str, ...]
    #: Names of the files that it had committed; they are not removed because of the loss.
    files: tuple[str, ...]
    #: Process that had seen the commit.
    server: str
    #: Time at which that process found the transaction missing.
    found_ms: int
    #: History of the database before the loss.
    before: str
    #: History of the database after the loss.
    now: str


class FileRun(msgspec.Struct, frozen=True, kw_only=True):
    """Files that one attempt of a task has written with one extension: numbered from 0 without a gap."""

    table: str
    task: int
    attempt: int
    extension: str
    #: Number from which later files are searched; it is greater than those of all files that were found.
    files: int


class Tombstone(msgspec.Struct, frozen=True, kw_only=True):
    """An ended transaction, recorded as long as one of its tasks may still write a file that no commit will name."""

    #: The transaction as it was begun.
    txn: Txn
    #: Names of the files that it has committed; empty if it was aborted.
    keep: tuple[str, ...] = ()
    #: Time of the first removal of its files.
    since_ms: int
    #: Number of removals since then.
    sweeps: int = 0
    #: Time of the next removal.
    due_ms: int
    #: Runs that earlier removals have found; later files are searched from their ends, because the first are removed.
    runs: tuple[FileRun, ...] = ()


class FileName(NamedTuple):
    """Parts of the name of a table's file."""

    txn: int
    task: int
    attempt: int
    n: int
    extension: str


def read_file_name(name: str) -> FileName | None:
    """Return the parts of a name; None: it is not the name of a file that a transaction writes."""
    found = _FILE_NAME.fullmatch(name)
    if found is None:
        return None
    return FileName(int(found[1]), int(found[2]), int(found[3]), int(found[4]), found[5])
