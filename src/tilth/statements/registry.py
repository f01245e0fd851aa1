"""All statements: their kinds by the class of their values, and their texts.

Covers: finding the kinds. Does not cover: running a statement (engine.py). Always holds: a new kind is found where its
module is in one of the folders of statements; nothing lists it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from tilth.control.kinds import StatementKind
from tilth.grammar.parse import Forms
from tilth.grammar.statements import Statement
from tilth.introspection import statements as introspection
from tilth.statements import alter, definitions, files, inserts, operate, rows

_FOLDERS = (introspection, alter, definitions, files, inserts, operate, rows)


# Any: values of every class.
def _kinds() -> Iterator[StatementKind[Any]]:
    for folder in _FOLDERS:
        for found in iter_modules(folder.__path__, f"{folder.__name__}."):
            yield from getattr(import_module(found.name), "KINDS", ())


KINDS: dict[type[Statement], StatementKind[Any]] = {kind.value: kind for kind in _kinds()}
FORMS = Forms(form for kind in KINDS.values() for form in kind.forms)


def parse(text: str) -> Statement:
    """Return the statement in the text. Raises SqlSyntaxError, and UnsupportedSqlError for what is not there."""
    return FORMS.parse(text)
