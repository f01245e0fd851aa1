"""Kinds of statements: each is declared once, beside what it does.

Covers: the declaration. Does not cover: who finds it (statements/registry.py), how its text is read (its `Form`s).
Always holds: a module of statements has its kinds in `KINDS`, and nothing else lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tilth.control.context.services import Call, Services
from tilth.control.slots import Queue
from tilth.grammar.parse import Form
from tilth.grammar.statements import Statement
from tilth.query.results.answer import Outcome

S = TypeVar("S", bound=Statement)


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementKind(Generic[S]):
    """One kind of statement."""

    #: Class of its values.
    value: type[S]
    #: Texts that are read as it; none: another kind's form reads it too.
    forms: tuple[Form, ...] = ()
    #: Does it; raises TilthErrors.
    perform: Callable[[Services, Call, S], Outcome]
    #: Queue in which it waits for a slot, or a function of the statement and the session's database. Statements that
    #: show or end others are in WATCH: they must not wait for them.
    queue: Queue | Callable[[S, str], Queue] = Queue.CONTROL
    #: `True` if it changes nothing, neither rows nor definitions nor what runs: `readonly` allows it.
    only_reads: bool = False

    def queue_of(self, statement: S, database: str) -> Queue:
        return self.queue if isinstance(self.queue, Queue) else self.queue(statement, database)
