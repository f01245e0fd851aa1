"""Random filters over columns of any type, in the words of Spark SQL and of duckdb.

Covers: trees of comparisons that mean the same in both. Does not cover: running them (beside_duckdb.py). Every literal
has exactly the type of what it is compared with, so that Spark pushes the comparison down to the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, assert_never

from tests.hostile import choice, spark_literal, text_of, values_of
from tilth.base.rand import Rng
from tilth.model.table import Column
from tilth.model.types import Array, DataType, Decimal, Field, Kind, Map, Simple, Struct, quoted

DUCK_TYPES = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INT8: "TINYINT",
    Kind.INT16: "SMALLINT",
    Kind.INT32: "INTEGER",
    Kind.INT64: "BIGINT",
    Kind.FLOAT32: "FLOAT",
    Kind.FLOAT64: "DOUBLE",
    Kind.STRING: "VARCHAR",
    Kind.BINARY: "BLOB",
    Kind.DATE: "DATE",
    # Instants in UTC are compared as the wall clock there shows them.
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.TIMESTAMP_NTZ: "TIMESTAMP",
}
_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
#: More than Spark makes single comparisons of (spark.sql.parquet.pushdown.inFilterThreshold).
_LONG_LIST = 12


class Dialect(Enum):
    SPARK = "spark"
    DUCK = "duckdb"


@dataclass(frozen=True, slots=True)
class Operand:
    """A column, or a field in one."""

    path: tuple[str, ...]
    type: DataType
    #: Some values that rows have there, for filters that find them; none of a nested type.
    present: tuple[Any, ...] = ()

    def text(self, dialect: Dialect) -> str:
        return ".".join(named(name, dialect) for name in self.path)


@dataclass(frozen=True, slots=True)
class Compared:
    operand: Operand
    operator: str
    value: Any
    #: The literal comes first.
    is_turned: bool = False


@dataclass(frozen=True, slots=True)
class ColumnsCompared:
    left: Operand
    operator: str
    right: Operand


@dataclass(frozen=True, slots=True)
class Between:
    operand: Operand
    low: Any
    high: Any
    is_negated: bool


@dataclass(frozen=True, slots=True)
class In:
    operand: Operand
    #: None among them: NULL.
    values: tuple[Any, ...]
    is_negated: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    operand: Operand
    is_negated: bool


@dataclass(frozen=True, slots=True)
class IsDistinct:
    operand: Operand
    value: Any
    is_negated: bool


@dataclass(frozen=True, slots=True)
class HasPrefix:
    operand: Operand
    prefix: str
    #: `True`: written with LIKE, else with a function.
    is_like: bool


@dataclass(frozen=True, slots=True)
class HasSize:
    """How many elements an array or map has."""

    operand: Operand
    operator: str
    size: int


@dataclass(frozen=True, slots=True)
class Not:
    item: Tree


@dataclass(frozen=True, slots=True)
class Joined:
    #: AND or OR.
    word: str
    items: tuple[Tree, ...]


Tree = Compared | ColumnsCompared | Between | In | IsNull | IsDistinct | HasPrefix | HasSize | Not | Joined


def operands_of(columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> list[Operand]:
    """The columns and the fields in their structs, at any depth; some rows are enough."""
    return [
        operand
        for place, column in enumerate(columns)
        for operand in _operands((column.name,), column.type, [row[place] for row in rows])
    ]


def random_tree(rng: Rng, operands: Sequence[Operand], depth: int = 2) -> Tree:
    """A filter over some of the operands."""
    kind = rng.random()
    if depth and kind < 0.15:
        return Not(random_tree(rng, operands, depth - 1))
    if depth and kind < 0.45:
        items = tuple(random_tree(rng, operands, depth - 1) for _ in range(2))
        return Joined(choice(rng, ("AND", "OR")), items)
    return _random_leaf(rng, choice(rng, operands), operands)


def written(tree: Tree, dialect: Dialect) -> str:
    """The filter as SQL."""
    match tree:
        case Compared(operand=operand, operator=operator, value=value, is_turned=is_turned):
            sides = [operand.text(dialect), operator, literal(value, operand.type, dialect)]
            return f"({' '.join(reversed(sides) if is_turned else sides)})"
        case ColumnsCompared(left=left, operator=operator, right=right):
            return f"({left.text(dialect)} {operator} {right.text(dialect)})"
        case Between(operand=operand, low=low, high=high, is_negated=is_negated):
            bounds = f"{literal(low, operand.type, dialect)} AND {literal(high, operand.type, dialect)}"
            return f"({operand.text(dialect)} {_not(is_negated)}BETWEEN {bounds})"
        case In(operand=operand, values=values, is_negated=is_negated):
            items = ", ".join(literal(value, operand.type, dialect) for value in values)
            return f"({operand.text(dialect)} {_not(is_negated)}IN ({items}))"
        case IsNull(operand=operand, is_negated=is_negated):
            return f"({operand.text(dialect)} IS {_not(is_negated)}NULL)"
        case IsDistinct(operand=operand, value=value, is_negated=is_negated):
            found = literal(value, operand.type, dialect)
            return f"({operand.text(dialect)} IS {_not(is_negated)}DISTINCT FROM {found})"
        case HasPrefix(operand=operand, prefix=prefix, is_like=True):
            pattern = "".join(f"!{each}" if each in "!%_" else each for each in prefix) + "%"
            return f"({operand.text(dialect)} LIKE {literal(pattern, operand.type, dialect)} ESCAPE '!')"
        case HasPrefix(operand=operand, prefix=prefix):
            function = "startswith" if dialect is Dialect.SPARK else "starts_with"
            return f"{function}({operand.text(dialect)}, {literal(prefix, operand.type, dialect)})"
        case HasSize(operand=operand, operator=operator, size=size):
            of_map = "size" if dialect is Dialect.SPARK else "cardinality"
            function = of_map if dialect is Dialect.SPARK or isinstance(operand.type, Map) else "len"
            return f"({function}({operand.text(dialect)}) {operator} {size})"
        case Not(item=item):
            return f"(NOT {written(item, dialect)})"
        case Joined(word=word, items=items):
            return f"({f' {word} '.join(written(item, dialect) for item in items)})"
    assert_never(tree)


def smaller(tree: Tree) -> Iterator[Tree]:
    """Filters that are parts of this one, or say less."""
    match tree:
        case Not(item=item):
            yield item
        case Joined(items=items):
            yield from items
        case In(operand=operand, values=values, is_negated=is_negated) if len(values) > 1:
            for place in range(len(values)):
                yield In(operand, values[:place] + values[place + 1 :], is_negated)
        case _:
            return


def literal(value: Any, data_type: DataType, dialect: Dialect) -> str:
    """The value as an expression of exactly this type."""
    assert isinstance(data_type, Simple | Decimal)
    if dialect is Dialect.SPARK:
        return spark_literal(value, data_type)
    if value is None:
        return f"CAST(NULL AS {duck_type(data_type)})"
    match data_type:
        case Simple(kind=Kind.STRING):
            return f"decode(unhex('{value.encode().hex()}'))"
        case Simple(kind=Kind.BINARY):
            return f"unhex('{value.hex()}')"
        case _:
            return f"CAST('{text_of(value, data_type)}' AS {duck_type(data_type)})"


def duck_type(data_type: DataType) -> str:
    """The type in duckdb's words."""
    match data_type:
        case Simple(kind=kind):
            return DUCK_TYPES[kind]
        case Decimal(precision=precision, scale=scale):
            return f"DECIMAL({precision}, {scale})"
        case Array(element=element):
            return f"{duck_type(element)}[]"
        case Map(key=key, value=value):
            return f"MAP({duck_type(key)}, {duck_type(value)})"
        case Struct(fields=fields):
            return f"STRUCT({', '.join(_duck_field(field) for field in fields)})"
    assert_never(data_type)


