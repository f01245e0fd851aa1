"""The life of transactions and leases. Pure: values in, values out; a forbidden step raises.

    begin -> RUNNING -> FINISHED     finish: by the one commit; the record is final for everybody
                    \\-> ABORTED     abort: by its actor, by the manager, or because its server is gone;
                                    the cleaner removes its files by name and then the record

A lease's record stays after release, so that the epoch never goes back:

    (none) -> held(epoch 1) -> released(holder "") -> held(epoch 2)
                            \\-> acquired by another: held(epoch 2)

Tests: tests/unit/catalog/commit/test_transactions.py.
"""

from __future__ import annotations

import msgspec

from tilth.base.errors import ConflictError, FencedError
from tilth.catalog.errors import TxnAbortedError, TxnFinishedError
from tilth.model.lease import Fence, Lease
from tilth.model.txn import Txn, TxnState

#: The holder of a released lease.
NOBODY = ""


def finish(txn: Txn, *, commit_ts: int) -> Txn:
    """Raises TxnAbortedError when it was aborted."""
    check_running(txn)
    return msgspec.structs.replace(txn, state=TxnState.FINISHED, commit_ts=commit_ts)


def abort(txn: Txn, *, reason: str) -> Txn:
    """Raises TxnFinishedError when it is committed; aborting twice keeps the first reason."""
    if txn.state is TxnState.FINISHED:
        raise TxnFinishedError(txn=txn.id, actor=txn.actor, hint="its parts are visible: keep its files")
    if txn.state is TxnState.ABORTED:
        return txn
    return msgspec.structs.replace(txn, state=TxnState.ABORTED, reason=reason)


def check_running(txn: Txn) -> None:
    """Raises TxnAbortedError when the transaction cannot commit any more."""
    if txn.state is TxnState.ABORTED:
        raise TxnAbortedError(txn=txn.id, actor=txn.actor, reason=txn.reason, hint="begin a new transaction")


def check_forgettable(txn: Txn) -> None:
    """Raises unless the transaction was aborted."""
    if txn.state is TxnState.RUNNING:
        raise ConflictError.coded(
            "TXN_RUNNING", "the transaction still runs", txn=txn.id, actor=txn.actor, hint="abort it first"
        )


def acquired(lease: Lease | None, *, name: str, holder: str, floor: int = 0) -> Lease:
    """Return the lease with its new holder and an epoch above the old one and the floor."""
    return Lease(name=name, holder=holder, epoch=1 + max(floor, 0 if lease is None else lease.epoch))


def released(lease: Lease) -> Lease:
    return msgspec.structs.replace(lease, holder=NOBODY)


def is_held(lease: Lease | None, fence: Fence) -> bool:
    return lease is not None and lease.epoch == fence.epoch and lease.holder != NOBODY


def check_fence(lease: Lease | None, fence: Fence) -> None:
    if not is_held(lease, fence):
        now = "none" if lease is None else lease.epoch
        holder = "nobody" if lease is None or lease.holder == NOBODY else lease.holder
        raise FencedError(fence=fence.name, epoch=fence.epoch, now_epoch=now, now_holder=holder)
