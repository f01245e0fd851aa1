"""Tables of the workload: the statements that create them, their settings during a run and at its end."""

from __future__ import annotations

TOPIC = "events"
#: Topic that is deleted and created anew now and then.
OTHER_TOPIC = "anew"
UPDATED_IDS = 48
#: Distinct keys of the view with a unique key.
VIEW_KEYS = 32
#: Rows of each partition that is filled, dropped and brought back.
PARTITION_ROWS = 6
#: Settings by which replaced files are removed soon, and those that UNDROP and AS OF need stay for some rounds.
WHILE_RUNNING = (
    "old_parts_lifetime = 5, ttl_for_trash_items = 90, tablet_history_max_age_sec = 120, cleanup_delay_period = 1, "
    "cleanup_delay_period_random_add = 1"
)
#: Settings by which all files that the tables do not need are removed.
IN_THE_END = (
    "old_parts_lifetime = 2, ttl_for_trash_items = 2, tablet_history_max_age_sec = 2, cleanup_delay_period = 1, "
    "cleanup_delay_period_random_add = 0"
)
#: Tables with rows: `s` and `s2` of INSERTs, `u` of upserts, `c` of updates, `p` of partitions, the others of messages.
STORED = ("s", "s2", "u", "c", "p", "t", "f", "g", "q", "o")
KAFKA = ("k", "ko")


def statements(storage: str) -> list[str]:
    """Return the statements that create all tables, some of them in this storage; empty: all in the default one."""
    policy = f", storage_policy = '{storage}'" if storage else ""
    kept, plain = f"SETTINGS {WHILE_RUNNING}{policy}", f"SETTINGS {WHILE_RUNNING}"
    return [
        "CREATE DATABASE d",
        f"CREATE TABLE d.s (id BIGINT, op BIGINT) ENGINE = MergeTree ORDER BY id {kept}",
        f"CREATE TABLE d.s2 (id BIGINT, op BIGINT) ENGINE = MergeTree ORDER BY id {plain}",
        f"CREATE TABLE d.u (k BIGINT, n BIGINT, m BIGINT) ENGINE = MergeTree(n) UNIQUE KEY k {kept}",
        f"CREATE TABLE d.c (id BIGINT, a BIGINT, b BIGINT) ENGINE = MergeTree ORDER BY id {kept}",
        f"CREATE TABLE d.p (p BIGINT, id BIGINT) ENGINE = MergeTree PARTITION BY p ORDER BY id {plain}",
        f"CREATE TABLE d.t (id BIGINT, v STRING) ENGINE = MergeTree ORDER BY id {kept}",
        f"CREATE TABLE d.f (id BIGINT, v STRING) ENGINE = MergeTree ORDER BY id {plain}",
        f"CREATE TABLE d.g (id BIGINT, w STRING, n INT) ENGINE = MergeTree ORDER BY id {plain}",
        f"CREATE TABLE d.q (k BIGINT, id BIGINT) ENGINE = MergeTree(id) UNIQUE KEY k {kept}",
        f"CREATE TABLE d.o (id BIGINT, v STRING) ENGINE = MergeTree ORDER BY id {plain}",
        f"INSERT INTO d.c SELECT id, 0L, 0L FROM range({UPDATED_IDS})",
        _kafka("k", TOPIC),
        _kafka("ko", OTHER_TOPIC),
        "CREATE MATERIALIZED VIEW d.vt TO d.t AS SELECT id, v FROM d.k",
        "CREATE MATERIALIZED VIEW d.vf TO d.f AS SELECT id, v FROM d.k WHERE id % 3 = 0",
        "CREATE MATERIALIZED VIEW d.vg TO d.g AS SELECT id, upper(v) AS w, length(v) AS n FROM d.k",
        f"CREATE MATERIALIZED VIEW d.vq TO d.q AS SELECT coalesce(id % {VIEW_KEYS}, 0L) AS k, id FROM d.k",
        "CREATE MATERIALIZED VIEW d.vo TO d.o AS SELECT id, v FROM d.ko",
    ]


def in_the_end() -> list[str]:
    return [f"ALTER TABLE d.{table} MODIFY SETTING {IN_THE_END}" for table in STORED]


def message(number: int) -> bytes:
    return b'{"id": %d, "v": "value %d"}' % (number, number)


def _kafka(name: str, topic: str) -> str:
    return (
        f"CREATE TABLE d.{name} (id BIGINT NOT NULL, v STRING) ENGINE = Kafka SETTINGS "
        f"kafka_broker_list = '{{bootstrap}}', kafka_topic_list = '{topic}', kafka_group_name = 'g{name}', "
        "kafka_format = 'JSONEachRow', stream_flush_interval_ms = 500"
    )
