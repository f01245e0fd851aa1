"""Commits of offsets without rows: first offsets, moves, gaps, subscriptions."""

from __future__ import annotations

from collections.abc import Sequence

from tilth.base.errors import UnknownOutcomeError
from tilth.catalog import Catalog, Update
from tilth.model.table import KafkaDef, full_name


def commit_offsets(catalog: Catalog, kafka: KafkaDef, updates: Sequence[Update]) -> None:
    """One transaction without files. What refuses it leaves nothing behind."""
    transactions = catalog.transactions
    txn = transactions.begin(f"offsets {full_name(kafka)}")
    try:
        transactions.commit_or_raise(txn.id, updates)
    except UnknownOutcomeError:
        raise
    except BaseException as error:
        transactions.abort(txn.id, f"{type(error).__name__}: {error}")
        raise
