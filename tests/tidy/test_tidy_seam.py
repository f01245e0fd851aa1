"""Bytes of tables go through the seam of storage/store: nobody else opens, removes or lists files of theirs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.tidy.sources import PACKAGE, place, python_files, tree_of

#: Modules that have files in hand; `os` is one for all but these of its names.
FILE_MODULES = {"shutil", "pathlib", "tempfile", "glob", "mmap"}
HARMLESS_OF_OS = {"cpu_count", "getpid", "environ"}
#: Functions and classes of Arrow that open a path.
OPENERS = {"memory_map", "OSFile", "create_memory_map", "input_stream", "output_stream", "read_metadata", "read_table"}
#: Modules that can run code from bytes.
CODE_MODULES = {"pickle", "cloudpickle", "dill", "marshal", "shelve", "runpy"}
#: No files of tables: what the machine says about memory.
OTHERS = {PACKAGE / "maintenance" / "memory" / "meter.py"}


def test_nobody_but_the_seam_has_files_of_tables_in_hand() -> None:
    files = [path for room in ("storage", "maintenance", "verify") for path in python_files(PACKAGE / room)]
    checked = [path for path in files if PACKAGE / "storage" / "store" not in path.parents and path not in OTHERS]
    assert len(checked) > 100
    assert [f"{place(path)}:{line} {what}" for path in checked for line, what in _openings(tree_of(path))] == []


@pytest.mark.parametrize(
    "text",
    [
        "import shutil",
        "from pathlib import Path",
        "os.unlink(path)",
        "os.path.join(folder, name)",
        "open(path)",
        "pa.memory_map(path)",
        "pa.OSFile(path, 'wb')",
        "pq.read_metadata(path)",
        "pq.ParquetFile(f'{folder}/{name}')",
        "pq.ParquetFile(path)",
    ],
)
def test_each_way_around_the_seam_is_seen(text: str) -> None:
    assert list(_openings(ast.parse(text)))


def _openings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, each.name) for each in names if each.name in FILE_MODULES)
            case ast.ImportFrom(module=module) if module in FILE_MODULES:
                yield node.lineno, str(module)
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name not in HARMLESS_OF_OS:
                yield node.lineno, f"os.{name}"
            case ast.Call(func=ast.Name(id="open")):
                yield node.lineno, "open"
            case ast.Call(func=ast.Attribute(attr="ParquetFile"), args=[ast.Call(), *_]):
                # The argument is the result of a function that opened it.
                pass
            case ast.Call(func=ast.Attribute(attr=name)) if name in OPENERS or name == "ParquetFile":
                yield node.lineno, name


def test_paths_stay_paths_where_they_are_local() -> None:
    """Folders of tables are values of a type of their own, so that no text is joined to one by mistake."""
    faults = [
        f"{place(path)}:{argument.lineno} {argument.arg}"
        for room in ("storage", "maintenance", "verify")
        for path in python_files(PACKAGE / room)
        if PACKAGE / "storage" / "store" not in path.parents
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef)
        for argument in (*node.args.args, *node.args.kwonlyargs)
        if argument.arg in ("root", "folder") and ast.unparse(argument.annotation or ast.Name("Any")) == "str"
    ]
    assert faults == []


def test_no_module_makes_code_of_bytes() -> None:
    """Content of files and messages of other processes is data; only Spark itself sends functions to its tasks."""
    faults = [f"{place(path)}:{line} {what}" for path in python_files(PACKAGE) for line, what in _runs(tree_of(path))]
    assert faults == []


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "from pyspark import cloudpickle",
        "import pyspark.cloudpickle",
        "import marshal as m",
        "eval(text)",
        "exec(text)",
        "__import__(name)",
    ],
)
def test_each_way_to_make_code_is_seen(text: str) -> None:
    assert list(_runs(ast.parse(text)))


def _runs(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                parts = {part for each in names for part in each.name.split(".")}
            case ast.ImportFrom(module=module, names=names):
                parts = {*str(module).split("."), *(each.name for each in names)}
            case ast.Call(func=ast.Name(id="eval" | "exec" | "compile" | "__import__" as name)):
                yield node.lineno, name
                continue
            case _:
                continue
        yield from ((node.lineno, name) for name in parts & CODE_MODULES)
