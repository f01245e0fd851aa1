"""News of parts on their way to the ops of their tables.

Covers: who gets an event, tables of which events were missed. Does not cover: reading the part log (feed.py), what an
op makes of an event (the folders of their kinds).
Always holds: a step ends when its time is over and the next one goes on where it ended; events of one table are
reported in the order in which they were read.

Tests: tests/unit/maintenance/manager/test_manager.py, tests/unit/maintenance/manager/test_turns.py.
"""

from __future__ import annotations

from collections.abc import Callable

from tilth.catalog import Catalog
from tilth.maintenance.manager.feed import PartFeed
from tilth.maintenance.manager.poller import Poller
from tilth.maintenance.manager.registry import Registry
from tilth.maintenance.manager.table_ops import TableOps
from tilth.maintenance.work.slots import RewriteSlots
from tilth.model.part import PartEvent


class News:
    """The news of one manager. For its thread alone."""

    def __init__(
        self,
        catalog: Catalog,
        registry: Registry,
        poller: Poller,
        rewrite_slots: RewriteSlots,
        *,
        unknown: Callable[[str], None],
    ) -> None:
        """`unknown(uuid)` is called for a table that is not registered."""
        self._feed = PartFeed(catalog)
        self._registry = registry
        self._poller = poller
        self._rewrite_slots = rewrite_slots
        self._unknown = unknown
        #: Tables of which events were missed and that were not notified yet, in their turn.
        self._doubted: dict[str, TableOps] = {}

    def report(self, now_ms: int, is_over: Callable[[], bool]) -> bool:
        """Report what the part log has; return whether some of it is left."""
        while True:
            is_first = not self._feed.has_begun
            events, is_all = self._feed.news(now_ms)
            for event in events:
                self._report(event, is_first=is_first)
            # After a start, older events miss in the statistics only: every table is polled anyway.
            if not is_all and not is_first:
                for table in self._registry.all():
                    table.watch.doubt_version()
                    self._doubted.setdefault(table.watch.uuid, table)
            self._notice_doubted(is_over)
            is_behind = self._feed.is_behind or bool(self._doubted)
            if not is_behind or is_over():
                return is_behind

    def _report(self, event: PartEvent, *, is_first: bool) -> None:
        self._rewrite_slots.observe(event)
        known = self._registry.known(event.table)
        if not known:
            # A table that nobody reported, or one that was dropped.
            self._unknown(event.table)
        for table in known:
            partition = table.watch.observe(event)
            for op in table.ops:
                op.observe(event, partition)
            if not is_first:
                self._poller.urge(table)

    def _notice_doubted(self, is_over: Callable[[], bool]) -> None:
        while self._doubted:
            table = self._doubted.pop(next(iter(self._doubted)))
            table.notice_all()
            self._poller.urge(table)
            if is_over():
                return
