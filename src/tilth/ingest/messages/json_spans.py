"""Values of nested and rare types in the output of the compiled kernel, which finds where they begin and end.

Covers: values that msgspec reads, maps that the kernel reads. Does not cover: columns of other types (json_columns.py),
messages that are doubtful (objects.py).
Always holds: a value is what objects.py makes of it; where that is not certain, its message is doubtful.

Tests: tests/property/test_json_kernel.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from tilth.ingest.batch import Numbers, Texts
from tilth.ingest.messages import json_cells as cells
from tilth.ingest.messages.arrays import checked_array
from tilth.ingest.messages.in_c import Doubts, value_decoder
from tilth.ingest.messages.json_columns import KINDS, bounds_of, numbers_of, texts_of
from tilth.model.table import Column
from tilth.model.types import Kind, Map, Simple
from tilth.storage import arrow_type

#: Slots of the hash table of a block's keys for each of them, so that searches are short.
_SLOTS_OF_KEY = 4


@dataclass(frozen=True, slots=True)
class Spans:
    """The values of one column by message: where they begin and end in the block, their states, and the messages that
    are doubtful.
    """

    starts: Numbers
    ends: Numbers
    states: Numbers
    doubts: Numbers


class SpanReader(Protocol):
    """Reads the spans of one column."""

    @property
    def can_read(self) -> bool: ...

    def array(self, kernel: ModuleType, texts: Texts, spans: Spans) -> pa.Array:
        """Return the column; marks messages whose value cannot be read here as doubtful. Raises MISFITS."""


def span_reader(column: Column, default: object) -> SpanReader:
    """Return the reader of a column with this default; None: it has none."""
    match column.type:
        case Map(key=Simple(kind=Kind.STRING), value=Simple(kind=kind)) if kind in KINDS and default is None:
            return _MapReader(column, Simple(kind))
    return _ByMsgspec(column, default)


class _ByMsgspec:
    """Reads the spans of one column by msgspec."""

    def __init__(self, column: Column, default: object) -> None:
        self._column = column
        self._default = default
        self._doubts = Doubts([column.type])
        self._decoder = value_decoder(column.type)

    @property
    def can_read(self) -> bool:
        return self._decoder is not None

    def array(self, kernel: ModuleType, texts: Texts, spans: Spans) -> pa.Array:
        """Return the column; doubtful is also what msgspec may read otherwise than `to_stored`. Raises MISFITS."""
        assert self._decoder is not None
        decode, buffer = self._decoder.decode, texts.buffer
        values: list[Any] = [self._default if state == cells.MISSING else None for state in spans.states.tolist()]
        found = np.flatnonzero(spans.states >= cells.FOUND)
        rows = found.tolist()
        starts, ends = spans.starts[found].tolist(), spans.ends[found].tolist()
        given = [buffer[start:end] for start, end in zip(starts, ends, strict=True)]
        for row, text in zip(rows, given, strict=True):
            try:
                values[row] = decode(text)
            except (ValueError, RecursionError):
                spans.doubts[row] = 1
        if self._doubts.exist_in(given):
            spans.doubts[[row for row, text in zip(rows, given, strict=True) if self._doubts.exist_in([text])]] = 1
        return checked_array(values, self._column)


class _MapReader:
    """Reads the spans of one column of maps, from texts to values of a simple type, by the kernel."""

    def __init__(self, column: Column, value: Simple) -> None:
        self._type, self._value_type = arrow_type(column.type), arrow_type(value)
        self._kind = KINDS[value.kind]
        least, greatest = bounds_of(value)
        self._rule = np.array([self._kind, True, False, least, greatest, 0, bool(column.zones)])

    @property
    def can_read(self) -> bool:
        return True

    def array(self, kernel: ModuleType, texts: Texts, spans: Spans) -> pa.Array:
        rows = len(spans.states)
        # Each entry is the first of its message or behind a comma. Memory that is not written to costs nothing.
        most = texts.buffer.count(b",") + rows
        are_found = spans.states >= cells.FOUND
        keys = np.empty(int(np.sum(spans.ends - spans.starts, where=are_found)), np.uint8)
        offsets, key_ends = np.empty(rows + 1, np.int32), np.zeros(most + 1, np.int32)
        values, ends, found = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.uint8)
        kernel.read_maps(
            np.frombuffer(texts.buffer, np.uint8),
            spans.starts,
            self._rule,
            np.zeros(1 << (_SLOTS_OF_KEY * most).bit_length(), np.int32),
            np.empty((most, 2), np.int64),
            np.zeros(most, np.int32),
            np.zeros(most, np.int32),
            spans.states,
            spans.doubts,
            offsets,
            keys,
            key_ends,
            values,
            ends,
            found,
        )
        count = int(offsets[-1])
        given = (values[None, :count], found[None, :count])
        if self._kind == cells.TEXT:
            [items] = texts_of(kernel, texts.buffer, given[0], ends[None, :count], given[1])
        else:
            [items], wrong = numbers_of(self._kind, self._value_type, *given)
            entries = np.flatnonzero(wrong)
            spans.doubts[np.searchsorted(offsets, entries, side="right") - 1] = 1
        names = pa.StringArray.from_buffers(
            count, pa.py_buffer(key_ends[: count + 1]), pa.py_buffer(keys[: key_ends[count]])
        )
        is_null = pa.array(spans.states < cells.FOUND)
        return pa.MapArray.from_arrays(pa.array(offsets), names, items, type=self._type, mask=is_null)
