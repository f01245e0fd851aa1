"""Key filters: beside a part of a table with a unique key, a file that shows which keys the part cannot have.

Covers: making, reading, searching. Does not cover: its use (upsert/key_lookup.py), when a part is written
(merge/flush.py, merge/merge.py).
Always holds: a key that is in the part is never denied; a filter that is missing, damaged or made for other columns is
as good as none, so no commit waits for one and none is in a record. It goes with its part's file.

The file, little endian: magic, shape of the key (CRC-32 of its types), keys, words, CRC-32 of all that follows and of
the numbers before it; then the words, of 64 bits, each a Bloom filter of its own.

Tests: tests/integration/storage/test_key_filters.py.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tilth.base.errors import TilthError
from tilth.base.logs import Log
from tilth.model.part import DataFile
from tilth.storage.parts.part_files import damaged_error, open_part
from tilth.storage.store.files.files import put, read_file
from tilth.storage.store.paths import FILTER_EXTENSION, TableLayout, sidecar_name
from tilth.storage.values.arrow import arrow_type
from tilth.storage.values.unique_keys import Hashes, Mask, keys_of

#: About 2 of 100 keys that are not there are taken to be there.
BITS_PER_KEY = 10
_BITS_SET = 4
_MAGIC = b"TILTHKF1"
_HEADER = struct.Struct("<8sIQQ")
_CHECKSUM = struct.Struct("<I")

_log = Log("storage")


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """Filter of one part's keys."""

    words: Hashes

    def may_have(self, hashes: Hashes) -> Mask:
        """Mark the hashes of keys that the part may have."""
        indexes, bits = _words_and_bits(hashes, len(self.words))
        found: Mask = (self.words[indexes] & bits) == bits
        return found


def write_filter(layout: TableLayout, file: DataFile) -> None:
    """Write the filter beside a part's Parquet file, from the keys that it has; nothing for a table without a key.

    `layout.schema` is that of the file. Raises PartFileNotFoundError and PartFileCorruptError of the part; that the
    filter itself could not be written is logged.
    """
    if not layout.unique_key:
        return
    types, names = key_types(layout), key_names(layout)
    with open_part(layout.folder, file) as parquet:
        count = int(parquet.metadata.num_rows)
        words = np.zeros(max(1, -(-count * BITS_PER_KEY // 64)), np.uint64)
        try:
            for row_group in range(parquet.metadata.num_row_groups):
                table = parquet.read_row_group(row_group, columns=names, use_threads=False)
                keys = keys_of([table.column(name) for name in names], types)
                indexes, bits = _words_and_bits(keys.hashes, len(words))
                np.bitwise_or.at(words, indexes, bits)
        except (pa.ArrowException, OSError) as error:
            raise damaged_error(layout.folder, file, error) from error
    name = _name(file)
    header = _HEADER.pack(_MAGIC, _shape(types), count, len(words))
    content = words.astype("<u8").tobytes()
    try:
        put(layout.folder, name, header + _CHECKSUM.pack(zlib.crc32(content, zlib.crc32(header))) + content)
    except (OSError, TilthError) as error:
        _log.warning("key_filter_not_written", file=layout.folder.uri(name), error=error)


def read_filter(layout: TableLayout, file: DataFile) -> KeyFilter | None:
    """The filter of a part; None, with a line in the log unless it was never made, where it cannot be used."""
    uri = layout.folder.uri(_name(file))
    try:
        content = read_file(layout.folder, _name(file)).to_pybytes()
    except FileNotFoundError:
        return None
    except (OSError, TilthError) as error:
        _log.warning("key_filter_ignored", file=uri, because=str(error))
        return None
    start = _HEADER.size + _CHECKSUM.size
    because = _damage(content, start)
    if because:
        _log.warning("key_filter_ignored", file=uri, because=because)
        return None
    _, shape, _, _ = _HEADER.unpack_from(content)
    if shape != _shape(key_types(layout)):
        # Made before an ALTER: it has no information about values of the current types.
        return None
    return KeyFilter(np.frombuffer(content, "<u8", offset=start).astype(np.uint64, copy=False))


def key_names(layout: TableLayout) -> list[str]:
    """Columns of the unique key as the schema spells them."""
    return [column.name for name in layout.unique_key if (column := layout.schema.find(name)) is not None]


def key_types(layout: TableLayout) -> list[pa.DataType]:
    return [arrow_type(column.type) for name in layout.unique_key if (column := layout.schema.find(name)) is not None]


def _words_and_bits(hashes: Hashes, words: int) -> tuple[np.ndarray[Any, np.dtype[np.int64]], Hashes]:
    """Return the word of each hash, and the bits that it has there."""
    indexes = ((hashes >> np.uint64(32)) * np.uint64(words)) >> np.uint64(32)
    bits = np.zeros(len(hashes), np.uint64)
    for number in range(_BITS_SET):
        bits |= np.uint64(1) << ((hashes >> np.uint64(6 * number)) & np.uint64(63))
    return indexes.astype(np.int64), bits


def _damage(content: bytes, start: int) -> str:
    """Describe what is wrong with the file; empty: nothing."""
    if len(content) < start or not content.startswith(_MAGIC):
        return "not a key filter"
    *_, words = _HEADER.unpack_from(content)
    if len(content) != start + 8 * words or not words:
        return "its length is not the one in its header"
    (expected,) = _CHECKSUM.unpack_from(content, _HEADER.size)
    found = zlib.crc32(memoryview(content)[start:], zlib.crc32(content[: _HEADER.size]))
    return "" if found == expected else "its checksum differs"


def _shape(types: Sequence[pa.DataType]) -> int:
    return zlib.crc32(", ".join(str(each) for each in types).encode())


def _name(file: DataFile) -> str:
    return sidecar_name(file.name, FILTER_EXTENSION)
