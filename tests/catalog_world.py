"""A catalog on a store of the test's choice, with shorthands for what tests of it say again and again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import count

from msgspec.structs import replace

from tilth.base.clock import Clock
from tilth.catalog import (
    AcceptMutation,
    AddDelta,
    Catalog,
    InsertPart,
    KeyValue,
    MemoryKV,
    ReplaceParts,
    RewritePart,
    StartMutation,
    Update,
)
from tilth.catalog.kv import KVOutcome, Precondition
from tilth.catalog.rules.visibility import end_times, visible
from tilth.model.delta import Delta, DeltaKind, Seen, Target, WrittenDelta
from tilth.model.mutation import Mutation, MutationKind, needs
from tilth.model.part import DataFile, Part, PartName, WrittenPart
from tilth.model.table import Column, KafkaDef, Schema, TableDef, ViewDef
from tilth.model.types import Kind, Simple
from tilth.testing import ManualClock

SCHEMA = Schema(columns=(Column(id=1, name="a", type=Simple(Kind.INT64)),))
WIDER = Schema(columns=(*SCHEMA.columns, Column(id=2, name="b", type=Simple(Kind.STRING))))


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

    def table(self, name: str, database: str = "default", *, settings: Mapping[str, str] | None = None) -> str:
        """The uuid of a table, made where it is not there."""
        relation = TableDef(
            uuid=self.new_id(),
            database=database,
            name=name,
            schema=SCHEMA,
            next_column_id=2,
            settings=dict(settings or {}),
            created_ms=self.clock.now_ms(),
        )
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

    def segment(self, partition: str = "all", *, rows: int = 10) -> WrittenPart:
        """Like `written`, a row segment."""
        written = self.written(partition, rows=rows)
        file = replace(written.file, name=written.file.name.replace(".parquet", ".arrow"))
        return replace(written, file=file, is_segment=True)

    def delta(
        self,
        *targets: tuple[Part, int],
        kind: DeltaKind = DeltaKind.CHANGES,
        columns: tuple[int, ...] = (),
        change_ts: int = 0,
    ) -> WrittenDelta:
        """That deletes so many rows of these parts; with `columns` it gives one row of each new values too."""
        return WrittenDelta(
            kind=kind,
            partition=targets[0][0].name.partition,
            file=DataFile(name=f"d{next(self._files)}.arrow", size=50, checksum=7),
            targets=tuple(
                Target(file=part.file.name, deleted=rows, updated=1 if columns else 0) for part, rows in targets
            ),
            columns=columns,
            change_ts=change_ts,
        )

    def delete(self, *targets: tuple[Part, int], seen: Seen = ()) -> Delta:
        """Deletes so many rows of these parts."""
        written = self.delta(*targets)
        self.commit(AddDelta(table=self.t, written=written, seen=seen))
        [delta] = [each for each in self.catalog.parts.deltas(self.t) if each.file == written.file]
        return delta

    def merge(self, sources: list[Part], *, table: str | None = None) -> Part:
        rows = sum(part.rows for part in sources)
        written = self.written(sources[0].name.partition, rows=rows)
        names = tuple(part.name for part in sources)
        return self.commit(ReplaceParts(table=table or self.t, sources=names, written=written))[0]

    def alter(self, schema: Schema | None = None, *, table: str | None = None) -> Mutation:
        """New columns, or an UPDATE where none are given."""
        uuid = table or self.t
        txn = self.catalog.transactions.open("alter")
        txn.commit([self.start(schema, table=table)])
        return self.catalog.mutations.get(uuid, txn.id)

    def start(self, schema: Schema | None = None, *, table: str | None = None) -> StartMutation:
        """What `alter` commits."""
        uuid = table or self.t
        kind = MutationKind.UPDATE if schema is None else MutationKind.COLUMNS
        return StartMutation(
            table=uuid,
            from_version=self.definition(uuid).schema_version,
            kind=kind,
            command=f"{kind} it",
            assignments=() if schema else (("a", "a + 1"),),
            predicate="" if schema else "a > 0",
            schema=schema,
            next_column_id=0 if schema is None else max(column.id for column in schema.columns) + 1,
        )

    def rewrite(self, mutation: Mutation, *parts: Part, rows: int | None = None) -> list[Part]:
        """Rewrites the parts for the mutation; `rows`: how many are left of each, 0 for none."""
        return self.commit(*(self.rewriting(mutation, part, rows=rows) for part in parts))

    def rewriting(self, mutation: Mutation, part: Part, *, rows: int | None = None) -> RewritePart:
        """What `rewrite` commits for one part."""
        left = part.rows if rows is None else rows
        written = self.written(part.name.partition, rows=left) if left else None
        return RewritePart(table=mutation.table, source=part.name, written=written, mutation=mutation.id)

    def accept(self, mutation: Mutation, *parts: Part) -> None:
        names = tuple(part.name for part in parts)
        self.commit(AcceptMutation(table=mutation.table, parts=names, mutation=mutation.id))

    def mutate_all(self, mutation: Mutation) -> bool:
        """Rewrites what needs the mutation, and ends it."""
        for part in visible(self.catalog.parts.all_entries(mutation.table)):
            if needs(part, mutation):
                self.rewrite(mutation, part)
        return self.catalog.mutations.finish(mutation.table, mutation.id)

    def definition(self, table: str | None = None) -> TableDef:
        found = self.catalog.tables.by_id(table or self.t)
        assert isinstance(found, TableDef)
        return found

    def collect(self, table: str | None = None, *, rounds: int = 5) -> int:
        """Moves everything that has ended to the trash, however new; returns how many entries went."""
        moved = 0
        for _ in range(rounds):
            for partition in self.catalog.parts.partitions(table or self.t):
                ended = end_times(self.catalog.parts.entries(table or self.t, partition))
                moved += self.catalog.parts.move_to_trash(table or self.t, ended, now_ms=self.clock.now_ms())
        return moved

    def commit(self, *updates: Update) -> list[Part]:
        """In a transaction of its own; raises what refuses it."""
        with self.catalog.transactions.open("test") as handle:
            return [part for _, part in handle.commit(updates).parts]

    def names(self, at: int | None = None, *, table: str | None = None) -> list[PartName]:
        """What is visible, without asking the catalog for its opinion on a snapshot."""
        return [part.name for part in visible(self.catalog.parts.all_entries(table or self.t), at)]

    def files(self, table: str | None = None) -> Iterator[str]:
        """The files of all visible parts."""
        return (part.file.name for part in visible(self.catalog.parts.all_entries(table or self.t)))


class Racing(MemoryKV):
    """Once, just before the next commit lands, somebody else does something: use another World for it."""

    before: Callable[[], object] | None = None

    def commit(
        self, preconditions: Sequence[Precondition], puts: Mapping[bytes, bytes], deletes: Collection[bytes]
    ) -> KVOutcome:
        before, self.before = self.before, None
        if before is not None:
            before()
        return super().commit(preconditions, puts, deletes)
