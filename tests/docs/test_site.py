"""The site of the documentation: built from all pages, no link leads nowhere, nothing is loaded from other hosts.

The strict build takes some six seconds; nothing else here starts a process.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import LINK, prose_of
from tests.tidy.sources import ROOT
from tools import make_site

INDEX = (ROOT / make_site.INDEX).read_text()
PAGE = "docs/operate/new"


def test_the_site_is_built_without_a_broken_link(tmp_path: Path) -> None:
    assert make_site.build(tmp_path) == []
    html = tmp_path / "html"
    for name in make_site.pages_of_site():
        path = html / name
        built = path.with_name("index.html") if path.name == "README.md" else path.with_suffix(".html")
        assert built.is_file(), name
    sql = (html / "docs" / "reference" / "sql.html").read_text()
    # Behind blocks of code whose fence has a second word for the tests.
    assert '<h2 id="backup">' in sql
    assert 'href="TABLE_NOT_FOUND.html"' in (html / "docs" / "errors" / "index.html").read_text()


def test_every_page_is_in_the_menu_once_but_those_of_errors() -> None:
    names = make_site.pages_of_site()
    listed = [name for _, members in make_site.menu(names, INDEX) for name in members]
    assert len(set(listed)) == len(listed)
    missing = set(names) - set(listed) - {"README.md"}
    assert all(name.startswith(make_site.UNLISTED) for name in missing)
    list_of_them = ROOT / "docs" / "errors" / "README.md"
    linked = {list_of_them.parent / target for target in LINK.findall(prose_of(list_of_them))}
    assert [name for name in missing if ROOT / name not in linked] == []


def test_a_new_page_of_a_folder_needs_no_line_and_any_other_page_is_refused() -> None:
    sections = dict(make_site.menu([PAGE, "docs/operate/servers.md", "docs/migrate/delta"], INDEX))
    # Pages of the index come first.
    assert sections == {"Migrate": ["docs/migrate/delta"], "Operate": ["docs/operate/servers.md", PAGE]}
    with pytest.raises(ValueError, match=r"docs/lost/page is in no section"):
        make_site.menu(["docs/lost/page"], INDEX)


@pytest.mark.parametrize(
    ("html", "count"),
    [
        ('<script src="https://unpkg.com/mermaid"></script>', 1),
        ("<link href=//fonts.gstatic.com rel=preconnect>", 1),
        ('<img alt="x" src="http://example.com/a.png">', 1),
        ('<a href="https://example.com">a link</a>', 0),
        ('<script src="../assets/a.js"></script><link rel="canonical" href="https://docs.example.com/a">', 0),
        ('<pre class="mermaid">graph</pre>', 1),
    ],
)
def test_what_a_page_would_load_from_another_host_is_found(html: str, count: int) -> None:
    assert len(make_site.loaded_from_elsewhere(html)) == count


def test_pages_are_read_as_github_reads_them() -> None:
    page = "Words:\n- one\n  goes on\n- two\n\n```sql broker\n- no item\n```\n1. one\n"
    expected = "Words:\n\n- one\n  goes on\n- two\n\n```sql\n- no item\n```\n\n1. one\n"
    assert make_site.for_site(page) == expected
