"""The mutants of tools/mutant_list still fit the source, and their tests are still there, and run by `make test`. That
each is killed, `make mutants` shows.
"""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.tidy.sources import ROOT, is_long, tree_of
from tools.mutant_list import MUTANTS, Mutant, mutated

IDS = [each.name for each in MUTANTS]


def test_mutants_have_names_of_their_own() -> None:
    assert [name for name, count in Counter(IDS).items() if count > 1] == []


@pytest.mark.parametrize("mutant", MUTANTS, ids=IDS)
def test_a_mutant_fits_exactly_once_and_is_python(mutant: Mutant) -> None:
    text = (ROOT / mutant.path).read_text()
    broken = mutated(text, mutant)
    assert broken != text
    ast.parse(broken)


@pytest.mark.parametrize("mutant", MUTANTS, ids=IDS)
def test_the_tests_of_a_mutant_are_there(mutant: Mutant) -> None:
    assert mutant.tests
    for test in mutant.tests:
        path, _, name = test.partition("::")
        functions = {node.name: node for node in tree_of(ROOT / path).body if isinstance(node, ast.FunctionDef)}
        assert name in functions, test
        assert not is_long(functions[name]), test
