"""Labels of inserts: the same insert sent twice is stored once.

Always holds: a label is recorded in the batch of its insert's commit (InsertLabel), so either both are true or neither.

Tests: tests/unit/catalog/parts/test_history.py.
"""

from __future__ import annotations

from itertools import islice

from tilth.base.clock import Clock
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack, span
from tilth.catalog.records.nouns import LabelRecord
from tilth.catalog.records.small_commit import REMOVE_BATCH, Plan, change, read, unchanged


class Labels:
    """`catalog.labels`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def find(self, table: str, label: str) -> LabelRecord | None:
        """The committed insert with that label; None: there was none, or it is forgotten."""
        return read(self._kv, pack(Space.LABEL, table, label), codec.LABELS)

    def trim(self, before_ts: int) -> int:
        """Forget the labels of all tables that were recorded before a hybrid time; return how many."""

        def plan(view: ReadView) -> Plan[int]:
            old = (
                (key, found)
                for key, found in view.scan(*span(Space.LABEL))
                if codec.LABELS.decode(key, found.value).commit_ts < before_ts
            )
            batch = list(islice(old, REMOVE_BATCH))
            pinned = [unchanged(key, found) for key, found in batch]
            return Plan(result=len(batch), preconditions=pinned, deletes=[key for key, _ in batch])

        removed = 0
        while batch := change(self._kv, self._clock, plan):
            removed += batch
        return removed
