"""A catalog on a store of the test's choice, with shorthands for what tests of it say again and again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from tilth.base.clock import Clock
from tilth.catalog import Catalog, InsertPart, KeyValue, MemoryKV, ReplaceParts, Update
from tilth.catalog.visibility import visible
from tilth.model.part import DataFile, Part, PartName, WrittenPart
from tilth.model.table import Column, KafkaDef, Schema, TableDef, ViewDef
from tilth.model.types import Kind, Simple
from tilth.testing import ManualClock

SCHEMA = Schema(columns=(Column(id=1, name="a", type=Simple(Kind.INT64)),))


class World:
    """A catalog with a table `default.t`; every commit's invariants are checked."""

    def __init__(self, kv: KeyValue | None = None, *, clock: Clock | None = None) -> None:
        self.clock = ManualClock()
        self.kv: KeyValue = kv or MemoryKV()
        self._ids = count(1)
        self._files = count()
        self.catalog = Catalog(self.kv, clock or self.clock, "s1", self.new_id, is_checking=True)
        self.t = self.table("t")

    def new_id(self) -> str:
        return f"{next(self._ids):032x}"

    def reopened(self) -> Catalog:
        """Another catalog over the same store, as after a restart."""
        return Catalog(self.kv, self.clock, "s1", self.new_id, is_checking=True)

    def table(self, name: str, database: str = "default") -> str:
        """The uuid of a table, made where it is not there."""
        relation = TableDef(uuid=self.new_id(), database=database, name=name, schema=SCHEMA)
        return self.catalog.tables.create(relation, if_not_exists=True).uuid

    def kafka(self, name: str = "k", database: str = "default") -> str:
        relation = KafkaDef(uuid=self.new_id(), database=database, name=name, schema=SCHEMA)
        return self.catalog.tables.create(relation, if_not_exists=True).uuid

    def view(self, name: str, source: str, target: str) -> str:
        relation = ViewDef(
            uuid=self.new_id(), database="default", name=name, source=source, target=target, select="SELECT * FROM k"
        )
        return self.catalog.tables.create(relation).uuid

    def written(self, partition: str = "all", *, rows: int = 10) -> WrittenPart:
        file = DataFile(name=f"f{next(self._files)}.parquet", size=rows * 100, checksum=7)
        return WrittenPart(partition=partition, values=(partition,), rows=rows, file=file, ranges={})

    def insert(self, *partitions: str, table: str | None = None, rows: int = 10) -> list[Part]:
        """One part for each partition (default: `all`), in one commit."""
        updates: list[Update] = [
            InsertPart(table=table or self.t, written=self.written(each, rows=rows)) for each in partitions or ("all",)
        ]
        return self.commit(*updates)

    def merge(self, sources: list[Part], *, table: str | None = None) -> Part:
        rows = sum(part.rows for part in sources)
        written = self.written(sources[0].name.partition, rows=rows)
        names = tuple(part.name for part in sources)
        return self.commit(ReplaceParts(table=table or self.t, sources=names, written=written))[0]

    def commit(self, *updates: Update) -> list[Part]:
        """In a transaction of its own; raises what refuses it."""
        txn = self.catalog.transactions.begin("test")
        return [part for _, part in self.catalog.transactions.commit_or_raise(txn.id, updates).parts]

    def names(self, at: int | None = None, *, table: str | None = None) -> list[PartName]:
        """What is visible, without asking the catalog for its opinion on a snapshot."""
        return [part.name for part in visible(self.catalog.parts.all_entries(table or self.t), at)]

    def files(self, table: str | None = None) -> Iterator[str]:
        """The files of all visible parts."""
        return (part.file.name for part in visible(self.catalog.parts.all_entries(table or self.t)))