def _duck_field(field: Field) -> str:
    return f"{named(field.name, Dialect.DUCK)} {duck_type(field.type)}"


def _operands(path: tuple[str, ...], data_type: DataType, values: Sequence[Any]) -> Iterator[Operand]:
    present = [value for value in values if value is not None]
    if isinstance(data_type, Simple | Decimal):
        yield Operand(path, data_type, tuple(present))
        return
    yield Operand(path, data_type)
    if isinstance(data_type, Struct):
        for field in data_type.fields:
            yield from _operands((*path, field.name), field.type, [value[field.name] for value in present])


def _value(rng: Rng, operand: Operand) -> Any:
    """What the operand is compared with: half of the time what some row has."""
    if operand.present and rng.random() < 0.5:
        return choice(rng, operand.present)
    assert isinstance(operand.type, Simple | Decimal)
    return choice(rng, values_of(operand.type))


def _random_leaf(rng: Rng, operand: Operand, operands: Sequence[Operand]) -> Tree:
    data_type = operand.type
    is_negated = rng.random() < 0.4
    if isinstance(data_type, Array | Map) and rng.random() < 0.6:
        return HasSize(operand, choice(rng, _COMPARISONS), choice(rng, (0, 1, 2)))
    if not isinstance(data_type, Simple | Decimal):
        return IsNull(operand, is_negated)
    alike = [other for other in operands if other.type == data_type and other.path != operand.path]
    kind = rng.random()
    if alike and kind < 0.07:
        return ColumnsCompared(operand, choice(rng, _COMPARISONS), choice(rng, alike))
    if kind < 0.15:
        return IsNull(operand, is_negated)
    if kind < 0.25:
        return IsDistinct(operand, None if rng.random() < 0.1 else _value(rng, operand), is_negated)
    if kind < 0.38:
        return Between(operand, _value(rng, operand), _value(rng, operand), is_negated)
    if kind < 0.58:
        count = _LONG_LIST if rng.random() < 0.2 else 1 + int(rng.random() * 4)
        found = tuple(_value(rng, operand) for _ in range(count))
        return In(operand, (*found, None) if rng.random() < 0.1 else found, is_negated)
    if data_type == Simple(Kind.STRING) and kind < 0.72:
        text = _value(rng, operand)
        return HasPrefix(operand, text[: 1 + int(rng.random() * len(text))], rng.random() < 0.5)
    return Compared(operand, choice(rng, _COMPARISONS), _value(rng, operand), rng.random() < 0.15)


def _not(is_negated: bool) -> str:
    return "NOT " if is_negated else ""


def named(name: str, dialect: Dialect) -> str:
    """The name as the dialect writes any name."""
    return quoted(name) if dialect is Dialect.SPARK else '"' + name.replace('"', '""') + '"'
