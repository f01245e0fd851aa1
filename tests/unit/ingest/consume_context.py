"""Ingestion of a server without workers, over the catalog of a test's world."""

from __future__ import annotations

from tests.catalog_world import World
from tilth.ingest import ConsumeContext, IngestSettings
from tilth.storage import local_root
from tilth.warehouse import Dispatcher


def consume_context(world: World) -> ConsumeContext:
    return ConsumeContext(
        clock=world.clock,
        catalog=world.catalog,
        dispatcher=Dispatcher(world.clock, world.new_id, {}, slots={}),
        ids=world.new_id,
        settings=IngestSettings(),
        root=local_root("/nowhere"),
        server="s1",
    )
