"""Messages for the matrix of rounds: in every format the same rows, and the same ways to be broken.

A message is planned as a list of rows, or as broken; what each view makes of it follows from the plan alone.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tilth.model.types import Kind

#: Columns of the Kafka table: a number, a text, a number as text, numbers with commas between.
COLUMNS = {"id": Kind.INT64, "s": Kind.STRING, "x": Kind.STRING, "l": Kind.STRING}
Row = tuple[int | None, str, str, str]
#: Rows that one message gives a view's target, counted; None: the view refuses the message.
Made = Counter[tuple[Any, ...]] | None


@dataclass(frozen=True, slots=True)
class Planned:
    """One message."""

    #: None: it cannot be decoded.
    rows: tuple[Row, ...] | None


BROKEN = Planned(None)


def good(number: int, *, rows: int = 1) -> Planned:
    return Planned(tuple((number * 10 + i, f"s{number % 3}", str(number), "1,2") for i in range(rows)))


def without_key(number: int) -> Planned:
    """Only a target with a unique key cannot take it."""
    return Planned(((number * 10, "s0", "1", "1"), (None, "s0", "1", "1")))


def no_number(number: int, *, rows: int = 1) -> Planned:
    """The last of its rows has no number where one is looked for."""
    (*before, (id_, s, _, _)) = good(number, rows=rows).rows or ()
    return Planned((*before, (id_, s, f"x{number}", "3,y")))


# Formats


def _json(planned: Planned) -> bytes:
    if planned.rows is None:
        return b'{"id": "broken", '
    return "".join(json.dumps(dict(zip(COLUMNS, row, strict=True))) + "\n" for row in planned.rows).encode() or b" "


def _csv(planned: Planned) -> bytes:
    if planned.rows is None:
        return b"1,2"
    cells = [("\\N" if id_ is None else str(id_), s, x, f'"{items}"') for id_, s, x, items in planned.rows]
    return "\r\n".join(map(",".join, cells)).encode() or b"\n"


def _event(planned: Planned) -> bytes:
    if planned.rows is None:
        return b'{"op": "c"}'
    [row] = planned.rows
    event = {"op": "c", "after": dict(zip(COLUMNS, row, strict=True))}
    return json.dumps(event).encode()


@dataclass(frozen=True, slots=True)
class MessageFormat:
    settings: Mapping[str, str]
    encode: Callable[[Planned], bytes]
    #: `True` where a message may hold several rows.
    has_many: bool = True


FORMATS = {
    "json": MessageFormat({}, _json),
    "csv": MessageFormat({"kafka_format": "CSV"}, _csv),
    "debezium": MessageFormat({"kafka_envelope": "debezium"}, _event, has_many=False),
}

# Views


def _each(make: Callable[[Row], Iterable[tuple[Any, ...]]]) -> Callable[[Planned], Made]:
    """What a view makes of each row; ValueError: it refuses the message."""

    def made(planned: Planned) -> Made:
        if planned.rows is None:
            return Counter()
        try:
            return Counter(row for given in planned.rows for row in make(given))
        except ValueError:
            return None

    return made


def _keyed(planned: Planned) -> Made:
    rows = planned.rows or ()
    return None if any(row[0] is None for row in rows) else Counter((row[0], row[1]) for row in rows)


@dataclass(frozen=True, slots=True)
class MatrixView:
    columns: Mapping[str, Kind]
    select: str
    makes: Callable[[Planned], Made]
    table: Mapping[str, Any]


def _view(columns: Mapping[str, Kind], select: str, makes: Callable[[Planned], Made], **table: Any) -> MatrixView:
    return MatrixView(columns, select, makes, table)


_ID, _S, _V = {"id": Kind.INT64}, {"s": Kind.STRING}, {"v": Kind.INT64}
VIEWS = {
    "picks": _view(_ID | _S, "SELECT id, s FROM k", _each(lambda r: [(r[0], r[1])])),
    "keys": _view(_ID | _S, "SELECT id, s FROM k", _keyed, unique_key=("id",)),
    "filters": _view(
        _ID | _S,
        "SELECT id, s FROM k WHERE id % 20 = 0",
        _each(lambda r: [(r[0], r[1])] if r[0] is not None and r[0] % 20 == 0 else []),
    ),
    "computes": _view(
        _ID | _S,
        "SELECT id + 1 AS id, concat(s, '!') AS s FROM k WHERE id >= 10",
        _each(lambda r: [(r[0] + 1, f"{r[1]}!")] if r[0] is not None and r[0] >= 10 else []),
    ),
    "casts": _view(
        _ID | _V, "SELECT id, CAST(x AS BIGINT) AS v FROM k WHERE s <> 's9'", _each(lambda r: [(r[0], int(r[2]))])
    ),
    "explodes": _view(
        _ID | _V,
        "SELECT id, CAST(e AS BIGINT) AS v FROM k LATERAL VIEW explode(split(l, ',')) q AS e",
        _each(lambda r: [(r[0], int(item)) for item in r[3].split(",")]),
    ),
    "never": _view(
        _ID | _V, "SELECT id, CAST(concat('x', s) AS BIGINT) AS v FROM k", _each(lambda r: [(int(f"x{r[1]}"),)])
    ),
}


def counted(rows: Iterable[Mapping[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row.values()) for row in rows)
