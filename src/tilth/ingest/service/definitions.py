"""Definitions in the orders of a Kafka table's consumers: the table, its views, their targets, the dead-letter table.

Covers: reading them from the catalog, saying what is missing, making the dead-letter table. Does not cover: brokers.
Always holds: two equal fingerprints stand for equal orders.

Tests: tests/unit/ingest/test_library.py.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import UnavailableError
from tilth.base.hosts import is_host_allowed
from tilth.base.ids import IdSource
from tilth.base.logs import hide_in_lines
from tilth.base.settings import BadSettingError
from tilth.catalog import Catalog
from tilth.ingest.consumer.calls import ENCODER, ViewOrder
from tilth.ingest.library import TOKEN_URL, check_pairs
from tilth.ingest.messages.columns import check_format
from tilth.ingest.messages.dead import accepts_dead_letters, dead_letter_table
from tilth.ingest.settings import ErrorMode, IngestSettings, KafkaConfig, read_config
from tilth.model.table import KafkaDef, Secrets, TableDef, full_name


class DependencyMissingError(UnavailableError):
    """something that consumers need is missing"""

    code = "DEPENDENCY_MISSING"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """Definitions of a Kafka table and what depends on it, read at one time."""

    kafka: KafkaDef
    config: KafkaConfig
    #: Views, ordered by uuid.
    views: tuple[ViewOrder, ...]
    dead_letters: TableDef | None
    #: Secrets of the Kafka table.
    secrets: Secrets = field(default_factory=Secrets)

    def fingerprint(self) -> str:
        dead_letters = None if self.dead_letters is None else _as_written(self.dead_letters)
        orders = [msgspec.structs.replace(each, target=_as_written(each.target)) for each in self.views]
        parts: list[object] = [self.kafka, dead_letters, *orders, self.secrets]
        return hashlib.sha256(b"".join(ENCODER.encode(part) for part in parts)).hexdigest()


def _as_written(table: TableDef) -> TableDef:
    """Remove what changes while mutations come and go and means nothing to those who write new parts."""
    return msgspec.structs.replace(table, older_schemas=(), mutation_ts=0, killed_mutation_ts=0)


def check_kafka(kafka: KafkaDef) -> KafkaConfig:
    """Check a Kafka table before it is made: its settings, and that its columns fit its format.

    Raises UnknownSettingError, BadSettingError, InvalidInputError (MISSING_SETTING) or FormatError. Sends no request to
    a broker.
    """
    config = read_config(kafka)
    check_format(kafka.schema, config)
    return config


def check_library(config: KafkaConfig, certificates_folder: str) -> None:
    """Raises BadSettingError for a setting of librdkafka or a file that is not allowed."""
    check_pairs(dict(config.library), certificates_folder, os.path.realpath)


def check_allowed(config: KafkaConfig, settings: IngestSettings) -> None:
    """Raises BadSettingError for a property, a file or a host that a statement may not name."""
    check_library(config, settings.certificates_folder)
    check_hosts(config, settings.hosts)


def check_hosts(config: KafkaConfig, allowed: Sequence[str]) -> None:
    """Raises BadSettingError for a host that a statement may not name. `allowed`: the setting ingest.hosts."""
    addresses = [address for address in config.brokers.split(",") if address.strip()]
    addresses += [value for name, value in dict(config.library).items() if name == TOKEN_URL]
    for address in addresses:
        host = _host(address)
        if host is None or not is_host_allowed(host, allowed):
            hint = "the setting ingest.hosts of the node lists them"
            raise BadSettingError("statements may not name this host", host=host or "unreadable", hint=hint)


def _host(address: str) -> str | None:
    """Return the host of a URL, or of a broker with or without its protocol; None: programs may read different ones."""
    rest = address.strip().rpartition("://")[2]
    try:
        return urlsplit(f"//{rest}").hostname if "\\" not in rest else None
    except ValueError:
        return None


def broker_config(catalog: Catalog, kafka: KafkaDef, certificates_folder: str) -> KafkaConfig:
    """Return the settings with the secrets, as needed to connect to the brokers. Raises an error of the settings."""
    config = read_config(kafka, catalog.secrets.of(kafka.uuid).settings)
    check_library(config, certificates_folder)
    hide_in_lines(config.secrets)
    return config


def read_definitions(
    clock: Clock, catalog: Catalog, ids: IdSource, uuid: str, *, certificates_folder: str = ""
) -> Definitions:
    """Read the definitions as they are now. Raises DependencyMissingError, or an error of the settings."""
    kafka = kafka_definition(catalog, uuid)
    check_kafka(kafka)
    secrets, config = catalog.secrets.of(uuid), broker_config(catalog, kafka, certificates_folder)
    orders = []
    for view in catalog.tables.views_of(uuid):
        target = catalog.tables.by_id(view.target)
        if not isinstance(target, TableDef):
            raise DependencyMissingError("the target of a view is gone", view=full_name(view), target=view.target)
        orders.append(ViewOrder(view=view, target=target))
    if not orders:
        raise DependencyMissingError(f"no materialized view reads from {full_name(kafka)}")
    # In stream mode too: what a view cannot take is no row of it.
    has_table = config.error_mode is not ErrorMode.THROW
    return Definitions(
        kafka=kafka,
        config=config,
        views=tuple(sorted(orders, key=lambda each: each.view.uuid)),
        dead_letters=_dead_letters(clock, catalog, ids, kafka, config) if has_table else None,
        secrets=secrets,
    )


def kafka_definition(catalog: Catalog, uuid: str) -> KafkaDef:
    """Raises DependencyMissingError when the table was dropped."""
    kafka = catalog.tables.by_id(uuid)
    if not isinstance(kafka, KafkaDef):
        raise DependencyMissingError("the Kafka table is gone", uuid=uuid)
    return kafka


def _dead_letters(clock: Clock, catalog: Catalog, ids: IdSource, kafka: KafkaDef, config: KafkaConfig) -> TableDef:
    """The dead-letter table, made when it is missing."""
    wanted = dead_letter_table(kafka, config, uuid=ids(), now_ms=clock.now_ms())
    found = catalog.tables.create(wanted, if_not_exists=True)
    if isinstance(found, TableDef) and accepts_dead_letters(found):
        return found
    hint = "rename it, or set kafka_dead_letter_table"
    raise DependencyMissingError("this table cannot take dead letters", table=full_name(found), hint=hint)
