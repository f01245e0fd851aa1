"""The pages of docs/migrate are true: what they call the same is read by Tilth, what they call another thing is not;
names of settings, system tables and metrics are there; the report that they show is the one that is printed.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.tidy.sources import ROOT
from tilth.base.errors import TilthError
from tilth.base.settings import SettingGroup
from tilth.clickhouse.dialect import to_spark
from tilth.client.cli.main import app
from tilth.grammar.text.cursor import Cursor
from tilth.grammar.text.script import split
from tilth.grammar.types import parse_type
from tilth.introspection.registry import SYSTEM_TABLES
from tilth.migration import translate_script
from tilth.query.settings import KAFKA_TABLE_SETTINGS, TABLE_SETTINGS
from tilth.server import METRICS
from tilth.statements.registry import parse
from tools import make_docs

FOLDER = ROOT / "docs" / "migrate"
PAGES = sorted(FOLDER.glob("*.md"))
BLOCK = re.compile(r"^ *```sql( clickhouse)?\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
ROW = re.compile(r"^\| `([^`|]+)` \| ([^|]*) \|", re.MULTILINE)
STATEMENT = re.compile(r"`([A-Z]+ [^`]+)`")
#: A name of several words.
NAME = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")
SAME = "the same"
#: Rows with statements, on each page.
STATEMENTS_MIN = 15
#: Names that a page mentions for what another system has no counterpart for.
NOTHING = "nothing"


def section(page: Path, title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page.read_text(), re.MULTILINE | re.DOTALL)
    return found[1] if found else ""


def setting_names() -> set[str]:
    return {name for setting in make_docs.settings() for name in (setting.name, *setting.aliases)}


def rows(title: str) -> list[tuple[Path, str, str]]:
    return [(page, theirs, ours) for page in PAGES for theirs, ours in ROW.findall(section(page, title))]


def read(text: str) -> None:
    if text.startswith("SELECT "):
        to_spark(text)
    else:
        parse(text)


def test_each_page_has_its_tables() -> None:
    assert {page.stem for page in PAGES} == {"README", "byconity", "clickhouse", "kudu", "delta-iceberg"}
    for page in PAGES:
        if page.stem != "README":
            assert len(ROW.findall(section(page, "Statements"))) >= STATEMENTS_MIN, page.name
            for title in ("Settings", "System tables", "Metrics", "Both at once|Moving rows"):
                assert section(page, f"(?:{title})"), f"{page.name}: {title}"


@pytest.mark.parametrize(("page", "theirs", "ours"), [*rows("Statements"), *rows("Queries")])
def test_a_statement_is_the_same_or_is_refused_by_name(page: Path, theirs: str, ours: str) -> None:
    if ours == SAME:
        read(theirs)
        return
    with pytest.raises(TilthError) as raised:
        read(theirs)
    assert raised.value.code == "UNSUPPORTED_SYNTAX", raised.value
    for statement in STATEMENT.findall(ours):
        parse(statement)


@pytest.mark.parametrize(("page", "theirs", "ours"), rows("Types"))
def test_a_type_is_the_same_or_another_one(page: Path, theirs: str, ours: str) -> None:
    written = theirs if ours == SAME else ours.strip("`")
    cursor = Cursor(written)
    parse_type(cursor)
    cursor.end()
    if ours != SAME:
        with pytest.raises(TilthError):
            parse_type(Cursor(theirs))


@pytest.mark.parametrize(("page", "theirs", "ours"), rows("Settings"))
def test_a_setting_is_there(page: Path, theirs: str, ours: str) -> None:
    if ours != NOTHING:
        assert (theirs if ours == SAME else ours.strip("`")) in setting_names()


def test_settings_that_replace_words_of_streaming_are_there() -> None:
    table = section(FOLDER / "delta-iceberg.md", "Structured Streaming")
    named = {name for cell in re.findall(r"^\|[^|]*\|([^|]*)\|", table, re.MULTILINE) for name in NAME.findall(cell)}
    assert named
    assert named - setting_names() == set()


@pytest.mark.parametrize(("page", "theirs", "ours"), rows("System tables"))
def test_a_system_table_is_there(page: Path, theirs: str, ours: str) -> None:
    if ours != NOTHING:
        assert ours.strip("`").removeprefix("system.") in {name.removeprefix("system.") for name in SYSTEM_TABLES}


@pytest.mark.parametrize(("page", "theirs", "ours"), rows("Metrics"))
def test_a_metric_is_there(page: Path, theirs: str, ours: str) -> None:
    if ours != NOTHING:
        assert ours.strip("`") in {metric.name for metric in METRICS}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_is_read(page: Path) -> None:
    blocks = BLOCK.findall(page.read_text())
    assert blocks
    for theirs, block in blocks:
        if theirs:
            assert translate_script(block).statements
            continue
        for statement in split(block):
            parse(statement)


def test_the_settings_of_a_statement_are_those_of_tables() -> None:
    """A Kafka table's settings on the pages are its own, and those of tables theirs."""
    group: SettingGroup
    for page in PAGES:
        for _, block in BLOCK.findall(page.read_text()):
            for name in re.findall(r"\bkafka_\w+(?= =)", block):
                group = KAFKA_TABLE_SETTINGS
                assert group.has(name), f"{page.name}: {name}"
            for name in re.findall(r"\btablet_\w+(?= =)", block):
                group = TABLE_SETTINGS
                assert group.has(name), f"{page.name}: {name}"


def test_the_report_on_the_page_is_the_one_that_is_printed(tmp_path: Path) -> None:
    text = (FOLDER / "README.md").read_text()
    theirs = next(block for mark, block in BLOCK.findall(text) if mark)
    file = tmp_path / "schema.sql"
    file.write_text(theirs)
    result = CliRunner().invoke(app, ["import-ddl", str(file)])
    shown = re.search(r"^```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    assert shown is not None
    assert [line.rstrip() for line in result.stdout.splitlines()] == [line.rstrip() for line in shown[1].splitlines()]
    assert result.exit_code == 3
