"""The tutorial that no test runs as it is: its statements are read, settings of its commands take their values."""

from __future__ import annotations

import re

from tests.tidy.sources import ROOT
from tilth.catalog.kv.postgres_address import parse_postgres
from tilth.grammar.text.script import split
from tilth.statements.registry import parse
from tools import make_docs

PAGE = (ROOT / "docs" / "tutorials" / "two-servers.md").read_text()
STATEMENTS = re.compile(r"^```sql\n(.*?)^```", re.DOTALL | re.MULTILINE)
COMMANDS = re.compile(r"^```\n(.*?)^```", re.DOTALL | re.MULTILINE)
SET = re.compile(r"""--set "?([\w.-]+)=([^\s"]+)""")
STATEMENTS_MIN, SETTINGS_MIN = 10, 8


def test_statements_are_read() -> None:
    statements = [statement for block in STATEMENTS.findall(PAGE) for statement in split(block)]
    assert len(statements) >= STATEMENTS_MIN
    for statement in statements:
        parse(statement)


def test_settings_of_the_commands_have_values_that_they_take() -> None:
    settings = {setting.name: setting for setting in make_docs.settings()}
    given = [pair for block in COMMANDS.findall(PAGE) for pair in SET.findall(block.replace("$PWD", "/srv/two"))]
    assert len(given) >= SETTINGS_MIN
    for name, value in given:
        settings[name].read(value)
        if name == "catalog.url":
            assert "127.0.0.1:5432/tilth" in parse_postgres(value).shown


def test_targets_and_fields_of_the_demo_are_there() -> None:
    fields = re.findall(r"^    (\w+): (?:int|bool|float)$", (ROOT / "tools" / "demo_ha.py").read_text(), re.MULTILINE)
    table = re.findall(r"^\| (`.+?) \|", PAGE, re.MULTILINE)
    named = [name for row in table for name in re.findall(r"`(\w+)`", row)]
    assert {*named} == {*fields} - {"produced", "stored"}
    assert re.search(r"^demo-ha:", (ROOT / "Makefile").read_text(), re.MULTILINE)
