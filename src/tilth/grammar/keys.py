"""PARTITION BY and the keys: which columns, and through which of the known functions. Pure.

Always holds: a partition is a tuple of transforms that kernels, pruning, TTL and GC all understand; keys are
columns only.

Tests: tests/unit/grammar/test_create.py.
"""

from __future__ import annotations

from tilth.grammar.text.cursor import Cursor, listed, nearest
from tilth.grammar.text.tokens import TokenKind
from tilth.model.table import Transform, TransformKind

_OF_COLUMN: dict[str, TransformKind] = {
    "identity": TransformKind.IDENTITY,
    "todate": TransformKind.TO_DATE,
    "toyyyymm": TransformKind.TO_YYYYMM,
    "toyyyymmdd": TransformKind.TO_YYYYMMDD,
    "tostartofhour": TransformKind.TO_START_OF_HOUR,
    "tostartofday": TransformKind.TO_DATE,
    "tomonday": TransformKind.TO_MONDAY,
    "tostartofmonth": TransformKind.TO_START_OF_MONTH,
    "toyear": TransformKind.TO_YEAR,
    "tohour": TransformKind.TO_HOUR,
    # Spark's and Iceberg's spellings.
    "date": TransformKind.TO_DATE,
    "day": TransformKind.TO_DATE,
    "days": TransformKind.TO_DATE,
    "month": TransformKind.TO_YYYYMM,
    "months": TransformKind.TO_YYYYMM,
    "hour": TransformKind.TO_START_OF_HOUR,
    "hours": TransformKind.TO_START_OF_HOUR,
}
_OF_NUMBER: dict[str, TransformKind] = {
    "truncate": TransformKind.TRUNCATE,
    "bucket": TransformKind.BUCKET,
    "modulo": TransformKind.MODULO,
}
#: Hashes of ClickHouse and Spark: rows of one value stay together whichever it is.
_HASHES = frozenset(
    "cityhash64 siphash64 farmhash64 inthash32 inthash64 murmurhash2_32 murmurhash2_64 murmurhash3_32 murmurhash3_64 "
    "xxhash32 xxhash64 javahash halfmd5 hash crc32".split()
)
#: Partition functions to write instead of functions of other systems.
_FUNCTIONS_INSTEAD = {
    "intdiv": "truncate(1000, k) for intDiv(k, 1000)",
    "div": "truncate(1000, k) for div(k, 1000)",
    "floor": "truncate(1000, k) for floor(k / 1000)",
    "tostartofinterval": "toStartOfHour(t), toDate(t), toMonday(t) or toStartOfMonth(t)",
    "date_trunc": "toStartOfHour(t), toDate(t), toMonday(t) or toStartOfMonth(t)",
    "substring": "truncate(3, s) for the first 3 characters",
    "left": "truncate(3, s) for the first 3 characters",
}
_KNOWN = (
    "toDate",
    "toYYYYMM",
    "toYYYYMMDD",
    "toStartOfHour",
    "toMonday",
    "toStartOfMonth",
    "toYear",
    "toHour",
    "modulo",
    "days",
    "months",
    "hours",
    "truncate",
    "bucket",
    "identity",
)


def parse_partition_by(cursor: Cursor) -> tuple[Transform, ...]:
    """Read a column, a transform, or a tuple of them; `tuple()` is no partitioning."""
    if _accept_tuple(cursor):
        transforms: list[Transform] = []
        while not cursor.accept_symbol(")"):
            if transforms and _goes_on(cursor):
                raise _not_a_transform(cursor)
            if transforms and not cursor.accept_symbol(","):
                raise cursor.expected("',' or ')'")
            transforms.append(_transform(cursor))
        return tuple(transforms)
    first = _transform(cursor)
    if _goes_on(cursor):
        raise _not_a_transform(cursor)
    if cursor.is_symbol(","):
        raise cursor.expected("the next clause", hint="put several in brackets: PARTITION BY (a, b)")
    return (first,)


def parse_key(cursor: Cursor, clause: str, *, is_element: bool = False) -> tuple[str, ...]:
    """Read the columns of ORDER BY, PRIMARY KEY or UNIQUE KEY; `tuple()` is none.

    `is_element`: the key stands among the table's columns, so that a comma ends it.
    """
    columns: list[str] = []
    if not _accept_tuple(cursor):
        columns += _key_columns(cursor, clause)
        if _goes_on(cursor):
            raise _not_a_column(cursor, clause)
        if cursor.is_symbol(",") and not is_element:
            raise cursor.expected("the next clause", hint=f"put several in brackets: {clause} (a, b)")
        return tuple(columns)
    while not cursor.accept_symbol(")"):
        if columns and not cursor.accept_symbol(","):
            raise _not_a_column(cursor, clause) if _goes_on(cursor) else cursor.expected("',' or ')'")
        token = cursor.peek()
        for column in _key_columns(cursor, clause):
            if column.lower() in (known.lower() for known in columns):
                raise cursor.error(f"column {column} is twice in {clause}", at=token)
            columns.append(column)
    return tuple(columns)


def _accept_tuple(cursor: Cursor) -> bool:
    if cursor.at("TUPLE") and cursor.is_symbol("(", 1):
        cursor.advance()
    return cursor.accept_symbol("(")


