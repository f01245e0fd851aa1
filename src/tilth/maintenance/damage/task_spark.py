"""Checks of files that are said to be damaged: what one is, and as a task what goes to the worker and comes back.

Covers: reading files in this process or in Spark's tasks. Does not cover: which files, what becomes of the findings
(book.py), where they are read (checks.py), one file (tilth.storage). Knows no catalog.
Always holds: it makes no difference to a finding where it was read; a store that is away is no finding.

Tests: tests/unit/maintenance/damage/test_checks.py, tests/integration/sql/test_damaged_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import msgspec

from tilth.base.errors import CorruptError, TilthError
from tilth.model.part import DataFile
from tilth.model.task import Cost
from tilth.storage import Folder, check_file, read_copies
from tilth.storage.read.scan_paths import split_by_cost
from tilth.warehouse import Runner, TaskContext, TaskResult, run_in_tasks


class CheckedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file to be read."""

    file: DataFile
    is_delta: bool


class FileFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Finding about a file; its bytes are right where there is no reason."""

    #: Reason why the file cannot be read in any replica; empty if it can.
    damaged: str = ""
    #: Reason why nothing is known of the file; empty if something is.
    unknown: str = ""
    #: Copies that are wrong while another one is right, by replica, with the reason.
    wrong: dict[int, str] = {}


class CheckFilesTask(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a worker needs to read files of one table."""

    folder: Folder
    files: tuple[CheckedFile, ...]


def check_runner() -> Runner:
    """The runner of TaskKind.CHECK: one Spark job, whose tasks read the files."""
    return _run


def _run(context: TaskContext) -> TaskResult:
    task = msgspec.msgpack.decode(context.spec.payload, type=CheckFilesTask)
    sizes = [each.file.size for each in task.files]
    chunks = split_by_cost(sizes, tasks=context.fit().tasks)
    found = run_in_tasks(context.session, partial(_read, task, chunks), list[FileFinding], tasks=len(chunks))
    context.raise_if_cancelled()
    states = [state for each in found for state in each]
    return TaskResult(payload=msgspec.msgpack.encode(states), actual=Cost(input_bytes=sum(sizes)))


def _read(work: CheckFilesTask, chunks: Sequence[range], *, task: int, attempt: int) -> list[FileFinding]:
    return states_of(work.folder, [work.files[index] for index in chunks[task]])


def states_of(folder: Folder, files: Sequence[CheckedFile]) -> list[FileFinding]:
    """Read the files, with all of their copies, in this process."""
    return [_state_of(folder, each) for each in files]


def _state_of(folder: Folder, checked: CheckedFile) -> FileFinding:
    wrong: dict[int, str] = {}
    if folder.root.replicas:
        copies = read_copies(folder, checked.file)
        if copies.is_good_in_one(folder.root):
            wrong = copies.wrong
    try:
        check_file(folder, checked.file, is_delta=checked.is_delta)
    except (CorruptError, OSError) as error:
        return FileFinding(damaged=str(error), wrong=wrong)
    except TilthError as error:
        return FileFinding(unknown=str(error), wrong=wrong)
    return FileFinding(wrong=wrong)
