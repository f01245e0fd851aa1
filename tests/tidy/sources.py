"""The files of the project, as the tidy tests read them."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "tilth"
PROGRAMS = (PACKAGE, ROOT / "tools", ROOT / "bench", ROOT / "examples")

#: Made by tools and runs, never written by hand.
GENERATED = {".git", ".venv", ".cache", "__pycache__", "build", "dist", "demo-data", "spark-warehouse", "metastore_db"}
TEXT_SUFFIXES = {".py", ".pyi", ".md", ".toml", ".sh", ".xml", ".in", ".lock", ".txt", ".sql", ".json"}
TEXT_NAMES = {"Makefile", "run", ".gitignore"}


def python_files(*folders: Path) -> list[Path]:
    """Every Python file of the folders, in order."""
    return sorted(path for folder in folders for path in folder.rglob("*.py") if not _is_generated(path))


def text_files() -> Iterator[Path]:
    """Every file of the project that people write or read."""
    for path in sorted(ROOT.rglob("*")):
        is_text = path.suffix in TEXT_SUFFIXES or path.name in TEXT_NAMES
        if is_text and path.is_file() and not _is_generated(path):
            yield path


@cache
def tree_of(path: Path) -> ast.Module:
    """The file's syntax tree."""
    tree = ast.parse(path.read_text(), filename=str(path))
    # It is kept: collections of garbage would go through the millions of nodes of all files again and again.
    gc.freeze()
    return tree


def place(path: Path, node: ast.stmt | None = None) -> str:
    """Where a fault is, as an editor understands it."""
    relative = path.relative_to(ROOT)
    return f"{relative}:{node.lineno}" if node is not None else str(relative)


def is_long(test: ast.FunctionDef) -> bool:
    """Whether only `make test-long` runs the test, in none of its cases another run."""
    return any("mark.long" in ast.unparse(each) and "param" not in ast.unparse(each) for each in test.decorator_list)


def _is_generated(path: Path) -> bool:
    parts = path.relative_to(ROOT).parts
    return any(part in GENERATED or part.endswith(("_cache", ".egg-info")) for part in parts)
