"""What a run is made against: processes, the blows that they offer, where their files are.

Covers: the protocol of subjects, and what all of them do: ask until there is an answer, start again what ended.
Does not cover: which processes there are (servers.py, single.py).
"""

from __future__ import annotations

import hashlib
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

ASK_SECONDS_MAX = 180.0
ANSWER_SECONDS_MAX = 60.0
LOOK_SECONDS = 0.2

#: Files of one replica: by table's uuid, then by name, their checksums.
Copies = Mapping[str, Mapping[str, str]]


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

    #: Its tables; empty: all that are in no other storage.
    storage: str
    #: Copies that each named file must have.
    quorum: int
    #: Reads all replicas.
    copies: Callable[[], Sequence[Copies]]


class Subject(Protocol):
    """A started system under test."""

    broker: Broker
    #: Storage of the tables that have replicas; empty: none.
    storage: str
    replicas: Replicas | None
    #: Whether each acknowledged commit stays: False where a database without its tail may take over.
    keeps_commits: bool

    @property
    def urls_by_name(self) -> Mapping[str, str]:
        """Where clients find each server."""

    def start_all(self) -> None:
        """Return when every process takes work."""

    def blows(self) -> list[Blow]:
        """Return all ways to hurt it."""

    def recover(self) -> list[str]:
        """Start again what ended by itself, and mend what needs an operator; return what that was."""

    def wait_all_there(self) -> None:
        """Return when every process takes work."""

    def sql(self, statement: str) -> Result:
        """Run a statement at any server, again and again until there is an answer."""

    def stores(self) -> list[Store]:
        """Return where the files are."""

    def logs(self) -> dict[str, Path]:
        """Return the logs of servers, by name."""


class Asking:
    """Statements of the harness itself, sent to whichever server answers."""

    def __init__(self, urls: Iterable[str]) -> None:
        self._connection = tilth.connect(",".join(urls), timeout_seconds=ANSWER_SECONDS_MAX)

    def sql(self, statement: str) -> Result:
        deadline = time.monotonic() + ASK_SECONDS_MAX
        while True:
            try:
                return self._connection.sql(statement)
            except TilthError as error:
                if error.kind is ErrorKind.INVALID or time.monotonic() > deadline:
                    raise
                time.sleep(LOOK_SECONDS)

    def once(self, statement: str) -> Result | None:
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


def wait_until(is_done: Callable[[], bool], what: str, seconds_max: float) -> bool:
    """Return whether it came true in time."""
    with suppress(RuntimeError):
        wait(is_done, what, seconds_max=seconds_max)
        return True
    return False
