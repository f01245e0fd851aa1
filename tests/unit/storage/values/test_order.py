"""Order that is checked from stretch to stretch."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tilth.storage.values.order import OrderCheck


@pytest.mark.parametrize(
    ("stretches", "holds"),
    [
        ([["a", "b"], ["b", "c"]], [True, True]),
        ([["a", "c"], ["b"], ["c"]], [True, False, True]),
        ([["b", "a"]], [False]),
        ([[None, "a"], [], ["a"], [None]], [True, True, True, False]),
    ],
)
def test_a_stretch_continues_the_one_before(stretches: list[list[str | None]], holds: list[bool]) -> None:
    check = OrderCheck()
    keys = [pa.chunked_array([pa.array(stretch, pa.string())]) for stretch in stretches]
    assert [check.continues([key], len(key)) for key in keys] == holds


def test_the_second_key_counts_where_the_first_is_equal() -> None:
    check = OrderCheck()
    first, second = pa.chunked_array([[1, 1]]), pa.chunked_array([[5, 6]])
    assert check.continues([first, second], 2)
    assert check.continues([first, pa.chunked_array([[6, 7]])], 2)
    assert not check.continues([first, pa.chunked_array([[6, 8]])], 2)


def test_without_keys_everything_is_in_order() -> None:
    assert OrderCheck().continues([], 5)
