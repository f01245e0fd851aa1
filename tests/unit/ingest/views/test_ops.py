"""Messages that say what their rows do: events of Debezium, words in a column, keys that are missing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from tests.unit.ingest.decoding import batch_of, decode, decoder
from tilth.ingest import FormatError
from tilth.ingest.views.ops import bad_ops, ops_of
from tilth.ingest.views.refusals import Refused, RowCheck, Wanted, by_message, failed_checks, without
from tilth.model.types import Kind
from tilth.storage import BadColumnError

COLUMNS = {"id": Kind.INT64, "name": Kind.STRING}
ALL = ("id", "name", "_op", "_ts_ms", "_source")
KEY = RowCheck("id", Wanted.PRESENT, "it is in the unique key of db.t")


def events(*values: object, wanted: tuple[str, ...] = ("id", "name", "_op")) -> Any:
    texts = [None if value is None else json.dumps(value).encode() for value in values]
    return decode(COLUMNS, texts, wanted=wanted, required=("id", "name"), kafka_envelope="debezium")


@pytest.mark.parametrize("op", ["c", "r", "u"])
def test_a_row_is_the_state_after_the_change(op: str) -> None:
    event = {"before": {"id": 1, "name": "old"}, "after": {"id": 1, "name": "new"}, "op": op, "ts_ms": 7}
    for value in (event, {"schema": {"type": "struct"}, "payload": event}):
        decoded = events(value, wanted=ALL)
        row = {"id": 1, "name": "new", "_op": op, "_ts_ms": 7, "_source": None}
        assert decoded.rows.to_pylist() == [row]
        assert not decoded.broken


def test_a_delete_is_the_state_before_and_may_lack_all_but_the_key() -> None:
    decoded = events({"before": {"id": 4}, "after": None, "op": "d", "source": {"lsn": 9}}, wanted=ALL)
    assert decoded.rows.to_pylist() == [{"id": 4, "name": None, "_op": "d", "_ts_ms": None, "_source": '{"lsn": 9}'}]


@pytest.mark.parametrize("key", [b'{"id": 5}', b'{"schema": {}, "payload": {"id": 5}}'])
def test_a_delete_without_older_state_takes_the_key_of_the_message(key: bytes) -> None:
    made = decoder(COLUMNS, wanted=("id", "_op"), required=("id", "name"), kafka_envelope="debezium")
    decoded = made.decode("topic", 0, batch_of([b'{"before": null, "op": "d"}'], key=key))
    assert decoded.rows.to_pylist() == [{"id": 5, "_op": "d"}]


def test_what_is_about_no_row_is_passed_over() -> None:
    decoded = events(None, {"op": "m", "message": {"prefix": "p"}}, {"after": {"id": 1, "name": "a"}, "op": "c"})
    assert [row["id"] for row in decoded.rows.to_pylist()] == [1]
    assert (decoded.messages, decoded.broken) == (3, ())


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"id": 1}, "no event of Debezium: `op` is missing"),
        ({"op": "t"}, "`op` is t: only c, r, u and d are changes of one row"),
        ({"op": "u", "before": {"id": 1}}, "`after` is missing where `op` is u"),
        ({"op": "c", "after": {"id": "x", "name": "a"}}, "column `id`: expected a whole number, given 'x'"),
        ({"payload": {"op": "c", "after": {"id": 1, "name": []}}}, "column `name`: expected text in quotes, given []"),
    ],
)
def test_broken_events(value: Mapping[str, object], reason: str) -> None:
    decoded = events(value, {"after": {"id": 1, "name": "a"}, "op": "c"})
    assert decoded.rows.num_rows == 1
    assert [each.reason for each in decoded.broken] == [reason]


def test_an_envelope_is_json() -> None:
    with pytest.raises(FormatError, match="an envelope is JSON"):
        decoder(COLUMNS, kafka_format="CSV", kafka_envelope="debezium")


def refused(values: list[bytes | None], check: RowCheck) -> tuple[list[dict[str, Any]], Refused]:
    """The rows that a view with this check gets, and the messages that it refuses."""
    decoded = decode(COLUMNS, values)
    messages = by_message(failed_checks(decoded.rows, [check]), decoded.owners)
    rows, _ = without(decoded.rows, decoded.owners, messages)
    return rows.to_pylist(), messages


def test_a_message_without_a_key_is_refused_with_all_its_rows() -> None:
    rows, messages = refused([b'{"id": 1}', b'{"id": 2} {"name": "x"}', b"{", b'{"id": 4}'], KEY)
    assert [row["id"] for row in rows] == [1, 4]
    assert messages == {1: "column `id`: None, but it is in the unique key of db.t"}


def test_a_word_that_means_nothing_refuses_its_message() -> None:
    check = RowCheck("name", Wanted.OP, "db.t must know what the row does")
    rows, messages = refused([b'{"name": "D"}', b"{}", b'{"name": "later"}'], check)
    assert len(rows) == 2
    assert messages == {2: "column `name`: later, but db.t must know what the row does"}


def test_a_row_that_deletes_must_say_where_it_is() -> None:
    """It would look for its key in another partition, and quietly delete nothing."""
    check = RowCheck("id", Wanted.PRESENT_IN_DELETES, "db.t looks for the row in its partition", op="name")
    values: list[bytes | None] = [
        b'{"name": "u"}',
        b'{"id": 1, "name": "d"}',
        b'{"name": "d"}',
        b'{"name": "c", "id": 2}',
    ]
    rows, messages = refused(values, check)
    assert rows == [{"id": None, "name": "u"}, {"id": 1, "name": "d"}, {"id": 2, "name": "c"}]
    assert list(messages) == [2]


@pytest.mark.parametrize(
    ("values", "ops"),
    [
        (pa.array(["c", "r", "U", "i", "insert", "Upsert", None, "0"]), [0] * 8),
        (pa.array(["d", "D", "delete", "1"]), [1] * 4),
        (pa.array([0, 1, None], pa.int32()), [0, 1, 0]),
        (pa.array([True, False, None]), [1, 0, 0]),
        (pa.array([], pa.string()), []),
        (pa.array(["d", None]).dictionary_encode(), [1, 0]),
    ],
)
def test_what_rows_do(values: pa.Array, ops: list[int]) -> None:
    assert ops_of(pa.chunked_array([values])).to_pylist() == ops
    assert bad_ops(values).to_pylist() == [False] * len(values)


def test_words_that_mean_nothing() -> None:
    assert bad_ops(pa.array(["d", "x", None])).to_pylist() == [False, True, False]
    with pytest.raises(BadColumnError, match="value=x"):
        ops_of(pa.chunked_array([["d", "x"]]))
