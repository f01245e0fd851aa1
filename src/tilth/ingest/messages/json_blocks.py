"""Blocks of messages to columns by the compiled kernel: one pass over each byte, without an object for each value.

Covers: the tables that it reads, columns of what it found, values for msgspec to read, loading it. Does not
cover: reading bytes (json_kernel.py), messages that are doubtful (objects.py).
Always holds: a row is what objects.py makes of the same message; where that is not certain, the message is doubtful. A
process that decodes little never loads the kernel, which costs a third of a second and 40 MiB, and four seconds where
nobody has compiled it before.

Tests: tests/property/test_json_kernel.py, tests/unit/ingest/messages/test_decode.py.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tilth.base.logs import Log
from tilth.base.units import GIB, MIB
from tilth.ingest.messages.arrays import MISFITS, checked_array
from tilth.ingest.messages.in_c import Decoder, Doubts, can_decode, decoder_of, python_type
from tilth.model.table import Column, Schema
from tilth.model.types import INTEGER_BITS, Kind, Simple
from tilth.storage import arrow_type, misfits

#: Bytes that a process decodes before it loads the kernel.
LOAD_AFTER_BYTES = 8 * MIB
#: Offsets of texts have 32 bits.
_BLOCK_BYTES_MAX = GIB
#: Share of doubtful messages from which on the kernel is no gain, and the blocks that are read without it then.
_DOUBTS_MAX = 0.25
_BLOCKS_WITHOUT = 15

_KINDS: Mapping[Kind, str] = {
    Kind.FLOAT32: "DOUBLE",
    Kind.FLOAT64: "DOUBLE",
    Kind.STRING: "TEXT",
    Kind.TIMESTAMP: "INSTANT",
    Kind.TIMESTAMP_NTZ: "WALL",
    Kind.DATE: "DATE",
    Kind.BOOLEAN: "BOOLEAN",
} | dict.fromkeys(INTEGER_BITS, "INTEGER")

_log = Log("ingest")

Numbers = np.ndarray[Any, np.dtype[Any]]


class KernelLoader:
    """Loads the kernel once in a process, when that is worth it, or finds that it cannot."""

    def __init__(self, after_bytes: int = LOAD_AFTER_BYTES) -> None:
        self._lock = threading.Lock()
        self._left = after_bytes
        self._kernel: ModuleType | None = None
        self._is_tried = False

    def count(self, size: int) -> ModuleType | None:
        """Count bytes to decode; return the kernel once they are enough, None before and where it cannot be loaded."""
        if not self._is_tried:
            self._left -= size
            if self._left <= 0:
                self._load()
        return self._kernel

    def _load(self) -> None:
        with self._lock:
            if self._is_tried:
                return
            try:
                # Its functions are compiled, and their code is stored, when they are called first.
                self._kernel = _loaded()
                probe = Schema(columns=(Column(id=1, name="a", type=Simple(Kind.STRING)),))
                BlockReader(probe, skip_unknown=True, defaults={}, loader=self).try_out(self._kernel)
            except Exception as error:  # whatever a compiler raises on a machine that it does not know
                why = f"{type(error).__name__}: {error}"
                _log.warning("messages are decoded without the compiled kernel", because=why)
                self._kernel = None
            self._is_tried = True


#: The loader of this process.
LOADER = KernelLoader()


def _loaded() -> ModuleType:
    """Import the kernel; raises OSError where its machine code cannot be stored, and what numba raises.

    The code of another version of the source lies in another folder: numba compares the time and size of one file only.
    """
    from numba.core import config

    here = Path(__file__).parent
    sources = b"".join((here / f"{module}.py").read_bytes() for module in ("json_kernel", "json_values"))
    name = f"kernel-{hashlib.sha256(sources).hexdigest()[:16]}"
    # Its settings are made at run time.
    settings: Any = config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(_writable(here / "__pycache__" / name, name))
    try:
        return importlib.import_module("tilth.ingest.messages.json_kernel")
    finally:
        settings.CACHE_DIR = before


def _writable(beside: Path, name: str) -> Path:
    """Return a folder for machine code, where only those who may change this program may write; raises OSError."""
    try:
        beside.mkdir(parents=True, exist_ok=True)
        if os.access(beside, os.W_OK):
            return beside
    except OSError:
        pass
    own = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tilth" / name
    own.mkdir(parents=True, exist_ok=True)
    return own


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """Rows of messages: one each, of which those of doubtful messages mean nothing."""

    #: Requested columns by their positions.
    arrays: Mapping[int, pa.Array]
    #: Indices of messages that must be read by objects.py.
    doubtful: Numbers


@dataclass(slots=True)
class _Cells:
    """Output of the kernel; positions are of bytes in the buffer."""

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
            for position, (column, kind) in enumerate(zip(schema.columns, self._kinds, strict=True))
            if kind == "SPAN"
        }
        names = [column.name.encode() for column in schema.columns]
        self._keys = np.frombuffer(b"".join(names), np.uint8)
        self._key_offsets = np.cumsum([0, *map(len, names)])
        self._order = np.full(2 * len(names), -1)
        #: Facts of the columns for the kernel; made when it is loaded.
        self._rules: Numbers | None = None
        self._slots = np.full(1 << (4 * len(names)).bit_length(), -1)
        self._without = 0

    @staticmethod
    def can_read(schema: Schema) -> bool:
        """Return whether the names of the columns are written in JSON as they are."""
        names = [column.name for column in schema.columns]
        is_plain = all(min(name, default="\0") >= " " and '"' not in name and "\\" not in name for name in names)
        return is_plain and all(each.is_readable for each in map(_SpanReader, schema.columns) if each.is_needed)

    def read(self, texts: Sequence[bytes | None], positions: Sequence[int]) -> Block | None:
        """Return the columns at these positions; None: the block is for objects.py."""
        if self._without:
            self._without -= 1
            return None
        given = [text or b"" for text in texts]
        offsets = np.zeros(len(given) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, given), np.int64, len(given)) + 1, out=offsets[1:])
        size = int(offsets[-1])
        kernel = self._loader.count(size)
        if kernel is None or not given or size > _BLOCK_BYTES_MAX:
            return None
        buffer = b"\0".join([*given, b""])
        cells = self._cells(kernel, buffer, given, offsets)
        try:
            # Spans that nobody wants are read, too: a message may be broken by them.
            made = {each: self._array(kernel, buffer, cells, each) for each in {*positions, *self._spans}}
        except MISFITS:
            # It is for objects.py to find the message.
            self._without = _BLOCKS_WITHOUT
            return None
        doubtful = np.flatnonzero(cells.doubts)
        if len(doubtful) > _DOUBTS_MAX * len(given):
            self._without = _BLOCKS_WITHOUT
        return Block(arrays={position: made[position] for position in positions}, doubtful=doubtful)

    def try_out(self, kernel: ModuleType) -> None:
        """Call all functions of the kernel once; raises whatever they do."""
        text = b'{"a":"b"}'
        buffer = text + b"\0"
        cells = self._cells(kernel, buffer, [text], np.array([0, len(buffer)]))
        assert self._array(kernel, buffer, cells, 0).to_pylist() == ["b"]

    def _cells(self, kernel: ModuleType, buffer: bytes, texts: Sequence[bytes], offsets: Numbers) -> _Cells:
        if self._rules is None:
            kernel.fill_slots(self._keys, self._key_offsets, self._slots)
            self._rules = np.array(self._rules_of(kernel))
        count = len(texts)
        shape = (len(self._columns), count)
        cells = _Cells(
            values=np.empty(shape, np.int64),
            ends=np.empty((max(1, int(self._rules[:, 5].max()) + 1), count), np.int64),
            states=np.zeros(shape, np.uint8),
            doubts=np.zeros(count, np.uint8),
        )
        if not buffer.isascii():
            cells.doubts[[row for row, text in enumerate(texts) if not _is_utf8(text)]] = 1
        kernel.read_objects(
            np.frombuffer(buffer, np.uint8),
            offsets,
            self._keys,
            self._key_offsets,
            self._slots,
            self._rules,
            self._order,
            self._skips_unknown,
            cells.values,
            cells.ends,
            cells.states,
            cells.doubts,
        )
        return cells

    def _rules_of(self, kernel: ModuleType) -> list[list[int]]:
        """Return the `rules` of `read_objects`."""
        rules, texts = [], 0
        for column, kind, default in zip(self._columns, self._kinds, self._defaults, strict=True):
            can_lack = column.nullable or default is not None
            bits = INTEGER_BITS.get(column.type.kind, 64) if isinstance(column.type, Simple) else 64
            bound = 1 << (bits - 1)
            has_text = kind in ("TEXT", "SPAN")
            zone = int(bool(column.zones))
            number = getattr(kernel, kind)
            rules.append([number, can_lack, not can_lack, -bound, bound - 1, texts if has_text else -1, zone])
            texts += has_text
        return rules

    def _array(self, kernel: ModuleType, buffer: bytes, cells: _Cells, position: int) -> pa.Array:
        """Return the column; marks messages whose value breaks a check as doubtful. Raises MISFITS."""
        column, kind, default = self._columns[position], self._kinds[position], self._defaults[position]
        states = cells.states[position]
        if kind == "SPAN":
            ends = self._ends(cells, position)
            return self._spans[position].array(buffer, cells.values[position], ends, states, cells.doubts, default)
        if kind == "TEXT":
            array = _texts(kernel, buffer, cells.values[position], self._ends(cells, position), states)
        else:
            array = _numbers(column, kind, cells.values[position], states < kernel.FOUND, cells.doubts)
        if default is not None and not states.all():
            array = pc.if_else(pa.array(states == kernel.MISSING), pa.scalar(default, array.type), array)
        for wrong in misfits(array, column) if column.checks else ():
            cells.doubts[wrong.row] = 1
        return array

    def _ends(self, cells: _Cells, position: int) -> Numbers:
        assert self._rules is not None
        found: Numbers = cells.ends[self._rules[position, 5]]
        return found


class _SpanReader:
    """Reads the values of one column whose bytes the kernel only finds, by msgspec."""

    def __init__(self, column: Column) -> None:
        self._column = column
        self.is_needed = _kind_of(column) == "SPAN"
        self._doubts = Doubts([column.type])
        is_read = self.is_needed and can_decode(column.type)
        self._decoder: Decoder | None = decoder_of(python_type(column.type)) if is_read else None

    @property
    def is_readable(self) -> bool:
        return self._decoder is not None

    def array(
        self, buffer: bytes, starts: Numbers, ends: Numbers, states: Numbers, doubts: Numbers, default: object
    ) -> pa.Array:
        """Return the column; marks messages whose value msgspec refuses, or may read otherwise. Raises MISFITS."""
        assert self._decoder is not None
        decode = self._decoder.decode
        values: list[Any] = []
        for row, (state, start, end) in enumerate(zip(states.tolist(), starts.tolist(), ends.tolist(), strict=True)):
            if state < 2:
                values.append(None if state else default)
                continue
            text = buffer[start:end]
            try:
                values.append(decode(text))
            except (ValueError, RecursionError):
                doubts[row] = 1
                values.append(None)
        found = np.flatnonzero(states >= 2).tolist()
        if self._doubts.exist_in(buffer[starts[row] : ends[row]] for row in found):
            doubts[[row for row in found if self._doubts.exist_in([buffer[starts[row] : ends[row]]])]] = 1
        return checked_array(values, self._column)


def _kind_of(column: Column) -> str:
    """Return the kernel's name of the kind of the column's values."""
    return _KINDS.get(column.type.kind, "SPAN") if isinstance(column.type, Simple) else "SPAN"


def _texts(kernel: ModuleType, buffer: bytes, starts: Numbers, ends: Numbers, states: Numbers) -> pa.Array:
    are_found = states >= kernel.FOUND
    # Escapes are longer than what they stand for.
    out = np.empty(int(np.sum(ends - starts, where=are_found)), np.uint8)
    offsets = np.empty(len(starts) + 1, np.int32)
    kernel.copy_texts(np.frombuffer(buffer, np.uint8), starts, ends, states, out, offsets)
    valid = None if are_found.all() else pa.py_buffer(np.packbits(are_found, bitorder="little"))
    return pa.StringArray.from_buffers(len(starts), pa.py_buffer(offsets), pa.py_buffer(out[: offsets[-1]]), valid)


def _numbers(column: Column, kind: str, values: Numbers, are_null: Numbers, doubts: Numbers) -> pa.Array:
    """Return the values that the kernel has made; marks messages whose number a FLOAT cannot hold."""
    mask = are_null if are_null.any() else None
    target = arrow_type(column.type)
    if kind == "BOOLEAN":
        return pa.array(values != 0, mask=mask)
    if kind == "DOUBLE":
        doubles = values.copy().view(np.float64)
        if pa.types.is_float32(target):
            with np.errstate(over="ignore"):
                doubles = doubles.astype(np.float32)
            doubts[np.isinf(doubles) & ~are_null] = 1
        return pa.array(doubles, mask=mask, from_pandas=False)
    if kind == "DATE":
        return pa.array(values.astype(np.int32), mask=mask).view(target)
    if kind == "INTEGER":
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
