"""Failures of a table's oldest mutation: by part, and losses that are no part's fault.

Covers: whose fault the end of a task is, the waits. Does not cover: how long a part waits (policy.py,
docs/policies/mutations.md#failures).
Always holds: what is known of parts is known for one entry; a loss raises the count of no part.

Tests: tests/unit/maintenance/mutate/test_op.py.
"""

from __future__ import annotations

from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.base.retry import Retry
from tilth.maintenance.mutate.policy import blame, failed_once_more
from tilth.maintenance.mutate.rewrite import Rewrite
from tilth.maintenance.state import Failure, failed_again, newest, rule_of
from tilth.maintenance.table.watch import TableWatch

_log = Log("maintenance")


class EntryFailures:
    """`tilth.maintenance.work.planner.WorkFailures` for the rewrites of one table. For any thread."""

    def __init__(self, watch: TableWatch) -> None:
        self._watch = watch
        #: The entry that parts and suspects are of; 0: none.
        self._entry = 0
        self._parts: dict[str, Failure] = {}
        self._suspects: set[str] = set()
        #: A worker is gone or something does not answer: until it is over nothing new is chosen.
        self._loss: Failure | None = None

    @property
    def entry(self) -> int:
        return self._entry

    @property
    def loss(self) -> Failure | None:
        return self._loss

    def by_part(self) -> tuple[dict[str, Failure], frozenset[str]]:
        """The failures of parts, and the parts of tasks that failed without naming one."""
        with self._watch.lock:
            return dict(self._parts), frozenset(self._suspects)

    def newest(self) -> Failure | None:
        with self._watch.lock:
            return newest([*self._parts.values(), *([self._loss] if self._loss else [])])

    def begin(self, entry: int) -> None:
        """Start anew if this is another entry: from now on the failures are this entry's."""
        with self._watch.lock:
            if self._entry != entry:
                self._entry = entry
                self._parts.clear()
                self._suspects.clear()

    def forget(self) -> None:
        """Forget the failures of the last entry, which has ended."""
        self.begin(0)
        self._loss = None

    def keep(self, parts: frozenset[str]) -> None:
        """Forget all other parts, which need no rewrite any more."""
        with self._watch.lock:
            self._suspects &= parts
            self._parts = {name: failure for name, failure in self._parts.items() if name in parts}

    def has_any(self) -> bool:
        return bool(self._parts) or self._loss is not None

    def landed(self, work: Rewrite) -> None:
        with self._watch.lock:
            self._loss = None
            if self._entry == work.spec.mutation.id:
                for name in work.names:
                    self._parts.pop(name, None)
                    self._suspects.discard(name)
        self._watch.damaged.read(work.names)

    def missed(self, work: Rewrite, error: Exception, now_ms: int) -> str:
        culprits = _culprits(work, error)
        if rule_of(error) is Retry.BACK_OFF and not culprits:
            with self._watch.lock:
                self._loss = failed_again(self._loss, error, now_ms=now_ms, about=work.subject)
            return str(error)
        found = blame(work.names, culprits)
        with self._watch.lock:
            if self._entry != work.spec.mutation.id:
                return ""
            self._suspects.update(found.suspects)
            for name in found.failed:
                self._suspects.discard(name)
                self._parts[name] = failed_once_more(
                    self._parts.get(name),
                    reason=f"{name}: {error}",
                    now_ms=now_ms,
                    longest_ms=self._watch.settings.mutate.postpone_ms_max,
                    is_lasting=rule_of(error) is Retry.WAIT_LONG,
                )
        _log.warning(
            "mutation_task_failed",
            cause_id=str(work.spec.mutation.id),
            table=self._watch.name,
            parts=len(work.sources),
            at_fault=",".join(found.failed),
            reason=error,
        )
        return ""


def _culprits(work: Rewrite, error: Exception) -> set[str]:
    """The parts that the error names, by themselves or by their files."""
    if not isinstance(error, TilthError):
        return set()
    named = {error.facts.get("part", ""), error.facts.get("file", "").rsplit("/", 1)[-1]}
    return {str(part.name) for part in work.sources if str(part.name) in named or part.file.name in named}
