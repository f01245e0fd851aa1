"""The entries of ALTER: what is pending, what is done, what was killed.

    StartMutation -> pending -> done      no visible part needs it, and no older entry is pending
                            \\-> killed    by the user; what was rewritten stays rewritten

Covers: reading and ending them. Does not cover: starting them and applying them to parts (rules/updates.py), by whom
that is done (tilth.maintenance). Always holds: an entry ends once, but an UNDROP PARTITION that brings back parts which
a done entry has not reached makes it pending again.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Iterator

import msgspec

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.catalog.errors import MutationNotFoundError, TableNotFoundError
from tilth.catalog.kv import KeyValue, Precondition, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack, span_among
from tilth.catalog.records.small_commit import Plan, change, read, read_all, unchanged
from tilth.catalog.rules.earlier_columns import without_unused
from tilth.catalog.rules.visibility import visible
from tilth.catalog.tables.names import relation_of
from tilth.model.mutation import Mutation, MutationKind, MutationState, needs
from tilth.model.part import Part
from tilth.model.table import TableDef

_log = Log("catalog")


class Mutations:
    """`catalog.mutations`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def all(self, table: str | None = None) -> builtins.list[Mutation]:
        """Ended ones too, by table, in the order of their commits."""
        fields = () if table is None else (table,)
        entries = read_all(self._kv, codec.MUTATIONS, Space.MUTATION, *fields)
        return sorted(entries, key=lambda each: (each.table, each.commit_ts))

    def pending_among(self, first: str, last: str) -> builtins.list[Mutation]:
        """Return those of these two tables and of the tables between them, of each oldest first: one read."""
        found = self._kv.scan(*span_among(Space.MUTATION, first, last))
        entries = (codec.MUTATIONS.decode(key, each.value) for key, each in found)
        pending = (each for each in entries if each.state is MutationState.PENDING)
        return sorted(pending, key=lambda each: (each.table, each.commit_ts))

    def pending(self, table: str) -> builtins.list[Mutation]:
        """Oldest first: the order in which parts get them."""
        return [each for each in self.all(table) if each.state is MutationState.PENDING]

    def get(self, table: str, id: int) -> Mutation:
        """Raises MutationNotFoundError."""
        return _mutation(self._kv, table, id)

    def finish(self, table: str, id: int, *, keep_ts: int | None = None) -> bool:
        """True when the entry is done: no visible part needs it and no older entry is pending. False: not yet.

        Older columns that no part has any more are forgotten with it, but not those that a read as of `keep_ts` or
        later finds. Raises MutationNotFoundError, TableNotFoundError. Reads every entry of the table.
        """
        key, relation_key = pack(Space.MUTATION, table, id), pack(Space.RELATION, table)
        now_ms = self._clock.now_ms()

        def plan(view: ReadView) -> Plan[bool]:
            mutation = _mutation(view, table, id)
            if mutation.state is not MutationState.PENDING:
                return Plan(result=mutation.state is MutationState.DONE)
            definition = _definition(view, table)
            pending = pending_in(view, table)
            if pending[0].id != id:
                return Plan(result=False)
            entries = list(read_all(view, codec.ENTRIES, Space.ENTRY, table))
            if any(needs(part, mutation) for part in visible(entries)):
                return Plan(result=False)
            # New parts do not need it. What an UNDROP brings back may, and it writes the entry again.
            preconditions: list[Precondition] = [
                unchanged(key, view.get(key)),
                unchanged(relation_key, view.get(relation_key)),
            ]
            done = msgspec.structs.replace(mutation, state=MutationState.DONE, ended_ms=now_ms, parts_left=0)
            puts = {key: codec.MUTATIONS.encode(done)}
            if definition.older_schemas:
                trash = (item.part for item in read_all(view, codec.TRASH, Space.TRASH, table))
                parts = [*trash, *(entry for entry in entries if isinstance(entry, Part))]
                kept = without_unused(definition, parts, pending[1:], keep_ts=keep_ts)
                if kept != definition:
                    puts[relation_key] = codec.RELATIONS.encode(kept)
            return Plan(result=True, preconditions=preconditions, puts=puts)

        return change(self._kv, self._clock, plan)

    def kill(self, table: str, id: int, reason: str) -> Mutation:
        """The entry, which no part gets any more from here on, with the count of those that never got it.

        One that has ended stays as it is. Raises MutationNotFoundError, TableNotFoundError. Reads every entry of the
        table.
        """
        key, relation_key = pack(Space.MUTATION, table, id), pack(Space.RELATION, table)
        now_ms = self._clock.now_ms()

        def plan(view: ReadView) -> Plan[Mutation]:
            mutation = _mutation(view, table, id)
            if mutation.state is not MutationState.PENDING:
                return Plan(result=mutation)
            definition = _definition(view, table)
            left = sum(needs(part, mutation) for part in visible(read_all(view, codec.ENTRIES, Space.ENTRY, table)))
            killed = msgspec.structs.replace(
                mutation, state=MutationState.KILLED, ended_ms=now_ms, reason=reason, parts_left=left
            )
            preconditions = [unchanged(key, view.get(key)), unchanged(relation_key, view.get(relation_key))]
            puts = {key: codec.MUTATIONS.encode(killed)}
            if mutation.kind is not MutationKind.COLUMNS:
                newest = max(definition.killed_mutation_ts, mutation.commit_ts)
                changed = msgspec.structs.replace(definition, killed_mutation_ts=newest)
                puts[relation_key] = codec.RELATIONS.encode(changed)
            return Plan(result=killed, preconditions=preconditions, puts=puts)

        mutation = change(self._kv, self._clock, plan)
        if mutation.state is MutationState.KILLED:
            _log.info(
                "mutation_killed", cause_id=str(id), table=table, left=mutation.parts_left, reason=mutation.reason
            )
        return mutation

    def trim(self, table: str, keep: int = 100) -> int:
        """Forget the oldest ended entries beyond those retained; return how many.

        Those that an UNDROP PARTITION would make pending again stay.
        """

        def plan(view: ReadView) -> Plan[int]:
            entries = read_all(view, codec.MUTATIONS, Space.MUTATION, table)
            ended = [each for each in entries if each.state is not MutationState.PENDING]
            ended.sort(key=lambda each: each.commit_ts)
            old = ended[: max(0, len(ended) - keep)]
            hidden = list(_hidden(view, table)) if old else []
            keys = [pack(Space.MUTATION, table, each.id) for each in old if not _may_be_due(each, hidden)]
            return Plan(result=len(keys), preconditions=[unchanged(key, view.get(key)) for key in keys], deletes=keys)

        return change(self._kv, self._clock, plan)


