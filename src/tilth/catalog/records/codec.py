"""The catalog's values: MessagePack behind one byte with the version of the format. Pure.

Always holds: a value of a newer version is refused by name, never misread. Fields may be added with a default without
a new version: programs that do not know them skip them. A field whose meaning changes needs a new version.

Tests: tests/unit/catalog/records/test_keys.py, tests/unit/catalog/records/test_small_commit.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Generic, TypeVar

import msgspec

from tilth.base.errors import CorruptError
from tilth.catalog.errors import NewerFormatError
from tilth.catalog.records.keys import describe
from tilth.catalog.records.nouns import (
    CommitLockRecord,
    DatabaseRecord,
    DroppedTable,
    FinishedTxn,
    FormerKafkaTable,
    LabelRecord,
    PartitionRecord,
    StreamRecord,
    TableVersion,
    VersionCommit,
)
from tilth.model.copy_note import CopyNote
from tilth.model.delta import Delta
from tilth.model.lease import Lease, ReaderLease
from tilth.model.loaded_file import LoadedFile
from tilth.model.mutation import Mutation
from tilth.model.offset import IngestGap, LedgerEntry, StoredOffset, Subscription
from tilth.model.part import Entry, PartEvent, TrashItem
from tilth.model.pipe import FailedFile, Pipe
from tilth.model.server import Placement, ServerRecord
from tilth.model.service import Switch
from tilth.model.storage import Storage
from tilth.model.table import Relation, Secrets
from tilth.model.txn import LeftoverNote, LostTxn, Tombstone, Txn
from tilth.model.warehouse import Drain, Warehouse

T = TypeVar("T")

#: Version of the format of all values.
VERSION = 1

_TAG = bytes((VERSION,))
_encoder = msgspec.msgpack.Encoder()


class Codec(Generic[T]):
    """Values of one type to bytes and back."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[T]) -> None:
        self._decoder = decoder

    def encode(self, value: T) -> bytes:
        return _TAG + _encoder.encode(value)

    def decode(self, key: bytes, data: bytes) -> T:
        """Raises NewerFormatError or CorruptError, naming the key."""
        if data[:1] != _TAG:
            if data and data[0] > VERSION:
                hint = "start the version of the program that wrote it, or a later one"
                raise NewerFormatError(key=describe(key), found=data[0], known=VERSION, hint=hint)
            version = data[:1].hex()
            raise CorruptError("a value of the catalog has no known version", key=describe(key), found=version)
        try:
            return self._decoder.decode(memoryview(data)[1:])
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise CorruptError("a value of the catalog cannot be read", key=describe(key), error=error) from error


class CachedCodec(Codec[T]):
    """Memoized codec, for records that are read one by one and seldom change: equal bytes decode to the same object."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[T], *, values_max: int) -> None:
        super().__init__(decoder)
        self._cached = lru_cache(values_max)(super().decode)

    def decode(self, key: bytes, data: bytes) -> T:
        return self._cached(key, data)


DATABASES = Codec(msgspec.msgpack.Decoder(DatabaseRecord))
TEXTS = Codec(msgspec.msgpack.Decoder(str))
INTEGERS = Codec(msgspec.msgpack.Decoder(int))
BLOBS = Codec(msgspec.msgpack.Decoder(bytes))
RELATIONS: Codec[Relation] = CachedCodec(msgspec.msgpack.Decoder[Relation](Relation), values_max=1_000)
ENTRIES: Codec[Entry] = Codec(msgspec.msgpack.Decoder[Entry](Entry))
SECRETS = Codec(msgspec.msgpack.Decoder(Secrets))
DROPPED = Codec(msgspec.msgpack.Decoder(DroppedTable))
VERSIONS = Codec(msgspec.msgpack.Decoder(TableVersion))
VERSION_COMMITS = Codec(msgspec.msgpack.Decoder(VersionCommit))
PARTITIONS = Codec(msgspec.msgpack.Decoder(PartitionRecord))
DELTAS = Codec(msgspec.msgpack.Decoder(Delta))
LABELS = Codec(msgspec.msgpack.Decoder(LabelRecord))
LOADED_FILES = Codec(msgspec.msgpack.Decoder(LoadedFile))
PIPES = Codec(msgspec.msgpack.Decoder(Pipe))
FAILED_FILES = Codec(msgspec.msgpack.Decoder(FailedFile))
STREAMS = Codec(msgspec.msgpack.Decoder(StreamRecord))
TRASH = Codec(msgspec.msgpack.Decoder(TrashItem))
MUTATIONS = Codec(msgspec.msgpack.Decoder(Mutation))
OPEN_TXNS = Codec(msgspec.msgpack.Decoder(Txn))
FINISHED_TXNS = Codec(msgspec.msgpack.Decoder(FinishedTxn))
LEFTOVER_NOTES = Codec(msgspec.msgpack.Decoder(LeftoverNote))
LOST_TXNS = Codec(msgspec.msgpack.Decoder(LostTxn))
TOMBSTONES = Codec(msgspec.msgpack.Decoder(Tombstone))
OFFSETS = Codec(msgspec.msgpack.Decoder(StoredOffset))
SUBSCRIPTIONS = Codec(msgspec.msgpack.Decoder(Subscription))
FORMER = Codec(msgspec.msgpack.Decoder(FormerKafkaTable))
LEDGER = Codec(msgspec.msgpack.Decoder(LedgerEntry))
GAPS = Codec(msgspec.msgpack.Decoder(IngestGap))
PLACEMENTS = Codec(msgspec.msgpack.Decoder(Placement))
COMMIT_LOCKS = Codec(msgspec.msgpack.Decoder(CommitLockRecord))
SERVERS = Codec(msgspec.msgpack.Decoder(ServerRecord))
LEASES = Codec(msgspec.msgpack.Decoder(Lease))
READERS = Codec(msgspec.msgpack.Decoder(ReaderLease))
SWITCHES = Codec(msgspec.msgpack.Decoder(Switch))
STORAGES = Codec(msgspec.msgpack.Decoder(Storage))
COPIES = Codec(msgspec.msgpack.Decoder(CopyNote))
WAREHOUSES = Codec(msgspec.msgpack.Decoder(Warehouse))
DRAINS = Codec(msgspec.msgpack.Decoder(Drain))
PART_EVENTS = Codec(msgspec.msgpack.Decoder(PartEvent))
