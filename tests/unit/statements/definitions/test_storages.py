"""CREATE, DROP and SHOW STORAGE, and tables that name one: over a real catalog and folders of the local disk."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.codes import WithCode
from tests.sql_world import SqlWorld, table_of
from tests.statement_texts import render
from tilth.base.errors import NotFoundError, TilthError
from tilth.control.insert_batches import InsertBatches
from tilth.statements.registry import parse
from tilth.storage import BadStoreError, NodeStorageSettings, check_from_sql, parse_root

HOSTILE = 'it\'s `a` "b" \U0001f680'


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    (tmp_path / "places").mkdir()
    return SqlWorld(tmp_path / "node", settings={"storage.local-folder": str(tmp_path / "places")})


@pytest.mark.parametrize(
    "text",
    [
        "CREATE STORAGE s ROOT 's3://bucket/prefix?key=env:TILTH_STORAGE_KEY&secret=env:TILTH_STORAGE_SECRET'",
        "CREATE STORAGE IF NOT EXISTS `a b` ROOT '/folder/it\\'s'",
        "CREATE STORAGE s REPLICAS ('/a', '/it\\'s b', 's3://bucket/p') QUORUM 2",
        "CREATE STORAGE IF NOT EXISTS s REPLICAS ('/a', '/b')",
        "ALTER STORAGE `a b` RESTORE REPLICA '/it\\'s b'",
        "ALTER STORAGE `a b` REPLACE REPLICA '/it\\'s b' WITH '/new \\' place'",
        "ALTER STORAGE s ADD REPLICA '/c'",
        "DROP STORAGE s",
        "DROP STORAGE IF EXISTS `a b`",
        "SHOW STORAGES",
        "SHOW STORAGES LIKE 's%'",
        "SHOW CREATE STORAGE s",
    ],
)
def test_statements_are_read_and_written_again(text: str) -> None:
    statement = parse(text)
    assert parse(render(statement)) == statement


def test_new_tables_are_in_the_default_storage_of_the_node(tmp_path: Path) -> None:
    settings = {"storage.local-folder": str(tmp_path), "storage.default": "safe"}
    world = SqlWorld(tmp_path / "node", settings=settings)
    with pytest.raises(NotFoundError, check=WithCode("STORAGE_NOT_FOUND"), match="safe"):
        world.run("CREATE TABLE t (a BIGINT) ENGINE = MergeTree ORDER BY a")
    assert world.catalog.tables.find("default", "t") is None
    folders = [tmp_path / name for name in ("one", "two")]
    world.run("CREATE STORAGE safe REPLICAS ('{}', '{}') QUORUM 2".format(*folders))
    world.run("CREATE TABLE t (a BIGINT) ENGINE = ReplicatedMergeTree ORDER BY a")
    world.run("CREATE TABLE u (a BIGINT) ENGINE = MergeTree ORDER BY a SETTINGS storage_policy = 'default'")
    world.run("CREATE TABLE k (a BIGINT) ENGINE = Kafka('h:1', 'x', 'g', 'JSONEachRow')")
    policies = world.rows("SELECT name, storage_policy FROM system.tables WHERE engine = 'MergeTree' ORDER BY name")
    assert policies == [("k_dead_letters", "safe"), ("t", "safe"), ("u", "default")]
    [(ddl,)] = world.rows("SHOW CREATE TABLE t")
    assert "storage_policy = 'safe'" in str(ddl)
    world.run("INSERT INTO t VALUES (1)")
    assert [len(list((folder / table_of(world).uuid / "data").iterdir())) for folder in folders] == [1, 1]


def test_a_storage_is_made_shown_used_and_dropped(world: SqlWorld, tmp_path: Path) -> None:
    place = tmp_path / "places" / "one"
    world.run(f"CREATE STORAGE `{HOSTILE.replace('`', '``')}` ROOT '{place}'")
    assert (place / ".tilth").exists()
    shown = world.rows("SELECT name, kind, root, tables, state, reason FROM system.storages")
    assert shown[1:] == [(HOSTILE, "file", str(place), 0, "ok", None)]
    [(text,)] = world.rows(f"SHOW CREATE STORAGE `{HOSTILE.replace('`', '``')}`")
    assert str(place) in str(text)
    escaped = HOSTILE.replace("'", "\\'")
    world.run(f"CREATE TABLE t (a BIGINT) ENGINE = MergeTree ORDER BY a SETTINGS storage_policy = '{escaped}'")
    assert world.rows("SELECT storage_policy FROM system.tables WHERE name = 't'") == [(HOSTILE,)]
    world.run("INSERT INTO t VALUES (1)")
    table = world.catalog.tables.find("default", "t")
    assert table is not None
    assert list((place / table.uuid / "data").iterdir())
    with pytest.raises(TilthError, match=r"default\.t"):
        world.run(f"DROP STORAGE `{HOSTILE.replace('`', '``')}`")
    with pytest.raises(TilthError, match="a table stays in its storage"):
        world.run("ALTER TABLE t MODIFY SETTING storage_policy = 'default'")
    with pytest.raises(TilthError, match="a table stays in its storage"):
        world.run("ALTER TABLE t RESET SETTING storage_policy")
    world.run("DROP TABLE t")
    with pytest.raises(TilthError, match=r"default\.t"):
        world.run(f"DROP STORAGE `{HOSTILE.replace('`', '``')}`")


def test_a_storage_with_replicas_takes_rows_and_says_what_each_lacks(world: SqlWorld, tmp_path: Path) -> None:
    one, two = (tmp_path / "places" / name for name in ("one", "two"))
    world.run(f"CREATE STORAGE r REPLICAS ('{one}', '{two}')")
    [(text,)] = world.rows("SHOW CREATE STORAGE r")
    assert text == f"CREATE STORAGE r REPLICAS ('{one}', '{two}') QUORUM 2"
    world.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a SETTINGS storage_policy = 'r'")
    world.run("INSERT INTO t VALUES (1)")
    [uuid] = [each.uuid for each in world.catalog.tables.all()]
    assert sorted(path.name for path in (one / uuid / "data").iterdir()) == sorted(
        path.name for path in (two / uuid / "data").iterdir()
    )
    assert world.rows("SELECT replica_num, state, quorum, queue_size FROM system.replicas") == [
        (0, "ok", 2, 0),
        (1, "ok", 2, 0),
    ]
    # Nothing is written to a replica that is not what it was, and with a quorum of one nothing waits for it.
    (two / uuid / ".tilth").unlink()
    with pytest.raises(TilthError, match="copies=1 quorum=2"):
        world.run("INSERT INTO t VALUES (2)")
    world.run("INSERT INTO t SETTINGS insert_quorum = 1 VALUES (2)")
    assert world.rows("SELECT replica_num, state, queue_size FROM system.replicas") == [(0, "ok", 0), (1, "behind", 1)]
    with pytest.raises(TilthError) as caught:
        world.run("INSERT INTO t SETTINGS insert_quorum = 3 VALUES (2)")
    assert caught.value.code == "BAD_QUORUM"
    answer = world.run("SYSTEM SCRUB t")
    assert answer.table.to_pylist()[0]["repaired"] == 1


def test_the_quorum_of_an_insert_is_that_of_all_its_files(world: SqlWorld, tmp_path: Path) -> None:
    """An upsert writes what it changes in older rows too."""
    one, two = (tmp_path / "places" / name for name in ("one", "two"))
    world.run(f"CREATE STORAGE r REPLICAS ('{one}', '{two}')")
    world.run(
        "CREATE TABLE t (a Int64, b Int64) ENGINE = MergeTree ORDER BY a UNIQUE KEY a SETTINGS storage_policy='r'"
    )
    world.run("INSERT INTO t VALUES (1, 1)")
    [uuid] = [each.uuid for each in world.catalog.tables.all()]
    (two / uuid / ".tilth").unlink()
    world.run("INSERT INTO t SETTINGS insert_quorum = 1 VALUES (1, 2)")
    [table] = world.catalog.tables.all()
    snapshot = world.catalog.parts.snapshot(table.uuid)
    assert (len(snapshot.parts), len(snapshot.deltas)) == (2, 1)
    names = {part.file.name for part in snapshot.parts[1:]} | {delta.file.name for delta in snapshot.deltas}
    notes = world.catalog.copies.of(table.uuid)
    assert {(note.replica, note.file and note.file.name) for note in notes} == {(1, name) for name in names}
    assert not any(
        file.copies for file in [*(each.file for each in snapshot.parts), *(each.file for each in snapshot.deltas)]
    )


def test_inserts_of_different_quorums_share_no_file(
    world: SqlWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one would be answered with fewer copies than its table promises, or wait for more than it asked for."""
    one, two, three = (tmp_path / "places" / name for name in ("one", "two", "three"))
    world.run(f"CREATE STORAGE r REPLICAS ('{one}', '{two}', '{three}') QUORUM 2")
    world.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a SETTINGS storage_policy = 'r', memory_buffer = 1")
    shapes: list[object] = []
    add = InsertBatches.add

    def noted(self: InsertBatches[object], *given: Any, **named: Any) -> None:
        shapes.append(named["shape"])
        add(self, *given, **named)

    monkeypatch.setattr(InsertBatches, "add", noted)
    for quorum in ("1", "0", "2", "3"):
        world.run(f"INSERT INTO t SETTINGS insert_quorum = {quorum}, async_insert = 1 VALUES (1)")
    assert len(set(shapes)) == 3
    assert shapes[1] == shapes[2]


