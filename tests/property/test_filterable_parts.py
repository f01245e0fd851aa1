"""What a part's record and file contain about its values is true, whatever the values and however they came.

How: random columns of any type, nested ones too, are written in stretches, merged and merged again; each leaf that has
statistics or a dictionary in a file whose record is filterable is then searched for values that these
would misjudge.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.hostile import plain, strategy
from tests.long import examples
from tests.part_sources import new_part, plain_source
from tilth.model.part import DataFile
from tilth.model.table import Column, Schema
from tilth.model.types import Array, DataType, Field, Kind, Map, Simple, Struct
from tilth.storage import PartWriter, TableLayout, arrow_schema, local_folder, merge_parts, read_part
from tilth.storage.values.unfilterable import DAYS_MIN, MICROSECONDS_MIN

_FLOATS, _DATE, _TIME = (Simple(Kind.FLOAT32), Simple(Kind.FLOAT64)), Simple(Kind.DATE), Simple(Kind.TIMESTAMP)
_TYPES: tuple[DataType, ...] = (
    *_FLOATS,
    _DATE,
    _TIME,
    Simple(Kind.TIMESTAMP_NTZ),
    Simple(Kind.STRING),
    Array(_FLOATS[1]),
    Map(_FLOATS[0], Array(_DATE)),
    Struct(
        (Field("x", _FLOATS[1]), Field("in", Struct((Field("t", _TIME), Field("s", Simple(Kind.STRING)))))),
    ),
)


@st.composite
def _tables(draw: st.DrawFn) -> tuple[Schema, list[list[pa.Table]]]:
    """A schema, and of some files the stretches of rows that each is written in."""
    types = draw(st.lists(st.sampled_from(_TYPES), min_size=1, max_size=3))
    columns = (Column(id=index + 1, name=f"c{index}", type=of) for index, of in enumerate(types))
    schema = Schema(columns=tuple(columns))
    stretch = st.lists(st.tuples(*map(strategy, types)), min_size=1, max_size=6).map(lambda rows: _table(schema, rows))
    return schema, draw(st.lists(st.lists(stretch, min_size=1, max_size=4), min_size=1, max_size=3))


def _table(schema: Schema, rows: list[tuple[Any, ...]]) -> pa.Table:
    wanted = arrow_schema(schema)
    arrays = [pa.array([row[index] for row in rows], field.type) for index, field in enumerate(wanted)]
    return pa.table(arrays, schema=wanted)


def _leaves(path: str, of: DataType, value: Any) -> Iterator[tuple[str, DataType, Any]]:
    match of:
        case _ if value is None:
            return
        case Array(element=element):
            for each in value:
                yield from _leaves(f"{path}.list.element", element, each)
        case Map(key=key, value=item):
            for name, each in value:
                yield from _leaves(f"{path}.key_value.key", key, name)
                yield from _leaves(f"{path}.key_value.value", item, each)
        case Struct(fields=fields):
            for field in fields:
                yield from _leaves(f"{path}.{field.name}", field.type, value[field.name])
        case _:
            yield path, of, value


def _check(layout: TableLayout, file: DataFile) -> None:
    metadata = pq.read_metadata(Path(layout.folder, file.name))
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    chunks = [group.column(index) for group in groups for index in range(group.num_columns)]
    with_statistics = {chunk.path_in_schema for chunk in chunks if chunk.is_stats_set}
    with_dictionary = {chunk.path_in_schema for chunk in chunks if chunk.has_dictionary_page}
    table = read_part(layout.folder, file)
    for column, values in zip(layout.schema.columns, table.columns, strict=True):
        found = plain(pa.concat_arrays(values.chunks))
        for path, of, value in (leaf for each in found for leaf in _leaves(column.name, column.type, each)):
            is_early = (of == _DATE and value < DAYS_MIN) or (of == _TIME and value < MICROSECONDS_MIN)
            if is_early or (of in _FLOATS and math.isnan(value)):
                assert path not in with_statistics, (path, value)
            if is_early or (of in _FLOATS and value == 0):
                assert path not in with_dictionary, (path, value)


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.too_slow])
@given(_tables(), st.integers(1, 9), st.integers(1, 9))
def test_no_value_of_a_filterable_file_is_unfilterable(
    drawn: tuple[Schema, list[list[pa.Table]]], group_rows: int, block_rows: int
) -> None:
    schema, stretches = drawn
    with tempfile.TemporaryDirectory() as temporary:
        folder = local_folder(temporary)
        layout = TableLayout(folder=folder, schema=schema, row_group_rows=group_rows, fsync=False)
        files = []
        for number, tables in enumerate(stretches):
            name = f"{number}-0.0-0.parquet"
            with PartWriter(layout, name=name, partition="all", values=()) as writer:
                for table in tables:
                    writer.write(table)
                part = writer.close()
            assert part is not None
            files.append(part.file)
        for txn in (100, 101):
            sources = [plain_source(file, schema) for file in files]
            merged = merge_parts(
                new_part(layout, txn=txn),
                sources,
                task=0,
                attempt=0,
                block_rows=block_rows,
            ).written
            assert merged is not None
            # All that is in it was in the notes of its sources.
            assert merged.file.is_filterable
            files.append(merged.file)
        for file in files:
            if file.is_filterable:
                _check(layout, file)
