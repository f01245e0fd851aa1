"""The C interface of librdkafka for consumers: messages are read in batches, without an object for each of them.

Covers: making a consumer, assigning and pausing topic partitions, batches of pointers to messages. Does not cover:
what messages hold (messages.py), which ranges are read (fetch.py). The functions are public and documented in
rdkafka.h; the library is the one that confluent-kafka brings, so there is one client library in a process.
Always holds: a pointer is used before its batch is destroyed, and each batch before its consumer is closed.

Tests: tests/integration/ingest/test_fetch.py.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from ctypes import c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_void_p
from types import TracebackType
from typing import Any, Self

import numpy as np
from confluent_kafka import cimpl

from tilth.ingest.batch import Numbers

_CONSUMER = 1
_ERROR_BYTES = 512


class MessageStruct(ctypes.Structure):
    """Message of rdkafka.h, on machines of 64 bits: each field begins a word."""

    _fields_ = (
        ("err", c_int32),
        ("rkt", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )


class _PartitionStruct(ctypes.Structure):
    """The beginning of a topic partition of rdkafka.h."""

    _fields_ = (("topic", c_char_p), ("partition", c_int32), ("offset", c_int64))


#: The extension is linked with librdkafka, whose functions are found through it, wherever the library's file is.
_library = ctypes.CDLL(cimpl.__file__)
#: The same for functions that never wait: their calls retain the interpreter's lock, which others might have for long.
_library_with_lock = ctypes.PyDLL(cimpl.__file__)


# Any: ctypes gives functions no types.
def _function(name: str, result: Any, *arguments: Any, library: ctypes.CDLL = _library) -> Callable[..., Any]:
    found = getattr(library, f"rd_kafka_{name}")
    found.restype, found.argtypes = result, arguments
    return found  # type: ignore[no-any-return]  # ctypes gives functions no types


_conf_new = _function("conf_new", c_void_p)
_conf_set = _function("conf_set", c_int, c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)
_conf_destroy = _function("conf_destroy", None, c_void_p)
_new = _function("new", c_void_p, c_int, c_void_p, c_char_p, c_size_t)
_poll_set_consumer = _function("poll_set_consumer", c_int, c_void_p)
_queue_get_consumer = _function("queue_get_consumer", c_void_p, c_void_p)
_queue_destroy = _function("queue_destroy", None, c_void_p)
_consumer_close = _function("consumer_close", c_int, c_void_p)
_destroy = _function("destroy", None, c_void_p)
_list_new = _function("topic_partition_list_new", c_void_p, c_int)
_list_add = _function("topic_partition_list_add", ctypes.POINTER(_PartitionStruct), c_void_p, c_char_p, c_int32)
_list_destroy = _function("topic_partition_list_destroy", None, c_void_p)
_set_leader_epoch = _function("topic_partition_set_leader_epoch", None, ctypes.POINTER(_PartitionStruct), c_int32)
_assign = _function("assign", c_int, c_void_p, c_void_p)
_pause_partitions = _function("pause_partitions", c_int, c_void_p, c_void_p)
_consume_batch_queue = _function("consume_batch_queue", c_ssize_t, c_void_p, c_int, c_void_p, c_size_t)
_topic_name = _function("topic_name", c_char_p, c_void_p)
_err2str = _function("err2str", c_char_p, c_int)
_message_errstr = _function("message_errstr", c_char_p, c_void_p)
_message_headers = _function("message_headers", c_int, c_void_p, ctypes.POINTER(c_void_p))
_header_get_all = _function(
    "header_get_all",
    c_int,
    c_void_p,
    c_size_t,
    ctypes.POINTER(c_char_p),
    ctypes.POINTER(c_void_p),
    ctypes.POINTER(c_size_t),
)
#: Epoch of the leader that a message came from; -1: not known.
leader_epoch = _function("message_leader_epoch", c_int32, c_void_p)
#: Functions of one message that are called for each of a batch.
message_destroy = _function("message_destroy", None, c_void_p, library=_library_with_lock)
message_timestamp = _function("message_timestamp", c_int64, c_void_p, c_void_p, library=_library_with_lock)


# Any: ctypes gives functions no types.
def address_of(function: Any) -> int:
    """Return the address of a function of the library."""
    return int(ctypes.cast(function, c_void_p).value or 0)


class LibraryError(Exception):
    """An error of librdkafka."""


class PolledConsumer:
    """A consumer whose topic partitions are assigned by hand. One thread at a time; a context manager."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        """Raises LibraryError for settings that librdkafka does not accept."""
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        conf = _conf_new()
        for name, value in settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if _conf_set(conf, name.encode(), text.encode(), error, _ERROR_BYTES):
                _conf_destroy(conf)
                raise LibraryError(_text(error.value))
        self._client = _new(_CONSUMER, conf, error, _ERROR_BYTES)
        if not self._client:
            # Only a client that was made has taken the settings.
            _conf_destroy(conf)
            raise LibraryError(_text(error.value))
        _poll_set_consumer(self._client)
        self._queue = _queue_get_consumer(self._client)

    def assign(self, positions: Iterable[tuple[str, int, int, int]]) -> None:
        """Read from these positions: topic, partition, offset, leader epoch. With an epoch (-1: without), librdkafka
        first checks that the log still is that one. Raises LibraryError.
        """
        self._with_list(_assign, positions)

    def pause(self, topic: str, partition: int) -> None:
        """Fetch no more of a topic partition. Raises LibraryError."""
        self._with_list(_pause_partitions, [(topic, partition, -1, -1)])

    def poll(self, count_max: int, seconds_max: float) -> Numbers:
        """Return pointers to messages and events, when there are so many or after the time. Destroy each of them."""
        pointers = np.empty(count_max, np.int64)
        found = _consume_batch_queue(self._queue, round(seconds_max * 1000), pointers.ctypes.data, count_max)
        return pointers[: max(0, found)]

    def close(self) -> None:
        """End the consumer and its threads."""
        client, self._client = self._client, None
        if client is not None:
            _queue_destroy(self._queue)
            _consumer_close(client)
            _destroy(client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def _with_list(self, act: Callable[..., Any], positions: Iterable[tuple[str, int, int, int]]) -> None:
        given = list(positions)
        made = _list_new(len(given))
        try:
            for topic, partition, offset, epoch in given:
                added = _list_add(made, topic.encode(), partition)
                added.contents.offset = offset
                if epoch >= 0:
                    _set_leader_epoch(added, epoch)
            code = act(self._client, made)
        finally:
            _list_destroy(made)
        if code:
            raise LibraryError(_text(_err2str(code)))


def topic_name(topic: int) -> str:
    """Return the name of the topic at a message's pointer to it; empty: it has none."""
    return _text(_topic_name(topic)) if topic else ""


def error_text(message: int) -> str:
    """Return the text of the error that a message is."""
    return _text(_message_errstr(message))


def headers_of(message: int) -> list[tuple[str, bytes | None]]:
    """Return the headers of the message at the pointer, in their order."""
    headers = c_void_p()
    found: list[tuple[str, bytes | None]] = []
    if _message_headers(message, ctypes.byref(headers)):
        return found
    name, value, size = c_char_p(), c_void_p(), c_size_t()
    while not _header_get_all(headers, len(found), ctypes.byref(name), ctypes.byref(value), ctypes.byref(size)):
        found.append((_text(name.value), ctypes.string_at(value.value, size.value) if value.value else None))
    return found


def _text(given: bytes | None) -> str:
    return (given or b"").decode(errors="backslashreplace")
