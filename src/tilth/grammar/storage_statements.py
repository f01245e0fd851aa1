"""Statements about storages, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateStorage:
    """CREATE STORAGE name ROOT 'address', or REPLICAS ('address', ..) QUORUM n"""

    storage: str
    #: Empty where there are replicas.
    root: str = ""
    replicas: tuple[str, ...] = ()
    #: Copies of a file before a commit names it; None: more than half of them.
    quorum: int | None = None
    if_not_exists: bool = False


class ReplicaChange(Enum):
    """Change of a replica by ALTER STORAGE."""

    RESTORE = "RESTORE"
    REPLACE = "REPLACE"
    ADD = "ADD"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterStorage:
    """ALTER STORAGE name RESTORE REPLICA 'address', REPLACE REPLICA 'address' WITH 'address', ADD REPLICA 'address'"""

    storage: str
    change: ReplicaChange
    replica: str
    #: Address of the new replica, for REPLACE.
    substitute: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropStorage:
    storage: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowStorages:
    like: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowCreateStorage:
    storage: str


StorageStatement = CreateStorage | AlterStorage | DropStorage | ShowStorages | ShowCreateStorage
