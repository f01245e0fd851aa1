"""Ranges of a large Arrow stream, each to be read by a task for itself, found while the stream passes.

Covers: the heads of the stream's messages, which say where each ends. Does not cover: reading batches
(inserts/arrow_streams.py), text (ranges.py).
Always holds: a range is whole batches; with its heads before it, the schema and the dictionaries that count there, it
is a stream of its own; what is held of the stream is the head of one message.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from tilth.base.units import MIB
from tilth.query.language.unpacked import MessageFacts, MessageKind, message_facts
from tilth.query.snapshots.protocol import BodyRange
from tilth.statements.inserts.bodies.ranges import RANGE_BYTES, RANGE_BYTES_MAX, not_cut
from tilth.warehouse.remote.errors import BadBodyError

_CONTINUES = 0xFFFFFFFF
_METADATA_BYTES_MAX = 16 * MIB
#: Most messages of dictionaries that are read before a range.
_DICTIONARIES_MAX = 4096


class ArrowRanges:
    """The ranges of an Arrow stream."""

    def __init__(self) -> None:
        self._ranges: list[BodyRange] = []
        #: Bytes of the head of a message that have arrived.
        self._held = bytearray()
        #: Bytes of a message's body that are still to pass.
        self._passing = 0
        #: Beginning of the message whose head is held.
        self._position = 0
        self._is_over = False
        self._schema: tuple[int, int] | None = None
        #: Messages of each dictionary, by its id: one, and those that add to it.
        self._dictionaries: dict[int, list[tuple[int, int]]] = {}
        #: Beginning of the range that has no end yet, and its heads; None: before its first message.
        self._start: int | None = None
        self._heads: tuple[tuple[int, int], ...] = ()
        #: The schema, once its message has passed.
        self.schema: pa.Schema | None = None

    def add(self, block: bytes) -> None:
        at = 0
        while at < len(block) and not self._is_over:
            if self._passing:
                taken = min(self._passing, len(block) - at)
                self._passing -= taken
                at += taken
                continue
            taken = min(self._missing(), len(block) - at)
            self._held += block[at : at + taken]
            at += taken
            if not self._missing():
                self._message()

    def end(self) -> list[BodyRange]:
        if self._passing or self._held or self._schema is None:
            raise BadBodyError("the body is not an Arrow stream", reason="it ends within a message")
        if self._start is not None:
            self._cut(self._position)
        if not self._ranges:
            start, size = self._schema
            self._ranges.append(BodyRange(start=start, size=size))
        return self._ranges

    def _missing(self) -> int:
        """Return the number of bytes that the head lacks; 0: it is whole."""
        prefix, size = self._sizes()
        return max(0, prefix + size - len(self._held))

    def _sizes(self) -> tuple[int, int]:
        """Return the size of the prefix and that of the metadata; 0 where its field has not arrived."""
        if len(self._held) < 4:
            return 4, 0
        (first,) = struct.unpack_from("<I", self._held)
        if first != _CONTINUES:
            return 4, _checked(first)
        if len(self._held) < 8:
            return 8, 0
        return 8, _checked(struct.unpack_from("<I", self._held, 4)[0])

    def _message(self) -> None:
        prefix, size = self._sizes()
        if not size:
            self._is_over = True
            self._held.clear()
            return
        head = bytes(self._held)
        try:
            facts = message_facts(memoryview(head)[prefix:])
            if facts.kind is MessageKind.SCHEMA:
                self.schema = pa.ipc.read_schema(pa.py_buffer(head))
        except (pa.ArrowException, struct.error, IndexError, OSError, ValueError) as error:
            raise BadBodyError("the body is not an Arrow stream", reason=error) from error
        self._note(facts, len(head) + facts.body_bytes)
        self._held.clear()
        self._passing = facts.body_bytes

    def _note(self, facts: MessageFacts, size: int) -> None:
        """Keep the span of the message, which begins at the current position."""
        span = self._position, size
        match facts.kind:
            case MessageKind.SCHEMA:
                self._schema = span
            case MessageKind.DICTIONARY:
                if self._start is not None and (self._position - self._start >= RANGE_BYTES):
                    self._cut(self._position)
                known = self._dictionaries.get(facts.dictionary, []) if facts.is_delta else []
                self._dictionaries[facts.dictionary] = [*known, span]
            case MessageKind.BATCH:
                if self._start is not None and self._position - self._start >= RANGE_BYTES:
                    self._cut(self._position)
                if self._start is None:
                    self._begin()
            case MessageKind.OTHER:
                pass
        self._position += size
        if self._start is not None and self._position - self._start > RANGE_BYTES_MAX:
            raise not_cut(self._start)

    def _begin(self) -> None:
        if self._schema is None:
            raise BadBodyError("the body is not an Arrow stream", reason="rows come before the schema")
        known = sorted(span for spans in self._dictionaries.values() for span in spans)
        if len(known) > _DICTIONARIES_MAX:
            raise not_cut(self._position)
        self._start, self._heads = self._position, (self._schema, *known)

    def _cut(self, end: int) -> None:
        assert self._start is not None
        self._ranges.append(BodyRange(start=self._start, size=end - self._start, heads=self._heads))
        self._start = None


def _checked(size: int) -> int:
    if size > _METADATA_BYTES_MAX:
        raise BadBodyError("the body is not an Arrow stream", reason=f"the head of a message has {size} bytes")
    return size
