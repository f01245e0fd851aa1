"""Columns that ORC can carry; what is written is read by Spark in tests/integration/sql/test_export_on_spark.py."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tilth.formats import BadValueError
from tilth.query.worker.orc_values import FIRST_DAY, check_orc_values, orc_schema

_DAY = 86_400_000_000


def days(*values: int | None) -> pa.Array:
    return pa.array(values, pa.int32()).view(pa.date32())


def times(*values: int | None, zone: str | None = "UTC") -> pa.Array:
    return pa.array(values, pa.int64()).view(pa.timestamp("us", zone))


def test_values_that_readers_understand_pass() -> None:
    columns = {
        "d": days(FIRST_DAY, None, (1 << 31) - 1),
        "t": times(FIRST_DAY * _DAY, -1_000_000, None),
        "n": times(1, 253_402_300_799_999_999, None, zone=None),
        "s": pa.array(["", None, "x"]),
    }
    check_orc_values(pa.table(columns))
    check_orc_values(pa.table({}))


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        (days(0, FIRST_DAY - 1), "1582-10-14"),
        (times(FIRST_DAY * _DAY - 1_000_000), "1582-10-14 23:59:59.000000Z"),
        (times(-1), "1969-12-31 23:59:59.999999Z"),
        (times(-1_500_000, zone=None), "1969-12-31 23:59:58.500000"),
        (times(-(1 << 62), zone=None), "<value out of range: -4611686018427387904>"),
        (pa.ListArray.from_arrays([0, 1], days(-719_162)), "0001-01-01"),
        (pa.StructArray.from_arrays([days(-719_162)], ["x"]), "0001-01-01"),
        (pa.MapArray.from_arrays([0, 1], pa.array(["k"]), times(-1)), "1969-12-31 23:59:59.999999Z"),
        (pa.MapArray.from_arrays([0, 1], days(-719_162), pa.array([1])), "0001-01-01"),
    ],
)
def test_others_are_refused_by_their_column(values: pa.Array, shown: str) -> None:
    with pytest.raises(BadValueError) as caught:
        check_orc_values(pa.table({"good": [1] * len(values), "bad": values}))
    assert (caught.value.facts["column"], caught.value.facts["value"]) == ("bad", shown)


def test_values_below_null_do_not_count() -> None:
    inner = pa.StructArray.from_arrays([days(-719_162, 0)], ["x"], mask=pa.array([True, False]))
    check_orc_values(pa.table({"c": inner}))


def test_a_column_of_no_type_is_one_of_texts() -> None:
    schema = pa.schema([("a", pa.null()), ("b", pa.int8())])
    assert orc_schema(schema) == pa.schema([("a", pa.string()), ("b", pa.int8())])
