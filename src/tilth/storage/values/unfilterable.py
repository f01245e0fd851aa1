"""Values that Parquet's own filters misjudge, so that a scan loses the rows that have them.

Spark passes the predicates of a scan to parquet-java, which skips row groups and pages by statistics, page index and
dictionaries before Spark compares any value. It disagrees with Spark about three kinds of values:

- NaN. Arrow leaves it out of statistics; Spark orders it above every number.
- 0.0 and -0.0. They are equal in Spark and two entries in a dictionary. Statistics are safe: Arrow and parquet-java
  widen a bound that is zero to both signs.
- Early dates and timestamps. Spark converts literals to java.sql.Date and java.sql.Timestamp and back, unless
  `spark.sql.datetime.java8API.enabled` is set, and their hybrid calendar changes some of them (see the constants
  below). Predicates on TIMESTAMP_NTZ are not passed on.

Covers: finding these values, the leaves that get no statistics or no dictionary because of them, the note in a file's
footer. Does not cover: scans (scan_options.py), the ranges that the catalog keeps (bounds.py).
Always holds: in a file whose record has `is_filterable`, no leaf has both such a value and the statistics or the
dictionary that misjudge it. That is checked against every row that is written; what is known before a file is opened
only helps to leave out the right leaves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tilth.model.delta import PartSource
from tilth.model.table import Column, Schema
from tilth.storage.values.scan_options import unfilterable_columns

#: Days since 1970. A literal before 1582-10-15 (Spark's RebaseDateTime.lastSwitchGregorianDay) may move by up to ten
#: days, because the hybrid calendar has none between 1582-10-04 and then; it stays below this bound.
DAYS_MIN = date(1583, 1, 1).toordinal() - date(1970, 1, 1).toordinal()
#: Microseconds since 1970. A literal before 1900-01-01 00:00 UTC (RebaseDateTime.lastSwitchGregorianTs) may move,
#: depending on the JVM's time zone, but by less than a day just before that: it stays below this bound.
MICROSECONDS_MIN = (date(1900, 1, 2).toordinal() - date(1970, 1, 1).toordinal()) * 86_400_000_000
#: The key of a footer's metadata under which `Unfilterable` is noted, as JSON.
NOTE = b"tilth.misjudged"


class Unfilterable(msgspec.Struct, frozen=True, kw_only=True):
    """Columns, by name, with values that Parquet's filters misjudge."""

    statistics: frozenset[str] = frozenset()
    dictionary: frozenset[str] = frozenset()

    def __or__(self, other: Unfilterable) -> Unfilterable:
        return Unfilterable(
            statistics=self.statistics | other.statistics, dictionary=self.dictionary | other.dictionary
        )


NOTHING = Unfilterable()


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of Parquet's: a column without nested values, or one of those at the bottom of a nested one."""

    #: The name of the table's column.
    column: str
    #: Path in Parquet's spelling, with the column's name first.
    path: str
    type: pa.DataType

    @property
    def is_unfilterable(self) -> bool:
        return _is_unfilterable_type(self.type)


def leaves_of(schema: pa.Schema) -> list[Leaf]:
    return [Leaf(field.name, path, kind) for field in schema for path, kind in _leaves(field.name, field.type)]


def unfilterable_paths(schema: pa.Schema, columns: Collection[str]) -> set[str]:
    """The paths of leaves that are unfilterable where these columns have such values.

    A path that two leaves have, as a column called `a.b` and the field `b` of `a`, always is: parquet-java reads the
    dictionary of the one for the other.
    """
    leaves = leaves_of(schema)
    paths = Counter(leaf.path for leaf in leaves)
    return {leaf.path for leaf in leaves if paths[leaf.path] > 1 or (leaf.column in columns and leaf.is_unfilterable)}


def unfilterable_in(rows: pa.Table) -> Unfilterable:
    statistics: set[str] = set()
    dictionary: set[str] = set()
    for field, column in zip(rows.schema, rows.columns, strict=True):
        for chunk in column.chunks:
            for values in _unfilterable_leaves(chunk):
                if pa.types.is_floating(values.type):
                    if pc.any(pc.is_nan(values)).as_py():
                        statistics.add(field.name)
                    if pc.any(pc.equal(values, pa.scalar(0.0, values.type))).as_py():
                        dictionary.add(field.name)
                elif _is_early(pc.min(values)):
                    statistics.add(field.name)
                    dictionary.add(field.name)
    return Unfilterable(statistics=frozenset(statistics), dictionary=frozenset(dictionary))


def unfilterable_in_file(schema: Schema, source: PartSource, metadata: pq.FileMetaData) -> Unfilterable:
    """The columns of the schema that may have such values once the file's rows have its columns.

    Changes of the source's rows are not considered.
    """
    found = msgspec.json.decode(metadata.metadata[NOTE], type=Unfilterable)
    stored = {column.id: column for column in source.schema.columns}
    columns = unfilterable_columns(schema)
    return Unfilterable(
        statistics=frozenset(each.name for each in columns if _may_be(each, stored.get(each.id), found.statistics)),
        dictionary=frozenset(each.name for each in columns if _may_be(each, stored.get(each.id), found.dictionary)),
    )


def note_of(unfilterable: Unfilterable) -> dict[bytes, bytes]:
    """Return the note about a file's values that goes into its footer."""
    return {NOTE: msgspec.json.encode(unfilterable, order="deterministic")}


def _may_be(column: Column, stored: Column | None, found: frozenset[str]) -> bool:
    """True if a column may have such values, given the names of the columns of the file that have some."""
    if stored is None:
        return column.default is not None or bool(column.expression)
    return stored.type != column.type or stored.name in found


def _is_unfilterable_type(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_floating(kind) or pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is not None)
    )


def _is_early(smallest: pa.Scalar) -> bool:
    if not smallest.is_valid:
        return False
    number: int = smallest.value
    return number < _late_from(smallest.type)


def _late_from(kind: pa.DataType) -> int:
    """Return the first value from which dates or times of the type are judged rightly."""
    return DAYS_MIN if pa.types.is_date(kind) else MICROSECONDS_MIN


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


def _unfilterable_leaves(values: pa.Array) -> Iterator[pa.Array]:
    if not any(_is_unfilterable_type(kind) for _, kind in _leaves("", values.type)):
        return
    if pa.types.is_struct(values.type):
        for field in values.flatten():
            yield from _unfilterable_leaves(field)
    elif pa.types.is_nested(values.type):
        first, last = values.offsets[0].as_py(), values.offsets[-1].as_py()
        inner = (values.keys, values.items) if pa.types.is_map(values.type) else (values.values,)
        for each in inner:
            yield from _unfilterable_leaves(each.slice(first, last - first))
    else:
        yield values
