"""Passwords and keys of relations: in records of their own, so that no definition carries them.

Covers: reading them, and moving those that older programs kept in definitions and audit lines. Does not cover: writing
them, which is one commit with the definition (tables.py), and which texts are secrets (whoever defines the settings).
Always holds: who reads a definition, or a backup of definitions, reads no secret.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import msgspec

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.catalog import codec
from tilth.catalog.change import Plan, change, read, read_all, unchanged
from tilth.catalog.keys import Space, pack
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.names import changed_secrets
from tilth.catalog.records import DroppedTable
from tilth.model.secret import Secrets
from tilth.model.table import KafkaDef, Relation, full_name

#: The settings of a relation as people may read them, and the secrets among them.
Part = Callable[[Mapping[str, str]], tuple[dict[str, str], dict[str, str]]]

_log = Log("catalog")


class SecretStore:
    """`catalog.secrets`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def of(self, uuid: str) -> Secrets:
        """Those of a relation, a dropped one too."""
        return read(self._kv, pack(Space.SECRET, uuid), codec.SECRETS) or Secrets()

    def in_definitions(self, part: Part) -> list[Relation]:
        """The relations, dropped ones too, in whose definitions an older program has left secrets."""
        with self._kv.view() as view:
            found = [*read_all(view, codec.RELATIONS, Space.RELATION)]
            found += [each.relation for each in read_all(view, codec.DROPPED, Space.DROPPED)]
        return [each for each in found if isinstance(each, KafkaDef) and part(each.settings)[1]]

    def move(self, relation: Relation, part: Part) -> None:
        """Moves those of a relation out of its definition, in one commit."""
        if change(self._kv, self._clock, partial(_moved, uuid=relation.uuid, part=part)):
            _log.info("secrets_moved", cause_id=relation.uuid, table=full_name(relation))


def _moved(view: ReadView, uuid: str, part: Part) -> Plan[int]:
    """The definition, wherever it is, without its secrets."""
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
