"""Statements about Kafka tables and the groups that they read for: what is refused, pinned, kept and said."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sql_world import SqlWorld, answer_view_tasks, refused
from tilth.catalog import SchemaChangedError, SetOffsets, Subscribe
from tilth.model.offset import StoredOffset, Subscription, TopicPartition
from tilth.model.table import KafkaDef, TableDef, ViewDef

KAFKA = (
    "CREATE TABLE {name} (a Int64, s String) ENGINE = Kafka SETTINGS kafka_broker_list = '{brokers}', "
    "kafka_topic_list = '{topics}', kafka_format = 'JSONEachRow'{more}"
)


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    return SqlWorld(tmp_path)


def create(name: str, *, brokers: str = "b:9092", topics: str = "t", group: str = "g") -> str:
    more = f", kafka_group_name = '{group}'" if group else ""
    return KAFKA.format(name=name, brokers=brokers, topics=topics, more=more)


def kafka(world: SqlWorld, name: str = "k1") -> KafkaDef:
    found = world.catalog.tables.get("default", name)
    assert isinstance(found, KafkaDef)
    return found


def reads(world: SqlWorld, name: str, offset: int) -> None:
    """Store the offset that a service stores when it has read up to there."""
    table = kafka(world, name)
    subscription = Subscription(
        cluster="c",
        topic_id="x",
        group=table.settings.get("kafka_group_name", f"tilth.default.{name}"),
        topic="t",
        kafka_table=table.uuid,
        name=f"default.{name}",
        brokers="b:9092",
        since_ms=1,
    )
    offsets = {TopicPartition("t", 0): StoredOffset(offset, "x")}
    txn = world.catalog.transactions.open("test")
    txn.commit(
        [
            Subscribe(subscription=subscription, before=None),
            SetOffsets(kafka_table=table.uuid, offsets=offsets, before={}),
        ],
    )


def test_a_second_table_of_the_same_group_and_topic_is_refused_by_name(world: SqlWorld) -> None:
    world.run(create("k1", topics="t,u"))
    error = refused(world, create("k2", brokers="c:1,B"))
    assert (error.code, error.facts["read_by"]) == ("GROUP_IN_USE", "default.k1")
    assert "kafka_group_name" in error.hint
    assert world.catalog.tables.find("default", "k2") is None
    assert world.catalog.tables.find("default", "k2_dead_letters") is None
    # IF NOT EXISTS finds the one that is there, which is no rival of itself.
    assert "exists already" in world.run(create("k1").replace("TABLE", "TABLE IF NOT EXISTS")).message
    for number, other in enumerate((create("k{}", group="h"), create("k{}", topics="v"), create("k{}", brokers="c:1"))):
        world.run(other.format(number + 5).replace("k{}", f"k{number + 5}"))


def test_settings_may_not_lead_into_another_tables_group(world: SqlWorld) -> None:
    world.run(create("k1"))
    world.run(create("k2", group="h"))
    for change in ("MODIFY SETTING kafka_group_name = 'g'", "MODIFY SETTING group_name = 'g', kafka_num_consumers = 2"):
        assert refused(world, f"ALTER TABLE k2 {change}").code == "GROUP_IN_USE"
    assert "kafka_num_consumers" not in kafka(world, "k2").settings
    world.run("ALTER TABLE k2 MODIFY SETTING kafka_group_name = 'i', kafka_num_consumers = 2")
    # Tables that shared a group before they could not go on being altered otherwise.
    world.catalog.tables.modify_settings(kafka(world, "k2").uuid, {"kafka_group_name": "g"})
    world.run("ALTER TABLE k2 MODIFY SETTING kafka_num_consumers = 3")
    assert refused(world, "ALTER TABLE k2 MODIFY SETTING kafka_topic_list = 'a,t'").code == "GROUP_IN_USE"


def test_an_undrop_does_not_meet_the_one_that_went_on(world: SqlWorld) -> None:
    world.run(create("k1"))
    world.run("DROP TABLE k1")
    world.run(create("k2"))
    error = refused(world, "UNDROP TABLE k1")
    assert (error.code, error.facts["read_by"]) == ("GROUP_IN_USE", "default.k2")
    assert world.catalog.tables.find("default", "k1") is None
    world.run("DROP TABLE k2")
    world.run("UNDROP TABLE k1")
    assert kafka(world).name == "k1"


def test_a_rename_keeps_the_group(world: SqlWorld) -> None:
    world.run(create("k1", group=""))
    world.run("RENAME TABLE k1 TO k3")
    assert kafka(world, "k3").settings["kafka_group_name"] == "tilth.default.k1"
    shown = world.rows("SHOW CREATE TABLE k3")[0][0]
    assert "kafka_group_name = 'tilth.default.k1'" in str(shown)
    # A new table of the old name would read for the same group.
    assert refused(world, create("k1", group="")).facts["read_by"] == "default.k3"
    world.run(create("k4", group="mine"))
    world.run("RENAME TABLE k4 TO k5")
    assert kafka(world, "k5").settings["kafka_group_name"] == "mine"


def test_create_says_where_the_group_stood(world: SqlWorld) -> None:
    assert "stood" not in world.run(create("k1", group="")).message
    reads(world, "k1", 120)
    message = world.run("DROP TABLE k1").message
    assert message.endswith("; its offsets stay those of group tilth.default.k1")
    message = world.run(create("k1", group="")).message
    assert "group tilth.default.k1 stood at t/0 at 120, and goes on there if the broker has the same topics" in message
    # The offsets of the group on another broker are unknown.
    world.run("DROP TABLE k1")
    assert "stood" not in world.run(create("k1", brokers="c:1", group="")).message


def test_a_reset_says_where_each_partition_goes_on(world: SqlWorld) -> None:
    world.run(create("k1"))
    assert world.run("SYSTEM RESET CONSUME OFFSET k1 TO STORED").message == "default.k1 continues at topic/0 at 42"


def test_columns_change_with_the_views_that_read_them_or_not_at_all(world: SqlWorld) -> None:
    world.run(create("k1"))
    world.run("CREATE TABLE t (a Int64, s String) ENGINE = MergeTree ORDER BY a")
    world.dispatch.answer = answer_view_tasks(("default", "k1"))
    world.run("CREATE MATERIALIZED VIEW v TO t AS SELECT * FROM k1")
    tables = world.catalog.tables
    target, view = tables.get("default", "t"), tables.get("default", "v")
    assert isinstance(target, TableDef)
    assert isinstance(view, ViewDef)
    before = kafka(world)
    # Somebody else was faster.
    world.run("ALTER TABLE k1 ADD COLUMN b Int64")
    assert ("wake", before.uuid) in world.consume.calls
    with pytest.raises(SchemaChangedError):
        tables.alter_kafka(before, before.schema, next_column_id=9, views=[(view, target)])
    # A view came meanwhile that was not checked.
    with pytest.raises(SchemaChangedError):
        tables.alter_kafka(kafka(world), before.schema, next_column_id=9, views=[])
    # The target has other columns by now.
    world.run("ALTER TABLE t ADD COLUMN c Int64")
    with pytest.raises(SchemaChangedError):
        tables.alter_kafka(kafka(world), before.schema, next_column_id=9, views=[(view, target)])
    assert kafka(world).schema.names == ("a", "s", "b")
    assert kafka(world).next_column_id == 4
    assert world.run("ALTER TABLE k1 ADD COLUMN IF NOT EXISTS b Int32").message.startswith("nothing to change")
    # A view that would leave out a column which it filled.
    world.dispatch.answer = lambda spec: b"\x90"
    error = refused(world, "ALTER TABLE k1 DROP COLUMN b")
    assert (error.code, error.facts["view"]) == ("TABLE_IN_USE", "default.v")
