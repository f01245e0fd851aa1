"""Rows of JSON that are read in C are those that are read by value, whatever is in them."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from tilth.base.errors import TilthError
from tilth.formats import Reading, RowOptions
from tilth.model.table import Column, Schema
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct
from tilth.statements.inserts.objects import read_objects
from tilth.statements.inserts.rows import InsertTarget, read_rows
from tilth.storage import conform

TYPES: dict[str, DataType] = {
    "b": Simple(Kind.BOOLEAN),
    "i8": Simple(Kind.INT8),
    "i": Simple(Kind.INT64),
    "f": Simple(Kind.FLOAT32),
    "d": Simple(Kind.FLOAT64),
    "s": Simple(Kind.STRING),
    "x": Simple(Kind.BINARY),
    "day": Simple(Kind.DATE),
    "ts": Simple(Kind.TIMESTAMP),
    "wall": Simple(Kind.TIMESTAMP_NTZ),
    "m": Decimal(9, 2),
    "l": Array(Simple(Kind.INT32)),
    "numbers": Map(Simple(Kind.INT64), Simple(Kind.INT64)),
    "decimals": Map(Decimal(4, 1), Simple(Kind.INT64)),
    "map": Map(Simple(Kind.STRING), Simple(Kind.DATE)),
    "st": Struct((Field("a", Simple(Kind.INT64)), Field("t", Simple(Kind.TIMESTAMP)))),
}
#: JSON of values that readers are known to judge differently.
HOSTILE = (
    *('"12"', "12", "1.0", "1.5", "1e3", "1e-400", "-0.0", "-0", "NaN", "1e999", "9223372036854775808"),
    *('"null"', '"1_0"', '" 7 "', '"0x1f"', '"inf"', "true", '"true"', '"1"', "127", "128", "0.005", "123456789.123"),
    *('"\\ud800"', '"\\u0031"', '"\\ud83d\\ude00"', '"\\u0000"', '"é"', '"YWI="', '"YW"', '""', '"2026-01-05"'),
    *('"2026-01-05 10:00:00"', '"2026-01-05T10:00:00Z"', '"2026-01-05T10:00:00.1234567Z"', '"2026-02-30"'),
    *('"2026-01-05T10:00:00+14:30"', '"1760000000"', "1760000000", "1760000000.5", '"0001-01-01 00:00:00"'),
    *('"-0"', '"2026-01-05t10:00:00z"', '{"-0": 1, "0": 2}', '{"1.0": 1, "1": 2}', '{"1e0": 1, "1": 2}'),
    *("[]", "[1, null]", '["1"]', "{}", '{"k": "2026-01-05"}', '{"k": null}', '{"a": 1}', '{"a": 1, "b": 2}'),
    *('{"a": "1", "t": "2026-01-05 10:00:00"}', "[[1, 2]]", "null"),
)
_values = st.sampled_from(HOSTILE) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
).map(json.dumps)
_rows = st.lists(st.tuples(st.sampled_from([*TYPES, "I", "none"]), _values), max_size=3).map(
    lambda pairs: "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in pairs) + "}"
)
_junk = st.sampled_from(["", " ", ",", "\n", "null", "[]", "[{}]", "1", "{", '{"i": 1', "\ufeff", "//", "{}{}"])
_texts = st.lists(_rows | _junk, max_size=4).flatmap(
    lambda rows: st.sampled_from(["\n", "", ",", "\r\n\r\n", " "]).map(lambda between: between.join(rows))
)


def shown(rows: pa.Table, target: InsertTarget) -> str:
    """The rows as the table stores them; NaN is NaN here, and -0.0 is not 0.0."""
    return str(conform(rows, target.schema).to_pylist())


@given(_texts, st.sampled_from([*TYPES, "none"]), st.booleans())
@example('{"i": 1, "i": "2"}', "i", True)
@example('{"i": 1}\n{"I": 2}', "none", True)
@example("{}", "i", False)
def test_what_is_read_in_c_is_what_is_read_by_value(text: str, required: str, has_all: bool) -> None:
    names = TYPES if has_all else [required] if required in TYPES else ["s"]
    columns = [Column(id=n, name=name, type=TYPES[name], nullable=name != required) for n, name in enumerate(names, 1)]
    target = InsertTarget(Schema(columns=tuple(columns)))
    found = read_objects(target, (), "JSONEachRow", text, reading=Reading(), options=RowOptions())
    if found is None:
        return
    wanted = read_rows(target, (), "JSONEachRow", text, reading=Reading(), compute=lambda *_: {})
    assert shown(found, target) == shown(wanted, target)


@given(st.sampled_from(list(TYPES)), st.sampled_from(HOSTILE))
def test_one_hostile_value_is_the_same_value_or_refused(name: str, value: str) -> None:
    target = InsertTarget(Schema(columns=(Column(id=1, name=name, type=TYPES[name]),)))
    text = f'{{"{name}": {value}}}'
    found = read_objects(target, (), "JSONEachRow", text, reading=Reading(), options=RowOptions())
    try:
        wanted = read_rows(target, (), "JSONEachRow", text, reading=Reading(), compute=lambda *_: {})
    except TilthError:
        assert found is None
        return
    assert found is None or shown(found, target) == shown(wanted, target)


def test_plain_rows_are_read_in_c() -> None:
    plain = {name: TYPES[name] for name in ("i", "s", "d", "ts", "l", "m", "map", "st")}
    target = InsertTarget(Schema(columns=tuple(Column(id=n, name=c, type=t) for n, (c, t) in enumerate(plain.items()))))
    text = '{"i": 1, "s": "a", "d": 0.5, "ts": "2026-01-05 10:00:00"}\n{"l": [1], "m": 1.25}'
    found = read_objects(target, (), "JSONEachRow", text, reading=Reading(), options=RowOptions())
    assert found is not None
    assert found.num_rows == 2
