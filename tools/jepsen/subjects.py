"""Systems under test: their processes, the blows that they offer, their files.

Covers: the protocol of subjects, statements that are retried until there is an answer, lists of files.
Does not cover: the subjects themselves (servers.py, single.py).
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import tilth
from tilth import Result
from tilth.base.errors import ErrorKind, TilthError
from tools.broker import Broker
from tools.jepsen.definitions import Replicas
from tools.jepsen.harm import Blow
from tools.stage import wait

RETRY_SECONDS_MAX = 180.0
ANSWER_SECONDS_MAX = 60.0
POLL_SECONDS = 0.2

#: Checksums of the files of one replica, by the uuid of their table and by name.
Copies = Mapping[str, Mapping[str, str]]
_UNFINISHED = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


class Process(Protocol):
    """A server or a worker."""

    @property
    def pid(self) -> int: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def wait_end(self, seconds: float) -> object: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The replicas of one storage."""

    #: Name of the storage; empty: the default one.
    storage: str
    #: Number of replicas that must have each file that the catalog names.
    quorum: int
    #: Function that lists all replicas.
    copies: Callable[[], Sequence[Copies]]


class Subject(Protocol):
    """A started system under test."""

    broker: Broker
    #: Name of the storage with replicas; empty: there is none.
    storage: str
    replicas: Replicas | None
    #: `False` where a standby without the end of the log may take over, so that acknowledged commits may be lost.
    keeps_commits: bool

    @property
    def urls_by_name(self) -> Mapping[str, str]:
        """Addresses of the servers for clients, by name."""

    def start_all(self) -> None:
        """Start every process, and return when all accept tasks."""

    def blows(self) -> list[Blow]:
        """Return all ways to hurt it."""

    def recover(self) -> list[str]:
        """Restart processes that ended by themselves, act as an operator would, and return sentences about it."""

    def wait_all_there(self) -> list[str]:
        """Recover until every process accepts tasks, and return sentences as `recover` does."""

    def sql(self, statement: str) -> Result:
        """Return the answer of any server to a statement, which is retried until there is one."""

    def stores(self) -> list[Store]:
        """Return the storages whose files are checked."""

    def logs(self) -> dict[str, Path]:
        """Return the logs of servers, by name."""


class HarnessConnection:
    """Connection of the harness itself to whichever server answers."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._connection = tilth.connect(",".join(urls), timeout_seconds=ANSWER_SECONDS_MAX)

    def sql(self, statement: str) -> Result:
        deadline = time.monotonic() + RETRY_SECONDS_MAX
        while True:
            try:
                return self._connection.sql(statement)
            except TilthError as error:
                if error.kind is ErrorKind.INVALID or time.monotonic() > deadline:
                    raise
                time.sleep(POLL_SECONDS)

    def sql_once(self, statement: str) -> Result | None:
        with suppress(TilthError):
            return self._connection.sql(statement)
        return None

    def close(self) -> None:
        self._connection.close()


def folder_copies(folder: Path) -> dict[str, dict[str, str]]:
    """Return the files of tables below a root that is a folder."""
    found: dict[str, dict[str, str]] = {}
    for path in folder.glob("*/data/*"):
        with suppress(OSError):
            digest = hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()
            found.setdefault(path.parent.parent.name, {})[path.name] = digest
    return found


def bucket_copies(folder: Path) -> dict[str, dict[str, str]]:
    """Return the objects of tables below a root in a bucket, from the folder where the bucket's server keeps them.

    That server writes an object to the name with a UUID behind it and then renames it. What a request that was cut off
    leaves there is no object: a bucket of S3 never shows it.
    """
    return {
        table: {name: digest for name, digest in files.items() if not _UNFINISHED.search(name)}
        for table, files in folder_copies(folder).items()
    }


def wait_until(is_done: Callable[[], bool], what: str, seconds_max: float) -> bool:
    """Return whether the condition came true in time."""
    with suppress(RuntimeError):
        wait(is_done, what, seconds_max=seconds_max)
        return True
    return False
