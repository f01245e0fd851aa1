"""Transactions of statements that run: the cleaner leaves them alone, however long they take.

Always holds: a transaction whose statement failed is aborted, by the statement or, where the catalog cannot be written,
by the cleaner later; one whose outcome is unknown is left as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from tilth.base.errors import TilthError, UnknownOutcomeError
from tilth.base.logs import Log
from tilth.catalog import Catalog
from tilth.model.txn import Txn, TxnOutput

_log = Log("sql")


class OpenTxns:
    """Of one server. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ids: set[int] = set()

    def ids(self) -> set[int]:
        with self._lock:
            return set(self._ids)

    @contextmanager
    def begun(self, catalog: Catalog, actor: str, outputs: Sequence[TxnOutput]) -> Iterator[Txn]:
        """A new transaction, which is aborted when the statement fails inside."""
        txn = catalog.transactions.begin(actor, outputs=outputs)
        with self._lock:
            self._ids.add(txn.id)
        try:
            yield txn
        except UnknownOutcomeError:
            raise
        except BaseException as error:
            _abort(catalog, txn, error)
            raise
        finally:
            with self._lock:
                self._ids.discard(txn.id)


def _abort(catalog: Catalog, txn: Txn, error: BaseException) -> None:
    try:
        catalog.transactions.abort(txn.id, f"{type(error).__name__}: {error}")
    except TilthError as left:
        # Why the statement failed says more; the cleaner finds the transaction later.
        _log.warning("abort_left_to_cleaner", cause_id=str(txn.id), reason=left)
