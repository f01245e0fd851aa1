"""Small inserts over HTTP on a real node: shared commits, rows at once readable, unique keys resolved by Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.lane_spark import LaneSpark
from tilth.base.errors import TilthError
from tilth.model.table import TableDef
from tilth.model.txn import TxnState
from tilth.node import Node
from tilth.statements.inserts import upserts

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def node(lane_spark: LaneSpark, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with lane_spark.node(tmp_path_factory.mktemp("node")) as made:
        made.engine.run(
            "CREATE TABLE events (id Int64, word String) ENGINE = MergeTree ORDER BY id SETTINGS memory_buffer = 1"
        )
        made.engine.run(
            "CREATE TABLE users (id Int64, day Date, name String, n Int32) ENGINE = MergeTree "
            "PARTITION BY day ORDER BY id UNIQUE KEY (day, id)"
        )
        yield made


@pytest.fixture(scope="module")
def client(node: Node) -> Iterator[httpx.Client]:
    server = node.listen("127.0.0.1", 0)
    with httpx.Client(base_url=server.url, timeout=60) as made:
        yield made


def insert(client: httpx.Client, table: str, *rows: dict[str, object], **settings: str) -> str:
    """The answer's message."""
    body = "\n".join(map(json.dumps, rows))
    headers = {"content-type": "application/x-ndjson"}
    answer = client.post(f"/v1/insert/default/{table}", content=body, params=settings, headers=headers)
    answer.raise_for_status()
    return str(json.loads(answer.headers["X-Tilth-Summary"])["message"])


def rows(node: Node, text: str) -> list[tuple[object, ...]]:
    table = node.engine.run(text).table
    return [tuple(column[row].as_py() for column in table.columns) for row in range(table.num_rows)]


def uuid_of(node: Node, name: str) -> str:
    found = node.catalog.tables.get("default", name)
    assert isinstance(found, TableDef)
    return found.uuid


def test_many_at_once_share_commits_and_are_readable_when_answered(node: Node, client: httpx.Client) -> None:
    before = node.catalog.parts.version(uuid_of(node, "events")).counter

    def send(number: int) -> str:
        made = [{"id": number * 10 + each, "word": f"w{number}"} for each in range(10)]
        return insert(client, "events", *made, insertion_label=f"batch {number}")

    with ThreadPoolExecutor(16) as pool:
        told = list(pool.map(send, range(32)))
        # A client that did not hear the answer asks again.
        again = list(pool.map(send, range(0, 32, 8)))
    assert set(told) == {"inserted into default.events: 10 rows"}
    assert {message.split(",")[0] for message in again} == {"already inserted into default.events: 10 rows"}
    assert rows(node, "SELECT count(*), min(id), sum(id) FROM events") == [(320, 0, sum(range(320)))]
    assert node.catalog.parts.version(uuid_of(node, "events")).counter - before < 32


def test_a_bad_insert_among_good_ones_is_told_alone(client: httpx.Client) -> None:
    def send(number: int) -> int:
        body = json.dumps({"id": "x" if number == 3 else number, "word": "w"})
        headers = {"content-type": "application/x-ndjson"}
        return client.post("/v1/insert/default/events", content=body, headers=headers).status_code

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(send, range(8))) == [200, 200, 200, 400, 200, 200, 200, 200]


def test_the_last_row_of_a_key_is_what_a_query_sees(
    node: Node, client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    day, other = "2026-01-01", "2026-01-02"
    insert(client, "users", *({"id": each, "day": day, "name": f"u{each}", "n": 1} for each in range(5)))
    # From here on a worker looks for the older rows.
    monkeypatch.setattr(upserts, "UPSERT_HERE_BYTES_MAX", 0)
    insert(
        client,
        "users",
        {"id": 0, "day": day, "name": "new", "n": 2},
        {"id": 1, "day": day, "_op": "d"},
        {"id": 0, "day": other, "name": "elsewhere", "n": 2},
    )
    text = "SELECT id, day = DATE '2026-01-01', name, n FROM users ORDER BY id, day"
    assert rows(node, text) == [
        (0, True, "new", 2),
        (0, False, "elsewhere", 2),
        (2, True, "u2", 1),
        (3, True, "u3", 1),
        (4, True, "u4", 1),
    ]
    answer = node.engine.run(
        "INSERT INTO users (id, day, name, n, _op) SELECT id, day, concat(name, '!'), n + 1, "
        "CASE WHEN id = 4 THEN 'delete' ELSE 'u' END FROM users WHERE id > 1"
    )
    assert answer.rows_written == 3
    assert rows(node, text)[2:] == [(2, True, "u2!", 2), (3, True, "u3!", 2)]
    assert [txn for txn in node.catalog.transactions.unfinished() if txn.state is TxnState.RUNNING] == []


def test_rows_of_a_query_without_a_key_are_refused(node: Node) -> None:
    for text, code, told in (
        ("INSERT INTO users (id, day, n) SELECT NULL, DATE '2026-01-01', 1", "UNIQUE_KEY_NULL", "column=id"),
        ("INSERT INTO users (id, n) SELECT 1, 1", "UNIQUE_KEY_NULL", "column=day"),
        ("INSERT INTO users (id, day, _op) SELECT 1, DATE '2026-01-01', 'x'", "BAD_QUERY", "neither"),
    ):
        with pytest.raises(TilthError) as caught:
            node.engine.run(text)
        assert (caught.value.code, told in str(caught.value)) == (code, True), str(caught.value)
