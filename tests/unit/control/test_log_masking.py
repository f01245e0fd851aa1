"""Literals of statements in the audit log and the query log: stored, masked at once, masked after some days."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sql_world import SqlWorld, refused
from tilth.base.settings import BadSettingError
from tilth.catalog import AuditSettings
from tilth.control.log_masking import LogMasking
from tilth.control.query_log import QueryLog
from tilth.query.language.masking import mask_details, mask_literals

DAY = 86_400
PERSON = "Zoë O'Hara"


@pytest.mark.parametrize(
    ("statement", "left"),
    [
        ("DELETE FROM d.t WHERE name = 'Zoë' AND n = 17", "DELETE FROM d.t WHERE name = ? AND n = ?"),
        ("SELECT 'it''s', r'\\d', R\"x\", .5e-3, 0xFF, -1", "SELECT ?, ?, ?, ?, ?, -?"),
        ("SELECT a -- about Zoë\n, b /* Zoë /* twice */ */ FROM t1", "SELECT a , b  FROM t1"),
        ('/* Zoë */ SELECT `a 1`, "Zoë"', "SELECT `a 1`, ?"),
        ("INSERT INTO t VALUES (1, 'Zoë", "INSERT INTO t VALUES (?, ?"),
        ("SELECT x'AB', DATE '2026-01-01', `unclosed Zoë", "SELECT x?, DATE ?, ?"),
        ("SELECT 1 /* Zoë", "SELECT ? ?"),
        ("ALTER TABLE t MODIFY SETTING a = 5, b = '1 day'", "ALTER TABLE t MODIFY SETTING a = ?, b = ?"),
        ("SELECT 1\n  FROM t", "SELECT ?\n  FROM t"),
        ("", ""),
    ],
)
def test_all_literals_are_masked_and_the_rest_stays(statement: str, left: str) -> None:
    found = mask_literals(statement)
    assert " ".join(found.split()) == " ".join(left.split())
    assert mask_literals(found).split() == found.split()


def test_of_an_error_its_code_is_left() -> None:
    assert mask_details("BAD_VALUE: this is no number: value='Zoë'\nmore") == "BAD_VALUE"
    assert mask_details("done: 3 files removed, 0 orphans left") == "done: 3 files removed, 0 orphans left"


def lines(world: SqlWorld) -> str:
    audit = world.rows("SELECT statement, outcome FROM system.audit_log")
    return str([audit, world.rows("SELECT text, error FROM system.query_log")])


def say(world: SqlWorld) -> None:
    """Run statements with a person's name: done, refused, and such as cannot be parsed."""
    name = PERSON.replace("'", "''")
    world.run("CREATE DATABASE d")
    world.run(f"CREATE TABLE d.t (name STRING) ENGINE = MergeTree ORDER BY name COMMENT '{name}'")
    refused(world, f"ALTER TABLE d.t DROP PARTITION '{name}'")
    refused(world, f"DELETE FROM d.none WHERE name = '{name}'")
    refused(world, f"SELECT FROM WHERE '{name}'")


def test_hidden_literals_get_into_no_log(tmp_path: Path) -> None:
    world = SqlWorld(tmp_path, settings={"audit.literals": "Hidden"})
    say(world)
    assert "O'Hara" not in lines(world)
    assert "O''Hara" not in lines(world)
    assert "DROP PARTITION ?" in lines(world)


def test_literals_are_masked_after_some_days(tmp_path: Path) -> None:
    world = SqlWorld(tmp_path, settings={"audit.literals-days": "7"})
    say(world)
    assert "Hara" in lines(world)
    world.clock.advance(6.9 * DAY)
    assert world.engine.log_masking.mask_expired() == 0
    assert "Hara" in lines(world)
    world.clock.advance(0.2 * DAY)
    assert world.engine.log_masking.mask_expired() > 0
    assert "Hara" not in lines(world)
    assert world.engine.log_masking.mask_expired() == 0


def test_zero_days_mask_nothing_and_hidden_masks_lines_from_before_it(tmp_path: Path) -> None:
    world = SqlWorld(tmp_path)
    say(world)
    clock, catalog = world.clock, world.catalog
    clock.advance(1000 * DAY)
    for_ever = LogMasking(clock, catalog, QueryLog(), AuditSettings(literals_days=0))
    assert for_ever.mask_expired() == 0
    assert "Hara" in str(catalog.audit.recent(100))
    assert LogMasking(clock, catalog, QueryLog(), AuditSettings(literals="hidden")).mask_expired() > 0
    assert "Hara" not in str(catalog.audit.recent(100))


@pytest.mark.parametrize("setting", [{"audit.literals": "some"}, {"audit.literals-days": "-1"}])
def test_bad_settings_are_refused(tmp_path: Path, setting: dict[str, str]) -> None:
    with pytest.raises(BadSettingError, match=r"audit\.literals"):
        SqlWorld(tmp_path, settings=setting)
