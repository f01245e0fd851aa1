"""Arrow streams.

Tests: tests/unit/formats/test_cell_values.py.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from tilth.formats.format import Format, drain
from tilth.model.wire import ColumnInfo, Summary


def _write(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], _: Sequence[ColumnInfo], __: Callable[[], Summary]
) -> Iterator[bytes]:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            yield drain(sink)
    yield drain(sink)


ARROW = Format(
    name="Arrow",
    aliases=("ArrowStream",),
    write=_write,
    media_type="application/vnd.apache.arrow.stream",
    is_arrow=True,
)
