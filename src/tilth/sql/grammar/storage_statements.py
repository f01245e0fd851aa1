"""Statements about storages, as values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateStorage:
    """CREATE STORAGE name ROOT 'address'"""

    storage: str
    root: str
    if_not_exists: bool = False


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


StorageStatement = CreateStorage | DropStorage | ShowStorages | ShowCreateStorage
