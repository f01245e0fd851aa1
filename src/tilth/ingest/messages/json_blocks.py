"""Blocks of messages to columns by the compiled kernel: one pass over each byte, without an object for each value.

Covers: Arrow columns of its output, values that msgspec reads. Does not cover: loading the kernel (compiled.py),
reading bytes (json_kernel.py), the layout of its arrays (json_cells.py), messages that are doubtful (objects.py).
Always holds: a row is what objects.py makes of the same message; where that is not certain, the message is doubtful.

Tests: tests/property/test_json_kernel.py, tests/unit/ingest/messages/test_decode.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.base.units import GIB
from tilth.ingest.batch import Numbers, Texts
from tilth.ingest.compiled import LOAD_AFTER_BYTES, KernelLoader
from tilth.ingest.messages import json_cells as cells
from tilth.ingest.messages.arrays import MISFITS, checked_array
from tilth.ingest.messages.in_c import Doubts, value_decoder
from tilth.model.table import Column, Schema
from tilth.model.types import INTEGER_BITS, Kind, Simple
from tilth.storage import arrow_type, misfits

#: Offsets of texts have 32 bits.
_BLOCK_BYTES_MAX = GIB
#: Share of doubtful messages beyond which the kernel is no gain, and the number of blocks then read without it.
_DOUBTS_MAX = 0.25
_BLOCKS_WITHOUT = 15
#: Kinds of columns for the kernel by the kind of their type; all others are spans.
_KINDS: Mapping[Kind, int] = {
    Kind.FLOAT32: cells.DOUBLE,
    Kind.FLOAT64: cells.DOUBLE,
    Kind.STRING: cells.TEXT,
    Kind.TIMESTAMP: cells.INSTANT,
    Kind.TIMESTAMP_NTZ: cells.WALL,
    Kind.DATE: cells.DATE,
    Kind.BOOLEAN: cells.BOOLEAN,
} | dict.fromkeys(INTEGER_BITS, cells.INTEGER)

#: The kernel, and what it is compiled with.
_KERNEL = (
    "tilth.ingest.messages.json_kernel",
    "tilth.ingest.messages.json_values",
    "tilth.ingest.messages.json_cells",
)


def kernel_loader(after_bytes: int = LOAD_AFTER_BYTES) -> KernelLoader:
    """Return a loader of the kernel."""
    probe = Schema(columns=(Column(id=1, name="a", type=Simple(Kind.STRING)),))

    def try_out(kernel: ModuleType) -> None:
        BlockReader(probe, skip_unknown=True, defaults={}, loader=loader).try_out(kernel)

    loader = KernelLoader(_KERNEL, try_out, after_bytes=after_bytes)
    return loader


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A row for each message; those of doubtful messages mean nothing."""

    #: Requested columns by their positions.
    arrays: Mapping[int, pa.Array]
    #: Indices of messages that must be read by objects.py.
    doubtful: Numbers


@dataclass(frozen=True, slots=True)
class _Output:
    """Arrays that the kernel fills; see `read_objects`."""

    values: Numbers
    ends: Numbers
    states: Numbers
    doubts: Numbers


