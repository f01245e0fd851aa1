"""Folders of results in the tables' storages, of which nothing is read any more.

Covers: those that their servers have ended, and those of servers that are gone. Does not cover: the end of a result
(query/snapshots/snapshots.py).
Always holds: the folder of a result that a living server streams stays; each folder is removed twice, some time apart,
because a task that was cancelled, or whose server was killed, may write into it for a while.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.catalog import Catalog, ResultFolder
from tilth.maintenance.cleaner.current_replicas import current_root
from tilth.storage import Folder, parse_root, remove_folder

#: Time between the two removals.
LATE_MS = 120_000
#: Removals of one round; the next round makes the others.
REMOVALS_MAX = 100

_log = Log("maintenance")


class LeftResults:
    """The folders that one server, the coordinator, removes for all."""

    def __init__(self, clock: Clock, catalog: Catalog) -> None:
        self._clock = clock
        self._catalog = catalog

    def remove(self, guarded: Callable[[str, str, Callable[[], None]], None]) -> None:
        """Remove what is due; `guarded` runs a step of this name for this thing, and logs its error."""
        folders = self._catalog.results.all()
        if not folders:
            return
        living = {each.id for each in self._catalog.servers.live()} | {self._catalog.server}
        now_ms = self._clock.now_ms()
        due = [
            (path, folder)
            for path, folder in folders.items()
            if (now_ms - folder.removed_ms >= LATE_MS if folder.removed_ms else folder.server not in living)
        ]
        for path, folder in due[:REMOVALS_MAX]:
            guarded("remove_result", path, partial(self._remove, path, folder))

    def _remove(self, path: str, folder: ResultFolder) -> None:
        remove_folder(Folder(current_root(self._catalog, parse_root(folder.root)), path))
        if folder.removed_ms:
            self._catalog.results.forget(path)
        else:
            _log.info("result_folder_removed", cause_id=path, server=folder.server)
            self._catalog.results.note_removal(path)
