"""Compiled kernel: what messages of librdkafka point to, into arrays, and the end of the messages.

Covers: pointers to structs and to bytes, calls of functions of librdkafka for each message. Does not cover: what the
structs are (librdkafka.py), reading without a compiler (messages.py). Always holds: it reads and writes where its
arguments point to, and nothing behind that.

numba compiles the functions here, without objects of Python.

Tests: tests/integration/ingest/test_fetch.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.cgutils import raw_memcpy
from numba.extending import intrinsic

_WORD = ir.IntType(64)


# Any: types and builders of numba.
@intrinsic
def _copy(typing_context: Any, target: Any, source: Any, size: Any) -> Any:
    """Copy bytes between two addresses."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        to, of = (builder.inttoptr(each, pointer) for each in arguments[:2])
        raw_memcpy(builder, to, of, arguments[2], 1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), make


@intrinsic
def _call(typing_context: Any, function: Any, message: Any) -> Any:
    """Call the function at an address with a pointer; it returns nothing."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [_WORD])
        builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), make


@intrinsic
def _call_for_number(typing_context: Any, function: Any, message: Any) -> Any:
    """Call the function at an address with a pointer and NULL; return its result."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_WORD, [_WORD, _WORD])
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), [arguments[1], _WORD(0)])

    return types.int64(types.int64, types.int64), make


@njit(cache=True, nogil=True)
def copy_structs(pointers, size, out):
    """Copy the first bytes of each struct, one behind the other."""
    target = out.ctypes.data
    for index in range(len(pointers)):
        _copy(target + index * size, pointers[index], size)


@njit(cache=True, nogil=True)
def copy_texts(pointers, lengths, offsets, target):
    """Copy each text to its offset from an address, with a zero byte behind it."""
    zero = np.zeros(1, np.uint8)
    for index in range(len(pointers)):
        _copy(target + offsets[index], pointers[index], lengths[index])
        _copy(target + offsets[index] + lengths[index], zero.ctypes.data, 1)


@njit(cache=True, nogil=True)
def read_times(function, pointers, out):
    """Set the time of each message, which the function at an address returns."""
    for index in range(len(pointers)):
        out[index] = _call_for_number(function, pointers[index])


@njit(cache=True, nogil=True)
def destroy_all(function, pointers):
    """Destroy each message by the function at an address."""
    for index in range(len(pointers)):
        _call(function, pointers[index])
