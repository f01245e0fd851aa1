"""The layout of the catalog's keys. Pure.

A key is one byte for its kind of record (`Space`) and its fields, so packed that keys sort as their fields do: texts
as UTF-8 with an end mark, integers as 8 bytes big-endian. Fields go from the general to the special: all entries of a
partition, and all partitions of a table, are one range each.

    ENTRY  table, partition, min block, max block, level, mutation -> Part | Mark | DropRange
    OFFSET Kafka table, topic, partition                           -> StoredOffset
    SUBSCRIPTION cluster id, topic id, group                       -> Subscription
    COPY   table, replica, file                                    -> CopyNote
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from enum import Enum, unique

from tilth.base.errors import CorruptError
from tilth.catalog.kv.protocol import ALL_NEWS, PINNED_BYTES
from tilth.model.copy_note import CopyNote
from tilth.model.delta import Delta
from tilth.model.part import PartName

_END = b"\x00\x01"
_ZERO = b"\x00\xff"


@unique
class Space(Enum):
    """Content of a key. The bytes are part of the stored format: none is changed or used again."""

    DATABASE = b"D"
    #: database, name -> uuid
    NAME = b"N"
    #: uuid -> TableDef | KafkaDef | ViewDef
    RELATION = b"R"
    #: uuid -> Secrets of a KafkaDef
    SECRET = b"S"
    #: uuid -> DroppedTable
    DROPPED = b"d"
    #: Kafka table's uuid, view's uuid
    VIEW_OF = b"w"
    #: target table's uuid, view's uuid
    VIEW_INTO = b"W"
    #: uuid of a table or Kafka table -> TableVersion
    VERSION = b"V"
    #: table, partition -> PartitionRecord
    PARTITION = b"P"
    ENTRY = b"E"
    #: like ENTRY -> TrashItem
    TRASH = b"T"
    #: table, partition, time of the newest change, file -> Delta, if current readers see it
    DELTA = b"e"
    #: like DELTA -> Delta, of those that have ended
    ENDED_DELTA = b"f"
    #: table, commit counter -> VersionCommit
    VERSION_COMMIT = b"v"
    #: table, label -> LabelRecord
    LABEL = b"b"
    #: table, hash of the file's address -> LoadedFile
    LOADED_FILE = b"A"
    #: table, name -> Pipe
    PIPE = b"I"
    #: table, id of the pipe, hash of the file's address -> FailedFile
    FAILED_FILE = b"J"
    #: table, stream -> StreamRecord
    STREAM = b"M"
    #: table, id -> Mutation
    MUTATION = b"m"
    #: running and aborted transactions: id -> Txn
    OPEN_TXN = b"X"
    #: id -> FinishedTxn
    FINISHED_TXN = b"Z"
    #: id -> LeftoverNote
    LEFTOVER_NOTE = b"x"
    #: id -> Tombstone
    TOMBSTONE = b"z"
    #: id -> LostTxn
    LOST_TXN = b"B"
    #: one key -> the greatest id of a finished transaction whose record was trimmed
    TRIMMED_TXN = b"j"
    OFFSET = b"O"
    #: cluster id, topic id, group -> Subscription
    SUBSCRIPTION = b"u"
    #: Kafka table, txn -> LedgerEntry
    LEDGER = b"L"
    #: uuid of a Kafka table that is gone -> FormerKafkaTable
    FORMER = b"F"
    #: Kafka table, topic, partition, start -> IngestGap
    GAP = b"G"
    #: name -> Lease
    LEASE = b"l"
    #: table, id -> ReaderLease
    READER = b"r"
    #: table, service -> Switch
    SWITCH = b"s"
    #: milliseconds, hybrid time, number -> PartEvent
    PART_LOG = b"g"
    #: milliseconds, hybrid time, 0 -> AuditEvent
    AUDIT = b"a"
    #: name -> Storage
    STORAGE = b"o"
    #: table, replica, file (empty: any file) -> CopyNote
    COPY = b"y"
    #: table, replica -> hybrid time of the last note that the replica lacks a file
    LACKING = b"Y"
    #: name -> Warehouse
    WAREHOUSE = b"h"
    #: name -> ServerRecord
    SERVER = b"n"
    #: id of a server's process -> nothing; removed when the process is recorded as ended. Its commits pin the key
    LIFE = b"i"
    #: thing -> Placement
    PLACEMENT = b"p"
    #: table -> CommitLockRecord
    COMMIT_LOCK = b"t"
    #: worker -> Drain
    DRAIN = b"q"
    #: name -> bytes
    STATE = b"c"
    #: one key -> the newest hybrid time whose record was removed
    CLOCK = b"k"


assert {Space.LIFE.value, Space.STORAGE.value} == PINNED_BYTES

#: Data that ends with its node, logs, results of finished transactions, and secrets, which stay in the node's folder.
_NOT_JOURNALED = frozenset(
    space.value
    for space in (
        Space.LEASE,
        Space.SERVER,
        Space.LIFE,
        Space.COMMIT_LOCK,
        Space.LACKING,
        Space.PLACEMENT,
        Space.READER,
        Space.PART_LOG,
        Space.AUDIT,
        Space.FINISHED_TXN,
        Space.TRIMMED_TXN,
        Space.SECRET,
    )
)


def is_journaled(key: bytes) -> bool:
    """Return whether the key is written beside the tables' files, for a catalog that is made of these alone."""
    return key[:1] not in _NOT_JOURNALED


