"""Passwords and keys of relations, in records separate from the definitions.

Covers: reading them, and moving them out of definitions of older versions. Does not cover: writing them, which is one
commit with the definition (tables.py); which texts are secrets (the rooms that declare the settings).
Always holds: a definition, and thus a copy of definitions, contains no secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.nouns import DroppedTable
from tilth.catalog.records.small_commit import Plan, change, read, read_all, unchanged
from tilth.catalog.tables.names import changed_secrets
from tilth.model.table import KafkaDef, Relation, Secrets, full_name

#: Splits settings into redacted texts and secrets.
Part = Callable[[Mapping[str, str]], tuple[dict[str, str], dict[str, str]]]

_log = Log("catalog")


class SecretStore:
    """`catalog.secrets`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def of(self, uuid: str) -> Secrets:
        """Return the secrets of a relation, also of a dropped one."""
        return read(self._kv, pack(Space.SECRET, uuid), codec.SECRETS) or Secrets()

    def in_definitions(self, part: Part) -> list[Relation]:
        """Return the relations, dropped ones included, whose definitions of older versions contain secrets."""
        with self._kv.view() as view:
            found = [*read_all(view, codec.RELATIONS, Space.RELATION)]
            found += [each.relation for each in read_all(view, codec.DROPPED, Space.DROPPED)]
        return [each for each in found if isinstance(each, KafkaDef) and part(each.settings)[1]]

    def move(self, relation: Relation, part: Part) -> None:
        if change(self._kv, self._clock, partial(_moved, uuid=relation.uuid, part=part)):
            _log.info("secrets_moved", cause_id=relation.uuid, table=full_name(relation))


def _moved(view: ReadView, uuid: str, part: Part) -> Plan[int]:
    dropped = read(view, pack(Space.DROPPED, uuid), codec.DROPPED)
    key = pack(Space.RELATION if dropped is None else Space.DROPPED, uuid)
    relation: Relation | None = read(view, key, codec.RELATIONS) if dropped is None else dropped.relation
    if not isinstance(relation, KafkaDef):
        return Plan(result=0)
    shown, secrets = part(relation.settings)
    if not secrets:
        return Plan(result=0)
    changed = msgspec.structs.replace(relation, settings=shown)
    value = codec.RELATIONS.encode(changed) if dropped is None else _dropped(dropped, changed)
    puts, deletes, preconditions = changed_secrets(view, uuid, secrets)
    pinned = unchanged(key, view.get(key))
    return Plan(result=1, preconditions=[pinned, *preconditions], puts={key: value, **puts}, deletes=deletes)


def _dropped(record: DroppedTable, relation: Relation) -> bytes:
    return codec.DROPPED.encode(msgspec.structs.replace(record, relation=relation))
