"""A compaction of deltas as work for a worker: its task, what its commit changes, what is told of it.

Covers: what the three compactions share. Does not cover: which deltas are compacted (flush_deltas.py, minor_delta.py,
major_delta.py), the way from files to commit (attempt.py), the bytes (tilth.storage).
Always holds: newer changes than those that were read stay as they are, for they apply later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from tilth.base.units import show_bytes
from tilth.catalog import ReplaceDeltas, Update
from tilth.maintenance.compaction.spark import DeltaFacts, DeltaTask, DeltaWay, decode_facts, encode_task
from tilth.maintenance.op import OpKind
from tilth.maintenance.ops.attempt import Job, Output
from tilth.maintenance.ops.sources import sources_of
from tilth.maintenance.watch import FAR_MS, TableWatch
from tilth.model.delta import Delta, Seen, by_file
from tilth.model.part import Part
from tilth.model.task import TaskKind
from tilth.storage import layout_of

#: Of the op what the worker is told, and what the part log says.
_WAYS: Final[dict[OpKind, tuple[DeltaWay, Literal["flush_deltas", "minor_delta", "major_delta"]]]] = {
    OpKind.FLUSH_DELTAS: (DeltaWay.FLUSH, "flush_deltas"),
    OpKind.MINOR_DELTA: (DeltaWay.MINOR, "minor_delta"),
    OpKind.MAJOR_DELTA: (DeltaWay.MAJOR, "major_delta"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaWork:
    """Deltas of one partition that become fewer."""

    kind: OpKind
    partition: str
    #: In the order in which they apply.
    sources: tuple[Delta, ...]
    #: The parts that get new deltas; taken, so that nothing else works on them.
    parts: tuple[Part, ...]
    #: Parts and segments whose changes become a change segment again.
    kept: tuple[Part, ...] = ()
    #: What readers gain.
    gain: float
    #: Bytes that a reader must keep at hand until it is done, and those of all that is younger too.
    ram_bytes: int = 0
    log_bytes: int = 0
    reason: str

    @property
    def names(self) -> list[str]:
        """Of the parts that are taken."""
        return [str(part.name) for part in self.parts]

    @property
    def bytes(self) -> int:
        return sum(delta.bytes for delta in self.sources)

    @property
    def about(self) -> str:
        return f"{self.partition}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaChoice:
    """What is worth doing now, or why nothing is."""

    work: DeltaWork | None = None
    about: str = ""
    #: When something may be worth it by time alone.
    due_ms: int = FAR_MS


class DeltaRecipe:
    """`tilth.maintenance.ops.attempt.Recipe` for one kind of compaction of one table."""

    task_kind = TaskKind.DELTA

    def __init__(self, kind: OpKind, root: str, *, watch: TableWatch) -> None:
        self._way, self._event = _WAYS[kind]
        self.verb: str = self._event
        self.noun: str = self._event
        self._root = root
        self._watch = watch

    def job(self, work: DeltaWork) -> Job:
        definition = self._watch.definition
        is_flush, is_major = self._way is DeltaWay.FLUSH, self._way is DeltaWay.MAJOR
        task = DeltaTask(
            layout=layout_of(definition, self._root),
            way=self._way,
            partition=work.partition,
            sources=work.sources,
            # Change segments say themselves what they change.
            targets=sources_of(definition, (*work.parts, *work.kept), {} if is_flush else by_file(work.sources)),
            kept=tuple(part.file.name for part in work.kept),
            txn=0,
        )
        return Job(
            payload=lambda txn: encode_task(msgspec.structs.replace(task, txn=txn)),
            tasks=1,
            input_bytes=work.bytes + (sum(part.bytes for part in work.parts) if is_major else 0),
            rows=_rows(work, is_major=is_major),
        )

    def facts(self, payload: bytes) -> DeltaFacts:
        return decode_facts(payload)

    def outputs(self, work: DeltaWork, facts: DeltaFacts) -> list[Output]:
        """None: newer changes apply after what was written."""
        return []

    def updates(self, work: DeltaWork, facts: DeltaFacts, duration_ms: int, seen: Seen) -> list[Update]:
        # Changes of a visible part are never made nothing of.
        assert facts.written, work.sources
        replaced = ReplaceDeltas(
            table=self._watch.uuid,
            partition=work.partition,
            sources=tuple(delta.file.name for delta in work.sources),
            written=facts.written,
            event=self._event,
            duration_ms=duration_ms,
            reason=work.reason,
        )
        return [replaced]

    def told(self, work: DeltaWork, facts: DeltaFacts, duration_ms: int) -> str:
        size = show_bytes(sum(delta.file.size for delta in facts.written))
        became = f"{len(work.sources)} deltas of {work.partition} became {len(facts.written)} with {size}"
        return f"{became} for {len(work.parts)} parts in {duration_ms} ms"


def _rows(work: DeltaWork, *, is_major: bool) -> int:
    if is_major:
        return sum(part.rows for part in work.parts)
    return sum(target.deleted + target.updated for delta in work.sources for target in delta.targets)
