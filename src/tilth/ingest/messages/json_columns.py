"""Output of the compiled kernel to Arrow columns: all columns of one type at once, for a table may have hundreds.

Covers: kinds and bounds of columns, numbers, texts. Does not cover: values of any other type (json_spans.py), reading
bytes (json_kernel.py).
Always holds: a NULL has a value of zero below it, so that the same messages make the same bytes.

Tests: tests/property/test_json_kernel.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType

import numpy as np
import pyarrow as pa

from tilth.ingest.batch import Numbers
from tilth.ingest.messages import json_cells as cells
from tilth.model.types import INTEGER_BITS, DataType, Kind, Simple

#: Kinds of columns for the kernel by the kind of their type; all others are spans.
KINDS: Mapping[Kind, int] = {
    Kind.FLOAT32: cells.DOUBLE,
    Kind.FLOAT64: cells.DOUBLE,
    Kind.STRING: cells.TEXT,
    Kind.TIMESTAMP: cells.INSTANT,
    Kind.TIMESTAMP_NTZ: cells.WALL,
    Kind.DATE: cells.DATE,
    Kind.BOOLEAN: cells.BOOLEAN,
} | dict.fromkeys(INTEGER_BITS, cells.INTEGER)


def bounds_of(data_type: DataType) -> tuple[int, int]:
    """Return the least and the greatest whole number of a type."""
    bits = INTEGER_BITS.get(data_type.kind, 64) if isinstance(data_type, Simple) else 64
    bound = 1 << (bits - 1)
    return -bound, bound - 1


def texts_of(kernel: ModuleType, buffer: bytes, starts: Numbers, ends: Numbers, states: Numbers) -> list[pa.Array]:
    """Return columns of texts, of which the arrays have a row each."""
    are_found = states >= cells.FOUND
    # An escape is longer than its character.
    sizes = np.sum(ends - starts, axis=1, where=are_found)
    bases = np.cumsum(sizes) - sizes
    out = np.empty(int(sizes.sum()), np.uint8)
    columns, rows = states.shape
    offsets = np.empty((columns, rows + 1), np.int32)
    kernel.copy_texts(np.frombuffer(buffer, np.uint8), starts, ends, states, bases, out, offsets)
    whole, positions = pa.py_buffer(out), pa.py_buffer(offsets)
    size = offsets.itemsize * (rows + 1)
    return [
        pa.StringArray.from_buffers(rows, positions.slice(index * size, size), whole.slice(base, end), bits)
        for index, (base, end, bits) in enumerate(
            zip(bases.tolist(), offsets[:, -1].tolist(), _validity(are_found), strict=True)
        )
    ]


def numbers_of(kind: int, data_type: pa.DataType, values: Numbers, states: Numbers) -> tuple[list[pa.Array], Numbers]:
    """Return columns of one kind and type but texts and spans, of which the arrays have a row each; and `True` for each
    number that a FLOAT cannot hold.
    """
    are_found = states >= cells.FOUND
    wrong: Numbers = np.zeros(states.shape, np.bool_)
    if kind == cells.BOOLEAN:
        cut = np.packbits(values != 0, axis=1, bitorder="little")
    elif kind == cells.DOUBLE:
        cut = values.view(np.float64)
        if pa.types.is_float32(data_type):
            with np.errstate(over="ignore"):
                cut = cut.astype(np.float32)
            wrong = np.isinf(cut) & are_found
    elif kind == cells.DATE:
        cut = values.astype(np.int32)
    else:
        cut = values.astype(data_type.to_pandas_dtype()) if kind == cells.INTEGER else values
    whole, rows = pa.py_buffer(np.ascontiguousarray(cut)), states.shape[1]
    size = cut.itemsize * cut.shape[1]
    return [
        pa.Array.from_buffers(data_type, rows, [bits, whole.slice(index * size, size)])
        for index, bits in enumerate(_validity(are_found))
    ], wrong


def _validity(are_found: Numbers) -> list[pa.Buffer | None]:
    """Return the bitmap of each column; None: it has no NULL."""
    bits = np.packbits(are_found, axis=1, bitorder="little")
    whole, size = pa.py_buffer(bits), bits.shape[1]
    return [
        None if is_full else whole.slice(index * size, size)
        for index, is_full in enumerate(np.all(are_found, axis=1).tolist())
    ]