def test_a_table_that_is_there_gets_no_sign_where_it_lacks_it(world: SqlWorld, tmp_path: Path) -> None:
    """Only REPLICATE knows which files such a replica lacks."""
    one, two = (tmp_path / "places" / name for name in ("one", "two"))
    world.run(f"CREATE STORAGE r REPLICAS ('{one}', '{two}')")
    create = "CREATE TABLE IF NOT EXISTS t (a Int64) ENGINE = MergeTree ORDER BY a SETTINGS storage_policy = 'r'"
    world.run(create)
    [uuid] = [each.uuid for each in world.catalog.tables.all()]
    assert all((place / uuid / ".tilth").exists() for place in (one, two))
    (two / uuid / ".tilth").unlink()
    world.run(create)
    assert not (two / uuid / ".tilth").exists()


def test_a_replica_that_gives_way_is_noted_as_incomplete_for_all_its_tables(world: SqlWorld, tmp_path: Path) -> None:
    one, two, four = (tmp_path / "places" / name for name in ("one", "two", "four"))
    world.run(f"CREATE STORAGE r REPLICAS ('{one}', '{two}')")
    for name in ("t", "u", "gone"):
        world.run(f"CREATE TABLE {name} (a Int64) ENGINE = MergeTree ORDER BY a SETTINGS storage_policy = 'r'")
    world.run("DROP TABLE gone")
    world.run("CREATE TABLE other (a Int64) ENGINE = MergeTree ORDER BY a")
    world.run(f"ALTER STORAGE r REPLACE REPLICA '{two}' WITH '{four}'")
    [(text,)] = world.rows("SHOW CREATE STORAGE r")
    assert text == f"CREATE STORAGE r REPLICAS ('{one}', '{four}') QUORUM 2"
    world.run(f"ALTER STORAGE r ADD REPLICA '{two}'")
    [(text,)] = world.rows("SHOW CREATE STORAGE r")
    assert text == f"CREATE STORAGE r REPLICAS ('{one}', '{four}', '{two}') QUORUM 2"
    dropped = [each.relation for each in world.catalog.tables.dropped()]
    for table in (*world.catalog.tables.all(), *dropped):
        expected = () if table.name == "other" else (1, 2)
        assert world.catalog.copies.incomplete(table.uuid) == expected


