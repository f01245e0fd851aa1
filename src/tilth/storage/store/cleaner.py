"""Removing files: of transactions that did not land, of parts and deltas that left their table, of dropped tables.

Covers: removal by name. Does not cover: when something may be removed (catalog, maintenance).
Always holds: no folder of part files is ever listed to decide what goes; removing twice is no error; what lies
beside a part's file goes before it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection

from tilth.model.part import DataFile
from tilth.model.txn import Txn
from tilth.storage.store.files import remove
from tilth.storage.store.paths import (
    EXTENSIONS,
    PART_EXTENSION,
    SIDECAR_EXTENSIONS,
    data_folder,
    file_name,
    sidecar_name,
    table_folder,
)

#: Attempts of a task that are looked for; Spark gives up after fewer.
ATTEMPTS_MAX = 8


def clean_transaction(root: str, txn: Txn, *, keep: Collection[str] = ()) -> int:
    """Remove the files that the transaction's tasks may have left, but for those named in `keep`; return how many.

    For a transaction that did not land: without `keep`. For one that did: with the names of the files that it
    committed, to rid the table of what failed attempts left.
    """
    removed = 0
    for output in txn.outputs:
        folder = data_folder(root, output.table)
        for task in range(output.tasks):
            for attempt in range(ATTEMPTS_MAX):
                for extension in EXTENSIONS:
                    removed += _clean_attempt(folder, txn.id, task, attempt, extension, keep)
    return removed


def remove_file(root: str, table: str, file: DataFile) -> bool:
    """Remove a file of a part or a delta, and what lies beside it; False where it is gone already."""
    return _remove(data_folder(root, table), file.name)


def drop_table_folder(root: str, uuid: str) -> None:
    """Remove everything of a table; nothing where there is nothing."""
    folder = table_folder(root, uuid)
    if os.path.isdir(folder):
        shutil.rmtree(folder)


def _clean_attempt(folder: str, txn: int, task: int, attempt: int, extension: str, keep: Collection[str]) -> int:
    """Remove from the last file to the first, so that a crash in between leaves no hole."""
    names: list[str] = []
    while os.path.exists(path := os.path.join(folder, _name(txn, task, attempt, len(names), extension))):
        names.append(os.path.basename(path))
    if extension == PART_EXTENSION:
        # A row map is begun before the part beside it.
        _remove_sidecars(folder, _name(txn, task, attempt, len(names), extension))
    return sum(_remove(folder, name) for name in reversed(names) if name not in keep)


def _name(txn: int, task: int, attempt: int, n: int, extension: str) -> str:
    return file_name(txn=txn, task=task, attempt=attempt, n=n, extension=extension)


def _remove(folder: str, name: str) -> bool:
    if name.endswith(f".{PART_EXTENSION}"):
        _remove_sidecars(folder, name)
    return remove(os.path.join(folder, name))


def _remove_sidecars(folder: str, name: str) -> None:
    for extension in SIDECAR_EXTENSIONS:
        remove(os.path.join(folder, sidecar_name(name, extension)))
