"""Beginning of a node, before its rooms are imported: its settings, its folder, and Spark, whose JVM starts meanwhile.

Covers: the settings of a node, its folder, the beginning of its Spark. Does not cover: the rooms (node.py).
Always holds: this module imports little; a started Spark is ended by its starter or by the node.

Tests: tests/unit/base/test_sources.py.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tilth.base.errors import FolderError
from tilth.base.logs import Log
from tilth.base.settings import TRACE_SETTINGS, SettingGroup
from tilth.catalog import NODE_SETTINGS as CATALOG_SETTINGS
from tilth.ingest import INGEST_SETTINGS
from tilth.maintenance import NODE_SETTINGS as MAINTENANCE_SETTINGS
from tilth.membership import SETTINGS as MEMBERSHIP_SETTINGS
from tilth.server import SETTINGS as SERVER_SETTINGS
from tilth.server import bind as bind
from tilth.storage import NODE_SETTINGS as STORAGE_SETTINGS
from tilth.storage import sync_local_folder
from tilth.warehouse import SETTINGS as WAREHOUSE_SETTINGS
from tilth.warehouse import WorkerSession, class_data, warehouse_settings

#: Every setting that `--set` accepts.
NODE_SETTINGS = SettingGroup(
    (
        *CATALOG_SETTINGS.all,
        *STORAGE_SETTINGS.all,
        *WAREHOUSE_SETTINGS.all,
        *INGEST_SETTINGS.all,
        *MAINTENANCE_SETTINGS.all,
        *MEMBERSHIP_SETTINGS.all,
        *SERVER_SETTINGS.all,
        *TRACE_SETTINGS.all,
    )
)
#: Modes of folders: private; readable by a group.
PRIVATE = 0o700
_GROUP_READS = 0o750

_log = Log("node")


def begin_spark(folder: Path, given: Mapping[str, str]) -> WorkerSession:
    """Begin to start the Spark of the node over the folder, and return at once. Raises FolderError."""
    folder = prepare_folder(folder)
    settings = warehouse_settings(NODE_SETTINGS.canonical(given))
    session = WorkerSession(
        settings,
        folder=str(folder / "spark"),
        log_folder=str(folder / "log"),
        class_data=class_data(settings, default=folder / "class-data"),
    )
    session.begin()
    return session


def prepare_folder(folder: Path) -> Path:
    """Make what a node needs in the folder, and return its whole path. Raises FolderError."""
    try:
        new = [each for each in (folder, *folder.parents) if not each.exists()]
        folder.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        check_writable(folder)
        for name in ("catalog", "tables", "spark", "log"):
            (folder / name).mkdir(mode=PRIVATE, exist_ok=True)
        _close_to_others(folder)
        # A commit in these folders is lost with their names.
        for each in (folder, *(made.parent for made in new)):
            # A folder that others cannot list can be written to, and cannot be waited for.
            with suppress(PermissionError):
                sync_local_folder(str(each))
    except OSError as error:
        hint = "choose a folder that can be created and written"
        raise FolderError(folder=folder, reason=error.strerror, hint=hint) from error
    return folder.resolve()


def _close_to_others(folder: Path) -> None:
    """Make catalog, logs and Spark's files private. A group that the operator admits can read the tables, with a Spark
    of its own."""
    modes = {each: each.stat().st_mode & _GROUP_READS for each in (folder, folder / "tables")}
    modes |= {folder / name: PRIVATE for name in ("catalog", "spark", "log")}
    for each, mode in modes.items():
        try:
            each.chmod(mode)
        except PermissionError as error:
            # It belongs to another user, as a volume of a container may.
            _log.warning("folder_stays_open", folder=each, reason=error.strerror)


def check_writable(folder: Path) -> None:
    """Raises FolderError."""
    if not os.access(folder, os.W_OK):
        raise FolderError("the folder cannot be written", folder=folder, hint="check its owner and mode")
