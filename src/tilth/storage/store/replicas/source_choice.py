"""The choice of the replica from which a scan reads each file.

Covers: the choice, before anything is read. Does not cover: reads that find another copy by themselves
(files/files.py).
Always holds: one replica for all files where one is known to have them, and no store is called then.

Tests: tests/integration/storage/test_storages.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilth.base.errors import TilthError
from tilth.model.part import DataFile
from tilth.storage.store.replicas.replica import Replica, replicas_of
from tilth.storage.store.root import Folder


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """Files that are read from one folder, each with its index in the list that was given."""

    folder: Folder
    files: list[tuple[int, DataFile]]


def choose_sources(folder: Folder, files: Sequence[DataFile]) -> list[SourceFiles]:
    """Return the files by the folder from which they are read; of a root without replicas that is the folder itself."""
    numbered = list(enumerate(files))
    if not folder.root.replicas:
        return [SourceFiles(folder, numbered)]
    usable = [each for each in replicas_of(folder.root) if not each.trouble] or replicas_of(folder.root)
    whole = next((each for each in usable if each.number not in folder.root.incomplete), None)
    if whole is not None:
        return [SourceFiles(Folder(whole.root, folder.path), numbered)]
    found = []
    for each in usable[:-1]:
        there = _there(each, folder, [file for _, file in numbered])
        here = [pair for pair, is_there in zip(numbered, there, strict=True) if is_there]
        numbered = [pair for pair, is_there in zip(numbered, there, strict=True) if not is_there]
        if here:
            found.append(SourceFiles(Folder(each.root, folder.path), here))
    if numbered:
        # A file that is nowhere is reported as missing by whoever reads it.
        found.append(SourceFiles(Folder(usable[-1].root, folder.path), numbered))
    return found


def _there(replica: Replica, folder: Folder, files: Sequence[DataFile]) -> list[bool]:
    try:
        return replica.store.exist([folder.key(file.name) for file in files])
    except (TilthError, OSError) as error:
        replica.health.note_error(error)
        return [False] * len(files)
