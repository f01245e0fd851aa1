"""BACKUP CATALOG: the whole catalog as of one time, in one file, while the node goes on.

Covers: where the file may lie, how it comes there. Does not cover: its format (tilth.catalog), restoring it (the
command line, on a folder without a node). Always holds: a backup on a disk or in a bucket has its name when it is
whole and safe (on HDFS it has the name before, and one that was cut off is refused when it is restored); no file is
ever replaced, and none is written outside of the backup folder, which the operator has named.
"""

from __future__ import annotations

import os
import posixpath
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

import pyarrow as pa

from tilth.base.errors import ConflictError, InvalidInputError, UnavailableError
from tilth.base.full import full_error
from tilth.base.units import show_bytes
from tilth.catalog import ByteSink, DumpHeader
from tilth.control.context.audit import audited
from tilth.control.context.services import Call, Services
from tilth.control.kinds import StatementKind
from tilth.grammar.parse import Form
from tilth.grammar.statements import Statement
from tilth.grammar.text.cursor import Cursor
from tilth.query.results.answer import Outcome
from tilth.storage import Folder, StoreRoot, are_there, make_folder, new_whole_file, sync_local_folder

_UNFINISHED = ".unfinished"
_NEVER_REPLACED = "choose another name: a backup is never replaced"
_PART = re.compile(r"[A-Za-z0-9._=-]+")
#: Writes all records to a file, returns how many.
Dump = Callable[[ByteSink], int]
#: Two at once would only take longer, and might take one name.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupCatalog(Statement):
    """BACKUP CATALOG TO 'path'."""

    #: Path of the file in the node's backup folder.
    path: str


class BackupExistsError(ConflictError):
    """there is a file of this name already"""

    code = "BACKUP_EXISTS"


def _parse(cursor: Cursor) -> BackupCatalog:
    if not cursor.at("CATALOG"):
        hint = "BACKUP CATALOG TO 'name' keeps what is known of all tables; their files are copied beside it"
        raise cursor.refused("BACKUP of single tables is not supported", hint=hint)
    cursor.expect("CATALOG", "TO")
    return BackupCatalog(path=cursor.string("a file's name"))


def backup_catalog(services: Services, call: Call, statement: BackupCatalog) -> Outcome:
    """Write the file; answer with its path or address, its bytes, the number of records, and the time that it shows.

    Raises InvalidInputError for a path outside of the backup folder, BackupExistsError, UnavailableError,
    StoreFullError, and what an object store says.
    """
    root = services.backups
    header = DumpHeader(version=version("tilth"), server=services.server, created_ms=services.clock.now_ms())
    cancellation = services.running.cancellation_of(call.query_id)

    def dump(sink: ByteSink) -> int:
        return services.catalog.dump(header, sink, between=cancellation.raise_if_cancelled)

    if root.is_local:
        folder = Path(root.uri)
        path = _path(folder, statement.path)
        file, keep = str(path), partial(_keep_here, folder, path)
    else:
        name = _name(root, statement.path)
        file, keep = Folder(root).uri(name), partial(_keep_there, root, name)
    with audited(services, call, verb="BACKUP CATALOG"), _one_at_a_time:
        records, size = keep(dump)
    answer = {
        "file": pa.array([file], pa.string()),
        "bytes": pa.array([size], pa.int64()),
        "records": pa.array([records], pa.int64()),
        "created": pa.array([header.created_ms], pa.timestamp("ms", "UTC")),
    }
    message = f"{records} records in {show_bytes(size)}; copy the files of tables before collected ones leave the trash"
    return Outcome(table=pa.table(answer), message=message)


def _keep_here(folder: Path, path: Path, dump: Dump) -> tuple[int, int]:
    """Write the file to the local disk; return the number of records and of bytes."""
    try:
        for each in (folder, path.parent):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)
        if path.exists():
            raise BackupExistsError(file=path, hint=_NEVER_REPLACED)
        return _write(path, dump)
    except OSError as error:
        hint = "check the folder and its rights; catalog.backup-folder names another one"
        failed = UnavailableError.coded(
            "BACKUP_FAILED", "the backup cannot be written", file=path, reason=error.strerror or error, hint=hint
        )
        raise full_error(error, folder=str(folder)) or failed from error


def _keep_there(root: StoreRoot, name: str, dump: Dump) -> tuple[int, int]:
    """Write the file to another store; return the number of records and of bytes."""
    folder = Folder(root, posixpath.dirname(name))
    base = posixpath.basename(name)
    exists = BackupExistsError(file=folder.uri(base), hint=_NEVER_REPLACED)
    if are_there(folder, [base]) == [True]:
        raise exists
    make_folder(folder, fsync=True)
    try:
        with new_whole_file(folder, base) as sink:
            records = dump(sink)
            size = sink.written.size
    except FileExistsError as error:
        raise exists from error
    return records, size


def _path(folder: Path, given: str) -> Path:
    hint = "give a name, or a path below the folder of backups, which the node setting catalog.backup-folder names"
    if not given.strip() or "\0" in given or given.endswith(("/", _UNFINISHED)):
        raise InvalidInputError("not a file's name", path=given, hint=hint)
    if "://" in given:
        raise InvalidInputError("backups of this node lie on its disk", hint=hint)
    path = Path(os.path.normpath(folder / given))
    # Links count as what they point at.
    inside = Path(os.path.realpath(folder))
    if path == folder or inside not in Path(os.path.realpath(path)).parents:
        raise InvalidInputError("the path leads out of the backup folder", path=given, hint=hint)
    return path


def _name(root: StoreRoot, given: str) -> str:
    """Return the path below the root; no error repeats an address, in which somebody may have put a secret."""
    hint = f"give a name, or an address below {root}: a node setting, catalog.backup-folder, says where backups lie"
    name = given
    if "://" in given:
        name = given.removeprefix(f"{root.uri}/")
        if name == given or "?" in name:
            hint += "; options belong into that setting"
            raise InvalidInputError("the address is not one below the backup folder", hint=hint)
    parts = name.split("/")
    if not all(_PART.fullmatch(part) and part.strip(".") for part in parts):
        hint += "; names have letters, digits and . _ = - between slashes"
        raise InvalidInputError("not a file's name", hint=hint)
    return name


def _write(path: Path, dump: Dump) -> tuple[int, int]:
    """Return the number of records and of bytes."""
    unfinished = path.with_name(path.name + _UNFINISHED)
    try:
        with open(unfinished, "wb", opener=_private) as sink:
            records = dump(sink)
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


KINDS = (StatementKind(value=BackupCatalog, forms=(Form(words="BACKUP", parse=_parse),), perform=backup_catalog),)
