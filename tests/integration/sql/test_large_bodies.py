"""Large bodies on a real Spark: what Spark computes for their rows, and what a small INSERT stores of the same rows.

Costs about 10 s: some twenty jobs of small bodies, of which ranges of 2 KiB are read by several tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count

import pyarrow as pa
import pytest

from tests.spark_world import SparkWorld
from tilth.base.errors import TilthError
from tilth.formats import find_format
from tilth.query.results.answer import Answer
from tilth.query.snapshots.protocol import stream_of
from tilth.statements.inserts.bodies import arrow_ranges, ranges, streamed
from tilth.statements.inserts.bodies.heads import route_head

pytestmark = pytest.mark.integration

_numbers = count(1)
#: Each kind of default: a constant, of the time, computed, over columns, MATERIALIZED over one of these, ALIAS.
COLUMNS = (
    "k BIGINT NOT NULL, `a.b` String DEFAULT 'none', at Timestamp DEFAULT now(), r DOUBLE DEFAULT rand(), "
    "d DATE DEFAULT CAST(at AS DATE), op INT DEFAULT k % 7, m String MATERIALIZED concat(`a.b`, '-', op), "
    "t Timestamp, n Decimal(38, 10), l BIGINT ALIAS k + 1"
)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "RANGE_BYTES", 2048)
    monkeypatch.setattr(arrow_ranges, "RANGE_BYTES", 2048)
    monkeypatch.setattr(streamed, "BLOCK_BYTES", 512)


def table(world: SparkWorld, columns: str, clauses: str = "ORDER BY k") -> str:
    name = f"large{next(_numbers)}"
    world.run(f"CREATE TABLE {name} ({columns}) ENGINE = MergeTree {clauses}")
    return name


def send(world: SparkWorld, name: str, form: str, body: bytes, **settings: str) -> Answer:
    def pieces() -> Iterator[bytes]:
        yield from (body[at : at + 999] for at in range(0, len(body), 999))

    found = find_format(form)
    assert found is not None
    given = {key.replace("__", "."): value for key, value in settings.items()}
    return world.engine.insert_body(route_head("shop", name, found), pieces(), bytes_max=1 << 30, settings=given)


def bodies(rows: int) -> dict[str, bytes]:
    lines = []
    for n in range(rows):
        own = f', "a.b": "\\u00e9{n}"' if n % 3 else ""
        own += f', "op": {n}' if n % 5 == 0 else ""
        own += ', "at": "2020-02-03 04:05:06"' if n % 2 else ""
        lines.append(f'{{"k": {n}, "t": "2026-11-27 0{n % 10}:00:00", "n": "{n}.0000000001"{own}}}')
    names = {
        "k": range(rows),
        "t": [datetime(2026, 11, 27, 1, tzinfo=UTC)] * rows,
        "a.b": [None if n % 3 else "x" for n in range(rows)],
    }
    csv = "k,t,a.b,op\n" + "".join(f"{n},2026-11-27 01:00:00,,{n}\n" for n in range(rows))
    return {"JSONEachRow": "\n".join(lines).encode(), "CSVWithNames": csv.encode(), "Arrow": stream_of(pa.table(names))}


@pytest.mark.parametrize("form", ["JSONEachRow", "CSVWithNames", "Arrow"])
def test_rows_are_those_of_a_small_insert(world: SparkWorld, form: str) -> None:
    body, zone = bodies(300)[form], "America/New_York"
    large, small = table(world, COLUMNS), table(world, COLUMNS)
    given = {"spark.sql.session.timeZone": zone}
    assert send(world, large, form, body, spark__sql__session__timeZone=zone).rows_written == 300
    if form == "Arrow":
        world.engine.insert_arrow("shop", small, pa.ipc.open_stream(body).read_all(), settings=given)
    else:
        world.engine.insert_text("shop", small, input_format=form, data=body, settings=given)
    shown = "k, `a.b`, CASE WHEN k % 2 = 1 AND at < '2021-01-01' THEN at END, d = CAST(at AS DATE), op, m, t, n, l"
    wanted = world.rows(f"SELECT {shown} FROM {small} ORDER BY k")
    assert world.rows(f"SELECT {shown} FROM {large} ORDER BY k") == wanted
    [(randoms, times)] = world.rows(
        f"SELECT count(DISTINCT r), count(DISTINCT at) FROM {large} WHERE at > '2021-01-01'"
    )
    # One instant for all rows of all tasks, and a number of its own for each row.
    assert times == 1
    assert isinstance(randoms, int)
    assert randoms > 100


def test_an_error_names_the_row_where_spark_computes(world: SparkWorld) -> None:
    name = table(world, "k BIGINT, u UInt8 MATERIALIZED k, s String DEFAULT 'x'")
    lines = [f'{{"k": {n % 200}}}' for n in range(1, 900)]
    for row, line, column in ((777, '{"k": 256}', "u"), (888, '{"k": "x"}', "k")):
        body = "\n".join([*lines[: row - 1], line, *lines[row - 1 :]]).encode()
        with pytest.raises(TilthError) as refused:
            send(world, name, "JSONEachRow", body)
        assert (refused.value.facts["row"], refused.value.facts["column"]) == (str(row), column)
    assert world.rows(f"SELECT count(*) FROM {name}") == [(0,)]


def test_an_expression_that_fails_is_named(world: SparkWorld) -> None:
    name = table(world, "k BIGINT, x INT MATERIALIZED 1 DIV (k - 500)")
    body = "\n".join(f'{{"k": {n}}}' for n in range(900)).encode()
    with pytest.raises(TilthError) as refused:
        send(world, name, "JSONEachRow", body)
    assert refused.value.code == "BAD_QUERY"
    assert world.rows(f"SELECT count(*) FROM {name}") == [(0,)]


def test_the_later_row_of_a_key_wins(world: SparkWorld) -> None:
    name = table(
        world, "k BIGINT, s String DEFAULT 'x', m String MATERIALIZED concat(s, '!')", "UNIQUE KEY k ORDER BY k"
    )
    world.run(f"INSERT INTO {name} (k, s) VALUES (1, 'old'), (9, 'stays')")
    lines = [f'{{"k": {n % 7}, "s": "{n}"}}' for n in range(1000)] + ['{"k": 3, "_op": "delete"}', '{"k": 5}']
    send(world, name, "JSONEachRow", "\n".join(lines).encode())
    rows = world.rows(f"SELECT k, s, m FROM {name} ORDER BY k")
    last = {n % 7: str(n) for n in range(1000)} | {5: "x", 9: "stays"}
    del last[3]
    assert rows == [(key, text, f"{text}!") for key, text in sorted(last.items())]
