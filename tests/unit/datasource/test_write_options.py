"""Options of writes; what is refused."""

from __future__ import annotations

import pytest

from tilth.datasource.errors import SparkOptionError
from tilth.datasource.write_options import WriteOptions, batch_write_options, stream_write_options


def test_options_of_a_save() -> None:
    given = {"path": "db.t", "Label": "it's", "REPLACE_PARTITIONS": "2026-01-01, x", "tasks": "7", "insert_quorum": "2"}
    assert batch_write_options(given, is_overwrite=True) == WriteOptions(
        database="db",
        table="t",
        tasks=7,
        label="it's",
        quorum=2,
        is_overwrite=True,
        partitions=("2026-01-01", "x"),
    )
    listed = batch_write_options({"path": "t", "replace_partitions": '["a, b"]'}, is_overwrite=True)
    assert (listed.database, listed.partitions) == ("default", ("a, b",))


def test_options_of_a_stream() -> None:
    given = {"path": "t", "checkpointLocation": "/x", "stream": "orders", "new_checkpoint": "q", "speculation": "TRUE"}
    options = stream_write_options(given, is_overwrite=False)
    assert (options.stream, options.new_query, options.is_speculative) == ("orders", "q", True)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"path": ""},
        {"path": "a.b.c"},
        {"path": "t", "labl": "x"},
        {"path": "t", "stream": "x"},
        {"path": "t", "tasks": "0"},
        {"path": "t", "tasks": "100001"},
        {"path": "t", "tasks": "-1"},
        {"path": "t", "tasks": "many"},
        {"path": "t", "silence_seconds": "19"},
        {"path": "t", "silence_seconds": "1e9"},
        {"path": "t", "speculation": "maybe"},
        # An empty list would replace the whole table.
        {"path": "t", "replace_partitions": ""},
        {"path": "t", "replace_partitions": "[]"},
        {"path": "t", "replace_partitions": "a,,b"},
        {"path": "t", "replace_partitions": "[1]"},
        {"path": "t", "replace_partitions": '["a"'},
    ],
)
def test_what_a_save_refuses(given: dict[str, str]) -> None:
    with pytest.raises(SparkOptionError):
        batch_write_options(given, is_overwrite=True)


def test_partitions_are_replaced_by_an_overwrite() -> None:
    with pytest.raises(SparkOptionError, match="overwrite"):
        batch_write_options({"path": "t", "replace_partitions": "a"}, is_overwrite=False)


def test_what_a_stream_refuses() -> None:
    with pytest.raises(SparkOptionError, match="appends"):
        stream_write_options({"path": "t"}, is_overwrite=True)
    for given in ({"label": "x"}, {"new_checkpoint": "q"}, {"replace_partitions": "a"}):
        with pytest.raises(SparkOptionError):
            stream_write_options({"path": "t", **given}, is_overwrite=False)
