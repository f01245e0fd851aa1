"""Messages of one poll of librdkafka as columns.

Covers: reading what pointers lead to, by a compiled kernel or without it. Does not cover: polling (librdkafka.py).
Always holds: batches are copies; nothing of librdkafka is used after the messages were destroyed.

Tests: tests/integration/ingest/test_fetch.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import ModuleType, TracebackType
from typing import Self

import numpy as np

from tilth.ingest.batch import MessageBatch, Numbers, Texts
from tilth.ingest.compiled import LOAD_AFTER_BYTES, KernelLoader
from tilth.ingest.kafka import librdkafka
from tilth.ingest.kafka.librdkafka import MessageStruct

_WORD_BYTES = 8
_WORDS = ctypes.sizeof(MessageStruct) // _WORD_BYTES
_ERROR, _TOPIC, _PARTITION, _VALUE, _VALUE_LENGTH, _KEY, _KEY_LENGTH, _OFFSET = (
    getattr(MessageStruct, name).offset // _WORD_BYTES
    for name in ("err", "rkt", "partition", "payload", "len", "key", "key_len", "offset")
)
#: Addresses of functions.
_DESTROY, _TIMESTAMP = map(librdkafka.address_of, (librdkafka.message_destroy, librdkafka.message_timestamp))


class _Plain:
    """The functions of message_kernel.py without a compiler, a few times as slow as the kernel.

    What is called for each message keeps the interpreter's lock: other threads of a server would hold it in between.
    """

    @staticmethod
    def copy_structs(pointers: Numbers, size: int, out: Numbers) -> None:
        found = b"".join([ctypes.string_at(pointer, size) for pointer in pointers.tolist()])
        out[:] = np.frombuffer(found, np.int64).reshape(out.shape)

    @staticmethod
    def copy_texts(pointers: Numbers, lengths: Numbers, offsets: Numbers, target: int) -> None:
        texts = [
            ctypes.string_at(pointer, length) if length else b""
            for pointer, length in zip(pointers.tolist(), lengths.tolist(), strict=True)
        ]
        joined = b"\0".join([*texts, b""])
        assert len(joined) == offsets[-1]
        ctypes.memmove(target, joined, len(joined))

    @staticmethod
    def read_times(function: int, pointers: Numbers, out: Numbers) -> None:
        assert function == _TIMESTAMP
        out[:] = [librdkafka.message_timestamp(pointer, None) for pointer in pointers.tolist()]

    @staticmethod
    def destroy_all(function: int, pointers: Numbers) -> None:
        assert function == _DESTROY
        for pointer in pointers.tolist():
            librdkafka.message_destroy(pointer)


#: Returns bytes that may be written until somebody else has them; PyBytes_FromStringAndSize with NULL.
_new_bytes = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.restype, _new_bytes.argtypes = ctypes.py_object, (ctypes.c_char_p, ctypes.c_ssize_t)


def kernel_loader(after_bytes: int = LOAD_AFTER_BYTES) -> KernelLoader:
    """Return a loader of the kernel."""
    return KernelLoader(["tilth.ingest.kafka.message_kernel"], _try_out, after_bytes=after_bytes)


def _try_out(kernel: ModuleType) -> None:
    """Call all functions of the kernel once, over no messages; raises whatever they do."""
    none = np.zeros(0, np.int64)
    kernel.copy_structs(none, _WORDS * _WORD_BYTES, none.reshape(0, _WORDS))
    kernel.copy_texts(none, none, none, 0)
    kernel.read_times(_TIMESTAMP, none, none)
    kernel.destroy_all(_DESTROY, none)


#: The loader of this process.
LOADER = kernel_loader()


class Polled:
    """Messages and events of one poll; a context manager, which destroys them."""

    def __init__(self, pointers: Numbers, *, loader: KernelLoader = LOADER) -> None:
        self._pointers = pointers
        self._functions = loader.count(0) or _Plain
        words = np.empty((len(pointers), _WORDS), np.int64)
        self._functions.copy_structs(pointers, _WORDS * _WORD_BYTES, words)
        self._words = words
        #: Error code of each; 0: it is a message.
        self.errors = words[:, _ERROR].astype(np.int32)
        self.offsets = words[:, _OFFSET]
        self._partitions = words[:, _PARTITION].astype(np.int32)
        loader.count(int(words[:, _VALUE_LENGTH].sum()))

    def __len__(self) -> int:
        return len(self._pointers)

    def by_partition(self) -> Iterator[tuple[tuple[str, int], Numbers]]:
        """Yield each topic partition and its rows, in their order."""
        for topic, of_topic in _runs(self._words[:, _TOPIC], np.arange(len(self))):
            for partition, rows in _runs(self._partitions, of_topic):
                yield (librdkafka.topic_name(topic), partition), rows

    def error_text(self, row: int) -> str:
        return librdkafka.error_text(int(self._pointers[row]))

    def leader_epoch(self, row: int) -> int:
        """Return the epoch of the leader that the message came from; -1: not known."""
        return int(librdkafka.leader_epoch(int(self._pointers[row])))

    def messages(self, rows: Numbers, *, has_headers: bool) -> MessageBatch:
        """Return a copy of the messages in these rows; `has_headers`: with their headers."""
        pointers, words = self._pointers[rows], self._words[rows]
        times = np.empty(len(rows), np.int64)
        self._functions.read_times(_TIMESTAMP, pointers, times)
        values = self._texts(words[:, _VALUE], words[:, _VALUE_LENGTH])
        return MessageBatch(
            values,
            offsets=words[:, _OFFSET].copy(),
            keys=self._texts(words[:, _KEY], words[:, _KEY_LENGTH]) if words[:, _KEY].any() else None,
            times=times,
            headers=[librdkafka.headers_of(pointer) for pointer in pointers.tolist()] if has_headers else None,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        pointers, self._pointers = self._pointers, self._pointers[:0]
        self._functions.destroy_all(_DESTROY, pointers)

    def _texts(self, pointers: Numbers, lengths: Numbers) -> Texts:
        offsets = np.zeros(len(pointers) + 1, np.int64)
        np.cumsum(lengths + 1, out=offsets[1:])
        buffer = _new_bytes(None, int(offsets[-1]))
        self._functions.copy_texts(
            pointers.copy(), lengths.copy(), offsets, np.frombuffer(buffer, np.uint8).ctypes.data
        )
        are_lacking = pointers == 0
        return Texts(buffer=buffer, offsets=offsets, lacking=are_lacking if are_lacking.any() else None)


def _runs(values: Numbers, rows: Numbers) -> Iterator[tuple[int, Numbers]]:
    """Yield each of the rows' values with the rows that have it, in their order."""
    while len(rows):
        value = values[rows[0]]
        have_it = values[rows] == value
        yield int(value), rows[have_it]
        rows = rows[~have_it]
