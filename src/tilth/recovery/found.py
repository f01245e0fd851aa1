"""Files below the roots of a node, as a listing shows them.

Covers: listing, which table a file belongs to, the facts in its name. Does not cover: what is in it. Always holds:
while a node works, only SYSTEM CHECK FILES (tilth.verify) lists.

Tests: tests/unit/recovery/test_rebuild.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tilth.base.hybrid import pack
from tilth.model.txn import read_file_name
from tilth.recovery.journal import journal_folder
from tilth.recovery.txn_notes import notes_folder
from tilth.storage import (
    EXTENSIONS,
    FILTER_EXTENSION,
    MAP_EXTENSION,
    Folder,
    StoreRoot,
    data_folder,
    list_files,
    sidecar_name,
)

#: `{uuid}/data/{name}`.
_DATA_FILE = re.compile(r"([0-9a-f]{32})/data/([^/]+)")
#: Files by which nodes and workers find a root again and prove that they see the same one.
_MARKS = re.compile(r"(?:[^/]+/)?\.tilth|\.server-probe(?:-[^/]*)?|\.worker-probe-[^/]*")
_SIDECARS = (MAP_EXTENSION, FILTER_EXTENSION)
_EXTENSIONS = (*EXTENSIONS, *_SIDECARS)


#: Bound on the difference between the clocks of two machines.
CLOCKS_MS_MAX = 86_400_000


@dataclass(frozen=True, slots=True)
class TableFiles:
    """Files in the folder of one table."""

    folder: Folder
    #: Sizes by name.
    sizes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """Files below the roots."""

    #: Tables by uuid.
    tables: dict[str, TableFiles]
    #: Addresses of files that Tilth did not write.
    foreign: list[str]

    @property
    def newest_txn(self) -> int:
        """Return the greatest id of a transaction in a name."""
        return max((txn_of(name) or 0 for each in self.tables.values() for name in each.sizes), default=0)


def has_tables(root: StoreRoot) -> bool:
    """Return whether there are files of tables or a catalog's journal below the root; the listing ends at the first.

    Raises the error of a store that does not answer.
    """
    journal = f"{journal_folder(root).path}/"
    return any(path.startswith(journal) or _DATA_FILE.fullmatch(path) for path, *_ in list_files(Folder(root)))


def find_files(roots: Sequence[StoreRoot], *, now_ms: int) -> FoundFiles:
    """List all files below the roots. Raises the errors of a store that does not answer.

    A name with an id that no transaction can have by now is none of ours: ids are drawn above all that were found.
    """
    txn_max = pack(now_ms + CLOCKS_MS_MAX)
    found = FoundFiles({}, [])
    for root in roots:
        whole, own = Folder(root), (f"{journal_folder(root).path}/", f"{notes_folder(root).path}/")
        for path, size, *_ in list_files(whole):
            match = _DATA_FILE.fullmatch(path)
            txn = None if match is None else txn_of(match[2])
            if match is not None and txn is not None and txn <= txn_max:
                table = found.tables.setdefault(match[1], TableFiles(data_folder(root, match[1])))
                table.sizes[match[2]] = size
            elif not path.startswith(own) and not _MARKS.fullmatch(path):
                found.foreign.append(whole.uri(path))
    return found


class WrittenBy(NamedTuple):
    """The attempt that wrote a file, parsed from its name; sorts in the order of their starts."""

    txn: int
    task: int
    attempt: int
    #: Files that the attempt wrote before.
    n: int


def written_by(name: str) -> WrittenBy | None:
    """Return what wrote a file; None: its name is none of ours."""
    found = read_file_name(name)
    if found is None or found.extension not in _EXTENSIONS:
        return None
    return WrittenBy(found.txn, found.task, found.attempt, found.n)


def txn_of(name: str) -> int | None:
    """Return the transaction whose task wrote a file; None: its name is none of ours."""
    by = written_by(name)
    return None if by is None else by.txn


def without_sidecars(names: Iterable[str]) -> list[str]:
    """Return the names of files that are not beside another one of them."""
    all_names = set(names)
    beside = {
        sidecar_name(name, extension) for name in all_names for extension in _SIDECARS if name.endswith("parquet")
    }
    return sorted(all_names - beside)
