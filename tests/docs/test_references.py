"""Every link, every citation and every file that a page names leads somewhere; no text cites what is not here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import (
    LINK,
    anchors_of,
    fault_of_link,
    find_file,
    markdown_files,
    missing_folders,
    named_files,
    names_in,
    prose_of,
)
from tests.tidy.sources import PACKAGE, ROOT, place, text_files

#: A page in the code or in a page's text, perhaps with a heading.
CITATION = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.md)(?:#([\w-]+))?")
#: Documents of other places, which code once cited by section. In two halves, so that this file does not say them.
ELSEWHERE = re.compile(
    r'(?<!")\b(?:POLI' r"CIES|DES" r"IGN|REDES" r'IGN)\b(?!")|\b(?:SCA' r"LE|MEAS" r"URED)(?:\.md| \d)"
)
#: Pages whose names in backticks are files of the project. Others name files of users.
PAGES = [
    ROOT / "ARCHITECTURE.md",
    ROOT / "docs" / "journey.md",
    ROOT / "docs" / "extend.md",
    ROOT / "tests" / "README.md",
    *sorted((ROOT / "docs" / "design").glob("*.md")),
]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", markdown_files(), ids=relative)
def test_every_link_leads_somewhere(page: Path) -> None:
    faults = [fault_of_link(page, target) for target in LINK.findall(prose_of(page))]
    assert [fault for fault in faults if fault] == []


def test_every_citation_leads_to_a_page_and_a_heading() -> None:
    faults = []
    for path in [*text_files(), *PACKAGE.rglob("*.java")]:
        if path.suffix not in {".py", ".java", ".toml", ".sh", ".md"} or path.name == "CHANGELOG.md":
            continue
        text = prose_of(path) if path.suffix == ".md" else path.read_text()
        links = set(LINK.findall(text)) if path.suffix == ".md" else set()
        for name, anchor in CITATION.findall(text):
            # A link is checked from its own page.
            if any(target.partition("#")[0] == name for target in links):
                continue
            found = find_file(name)
            if found is None:
                faults.append(f"{place(path)}: no page {name}")
            elif anchor and anchor not in anchors_of(found):
                faults.append(f"{place(path)}: {name} has no heading {anchor}")
    assert faults == []


def test_no_text_cites_a_document_that_is_not_here() -> None:
    faults = [
        f"{place(path)}:{number} {line.strip()[:80]}"
        for path in text_files()
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1)
        if ELSEWHERE.search(line)
    ]
    assert faults == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    faults = missing_folders(page)
    for name, inner in named_files(page):
        found = find_file(name)
        if found is None:
            faults.append(name)
        elif inner and inner not in names_in(found):
            faults.append(f"{name}::{inner}")
    assert faults == []
