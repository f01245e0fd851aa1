"""Servers without a heartbeat for long. Pure: sightings in, silent seconds out.

Always holds: only the watcher's own clock counts, which no setting of a machine's time changes; a record that has
changed since it was last seen belongs to a live server.

Tests: tests/unit/membership/test_member_threads.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tilth.model.server import ServerRecord


@dataclass(slots=True)
class SilenceWatch:
    """One watcher's memory of the others."""

    #: Last renewal and when it was first seen, by id.
    _seen: dict[str, tuple[int, float]] = field(default_factory=dict)

    def silent_seconds(self, records: Iterable[ServerRecord], now: float) -> dict[str, float]:
        """Return for each server that counts as alive how long its record has not changed, by id."""
        seen, self._seen = self._seen, {}
        for record in records:
            if not record.lives:
                continue
            known = seen.get(record.id)
            same = known is not None and known[0] == record.renewed_ms
            self._seen[record.id] = known if known is not None and same else (record.renewed_ms, now)
        return {id_: now - since for id_, (_, since) in self._seen.items()}
