"""A row of `system.kafka_tables`, from which tests make theirs."""

from __future__ import annotations

from tilth.ingest import ConsumerStats

#: A consumer that runs and has read nothing.
NEW_CONSUMER = ConsumerStats(
    database="default",
    table="k",
    uuid="u1",
    consumer=0,
    state="running",
    task="t1",
    partitions=(),
    last_commit_ms=0,
    last_exception="",
    last_exception_ms=0,
)
