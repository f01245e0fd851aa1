"""ClickHouse itself, in a process of its own: what queries are compared with.

    python -m tools.clickhouse          answers JSON lines on standard input: what ClickHouse() talks to

Covers: running a statement, its rows as Python values. Does not cover: what is compared (dialect_oracle.py).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path
from struct import pack, unpack
from typing import Any, Self

ROOT = Path(__file__).resolve().parent.parent
#: Settings by which JSON distinguishes all values, times mean the same in any zone, and types are those of Tilth.
_SETTINGS = {
    "date_time_output_format": "unix_timestamp",
    "output_format_json_quote_64bit_integers": "0",
    "output_format_json_quote_denormals": "1",
    "output_format_json_quote_decimals": "1",
    "output_format_json_named_tuples_as_objects": "0",
    # Tilth has no Variant, of which NULL has another text: values without a common type are refused.
    "use_variant_as_common_type": "0",
}
_WORD = re.compile(r"\w+")


class ClickHouseError(Exception):
    """ClickHouse refused a statement"""


@dataclass(frozen=True, slots=True)
class Answered:
    types: Sequence[str]
    rows: Sequence[Sequence[Any]]


class ClickHouse:
    """A ClickHouse with an empty database. End it with `close`, or use it in a `with`."""

    def __init__(self, zone: str = "UTC") -> None:
        command = [sys.executable, "-m", "tools.clickhouse", zone]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._process.communicate()

    def run(self, text: str) -> Answered:
        """Run a statement; the values of a query are as Python has them. Raises ClickHouseError."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(text), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        if not line:
            raise ClickHouseError(f"the process of ClickHouse has ended: {text[:500]}")
        answer = json.loads(line)
        if "error" in answer:
            raise ClickHouseError(answer["error"])
        if len(answer["lines"]) < 2:
            return Answered((), ())
        types = json.loads(answer["lines"][1])
        rows = [json.loads(each, parse_float=str) for each in answer["lines"][2:]]
        return Answered(
            types, [[value_of(value, kind) for value, kind in zip(row, types, strict=True)] for row in rows]
        )


def value_of(value: Any, kind: str) -> Any:
    """A value of JSON as Python has it: times are seconds since 1970, tuples and arrays are lists, maps are pairs."""
    if value is None:
        return None
    name, inner = _parts(kind)
    if name in ("Nullable", "LowCardinality"):
        return value_of(value, inner[0])
    if name == "Array":
        return [value_of(each, inner[0]) for each in value]
    if name == "Tuple":
        return [value_of(each, part) for each, part in zip(value, inner, strict=True)]
    if name == "Map":
        return sorted([[value_of(key, inner[0]), value_of(each, inner[1])] for key, each in value.items()], key=str)
    if name == "Float32":
        return unpack("f", pack("f", float(value)))[0]
    if name == "Float64":
        return float(value)
    if name in ("Decimal", "DateTime", "DateTime64"):
        return Decimal(value)
    if name in ("Date", "Date32"):
        return date.fromisoformat(value)
    if name == "Bool" or "Int" in name:
        return int(value)
    return value


def _parts(kind: str) -> tuple[str, list[str]]:
    """`Map(String, Array(Int8))` as its name and the types inside, without the names of a tuple's elements."""
    found = _WORD.match(kind)
    name = found[0] if found else kind
    if name not in ("Nullable", "LowCardinality", "Array", "Tuple", "Map"):
        return name, []
    inner, depth, begin = [], 0, len(name) + 1
    for index, letter in enumerate(kind):
        depth += (letter == "(") - (letter == ")")
        if (letter == "," and depth == 1) or (letter == ")" and depth == 0):
            inner.append(kind[begin:index].strip())
            begin = index + 1
    return name, inner


def _serve(zone: str) -> None:
    from chdb import session

    # Any: chdb's functions have no types.
    begin: Any = session.Session
    base = begin()
    for name, value in (*_SETTINGS.items(), ("session_timezone", zone)):
        base.query(f"SET {name} = '{value}'")
    for line in sys.stdin:
        try:
            found = base.query(json.loads(line), "JSONCompactEachRowWithNamesAndTypes").bytes()
            answer: dict[str, Any] = {"lines": found.decode("utf-8", "surrogateescape").splitlines()}
        # Whatever it says is an answer.
        except Exception as error:
            answer = {"error": str(error)}
            # The output of the failed query would stand before the next answer.
            base.query("SELECT 1")
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve(sys.argv[1])
