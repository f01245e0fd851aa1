"""How much of each part a merge holds at a time."""

from __future__ import annotations

import pytest

from tilth.storage.merge.merge import BLOCK_ROWS_MIN, WINDOW_BYTES, block_rows_for


@pytest.mark.parametrize("parts", [1, 2, 50, 100])
@pytest.mark.parametrize("row_bytes", [1, 100, 10_000, 100_000])
def test_the_blocks_fit_into_the_window(row_bytes: int, parts: int) -> None:
    assert block_rows_for(row_bytes, parts) * row_bytes * parts <= WINDOW_BYTES


def test_of_rows_that_are_too_wide_there_is_one() -> None:
    assert block_rows_for(1 << 20, 100) == 1
    assert block_rows_for(1 << 30, 1) == 1


def test_narrow_rows_come_in_blocks_that_are_worth_it() -> None:
    assert block_rows_for(100, 10_000) == BLOCK_ROWS_MIN
