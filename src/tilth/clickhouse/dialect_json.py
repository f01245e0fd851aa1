"""Calls of ClickHouse's JSON functions, which name a value by keys and indexes, as calls with a path.

Covers: the path. Does not cover: what the functions compute (functions/exact_json.py). Always holds: a key or
an index that is not a constant is refused by name. Pure.

Tests: tests/unit/clickhouse/test_dialect.py.
"""

from __future__ import annotations

from sqlglot import exp

from tilth.clickhouse.dialect_words import call, refused

#: The text is the first element of an array there.
_ROOT = "$[0]"
#: Letters that a key in a path cannot have.
_REFUSED_LETTERS = "'\"?\\[]"
_HINT = "write keys as constants without quotes, and indexes of arrays as numbers from 1"


def json_call(node: exp.Expression) -> exp.Expression:
    if not node.expressions:
        raise refused(f"{node.name} without arguments", _HINT)
    text, path = node.expressions[0], _ROOT
    for step in node.expressions[1:]:
        if not isinstance(step, exp.Literal) or step.name.startswith("-"):
            raise refused(f"this path in {node.name}", _HINT)
        if not step.is_string:
            if not step.name.isdigit() or int(step.name) < 1:
                raise refused(f"this path in {node.name}", _HINT)
            text = call("clickhouse_json_array_at", text, exp.Literal.string(path))
            path += f"[{int(step.name) - 1}]"
            continue
        if not step.name or any(letter in _REFUSED_LETTERS for letter in step.name):
            raise refused(f"this key in {node.name}", _HINT)
        path += f'["{step.name}"]'
    return call(_WRITTEN[node.name.lower()], text, exp.Literal.string(path))


#: Functions that take a text and a path.
JSON_CALLS = {
    "JSONExtractString": "clickhouse_json_string",
    "JSONExtractRaw": "clickhouse_json_raw",
    "JSONExtractInt": "clickhouse_json_int",
    "JSONExtractUInt": "clickhouse_json_uint",
    "JSONExtractFloat": "clickhouse_json_float",
    "JSONExtractBool": "clickhouse_json_bool",
    "JSONHas": "clickhouse_json_has",
    "JSONLength": "clickhouse_json_length",
}
_WRITTEN = {name.lower(): written for name, written in JSON_CALLS.items()}
