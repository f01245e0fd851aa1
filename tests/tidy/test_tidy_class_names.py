"""One public name is one class in the whole project: a reader who knows a name knows what it is, wherever it stands."""

from __future__ import annotations

import ast
from collections import defaultdict

from tests.tidy.sources import PACKAGE, place, python_files, tree_of

CLASSES_MIN = 700


def test_public_classes_have_names_of_their_own() -> None:
    by_name = defaultdict(list)
    for path in python_files(PACKAGE):
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                by_name[node.name].append(place(path, node))
    assert len(by_name) > CLASSES_MIN
    assert {name: places for name, places in by_name.items() if len(places) > 1} == {}
