"""The journal: what a catalog knows, and what changes in it, beside the files of tables.

    ROOT/catalog-journal/GENERATION-0        the catalog as it was when the generation began
                         GENERATION-1, ..    what has changed since, each after the one before

Covers: writing it while a node works, its names. Does not cover: the format of the files (tilth.catalog), making a
catalog of them (rebuild.py).
Always holds: no commit waits for it; a generation is removed when a newer one is whole; what could not be written
begins a new generation; nothing in it is a secret. Only a rebuild lists the files.

Tests: tests/unit/recovery/test_rebuild.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from tilth.base.clock import Clock
from tilth.base.units import MIB
from tilth.catalog import Catalog, DumpHeader, FollowedKV, is_journaled, write_key_changes, write_view
from tilth.recovery.background_writer import BackgroundWriter
from tilth.storage import Folder, StoreRoot, are_there, make_folder, new_whole_file, remove_files

#: A new generation begins when the changes of this one have as many bytes as its beginning, and these at least.
CHANGES_BYTES_MIN = 4 * MIB
CHANGES_FILES_MAX = 10_000
#: Maximum pause between writes that fail.
PAUSE_SECONDS_MAX = 60.0
#: Names that are probed at a time.
_PROBE_NAMES = 100
_GENERATIONS = "recovery/generations"
_NAME = re.compile(r"(\d{13,20})-(\d{1,9})")


def journal_folder(root: StoreRoot) -> Folder:
    return Folder(root, "catalog-journal")


def journal_name(generation: int, number: int) -> str:
    return f"{generation:013d}-{number}"


def parse_journal_name(name: str) -> tuple[int, int] | None:
    """Return generation and number; None for another file."""
    found = _NAME.fullmatch(name)
    return None if found is None else (int(found[1]), int(found[2]))


class Journal(BackgroundWriter):
    """Writes the journal of one catalog from a thread of its own."""

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        kv: FollowedKV,
        root: StoreRoot,
        *,
        header: Callable[[], DumpHeader],
        seconds: float,
    ) -> None:
        """`kv`: the store of the catalog; `seconds`: between two polls for changes."""
        super().__init__(
            clock,
            journal_folder(root),
            name="journal",
            first_seconds=0.0,
            seconds=seconds,
            pause_seconds_max=PAUSE_SECONDS_MAX,
        )
        self._catalog = catalog
        self._kv = kv
        self._header = header
        #: None: one has to begin.
        self._generation: int | None = None
        self._number = 0
        self._first_bytes = 0
        self._later_bytes = 0

    def _reset(self) -> None:
        """A failed write begins a new generation."""
        self._generation = None

    def _write(self) -> None:
        changes = None if self._generation is None else self._kv.drain()
        if changes is None or self._is_long():
            self._begin()
        elif changes:
            self._number += 1
            with new_whole_file(self._folder, self._file_name(self._number), fsync=False) as sink:
                write_key_changes(changes, self._header(), sink)
                self._later_bytes += sink.written.size

    def _is_long(self) -> bool:
        return self._number >= CHANGES_FILES_MAX or self._later_bytes > max(CHANGES_BYTES_MIN, self._first_bytes)

    def _begin(self) -> None:
        """Write all that is known now, and remove what was written before."""
        former = self._generations()
        generation = max(self._clock.now_ms(), max(former, default=0) + 1)
        self._put_generations([*former, generation])
        try:
            make_folder(self._folder, fsync=True)
            with self._kv.begin() as view, new_whole_file(self._folder, journal_name(generation, 0)) as sink:
                write_view(view, self._header(), sink, is_kept=is_journaled, between=lambda: None)
                self._first_bytes = sink.written.size
        except BaseException:
            # Nothing is left of it.
            self._put_generations(former)
            raise
        self._generation, self._number, self._later_bytes = generation, 0, 0
        for each in former:
            self._remove(each)
        self._put_generations([generation])

    def _remove(self, generation: int) -> None:
        """Remove the files of a generation, the first one last: without it the others are nothing."""
        count = 0
        while True:
            names = [journal_name(generation, count + number) for number in range(_PROBE_NAMES)]
            found = are_there(self._folder, names)
            count += found.index(False) if False in found else _PROBE_NAMES
            if False in found:
                break
        remove_files(self._folder, [journal_name(generation, number) for number in reversed(range(count))])

    def _file_name(self, number: int) -> str:
        assert self._generation is not None
        return journal_name(self._generation, number)

    def _generations(self) -> list[int]:
        found = self._catalog.state.get(_GENERATIONS)
        return [] if found is None else msgspec.msgpack.decode(found, type=list[int])

    def _put_generations(self, generations: list[int]) -> None:
        self._catalog.state.put(_GENERATIONS, msgspec.msgpack.encode(generations))
