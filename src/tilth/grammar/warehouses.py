"""Statements about warehouses and workers: from text to them. Pure."""

from __future__ import annotations

from tilth.grammar.literals import parse_settings
from tilth.grammar.phrases import skip_on_cluster, take_if_exists, take_if_not_exists
from tilth.grammar.statements import (
    SettingTexts,
)
from tilth.grammar.text.cursor import Cursor
from tilth.grammar.warehouse_statements import (
    AlterServer,
    AlterWarehouse,
    AlterWorker,
    CreateWarehouse,
    DropWarehouse,
    ShowCreateWarehouse,
    ShowWarehouses,
)

_NAME = "the name of a warehouse"


def parse_create_warehouse(cursor: Cursor) -> CreateWarehouse:
    """Read what follows CREATE WAREHOUSE."""
    if_not_exists = take_if_not_exists(cursor)
    name = _name(cursor, _NAME)
    skip_on_cluster(cursor)
    return CreateWarehouse(warehouse=name, if_not_exists=if_not_exists, settings=_settings(cursor))


def parse_alter_warehouse(cursor: Cursor) -> AlterWarehouse:
    """Read what follows ALTER WAREHOUSE: SETTINGS a = 1, MODIFY SETTING a = 1 or RESET SETTING a."""
    name = _name(cursor, _NAME)
    if cursor.take("RESET", "SETTING"):
        names = [cursor.name("the name of a setting")]
        while cursor.take_symbol(","):
            names.append(cursor.name("the name of a setting"))
        return AlterWarehouse(warehouse=name, reset=tuple(names))
    settings = parse_settings(cursor) if cursor.take("MODIFY", "SETTING") else _settings(cursor)
    if not settings:
        raise cursor.expected("SETTINGS or RESET SETTING", words=("SETTINGS", "RESET SETTING"))
    return AlterWarehouse(warehouse=name, settings=settings)


def parse_drop_warehouse(cursor: Cursor) -> DropWarehouse:
    """Read what follows DROP WAREHOUSE."""
    if_exists = take_if_exists(cursor)
    return DropWarehouse(warehouse=_name(cursor, _NAME), if_exists=if_exists)


def parse_show_warehouses(cursor: Cursor) -> ShowWarehouses:
    """Read what follows SHOW WAREHOUSES."""
    return ShowWarehouses(like=cursor.string("a pattern") if cursor.take("LIKE") else None)


def parse_show_warehouse(cursor: Cursor) -> ShowWarehouses:
    """Read what follows SHOW WAREHOUSE."""
    return ShowWarehouses(warehouse=_name(cursor, _NAME))


def parse_show_create_warehouse(cursor: Cursor) -> ShowCreateWarehouse:
    """Read what follows SHOW CREATE WAREHOUSE."""
    return ShowCreateWarehouse(warehouse=_name(cursor, _NAME))


def parse_alter_worker(cursor: Cursor) -> AlterWorker:
    """Read what follows ALTER WORKER."""
    worker = _name(cursor, "the name of a worker")
    drains, because = _drain(cursor)
    return AlterWorker(worker=worker, drains=drains, because=because)


def parse_alter_server(cursor: Cursor) -> AlterServer:
    """Read what follows ALTER SERVER."""
    server = _name(cursor, "the name of a server")
    drains, because = _drain(cursor)
    return AlterServer(server=server, drains=drains, because=because)


def _drain(cursor: Cursor) -> tuple[bool, str]:
    """Read DRAIN or RESUME, and the reason."""
    drains = cursor.choose("DRAIN", "RESUME") == "DRAIN"
    because = ""
    if cursor.take("BECAUSE"):
        if not cursor.is_string():
            raise cursor.expected("the reason", hint="put it in single quotes: BECAUSE 'its disk is replaced'")
        because = cursor.string("the reason")
    return drains, because


def _name(cursor: Cursor, what: str) -> str:
    """Read a name, or a text: names of workers often have a dash."""
    return cursor.string(what) if cursor.is_string() else cursor.name(what)


def _settings(cursor: Cursor) -> SettingTexts:
    """Read SETTINGS, or ByConity's WITH."""
    if cursor.take("SETTINGS") or cursor.take("WITH"):
        return parse_settings(cursor)
    return ()
