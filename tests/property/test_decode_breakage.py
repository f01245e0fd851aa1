"""However messages are broken and wherever they stand, exactly they are told, and every other one is decoded."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.ingest.decoding import decode
from tilth.model.types import Array, DataType, Decimal, Kind, Simple

COLUMNS: dict[str, Kind | DataType] = {
    "id": Kind.INT64,
    "s": Kind.STRING,
    "f": Kind.FLOAT64,
    "l": Array(Simple(Kind.INT32)),
    "d": Decimal(9, 2),
}

rows = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1)},
    optional={
        "s": st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
        "f": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "l": st.none() | st.lists(st.none() | st.integers(-(2**31), 2**31 - 1), max_size=4),
        "unknown": st.none() | st.booleans() | st.text(max_size=5),
    },
)


@st.composite
def spoiled(draw: st.DrawFn) -> bytes:
    """A message that is no row: cut, of a wrong type, out of range, no JSON, no UTF-8."""
    text = json.dumps(draw(rows)).encode()
    match draw(st.integers(0, 6)):
        case 0:
            return text[: draw(st.integers(1, len(text) - 1))]
        case 1:
            return text[draw(st.integers(1, len(text) - 1)) :]
        case 2:
            return json.dumps(draw(rows) | {"id": str(draw(st.integers()))}).encode()
        case 3:
            return json.dumps({"id": 2**63 + draw(st.integers(0, 10))}).encode()
        case 4:
            return b'{"s": "\xff\xfe", "id": 1}'
        case 5:
            return b'{"id": 1, "d": 1.%03d}' % draw(st.integers(1, 9))
        case _:
            return draw(st.sampled_from([b"null", b"[]", b"7", b"nonsense", b"{", b"}", b'{"id":1}}', b'{"id":1},']))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.booleans(), rows, spoiled()), max_size=30))
def test_exactly_the_broken_ones_are_told(drawn: list[tuple[bool, dict[str, Any], bytes]]) -> None:
    values: list[bytes | None] = [bad if is_bad else json.dumps(row).encode() for is_bad, row, bad in drawn]
    decoded = decode(COLUMNS, values, wanted=[*COLUMNS, "_offset"])
    expected_broken = [i for i, (is_bad, _, _) in enumerate(drawn) if is_bad]
    assert [broken.offset for broken in decoded.broken] == expected_broken
    assert [broken.raw for broken in decoded.broken] == [values[i] for i in expected_broken]
    assert all(broken.reason for broken in decoded.broken)
    expected = [
        {name: row.get(name) for name in COLUMNS} | {"_offset": i}
        for i, (is_bad, row, _) in enumerate(drawn)
        if not is_bad
    ]
    assert decoded.rows.to_pylist() == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(rows, max_size=10), st.sampled_from(["", " ", "\n", "\r\n\t"]), st.booleans())
def test_several_objects_in_one_message(objects: list[dict[str, Any]], space: str, is_pretty: bool) -> None:
    text = space.join(json.dumps(each, indent=2 if is_pretty else None) for each in objects)
    decoded = decode(COLUMNS, [text.encode(), b"{", text.encode()])
    assert [broken.offset for broken in decoded.broken] == [1]
    once = [{name: each.get(name) for name in COLUMNS} for each in objects]
    assert decoded.rows.to_pylist() == once + once
