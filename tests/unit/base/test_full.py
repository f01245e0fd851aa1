"""A full disk is recognised in everybody's words, and nothing else is taken for one."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from tilth.base.errors import ErrorKind, InvalidInputError, TilthError, UnavailableError, UnknownOutcomeError
from tilth.base.full import StoreFullError, free_bytes, full_error

ROCKSDB = "IO error: No space left on device: While appending to file: {folder}/000011.log: No space left on device"
SPARK = "Caused by: java.io.IOException: No space left on device"
PYTHON = "OSError: [Errno 28] No space left on device: '{folder}/x.parquet'"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_errors_of_the_system_name_the_folder(tmp_path: Path, number: int) -> None:
    error = full_error(OSError(number, os.strerror(number), str(tmp_path / "part")), folder="/")
    assert error is not None
    assert (error.code, error.kind) == ("STORE_FULL", ErrorKind.UNAVAILABLE)
    assert error.facts["folder"] == str(tmp_path)
    assert error.facts["free"]
    assert error.hint


@pytest.mark.parametrize("text", [ROCKSDB, PYTHON])
def test_texts_of_others_name_the_folder(tmp_path: Path, text: str) -> None:
    error = full_error(TilthError("it failed", reason=text.format(folder=tmp_path), at="File '/usr/bin/x'"), folder="/")
    assert error is not None
    assert error.facts["folder"] == str(tmp_path)


def test_without_a_name_the_given_folder_is_named(tmp_path: Path) -> None:
    error = full_error(RuntimeError(SPARK), folder=str(tmp_path))
    assert error is not None
    assert error.facts["folder"] == str(tmp_path)


def test_a_cause_is_enough(tmp_path: Path) -> None:
    error = UnavailableError("changes could not be written")
    error.__cause__ = OSError(errno.ENOSPC, "No space left on device")
    assert isinstance(full_error(error, folder=str(tmp_path)), StoreFullError)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),
        ValueError("no space"),
        InvalidInputError("raise_error('No space left on device')"),
        # Nobody knows whether it was applied: that is the more important thing to say.
        UnknownOutcomeError(reason="No space left on device"),
    ],
)
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    assert full_error(error, folder="/") is None


def test_causes_that_go_in_circles_end() -> None:
    one, other = ValueError("a"), ValueError("b")
    one.__cause__, other.__cause__ = other, one
    assert full_error(one, folder="/") is None


def test_free_bytes_of_a_folder_that_is_not_there_are_none() -> None:
    assert free_bytes("/nowhere/at/all") == 0
    assert free_bytes("/") > 0
