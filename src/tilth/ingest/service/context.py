"""Dependencies that the consume manager and the services of all Kafka tables share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilth.base.clock import Clock
from tilth.base.ids import IdSource
from tilth.base.memory import MemoryReading
from tilth.catalog import Catalog
from tilth.ingest.settings import IngestSettings
from tilth.model.server import hosts_all
from tilth.storage import Roots
from tilth.warehouse import Dispatcher


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeContext:
    """Dependencies and settings of ingestion on one server."""

    clock: Clock
    catalog: Catalog
    dispatcher: Dispatcher
    ids: IdSource
    settings: IngestSettings
    #: The folder below which the tables' folders are.
    root: Roots
    #: This server's name.
    server: str
    #: `True` if this server hosts the Kafka table with this uuid.
    hosts: Callable[[str], bool] = hosts_all
    #: Reads the memory in use; rounds wait while there is little left.
    memory: Callable[[], MemoryReading] = MemoryReading
