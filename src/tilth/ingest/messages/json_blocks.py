"""Blocks of messages to columns by the compiled kernel: one pass over each byte, without an object for each value.

Covers: calling the kernel, and what it is called with. Does not cover: loading the kernel (compiled.py), reading bytes
(json_kernel.py), the layout of its arrays (json_cells.py), Arrow columns of its output (json_columns.py,
json_spans.py), messages that are doubtful (objects.py).
Always holds: a row is what objects.py makes of the same message; where that is not certain, the message is doubtful.

Tests: tests/property/test_json_kernel.py, tests/unit/ingest/messages/test_decode.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.base.units import GIB
from tilth.ingest.batch import Numbers, Texts
from tilth.ingest.compiled import LOAD_AFTER_BYTES, KernelLoader
from tilth.ingest.messages import json_cells as cells
from tilth.ingest.messages.arrays import MISFITS
from tilth.ingest.messages.json_columns import KINDS, bounds_of, numbers_of, texts_of
from tilth.ingest.messages.json_spans import Spans, span_reader
from tilth.model.table import Column, Schema
from tilth.model.types import DataType, Kind, Map, Simple
from tilth.storage import arrow_type, misfits

#: Offsets of texts have 32 bits.
_BLOCK_BYTES_MAX = GIB
#: Share of doubtful messages beyond which the kernel is no gain, and the number of blocks then read without it.
_DOUBTS_MAX = 0.25
_BLOCKS_WITHOUT = 15
#: The kernel, and what it is compiled with.
_KERNEL = (
    "tilth.ingest.messages.json_kernel",
    "tilth.ingest.messages.json_values",
    "tilth.ingest.messages.json_cells",
)


def kernel_loader(after_bytes: int = LOAD_AFTER_BYTES) -> KernelLoader:
    """Return a loader of the kernel."""
    kinds: dict[str, DataType] = {"a": Simple(Kind.STRING), "m": Map(Simple(Kind.STRING), Simple(Kind.INT64))}
    probe = Schema(columns=tuple(Column(id=i, name=name, type=kind) for i, (name, kind) in enumerate(kinds.items())))

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
        self._types = [arrow_type(column.type) for column in schema.columns]
        self._spans = {
            position: span_reader(column, self._defaults[position])
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
        output = self._output(kernel, texts)
        try:
            arrays = self._arrays(kernel, texts, output, positions)
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
        texts = Texts([b'{"a":"b","m":{"c":1}}'])
        arrays = self._arrays(kernel, texts, self._output(kernel, texts), [0, 1])
        assert [array.to_pylist() for array in arrays.values()] == [["b"], [[("c", 1)]]]

    def _output(self, kernel: ModuleType, texts: Texts) -> _Output:
        if not self._has_slots:
            kernel.fill_slots(self._keys, self._key_offsets, self._slots)
            self._has_slots = True
        count = len(texts)
        shape = (len(self._columns), count)
        output = _Output(
            # Zeros, because columns have the values of NULL, too.
            values=np.zeros(shape, np.int64),
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
            least, greatest = bounds_of(column.type)
            has_end = kind in (cells.TEXT, cells.SPAN)
            ends_row = ends_rows if has_end else -1
            rules.append([kind, can_lack, not can_lack, least, greatest, ends_row, bool(column.zones)])
            ends_rows += has_end
        return rules

    def _arrays(
        self, kernel: ModuleType, texts: Texts, output: _Output, positions: Sequence[int]
    ) -> dict[int, pa.Array]:
        """Return the columns at these positions, and those of spans; marks messages whose value breaks a check as
        doubtful. Raises MISFITS.
        """
        arrays: dict[int, pa.Array] = {}
        groups: dict[tuple[int, pa.DataType], list[int]] = {}
        for position in positions:
            if position not in self._spans:
                groups.setdefault((self._kinds[position], self._types[position]), []).append(position)
        for (kind, data_type), group in groups.items():
            states = output.states[group]
            if kind == cells.TEXT:
                ends = output.ends[self._rules[group, cells.ENDS_ROW]]
                found = texts_of(kernel, texts.buffer, output.values[group], ends, states)
            else:
                found, wrong = numbers_of(kind, data_type, output.values[group], states)
                output.doubts[wrong.any(axis=0)] = 1
            arrays |= zip(group, found, strict=True)
        # Spans that are not requested are read, too: a message may be broken by them.
        for position, reader in self._spans.items():
            ends = output.ends[self._rules[position, cells.ENDS_ROW]]
            spans = Spans(output.values[position], ends, output.states[position], output.doubts)
            arrays[position] = reader.array(kernel, texts, spans)
        for position, array in arrays.items():
            default, states = self._defaults[position], output.states[position]
            if default is not None and position not in self._spans and not states.all():
                array = pc.if_else(pa.array(states == cells.MISSING), pa.scalar(default, array.type), array)
                arrays[position] = array
            column = self._columns[position]
            for misfit in misfits(array, column) if column.checks else ():
                output.doubts[misfit.row] = 1
        return arrays


def _kind_of(column: Column) -> int:
    return KINDS.get(column.type.kind, cells.SPAN) if isinstance(column.type, Simple) else cells.SPAN


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
