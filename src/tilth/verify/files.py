"""Checks of a table's visible files: size, checksum, rows, deletions, keys.

Covers: parts, segments and deltas of one snapshot. Does not cover: mending, damage that queries meet
(tilth.maintenance).
Always holds: reads only; a file that merges or garbage collection removed meanwhile is no fault.

Tests: tests/integration/sql/test_damaged_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tilth.base.errors import TilthError
from tilth.catalog import Catalog
from tilth.model.delta import PartSource, deleted_rows
from tilth.model.snapshot import Snapshot
from tilth.model.table import TableDef, full_name
from tilth.storage import (
    Folder,
    Roots,
    check_file,
    data_folder,
    footer_rows,
    layout_of,
    load_changes,
    read_segment,
    repeated_keys,
    sources_of,
    storage_settings,
)
from tilth.verify.report import NAMED_MAX, CheckResult


def check_files(catalog: Catalog, root: Roots, table: TableDef) -> Iterator[CheckResult]:
    folder = data_folder(root, table.uuid)
    snapshot = catalog.parts.snapshot(table.uuid)
    wrong: dict[str, str] = {}
    sources = []
    for part in snapshot.parts:
        try:
            sources += sources_of(snapshot.table, [part], snapshot.deltas)
            check_file(folder, part.file)
            rows = _rows_in(folder, sources[-1])
        except TilthError as error:
            wrong[part.file.name] = f"{part.name}: {error}"
            continue
        if rows != part.rows:
            wrong[part.file.name] = f"{part.name}: the file has {rows} rows, the catalog {part.rows}"
    for delta in snapshot.deltas:
        try:
            check_file(folder, delta.file, is_delta=True)
        except TilthError as error:
            wrong[delta.file.name] = f"{delta.file.name}: {error}"
    if not wrong:
        wrong = _wrong_deletes(folder, sources)
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
        yield from _check_keys(catalog, root, snapshot, sources)


def _rows_in(folder: Folder, source: PartSource) -> int:
    if not source.is_segment:
        return footer_rows(folder, source.file)
    first = source.schema.columns[0].name
    return sum(rows.num_rows for rows in read_segment(folder, source.file, source.schema, [first]))


def _wrong_deletes(folder: Folder, sources: Iterable[PartSource]) -> dict[str, str]:
    """Return by file the differences between the rows that deltas delete and the catalog's count of them."""
    wrong = {}
    for source in sources:
        if not source.deltas:
            continue
        expected = deleted_rows(source.file.name, source.deltas)
        try:
            found = len(load_changes(folder, source, ()).deleted)
        except TilthError as error:
            wrong[source.file.name] = f"{source.name}: {error}"
            continue
        if found != expected:
            wrong[source.file.name] = f"{source.name}: {found} rows are deleted, by the catalog {expected}"
    return wrong


def _check_keys(
    catalog: Catalog, root: Roots, snapshot: Snapshot, sources: Sequence[PartSource]
) -> Iterator[CheckResult]:
    table = snapshot.table
    scopes: dict[str, list[PartSource]] = {}
    for source in sources:
        scope = source.name.partition if storage_settings(table).partition_level_unique_keys else ""
        scopes.setdefault(scope, []).append(source)
    try:
        repeated = sum(repeated_keys(layout_of(table, root), parts) for parts in scopes.values())
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
