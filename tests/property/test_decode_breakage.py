"""However messages are broken and wherever they stand, exactly they are told, and every other one is decoded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.long import examples
from tests.property.hostile_messages import TYPES, is_made_of, json_texts, values_of
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
            return json.dumps(draw(rows) | {"id": f"x{draw(st.integers())}"}).encode()
        case 3:
            return json.dumps({"id": 2**63 + draw(st.integers(0, 10))}).encode()
        case 4:
            return b'{"s": "\xff\xfe", "id": 1}'
        case 5:
            return b'{"id": 1, "d": 1.%03d}' % draw(st.integers(1, 9))
        case _:
            return draw(st.sampled_from([b"null", b"[]", b"7", b"nonsense", b"{", b"}", b'{"id":1}}']))


@settings(max_examples=examples(200))
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


@settings(max_examples=examples(100))
@given(st.lists(rows, max_size=10), st.sampled_from(["", " ", "\n", "\r\n\t"]), st.booleans())
def test_several_objects_in_one_message(objects: list[dict[str, Any]], space: str, is_pretty: bool) -> None:
    text = space.join(json.dumps(each, indent=2 if is_pretty else None) for each in objects)
    decoded = decode(COLUMNS, [text.encode(), b"{", text.encode()])
    assert [broken.offset for broken in decoded.broken] == [1]
    once = [{name: each.get(name) for name in COLUMNS} for each in objects]
    assert decoded.rows.to_pylist() == once + once


GOOD = b'{"n": %d}'


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_whatever_a_message_says_it_is_decoded_as_it_says_or_told(name: str, data: st.DataObject) -> None:
    """Between neighbours, each of which must be there once."""
    texts = data.draw(st.lists(json_texts(TYPES[name]), min_size=1, max_size=8))
    columns: dict[str, Kind | DataType] = {"n": Kind.INT64, "v": TYPES[name]}
    values: list[bytes | None] = []
    for place, text in enumerate(texts):
        values += [GOOD % place, f'{{"n": {place}, "v": {text}}}'.encode("utf-8", "surrogatepass")]
    values.append(GOOD % len(texts))
    decoded = decode(columns, values, wanted=["n", "v", "_offset"])
    rows = dict(zip(values_of(decoded.rows["_offset"]), values_of(decoded.rows["v"]), strict=True))
    broken = {each.offset for each in decoded.broken}
    assert len(rows) == decoded.rows.num_rows
    assert sorted([*rows, *broken]) == list(range(len(values)))
    assert all(place in rows for place in range(0, len(values), 2))
    for place, text in enumerate(texts):
        offset = 2 * place + 1
        assert offset in broken or is_made_of(text, rows[offset], TYPES[name]), (text, rows[offset])


_cells = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from('",\n\r\\N\u2028\x85\x0b\x0c\x1c\x1d\x1e')),
    max_size=10,
)


@settings(max_examples=examples(300))
@given(
    st.lists(st.tuples(st.none() | _cells, st.none() | _cells), min_size=1, max_size=6),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.booleans(),
)
def test_texts_come_out_of_csv_as_they_went_in(
    lines: list[tuple[str | None, str | None]], end: str, is_quoted: bool
) -> None:
    def cell(text: str | None) -> str:
        if text is None:
            return "\\N"
        must = is_quoted or text == "\\N" or any(c in text for c in '",\n\r')
        return '"{}"'.format(text.replace('"', '""')) if must else text

    text = end.join(",".join(map(cell, line)) for line in lines)
    decoded = decode({"a": Kind.STRING, "b": Kind.STRING}, [text.encode(), b"x,y"], kafka_format="CSV")
    assert not decoded.broken
    assert [tuple(row.values()) for row in decoded.rows.to_pylist()] == [*lines, ("x", "y")]


@pytest.mark.parametrize("name", TYPES)
@settings(max_examples=examples(30))
@given(data=st.data())
def test_no_cell_of_csv_touches_its_neighbours(name: str, data: st.DataObject) -> None:
    texts = data.draw(st.lists(st.one_of(json_texts(TYPES[name]), _cells), min_size=1, max_size=6))
    values: list[bytes | None] = []
    for place, text in enumerate(texts):
        quoted = '"{}"'.format(text.replace('"', '""'))
        values += [b"%d,\\N" % place, f"{place},{quoted}".encode("utf-8", "surrogatepass")]
    decoded = decode(
        {"n": Kind.INT64, "v": TYPES[name]}, [*values, b"7,\\N"], wanted=["v", "_offset"], kafka_format="CSV"
    )
    offsets = decoded.rows.column("_offset").to_pylist()
    assert sorted([*offsets, *(each.offset for each in decoded.broken)]) == list(range(len(values) + 1))
    assert set(range(0, len(values) + 1, 2)) <= set(offsets)
    # The decoded values can be read.
    assert len(values_of(decoded.rows["v"])) == len(offsets)


#: Bytes that formats of text give a meaning to.
_bytes = st.one_of(
    st.binary(max_size=12),
    st.lists(
        st.sampled_from(
            [
                b"a",
                b",",
                b'"',
                b"\n",
                b"\r",
                b"\r\n",
                b"1",
                b"\\N",
                b"[1]",
                b"[NaN,2]",
                b"null",
                b"{}",
                b" ",
                b"\xef\xbb\xbf",
            ]
        ),
        max_size=6,
    ).map(b"".join),
)


@pytest.mark.parametrize(
    ("form", "columns"),
    [
        ("CSV", {"a": Kind.STRING}),
        ("CSV", {"a": Kind.STRING, "b": Kind.INT32}),
        ("CSV", {"a": Kind.STRING, "b": Array(Simple(Kind.FLOAT64))}),
        ("CSVWithNames", {"a": Kind.STRING, "b": Kind.INT32}),
        ("LineAsString", {"a": Kind.STRING}),
        ("RawBLOB", {"a": Kind.BINARY}),
    ],
)
@settings(max_examples=examples(200))
@given(data=st.data())
def test_a_message_means_the_same_alone_and_among_others(
    form: str, columns: dict[str, Kind | DataType], data: st.DataObject
) -> None:
    messages = data.draw(st.lists(_bytes, max_size=5))
    wanted = [*columns, "_offset"]
    together = decode(columns, messages, wanted=wanted, kafka_format=form)
    alone = [decode(columns, [each], wanted=wanted, kafka_format=form) for each in messages]
    rows = [row | {"_offset": offset} for offset, each in enumerate(alone) for row in each.rows.to_pylist()]
    assert repr(together.rows.to_pylist()) == repr(rows)
    assert [(each.offset, each.reason) for each in together.broken] == [
        (offset, broken.reason) for offset, each in enumerate(alone) for broken in each.broken
    ]


@settings(max_examples=examples(200))
@given(
    st.lists(st.binary(max_size=30), max_size=10), st.sampled_from(["LineAsString", "RawBLOB", "JSONEachRow", "CSV"])
)
def test_bytes_of_any_kind_are_rows_or_told(messages: list[bytes], form: str) -> None:
    kind = Kind.BINARY if form == "RawBLOB" else Kind.STRING
    decoded = decode({"a": kind}, [*messages, b""], wanted=["a", "_offset"], kafka_format=form)
    told = {each.offset for each in decoded.broken}
    found = set(decoded.rows.column("_offset").to_pylist())
    assert not told & found
    if form == "RawBLOB":
        assert decoded.rows.column("a").to_pylist() == [each for each in messages if each]
    if form == "LineAsString":
        texts = [each.decode() for place, each in enumerate(messages) if place not in told]
        lines = [line for text in texts for line in text.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
        assert [line for line in decoded.rows.column("a").to_pylist() if line] == [line for line in lines if line]
