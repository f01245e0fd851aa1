"""Each error code has a page with a cause and a cure of its own, and each page is that of a code."""

from __future__ import annotations

import re
from functools import cache

from tests.docs.pages import fault_of_link
from tests.tidy.sources import ROOT
from tilth.base.errors import ERROR_PAGES, page_of
from tilth.introspection.registry import SYSTEM_TABLES
from tools import make_docs, make_errors

pages = cache(make_errors.pages)
CODES = sorted({one.code for one in make_docs.errors()})
#: Characters that a cause needs to name a situation, and a cure to name a step.
CAUSE_MIN, CURE_MIN = 80, 60
CODES_MIN = 200
#: A setting of a node, or a system table.
NAME = re.compile(r"`([a-z]+\.[a-z0-9._-]+)`")
#: Names of Python, and the form of a name.
NO_SETTINGS = ("tilth.", "database.table")
NAMES_MIN = 80
SECTIONS = ["Cause", "Cure", "As printed", "Raised by", "See also"]


def test_the_pages_are_current_and_each_is_of_a_code() -> None:
    assert len(CODES) > CODES_MIN
    there = {path.name: path.read_text() for path in make_errors.FOLDER.iterdir()}
    assert there.keys() == pages().keys() == {make_errors.INDEX, *(f"{code}.md" for code in CODES)}
    assert [name for name, text in there.items() if text != pages()[name]] == [], "run `make docs`"


def test_each_code_has_a_text() -> None:
    assert sorted(CODES) == sorted(make_errors.texts())


def test_no_cause_and_no_cure_is_filler() -> None:
    texts = make_errors.texts()
    sentences = [text for one in texts.values() for text in (one.cause, one.cure)]
    assert len(set(sentences)) == len(sentences)
    assert [code for code, one in texts.items() if len(one.cause) < CAUSE_MIN or len(one.cure) < CURE_MIN] == []
    assert [text for text in sentences if not text.endswith(".") or text != " ".join(text.split())] == []


def test_settings_and_system_tables_that_a_text_names_are_there() -> None:
    settings = {name for each in make_docs.settings() for name in (each.name, *each.aliases)}
    tables = {f"system.{name.removeprefix('system.')}" for name in SYSTEM_TABLES}
    named = [
        (code, name)
        for code, one in make_errors.texts().items()
        for name in NAME.findall(f"{one.cause} {one.cure}")
        if not name.startswith(NO_SETTINGS)
    ]
    assert len(named) > NAMES_MIN
    assert [each for each in named if each[1] not in settings | tables] == []


def test_each_page_has_all_sections_its_code_and_links_that_lead_somewhere() -> None:
    for code in CODES:
        name = f"{code}.md"
        text = pages()[name]
        assert re.findall(r"^## (.+)$", text, re.MULTILINE) == SECTIONS, name
        assert f"# {code}\n" in text
        assert page_of(code) in text
        assert (ROOT / page_of(code)).is_file()
        for page in make_errors.texts()[code].see:
            assert fault_of_link(ROOT / "docs" / "README.md", page) == "", name


def test_the_sentences_of_a_page_are_those_of_the_code() -> None:
    assert "\nTABLE_NOT_FOUND no such table: table=..\n  see: docs/errors/" in pages()["TABLE_NOT_FOUND.md"]
    assert "there is no dropped table of that name: table=..\n" in pages()["TABLE_NOT_FOUND.md"]
    assert "`catalog/tables/names.py`" in pages()["TABLE_NOT_FOUND.md"]
    assert "STORAGE_NOT_FOUND no such storage: storage=.. known=..\n" in pages()["STORAGE_NOT_FOUND.md"]
    # Passed on as a class, and raised by a class method.
    assert "`storage/store/backends/secrets.py`" in pages()["STORE_SECRET.md"]
    assert "`ingest/rounds/failing_view.py`" in pages()["BAD_VIEW.md"]


def test_the_index_leads_to_each_page() -> None:
    index = pages()[make_errors.INDEX]
    assert [code for code in CODES if f"[`{code}`]({code}.md)" not in index] == []


def test_a_text_that_is_no_code_has_no_page() -> None:
    assert page_of("TABLE_NOT_FOUND") == f"{ERROR_PAGES}/TABLE_NOT_FOUND.md"
    for text in ("", "lower", "../../etc/passwd", "A\nB", "A/B", "\x1b[31mRED", "A" * 101, "É"):
        assert page_of(text) == ""
