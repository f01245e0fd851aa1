"""Replicas that know which files each attempt of a task has begun.

Covers: choosing these replicas, finding names in them. Does not cover: making the names, removing files
(files/removal.py).
Always holds: a replica that was emptied or added since the transaction began is no witness of it.

A folder has the name of a file as soon as the file is begun, a bucket only when it is ended. A writer begins a file
only after a quorum of replicas has begun the previous one. So if fewer replicas than that quorum are buckets or folders
newer than the transaction, each file of an attempt, except perhaps the last one, has its name in one of the other
folders.

Tests: tests/unit/storage/store/replicas/test_replicated.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from tilth.base.errors import TilthError
from tilth.storage.errors import StoreAwayError
from tilth.storage.store.replicas.new_copies import HINT
from tilth.storage.store.replicas.replica import Replica, call_replicas, replicas_of
from tilth.storage.store.root import StoreRoot

#: Allowance for clocks that differ: a marker may be younger than its timestamp by this much.
SETTLING_MS = 60_000
#: Kinds of stores in which a file has its name as soon as it is begun.
NAMED_AT_ONCE = ("file", "hdfs")

T = TypeVar("T")


def named_at_once(root: StoreRoot) -> tuple[int, ...]:
    """Return the numbers of the replicas in which a file has its name as soon as it is begun."""
    return tuple(number for number, each in enumerate(root.replicas) if each.kind in NAMED_AT_ONCE)


def witnesses_of(root: StoreRoot, table: str, *, begun_ms: int, quorum: int) -> tuple[int, ...]:
    """Return the numbers of replicas that together know all files which a transaction has begun in a table; empty: no
    set of replicas is known to do so.

    `quorum`: number of replicas that had begun a file before the next one was begun.
    """
    candidates = named_at_once(root)
    replicas = [each for each in replicas_of(root) if each.number in candidates]
    if any(each.trouble for each in replicas):
        return ()
    answers = call_replicas(replicas, lambda each: _has_been_there(each, table, begun_ms), enough=len(replicas))
    # A replica that does not answer may be the only one that knows a file.
    if any(isinstance(answer, Exception) for answer in answers.values()):
        return ()
    numbers = tuple(number for number, answer in answers.items() if answer is True)
    return numbers if quorum > len(root.replicas) - len(numbers) else ()


def have_begun(root: StoreRoot, numbers: Sequence[int], paths: Sequence[str]) -> list[bool]:
    """Return for each path whether one of these replicas has it. Raises StoreAwayError if one does not answer."""
    replicas = [each for each in replicas_of(root) if each.number in numbers]
    return [any(each) for each in zip(*_answers(replicas, lambda each: each.store.exist(paths)).values(), strict=True)]


def may_list_late(root: StoreRoot) -> bool:
    """Return whether a listing may lack a file for a while after it was written: in a bucket that does not promise what
    S3, GCS and Azure do. s3proxy over a folder leaves files out while others are removed.
    """
    return any(each.kind not in NAMED_AT_ONCE for each in root.replicas or (root,))


def bucket_listings(root: StoreRoot, prefix: str) -> dict[int, list[str]]:
    """Return the paths that begin with the prefix, by number of each replica that is a bucket. Raises StoreAwayError if
    one does not answer.
    """
    replicas = [each for each in replicas_of(root) if each.root.kind not in NAMED_AT_ONCE]
    return _answers(replicas, lambda each: each.store.list_prefix(prefix) or [])


def _answers(replicas: Sequence[Replica], call: Callable[[Replica], list[T]]) -> dict[int, list[T]]:
    answers = call_replicas(replicas, call, enough=len(replicas))
    for each in replicas:
        if isinstance(error := answers[each.number], TilthError | OSError):
            raise StoreAwayError(str(error), file=str(each.root), hint=HINT) from error
    return {number: answer for number, answer in answers.items() if isinstance(answer, list)}


def _has_been_there(replica: Replica, table: str, begun_ms: int) -> bool:
    since_ms = replica.marker_since_ms(table)
    return since_ms is not None and since_ms + SETTLING_MS <= begun_ms
