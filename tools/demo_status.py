"""The demo's rows that change: a topic with the status of flights flows into a table with a unique key.

Each flight is scheduled, departs or is cancelled, and arrives; some flights are withdrawn, which deletes their row. The
messages of one flight keep their order, those of thousands are mixed, some are broken. In the end each row must be as
the last message about its flight left it, whatever was killed in between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pandas as pd

from tilth import Connection

TOPIC = "flight_status"
PARTITIONS = 4
FLIGHTS = 20_000
#: Number of flights between two statuses of one flight.
STEP = 3_000
#: Every so many flights one is withdrawn.
WITHDRAWN = 50
#: Every so many messages a broken one follows.
BROKEN_EVERY = 1_000
COLUMNS = "id BIGINT, carrier STRING, status STRING, delay INT"
STATEMENTS = (
    f"""CREATE TABLE demo.status ({COLUMNS})
        ENGINE = MergeTree UNIQUE KEY (id) ORDER BY (id)
        SETTINGS old_parts_lifetime = 2, tablet_history_max_age_sec = 2, ttl_for_trash_items = 2""",
    f"""CREATE TABLE demo.status_topic ({COLUMNS}, op STRING)
        ENGINE = Kafka SETTINGS kafka_broker_list = '{{bootstrap}}', kafka_topic_list = '{TOPIC}',
        kafka_group_name = 'demo', kafka_format = 'JSONEachRow', kafka_max_block_size = 4096,
        stream_flush_interval_ms = 500""",
    """CREATE MATERIALIZED VIEW demo.status_view TO demo.status AS
        SELECT id, carrier, status, delay, op AS _op FROM demo.status_topic""",
)

#: Id, carrier, status, delay.
Status = tuple[int, str, str, int | None]


def status_messages(flights: pd.DataFrame) -> list[tuple[int, bytes]]:
    """Partition and message of each change, in the order in which they are sent."""
    names = ("id", "carrier", "status", "delay", "op")
    found = []
    for number, (row, op) in enumerate(_changes(flights), start=1):
        message, partition = json.dumps(dict(zip(names, (*row, op), strict=True))), row[0] % PARTITIONS
        found.append((partition, message.encode()))
        if number % BROKEN_EVERY == 0:
            found.append((partition, message.replace('"id": ', '"id": -', 1)[:-1].encode()))
    return found


def last_status(flights: pd.DataFrame) -> list[Status]:
    """Return the rows that the table must hold in the end, by id."""
    rows: dict[int, Status] = {}
    for row, op in _changes(flights):
        if op == "d":
            rows.pop(row[0], None)
        else:
            rows[row[0]] = row
    return [rows[identity] for identity in sorted(rows)]


def is_last_status(flights: pd.DataFrame, connection: Connection) -> bool:
    """Return whether the table holds exactly each flight's last status, and each broken message is a dead letter."""
    broken = sum(1 for _ in _changes(flights)) // BROKEN_EVERY
    return (
        connection.sql("SELECT id, carrier, status, delay FROM demo.status ORDER BY id").rows == last_status(flights)
        and connection.sql("SELECT count(*) FROM demo.status_topic_dead_letters").rows[0][0] == broken
    )


def _changes(flights: pd.DataFrame) -> Iterator[tuple[Status, str]]:
    """The life of each flight, that of the next one a little later; a row with what is done with it."""
    chosen = flights.head(FLIGHTS)[["id", "carrier", "dep_delay", "arr_delay"]]
    lives = [list(_life(*row)) for row in chosen.itertuples(index=False, name=None)]
    stages = max(map(len, lives))
    for step in range(len(lives) + STEP * (stages - 1)):
        for stage in range(stages):
            number = step - stage * STEP
            if 0 <= number < len(lives) and stage < len(lives[number]):
                yield lives[number][stage]


def _life(identity: int, carrier: str, departed: object, arrived: object) -> Iterator[tuple[Status, str]]:
    yield (identity, carrier, "scheduled", None), "c"
    if pd.isna(departed):
        yield (identity, carrier, "cancelled", None), "u"
    else:
        yield (identity, carrier, "departed", int(str(departed))), "u"
        if not pd.isna(arrived):
            yield (identity, carrier, "arrived", int(str(arrived))), "u"
    if identity % WITHDRAWN == 0:
        yield (identity, carrier, "withdrawn", None), "d"
