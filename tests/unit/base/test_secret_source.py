"""Secrets by reference: which are refused, and that no message shows a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilth.base.errors import InvalidInputError
from tilth.base.secret_source import SECRET_BYTES_MAX, read_secret


def read(reference: str, **environment: str) -> str:
    return read_secret(reference, environment, of="a test", error=InvalidInputError)


def test_blanks_around_a_secret_are_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "s").write_text(" word \n")
    assert (read(f"file:{tmp_path}/s"), read("env:S", S=" word\n")) == ("word", "word")


@pytest.mark.parametrize("content", [b"", b" \n", b"\xff\xfe", b"x" * (SECRET_BYTES_MAX + 1)])
def test_a_file_without_a_whole_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    """A part of a secret would be refused by its user later, with a message that does not name the file."""
    (tmp_path / "s").write_bytes(content)
    with pytest.raises(InvalidInputError, match=f"file={tmp_path}/s") as caught:
        read(f"file:{tmp_path}/s")
    assert "xxx" not in str(caught.value)


def test_a_missing_file_or_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="No such file"):
        read(f"file:{tmp_path}/s")
    with pytest.raises(InvalidInputError, match="variable=S"):
        read("env:S", S=" ")
