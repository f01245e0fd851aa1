"""Views into tables with columns that are computed from others: rows have them, and dead letters say why not."""

from __future__ import annotations

import pytest

from tests.integration.ingest.ingest_world import EVENTS, IngestWorld, event
from tilth.base.errors import TilthError
from tools.broker import Broker

pytestmark = pytest.mark.integration

TARGET = (
    "CREATE TABLE {} (id Int64, name String, price Float64, half Float64 MATERIALIZED price / 2, "
    "number Int32 MATERIALIZED CAST(substring(name, 2) AS INT), label String DEFAULT concat(name, '!'), "
    "twice Int32 ALIAS number * 2) ENGINE = MergeTree ORDER BY id"
)


def test_rows_of_a_view_have_what_is_computed_from_them(world: IngestWorld, broker: Broker) -> None:
    broker.create_topic("computed")
    world.kafka("k", "computed", EVENTS)
    for table in ("picked", "made"):
        world.sql(TARGET.format(table))
    with pytest.raises(TilthError) as caught:
        world.sql("CREATE MATERIALIZED VIEW v TO picked AS SELECT id, price AS half FROM k")
    assert caught.value.code == "BAD_VIEW"
    assert "MATERIALIZED" in caught.value.message
    world.sql("CREATE MATERIALIZED VIEW v TO picked AS SELECT * FROM k")
    world.sql("CREATE MATERIALIZED VIEW w TO made AS SELECT id, upper(name) AS name, price, 'own' AS label FROM k")
    world.send("computed", [event(1, name="n7"), event(2, name="none"), event(3)])
    for name, labels in (("picked", ["n7!", "n3!"]), ("made", ["own", "own"])):
        world.wait(lambda name=name: world.rows(name).num_rows >= 2, name)  # type: ignore[misc]  # a default binds it
        rows = world.sql_rows(f"SELECT id, half, number, label, twice FROM {name} WHERE twice > 0 ORDER BY id")
        assert [tuple(row.values()) for row in rows] == [
            (1, 0.25, 7, labels[0], 14),
            (3, 0.75, 3, labels[1], 6),
        ]
    # Each view refuses the message by itself.
    world.wait(lambda: world.rows("k_dead_letters").num_rows >= 2, "dead letters")
    assert world.rows("k_dead_letters").num_rows == 2
