"""BACKUP CATALOG: all that the catalog knows at one moment, in one file, while the node goes on.

Covers: where the file may lie, how it comes there. Does not cover: its format (tilth.catalog), restoring it (the
command line, on a folder without a node). Always holds: a backup has its name when it is whole and on the disk; no file
is ever replaced, and none is written outside of the backup folder.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa

from tilth.base.errors import ConflictError, InvalidInputError, UnavailableError
from tilth.base.full import full_error
from tilth.base.units import show_bytes
from tilth.catalog import DumpHeader
from tilth.sql.context.audit import audited
from tilth.sql.context.services import Call, Services
from tilth.sql.grammar import BackupCatalog
from tilth.sql.results.answer import Outcome
from tilth.storage import sync_local_folder

_UNFINISHED = ".unfinished"
_NEVER_REPLACED = "choose another name: a backup is never replaced"
#: Two at once would only take longer, and might take one name.
_one_at_a_time = threading.Lock()


class BackupExistsError(ConflictError):
    """there is a file of this name already"""

    code = "BACKUP_EXISTS"


class BackupFailedError(UnavailableError):
    """the backup cannot be written"""

    code = "BACKUP_FAILED"


def backup_catalog(services: Services, call: Call, statement: BackupCatalog) -> Outcome:
    """Write the file; answer with its path, its bytes, the number of records, and the moment it shows.

    Raises InvalidInputError for a path outside of the backup folder, BackupExistsError, BackupFailedError,
    StoreFullError.
    """
    folder = Path(services.backups)
    path = _path(folder, statement.path)
    header = DumpHeader(version=version("tilth"), server=services.server, created_ms=services.clock.now_ms())
    cancellation = services.running.cancellation_of(call.query_id)
    with audited(services, call, verb="BACKUP CATALOG"), _one_at_a_time:
        try:
            for each in (folder, path.parent):
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
            if path.exists():
                raise BackupExistsError(file=path, hint=_NEVER_REPLACED)
            records, size = _write(services, header, path, between=cancellation.raise_if_cancelled)
        except OSError as error:
            hint = "look at the folder and its rights; catalog.backup-folder names another one"
            failed = BackupFailedError(file=path, reason=error.strerror or error, hint=hint)
            raise full_error(error, folder=str(folder)) or failed from error
    answer = {
        "file": pa.array([str(path)], pa.string()),
        "bytes": pa.array([size], pa.int64()),
        "records": pa.array([records], pa.int64()),
        "created": pa.array([header.created_ms], pa.timestamp("ms", "UTC")),
    }
    message = f"{records} records in {show_bytes(size)}; copy the tables folder before collected files leave the trash"
    return Outcome(table=pa.table(answer), message=message)


def _path(folder: Path, given: str) -> Path:
    hint = f"give a name, or a path below {folder}: a node setting, catalog.backup-folder, says where backups lie"
    if not given.strip() or "\0" in given or given.endswith(("/", _UNFINISHED)):
        raise InvalidInputError("not a file's name", path=given, hint=hint)
    path = Path(os.path.normpath(folder / given))
    # Links count as what they point at.
    inside = Path(os.path.realpath(folder))
    if path == folder or inside not in Path(os.path.realpath(path)).parents:
        raise InvalidInputError("the path leads out of the backup folder", path=given, hint=hint)
    return path


def _write(services: Services, header: DumpHeader, path: Path, *, between: Callable[[], None]) -> tuple[int, int]:
    """Return the number of records and of bytes."""
    unfinished = path.with_name(path.name + _UNFINISHED)
    try:
        with open(unfinished, "wb", opener=_private) as sink:
            records = services.catalog.dump(header, sink, between=between)
            sink.flush()
            os.fsync(sink.fileno())
        # Refused where the name is taken meanwhile.
        os.link(unfinished, path)
        sync_local_folder(str(path.parent))
        return records, path.stat().st_size
    except FileExistsError as error:
        raise BackupExistsError(file=path, hint=_NEVER_REPLACED) from error
    finally:
        unfinished.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    """Open a file that only its user can read: a catalog has secrets of Kafka tables."""
    return os.open(path, flags, 0o600)
