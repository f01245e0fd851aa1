"""Names of partitions as options have them; pure."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sql_world import SqlWorld, table_of
from tilth.formats import BadValueError
from tilth.model.table import TableDef
from tilth.statements.inserts.partition_names import id_of_text


@pytest.fixture
def world(tmp_path: Path) -> SqlWorld:
    return SqlWorld(tmp_path)


def table(world: SqlWorld, partition_by: str) -> TableDef:
    world.run(
        "CREATE TABLE t (a BIGINT NOT NULL, d DATE NOT NULL, s STRING, m DECIMAL(9,2)) ENGINE = MergeTree "
        f"ORDER BY a {partition_by}"
    )
    return table_of(world)


@pytest.mark.parametrize(
    ("partition_by", "text", "expected"),
    [
        ("PARTITION BY d", "2026-01-31", "2026-01-31"),
        ("PARTITION BY d", "'2026-01-31'", "2026-01-31"),
        ("PARTITION BY toYYYYMM(d)", "202601", "202601"),
        ("PARTITION BY a", "-5", None),
        ("PARTITION BY m", "1.50", None),
        ("PARTITION BY s", "it's", None),
        ("PARTITION BY s", "a.b/../c", None),
    ],
)
def test_a_value_or_an_id(world: SqlWorld, partition_by: str, text: str, expected: str | None) -> None:
    made = table(world, partition_by)
    found = id_of_text(made, text, [])
    assert expected in (None, found)
    # The id that comes of it is a name for itself once the partition is there.
    assert id_of_text(made, found, [found]) == found


def test_a_table_without_partitions_and_one_of_several_columns(world: SqlWorld) -> None:
    whole = table(world, "")
    assert id_of_text(whole, "all", ["all"]) == "all"
    with pytest.raises(BadValueError, match="no partition has this id"):
        id_of_text(whole, "x", ["all"])
    world.run("DROP TABLE t")
    both = table(world, "PARTITION BY (d, a)")
    assert id_of_text(both, "2026-01-31-5", ["2026-01-31-5"]) == "2026-01-31-5"
    with pytest.raises(BadValueError, match="no partition has this id"):
        id_of_text(both, "2026-01-31-5", [])


def test_what_is_no_value(world: SqlWorld) -> None:
    made = table(world, "PARTITION BY d")
    for text in ("", "no day", "2026-02-30", "1e999", "\x00"):
        with pytest.raises(BadValueError, match="neither the id"):
            id_of_text(made, text, [])
