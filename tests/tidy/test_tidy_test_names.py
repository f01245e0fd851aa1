"""The tests of a module are found by its name, and the modules of a test by the test's name; else a line says it.

The tests of `src/tilth/<room>/<folder>/<module>.py` are `tests/unit/<room>/<folder>/test_<module>.py`, and perhaps
`test_<module>_<subject>.py` beside it. A module whose tests are in other files names these in its docstring, several
with commas: `Tests: tests/property/test_sql_prune.py.` A file of tests/unit with a name of its own is named by a
module, or names the modules that it is about in its docstring: `Modules: ingest/rounds/round.py.`

Modules with fewer than STATEMENTS_MIN statements in their functions are declarations: the tests of those that use them
are theirs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from tests.tidy.imports import files_run_by
from tests.tidy.sources import PACKAGE, ROOT, place, python_files, tree_of

#: Nouns, errors, settings and protocols have fewer.
STATEMENTS_MIN = 5
UNIT = ROOT / "tests" / "unit"
#: Folders whose modules have tests in tests/unit, each with its folder there.
TESTED = ((PACKAGE, Path()), (ROOT / "tools", Path("tools")))
_LINE = {
    word: re.compile(rf"^{word}: ((?:[\w/]+\.py,\s+)*[\w/]+\.py)\.$", re.MULTILINE) for word in ("Tests", "Modules")
}
_PREFIX = "test_"
#: The beginning of such a line, also of a broken one.
_BEGINNING = re.compile(r"^(Tests|Modules):", re.MULTILINE)

MODULES = [path for path in python_files(PACKAGE) if path.name != "__init__.py"]
UNIT_TESTS = [path for path in python_files(UNIT) if path.name.startswith(_PREFIX)]


def test_each_module_has_tests() -> None:
    faults = [
        f"{place(module)}: write {place(_test_of(module))}, or name another file in the docstring: `Tests: ..`"
        for module in MODULES
        if _statements(module) >= STATEMENTS_MIN and not _tests_by_name(module) and not _named_in(module, "Tests")
    ]
    assert faults == []


def test_the_tests_that_a_module_names_run_it() -> None:
    faults = []
    for module in MODULES:
        for name in _named_in(module, "Tests"):
            test = ROOT / name
            if not test.is_file():
                faults.append(f"{place(module)}: there is no {name}")
            elif not _has_tests(test):
                faults.append(f"{place(module)}: {name} has no tests")
            elif module not in files_run_by(test):
                faults.append(f"{place(module)}: {name} does not import it; name a file that runs it")
            elif test in _tests_by_name(module):
                faults.append(f"{place(module)}: {name} is found by its name; remove it from the line")
    assert faults == []


def test_each_file_of_unit_tests_says_what_it_tests() -> None:
    named = {ROOT / name for module in MODULES for name in _named_in(module, "Tests")}
    of_modules = {test for module in _tested_modules() for test in _tests_by_name(module)}
    faults = [
        f"{place(test)}: name it after its module, or write its modules into its docstring: `Modules: ..`"
        for test in UNIT_TESTS
        if test not in named | of_modules and not _named_in(test, "Modules")
    ]
    assert faults == []


def test_a_test_runs_the_modules_that_its_name_or_its_docstring_say() -> None:
    faults = []
    for module in _tested_modules():
        faults += [
            f"{place(test)}: does not import {place(module)}"
            for test in _tests_by_name(module)
            if module not in files_run_by(test)
        ]
    for test in UNIT_TESTS:
        for name in _named_in(test, "Modules"):
            if PACKAGE / name not in files_run_by(test):
                faults.append(f"{place(test)}: does not import {name}, or there is no such module")
    assert faults == []


def test_each_line_is_well_formed() -> None:
    faults = []
    for path in [*MODULES, *UNIT_TESTS]:
        meant = _BEGINNING.findall(ast.get_docstring(tree_of(path)) or "")
        word = "Tests" if path in MODULES else "Modules"
        if meant and (meant != [word] or not _named_in(path, word)):
            faults.append(f"{place(path)}: write `{word}: first.py, second.py.` on lines of their own")
    assert faults == []


@pytest.mark.parametrize(
    ("docstring", "names"),
    [
        ("Rows.\n\nTests: tests/unit/a/test_b.py.", ["tests/unit/a/test_b.py"]),
        ("Rows.\n\nTests: tests/a/test_b.py,\ntests/a/test_c.py.\nMore.", ["tests/a/test_b.py", "tests/a/test_c.py"]),
        ("Rows. Tests: tests/unit/a/test_b.py.", []),
        ("Rows.\n\nTests: tests/unit/a/test_b.py and others.", []),
    ],
)
def test_lines_of_docstrings(docstring: str, names: Sequence[str]) -> None:
    assert _names_of(docstring, "Tests") == names


def test_a_front_door_leads_to_what_is_imported_from_it_alone() -> None:
    """A program leads to its module, and a registry to its folder."""
    runs = _names_run_by(UNIT / "base" / "test_logs.py")
    assert "base/logs.py" in runs
    assert "base/mailbox.py" not in runs
    assert "catalog/tables/tables.py" in _names_run_by(UNIT / "catalog" / "tables" / "test_tables.py")
    assert "statements/operate/kill.py" in _names_run_by(UNIT / "statements" / "test_registry.py")
    assert "client/cli/worker.py" in _names_run_by(ROOT / "tests" / "acceptance" / "test_served_node.py")


def _tested_modules() -> list[Path]:
    return [*MODULES, *python_files(ROOT / "tools")]


def _test_of(module: Path) -> Path:
    """Return the file of tests that has the module's name."""
    [(folder, below)] = [each for each in TESTED if module.is_relative_to(each[0])]
    relative = module.relative_to(folder)
    return UNIT / below / relative.parent / f"{_PREFIX}{relative.name}"


@cache
def _tests_by_name(module: Path) -> frozenset[Path]:
    """Return the files of tests with the module's name; without its own file there are none beside it."""
    own = _test_of(module)
    if not own.is_file() or not _has_tests(own):
        return frozenset()
    others = {each for each in own.parent.glob(f"{own.stem}_*.py") if not _is_of_another(each, module)}
    return frozenset({own, *others})


def _is_of_another(test: Path, module: Path) -> bool:
    """Return whether the test has the name of a module beside this one, or begins with it."""
    rest = test.stem.removeprefix(_PREFIX)
    longer = [each.stem for each in module.parent.glob(f"{module.stem}_*.py")]
    return any(rest == name or rest.startswith(f"{name}_") for name in longer)


@cache
def _statements(module: Path) -> int:
    """Return the number of statements in the module's functions; docstrings and `pass` are none."""
    inner = {
        statement
        for node in ast.walk(tree_of(module))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for each in node.body
        for statement in ast.walk(each)
        if isinstance(statement, ast.stmt) and not isinstance(statement, ast.Pass)
    }
    return sum(not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)) for each in inner)


@cache
def _has_tests(path: Path) -> bool:
    functions = (node for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef))
    return path.name.startswith(_PREFIX) and any(node.name.startswith(_PREFIX) for node in functions)


def _names_run_by(test: Path) -> set[str]:
    return {each.relative_to(PACKAGE).as_posix() for each in files_run_by(test) if each.is_relative_to(PACKAGE)}


def _named_in(path: Path, word: str) -> list[str]:
    return _names_of(ast.get_docstring(tree_of(path)) or "", word)


def _names_of(docstring: str, word: str) -> list[str]:
    found = _LINE[word].search(docstring)
    return re.split(r",\s+", found[1]) if found else []
