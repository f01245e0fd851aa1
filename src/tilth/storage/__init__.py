"""Where the bytes are: part files on a local disk, written once, merged, read, removed.

Covers: names of files, Arrow types, partition transforms, writing, merging, checking and cleaning part files.
`tilth.storage.spark` is the second door, for those who hold a Spark session: a snapshot as a DataFrame.
Does not cover: which files make up a table (tilth.catalog), when to merge or remove (tilth.maintenance).
Always holds: a file is complete, on the disk and never changed again before anybody hears its name; names follow from
the transaction, so what did not land is removed without listing a folder.
See also: docs/glossary.md (part, partition), tilth.model.part.
"""

from tilth.storage.arrow import arrow_schema, arrow_type, conform, schema_from_arrow, type_from_arrow
from tilth.storage.bounds import bound_of
from tilth.storage.cleaner import clean_transaction, drop_table_folder, remove_file
from tilth.storage.errors import (
    BadColumnError,
    BadPartitionError,
    MergeCancelledError,
    PartFileCorruptError,
    PartFileNotFoundError,
    PartShapeUnknownError,
    StoreAwayError,
    UnmappedTypeError,
)
from tilth.storage.merge import Expiry, MergeResult, merge_parts
from tilth.storage.partition import (
    Partitioned,
    check_partition_by,
    partition_id,
    partition_ids,
    result_type,
    transform_array,
)
from tilth.storage.parts import PartWriter, check_file, footer_rows, read_part, write_parts
from tilth.storage.paths import TableLayout, data_folder, file_name, layout_of, table_folder
from tilth.storage.rewrite import Place, rewrite_part
from tilth.storage.settings import TABLE_SETTINGS
from tilth.storage.shapes import expressions

__all__ = [
    "TABLE_SETTINGS",
    "BadColumnError",
    "BadPartitionError",
    "Expiry",
    "MergeCancelledError",
    "MergeResult",
    "PartFileCorruptError",
    "PartFileNotFoundError",
    "PartShapeUnknownError",
    "PartWriter",
    "Partitioned",
    "Place",
    "StoreAwayError",
    "TableLayout",
    "UnmappedTypeError",
    "arrow_schema",
    "arrow_type",
    "bound_of",
    "check_file",
    "check_partition_by",
    "clean_transaction",
    "conform",
    "data_folder",
    "drop_table_folder",
    "expressions",
    "file_name",
    "footer_rows",
    "layout_of",
    "merge_parts",
    "partition_id",
    "partition_ids",
    "read_part",
    "remove_file",
    "result_type",
    "rewrite_part",
    "schema_from_arrow",
    "table_folder",
    "transform_array",
    "type_from_arrow",
    "write_parts",
]