class BlockReader:
    """Reads blocks of messages of one Kafka table that are plain JSON objects."""

    def __init__(
        self, schema: Schema, *, skip_unknown: bool, defaults: Mapping[str, object], loader: KernelLoader
    ) -> None:
        self._loader = loader
        self._columns = schema.columns
        self._skips_unknown = skip_unknown
        self._defaults = [defaults.get(column.name) for column in schema.columns]
        self._kinds = [_kind_of(column) for column in schema.columns]
        self._spans = {
            position: _SpanReader(column)
            for position, column in enumerate(schema.columns)
            if self._kinds[position] == cells.SPAN
        }
        names = [column.name.encode() for column in schema.columns]
        self._keys = np.frombuffer(b"".join(names), np.uint8)
        self._key_offsets = np.cumsum([0, *map(len, names)])
        self._order = np.full(2 * len(names), -1)
        self._rules = np.array(self._rules_of())
        self._slots = np.full(1 << (4 * len(names)).bit_length(), -1)
        self._has_slots = False
        #: Number of blocks that are read without the kernel next.
        self._without = 0

    @property
    def can_read(self) -> bool:
        """`True` if JSON has the names of the columns as they are, and msgspec reads the values of all spans."""
        names = [column.name for column in self._columns]
        is_plain = all(min(name, default="\0") >= " " and '"' not in name and "\\" not in name for name in names)
        return is_plain and all(each.can_read for each in self._spans.values())

    def read(self, texts: Texts, positions: Sequence[int]) -> Block | None:
        """Return the columns at these positions; None: objects.py must read the block."""
        if self._without:
            self._without -= 1
            return None
        size = int(texts.offsets[-1])
        kernel = self._loader.count(size)
        if kernel is None or not len(texts) or size > _BLOCK_BYTES_MAX:
            return None
        buffer, output = texts.buffer, self._output(kernel, texts)
        try:
            # Spans that are not requested are read, too: a message may be broken by them.
            arrays = {each: self._array(kernel, buffer, output, each) for each in {*positions, *self._spans}}
        except MISFITS:
            # objects.py finds the message.
            self._without = _BLOCKS_WITHOUT
            return None
        doubtful = np.flatnonzero(output.doubts)
        if len(doubtful) > _DOUBTS_MAX * len(texts):
            self._without = _BLOCKS_WITHOUT
        return Block(arrays={position: arrays[position] for position in positions}, doubtful=doubtful)

    def try_out(self, kernel: ModuleType) -> None:
        """Call all functions of the kernel once; raises whatever they do."""
        texts = Texts([b'{"a":"b"}'])
        assert self._array(kernel, texts.buffer, self._output(kernel, texts), 0).to_pylist() == ["b"]

    def _output(self, kernel: ModuleType, texts: Texts) -> _Output:
        if not self._has_slots:
            kernel.fill_slots(self._keys, self._key_offsets, self._slots)
            self._has_slots = True
        count = len(texts)
        shape = (len(self._columns), count)
        output = _Output(
            values=np.empty(shape, np.int64),
            ends=np.empty((int(self._rules[:, cells.ENDS_ROW].max()) + 1, count), np.int64),
            states=np.zeros(shape, np.uint8),
            doubts=np.zeros(count, np.uint8),
        )
        # A zero byte ends each text, so the whole is UTF-8 only if each of them is.
        if not _is_utf8(texts.buffer):
            output.doubts[[row for row, text in enumerate(texts.items) if text and not _is_utf8(text)]] = 1
        kernel.read_objects(
            np.frombuffer(texts.buffer, np.uint8),
            texts.offsets,
            self._keys,
            self._key_offsets,
            self._slots,
            self._rules,
            self._order,
            self._skips_unknown,
            output.values,
            output.ends,
            output.states,
            output.doubts,
        )
        return output

    def _rules_of(self) -> list[list[int]]:
        """Return the rules of the columns; see json_cells.py."""
        rules, ends_rows = [], 0
        for column, kind, default in zip(self._columns, self._kinds, self._defaults, strict=True):
            can_lack = column.nullable or default is not None
            bits = INTEGER_BITS.get(column.type.kind, 64) if isinstance(column.type, Simple) else 64
            bound = 1 << (bits - 1)
            has_end = kind in (cells.TEXT, cells.SPAN)
            ends_row = ends_rows if has_end else -1
            rules.append([kind, can_lack, not can_lack, -bound, bound - 1, ends_row, bool(column.zones)])
            ends_rows += has_end
        return rules

    def _array(self, kernel: ModuleType, buffer: bytes, output: _Output, position: int) -> pa.Array:
        """Return the column; marks messages whose value breaks a check as doubtful. Raises MISFITS."""
        column, kind, default = self._columns[position], self._kinds[position], self._defaults[position]
        values, states = output.values[position], output.states[position]
        if kind == cells.SPAN:
            ends = self._ends(output, position)
            return self._spans[position].array(buffer, values, ends, states, output.doubts, default)
        if kind == cells.TEXT:
            array = _texts(kernel, buffer, values, self._ends(output, position), states)
        else:
            array = _numbers(column, kind, values, states < cells.FOUND, output.doubts)
        if default is not None and not states.all():
            array = pc.if_else(pa.array(states == cells.MISSING), pa.scalar(default, array.type), array)
        for wrong in misfits(array, column) if column.checks else ():
            output.doubts[wrong.row] = 1
        return array

    def _ends(self, output: _Output, position: int) -> Numbers:
        found: Numbers = output.ends[self._rules[position, cells.ENDS_ROW]]
        return found


