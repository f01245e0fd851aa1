"""The class that Spark knows as the format `tilth`.

Covers: which reader and writer serves which use. Does not cover: what they do (batch.py). Always holds: Spark makes an
object of it for each load and each save, in a process of the driver's machine; what state it has travels pickled.

Tests: tests/integration/datasource/test_spark_source.py.
"""

from __future__ import annotations

import json
from typing import ClassVar

from pyspark.sql.datasource import CaseInsensitiveDict, DataSource
from pyspark.sql.types import StructType

from tilth.datasource.attachment import Attachment
from tilth.datasource.batch import SnapshotReader, chosen_columns, ddl_of, pin_table, release, use_lease
from tilth.datasource.errors import NotAttachedError, said
from tilth.datasource.options import BatchOptions, batch_options, is_of_stream, stream_options
from tilth.datasource.shipped import opener
from tilth.datasource.stream_reads import ChangesReader, stream_ddl
from tilth.datasource.stream_writes import StreamTableWriter
from tilth.datasource.write_options import batch_write_options, stream_write_options
from tilth.datasource.writes import TableWriter, table_writer
from tilth.model.table import Column

NAME = "tilth"
_OPEN = opener("tilth.datasource.source:opened_source")


class TilthDataSource(DataSource):
    """Tables of a Tilth server, for `spark.read.format("tilth")`."""

    #: Attachment of the session; set by `attached_source`.
    attachment: ClassVar[Attachment | None] = None
    #: Lease of the snapshot that was pinned at the load.
    lease: str = ""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        """Pin the snapshot that is read, and return its columns."""
        with said():
            if is_of_stream(self.options):
                return stream_ddl(self.attached, stream_options(self.options))
            # Spark does not say yet whether a batch or a stream reads; a stream releases it.
            return ddl_of(self._pinned_columns(batch_options(self.options)))

    def reader(self, schema: StructType) -> SnapshotReader:
        with said():
            options = batch_options(self.options)
            if self.lease:
                return SnapshotReader(use_lease(self.attached, self.lease, options), schema)
            # With a schema of the user's own, Spark has not called `schema`.
            self.lease, pinned = pin_table(self.attached, options)
            return SnapshotReader(pinned, schema)

    def streamReader(self, schema: StructType) -> ChangesReader:  # noqa: N802  # Spark's name
        with said():
            options = stream_options(self.options)
            if self.lease:
                release(self.attached, self.lease)
                self.lease = ""
            return ChangesReader(self.attached, options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> TableWriter:
        with said():
            return table_writer(self.attached, batch_write_options(self.options, is_overwrite=overwrite), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamTableWriter:  # noqa: N802  # Spark's name
        with said():
            options = stream_write_options(self.options, is_overwrite=overwrite)
            return StreamTableWriter(self.attached, options, schema)

    @property
    def attached(self) -> Attachment:
        """Raises NotAttachedError."""
        if self.attachment is None:
            raise NotAttachedError(hint="call tilth.attach(spark, url=..) first")
        return self.attachment

    def _pinned_columns(self, options: BatchOptions) -> list[Column]:
        self.lease, pinned = pin_table(self.attached, options)
        return chosen_columns(pinned.snapshot.table, options.columns)

    def __reduce__(self) -> tuple[object, tuple[bytes]]:
        # To executors, too, which lack the folder: there it is only asked for its name.
        folder = "" if self.attachment is None else self.attachment.folder
        packed = json.dumps({"folder": folder, "options": dict(self.options), "lease": self.lease})
        return _OPEN, (packed.encode(),)


def attached_source(attachment: Attachment) -> type[TilthDataSource]:
    """Return the class to register in a session. A class that is made here is pickled by value, with its folder."""
    return type("AttachedSource", (TilthDataSource,), {"attachment": attachment})


def opened_source(packed: bytes) -> TilthDataSource:
    """Make the data source of another process of its pickle."""
    state = json.loads(packed)
    source = attached_source(Attachment(state["folder"]))(CaseInsensitiveDict(state["options"]))
    source.lease = state["lease"]
    return source