def test_a_replica_that_others_need_does_not_give_way(world: SqlWorld, tmp_path: Path) -> None:
    one, two, four, five = (tmp_path / "places" / name for name in ("one", "two", "four", "five"))
    world.run(f"CREATE STORAGE r REPLICAS ('{one}', '{two}')")
    world.run("CREATE TABLE t (a Int64) ENGINE = MergeTree ORDER BY a SETTINGS storage_policy = 'r'")
    world.run("INSERT INTO t VALUES (1)")
    world.run(f"ALTER STORAGE r REPLACE REPLICA '{two}' WITH '{four}'")
    # The new one has nothing yet: now all files are in the first one alone.
    with pytest.raises(TilthError) as caught:
        world.run(f"ALTER STORAGE r REPLACE REPLICA '{one}' WITH '{five}'")
    assert caught.value.code == "REPLICA_NEEDED"
    assert not five.exists()
    [(text,)] = world.rows("SHOW CREATE STORAGE r")
    assert text == f"CREATE STORAGE r REPLICAS ('{one}', '{four}') QUORUM 2"


def test_a_storage_is_changed_as_it_is_and_not_as_it_was_known(world: SqlWorld, tmp_path: Path) -> None:
    """Another server has changed it a moment ago, or dropped it."""
    one, two, three, four = (tmp_path / "places" / name for name in ("one", "two", "three", "four"))
    world.run(f"CREATE STORAGE r REPLICAS ('{one}', '{two}')")
    [known] = world.catalog.storages.all()
    world.run(f"ALTER STORAGE r ADD REPLICA '{three}'")
    world.engine._services.root.declare({"r": parse_root(known.root)})
    world.run(f"ALTER STORAGE r ADD REPLICA '{four}'")
    [(text,)] = world.rows("SHOW CREATE STORAGE r")
    assert text == f"CREATE STORAGE r REPLICAS ('{one}', '{two}', '{three}', '{four}') QUORUM 2"
    world.catalog.storages.drop("r")
    with pytest.raises(TilthError) as caught:
        world.run(f"ALTER STORAGE r ADD REPLICA '{four}x'")
    assert caught.value.code == "STORAGE_NOT_FOUND"


