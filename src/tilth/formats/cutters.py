r"""Positions at which a large body of rows may be cut, found without reading a row. Pure.

Covers: lines, JSON objects, CSV. Does not cover: which of the positions are used, and Arrow streams, whose batches are
cut (statements/inserts/bodies).
Always holds: the bytes before a cut and those behind it, read one after the other, are the rows that they are together.
A body that no reader accepts may be cut anywhere; one of its pieces is then refused.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

_LINE_END = ord("\n")
_QUOTE = ord('"')
#: A line end between two objects. Inside of an object there is none behind `}` and before `{`: a comma stands between
#: values, and texts have no line end.
_BETWEEN_OBJECTS = re.compile(rb"\}[ \t\r]*\n[ \t\r\n]*(?=\{)")


class LineCutter:
    """Cuts behind line ends."""

    def __init__(self) -> None:
        self._block = b""

    def feed(self, block: bytes) -> None:
        self._block = block

    def find(self, wanted: int) -> int | None:
        end = self._block.find(b"\n", wanted)
        return end + 1 if end >= 0 else None


class ObjectCutter:
    """Cuts between JSON objects with a line end and no comma between them."""

    def __init__(self) -> None:
        self._block = b""

    def feed(self, block: bytes) -> None:
        self._block = block

    def find(self, wanted: int) -> int | None:
        found = _BETWEEN_OBJECTS.search(self._block, wanted)
        return found.end() if found is not None else None


class CsvCutter:
    r"""Cuts behind a `\n` outside of quotes; a quote opens a value only where the value begins, as for all readers."""

    def __init__(self, delimiter: str) -> None:
        self._before = np.zeros(256, bool)
        self._before[[delimiter.encode()[-1], _LINE_END, ord("\r")]] = True
        self._block = b""
        #: `True` if the block ends inside of quotes.
        self._is_quoted = False
        #: `True` if the block ends with a closing quote, which a second one opens again.
        self._has_closed = False
        #: `True` if a value may begin with the next block.
        self._is_beginning = True
        #: Begins and ends of the quoted spans of this block.
        self._starts: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._ends: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def feed(self, block: bytes) -> None:
        self._block = block
        if not block:
            return
        bytes_of = np.frombuffer(block, np.uint8)
        quotes = np.flatnonzero(bytes_of == _QUOTE)
        opens = quotes[int(self._is_quoted) :: 2]
        may_open = self._may_open(bytes_of, opens)
        if not may_open.all():
            quotes = self._real(bytes_of, quotes)
        self._note(len(block), quotes)
        self._is_beginning = bool(self._before[block[-1]])

    def find(self, wanted: int) -> int | None:
        block = self._block
        at = block.find(b"\n", wanted)
        while at >= 0:
            index = int(np.searchsorted(self._starts, at, side="right")) - 1
            if index >= 0 and at < self._ends[index]:
                at = block.find(b"\n", int(self._ends[index]))
                continue
            end = at + 1
            # A reader removes a byte order mark that a piece begins with.
            mark = block[end : end + len(codecs.BOM_UTF8)]
            if len(mark) == len(codecs.BOM_UTF8) and mark != codecs.BOM_UTF8:
                return end
            at = block.find(b"\n", end)
        return None

    def _may_open(self, bytes_of: npt.NDArray[np.uint8], opens: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each of the quotes that open, if all quotes count, whether it stands where a value begins, or
        behind one that closes."""
        before = bytes_of[opens - 1]
        may_open: npt.NDArray[np.bool_] = self._before[before] | (before == _QUOTE)
        if len(opens) and opens[0] == 0:
            may_open[0] = self._is_beginning or self._has_closed
        return may_open

    def _real(self, bytes_of: npt.NDArray[np.uint8], quotes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the quotes without those that are characters of a value without quotes."""
        return np.fromiter(self._open_and_close(bytes_of, quotes), np.int64)

    def _open_and_close(self, bytes_of: npt.NDArray[np.uint8], quotes: npt.NDArray[np.int64]) -> Iterator[int]:
        is_quoted, closed_at = self._is_quoted, -1 if self._has_closed else -2
        for at in quotes.tolist():
            if is_quoted:
                is_quoted, closed_at = False, at
            elif closed_at == at - 1 or (self._before[bytes_of[at - 1]] if at else self._is_beginning):
                is_quoted = True
            else:
                continue
            yield at

    def _note(self, size: int, quotes: npt.NDArray[np.int64]) -> None:
        """Keep the quoted spans, and the state at the end of the block."""
        if self._is_quoted:
            quotes = np.concatenate([np.zeros(1, np.int64), quotes])
        self._is_quoted = len(quotes) % 2 == 1
        self._has_closed = not self._is_quoted and len(quotes) > 0 and int(quotes[-1]) == size - 1
        self._starts = quotes[::2]
        self._ends = quotes[1::2] if not self._is_quoted else np.append(quotes[1::2], size)
