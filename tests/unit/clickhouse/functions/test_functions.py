"""Each function of ClickHouse is compared with ClickHouse itself, and each rule by which answers differ has a case."""

from __future__ import annotations

import re

from tilth.clickhouse.dialect_words import OURS
from tilth.clickhouse.functions.functions import INSTEAD, functions
from tools.function_cases import DIFFERENT, RULES, all_calls

#: Functions that `dateDiff` and `date_diff` become.
_BEHIND = {"dateDiff": "unitDiff", "date_diff": "unit_diff"}


def test_each_function_has_a_case() -> None:
    called = {_BEHIND.get(name, name) for name in re.findall(r"\b(\w+)\(", all_calls())}
    assert {name for name in functions() if not name.startswith(OURS)} - called == set()


def test_each_rule_has_a_case() -> None:
    assert {*DIFFERENT, "rows"} == set(RULES)


def test_what_is_refused_is_no_function() -> None:
    assert {name.lower() for name in functions()} & INSTEAD.keys() == set()
