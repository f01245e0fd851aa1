"""Copies of single files whose source changes while they are made, in folders of the local disk."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.storage.store.replicas.test_replicated import Locations, failing, locations
from tilth.base.errors import CorruptError
from tilth.storage import make_copy

__all__ = ["locations"]


def test_a_copy_whose_source_changed_while_it_was_read_is_not_left(
    locations: Locations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source was right when it was checked, but other bytes are read for the copy."""
    file = locations.write("a", b"abc")
    locations.copy(2, "a").unlink()

    def other_bytes(*_: Any, **__: Any) -> Any:
        return pa.PythonFile(io.BytesIO(b"xyz"), mode="r")

    for number in (0, 1):
        failing(monkeypatch, "open", locations.folders[number], other_bytes)
    with pytest.raises(CorruptError, match="its source changed"):
        make_copy(locations.folder, file, 2)
    assert not locations.copy(2, "a").exists()
    monkeypatch.undo()
    assert make_copy(locations.folder, file, 2) == file.size
    assert locations.copy(2, "a").read_bytes() == b"abc"
