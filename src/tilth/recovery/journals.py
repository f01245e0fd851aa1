"""Journals of catalogs that were lost: which one counts, and its content.

Covers: finding the newest generation that is whole, reading it into a store. Does not cover: comparing it with the
files of tables (rebuild.py). Always holds: what comes behind a hole or a damaged file of a journal is not read.

Tests: tests/unit/recovery/test_files_alone.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from tilth.catalog import BadDumpError, ByteSource, KeyValue, load_dump, read_dump, read_key_changes
from tilth.recovery.journal import journal_folder, journal_name, parse_journal_name
from tilth.storage import Folder, StoreRoot, list_files, open_file


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJournal:
    """One generation of a journal."""

    folder: Folder
    generation: int
    #: Numbers of the existing files, in order; the first is 0.
    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedJournal:
    """End of what a journal knows."""

    known_until_ms: int
    #: Reason why a part was not read; empty: all was read.
    trouble: str = ""


def find_journals(roots: Sequence[StoreRoot]) -> list[FoundJournal]:
    """Return the generations that have a beginning, the newest first."""
    found: list[FoundJournal] = []
    for root in roots:
        folder = journal_folder(root)
        numbers: dict[int, set[int]] = {}
        for found_file in list_files(folder):
            parsed = parse_journal_name(found_file.path)
            if parsed is not None:
                numbers.setdefault(parsed[0], set()).add(parsed[1])
        found += [
            FoundJournal(folder=folder, generation=generation, numbers=tuple(sorted(each)))
            for generation, each in numbers.items()
            if 0 in each
        ]
    return sorted(found, key=lambda each: each.generation, reverse=True)


def usable_journal(journals: Sequence[FoundJournal]) -> tuple[FoundJournal | None, list[str]]:
    """Return the newest one whose beginning is whole, and the addresses of newer beginnings that are not."""
    damaged: list[str] = []
    for journal in journals:
        name = journal_name(journal.generation, 0)
        try:
            with _open(journal.folder, name) as source:
                for _ in read_dump(source)[1]:
                    pass
        except BadDumpError:
            damaged.append(journal.folder.uri(name))
            continue
        return journal, damaged
    return None, damaged


def load_journal(journal: FoundJournal, store: KeyValue) -> LoadedJournal:
    """Bring all that the journal knows into an empty store."""
    with _open(journal.folder, journal_name(journal.generation, 0)) as source:
        header, _ = load_dump(source, store)
    known_until_ms = header.created_ms
    for expected, number in enumerate(journal.numbers[1:], 1):
        name = journal_name(journal.generation, number)
        if number != expected:
            missing = journal.folder.uri(journal_name(journal.generation, expected))
            return LoadedJournal(known_until_ms=known_until_ms, trouble=f"{missing} is not there")
        try:
            with _open(journal.folder, name) as source:
                header, changes = read_key_changes(source)
        except BadDumpError as error:
            trouble = f"{journal.folder.uri(name)}: {error.message}"
            return LoadedJournal(known_until_ms=known_until_ms, trouble=trouble)
        puts = {key: value for key, value in changes.items() if value is not None}
        store.commit([], puts, [key for key, value in changes.items() if value is None])
        known_until_ms = header.created_ms
    return LoadedJournal(known_until_ms=known_until_ms)


@contextmanager
def _open(folder: Folder, name: str) -> Iterator[ByteSource]:
    try:
        source: ByteSource = open_file(folder, name)
    # An empty file cannot be mapped.
    except (ValueError, OSError) as error:
        raise BadDumpError("the file cannot be read", file=folder.uri(name), reason=error) from error
    with closing(source):
        yield source
