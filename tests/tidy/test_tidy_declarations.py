"""Settings and errors are declared as STYLE.md asks: a setting tells what it does, an error has a code of its own."""

from __future__ import annotations

import ast
import importlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.sources import PACKAGE, place, python_files, tree_of
from tilth.base.settings import Setting, SettingCheck, SettingGroup

#: Shorter than this, a text says no more than the name does.
SETTING_DOC_CHARACTERS_MIN = 15
#: Functions and classes that declare a setting.
DECLARATIONS = ("Setting", "node_setting", "table_setting", "kafka_setting", "session_setting")
SETTINGS_MIN = 130
SETTING_NAME = r"[a-z0-9]+([._-][a-z0-9]+)*"


def test_settings_are_declared_in_settings_modules() -> None:
    faults = [
        f"{path.name}:{node.lineno}"
        for path in python_files(PACKAGE)
        if path.name != "settings.py"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in DECLARATIONS
    ]
    assert faults == []


def test_every_declared_setting_is_in_a_group() -> None:
    """Or no statement, flag, file or page would know it."""
    declared = {
        node.args[0].value
        for path in PACKAGE.rglob("settings.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in DECLARATIONS
        and node.args
        and isinstance(node.args[0], ast.Constant)
    }
    assert len(declared) > SETTINGS_MIN
    assert declared - {setting.name for _, setting in _settings()} == set()


def test_the_default_of_every_setting_can_be_written() -> None:
    faults = [
        f"{module}: {setting.name}: {setting.default_text!r}"
        for module, setting in _settings()
        if setting.default is not None and setting.check.parse(setting.default_text) != setting.default
    ]
    assert faults == []


def test_every_setting_tells_what_it_does() -> None:
    faults = [
        f"{module}: {setting.name}"
        for module, setting in _settings()
        if len(setting.doc) < SETTING_DOC_CHARACTERS_MIN or not setting.doc.endswith(".")
    ]
    assert faults == []


def test_every_setting_says_what_it_allows() -> None:
    """A check without words would refuse a value and not say why."""
    always = SettingCheck.__dataclass_fields__["holds"].default
    faults = [
        f"{module}: {setting.name}"
        for module, setting in _settings()
        if setting.check.holds is not always and not setting.check.allowed
    ]
    assert faults == []


def test_every_default_is_allowed() -> None:
    assert [
        f"{module}: {setting.name}" for module, setting in _settings() if not setting.check.holds(setting.default)
    ] == []


def test_setting_names_are_lower_case_words() -> None:
    assert [f"{module}: {s.name}" for module, s in _settings() if not re.fullmatch(SETTING_NAME, s.name)] == []


def test_setting_names_are_unique_in_their_scope() -> None:
    by_name = defaultdict(list)
    for module, setting in _settings():
        for name in (setting.name, *setting.aliases):
            by_name[setting.scope, name].append(module)
    assert {name: modules for name, modules in by_name.items() if len(modules) > 1} == {}


def test_every_error_has_a_default_message() -> None:
    assert [f"{place(path, error)} {error.name}" for path, error in _errors() if not ast.get_docstring(error)] == []


def test_every_error_has_a_code_of_its_own() -> None:
    by_code = defaultdict(list)
    for path, error in _errors():
        if _is_told_its_code(error):
            continue
        by_code[_code(error)].append(f"{place(path, error)} {error.name}")
    for path in python_files(PACKAGE):
        for call in ast.walk(tree_of(path)):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "coded":
                by_code[ast.literal_eval(call.args[0])].append(f"{place(path)}:{call.lineno}")
    assert by_code.pop(None, []) == [], "no code"
    assert [code for code in by_code if not re.fullmatch(r"[A-Z][A-Z0-9_]*", str(code))] == []
    assert {code: places for code, places in by_code.items() if len(places) > 1} == {}


def test_errors_that_one_call_raises_and_nothing_else_names_have_no_class() -> None:
    """`GeneralError.coded("CODE", ..)` makes such an error; a class is there to be caught, or for several calls."""
    nodes = [node for path in python_files(PACKAGE) for node in ast.walk(tree_of(path))]
    named = Counter(node.id for node in nodes if isinstance(node, ast.Name))
    called = Counter(node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name))
    alone = [f"{place(path, error)} {error.name}" for path, error in _errors() if named[error.name] == 1]
    assert [each for each in alone if called[each.split()[1]]] == []


def test_errors_are_not_made_again_from_their_class() -> None:
    """`type(error)(..)` loses a code that the error was given; `error.with_facts(..)` keeps it."""
    faults = [
        f"{place(path)}:{call.lineno}"
        for path in python_files(PACKAGE)
        for call in ast.walk(tree_of(path))
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("type(") and call.keywords
    ]
    assert faults == []


def _settings() -> Iterator[tuple[str, Setting[object]]]:
    """Every setting, once, with the first module whose group has it."""
    seen: set[int] = set()
    for path in sorted(PACKAGE.rglob("settings.py")):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        for group in vars(importlib.import_module(name)).values():
            for setting in group.all if isinstance(group, SettingGroup) else ():
                if id(setting) not in seen:
                    seen.add(id(setting))
                    yield name, setting


def _errors() -> Iterator[tuple[Path, ast.ClassDef]]:
    """Every class that descends from TilthError, found by the names of its bases."""
    classes = [
        (path, node)
        for path in python_files(PACKAGE)
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
    ]
    known = {"TilthError"}
    grown = True
    while grown:
        more = {node.name for _, node in classes if any(ast.unparse(base) in known for base in node.bases)}
        grown = not more <= known
        known |= more
    return iter((path, node) for path, node in classes if node.name in known)


def _code(error: ast.ClassDef) -> str | None:
    for node in error.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="code")], value=ast.Constant(value=str(code))):
                return code
            case ast.AnnAssign(target=ast.Name(id="code"), value=ast.Constant(value=str(code))):
                return code
    return None


def _is_told_its_code(error: ast.ClassDef) -> bool:
    """An error that passes on what another process said carries the code of that process."""
    targets = [target for node in ast.walk(error) if isinstance(node, ast.Assign) for target in node.targets]
    return any(ast.unparse(target) == "self.code" for target in targets)
