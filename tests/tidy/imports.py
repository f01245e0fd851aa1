"""The files of the project that a test runs: those that it imports, those that these import, and so on.

Covers: imports at any depth of a file, names of front doors, folders that a registry loads, modules that are named in
texts, as those of programs that are started. Does not cover: which of the functions run.
Always holds: a front door leads to the modules of the names that are imported from it, and to no others.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.tidy.sources import PACKAGE, ROOT, tree_of

_FOLDERS = {"tilth": ROOT / "src", "tests": ROOT, "tools": ROOT, "bench": ROOT}
_MODULE = re.compile(r"(?:tilth|tests|tools|bench)(?:\.\w+)+")
#: Module of front doors that import a name when it is first used.
_DOORS = PACKAGE / "base" / "doors.py"
#: Function with which a registry finds the modules of a folder.
_LISTING = "iter_modules"


@cache
def files_run_by(path: Path) -> frozenset[Path]:
    """Return the Python files that are run where this one is."""
    found, pending = {path}, [path]
    while pending:
        for file in _imported(pending.pop()):
            if file not in found:
                found.add(file)
                pending.append(file)
    return frozenset(found)


@cache
def _imported(path: Path) -> frozenset[Path]:
    nodes = list(_running(tree_of(path)))
    found = {file for node in nodes for name in _named(node) for file in [_file_of(name)] if file is not None}
    if path.name == "__init__.py":
        # The files that import names from here lead to the modules of these names themselves.
        return frozenset(found & {_DOORS})
    if any(isinstance(node, ast.Name) and node.id == _LISTING for node in nodes):
        found |= {each for file in found if file.name == "__init__.py" for each in file.parent.glob("*.py")}
        # A registry lists folders of its own room.
        found |= {each for each in path.parent.glob("*/*.py") if path.is_relative_to(PACKAGE)}
    return frozenset(found)


def _running(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a file, without imports for type checkers alone."""
    pending = [tree]
    while pending:
        node = pending.pop()
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            yield node
            pending.extend(ast.iter_child_nodes(node))


def _named(node: ast.AST) -> Iterator[str]:
    """Yield the modules that the node names."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        yield node.module
        yield from (_home(node.module, alias.name) for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _MODULE.fullmatch(node.value):
        yield node.value
        yield f"{node.value}.__main__"


@cache
def _home(module: str, name: str) -> str:
    """Return the module that a name comes from, through front doors."""
    if _file_of(f"{module}.{name}") is not None:
        return f"{module}.{name}"
    door = _file_of(module)
    if door is not None and door.name == "__init__.py":
        for node in ast.walk(tree_of(door)):
            if isinstance(node, ast.ImportFrom) and any((each.asname or each.name) == name for each in node.names):
                return _home(node.module or "", name)
    return module


@cache
def _file_of(module: str) -> Path | None:
    """Return the file of a module or of a package; None if it is not of this project."""
    first, *_ = names = module.split(".")
    if first not in _FOLDERS:
        return None
    base = _FOLDERS[first].joinpath(*names)
    return next((each for each in (base.with_suffix(".py"), base / "__init__.py") if each.is_file()), None)
