"""Every link, every citation and every file that a page names leads somewhere; no text cites what is not here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.pages import (
    LINK,
    anchors_of,
    code_names,
    fault_of_link,
    find_file,
    markdown_files,
    missing_folders,
    missing_modules,
    named_files,
    named_in_code_blocks,
    names_in,
    names_of_the_code,
    notes_in,
    prose_of,
)
from tests.tidy.sources import PACKAGE, ROOT, place, python_files, text_files

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
#: Rooms whose folders ARCHITECTURE.md lists.
LAYERED = (
    "catalog",
    "storage",
    "warehouse",
    "ingest",
    "maintenance",
    "query",
    "statements",
    "introspection",
    "control",
)
#: Names in backticks that are not of this project: of Spark, ByConity and ClickHouse, and of examples.
NAMES_OF_OTHERS = {
    *("addPyFile", "toJSON", "toLocalIterator"),
    *("ErrorCodes", "leader_memory_pressure_rejections", "max_delay"),
    *("ITS_CODE", "NAME_ms", "partition_min_max_level_mutation", "xHH"),
}


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


@pytest.mark.parametrize("page", [*PAGES, ROOT / "STYLE.md", ROOT / "docs" / "glossary.md"], ids=relative)
def test_every_name_of_code_on_a_page_is_in_the_code(page: Path) -> None:
    assert code_names([prose_of(page)]) - names_of_the_code() - NAMES_OF_OTHERS == set()


def test_every_name_and_module_in_docstrings_and_comments_is_in_the_code() -> None:
    known = names_of_the_code() | NAMES_OF_OTHERS
    faults = {place(path): sorted(code_names(notes_in(path)) - known) for path in python_files(PACKAGE)}
    for path in python_files(PACKAGE, ROOT / "tests"):
        faults.setdefault(place(path), []).extend(missing_modules(path))
    assert {where: names for where, names in faults.items() if names} == {}


def test_the_lists_of_folders_and_modules_are_whole() -> None:
    at_the_top = {path.name for path in PACKAGE.glob("*.py")} - {"__init__.py", "front.py"}
    folders = {path.parent.name for path in PACKAGE.rglob("__init__.py")} - {PACKAGE.name}
    tree = named_in_code_blocks(ROOT / "STYLE.md")
    assert at_the_top | {f"{name}/" for name in folders} <= tree
    assert {name for name in tree if name.endswith(".py") and find_file(name) is None} == set()
    page = ROOT / "ARCHITECTURE.md"
    assert at_the_top <= {name for name, _ in named_files(page)}
    layered = {folder.parent.name for room in LAYERED for folder in (PACKAGE / room).glob("*/__init__.py")}
    assert {f"`{name}/`" for name in layered if f"{name}/`" not in page.read_text()} == set()
