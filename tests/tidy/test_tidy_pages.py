"""Pages are easy to read: short lines, a short ARCHITECTURE.md, a glossary in which a word is found."""

from __future__ import annotations

import re

import pytest

from tests.tidy.sources import ROOT, place
from tools.prose import long_lines, pages, wrapped

GLOSSARY = ROOT / "docs" / "glossary.md"
WORDS_MIN = 100
PAGES_MIN = 40
#: A newcomer reads it in ten minutes.
ARCHITECTURE_WORDS_MAX = 2_500
#: Pages that no reader looks for in the index.
UNLISTED = ("README", "0000-template")


def test_no_line_of_prose_is_longer_than_an_editor_shows() -> None:
    assert len(pages()) > PAGES_MIN
    faults = [f"{place(page)}:{line}" for page in pages() for line in long_lines(page.read_text())]
    assert faults == [], "run `python -m tools.prose`"


def test_the_architecture_is_read_in_ten_minutes() -> None:
    """Decisions go to the pages of docs/design."""
    assert len((ROOT / "ARCHITECTURE.md").read_text().split()) <= ARCHITECTURE_WORDS_MAX


def test_every_page_is_listed_for_its_reader() -> None:
    """Policies have an index of their own."""
    index = (ROOT / "docs" / "README.md").read_text()
    folders = [ROOT / "docs" / name for name in ("", "operate", "reference", "design")]
    listed = [page for folder in folders for page in folder.glob("*.md") if page.stem not in UNLISTED]
    linked = {(ROOT / "docs" / target).resolve() for target in re.findall(r"\]\(([^)#]+\.md)\)", index)}
    assert [place(page) for page in listed if page not in linked] == []


def test_the_glossary_is_sorted_and_has_no_word_twice() -> None:
    words = [word.lower() for word in re.findall(r"^\| ([^|]+?) \|", GLOSSARY.read_text(), re.MULTILINE)[1:]]
    assert len(words) > WORDS_MIN
    assert words == sorted(set(words))
    assert [word for word in words if "," in word] == [], "one word a line"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f"{'word ' * 30}`a code` end", f"{'word ' * 23}word\n{'word ' * 6}`a code` end"),
        (f"- {'word ' * 23}`some code` end", f"- {'word ' * 22}word\n  `some code` end"),
        (f"1. {'word ' * 25}\n   more words", f"1. {'word ' * 22}word\n   word word more words"),
        (f"{'word ' * 23}[a link](#words) end", f"{'word ' * 22}word\n[a link](#words) end"),
        # A dash at the begin of a line would make a list of it.
        (f"{'word ' * 24}- end", f"{'word ' * 22}word\nword - end"),
    ],
)
def test_long_lines_are_wrapped(before: str, after: str) -> None:
    assert long_lines(before)
    assert wrapped(before) == after
    assert long_lines(after) == []


@pytest.mark.parametrize(
    "text",
    [
        f"| {'cell ' * 40}|",
        f"```\n{'code ' * 40}\n```",
        f"text:\n\n    {'code ' * 40}",
        f"# {'title ' * 40}",
        f"- `{'code ' * 40}`",
    ],
)
def test_tables_code_and_headings_stay_as_they_are(text: str) -> None:
    assert long_lines(text) == []
    assert wrapped(text) == text
