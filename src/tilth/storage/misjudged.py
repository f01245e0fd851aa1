"""Parquet's own filters, and the values for which they answer otherwise than Spark.

Spark hands the predicates of a scan to parquet-java, which skips row groups and pages by statistics, page index and
dictionaries before Spark compares a value. For three kinds of values the two disagree, so that rows are lost:

- NaN: Arrow leaves it out of statistics, and for Spark it is greater than every number.
- 0.0 and -0.0: equal for Spark, two entries of a dictionary. Statistics are right: Arrow and parquet-java both widen a
  bound that is zero to either sign.
- early dates and timestamps: unless `spark.sql.datetime.java8API.enabled` is set, Spark turns a literal into
  java.sql.Date or java.sql.Timestamp and back, and that is another one (see the constants below). TIMESTAMP_NTZ has no
  such class, and Spark does not hand its predicates on.

Covers: finding such values, which leaves of a file get no statistics and no dictionary for them, the notes of both in a
file's footer, how a scan is told. Does not cover: the ranges that the catalog keeps (bounds.py).
Always holds: a file whose record says `is_filterable` has no such value in a leaf that has the statistics or the
dictionary that would misjudge it. Whether a value is such a one is always found out from the rows that are written;
what is known of them before the file is opened only keeps the record of more files good.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tilth.model.delta import PartSource
from tilth.model.table import Column, Schema
from tilth.storage.scan_options import misjudged_columns

#: Days since 1970. Literals before 1582-10-15 (RebaseDateTime.lastSwitchGregorianDay) may move, by ten days at most,
#: for the hybrid calendar has no day between 1582-10-04 and then. Files without dates before this one are right.
DAYS_MIN = date(1583, 1, 1).toordinal() - date(1970, 1, 1).toordinal()
#: Microseconds since 1970. Literals before 1900-01-01 00:00 UTC (RebaseDateTime.lastSwitchGregorianTs) may move with
#: the JVM's zone, near that bound by less than a day: java.util.TimeZone knows no change of a zone before it.
MICROSECONDS_MIN = (date(1900, 1, 2).toordinal() - date(1970, 1, 1).toordinal()) * 86_400_000_000
#: The key of a footer's metadata under which `Misjudged` is noted, as JSON.
NOTE = b"tilth.misjudged"


class Misjudged(msgspec.Struct, frozen=True, kw_only=True):
    """Columns, by name, with values that Parquet's filters misjudge."""

    statistics: frozenset[str] = frozenset()
    dictionary: frozenset[str] = frozenset()

    def __or__(self, other: Misjudged) -> Misjudged:
        return Misjudged(statistics=self.statistics | other.statistics, dictionary=self.dictionary | other.dictionary)


NOTHING = Misjudged()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of Parquet's: a column without nested values, or one of those at the bottom of a nested one."""

    #: The name of the table's column.
    column: str
    #: As Parquet spells it, with the column's name first.
    path: str
    type: pa.DataType


def leaves_of(schema: pa.Schema) -> list[Leaf]:
    """All leaves in the order of the file."""
    return [Leaf(field.name, path, kind) for field in schema for path, kind in _leaves(field.name, field.type)]


def can_be_misjudged(leaf: Leaf) -> bool:
    """Whether the leaf's type has values that Parquet's filters misjudge."""
    return _is_misjudged_type(leaf.type)


def misjudged_in(rows: pa.Table) -> Misjudged:
    """The columns of these rows with values that are misjudged."""
    statistics: set[str] = set()
    dictionary: set[str] = set()
    for field, column in zip(rows.schema, rows.columns, strict=True):
        for chunk in column.chunks:
            for values in _misjudged_leaves(chunk):
                if pa.types.is_floating(values.type):
                    if pc.any(pc.is_nan(values)).as_py():
                        statistics.add(field.name)
                    if pc.any(pc.equal(values, pa.scalar(0.0, values.type))).as_py():
                        dictionary.add(field.name)
                elif _is_early(pc.min(values)):
                    statistics.add(field.name)
                    dictionary.add(field.name)
    return Misjudged(statistics=frozenset(statistics), dictionary=frozenset(dictionary))


def misjudged_in_file(schema: Schema, source: PartSource, metadata: pq.FileMetaData) -> Misjudged:
    """The columns of the schema that may have such values when rows of the file become rows with its columns.

    What changes the source's rows is not looked at.
    """
    columns = misjudged_columns(schema)
    noted = (metadata.metadata or {}).get(NOTE)
    if noted is None:
        names = frozenset(column.name for column in columns)
        return Misjudged(statistics=names, dictionary=names)
    found = msgspec.json.decode(noted, type=Misjudged)
    stored = {column.id: column for column in source.schema.columns}
    return Misjudged(
        statistics=frozenset(each.name for each in columns if _may_be(each, stored.get(each.id), found.statistics)),
        dictionary=frozenset(each.name for each in columns if _may_be(each, stored.get(each.id), found.dictionary)),
    )


def note_of(misjudged: Misjudged) -> dict[bytes, bytes]:
    """What a file's footer says of its values."""
    return {NOTE: msgspec.json.encode(misjudged, order="deterministic")}


def _may_be(column: Column, stored: Column | None, found: frozenset[str]) -> bool:
    """Whether a column may have such values, given the names of those in the file that have some."""
    if stored is None:
        return column.default is not None
    return stored.type != column.type or stored.name in found


def _is_misjudged_type(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_floating(kind) or pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None)
    )


def _is_early(smallest: pa.Scalar) -> bool:
    if not smallest.is_valid:
        return False
    number: int = smallest.value
    return number < (DAYS_MIN if pa.types.is_date(smallest.type) else MICROSECONDS_MIN)


def _leaves(path: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    if pa.types.is_map(kind):
        yield from _leaves(f"{path}.key_value.key", kind.key_type)
        yield from _leaves(f"{path}.key_value.value", kind.item_type)
    elif pa.types.is_list(kind):
        yield from _leaves(f"{path}.list.element", kind.value_type)
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _leaves(f"{path}.{field.name}", field.type)
    else:
        yield path, kind


def _misjudged_leaves(values: pa.Array) -> Iterator[pa.Array]:
    """The values of all leaves that may be misjudged."""
    if not any(_is_misjudged_type(kind) for _, kind in _leaves("", values.type)):
        return
    if pa.types.is_struct(values.type):
        for field in values.flatten():
            yield from _misjudged_leaves(field)
    elif pa.types.is_nested(values.type):
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        inner = (values.keys, values.items) if pa.types.is_map(values.type) else (values.values,)
        for each in inner:
            yield from _misjudged_leaves(each.slice(first, last - first))
    else:
        yield values