def test_a_storage_that_nobody_uses_is_dropped_and_its_files_stay(world: SqlWorld, tmp_path: Path) -> None:
    place = tmp_path / "places" / "one"
    world.run(f"CREATE STORAGE s ROOT '{place}'")
    world.run(f"CREATE STORAGE IF NOT EXISTS s ROOT '{place}'")
    world.run("DROP STORAGE s")
    world.run("DROP STORAGE IF EXISTS s")
    assert (place / ".tilth").exists()
    assert [name for (name,) in world.rows("SELECT name FROM system.storages")] == ["default"]


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("CREATE STORAGE s ROOT '/etc'", "BAD_STORE"),
        ("CREATE STORAGE s ROOT '{places}/../out'", "BAD_STORE"),
        ("CREATE STORAGE s ROOT 's3://bucket/p?key=env:HOME&secret=env:HOME'", "BAD_STORE"),
        ("CREATE STORAGE s ROOT 's3://bucket/p?key=file:/etc/passwd&secret=file:/etc/passwd'", "BAD_STORE"),
        ("CREATE STORAGE s ROOT 's3://bucket/p?key=AKIA&secret=hunter2'", "BAD_STORE"),
        ("CREATE STORAGE s ROOT 's3://u:hunter2@bucket/p'", "BAD_STORE"),
        # The rights of the machine would go to a host of the user's choice.
        ("CREATE STORAGE s ROOT 's3://bucket/p?endpoint=https://h.example'", "BAD_STORE"),
        ("CREATE STORAGE s ROOT 's3://bucket/p?endpoint=https://h.example&token=env:TILTH_STORAGE_T'", "BAD_STORE"),
        ("CREATE STORAGE s ROOT 'gs://bucket/p?endpoint=https://h.example'", "BAD_STORE"),
        ("CREATE STORAGE s ROOT 'az://bucket/p?account=abc&endpoint=https://h.example'", "BAD_STORE"),
        ("CREATE STORAGE s REPLICAS ('/a', 's3://bucket/p?endpoint=https://h.example') QUORUM 1", "BAD_STORE"),
        ("CREATE STORAGE s ROOT 'hunter2'", "BAD_STORE"),
        ("CREATE STORAGE s ROOT '{root}'", "BAD_STORE"),
        ("CREATE STORAGE `default` ROOT '{places}/x'", "STORAGE_EXISTS"),
        ("CREATE STORAGE s", "SYNTAX_ERROR"),
        ("CREATE STORAGE s ROOT 17", "SYNTAX_ERROR"),
        ("DROP STORAGE `default`", "STORAGE_IN_USE"),
        ("DROP STORAGE nowhere", "STORAGE_NOT_FOUND"),
        ("SHOW CREATE STORAGE nowhere", "STORAGE_NOT_FOUND"),
        ("CREATE TABLE t (a BIGINT) ENGINE = MergeTree SETTINGS storage_policy = 'nowhere'", "STORAGE_NOT_FOUND"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_made(world: SqlWorld, tmp_path: Path, statement: str, code: str) -> None:
    text = statement.format(places=tmp_path / "places", root=tmp_path / "node" / "tables")
    with pytest.raises(TilthError) as raised:
        world.run(text)
    assert raised.value.code == code, str(raised.value)
    assert "hunter2" not in str(raised.value)
    assert [name for (name,) in world.rows("SELECT name FROM system.storages")] == ["default"]
    assert world.rows("SHOW TABLES") == []


@contextmanager
def port_that_closes() -> Iterator[int]:
    """Yield a port at which every connection is accepted, and closed at once."""

    def accept() -> None:
        with suppress(OSError):
            while True:
                listener.accept()[0].close()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=accept, daemon=True).start()
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    "address", ["s3://bucket/p?endpoint=http://127.0.0.1:{port}&{keys}", "hdfs://127.0.0.1:{port}/x"]
)
def test_statements_do_not_tell_open_from_closed_ports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("TILTH_STORAGE_KEY", "0123456789")
    keys = "key=env:TILTH_STORAGE_KEY&secret=env:TILTH_STORAGE_KEY"

    def told(world: SqlWorld, port: int) -> str:
        with pytest.raises(TilthError) as raised:
            world.run(f"CREATE STORAGE s ROOT '{address.format(port=port, keys=keys)}'")
        return str(raised.value).replace(str(port), "PORT")

    world = SqlWorld(tmp_path / "node")
    with socket.create_server(("127.0.0.1", 0)) as gone:
        closed = gone.getsockname()[1]
    with port_that_closes() as open_one:
        assert told(world, open_one) == told(world, closed)
        assert "no store answers there" in told(world, closed)
        listed = SqlWorld(tmp_path / "listed", settings={"storage.hosts": "127.0.0.0/8"})
        assert told(listed, open_one) != told(listed, closed)


