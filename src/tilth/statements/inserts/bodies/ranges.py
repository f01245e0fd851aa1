"""Ranges of a large body of text, each to be read by a task for itself, found while the body passes. Pure.

Covers: sizes, the line of names. Does not cover: where a body may be cut (formats/cutters.py), Arrow streams
(arrow_ranges.py), storing the body (streamed.py).
Always holds: the ranges are the whole body, in its order; each ends where a row ends; what is held of the body is one
block.

Tests: tests/unit/statements/inserts/bodies/test_streamed.py.
"""

from __future__ import annotations

from typing import Protocol

from tilth.base.errors import InvalidInputError
from tilth.base.units import MIB
from tilth.formats import Cutter
from tilth.query.snapshots.protocol import BodyRange

#: Size from which on a range ends at the next row that ends. Rows as Python's values take many times that.
RANGE_BYTES = 8 * MIB
#: Largest range, which bounds the memory of a task.
RANGE_BYTES_MAX = 64 * MIB
#: The body passes in blocks of this size, the last one smaller.
BLOCK_BYTES = 1 * MIB


class Ranges(Protocol):
    """Finds the ranges of a body."""

    def add(self, block: bytes) -> None:
        """Go on to the next block of the body. Raises InvalidInputError."""

    def end(self) -> list[BodyRange]:
        """Return the ranges of the whole body, at least one. Raises InvalidInputError."""


class TextRanges:
    """The ranges of rows as text."""

    def __init__(self, cutter: Cutter, *, has_names: bool) -> None:
        self._cutter = cutter
        self._needs_names = has_names
        self._heads: tuple[tuple[int, int], ...] = ()
        self._ranges: list[BodyRange] = []
        #: Beginnings of the range that has no end yet and of the next block.
        self._start = self._position = 0

    def add(self, block: bytes) -> None:
        self._cutter.feed(block)
        if self._needs_names:
            self._find_names(block)
        wanted = max(0, self._start + RANGE_BYTES - self._position)
        cut = self._cutter.find(wanted) if wanted < len(block) else None
        if cut is not None:
            self._cut(self._position + cut)
        self._position += len(block)
        if self._position - self._start > RANGE_BYTES_MAX:
            raise not_cut(self._start)

    def end(self) -> list[BodyRange]:
        if self._position > self._start or not self._ranges:
            self._cut(self._position)
        return self._ranges

    def _cut(self, end: int) -> None:
        heads = self._heads if self._start else ()
        self._ranges.append(BodyRange(start=self._start, size=end - self._start, heads=heads))
        self._start = end

    def _find_names(self, block: bytes) -> None:
        """Find the line of names, the first one that is not empty; it is a range's own in the first one."""
        end = self._cutter.find(0)
        while end is not None and not block[:end].strip(b"\r\n"):
            end = self._cutter.find(end)
        if end is None:
            raise not_cut(0)
        self._needs_names = False
        self._heads = ((0, end),)


def not_cut(start: int) -> InvalidInputError:
    """Return the error of a body without a row that ends for too long."""
    hint = "end each row, JSON object and line of names with a line end, without commas; send smaller batches of Arrow"
    return InvalidInputError.coded(
        "INSERT_NOT_CUT",
        "a body of this size is read in pieces, and this one has no end of a row for too long",
        position=start,
        bytes_max=RANGE_BYTES_MAX,
        hint=hint,
    )
