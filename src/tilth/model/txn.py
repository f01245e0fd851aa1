"""Transactions: the only way anything becomes true."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from tilth.model.lease import Fence


class TxnState(StrEnum):
    RUNNING = "running"
    FINISHED = "finished"
    ABORTED = "aborted"


class TxnOutput(msgspec.Struct, frozen=True, kw_only=True):
    """Files that a transaction may write: enough to find them by name."""

    table: str
    #: Tasks are numbered from 0; each may be tried several times.
    tasks: int


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