#: Key spaces that a server's services act on: those with a table in the first field, and those that concern all.
_NEWS_OF_TABLES = frozenset(
    space.value for space in (Space.RELATION, Space.DROPPED, Space.SWITCH, Space.MUTATION, Space.PIPE)
)
_NEWS_FOR_ALL = frozenset(space.value for space in (Space.STORAGE, Space.WAREHOUSE, Space.DRAIN))


def news_of(keys: Iterable[bytes]) -> frozenset[str]:
    """Return the tables, by uuid, whose services other servers have to check when these keys change."""
    found = set()
    for key in keys:
        if key[:1] in _NEWS_OF_TABLES:
            found.add(table_of(key))
        elif key[:1] in _NEWS_FOR_ALL:
            found.add(ALL_NEWS)
    return frozenset(found)


def table_of(key: bytes) -> str:
    """The uuid of the table that is the first field of the key."""
    return key[1:].split(_END, 1)[0].decode()


def pack(space: Space, *fields: str | int) -> bytes:
    """The key of these fields, or the common beginning of all keys that begin with them."""
    parts = [space.value]
    for field in fields:
        if isinstance(field, int):
            parts.append(field.to_bytes(8, "big"))
        else:
            parts.append(field.encode().replace(b"\x00", _ZERO) + _END)
    return b"".join(parts)


def span(space: Space, *fields: str | int) -> tuple[bytes, bytes]:
    """First and end of the range of all keys that begin with these fields."""
    start = pack(space, *fields)
    return start, after_prefix(start)


def span_among(space: Space, first: str, last: str) -> tuple[bytes, bytes]:
    """First and end of the range of all keys whose first field is one of these texts or between them."""
    return pack(space, first), span(space, last)[1]


def text_span(space: Space, beginning: str) -> tuple[bytes, bytes]:
    """First and end of the range of all keys whose first field is a text that begins so."""
    start = pack(space, beginning).removesuffix(_END)
    return start, after_prefix(start)


def after_prefix(prefix: bytes) -> bytes:
    """The smallest key that is greater than every key with this prefix."""
    kept = prefix.rstrip(b"\xff")
    assert kept, "a space's byte is never 0xff"
    return kept[:-1] + bytes((kept[-1] + 1,))


def unpack(key: bytes, kinds: str) -> list[str | int]:
    """The fields of a key, by their kinds: `s` text, `i` integer. Raises CorruptError when they do not fit."""
    at = 1
    fields: list[str | int] = []
    for kind in kinds:
        if kind == "i":
            fields.append(int.from_bytes(key[at : at + 8], "big"))
            at += 8
        else:
            end = key.find(_END, at)
            if end < 0:
                break
            fields.append(key[at:end].replace(_ZERO, b"\x00").decode())
            at = end + len(_END)
    if len(fields) != len(kinds) or at != len(key):
        raise CorruptError("a key of the catalog cannot be read", key=describe(key))
    return fields


def entry_key(table: str, name: PartName, *, space: Space = Space.ENTRY) -> bytes:
    """The key of a part, mark or drop range (or, with Space.TRASH, of what was one)."""
    return pack(space, table, name.partition, name.min_block, name.max_block, name.level, name.mutation)


def copy_key(note: CopyNote) -> bytes:
    """Key of the note that a replica lacks a file."""
    return pack(Space.COPY, note.table, note.replica, "" if note.file is None else note.file.name)


def lacking_key(table: str, replica: int) -> bytes:
    """Key that is written with each new note that the replica lacks a file of the table."""
    return pack(Space.LACKING, table, replica)


def loaded_file_key(table: str, file: str) -> bytes:
    """Key of the record that a file was loaded; addresses may be longer than keys."""
    return pack(Space.LOADED_FILE, table, hashlib.sha256(file.encode()).hexdigest())


def delta_key(table: str, delta: Delta) -> bytes:
    """Key of a delta, which moves when it ends."""
    space = Space.ENDED_DELTA if delta.end_ts else Space.DELTA
    return pack(space, table, delta.partition, delta.change_ts, delta.file.name)


def describe(key: bytes) -> str:
    try:
        space = Space(key[:1]).name.lower()
    except ValueError:
        space = "unknown"
    return space + "/" + key[1:].replace(_END, b"/").decode("ascii", "backslashreplace").replace("\x00", "\\x00")
