"""Choices of a pipe: files that it loads and their order, the files behind an error, the time of the next poll. Pure.

Covers: the verdict of a file, batches, what an error says of the files of a batch, waits. Does not cover: reading and
recording (pipe_poll.py).
Always holds: a file that has failed is tried again only when it or the table's columns have changed, or a user
refreshes the pipe; a file that holds up its pipe comes behind all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tilth.base.errors import ErrorKind, TilthError
from tilth.base.retry import backoff_ms
from tilth.model.loaded_file import LoadedFile
from tilth.model.pipe import FailedFile
from tilth.statements.files.copy_into import Changed, LedgerState, record_of, state_of_file
from tilth.storage import UserFile

#: Files and bytes of one load, which is one commit: it takes minutes at most, and its rows are seen then.
LOAD_FILES_MAX = 1_000
LOAD_BYTES_MAX = 16 << 30
#: Age at which a file of a disk or of HDFS is loaded that no earlier poll has seen: its writer may still append.
SETTLED_MS = 10_000
#: Kinds of stores in which a file is seen while it is written.
GROWING_KINDS = frozenset({"file", "hdfs"})
#: Longest wait after failures, where polls are not further apart anyway.
BACKOFF_MS_MAX = 300_000
_DOUBLINGS_MAX = 16
#: Errors of INVALID kind that say nothing of the files.
_OF_THE_PIPE = frozenset({"BAD_FILE_LOCATION", "BAD_COPY_OPTION", "COPY_ZONE", "BAD_SETTING"})
#: Errors after which the next poll chooses anew: others have loaded a file, or changed the columns.
_CHOOSE_ANEW = frozenset({"FILE_TAKEN", "SCHEMA_CHANGED"})


class FileVerdict(StrEnum):
    """Treatment of a file that a pipe has found."""

    #: It is loaded.
    LOAD = "load"
    #: It was loaded before.
    LOADED = "loaded"
    #: It could not be loaded, and is tried again when it changes.
    FAILED = "failed"
    #: It has changed since it was loaded, which is an error that is not recorded yet.
    CHANGED = "changed"
    #: It has changed since it was loaded, and is left as OPTIONS (CHANGED = 'skip') says.
    SKIPPED = "skipped"
    #: It is so new that it may still grow; the next poll loads it if it does not.
    SETTLING = "settling"
    #: It is older than the ledger of files.
    TOO_OLD = "too_old"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSeen:
    """Facts by which files are judged."""

    #: Lines of the ledger, by address.
    loaded: Mapping[str, LoadedFile]
    failed: Mapping[str, FailedFile]
    #: New files of the last poll, by address.
    seen: Mapping[str, UserFile]
    #: Time before which the ledger has forgotten files.
    forgotten_ms: int
    #: Version of the table's columns.
    schema_version: int
    #: Kind of the files' store.
    kind: str
    changed: Changed
    now_ms: int


def judge(file: UserFile, known: FilesSeen) -> FileVerdict:
    """Return what a pipe does with the file."""
    is_local = known.kind == "file"
    before = known.loaded.get(file.address)
    state = state_of_file(file, before, is_local, known.forgotten_ms)
    if state is LedgerState.LOADED:
        return FileVerdict.LOADED
    if state is LedgerState.TOO_OLD:
        return FileVerdict.TOO_OLD
    failed = known.failed.get(file.address)
    if failed is not None and failed.schema_version == known.schema_version and is_same(failed, file, is_local):
        return FileVerdict.FAILED
    if state is LedgerState.CHANGED and known.changed is not Changed.LOAD:
        return FileVerdict.SKIPPED if known.changed is Changed.SKIP else FileVerdict.CHANGED
    is_old = 0 <= file.modified_ms <= known.now_ms - SETTLED_MS
    if known.kind in GROWING_KINDS and not is_old and known.seen.get(file.address) != file:
        return FileVerdict.SETTLING
    return FileVerdict.LOAD


def is_same(failed: FailedFile, file: UserFile, is_local: bool) -> bool:
    """Return whether the file is as it was when it failed."""
    now = record_of(file, "", is_local=is_local)
    return (failed.size, failed.tag, failed.modified_ms) == (now.size, now.tag, now.modified_ms)


def in_order(files: Iterable[UserFile], troubles: Mapping[str, int]) -> list[UserFile]:
    """Return files in the order in which they are loaded: those that have held up the pipe last, then by their time.

    `troubles`: failures of the whole pipe while a file was loaded alone, by address.
    """
    return sorted(files, key=lambda each: (troubles.get(each.address, 0), each.modified_ms, each.path))


def batches_of(files: Sequence[UserFile], *, files_max: int, bytes_max: int) -> list[list[UserFile]]:
    """Return the files in batches, in their order; a batch has one file at least."""
    batches: list[list[UserFile]] = []
    size = 0
    for file in files:
        if not batches or len(batches[-1]) >= files_max or size + file.size > bytes_max:
            batches.append([])
            size = 0
        batches[-1].append(file)
        size += file.size
    return batches


class LoadBlame(StrEnum):
    """Meaning of an error for the batch that was loaded."""

    #: One file cannot be loaded.
    FILE = "file"
    #: One file has changed while it was read: it is not complete yet.
    GROWING = "growing"
    #: Some file of the batch cannot be loaded: it is found by halves.
    SOME = "some"
    #: The next poll chooses files anew.
    CHOOSE_ANEW = "choose_anew"
    #: The pipe waits and tries again.
    PIPE = "pipe"


def blame(error: TilthError, batch: Sequence[UserFile]) -> tuple[LoadBlame, UserFile | None]:
    """Return what a load's error says, and of which file; None: of none or of several."""
    named = next((each for each in batch if each.address == error.facts.get("file")), None)
    if error.code in _CHOOSE_ANEW:
        return LoadBlame.CHOOSE_ANEW, None
    if error.code == "FILE_CHANGED":
        return (LoadBlame.GROWING, named) if named is not None else (LoadBlame.CHOOSE_ANEW, None)
    if error.kind is not ErrorKind.INVALID or error.code in _OF_THE_PIPE:
        return LoadBlame.PIPE, None
    if named is None and len(batch) == 1:
        named = batch[0]
    return (LoadBlame.SOME, None) if named is None else (LoadBlame.FILE, named)


def wait_ms(every_ms: int, failures: int) -> int:
    """Return the time to the next poll after so many failed ones in a row, one at least."""
    grown = backoff_ms(failures - 1, base_ms=every_ms, doublings_max=_DOUBLINGS_MAX)
    return min(grown, max(every_ms, BACKOFF_MS_MAX))
