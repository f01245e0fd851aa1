"""The demo's views: one filters the flights, one computes, and a field comes into the messages while they flow.

Both read the topic of the flights, as the view of the table of flights does. The computed view fails on real messages:
29 flights departed "at 2400", which is no time of day; they become dead letters of that view and of no other.
"""

from __future__ import annotations

import time

import pandas as pd
from rich.console import Console

from tilth import Connection
from tools.node_process import NodeProcess

LATE_MINUTES = 120
STATEMENTS = (
    "CREATE TABLE demo.late (id BIGINT, carrier STRING, dest STRING, arr_delay INT) ENGINE = MergeTree ORDER BY id",
    f"""CREATE MATERIALIZED VIEW demo.late_view TO demo.late AS
        SELECT id, carrier, dest, arr_delay FROM demo.flights_topic WHERE arr_delay >= {LATE_MINUTES}""",
    "CREATE TABLE demo.departures (id BIGINT, departed TIMESTAMP, mph DOUBLE) ENGINE = MergeTree ORDER BY id",
    """CREATE MATERIALIZED VIEW demo.departures_view TO demo.departures AS
        SELECT id, make_timestamp(year, month, day, dep_time div 100, dep_time % 100, 0) AS departed,
            60 * distance / air_time AS mph
        FROM demo.flights_topic WHERE dep_time IS NOT NULL""",
)
TABLES = ("late", "departures")
#: The messages have a new field: first the table gets the column, then its source; the view takes every column.
NEW_FIELD = (
    "ALTER TABLE demo.flights ADD COLUMN airline STRING",
    "ALTER TABLE demo.flights_topic ADD COLUMN airline STRING",
)
AIRLINES = {
    "9E": "Endeavor",
    "AA": "American",
    "AS": "Alaska",
    "B6": "JetBlue",
    "DL": "Delta",
    "EV": "ExpressJet",
    "F9": "Frontier",
    "FL": "AirTran",
    "HA": "Hawaiian",
    "MQ": "Envoy",
    "OO": "SkyWest",
    "UA": "United",
    "US": "US Airways",
    "VX": "Virgin",
    "WN": "Southwest",
    "YV": "Mesa",
}


def add_new_field(console: Console, node: NodeProcess) -> None:
    """Alters the table and its source while consumers run; nothing is stopped."""
    for statement in NEW_FIELD:
        console.print(statement, style="cyan", highlight=False)
        console.print(f"  {node.connection.sql(statement).summary.message}", highlight=False)
        time.sleep(0.5)


def with_airline(line: str, carrier: str) -> str:
    """A flight's message with the new field."""
    return f'{line[:-1]},"airline":"{AIRLINES[carrier]}"}}'


def refused(flights: pd.DataFrame) -> list[int]:
    """The flights that the computed view cannot take."""
    return list(flights.loc[(flights["dep_time"] == 2400).fillna(value=False), "id"])


def refused_in(connection: Connection) -> list[int]:
    """The same by the dead letters."""
    found = connection.sql(
        "SELECT CAST(get_json_object(CAST(raw AS STRING), '$.id') AS BIGINT) AS id FROM demo.flights_topic_dead_letters"
        " WHERE view = 'demo.departures_view' ORDER BY id"
    )
    return [row[0] for row in found.rows]


def is_late_equal(flights: pd.DataFrame, connection: Connection) -> bool:
    """Return whether the filtering view has stored exactly the flights that were late."""
    late = flights[(flights["arr_delay"] >= LATE_MINUTES).fillna(value=False)]
    wanted = list(late[["id", "carrier", "dest", "arr_delay"]].itertuples(index=False, name=None))
    return connection.sql("SELECT id, carrier, dest, arr_delay FROM demo.late ORDER BY id").rows == wanted


def is_departures_equal(flights: pd.DataFrame, connection: Connection) -> bool:
    """Return whether the computed view has stored the flights with a time of departure, and refused just the others."""
    departed = flights[flights["dep_time"].notna() & ~flights["id"].isin(refused(flights))]
    clock = departed["dep_time"].astype(int)
    days = departed[["year", "month", "day"]]
    times = pd.to_datetime(days.assign(hour=clock // 100, minute=clock % 100), utc=True)
    found = connection.sql("SELECT id, departed, mph FROM demo.departures ORDER BY id").pandas()
    mph = (60 * departed["distance"] / departed["air_time"]).astype("Float64").reset_index(drop=True)
    given = pd.to_numeric(found["mph"]).astype("Float64")
    is_same_speed = (given.isna() & mph.isna()) | ((given - mph).abs() < 1e-9).fillna(value=False)
    return (
        refused_in(connection) == refused(flights)
        and list(found["id"]) == list(departed["id"])
        and list(pd.to_datetime(found["departed"], utc=True)) == list(times)
        and bool(is_same_speed.all())
    )
