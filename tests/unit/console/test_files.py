"""The console's files: who gets the page, the headers that protect it, and that everything is here and in its layer."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.unit.app_transport import client_of
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.console.files import FOLDER
from tilth.server import build_app

OWN = sorted(path for path in FOLDER.rglob("*") if path.is_file() and "vendor" not in path.parts)
#: Modules that a script loads, also those that are loaded later.
IMPORT = re.compile(r"""(?:from\s+|import\(\s*|import\s+)["'](\.[^"']+)["']""")
#: Names that a module takes from another one, and those that one offers.
NAMES = re.compile(r"""^import \{([^}]*)\} from ["'](\.[^"']+)["']""", re.MULTILINE)
EXPORT = re.compile(r"^export (?:async )?(?:function\*? ?|const |class )(\w+)", re.MULTILINE)
EXPORT_LIST = re.compile(r"\bexport ?\{([^}]*)\}")
SCRIPTS = [path for path in OWN if path.suffix == ".js"]
LINES_MAX = 400
#: Files that a page loads.
LINK = re.compile(r"""(?:href|src)="(/console/[^"]+)\"""")
#: An address of another host, also without a scheme; namespaces of SVG are names.
FOREIGN = re.compile(r"""(?:https?:)?//(?!www\.w3\.org/)[a-z0-9.-]+\.[a-z]{2,}""", re.IGNORECASE)


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with client_of(build_app(context_of(FakeRooms()))) as client:
        yield client


def test_browsers_get_the_page_and_programs_the_routes(client: httpx.Client) -> None:
    page = client.get("/", headers={"Accept": "text/html,application/xhtml+xml"})
    assert (page.status_code, page.headers["vary"]) == (200, "Accept")
    assert '<div id="app">' in page.text
    assert client.get("/").text.startswith("Tilth ")


def test_no_script_of_others_runs_and_nothing_is_sent_elsewhere(client: httpx.Client) -> None:
    for path in ("/", "/console/app.js"):
        policy = client.get(path, headers={"Accept": "text/html"}).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "connect-src 'self'" in policy
        assert "unsafe" not in policy


def test_a_file_that_has_not_changed_is_not_sent_again(client: httpx.Client) -> None:
    first = client.get("/console/app.js")
    assert first.headers["content-type"].startswith("text/javascript")
    again = client.get("/console/app.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/console/none.js", "/console/../console.py", "/console/%2e%2e/__init__.py", "/console/"]
)
def test_nothing_else_is_served(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


@pytest.mark.parametrize("path", OWN, ids=lambda path: str(path.relative_to(FOLDER)))
def test_each_file_finds_what_it_loads_and_names_no_other_host(path: Path) -> None:
    if path.suffix not in (".js", ".html", ".css", ".svg"):
        return
    text = path.read_text()
    for name in IMPORT.findall(text):
        assert (path.parent / name).resolve().is_file(), name
    for name in LINK.findall(text):
        assert (FOLDER / name.removeprefix("/console/")).is_file(), name
    assert not FOREIGN.findall(text)


def _exported(path: Path) -> set[str]:
    text = path.read_text()
    listed = ",".join(EXPORT_LIST.findall(text)).split(",")
    return {*EXPORT.findall(text), *(name.split(" as ")[-1].strip() for name in listed)}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_each_script_imports_what_there_is_from_its_layer(path: Path) -> None:
    """`core` is what pages share; a page takes nothing from another page, whose folder is its own."""
    text = path.read_text()
    for names, source in NAMES.findall(text):
        target = (path.parent / source).resolve()
        wanted = {name.split(" as ")[0].strip() for name in names.split(",") if name.strip()}
        assert wanted <= _exported(target), source
        layer, *rest = target.relative_to(FOLDER).parts
        if path.is_relative_to(FOLDER / "core"):
            assert layer in ("core", "vendor"), source
        elif path.is_relative_to(FOLDER / "pages") and layer == "pages":
            assert rest[0] == path.relative_to(FOLDER / "pages").parts[0].removesuffix(".js"), source
    assert len(text.splitlines()) <= LINES_MAX
    # One file reaches the server.
    assert ("fetch(" in text) == (path == FOLDER / "core" / "api.js")
