"""Every kind of statement is found where it is declared, once."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import tilth.introspection.statements
import tilth.statements
from tilth.control.kinds import StatementKind
from tilth.grammar.statements import Statement, WithSettings
from tilth.statements.registry import KINDS


def leaves(kind: type[Statement]) -> Iterator[str]:
    """Names of the classes below. A dataclass with slots is made twice, so classes are compared by their names."""
    for each in kind.__subclasses__():
        yield f"{each.__module__}.{each.__name__}"
        yield from leaves(each)


def test_every_class_of_statements_has_a_kind() -> None:
    declared = {name for name in leaves(Statement) if name.startswith("tilth.")}
    known = {f"{each.__module__}.{each.__name__}" for each in KINDS}
    assert declared - {f"{WithSettings.__module__}.{WithSettings.__name__}"} == known


def test_every_module_with_kinds_is_looked_into() -> None:
    folders = [Path(each.__path__[0]) for each in (tilth.statements, tilth.introspection.statements)]
    named = 0
    for path in (path for folder in folders for path in folder.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "KINDS":
                assert isinstance(node.value, ast.Tuple), path
                named += len(node.value.elts)
    assert named == len(KINDS)
    assert all(isinstance(kind, StatementKind) for kind in KINDS.values())