def test_one_place_has_one_name(world: SqlWorld, tmp_path: Path) -> None:
    place = tmp_path / "places" / "one"
    world.run(f"CREATE STORAGE one ROOT '{place}'")
    with pytest.raises(TilthError, match="this location is a storage already"):
        world.run(f"CREATE STORAGE two ROOT '{place}/'")


def test_statements_refer_to_what_was_set_aside_for_them() -> None:
    settings = NodeStorageSettings(local_folder="/places", secrets_folder="/secrets")
    for text in (
        "s3://b1b/p?key=env:TILTH_STORAGE_A&secret=file:/secrets/x",
        "gs://b1b/p?credentials=file:/secrets/deep/x.json",
        "hdfs://host:8020/p",
        "/places/x",
    ):
        assert check_from_sql(text, settings).text == text
    for text in (
        "s3://b1b/p?key=env:TILTH_SERVICE_TOKEN&secret=file:/secrets/x",
        "s3://b1b/p?key=env:TILTH_STORAGE_A&secret=file:/secrets/../etc/x",
        "s3://b1b/p?key=env:TILTH_STORAGE_A&secret=file:/secretsx",
        "/placesx",
        "s3://b1b/p?endpoint=http://169.254.169.254&key=env:TILTH_STORAGE_A&secret=file:/secrets/x",
        "az://b1b/p?account=a&endpoint=http://[::ffff:a9fe:a9fe]:80&key=env:TILTH_STORAGE_A",
        "gs://b1b/p?endpoint=http://metadata.google.internal&credentials=file:/secrets/x",
        "hdfs://169.254.1.1:8020/p",
    ):
        with pytest.raises(BadStoreError):
            check_from_sql(text, settings)
    listed = NodeStorageSettings(hosts=("*.example.com",))
    assert check_from_sql("hdfs://a.example.com:8020/p", listed).kind == "hdfs"
    with pytest.raises(BadStoreError, match=r"may not name this host: host=b\.example\.org"):
        check_from_sql("hdfs://b.example.org:8020/p", listed)


def test_a_folder_whose_disk_is_not_mounted_is_away(world: SqlWorld, tmp_path: Path) -> None:
    place = tmp_path / "places" / "one"
    world.run(f"CREATE STORAGE one ROOT '{place}'")
    place.rename(tmp_path / "unmounted")
    place.mkdir()
    [(state, reason)] = world.rows("SELECT state, reason FROM system.storages WHERE name = 'one'")
    assert (state, reason) == ("away", "the location of the tables is not there any more")
