"""Facts that a client might make up, over real files in a temporary folder: under a second."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.codes import WithCode
from tests.outside_world import OutsideWorld
from tests.sql_world import table_of
from tilth.base.errors import InvalidInputError
from tilth.model.outside_write import OpenWrite
from tilth.model.part import ColumnRange, WrittenPart
from tilth.statements.inserts import written_facts
from tilth.statements.inserts.written_facts import check_facts
from tilth.storage import PartFileCorruptError, PartFileNotFoundError, layout_of, local_root

TABLE = "(a BIGINT NOT NULL, d STRING) ENGINE = MergeTree ORDER BY a PARTITION BY d"


@pytest.fixture
def world(tmp_path: Path) -> OutsideWorld:
    return OutsideWorld(tmp_path, table=TABLE)


@pytest.fixture
def opened(world: OutsideWorld) -> OpenWrite:
    return world.begin("a", "d")


def parts_of(world: OutsideWorld, opened: OpenWrite) -> list[WrittenPart]:
    return list(world.write(opened, [{"a": 1, "d": "x"}, {"a": 2, "d": "../y"}], task=2, attempt=1).parts)


def named(part: WrittenPart, name: str) -> WrittenPart:
    return replace(part, file=replace(part.file, name=name))


def test_true_facts_pass(world: OutsideWorld, opened: OpenWrite) -> None:
    assert world.commit_parts(opened, parts_of(world, opened)).rows == 2


@pytest.mark.parametrize(
    "name",
    [
        "{other}-2.1-0.parquet",
        "0{txn}-2.1-0.parquet",
        "{txn}-02.1-0.parquet",
        "{txn}-\u0662.1-0.parquet",
        "../{txn}-2.1-0.parquet",
        "{txn}-2.1-0.parquet/../../x",
        "{txn}-2.1-0.parquet\x00",
        "{txn}-2.1-0.parquet\n",
        "{txn}-2.1-0.arrow",
        "{txn}-2.1-0.map",
        "{txn}-4.1-0.parquet",
        "{txn}-7.1-0.parquet",
        "{txn}--2.1-0.parquet",
        "{txn}-2.0-0.parquet",
        "{txn}-2.1-1.parquet",
        "{txn}-2.1-5.parquet",
        "",
        "t",
    ],
)
def test_a_client_names_only_files_of_its_own_tasks(world: OutsideWorld, opened: OpenWrite, name: str) -> None:
    first, second = parts_of(world, opened)
    given = name.format(txn=opened.txn, other=opened.txn + 1)
    with pytest.raises(InvalidInputError, check=WithCode("BAD_WRITTEN_FILE")):
        world.commit_parts(opened, [named(first, given), second])
    assert world.values() == []


@pytest.mark.parametrize(
    "facts",
    [
        {"rows": 0},
        {"rows": -1},
        {"partition": "y"},
        {"partition": ".."},
        {"values": ()},
        {"values": ("x", "y")},
        {"values": (7,)},
        {"values": (1.5,)},
        {"values": (True,)},
        {"values": ("another",)},
        {"values": ("x\x00",)},
        {"is_segment": True},
        {"ranges": {}},
        {"ranges": {"a": ColumnRange(1, 1, 0)}},
        {"ranges": {"a": ColumnRange(1, 1, 0), "d": ColumnRange("x", "x", 9)}},
        {"ranges": {"a": ColumnRange("1", 1, 0), "d": ColumnRange("x", "x", 0)}},
        {"ranges": {"a": ColumnRange(1, True, 0), "d": ColumnRange("x", "x", 0)}},
        {"ranges": {"a": ColumnRange(1, 1, 0), "d": ColumnRange(7, "x", 0)}},
        {"ranges": {"a": ColumnRange(1, 1, -1), "d": ColumnRange("x", "x", 0)}},
    ],
)
def test_content_that_cannot_be(world: OutsideWorld, opened: OpenWrite, facts: dict[str, Any]) -> None:
    first, second = parts_of(world, opened)
    with pytest.raises(InvalidInputError, check=WithCode("BAD_WRITTEN_FILE")):
        world.commit_parts(opened, [replace(first, **facts), second])
    assert world.values() == []


def test_two_attempts_are_never_named_together(world: OutsideWorld, opened: OpenWrite) -> None:
    first = world.write(opened, [{"a": 1, "d": "x"}], task=1)
    second = world.write(opened, [{"a": 1, "d": "x"}], task=1, attempt=1)
    with pytest.raises(InvalidInputError, match="another attempt", check=WithCode("BAD_WRITTEN_FILE")):
        world.commit(opened, first, second)
    assert world.values() == []


def test_a_file_is_named_once(world: OutsideWorld, opened: OpenWrite) -> None:
    [part] = world.write(opened, [{"a": 1, "d": "x"}]).parts
    with pytest.raises(InvalidInputError, match="named twice", check=WithCode("BAD_WRITTEN_FILE")):
        world.commit_parts(opened, [part, part])


def test_sizes_are_those_in_the_store(world: OutsideWorld) -> None:
    for change, error in ((1, PartFileCorruptError), (-1, PartFileCorruptError)):
        opened = world.begin("a", "d")
        first, second = parts_of(world, opened)
        wrong = replace(first, file=replace(first.file, size=first.file.size + change))
        with pytest.raises(error):
            world.commit_parts(opened, [wrong, second])
    opened = world.begin("a", "d")
    first, second = parts_of(world, opened)
    (world.folder / opened.table.uuid / "data" / second.file.name).unlink()
    with pytest.raises(PartFileNotFoundError):
        world.commit_parts(opened, [first, second])
    assert world.values() == []


def test_files_of_another_transaction(world: OutsideWorld, opened: OpenWrite) -> None:
    other = world.begin("a", "d")
    facts = world.write(other, [{"a": 1, "d": "x"}])
    with pytest.raises(InvalidInputError, check=WithCode("BAD_WRITTEN_FILE")):
        world.commit(opened, facts)
    assert world.commit(other, facts).rows == 1


def test_one_commit_names_so_many_files(
    world: OutsideWorld, opened: OpenWrite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written_facts, "FILES_MAX", 1)
    table = table_of(world)
    with pytest.raises(InvalidInputError, match="too many files"):
        check_facts(
            table,
            layout_of(table, local_root(world.folder)),
            parts_of(world, opened),
            txn=opened.txn,
            tasks=8,
        )
