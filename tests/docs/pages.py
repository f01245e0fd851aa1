"""Pages of the documentation, as the tests of them read them: headings, links, names of files and tests."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.tidy.sources import PACKAGE, ROOT, python_files, text_files, tree_of

#: In backticks or a link: a file of the project, perhaps with a test or a name behind it.
NAMED_FILE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|md|toml|sql|java|sh))(?:::(\w+))?`")
#: In backticks: a folder of the project.
NAMED_FOLDER = re.compile(r"`((?:[\w-]+/){2,})`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)


def markdown_files() -> list[Path]:
    return [path for path in text_files() if path.suffix == ".md"]


@cache
def prose_of(path: Path) -> str:
    """Return the page without its blocks of code."""
    return _CODE_BLOCK.sub("", path.read_text())


@cache
def anchors_of(path: Path) -> frozenset[str]:
    """Return what can stand behind `#` in a link to the page: its headings, spelled as GitHub spells them."""
    return frozenset(_anchor(heading) for heading in _HEADING.findall(prose_of(path)))


def fault_of_link(page: Path, target: str) -> str:
    """Return why a link of a page leads nowhere; empty if it does not."""
    if re.match(r"[a-z]+:", target):
        return ""
    name, _, anchor = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    if not path.exists():
        return f"no such file: {target}"
    if anchor and path.suffix == ".md" and anchor not in anchors_of(path):
        return f"no such heading: {target}"
    return ""


def named_files(path: Path) -> Iterator[tuple[str, str]]:
    """Yield files that the page names in backticks, each with the test or name behind `::`, or nothing."""
    yield from NAMED_FILE.findall(prose_of(path))


def missing_folders(path: Path) -> list[str]:
    """Return the folders that the page names in backticks and that are neither below the project nor the package."""
    named = NAMED_FOLDER.findall(prose_of(path))
    return [name for name in named if not any((folder / name).is_dir() for folder in (ROOT, PACKAGE, ROOT / "docs"))]


@cache
def project_files() -> dict[str, list[Path]]:
    """Return all files of the project by their names."""
    found: dict[str, list[Path]] = {}
    for path in text_files():
        found.setdefault(path.name, []).append(path)
    for path in PACKAGE.rglob("*.java"):
        found.setdefault(path.name, []).append(path)
    return found


def find_file(name: str) -> Path | None:
    """Return the file: a path below the project, the package or the documents, or a name alone.

    A name alone must be of one page; several rooms have modules of one name.
    """
    for folder in (ROOT, PACKAGE, ROOT / "docs"):
        if (folder / name).is_file():
            return folder / name
    known = project_files().get(name, []) if "/" not in name else []
    return known[0] if len(known) == 1 or (known and name.endswith(".py")) else None


@cache
def names_in(path: Path) -> frozenset[str]:
    """Return the functions and classes that a Python file defines."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in ast.walk(tree_of(path)) if isinstance(node, kinds))


@cache
def texts_of_the_code() -> str:
    """Return all texts of the package, one a line; `{}` stands for what an f-string fills in."""
    texts: list[str] = []
    for path in python_files(PACKAGE):
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(_piece(value) for value in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return "\n".join(texts)


def _piece(value: ast.expr) -> str:
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else "{}"


def _anchor(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
