"""Folders of results that are in the tables' storages: whose they are, so that they go when their server is gone.

Covers: the records. Does not cover: the files (query/results/stored.py), who removes folders of servers that are gone
(maintenance/cleaner/left_results.py).
Always holds: a folder has its record before its first file, until it is removed for the last time: a task that was
cancelled, or cut off, may still write into it for a while.

Tests: tests/unit/maintenance/cleaner/test_left_results.py.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tilth.base.clock import Clock
from tilth.catalog.services.switches import SavedState

_KEY = "query/results"


class ResultFolder(msgspec.Struct, frozen=True, kw_only=True):
    """The folder of a result."""

    #: Id of the server that streams it.
    server: str
    #: Root below which it is, as `parse_root` reads it.
    root: str
    #: Time when it was first removed, by the clock of whoever did it; 0: it is in use.
    removed_ms: int = 0


_Folders = dict[str, ResultFolder]


class ResultFolders:
    """`catalog.results`: the folders by their paths below the roots."""

    def __init__(self, clock: Clock, state: SavedState) -> None:
        self._clock = clock
        self._state = state

    def all(self) -> _Folders:
        return _decoded(self._state.get(_KEY))

    def add(self, path: str, folder: ResultFolder) -> None:
        self._change(lambda folders: folders | {path: folder})

    def note_removal(self, path: str) -> None:
        """Note that the folder is removed now, or as good as removed: it is removed once more later."""
        now_ms = self._clock.now_ms()

        def step(folders: _Folders) -> _Folders:
            folder = folders.get(path)
            if folder is None or folder.removed_ms:
                return folders
            return folders | {path: msgspec.structs.replace(folder, removed_ms=now_ms)}

        self._change(step)

    def forget(self, path: str) -> None:
        self._change(lambda folders: {each: folder for each, folder in folders.items() if each != path})

    def _change(self, step: Callable[[_Folders], _Folders]) -> None:
        self._state.change(_KEY, lambda found: msgspec.msgpack.encode(step(_decoded(found))))


def _decoded(found: bytes | None) -> _Folders:
    return {} if found is None else msgspec.msgpack.decode(found, type=_Folders)
