"""Pieces of a body, cut at any of the positions that are offered, are the rows of the whole body."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilth.formats import BadValueError, Cutter
from tilth.formats.cutters import CsvCutter, LineCutter, ObjectCutter
from tilth.formats.kinds.csv import csv_cells
from tilth.formats.kinds.json import _objects

#: Pieces of CSV of which each means something else behind each other one.
_CSV = ["a", '"', '""', ",", "\n", "\r\n", '"x\ny"', ',"q",', '\n"r",', "é", "\\N", '"\\N"', "\ufeff", ' "', "\n\n"]
_JSON = ["{", "}", "[", "]", ",", "\n", " ", '"a":', '"}\\n{"', '{"a":1}', '{"a":{}}', '{"a":[{},\n{}]}', "1", "\r\n"]


def pieces(cutter: Cutter, body: bytes, block: int) -> list[bytes]:
    """The body cut at all positions that the cutter offers, in blocks of this size."""
    cuts = []
    for start in range(0, len(body), block):
        cutter.feed(body[start : start + block])
        wanted = 0
        while (found := cutter.find(wanted)) is not None:
            assert wanted <= found <= block
            cuts.append(start + found)
            wanted = found + 1 if found == wanted else found
    return [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]


def rows_of(body: bytes, delimiter: str = ",") -> list[tuple[object, ...]]:
    cells = csv_cells(body.decode(), delimiter, has_names=False)
    return list(zip(*cells, strict=True))


@given(st.lists(st.sampled_from(_CSV), max_size=25), st.sampled_from([1, 3, 5, 8, 100]))
def test_whatever_is_csv_is_the_same_in_pieces(parts: list[str], block: int) -> None:
    body = "".join(parts).encode()
    try:
        whole = rows_of(body)
    except BadValueError:
        return
    assert [row for piece in pieces(CsvCutter(","), body, block) for row in rows_of(piece)] == whole


#: Values in quotes, and values without, in which a quote is a character.
_CELLS = st.one_of(
    st.text('a",\n\r\ufeff', max_size=8).map(lambda text: '"' + text.replace('"', '""') + '"'),
    st.text("ab \ufeff", max_size=4).flatmap(
        lambda text: st.sampled_from([text, f"x{text}", f'x"{text}', f'x""{text}'])
    ),
)


@given(
    st.lists(st.tuples(_CELLS, _CELLS), min_size=1, max_size=12),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([3, 5, 8, 100]),
)
def test_csv_in_pieces_is_the_same(rows: list[tuple[str, str]], end: str, block: int) -> None:
    body = "".join(f"{first},{second}{end}" for first, second in rows).encode()
    whole = rows_of(body)
    assert len(whole) == len(rows)
    assert [row for piece in pieces(CsvCutter(","), body, block) for row in rows_of(piece)] == whole


def test_csv_of_many_rows_is_cut() -> None:
    body = b'1,"a\nb",5" disk\r\n' * 50
    assert len(pieces(CsvCutter(","), body, 40)) > 30
    assert len(pieces(CsvCutter(";"), b'"a;\n";b\n' * 50, 64)) > 30


@given(st.lists(st.sampled_from(_JSON), max_size=20), st.sampled_from([3, 8, 100]))
def test_objects_in_pieces_are_the_same(parts: list[str], block: int) -> None:
    body = "".join(parts)
    try:
        whole = list(_objects(body))
    except BadValueError:
        return
    cut = pieces(ObjectCutter(), body.encode(), block)
    assert [each for piece in cut for each in _objects(piece.decode())] == whole


@pytest.mark.parametrize("between", ["\n", "\r\n", " \n\n\t", "\n  "])
def test_objects_are_cut_between_lines(between: str) -> None:
    body = between.join(['{"a": "}\\n{"}', '{\n"b": [{},\n{}]\n}', '{"c": 1}'] * 20).encode()
    cut = pieces(ObjectCutter(), body, 50)
    assert len(cut) > 20
    assert all(piece.startswith(b"{") for piece in cut)


def test_objects_with_commas_between_are_not_cut() -> None:
    assert len(pieces(ObjectCutter(), b'{"a": 1},\n' * 50, 64)) == 1


@given(st.binary(max_size=60), st.sampled_from([1, 7, 100]))
def test_lines_in_pieces_are_the_same(body: bytes, block: int) -> None:
    cut = pieces(LineCutter(), body, block)
    assert [line for piece in cut for line in piece.splitlines()] == body.splitlines()
