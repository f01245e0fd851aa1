"""The folder of an attached session on the driver's disk: servers with their tokens, snapshots that are held.

Spark runs the planning of a Python data source in short processes of the driver's machine, which are none that
`tilth.attach` ran in; both sides meet in this folder. Covers: the folder. Does not cover: renewing leases (keeper.py).
Always holds: only its owner can read it; a file in it is whole or absent; executors get nothing of it but names of
table files.
"""

from __future__ import annotations

import glob
import json
import os
import shutil
import socket
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tilth.base.errors import NotFoundError
from tilth.client.http import Connection, connect
from tilth.datasource.errors import NotAttachedError
from tilth.model.outside_write import WriteUnknownError
from tilth.model.snapshot import Snapshot

_SERVERS = "servers.json"
_HELD, _SNAPSHOT, _WRITE = ".held", ".snapshot", ".write"
_PREFIX = "tilth-attached-"


class PinnedTable(msgspec.Struct, frozen=True):
    """A snapshot that a frame reads, and the root below which its files are."""

    snapshot: Snapshot
    root: str


class HeldLease(msgspec.Struct, frozen=True, kw_only=True):
    """A lease that the driver renews."""

    id: str
    url: str
    #: Seconds after the last use for which it is renewed.
    seconds: float
    #: Table, for messages.
    table: str


class HeldWrite(msgspec.Struct, frozen=True, kw_only=True):
    """A write that is open, and that the driver renews."""

    id: str
    txn: int
    url: str
    #: Time without a sign of life after which the server aborts it.
    silence_seconds: float
    #: Table, for messages.
    table: str


@dataclass(frozen=True, slots=True)
class Attachment:
    """Path of the folder, which is all that a data source carries."""

    folder: str

    def add_server(self, url: str, token: str) -> None:
        """Name the server that is called unless another one is named."""
        tokens = {}
        with suppress(NotAttachedError):
            tokens = self._servers()[1]
        self._write(_SERVERS, json.dumps({"default": url, "tokens": tokens | {url: token}}).encode())

    def connection(self, url: str | None = None, *, timeout_seconds: float | None = None) -> Connection:
        """Connect to a server; None: the session's. Only the address that a token was given for gets it.

        Raises NotAttachedError.
        """
        default, tokens = self._servers()
        address = url or default
        return connect(address, timeout_seconds=timeout_seconds, token=tokens.get(address, ""))

    def address(self, url: str | None = None) -> str:
        """Return the address as it was given, by which the token is known; None: the session's."""
        return url or self._servers()[0]

    def hold(self, lease: HeldLease, pinned: PinnedTable | None = None) -> None:
        """Let the driver renew a lease from now on."""
        if pinned is not None:
            self._write(lease.id + _SNAPSHOT, msgspec.msgpack.encode(pinned))
        self._write(lease.id + _HELD, msgspec.json.encode(lease))

    def use(self, lease_id: str) -> PinnedTable:
        """Return a snapshot that is held, for as long again. Raises NotFoundError: it is held no more."""
        try:
            os.utime(self._path(lease_id + _HELD))
            packed = self._path(lease_id + _SNAPSHOT).read_bytes()
        except FileNotFoundError:
            raise NotFoundError("the snapshot is held no more", reader=lease_id) from None
        return msgspec.msgpack.decode(packed, type=PinnedTable)

    def held(self) -> list[tuple[HeldLease, float]]:
        """Return the leases with the times of their last use, in seconds since 1970."""
        found = []
        # The folder may be gone with the session.
        with suppress(FileNotFoundError):
            for path in sorted(Path(self.folder).glob(f"*{_HELD}")):
                with suppress(FileNotFoundError):
                    lease = msgspec.json.decode(path.read_bytes(), type=HeldLease)
                    found.append((lease, path.stat().st_mtime))
        return found

    def forget(self, lease_id: str) -> None:
        """Hold a lease no more."""
        for end in (_HELD, _SNAPSHOT):
            self._path(lease_id + end).unlink(missing_ok=True)

    def hold_write(self, write: HeldWrite) -> None:
        """Let the driver renew a write from now on."""
        self._write(f"{write.txn}{_WRITE}", msgspec.json.encode(write))

    def write_of(self, txn: int) -> HeldWrite:
        """Return the write of a transaction. Raises WriteUnknownError: it is held no more."""
        try:
            return msgspec.json.decode(self._path(f"{txn}{_WRITE}").read_bytes(), type=HeldWrite)
        except FileNotFoundError:
            raise WriteUnknownError(
                "the session does not hold this write: it has ended, or the session was closed meanwhile",
                txn=txn,
                hint="write the rows again",
            ) from None

    def writes(self) -> list[tuple[HeldWrite, float]]:
        """Return the open writes with the times of their begin, in seconds since 1970."""
        found = []
        with suppress(FileNotFoundError):
            for path in sorted(Path(self.folder).glob(f"*{_WRITE}")):
                with suppress(FileNotFoundError):
                    write = msgspec.json.decode(path.read_bytes(), type=HeldWrite)
                    found.append((write, path.stat().st_mtime))
        return found

    def forget_write(self, txn: int) -> None:
        """Hold a write no more."""
        self._path(f"{txn}{_WRITE}").unlink(missing_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _servers(self) -> tuple[str, dict[str, str]]:
        try:
            read = json.loads(self._path(_SERVERS).read_bytes())
        except FileNotFoundError:
            raise NotAttachedError(
                "the attachment of this session has ended", hint="call tilth.attach(spark, url=..) again"
            ) from None
        return read["default"], read["tokens"]

    def _path(self, name: str) -> Path:
        return Path(self.folder, name)

    def _write(self, name: str, content: bytes) -> None:
        path = self._path(name)
        try:
            handle, temporary = tempfile.mkstemp(dir=self.folder)
        except FileNotFoundError:
            raise NotAttachedError(
                "the attachment of this session has ended", hint="call tilth.attach(spark, url=..) again"
            ) from None
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        os.replace(temporary, path)


def new_attachment() -> Attachment:
    """Make a folder that only this user can read; those of programs that were killed go."""
    _remove_left_behind()
    return Attachment(tempfile.mkdtemp(prefix=f"{_PREFIX}{socket.gethostname()}-{os.getpid()}-"))


def _remove_left_behind() -> None:
    """Remove the folders of this user whose programs on this host have ended: a token may be in them."""
    beginning = f"{_PREFIX}{socket.gethostname()}-"
    for path in Path(tempfile.gettempdir()).glob(f"{glob.escape(beginning)}*-*"):
        process = path.name.removeprefix(beginning).partition("-")[0]
        with suppress(OSError):
            if process.isdecimal() and path.lstat().st_uid == os.getuid() and not _runs(int(process)):
                shutil.rmtree(path, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        # It belongs to somebody else.
        return True
    return True