def _key_columns(cursor: Cursor, clause: str) -> list[str]:
    """Read one column; of a hash, its columns, which identify a row as well as the hash does, and better."""
    if not (cursor.peek().text.lower() in _HASHES and cursor.is_symbol("(", 1)):
        return [_key_column(cursor, clause)]
    written = cursor.name("a hash")
    cursor.expect_symbol("(")
    columns = [_key_column(cursor, clause)]
    while cursor.accept_symbol(","):
        columns.append(_key_column(cursor, clause))
    cursor.expect_symbol(")")
    cursor.notice(f"{clause} takes columns: {written}({', '.join(columns)}) is read as {', '.join(columns)}")
    return columns


def _key_column(cursor: Cursor, clause: str) -> str:
    if not cursor.is_name() or cursor.is_symbol("(", 1) or cursor.is_symbol(".", 1):
        raise _not_a_column(cursor, clause)
    column = cursor.name("a column")
    cursor.accept("ASC")
    if cursor.at("DESC"):
        raise cursor.refused(f"DESC in {clause} is not supported", hint="keys are sorted ascending; leave DESC out")
    return column


def _goes_on(cursor: Cursor) -> bool:
    """True if an operator makes an expression of what stood before."""
    token = cursor.peek()
    return token.kind is TokenKind.SYMBOL and token.text not in ",;()[]{}"


def _not_a_transform(cursor: Cursor) -> Exception:
    message = f"PARTITION BY takes columns and partition functions, found {cursor.found()}"
    return cursor.refused(message, hint=f"known: {listed(_KNOWN, 'and')}")


def _not_a_column(cursor: Cursor, clause: str) -> Exception:
    hint = "store the value as a column of its own and sort by that"
    return cursor.refused(f"{clause} takes column names only, found {cursor.found()}", hint=hint)


def _transform(cursor: Cursor) -> Transform:
    token = cursor.peek()
    name = cursor.name("a column or a partition function")
    if not cursor.accept_symbol("("):
        if cursor.accept_symbol("%"):
            return Transform(kind=TransformKind.MODULO, column=name, argument=_positive(cursor, "%"))
        return Transform(kind=TransformKind.IDENTITY, column=name)
    lowered = name.lower()
    if lowered in _HASHES:
        return _bucket_of_hash(cursor, name)
    if lowered in _OF_COLUMN:
        transform = Transform(kind=_OF_COLUMN[lowered], column=_argument_column(cursor, name))
    elif lowered in _OF_NUMBER:
        transform = _with_number(cursor, name, _OF_NUMBER[lowered])
    else:
        near = nearest(name, _KNOWN)
        known = f"known: {listed(_KNOWN, 'and')}"
        hint = f"did you mean {near}? {known}" if near else known
        if lowered in _FUNCTIONS_INSTEAD:
            hint = f"write {_FUNCTIONS_INSTEAD[lowered]}; {known}"
        raise cursor.refused(f"partition function {name} is not supported", at=token, hint=hint)
    cursor.expect_symbol(")")
    return transform


def _bucket_of_hash(cursor: Cursor, name: str) -> Transform:
    """`cityHash64(k) % 8` is `bucket(8, k)`: as many partitions, by another hash."""
    column = _argument_column(cursor, name)
    cursor.expect_symbol(")")
    if cursor.accept("PARTITIONS"):
        buckets = _positive(cursor, "PARTITIONS")
        cursor.notice(f"{name}({column}) PARTITIONS {buckets} is read as bucket({buckets}, {column})")
        return Transform(kind=TransformKind.BUCKET, column=column, argument=buckets)
    if not cursor.accept_symbol("%"):
        hint = f"write {name}({column}) % 8, or bucket(8, {column})"
        raise cursor.refused(f"PARTITION BY {name}(..) would make a partition of each value", hint=hint)
    buckets = _positive(cursor, "%")
    cursor.notice(f"{name}({column}) % {buckets} is read as bucket({buckets}, {column}), which has a hash of its own")
    return Transform(kind=TransformKind.BUCKET, column=column, argument=buckets)


def _with_number(cursor: Cursor, function: str, kind: TransformKind) -> Transform:
    """Read a transform's number, which may stand first, as in Spark and Iceberg, or last."""
    if cursor.is_name():
        column = _argument_column(cursor, function)
        cursor.expect_symbol(",")
        return Transform(kind=kind, column=column, argument=_positive(cursor, function))
    argument = _positive(cursor, function)
    cursor.expect_symbol(",")
    return Transform(kind=kind, column=_argument_column(cursor, function), argument=argument)


def _positive(cursor: Cursor, function: str) -> int:
    token = cursor.peek()
    number = cursor.integer(f"a number for {function}")
    if number < 1:
        raise cursor.error(f"{function} needs a number of at least 1", at=token)
    return number


def _argument_column(cursor: Cursor, function: str) -> str:
    column = cursor.name(f"a column in {function}(..)")
    if cursor.is_symbol("("):
        raise cursor.refused(
            f"{function} takes a column, not a function of one", hint="partition functions do not nest"
        )
    return column
