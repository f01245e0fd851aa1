"""Files, front doors and functions have the shape that STYLE.md asks for. Each test lists every fault that it finds."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.sources import PACKAGE, PROGRAMS, ROOT, is_long, place, python_files, tree_of

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
SHAPELESS_NAMES = {"util", "utils", "helper", "helpers", "common", "misc"}
FRONT_DOOR_WORDS = ("covers", "does not cover", "always hold", "see also")
NOT_TESTS = {"conftest.py", "sources.py"}


def test_no_file_is_too_long() -> None:
    lengths = {place(path): len(path.read_text().splitlines()) for path in python_files(*PROGRAMS, ROOT / "tests")}
    assert {where: lines for where, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_no_function_is_too_long() -> None:
    faults = [
        f"{place(path, node)} {node.name}: {lines} lines"
        for path in python_files(*PROGRAMS, ROOT / "tests")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > FUNCTION_LINES_MAX
    ]
    assert faults == []


def test_no_module_is_a_drawer_for_odds_and_ends() -> None:
    names = {path: {*path.relative_to(ROOT).with_suffix("").parts} for path in python_files(*PROGRAMS, ROOT / "tests")}
    assert [place(path) for path, parts in names.items() if parts & SHAPELESS_NAMES] == []


def test_every_module_says_what_it_is() -> None:
    assert [place(path) for path in python_files(*PROGRAMS) if not ast.get_docstring(tree_of(path))] == []


def test_modules_that_spark_ships_are_all_under_the_rules_for_them() -> None:
    """A wildcard of import-linter cannot stand for a part of a name, so pyproject.toml lists all but task_spark."""
    named = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in python_files(PACKAGE)
        if path.stem.endswith("_spark")
    }
    shipped = {name for name in named if not name.endswith(".task_spark")} | {"tilth.**.task_spark"}
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [catalog] = [each for each in contracts if each["name"].startswith("Code shipped to executors")]
    [pyspark] = [each for each in contracts if each["name"].startswith("pyspark lives")]
    assert {name for name in catalog["source_modules"] if name.endswith("_spark")} == shipped
    importers = {each.partition(" -> ")[0] for each in pyspark["ignore_imports"]}
    assert {name for name in importers if name.endswith("_spark")} == shipped


def test_python_workers_are_forked_with_every_module_that_spark_ships() -> None:
    daemon = ast.walk(tree_of(PACKAGE / "daemon.py"))
    imported = {alias.name for each in daemon if isinstance(each, ast.Import) for alias in each.names}
    assert "tilth.maintenance.runners" in imported
    runners = ast.walk(tree_of(PACKAGE / "maintenance" / "runners.py"))
    imported |= {each.module for each in runners if isinstance(each, ast.ImportFrom) and each.module}
    shipped = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for path in python_files(PACKAGE)
        if path.stem.endswith("_spark") or path.stem == "spark"
    }
    # Runs in the driver only.
    assert shipped - imported == {
        "tilth.query.worker.plan_cache_spark",
        "tilth.query.worker.needs_spark",
        "tilth.query.worker.prepared_spark",
        "tilth.query.results.spark",
        "tilth.storage.read.hadoop_spark",
        "tilth.storage.read.masked_spark",
        "tilth.warehouse.session.batches_spark",
        "tilth.warehouse.session.spark",
    }


def test_front_doors_hold_no_code() -> None:
    faults = [
        place(path, node)
        for path in python_files(PACKAGE)
        if path.name == "__init__.py"
        for node in tree_of(path).body
        if not (_is_docstring(node) or isinstance(node, ast.Import | ast.ImportFrom) or _is_door(node))
    ]
    assert faults == []


def test_front_doors_name_each_thing_once() -> None:
    """They offer what they import: mypy and ruff know them by pyproject.toml."""
    doors = {
        ".".join(path.parent.relative_to(PACKAGE.parent).parts): [name for name, _ in _imported(path)]
        for path in python_files(PACKAGE)
        if path.name == "__init__.py"
    }
    twice = {door: names for door, names in doors.items() if len(names) != len(set(names))}
    assert twice == {}
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    [offering] = [each["module"] for each in overrides if each.get("implicit_reexport")]
    # Users' type checkers do not read pyproject.toml: the package's own door names each thing twice.
    assert set(offering) == {door for door, names in doors.items() if names} - {"tilth"}


def test_rooms_say_what_they_cover() -> None:
    faults = []
    for door in sorted(PACKAGE.glob("*/__init__.py")):
        doc = ast.get_docstring(tree_of(door)) or ""
        faults += [f"{place(door)}: no {word!r}" for word in FRONT_DOOR_WORDS if word not in doc.lower()]
    assert faults == []


def test_what_a_front_door_offers_is_documented() -> None:
    faults = []
    for door in sorted(PACKAGE.glob("*/__init__.py")):
        for name, home in _imported(door):
            definition = _definition(home, name)
            if definition is not None and not ast.get_docstring(definition):
                faults.append(f"{place(home, definition)} {name}")
    assert faults == []


def test_test_modules_have_names_of_their_own() -> None:
    """But for those of tests/unit, which have the names of the modules that they test (test_tidy_test_names.py)."""
    by_name = defaultdict(list)
    for path in python_files(ROOT / "tests"):
        if path.name not in NOT_TESTS and ROOT / "tests" / "unit" not in path.parents:
            by_name[path.name].append(place(path))
    assert {name: places for name, places in by_name.items() if len(places) > 1} == {}


def test_no_test_is_left_out() -> None:
    """A test that does not run hides a defect; one that cannot run here does not belong here."""
    faults = [
        f"{place(path)}:{node.lineno}"
        for path in python_files(ROOT / "tests")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute)
        and (node.attr in {"skip", "skipif", "xfail"} or node.attr.startswith("importor"))
        and ast.unparse(node.value) in {"pytest", "pytest.mark"}
    ]
    assert faults == []


def test_each_file_with_long_tests_has_others_that_every_run_makes() -> None:
    faults = []
    for path in python_files(ROOT / "tests"):
        names = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef)]
        tests = [node for node in names if node.name.startswith("test_")]
        if tests and all(is_long(node) for node in tests):
            faults.append(place(path))
        marks = [
            node for node in tree_of(path).body if isinstance(node, ast.Assign) and "mark.long" in ast.unparse(node)
        ]
        faults += [place(path, node) for node in marks if ast.unparse(node.targets[0]) == "pytestmark"]
    assert faults == []


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _is_door(node: ast.stmt) -> bool:
    """True for the imports of a front door that makes them when they are asked for (base/doors.py)."""
    return (
        isinstance(node, ast.If)
        and ast.unparse(node.test) == "TYPE_CHECKING"
        and all(isinstance(each, ast.ImportFrom) for each in node.body)
        and [ast.unparse(each) for each in node.orelse] == ["__getattr__ = door(__name__)"]
    )


def _imported(path: Path) -> Iterator[tuple[str, Path]]:
    """Names that a front door passes on, each with the file that it takes it from."""
    body = tree_of(path).body
    when_asked = [each for node in body if isinstance(node, ast.If) and _is_door(node) for each in node.body]
    for node in when_asked or body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            for alias in node.names:
                yield alias.asname or alias.name, _file_of(node.module or "")


def _file_of(module: str) -> Path:
    base = ROOT.joinpath("src", *module.split("."))
    return base / "__init__.py" if base.is_dir() else base.with_suffix(".py")


def _definition(home: Path, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | None:
    """The function or class of that name; None when it is a constant, a type alias, or comes from elsewhere."""
    if not home.exists():
        return None
    for node in tree_of(home).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name == name:
            return node
    return None


def test_there_is_one_road_for_writes() -> None:
    """A transaction under way is an object (catalog/commit/txn_handle.py), which knows what each outcome leaves."""
    by_hand = re.compile(r"transactions\.(begin|commit)\(")
    faults = [
        f"{place(path)}: {found[0]}"
        for path in python_files(PACKAGE)
        for found in by_hand.finditer(path.read_text())
        if path.relative_to(PACKAGE).parts[0] != "catalog"
    ]
    assert faults == []
    assert by_hand.search("self._catalog.transactions.begin(actor)")
