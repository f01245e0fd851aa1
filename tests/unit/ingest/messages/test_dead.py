"""The dead-letter table: which tables can be one, what its rows say."""

from __future__ import annotations

import msgspec
import pytest

from tests.catalog_world import World
from tests.unit.ingest.decoding import kafka_of
from tilth.base.clock import Clock
from tilth.catalog import Catalog
from tilth.ingest import DependencyMissingError, accepts_dead_letters, dead_letter_table, read_config
from tilth.ingest.messages.dead import dead_letter_rows
from tilth.ingest.messages.decode import Broken
from tilth.ingest.service.definitions import read_definitions
from tilth.model.table import Column, KafkaDef, Schema, TableDef, ViewDef
from tilth.model.types import Kind, Simple

KAFKA = kafka_of({"id": Kind.INT64})
NEW = dead_letter_table(KAFKA, read_config(KAFKA), uuid="d", now_ms=1)
WITHOUT_VIEW = msgspec.structs.replace(NEW, schema=Schema(columns=NEW.schema.columns[:-1]))
BROKEN = Broken(
    topic="t", partition=0, offset=7, timestamp=None, key=None, view="db.v", reason="column `a`: why", raw=b"\xff"
)


def with_column(table: TableDef, name: str, kind: Kind, *, nullable: bool = True) -> TableDef:
    column = Column(id=table.next_column_id, name=name, type=Simple(kind), nullable=nullable)
    schema = Schema(columns=(column, *table.schema.columns))
    return msgspec.structs.replace(table, schema=schema, next_column_id=table.next_column_id + 1)


def test_tables_that_can_take_dead_letters() -> None:
    assert accepts_dead_letters(NEW)
    assert accepts_dead_letters(with_column(NEW, "seen_by", Kind.STRING))
    assert accepts_dead_letters(with_column(WITHOUT_VIEW, "View", Kind.STRING))
    assert not accepts_dead_letters(WITHOUT_VIEW)
    assert not accepts_dead_letters(with_column(WITHOUT_VIEW, "view", Kind.INT32))
    assert not accepts_dead_letters(with_column(NEW, "seen_by", Kind.STRING, nullable=False))
    assert not accepts_dead_letters(with_column(WITHOUT_VIEW, "view", Kind.STRING, nullable=False))
    assert not accepts_dead_letters(msgspec.structs.replace(NEW, unique_key=("key",)))
    assert accepts_dead_letters(msgspec.structs.replace(NEW, unique_key=("topic", "partition", "offset")))
    other = [
        column if column.name != "raw" else Column(id=7, name="raw", type=Simple(Kind.STRING))
        for column in NEW.schema.columns
    ]
    assert not accepts_dead_letters(msgspec.structs.replace(NEW, schema=Schema(columns=tuple(other))))
    assert not accepts_dead_letters(msgspec.structs.replace(NEW, schema=Schema(columns=NEW.schema.columns[1:])))


def test_rows_name_the_view_apart_and_texts_for_people_in_front_of_the_reason() -> None:
    [row] = dead_letter_rows([BROKEN]).to_pylist()
    assert (row["view"], row["reason"], row["raw"], row["timestamp"]) == ("db.v", "column `a`: why", b"\xff", None)
    assert BROKEN.text == "t/0@7: view db.v: column `a`: why"


class Server:
    """A catalog with a Kafka table and a view, and a dead-letter table that is there already."""

    def __init__(self, dead: TableDef | None, **settings: str) -> None:
        self.world = World()
        self.catalog: Catalog = self.world.catalog
        kafka = kafka_of({"id": Kind.INT64}, **settings)
        made = self.catalog.tables.create(
            KafkaDef(uuid="", database="default", name="k", schema=kafka.schema, settings=kafka.settings)
        )
        self.kafka = made.uuid
        if dead is not None:
            self.catalog.tables.create(msgspec.structs.replace(dead, uuid="", database="default"))
        view = ViewDef(
            uuid="", database="default", name="v", source=made.uuid, target=self.world.t, select="SELECT id FROM k"
        )
        self.catalog.tables.create(view)

    @property
    def clock(self) -> Clock:
        return self.world.clock

    def dead_letters(self) -> TableDef | None:
        return read_definitions(self.clock, self.catalog, self.world.new_id, self.kafka).dead_letters


def test_a_table_that_cannot_take_dead_letters_stops_its_consumers_and_says_so() -> None:
    server = Server(msgspec.structs.replace(NEW, schema=Schema(columns=NEW.schema.columns[1:]), order_by=()))
    with pytest.raises(DependencyMissingError, match="cannot take dead letters"):
        server.dead_letters()


@pytest.mark.parametrize(("mode", "has_table"), [("dead_letter", True), ("stream", True), ("throw", False)])
def test_what_views_refuse_needs_a_table_in_stream_mode_too(mode: str, has_table: bool) -> None:
    server = Server(None, kafka_handle_error_mode=mode)
    assert (server.dead_letters() is not None) is has_table
