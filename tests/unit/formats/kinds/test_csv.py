"""CSV as INSERT reads it: what is NULL, what is text, where lines end, and what is told of a wrong row."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tilth.base.errors import TilthError
from tilth.formats import Reading, texts_array
from tilth.formats import texts as module
from tilth.formats.kinds import csv
from tilth.model.table import Column
from tilth.model.types import DataType, Decimal, Kind, Simple


def csv_texts(text: str, *, has_names: bool) -> list[pa.Array]:
    """The cells as both ways of splitting find them, which must be the same."""
    slow = [pa.array(cells, pa.string()) for cells in csv.csv_cells(text, ",", has_names=has_names)]
    if csv._is_regular(text.encode(), ord(",")):
        fast = csv._split_by_arrow(text.encode(), ",", has_names=has_names)
        assert [column.to_pylist() for column in fast] == [column.to_pylist() for column in slow]
        return fast
    return slow


def rows(text: str, *, has_names: bool = False) -> list[tuple[str | None, ...]]:
    return list(zip(*(column.to_pylist() for column in csv_texts(text, has_names=has_names)), strict=True))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("\n\r\n", []),
        ("a", [("a",)]),
        ("a,b\n", [("a", "b")]),
        ('\\N,"\\N",""\n,x,y', [(None, "\\N", ""), ("", "x", "y")]),
        ('"a\r\nb","c""d"\r\n"e,f",g\r\n', [("a\r\nb", 'c"d'), ("e,f", "g")]),
        ("a\u2028b\x0b,\x85\x1c\n", [("a\u2028b\x0b", "\x85\x1c")]),
        ("\n\na,b\n\nc,d\n\n", [("a", "b"), ("c", "d")]),
        ('5" disk,x\ny,z\n', [('5" disk', "x"), ("y", "z")]),
        ('""\n\\N\n', [("",), (None,)]),
        (f'"{"x" * 300_000}",y', [("x" * 300_000, "y")]),
    ],
)
def test_cells(text: str, expected: list[tuple[str | None, ...]]) -> None:
    assert rows(text) == expected


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("1,2\n3\n4,5\n", "row=2 values=1 first=2"),
        ("1,2\n\n3,4,5\n", "row=2 values=3 first=2"),
        ('1,"2', "a quote is not closed: row=1"),
        ('1,2\n3,"4\n', "a quote is not closed: row=2"),
        ('1\n"2', "a quote is not closed: row=2"),
        ('"1\n2\n3', "a quote is not closed: row=1"),
        ('1,2\n"3"4,5\n', "not CSV: row=2"),
        ('""3,4\n', "not CSV: row=1"),
    ],
)
def test_what_is_no_csv(text: str, told: str) -> None:
    with pytest.raises(TilthError) as caught:
        csv_texts(text, has_names=False)
    assert (caught.value.code, told in str(caught.value)) == ("BAD_VALUE", True), caught.value


def test_a_line_of_names_is_not_counted() -> None:
    with pytest.raises(TilthError, match="row=1 values=1"):
        csv_texts("a,b\n1\n", has_names=True)


@pytest.mark.parametrize(
    ("data_type", "texts", "values"),
    [
        (Simple(Kind.INT8), ["1", "-128", "", "\\N"], [1, -128, None, None]),
        (Simple(Kind.INT32), [" 7 ", "+7"], [7, 7]),
        (Simple(Kind.FLOAT64), ["1.5", "nan", "-Infinity", "-0.0"], None),
        (Simple(Kind.BOOLEAN), ["true", "0", ""], [True, False, None]),
        (Decimal(5, 2), ["1.5", "100", "1e2"], None),
        (Simple(Kind.STRING), ["", '"\\N"', "x"], ["", "\\N", "x"]),
        (Simple(Kind.BINARY), ["AAE=", "", "\\N"], [b"\x00\x01", b"", None]),
        (Simple(Kind.TIMESTAMP), ["2026-01-01 00:00:00", "2026-01-01T00:00:00Z", "+10000-01-01"], None),
        (Simple(Kind.DATE), ["2026-01-01", "+10000-01-01"], None),
    ],
)  # fmt: skip
def test_arrow_reads_as_python_does(
    data_type: DataType, texts: list[str], values: list[object] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    column = Column(id=1, name="c", type=data_type)
    for chosen in ([text] for text in texts):
        (cells,) = csv_texts("\n".join(chosen) or '""', has_names=False)
        fast = texts_array(column, cells, reading=Reading(is_base64=True), position=1)
        with monkeypatch.context() as patch:
            patch.setattr(module, "_cast", lambda *_: None)
            slow = texts_array(column, cells, reading=Reading(is_base64=True), position=1)
        assert [str(scalar) if scalar.is_valid else None for scalar in fast.view(_shown(fast))] == [
            str(scalar) if scalar.is_valid else None for scalar in slow.view(_shown(slow))
        ]
        if values is not None:
            assert slow.to_pylist() == [values[texts.index(chosen[0])]]


def _shown(array: pa.Array) -> pa.DataType:
    """A type that Python can show: far dates and times as numbers."""
    if pa.types.is_timestamp(array.type):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(array.type) else array.type


@pytest.mark.parametrize(
    ("data_type", "text"),
    [
        (Simple(Kind.INT32), "0x10"),
        (Simple(Kind.INT32), "1_0"),
        (Simple(Kind.INT32), "\uff11"),
        (Simple(Kind.INT32), "1.5"),
        (Simple(Kind.INT8), "128"),
        (Simple(Kind.FLOAT32), "1e39"),
        (Simple(Kind.FLOAT64), "1e400"),
        (Simple(Kind.BINARY), "%%%"),
        (Simple(Kind.TIMESTAMP), "2026-01-01T00:00:00.1234567Z"),
        (Decimal(5, 2), "1.234"),
        (Decimal(5, 2), "1234"),
        (Decimal(10, 2), "1e-100000000"),
    ],
)
def test_texts_that_are_no_values(data_type: DataType, text: str) -> None:
    (cells,) = csv_texts(f"\\N\n{text}\n", has_names=False)
    with pytest.raises(TilthError, match="row=2 value=1 column=c"):
        texts_array(Column(id=1, name="c", type=data_type), cells, reading=Reading(is_base64=True), position=1)


def test_an_x_in_the_header_is_in_no_value() -> None:
    column = Column(id=1, name="x", type=Simple(Kind.INT32))
    (cells,) = csv_texts("x\n5\n\\N\n", has_names=True)
    assert texts_array(column, cells.slice(1), reading=Reading(), position=1).to_pylist() == [5, None]
    (cells,) = csv_texts("x\n5\n0X10\n", has_names=True)
    with pytest.raises(TilthError, match="row=2 value=1 column=x"):
        texts_array(column, cells.slice(1), reading=Reading(), position=1)


@pytest.mark.parametrize(
    "texts",
    [
        ["2026-01-01 00:00:00Z", "2026-01-01T05:00:00.5Z", "\\N"],
        ["2026-01-01 00:00:00Z", "2026-01-01 00:00:00+01:00"],
        ["2026-01-01 00:00:00Z", "2026-01-01 00:00:00"],
        ["2026-01-01 00:00:00", "2026-01-01"],
        ["\\N", '""'],
    ],
)
def test_times_of_several_forms_are_read_as_one_by_one(texts: list[str]) -> None:
    column = Column(id=1, name="c", type=Simple(Kind.TIMESTAMP))

    def read(chosen: list[str]) -> list[object]:
        (cells,) = csv_texts("\n".join(chosen), has_names=False)
        return list(texts_array(column, cells, reading=Reading(), position=1).to_pylist())

    assert read(texts) == [value for text in texts for value in read([text])]
