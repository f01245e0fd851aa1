"""The pages of docs/policies say what the code says: settings, reasons, and who checks each row of an oracle."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from types import ModuleType

import pytest

from tests.docs.pages import find_file, named_files, names_in, prose_of, texts_of_the_code
from tests.oracle import PAGES, oracle_tables
from tests.tidy.sources import ROOT, python_files

NAMES = sorted(path.stem for path in PAGES.glob("*.md") if path.stem != "README")
SECTIONS = ["What is decided", "Inputs", "Formula", "Reasons", "Settings", "Why so", "Oracle", "In the code"]
#: Row of a table of settings: name and default. The reference is made from the code, which another test checks.
SETTING_ROW = re.compile(r"^\| `([\w.-]+)` \| ([^|]*?) \|", re.MULTILINE)

#: Row of a table of constants: name, file, value.
CONSTANT_ROW = re.compile(r"^\| (\w+) of `([\w/]+\.py)` \| ([^|]+?) \|", re.MULTILINE)
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def page(name: str) -> Path:
    return PAGES / f"{name}.md"


def section(name: str, title: str) -> str:
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", page(name).read_text(), re.MULTILINE | re.DOTALL)
    assert found, f"docs/policies/{name}.md has no section {title!r}"
    return found[1]


def test_the_index_names_every_page() -> None:
    linked = set(re.findall(r"\]\(([\w-]+)\.md\)", (PAGES / "README.md").read_text()))
    assert linked == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_all_sections(name: str) -> None:
    assert re.findall(r"^## (.+)$", page(name).read_text(), re.MULTILINE) == SECTIONS


@pytest.mark.parametrize("name", NAMES)
def test_every_reason_stands_in_the_code(name: str) -> None:
    reasons = re.findall(r"^- `(.+)`$", section(name, "Reasons"), re.MULTILINE)
    assert reasons
    code = texts_of_the_code()
    missing = [reason for reason in reasons if reason.replace("{..}", "{}") not in code]
    assert missing == []


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_has_the_default_of_the_code(name: str) -> None:
    known: dict[str, set[str]] = {}
    for setting, default in SETTING_ROW.findall((ROOT / "docs" / "reference" / "settings.md").read_text()):
        known.setdefault(setting, set()).add(default)
    settings, _, constants = section(name, "Settings").partition("### Constants")
    rows = SETTING_ROW.findall(settings)
    assert len(rows) == _table_rows(settings)
    assert len(CONSTANT_ROW.findall(constants)) == _table_rows(constants)
    assert [setting for setting, _ in rows if setting not in known] == []
    wrong = [
        (setting, shown, known[setting])
        for setting, shown in rows
        if not any(_is_default(shown, default) for default in known[setting])
    ]
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_every_constant_has_the_value_of_the_code(name: str) -> None:
    wrong = [
        (constant, shown)
        for constant, file, shown in CONSTANT_ROW.findall(section(name, "Settings"))
        if getattr(_module(file), constant) != _value(shown)
    ]
    assert wrong == []


@pytest.mark.parametrize("name", NAMES)
def test_every_oracle_is_read_by_a_test_or_names_the_test_of_each_row(name: str) -> None:
    read = _oracles_read()
    for title, rows in oracle_tables(name).items():
        assert rows, f"{name}: {title} has no rows"
        if "checked by" in rows[0]:
            assert all("::" in row["checked by"] for row in rows), f"{name}: {title}"
        else:
            assert (name, title) in read, f"{name}: no test reads {title!r}"


@pytest.mark.parametrize("name", [*NAMES, "README"])
def test_every_file_and_test_is_there(name: str) -> None:
    faults = []
    for file, test in named_files(page(name)):
        found = find_file(file)
        if found is None or (test and test not in names_in(found)):
            faults.append(f"{file}::{test}" if test else file)
    assert faults == []


@pytest.mark.parametrize("name", NAMES)
def test_every_page_says_where_the_code_is_and_who_tests_it(name: str) -> None:
    files = {file for file, _ in re.findall(r"`([\w/-]+\.py)`()", section(name, "In the code"))}
    assert any(file.startswith("tests/") for file in files)
    assert any(not file.startswith("tests/") for file in files)


def test_prose_is_not_cut_by_its_code() -> None:
    """A block of code that is not closed would hide the rest of its page from these tests."""
    assert [name for name in NAMES if "## In the code" not in prose_of(page(name))] == []


def _table_rows(text: str) -> int:
    """Number of rows that a table has without its header and the line below it; 0 without a table."""
    return max(0, len(re.findall(r"^\|", text, re.MULTILINE)) - 2)


def _module(file: str) -> ModuleType:
    return importlib.import_module("tilth." + file.removesuffix(".py").replace("/", "."))


def _value(shown: str) -> float:
    number, _, unit = shown.partition(" ")
    return float(number) * (UNITS[unit] if unit else 1)


def _is_default(shown: str, default: str) -> bool:
    """True if a cell says the default, without its unit."""
    plain = default.strip("`")
    return shown == plain or plain.startswith(f"{shown} ")


def _oracles_read() -> set[tuple[str, str]]:
    found: set[tuple[str, str]] = set()
    for path in python_files(ROOT / "tests"):
        found.update(re.findall(r'\boracle\("([\w-]+)", "([^"]+)"\)', path.read_text()))
    return found
