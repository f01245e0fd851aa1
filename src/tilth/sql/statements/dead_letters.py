"""The table that takes a Kafka table's broken messages: found, or made."""

from __future__ import annotations

from dataclasses import dataclass

from tilth.ingest import DEAD_LETTER_SCHEMA, KafkaConfig, dead_letter_table, read_config, takes_dead_letters
from tilth.model.table import KafkaDef, TableDef, full_name
from tilth.sql.context.services import Services
from tilth.sql.errors import BadDefinitionError

#: The values of kafka_handle_error_mode that ask for such a table.
_WITH_TABLE = ("dead_letter", "stream")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    #: None: the Kafka table has none.
    table: TableDef | None
    is_new: bool


def ensure_dead_letters(services: Services, kafka: KafkaDef, config: KafkaConfig) -> DeadLetters:
    """The dead-letter table that the Kafka table's settings ask for, made if it is missing.

    Raises BadDefinitionError where a relation of its name cannot take dead letters.
    """
    if config.error_mode.value not in _WITH_TABLE:
        return DeadLetters(table=None, is_new=False)
    found = services.catalog.tables.find(kafka.database, config.dead_letter_table)
    if found is not None:
        if not isinstance(found, TableDef) or not takes_dead_letters(found):
            raise BadDefinitionError(
                "this table cannot take dead letters",
                table=full_name(found),
                hint="name another one by kafka_dead_letter_table, or give it the columns "
                f"{DEAD_LETTER_SCHEMA.spark_ddl}",
            )
        return DeadLetters(table=found, is_new=False)
    new = dead_letter_table(kafka, config, uuid="", now_ms=services.clock.now_ms())
    made = services.catalog.tables.create(new)
    assert isinstance(made, TableDef)
    return DeadLetters(table=made, is_new=True)


def has_dead_letters_in(kafka: KafkaDef, table: TableDef) -> bool:
    """Whether the Kafka table's broken messages go into this table."""
    config = read_config(kafka)
    name = config.dead_letter_table if config.error_mode.value in _WITH_TABLE else None
    return (kafka.database, name) == (table.database, table.name)
