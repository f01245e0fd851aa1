"""Data folders that releases have written: catalog, files and journal are read, rows and definitions are the same.

They are made by tools/data_fixture.py, one for each release with formats of its own, and never changed.

Modules: recovery/rebuild.py, catalog/kv/rocksdb.py.
"""

from __future__ import annotations

import json
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.sql_world import SqlWorld
from tilth.catalog import Catalog, RocksKV
from tilth.model.table import Column, TableDef
from tilth.query.language.values import literal
from tilth.recovery import RebuildOptions, rebuild_catalog
from tilth.storage import StoreRoot, data_folder, local_root, read_source, sources_of
from tilth.verify import verify

FIXTURES = Path(__file__).parents[2] / "fixtures"
RELEASES = sorted(path.stem for path in FIXTURES.glob("data-*.json"))

Rows = list[dict[str, str]]


class Released:
    """A data folder of a release, unpacked, and what its server has answered."""

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        with tarfile.open(FIXTURES / f"{name}.tar.gz") as packed:
            packed.extractall(folder, filter="data")
        found: dict[str, Any] = json.loads((FIXTURES / f"{name}.json").read_text())
        self.rows: dict[str, Rows] = found["rows"]
        self.answers: dict[str, Rows] = found["answers"]

    @property
    def root(self) -> StoreRoot:
        return local_root(self.folder / "tables")


@pytest.fixture(params=RELEASES)
def released(request: pytest.FixtureRequest, tmp_path: Path) -> Released:
    return Released(request.param, tmp_path)


def test_rows_and_definitions_are_those_of_the_release(released: Released) -> None:
    with closing(RocksKV(str(released.folder / "catalog"))) as kv:
        world = SqlWorld(released.folder / "tables", kv=kv)
        assert rows_of(world.catalog, released) == released.rows
        assert {query: answered(world, query) for query in released.answers} == released.answers
        for name in released.rows:
            assert verify(world.catalog, released.root, table_of(world.catalog, name)).is_ok


def test_the_journal_of_the_release_makes_the_same_catalog(released: Released) -> None:
    rebuild_catalog([released.root.uri], released.folder / "new", RebuildOptions())
    with closing(RocksKV(str(released.folder / "new" / "catalog"))) as kv:
        world = SqlWorld(released.folder / "tables", kv=kv)
        assert rows_of(world.catalog, released) == released.rows
        definitions = [query for query in released.answers if query.startswith("SHOW CREATE")]
        assert definitions
        for query in definitions:
            assert answered(world, query) == released.answers[query]


def test_work_goes_on_over_what_the_release_left(released: Released) -> None:
    """Secrets, warehouses and labels are found; what was dropped comes back, and new rows stand beside old ones."""
    with closing(RocksKV(str(released.folder / "catalog"))) as kv:
        world = SqlWorld(released.folder / "tables", kv=kv)
        catalog = world.catalog
        topic = catalog.tables.get("shop", "secret_topic")
        assert catalog.secrets.of(topic.uuid).settings == {"kafka_sasl_password": "hunter2"}
        assert [each.name for each in catalog.warehouses.all()] == ["reports"]
        label = catalog.labels.find(table_of(catalog, "shop.fresh").uuid, "once")
        assert label is not None
        assert label.rows == 1
        world.run("ALTER TABLE shop.sales UNDROP PARTITION 202604")
        world.run("INSERT INTO shop.sales (id, day) VALUES (200, '2026-05-01')")
        sales = table_rows(catalog, released.root, table_of(catalog, "shop.sales"))
        added = [row["id"] for row in sales if row not in released.rows["shop.sales"]]
        assert sorted(added) == ["104", "200"]
        world.run("UNDROP TABLE shop.gone")
        assert [row["id"] for row in table_rows(catalog, released.root, table_of(catalog, "shop.gone"))] == ["1"]


def test_each_kind_of_file_is_there(released: Released) -> None:
    kinds = {path.suffix for path in (released.folder / "tables").glob("*/data/*")}
    assert kinds == {".parquet", ".arrow", ".puffin", ".filter"}
    assert list((released.folder / "tables" / "catalog-journal").iterdir())


def rows_of(catalog: Catalog, released: Released) -> dict[str, Rows]:
    return {name: table_rows(catalog, released.root, table_of(catalog, name)) for name in released.rows}


def table_rows(catalog: Catalog, root: StoreRoot, table: TableDef) -> Rows:
    """The rows with the table's present columns, as SELECT shows them."""
    snapshot = catalog.parts.snapshot(table.uuid)
    found: list[dict[str, object]] = []
    for source in sources_of(snapshot.table, snapshot.parts, snapshot.deltas):
        names = {column.id: column.name for column in source.schema.columns}
        for row in read_source(data_folder(root, table.uuid), source)[0].to_pylist():
            found.append(
                {c.name: row[names[c.id]] if c.id in names else of_older_rows(c) for c in table.schema.columns}
            )
    return as_texts(found)


def of_older_rows(column: Column) -> object:
    assert column.older_default is not None
    known = literal(column.older_default)
    assert known is not None
    return known[0]


def answered(world: SqlWorld, query: str) -> Rows:
    return as_texts(world.run(query).table.to_pylist())


def as_texts(rows: list[dict[str, Any]]) -> Rows:
    return [{name: str(value) for name, value in row.items()} for row in sorted(rows, key=str)]


def table_of(catalog: Catalog, name: str) -> TableDef:
    found = catalog.tables.get(*name.split("."))
    assert isinstance(found, TableDef)
    return found
