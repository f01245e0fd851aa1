"""Pages of the documentation, as the tests of them read them: headings, links, names of files and tests."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from io import StringIO
from pathlib import Path

from tests.tidy.sources import PACKAGE, PROGRAMS, ROOT, python_files, text_files, tree_of

#: In backticks or a link: a file of the project, perhaps with a test or a name behind it.
NAMED_FILE = re.compile(r"`((?:[\w.-]+/)*[\w-]+\.(?:py|md|toml|sql|java|sh))(?:::(\w+))?`")
#: In backticks: a folder of the project.
NAMED_FOLDER = re.compile(r"`((?:[\w-]+/){2,})`")
#: In backticks: perhaps names of the code.
CODE = re.compile(r"`([^`\n]+)`")
#: In backticks: a name with an underscore or of several words, which no sentence has. A name that ends with an
#: underscore is the beginning of many.
_CODE_NAME = re.compile(r"(?<![\w'-])(?=\w*(?:[^\W_]_|[a-z][A-Z]))[^\W\d]\w*(?<!_)\b")
#: A module in a docstring or a comment, perhaps with folders.
NAMED_MODULE = re.compile(r"(?<![\w/.*{}-])((?:[\w-]+/)*\w+\.py)\b")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_WORD = re.compile(r"\w+")
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
#: Attributes of syntax trees that hold names: of definitions, variables, attributes, arguments.
_NAMES = ("name", "id", "attr", "arg")
_CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_IN_TREE = re.compile(r"\w+/|\w+\.py\b")
_HEADING = re.compile(r"^#{1,6} (.+?)\s*$", re.MULTILINE)


def markdown_files() -> list[Path]:
    return [path for path in text_files() if path.suffix == ".md"]


@cache
def prose_of(path: Path) -> str:
    """Return the page without its blocks of code."""
    return _CODE_BLOCK.sub("", path.read_text())


def named_in_code_blocks(path: Path) -> set[str]:
    """Return the folders, with a slash behind each, and the Python modules in the page's blocks of code."""
    return {name for block in _CODE_BLOCK.findall(path.read_text()) for name in _IN_TREE.findall(block)}


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
def notes_in(path: Path) -> tuple[str, ...]:
    """Return the docstrings and comments of a Python file."""
    documented = (node for node in ast.walk(tree_of(path)) if isinstance(node, _DOCUMENTED))
    docstrings = (text for node in documented if (text := ast.get_docstring(node)))
    tokens = tokenize.generate_tokens(StringIO(path.read_text()).readline)
    return (*docstrings, *(token.string for token in tokens if token.type == tokenize.COMMENT))


def missing_modules(path: Path) -> list[str]:
    """Return the modules that a Python file names in docstrings and comments and that are not there: neither below a
    folder above it, nor below the package.
    """
    folders = [PACKAGE, *(folder for folder in path.parents if folder.is_relative_to(ROOT))]
    named = {name for text in notes_in(path) for name in NAMED_MODULE.findall(text)}
    return sorted(name for name in named if not any((folder / name).is_file() for folder in folders))


def code_names(texts: Iterable[str]) -> set[str]:
    """Return the names in backticks that only code has."""
    return {name for text in texts for code in CODE.findall(text) for name in _CODE_NAME.findall(code)}


@cache
def names_of_the_code() -> frozenset[str]:
    """Return all names and words of the project's programs and tests, without those of docstrings and comments."""
    found: set[str] = set()
    for path in python_files(*PROGRAMS, ROOT / "tests"):
        found.update((path.stem, path.parent.name))
        documents: set[ast.expr] = set()
        # `ast.walk` yields a node before its children.
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Constant):
                is_text = isinstance(node.value, str) and node not in documents
                found.update(_WORD.findall(str(node.value)) if is_text else ())
                continue
            found.update(word for each in _NAMES if isinstance(word := getattr(node, each, None), str))
            if isinstance(node, _DOCUMENTED) and node.body and isinstance(node.body[0], ast.Expr):
                documents.add(node.body[0].value)
    for path in (ROOT / "pyproject.toml", *PACKAGE.rglob("*.java")):
        found.update(_WORD.findall(path.read_text()))
    return frozenset(found)


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
