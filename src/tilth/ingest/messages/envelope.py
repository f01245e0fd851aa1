"""Change events of Debezium: a row, what happened to it, when and where.

Covers: reading one event, with its schema around it or without. Does not cover: columns out of rows (decode.py).
Always holds: a row is the state after the change; of a delete, which has none, the state before it, or the message's
key where the source keeps no older states. The values of a delete in columns outside the key may be missing.

Tests: tests/unit/ingest/views/test_ops.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from tilth.model.types import DataType, Kind, Simple

#: Columns of events that a view may select besides those of the Kafka table; `*` includes `_op`.
ENVELOPE_COLUMNS: Mapping[str, DataType] = {
    "_op": Simple(Kind.STRING),
    "_ts_ms": Simple(Kind.INT64),
    "_source": Simple(Kind.STRING),
}
#: The fields of a record that hold them.
ENVELOPE_FIELDS: Mapping[str, str] = {"_op": "e0", "_ts_ms": "e1", "_source": "e2"}
#: Their names in JSON, which nobody else uses.
ENVELOPE_NAMES: Mapping[str, str] = {"e0": "tilth:op", "e1": "tilth:ts_ms", "e2": "tilth:source"}
#: A row that is there, was made or changed.
_ROWS = frozenset("cru")
_DELETE = "d"
#: Events that are about no row: a message of the application, written to the database's log.
_NO_ROWS = frozenset("m")

_NULL = b"null"
_NOTHING = (b"", _NULL)

# Any: records are struct types made at run time.
Record = Any


def envelope_fields() -> list[tuple[str, Any, Any]]:
    """Return the fields of a record beside the columns."""
    return [("e0", str | None, None), ("e1", int | None, None), ("e2", str | None, None)]


# Any: a record type that was made at run time.
def debezium_reader(
    strict: Any, row: Callable[[bytes], Record], older: Callable[[bytes], Record]
) -> Callable[..., list[Record]]:
    """Return a function that reads one message, given its value and its key; it raises ValueError with the reason.

    `row` reads an object to a record; if the message is clear (`is_clear`), events whose rows are of the type `strict`
    are decoded at once. `older` is `row` for rows that were deleted, which may lack any column.
    """
    decode = msgspec.json.Decoder(_event_type(msgspec.Raw, msgspec.Raw(_NULL)), strict=False).decode
    decode_strict = decode if strict is None else msgspec.json.Decoder(_event_type(strict | None, None)).decode
    key: Any = msgspec.defstruct("Key", [("payload", msgspec.Raw, msgspec.Raw(b""))])
    decode_key = msgspec.json.Decoder(key).decode

    def deleted(before: bytes, key_bytes: bytes | None) -> Record:
        if before in _NOTHING and key_bytes:
            before = bytes(decode_key(key_bytes).payload) or key_bytes
        if before in _NOTHING:
            raise ValueError("a delete with neither `before` nor a key")
        return older(before)

    def read(value: bytes, key_bytes: bytes | None, *, is_clear: bool) -> list[Record]:
        try:
            event = decode_strict(value) if is_clear else decode(value)
        except (ValueError, RecursionError):
            event = decode(value)
        if event.op is None and event.payload is not None:
            event = event.payload
        if event.op is None:
            raise ValueError("no event of Debezium: `op` is missing")
        if event.op in _NO_ROWS:
            return []
        if event.op in _ROWS:
            after = event.after
            if after is None or after == _NULL:
                raise ValueError(f"`after` is missing where `op` is {event.op}")
            record = row(bytes(after)) if isinstance(after, msgspec.Raw) else after
        elif event.op == _DELETE:
            record = deleted(bytes(event.before), key_bytes)
        else:
            raise ValueError(f"`op` is {event.op[:20]}: only c, r, u and d are changes of one row")
        source = bytes(event.source)
        record.e0, record.e1 = event.op, event.ts_ms
        record.e2 = None if source in _NOTHING else source.decode()
        return [record]

    return read


# Any: as `debezium_reader`.
def _event_type(after: Any, nothing: Any) -> Any:
    inner: Any = msgspec.defstruct(
        "Event",
        [
            ("after", after, nothing),
            ("before", msgspec.Raw, msgspec.Raw(_NULL)),
            ("op", str | None, None),
            ("ts_ms", int | None, None),
            ("source", msgspec.Raw, msgspec.Raw(b"")),
        ],
    )
    return msgspec.defstruct("Message", [("payload", inner | None, None)], bases=(inner,))
