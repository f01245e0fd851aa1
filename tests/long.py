"""How much of a suite is run: some by `make test`, within minutes, and all by `make test-long` (tests/README.md#long).

Covers: cases of parametrizations and numbers of examples. Does not cover: which tests are marked `long` whole, numbers
of kills and rounds, which have variables of their own (Makefile). Always holds: `make test` runs one case at least.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

import pytest

#: Environment variable that makes a run use all examples; `make test-long` sets it.
VARIABLE = "TILTH_ALL_EXAMPLES"
#: Part of the examples that other runs make.
_PART = 4
_EXAMPLES_MIN = 10


def cases(values: Collection[Any], *, first: int = 1, and_also: Collection[Any] = ()) -> list[Any]:
    """Return the values of a parametrization, all of them but the first few and `and_also` marked `long`.

    Any: as pytest takes them.
    """
    assert first > 0 or and_also
    return [
        value if place < first or value in and_also else pytest.param(value, marks=pytest.mark.long)
        for place, value in enumerate(values)
    ]


def examples(number: int) -> int:
    """Return how many of so many examples this run makes."""
    if os.environ.get(VARIABLE):
        return number
    return min(number, max(_EXAMPLES_MIN, number // _PART))
