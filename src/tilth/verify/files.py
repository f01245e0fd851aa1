"""Checks of a table's visible files: size, checksum, rows, deletions, keys.

Covers: parts, segments and deltas of one snapshot. Does not cover: reading files (reading.py), mending, damage that
queries meet (tilth.maintenance).
Always holds: reads only; a file that merges or garbage collection removed meanwhile is no fault.

Tests: tests/integration/sql/test_damaged_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tilth.base.errors import TilthError
from tilth.catalog import Catalog
from tilth.model.delta import PartSource
from tilth.model.snapshot import Snapshot
from tilth.model.table import TableDef, full_name
from tilth.storage import Roots, data_folder, sources_of, storage_settings
from tilth.verify.reading import CheckedPart, DeletesOrder, FilesOrder, KeysOrder, Reads, Wrong
from tilth.verify.report import NAMED_MAX, CheckResult


def check_files(catalog: Catalog, root: Roots, table: TableDef, reads: Reads) -> Iterator[CheckResult]:
    folder = data_folder(root, table.uuid)
    snapshot = catalog.parts.snapshot(table.uuid)
    unknown: dict[str, str] = {}
    parts = []
    for part in snapshot.parts:
        try:
            [source] = sources_of(snapshot.table, [part], snapshot.deltas)
            parts.append(CheckedPart(source, part.rows))
        except TilthError as error:
            unknown[part.file.name] = f"{part.name}: {error}"
    sources = [part.source for part in parts]
    deltas = tuple(delta.file for delta in snapshot.deltas)
    found = unknown | _named(reads.wrong(FilesOrder(folder=folder, parts=tuple(parts), deltas=deltas)))
    names = [*(part.file.name for part in snapshot.parts), *(file.name for file in deltas)]
    wrong = {name: found[name] for name in names if name in found}
    if not wrong:
        wrong = _named(reads.wrong(DeletesOrder(folder=folder, sources=tuple(sources))))
    if wrong and catalog.parts.version(table.uuid).counter != snapshot.version:
        # Merges and garbage collection went on meanwhile: what is visible now must hold.
        now = catalog.parts.snapshot(table.uuid)
        visible = {part.file.name for part in now.parts} | {delta.file.name for delta in now.deltas}
        wrong = {file: what for file, what in wrong.items() if file in visible}
    files = len(snapshot.parts) + len(snapshot.deltas)
    yield CheckResult(
        subject=full_name(table),
        check="size, checksum and rows of every visible file",
        is_ok=not wrong,
        detail="; ".join(list(wrong.values())[:NAMED_MAX]) or f"{files} files, {_bytes(snapshot)} bytes",
    )
    if table.unique_key and not wrong:
        yield from _check_keys(catalog, root, snapshot, sources, reads)


def _named(found: Iterable[Wrong]) -> dict[str, str]:
    return {each.file: each.what for each in found}


def _check_keys(
    catalog: Catalog, root: Roots, snapshot: Snapshot, sources: Sequence[PartSource], reads: Reads
) -> Iterator[CheckResult]:
    table = snapshot.table
    scopes: dict[str, list[PartSource]] = {}
    for source in sources:
        scope = source.name.partition if storage_settings(table).partition_level_unique_keys else ""
        scopes.setdefault(scope, []).append(source)
    try:
        order = KeysOrder(table=table, root=root.of(table.uuid), scopes=tuple(map(tuple, scopes.values())))
        repeated = reads.repeated(order)
    except TilthError as error:
        if catalog.parts.version(table.uuid).counter != snapshot.version:
            # A file went while it was read: what it held is in others now.
            return
        raise error
    yield CheckResult(
        subject=full_name(table),
        check="each unique key has one row",
        is_ok=not repeated,
        detail=f"{snapshot.rows} rows, {repeated} of them with a key that another one has",
    )


def _bytes(snapshot: Snapshot) -> int:
    return snapshot.bytes + sum(delta.bytes for delta in snapshot.deltas)
