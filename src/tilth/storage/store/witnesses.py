"""Replicas that know which files each attempt of a task has begun.

Covers: which replicas these are, asking them. Does not cover: names of files, and their removal (cleaner.py).
Always holds: a replica that was emptied or is new since the transaction began knows nothing of it.

A folder has the name of a file from when the file is begun, a bucket only when it is ended. Whoever writes begins no
file before a quorum of replicas has begun the one before. So where all replicas but fewer than that quorum are folders
that have been there all the time, one of these has the name of each file of an attempt but perhaps of its last one.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilth.base.errors import TilthError
from tilth.storage.errors import StoreAwayError
from tilth.storage.store.new_copies import HINT
from tilth.storage.store.replica import Replica, asked, replicas_of
from tilth.storage.store.root import StoreRoot

#: A replica's sign of the table may be so much younger than it says, by clocks that differ.
SETTLING_MS = 60_000
#: Stores in which a file has its name from when it is begun.
NAMED_AT_ONCE = ("file", "hdfs")


def named_at_once(root: StoreRoot) -> tuple[int, ...]:
    """Return the numbers of the replicas in which a file has its name from when it is begun."""
    return tuple(number for number, each in enumerate(root.replicas) if each.kind in NAMED_AT_ONCE)


def witnesses_of(root: StoreRoot, table: str, *, begun_ms: int, quorum: int) -> tuple[int, ...]:
    """Return the numbers of replicas of which one knows each file of the table that a transaction has begun; none:
    nobody knows all of them.

    `quorum`: the replicas that had begun a file before the next one was begun.
    """
    replicas = [each for each in replicas_of(root) if each.number in named_at_once(root)]
    if any(each.trouble for each in replicas):
        return ()
    answers = asked(replicas, lambda each: _has_been_there(each, table, begun_ms), enough=len(replicas))
    # What one that does not answer has is not known, and it may be all that there is.
    if any(isinstance(answer, Exception) for answer in answers.values()):
        return ()
    numbers = tuple(number for number, answer in answers.items() if answer is True)
    return numbers if quorum > len(root.replicas) - len(numbers) else ()


def have_begun(root: StoreRoot, numbers: Sequence[int], paths: Sequence[str]) -> list[bool]:
    """Return for each path whether one of these replicas has it. Raises StoreAwayError where one does not answer."""
    replicas = [each for each in replicas_of(root) if each.number in numbers]
    answers = asked(replicas, lambda each: each.store.exist(paths), enough=len(replicas))
    for each in replicas:
        if isinstance(error := answers[each.number], TilthError | OSError):
            raise StoreAwayError(str(error), file=str(each.root), hint=HINT) from error
    found = [answer for answer in answers.values() if isinstance(answer, list)]
    return [any(each) for each in zip(*found, strict=True)]


def _has_been_there(replica: Replica, table: str, begun_ms: int) -> bool:
    since_ms = replica.sign_since_ms(table)
    return since_ms is not None and since_ms + SETTLING_MS <= begun_ms
