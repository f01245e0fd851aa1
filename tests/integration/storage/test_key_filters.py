"""Key filters beside parts: what they deny is not there, and without a good one all is as before."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.property.upsert_table import Row, UpsertTable, schema_of
from tilth.model.types import Kind, Simple
from tilth.storage import local_folder
from tilth.storage.parts.key_filter import read_filter, write_filter
from tilth.storage.upsert import key_lookup
from tilth.storage.values.unique_keys import keys_of

ROWS = 2_000


@pytest.fixture
def table(tmp_path: Path) -> UpsertTable:
    made = UpsertTable(local_folder(tmp_path), schema_of(Simple(Kind.INT64)))
    rows: list[Row] = [(2 * i, None, 0, "x", i, 0) for i in range(ROWS)]
    made.load(rows)
    return made


def filter_path(table: UpsertTable) -> Path:
    return Path(table.folder, table.parts[0].file.name).with_suffix(".filter")


def test_no_key_that_is_there_is_denied(table: UpsertTable) -> None:
    known = read_filter(table.layout, table.parts[0].file)
    assert known is not None
    there = keys_of([pa.chunked_array([np.arange(ROWS) * 2])], [pa.int64()])
    others = keys_of([pa.chunked_array([np.arange(ROWS) * 2 + 1])], [pa.int64()])
    assert known.may_have(there.hashes).all()
    assert known.may_have(others.hashes).mean() < 0.05


def test_a_part_that_its_filter_rules_out_is_not_opened(table: UpsertTable, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(key_lookup, "open_part", lambda folder, file: opened.append(file.name))
    known = read_filter(table.layout, table.parts[0].file)
    assert known is not None
    odd = keys_of([pa.chunked_array([np.arange(ROWS) * 2 + 1])], [pa.int64()])
    missing = int(np.flatnonzero(~known.may_have(odd.hashes))[0]) * 2 + 1
    table.put([(missing, None, 0, "new", 0, 0)])
    assert not opened


@pytest.mark.parametrize("damage", ["missing", "short", "flipped", "other"])
def test_without_a_good_filter_keys_are_found_all_the_same(
    table: UpsertTable, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = filter_path(table)
    content = bytearray(path.read_bytes())
    content[-1] ^= 0xFF
    contents = {"short": bytes(content[:-9]), "flipped": bytes(content), "other": b"no filter"}
    path.unlink()
    if damage in contents:
        path.write_bytes(contents[damage])
    with caplog.at_level(logging.WARNING, "tilth.storage"):
        assert read_filter(table.layout, table.parts[0].file) is None
    assert ("key_filter_ignored" in caplog.text) == (damage != "missing")
    table.put([(10, None, 0, "new", 1, 0), (11, None, 0, "new", 1, 0)])
    table.check()


def test_a_filter_of_other_types_is_not_used(table: UpsertTable) -> None:
    other = UpsertTable(table.folder, schema_of(Simple(Kind.STRING)))
    assert read_filter(other.layout, table.parts[0].file) is None


def test_a_table_without_a_key_gets_none(table: UpsertTable) -> None:
    filter_path(table).unlink()

    write_filter(dataclasses.replace(table.layout, unique_key=()), table.parts[0].file)
    assert not filter_path(table).exists()
