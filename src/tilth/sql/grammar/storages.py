"""Statements about storages: from text to them. Pure."""

from __future__ import annotations

from tilth.sql.grammar.phrases import take_if_exists, take_if_not_exists
from tilth.sql.grammar.storage_statements import CreateStorage, DropStorage, ShowCreateStorage, ShowStorages
from tilth.sql.grammar.text.cursor import Cursor

_NAME = "the name of a storage"


def parse_create_storage(cursor: Cursor) -> CreateStorage:
    """Read what follows CREATE STORAGE."""
    if_not_exists = take_if_not_exists(cursor)
    name = cursor.name(_NAME)
    cursor.expect("ROOT")
    if not cursor.is_string():
        hint = "put it in single quotes: ROOT 's3://bucket/prefix?key=env:TILTH_STORAGE_KEY&secret=..'"
        raise cursor.expected("the address of the storage", hint=hint)
    return CreateStorage(storage=name, root=cursor.string("the address"), if_not_exists=if_not_exists)


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
