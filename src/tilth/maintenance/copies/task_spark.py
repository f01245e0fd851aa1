"""Work on copies of files as tasks: what goes to the worker, what runs there, what comes back. Knows no catalog.

Covers: the messages and their runner. Does not cover: which files (replicate.py, scrub.py), one file (tilth.storage).
Always holds: what became of each file is in the answer; one that fails stops no other.

Tests: tests/unit/maintenance/copies/test_replicate.py, tests/integration/storage/test_storages.py.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import msgspec

from tilth.base.errors import TilthError
from tilth.model.part import DataFile
from tilth.model.task import Cost
from tilth.storage import Folder, make_copy, read_copies
from tilth.warehouse import Runner, TaskContext, TaskResult, run_in_task

#: Files of one task that are worked on at a time.
THREADS = 4


class CopyItem(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a task."""

    file: DataFile
    #: The replica whose copy is made; None: all copies are compared.
    replica: int | None = None


class CopyTask(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a worker needs to make or compare copies of files of one table."""

    folder: Folder
    items: tuple[CopyItem, ...]


class CopyFact(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome for one file."""

    #: Bytes copied; 0: the copy was right.
    copied: int = 0
    #: Reason why a copy could not be made; empty: it is right now.
    error: str = ""
    #: Errors of a comparison by replica: why a copy is wrong, or could not be read.
    wrong: dict[int, str] = {}
    away: dict[int, str] = {}
    #: `True` if a comparison found no copy right, though all were read.
    is_lost: bool = False


def copy_runner() -> Runner:
    """Runner of TaskKind.COPY: one Spark task, which works on several files at a time."""
    return _run


def _run(context: TaskContext) -> TaskResult:
    task = msgspec.msgpack.decode(context.spec.payload, type=CopyTask)
    facts = run_in_task(context.session, partial(work_on_copies, task), tuple[CopyFact, ...])
    cost = Cost(input_bytes=sum(item.file.size for item in task.items), output_bytes=sum(fact.copied for fact in facts))
    return TaskResult(payload=msgspec.msgpack.encode(facts), actual=cost)


def work_on_copies(work: CopyTask, *, task: int, attempt: int) -> tuple[CopyFact, ...]:
    """Make or compare the copies of a task's files. Two attempts at once do the same, and no harm."""
    with ThreadPoolExecutor(THREADS, thread_name_prefix="copies") as pool:
        return tuple(pool.map(partial(_fact, work.folder), work.items))


def _fact(folder: Folder, item: CopyItem) -> CopyFact:
    if item.replica is None:
        check = read_copies(folder, item.file)
        is_lost = len(check.wrong) == len(folder.root.locations)
        return CopyFact(wrong=check.wrong, away=check.away, is_lost=is_lost)
    try:
        return CopyFact(copied=make_copy(folder, item.file, item.replica))
    except (TilthError, OSError) as error:
        return CopyFact(error=str(error))
