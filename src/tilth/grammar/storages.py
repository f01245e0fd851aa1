"""Statements about storages: from text to them. Pure."""

from __future__ import annotations

from tilth.grammar.phrases import take_if_exists, take_if_not_exists
from tilth.grammar.storage_statements import (
    AlterStorage,
    CreateStorage,
    DropStorage,
    ReplicaChange,
    ShowCreateStorage,
    ShowStorages,
)
from tilth.grammar.text.cursor import Cursor

_NAME = "the name of a storage"


def parse_create_storage(cursor: Cursor) -> CreateStorage:
    """Read what follows CREATE STORAGE."""
    if_not_exists = take_if_not_exists(cursor)
    name = cursor.name(_NAME)
    if cursor.choose("ROOT", "REPLICAS") == "REPLICAS":
        return _replicas(cursor, name, if_not_exists=if_not_exists)
    return CreateStorage(storage=name, root=_address(cursor, "of the storage"), if_not_exists=if_not_exists)


def parse_alter_storage(cursor: Cursor) -> AlterStorage:
    """Read what follows ALTER STORAGE."""
    name = cursor.name(_NAME)
    change = ReplicaChange(cursor.choose(*(each.value for each in ReplicaChange)))
    cursor.expect("REPLICA")
    replica, substitute = _address(cursor, "of the replica"), ""
    if change is ReplicaChange.REPLACE:
        cursor.expect("WITH")
        substitute = _address(cursor, "of the new replica")
    return AlterStorage(storage=name, change=change, replica=replica, substitute=substitute)


def _replicas(cursor: Cursor, name: str, *, if_not_exists: bool) -> CreateStorage:
    cursor.expect_symbol("(")
    replicas = [_address(cursor, "of a replica")]
    while cursor.take_symbol(","):
        replicas.append(_address(cursor, "of a replica"))
    cursor.expect_symbol(")")
    quorum = cursor.integer("a number of replicas") if cursor.take("QUORUM") else None
    return CreateStorage(storage=name, replicas=tuple(replicas), quorum=quorum, if_not_exists=if_not_exists)


def _address(cursor: Cursor, whose: str) -> str:
    if not cursor.is_string():
        hint = "put it in single quotes: 's3://bucket/prefix?key=env:TILTH_STORAGE_KEY&secret=..'"
        raise cursor.expected(f"the address {whose}", hint=hint)
    return cursor.string("the address")


def parse_drop_storage(cursor: Cursor) -> DropStorage:
    """Read what follows DROP STORAGE."""
    if_exists = take_if_exists(cursor)
    return DropStorage(storage=cursor.name(_NAME), if_exists=if_exists)


def parse_show_storages(cursor: Cursor) -> ShowStorages:
    """Read what follows SHOW STORAGES."""
    return ShowStorages(like=cursor.string("a pattern") if cursor.take("LIKE") else None)


def parse_show_create_storage(cursor: Cursor) -> ShowCreateStorage:
    """Read what follows SHOW CREATE STORAGE."""
    return ShowCreateStorage(storage=cursor.name(_NAME))
