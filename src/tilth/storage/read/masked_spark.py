"""Scans without deleted rows: their masks read, and a filter of Spark that tests a bit for each row.

Covers: where the deleted rows are read, the filter. Does not cover: bits and blocks (masks.py), the scan itself
(spark.py).
Always holds: the masks are whole before a frame exists. Few small files are read here, because a job of Spark lasts
longer; more are read by tasks. The filter is part of the scan's own stage: no join, no exchange, no job of its own.

Tests: tests/integration/storage/test_read_scan_paths.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions

from tilth.base.java_class import compiled_once
from tilth.base.mailbox import Mailbox
from tilth.storage.read.masks import Masks, Numbers, bit_expression, block_expression, masks_of, word_expression
from tilth.storage.read.overlay_spark import mask_blocks, part_blocks
from tilth.storage.read.scan_paths import Masked
from tilth.storage.store.root import Folder
from tilth.storage.upsert.key_lookup import in_threads

#: Files, and bytes of them, that are read here; a file counts for each part whose rows it deletes.
READ_FILES_MAX = 64
READ_BYTES_MAX = 16 << 20
#: Columns that a masked scan adds to its own: the file's modification time, which is the number of its first block, and
#: the row's index in its file.
NUMBER, POSITION = "__tilth_number", "__tilth_position"


def read_masks(
    session: SparkSession, *, folder: Folder, parts: Sequence[Masked], blocks: int, mailbox: Mailbox | None
) -> Masks:
    """Read the deleted rows of the parts; `blocks`: the number of all their blocks. Raises what reading a delta raises,
    and Spark's errors where tasks read, which `file_error` knows.
    """
    files, size = sum(len(part.deltas) for part in parts), sum(part.bytes for part in parts)
    if files <= READ_FILES_MAX and size <= READ_BYTES_MAX:
        found = in_threads(lambda part: part_blocks(folder, part), parts)
        return masks_of([batch for batches in found for batch in batches], blocks)
    table: pa.Table = mask_blocks(session, folder=folder, parts=parts, mailbox=mailbox).toArrow()
    return masks_of(table.to_batches(), blocks)


class DeletedRows:
    """The filter that leaves out the rows in masks. Made once for all scans of a snapshot."""

    def __init__(self, session: SparkSession, masks: Masks) -> None:
        """Raises Py4JError, TypeError where Spark's internals are not as they were."""
        starts, words = _array(session, masks.starts), _array(session, masks.words)
        block = functions.expr(block_expression(f"unix_millis({NUMBER})", POSITION))
        index = functions.get(starts, block) + functions.expr(word_expression(POSITION))
        word = functions.get(words, index.cast("int"))
        bit = functions.call_function("shiftright", word, functions.expr(bit_expression(POSITION)))
        self._is_present = bit.bitwiseAND(functions.lit(1)) == functions.lit(0)

    def without(self, frame: DataFrame) -> DataFrame:
        """Leave the deleted rows out; the frame has the columns `NUMBER` and `POSITION`."""
        return frame.where(self._is_present)


def _array(session: SparkSession, numbers: Numbers) -> Column:
    from pyspark.sql.classic.column import Column as ClassicColumn

    assert __package__ is not None
    java = compiled_once(session, __package__, "RowMasks")
    return ClassicColumn(java.column(numbers.astype("<i8", copy=False).tobytes()))
