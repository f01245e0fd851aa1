"""Passwords and keys of relations, in records separate from the definitions.

Covers: reading them. Does not cover: writing them, which is one commit with the definition (tables.py); which texts are
secrets (the rooms that declare the settings).
Always holds: a definition, and thus a copy of definitions, contains no secret.
"""

from __future__ import annotations

from tilth.catalog.kv import KeyValue
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.small_commit import read
from tilth.model.table import Secrets


class SecretStore:
    """`catalog.secrets`."""

    def __init__(self, kv: KeyValue) -> None:
        self._kv = kv

    def of(self, uuid: str) -> Secrets:
        """Return the secrets of a relation, also of a dropped one."""
        return read(self._kv, pack(Space.SECRET, uuid), codec.SECRETS) or Secrets()