def _mutation(view: ReadView, table: str, id: int) -> Mutation:
    found = read(view, pack(Space.MUTATION, table, id), codec.MUTATIONS)
    if found is None:
        raise MutationNotFoundError(table=table, mutation=id, hint="system.mutations lists those that are kept")
    return found


def pending_in(view: ReadView, table: str) -> list[Mutation]:
    entries = read_all(view, codec.MUTATIONS, Space.MUTATION, table)
    pending = [each for each in entries if each.state is MutationState.PENDING]
    return sorted(pending, key=lambda each: each.commit_ts)


def _hidden(view: ReadView, table: str) -> Iterator[Part]:
    """Yield parts that are not visible, but may be again."""
    entries = list(read_all(view, codec.ENTRIES, Space.ENTRY, table))
    shown = {part.name for part in visible(entries)}
    yield from (entry for entry in entries if isinstance(entry, Part) and entry.name not in shown)
    for item in read_all(view, codec.TRASH, Space.TRASH, table):
        if item.is_dropped and not item.is_going:
            yield item.part


def _may_be_due(mutation: Mutation, hidden: Iterable[Part]) -> bool:
    return mutation.state is MutationState.DONE and any(needs(part, mutation) for part in hidden)


def _definition(view: ReadView, table: str) -> TableDef:
    definition = relation_of(view, table)
    if not isinstance(definition, TableDef):
        raise TableNotFoundError("not a table of rows", uuid=table)
    return definition
