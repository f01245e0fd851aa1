"""Checks of files: what is wrong with them, and what a store that is away leaves unknown."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.catalog_world import World
from tilth.base.errors import CorruptError, TilthError, UnavailableError
from tilth.model.delta import PartSource
from tilth.model.table import TableDef
from tilth.storage import local_folder, sources_of
from tilth.verify import FilesOrder, ReadsHere, Wrong, reading

#: Folder in which nothing is read.
FOLDER = local_folder("/away")


@pytest.fixture
def part() -> PartSource:
    world = World()
    table = world.catalog.tables.by_id(world.t)
    assert isinstance(table, TableDef)
    [source] = sources_of(table, world.insert(), ())
    return source


def failing(error: TilthError) -> Callable[..., Any]:
    def fail(*given: object, **named: object) -> None:
        raise error

    return fail


def order(part: PartSource) -> FilesOrder:
    return FilesOrder(folder=FOLDER, parts=(reading.CheckedPart(part, part.rows),), deltas=(part.file,))


def test_a_file_that_is_damaged_is_wrong(part: PartSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "check_file", failing(CorruptError("its checksum is another")))
    name = part.file.name
    assert ReadsHere().wrong(order(part)) == [
        Wrong(name, f"{part.name}: its checksum is another"),
        Wrong(name, f"{name}: its checksum is another"),
    ]


def test_of_a_store_that_is_away_nothing_is_said(part: PartSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "check_file", failing(UnavailableError("the store does not answer")))
    with pytest.raises(UnavailableError, match="does not answer"):
        ReadsHere().wrong(order(part))
    with pytest.raises(UnavailableError, match="does not answer"):
        reading.wrong_delta(FOLDER, part.file)