class _SpanReader:
    """Reads the spans of one column by msgspec."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self._doubts = Doubts([column.type])
        self._decoder = value_decoder(column.type)

    @property
    def can_read(self) -> bool:
        return self._decoder is not None

    def array(
        self, buffer: bytes, starts: Numbers, ends: Numbers, states: Numbers, doubts: Numbers, default: object
    ) -> pa.Array:
        """Return the column; marks messages whose value msgspec refuses, or may read otherwise. Raises MISFITS."""
        assert self._decoder is not None
        decode = self._decoder.decode
        values: list[Any] = [default if state == cells.MISSING else None for state in states.tolist()]
        found = np.flatnonzero(states >= cells.FOUND)
        rows = found.tolist()
        spans = [buffer[start:end] for start, end in zip(starts[found].tolist(), ends[found].tolist(), strict=True)]
        for row, span in zip(rows, spans, strict=True):
            try:
                values[row] = decode(span)
            except (ValueError, RecursionError):
                doubts[row] = 1
        if self._doubts.exist_in(spans):
            doubts[[row for row, span in zip(rows, spans, strict=True) if self._doubts.exist_in([span])]] = 1
        return checked_array(values, self._column)


def _kind_of(column: Column) -> int:
    return _KINDS.get(column.type.kind, cells.SPAN) if isinstance(column.type, Simple) else cells.SPAN


def _texts(kernel: ModuleType, buffer: bytes, starts: Numbers, ends: Numbers, states: Numbers) -> pa.Array:
    are_found = states >= cells.FOUND
    # An escape is longer than its character.
    out = np.empty(int(np.sum(ends - starts, where=are_found)), np.uint8)
    offsets = np.empty(len(starts) + 1, np.int32)
    kernel.copy_texts(np.frombuffer(buffer, np.uint8), starts, ends, states, out, offsets)
    valid = None if are_found.all() else pa.py_buffer(np.packbits(are_found, bitorder="little"))
    return pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(out[: offsets[-1]]), valid)


def _numbers(column: Column, kind: int, values: Numbers, are_null: Numbers, doubts: Numbers) -> pa.Array:
    """Return the column of any kind but texts and spans; marks messages whose number a FLOAT cannot hold."""
    mask = are_null if are_null.any() else None
    target = arrow_type(column.type)
    if kind == cells.BOOLEAN:
        return pa.array(values != 0, mask=mask)
    if kind == cells.DOUBLE:
        doubles = values.copy().view(np.float64)
        if pa.types.is_float32(target):
            with np.errstate(over="ignore"):
                doubles = doubles.astype(np.float32)
            doubts[np.isinf(doubles) & ~are_null] = 1
        return pa.array(doubles, mask=mask, from_pandas=False)
    if kind == cells.DATE:
        return pa.array(values.astype(np.int32), mask=mask).view(target)
    if kind == cells.INTEGER:
        return pa.array(values.astype(target.to_pandas_dtype()), mask=mask)
    return pa.array(values.copy(), mask=mask).view(target)


def _is_utf8(text: bytes) -> bool:
    if text.isascii():
        return True
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


#: The loader of this process.
LOADER = kernel_loader()
