"""Verdicts of a pipe about each file, batches of a load, errors and waits; from values alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tilth.base.errors import ConflictError, InvalidInputError, TilthError, UnavailableError
from tilth.model.loaded_file import LoadedFile
from tilth.model.pipe import FailedFile
from tilth.query.errors import BadFileRowError
from tilth.statements.files.copy_into import Changed
from tilth.statements.files.pipe_choice import (
    BACKOFF_MS_MAX,
    FilesSeen,
    FileVerdict,
    LoadBlame,
    batches_of,
    blame,
    in_order,
    judge,
    wait_ms,
)
from tilth.storage import UserFile

NOW_MS = 1_000_000
FILE = UserFile("/in/a", "a", 10, 500_000, "t1")


def known(**changed: Any) -> FilesSeen:
    given: Mapping[str, Any] = {
        "loaded": {},
        "failed": {},
        "seen": {},
        "forgotten_ms": 0,
        "schema_version": 1,
        "kind": "s3",
        "changed": Changed.ERROR,
        "now_ms": NOW_MS,
    }
    return FilesSeen(**{**given, **changed})


def loaded(**changed: Any) -> Mapping[str, LoadedFile]:
    given: Mapping[str, Any] = {"size": 10, "tag": "t1", "modified_ms": 500_000}
    return {"/in/a": LoadedFile(file="/in/a", rows=1, query_id="q", **{**given, **changed})}


def failed(**changed: Any) -> Mapping[str, FailedFile]:
    given: Mapping[str, Any] = {"size": 10, "tag": "t1", "modified_ms": 500_000, "schema_version": 1}
    return {"/in/a": FailedFile(file="/in/a", code="C", error="e", failed_ms=1, **{**given, **changed})}


def file(*, modified_ms: int = 500_000, size: int = 10) -> UserFile:
    return UserFile("/in/a", "a", size, modified_ms, "t1")


NEW, FUTURE = file(modified_ms=NOW_MS), file(modified_ms=NOW_MS + 9)


@pytest.mark.parametrize(
    ("found", "given", "verdict"),
    [
        (FILE, known(), FileVerdict.LOAD),
        (FILE, known(loaded=loaded()), FileVerdict.LOADED),
        (FILE, known(loaded=loaded(), failed=failed()), FileVerdict.LOADED),
        (FILE, known(loaded=loaded(tag="t0")), FileVerdict.CHANGED),
        (FILE, known(loaded=loaded(tag="t0"), changed=Changed.SKIP), FileVerdict.SKIPPED),
        (FILE, known(loaded=loaded(tag="t0"), changed=Changed.LOAD), FileVerdict.LOAD),
        (FILE, known(loaded=loaded(tag="t0"), failed=failed()), FileVerdict.FAILED),
        (FILE, known(failed=failed()), FileVerdict.FAILED),
        (FILE, known(failed=failed(tag="t0")), FileVerdict.LOAD),
        (FILE, known(failed=failed(size=9)), FileVerdict.LOAD),
        (FILE, known(failed=failed(), schema_version=2), FileVerdict.LOAD),
        (FILE, known(forgotten_ms=500_001), FileVerdict.TOO_OLD),
        (FILE, known(forgotten_ms=500_000), FileVerdict.LOAD),
        # A disk: the file is complete when it has been so for a while, or between two polls.
        (file(modified_ms=NOW_MS), known(kind="s3"), FileVerdict.LOAD),
        (file(modified_ms=NOW_MS), known(kind="file"), FileVerdict.SETTLING),
        (file(modified_ms=NOW_MS), known(kind="hdfs"), FileVerdict.SETTLING),
        (file(modified_ms=NOW_MS - 10_000), known(kind="file"), FileVerdict.LOAD),
        (NEW, known(kind="file", seen={"/in/a": NEW}), FileVerdict.LOAD),
        (file(modified_ms=NOW_MS, size=11), known(kind="file", seen={"/in/a": NEW}), FileVerdict.SETTLING),
        (FUTURE, known(kind="file"), FileVerdict.SETTLING),
        (FUTURE, known(kind="file", seen={"/in/a": FUTURE}), FileVerdict.LOAD),
    ],
)
def test_the_verdict_of_a_file(found: UserFile, given: FilesSeen, verdict: FileVerdict) -> None:
    assert judge(found, given) is verdict


def test_a_disk_has_no_tags() -> None:
    """A file that was copied back has another inode."""
    other = UserFile("/in/a", "a", 10, 500_000, "t9")
    assert judge(other, known(kind="file", failed=failed(tag=""))) is FileVerdict.FAILED
    assert judge(other, known(kind="file", loaded=loaded(tag=""))) is FileVerdict.LOADED


def test_older_files_come_first_and_those_with_trouble_last() -> None:
    files = [UserFile(name, name, 1, modified, "") for name, modified in (("b", 2), ("a", 2), ("c", 1), ("bad", 0))]
    assert [each.path for each in in_order(files, {"bad": 1})] == ["c", "a", "b", "bad"]


def test_batches_are_bounded_and_never_empty() -> None:
    files = [UserFile(str(size), str(size), size, 0, "") for size in (5, 5, 1, 99, 1)]
    cut = batches_of(files, files_max=2, bytes_max=10)
    assert [[each.size for each in batch] for batch in cut] == [[5, 5], [1], [99], [1]]
    assert batches_of([], files_max=2, bytes_max=10) == []


OTHER = UserFile("/in/b", "b", 1, 0, "")


@pytest.mark.parametrize(
    ("error", "count", "expected"),
    [
        (BadFileRowError(file="/in/b"), 2, (LoadBlame.FILE, OTHER)),
        (BadFileRowError(file="/elsewhere"), 2, (LoadBlame.SOME, None)),
        (BadFileRowError(), 1, (LoadBlame.FILE, FILE)),
        (InvalidInputError("no"), 2, (LoadBlame.SOME, None)),
        (InvalidInputError.coded("BAD_FILE_LOCATION", "no", file="/in/b"), 2, (LoadBlame.PIPE, None)),
        (InvalidInputError.coded("BAD_SETTING", "no"), 1, (LoadBlame.PIPE, None)),
        (ConflictError.coded("FILE_CHANGED", "no", file="/in/b"), 2, (LoadBlame.GROWING, OTHER)),
        (ConflictError.coded("FILE_CHANGED", "no", file="/in/c"), 2, (LoadBlame.CHOOSE_ANEW, None)),
        (ConflictError.coded("FILE_TAKEN", "no", file="/in/b"), 2, (LoadBlame.CHOOSE_ANEW, None)),
        (ConflictError.coded("SCHEMA_CHANGED", "no"), 1, (LoadBlame.CHOOSE_ANEW, None)),
        (ConflictError.coded("QUERY_WAS_CANCELLED", "no"), 1, (LoadBlame.PIPE, None)),
        (UnavailableError("no", file="/in/b"), 1, (LoadBlame.PIPE, None)),
        (TilthError("a defect"), 1, (LoadBlame.PIPE, None)),
    ],
)
def test_what_an_error_says_of_the_files(
    error: TilthError, count: int, expected: tuple[LoadBlame, UserFile | None]
) -> None:
    assert blame(error, [FILE, OTHER][:count]) == expected


def test_waits_grow_up_to_a_bound_and_never_shrink() -> None:
    assert [wait_ms(1_000, failures) for failures in (1, 2, 3, 9, 10, 10_000)] == [
        1_000,
        2_000,
        4_000,
        256_000,
        BACKOFF_MS_MAX,
        BACKOFF_MS_MAX,
    ]
    assert [wait_ms(3_600_000, failures) for failures in (1, 2, 99)] == [3_600_000] * 3
