"""Results that are larger than what anybody should hold, on a real node in a process of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import psutil
import pytest

from tests.long import cases
from tests.waiting import wait_until
from tilth.base.units import MIB
from tilth.client import ServerError
from tools.node_process import NodeProcess

pytestmark = pytest.mark.integration

ROWS = 4_000_000
#: About 500 MB.
LARGE = f"SELECT id, repeat('x', 100) AS s FROM range({ROWS})"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    settings = {"warehouse.driver-memory": "600m"}
    with NodeProcess(tmp_path_factory.mktemp("node"), settings=settings).serving() as node:
        yield node


def results(node: NodeProcess) -> list[str]:
    return [path.name for path in (node.data / "spark").glob("result-*")]


def wait_clean(node: NodeProcess) -> None:
    wait_until(lambda: not results(node) and node.value("SELECT count(*) FROM system.processes") == 1)


def test_a_result_larger_than_memory_comes_whole_in_order_and_early(node: NodeProcess) -> None:
    """The JVM has less memory than the result has bytes; the node's own memory does not grow with it."""
    process = psutil.Process(node.pid)
    node.connection.sql("SELECT 1")
    before = most = process.memory_info().rss
    started, first, seen = time.monotonic(), 0.0, 0
    with node.connection.stream(f"{LARGE} ORDER BY id DESC") as rows:
        for batch in rows:
            first = first or time.monotonic() - started
            ids = batch.column(0).to_numpy()
            assert ids[0] == ROWS - 1 - seen
            assert ids[-1] == ROWS - seen - len(ids)
            seen += batch.num_rows
            most = max(most, process.memory_info().rss)
    assert seen == ROWS
    assert rows.summary.rows == ROWS
    assert most - before < 200 * MIB
    assert first < time.monotonic() - started
    logged = node.connection.sql("SELECT rows, error_code FROM system.query_log WHERE text LIKE '%DESC'").rows
    assert logged == [(ROWS, None)]
    wait_clean(node)


@pytest.mark.parametrize("form", cases(["CSVWithNames", "JSONEachRow", "CSV"]))
def test_every_form_of_answer_is_streamed(node: NodeProcess, form: str) -> None:
    lines = 600_001 if form == "CSVWithNames" else 600_000
    query = (
        f"SELECT id, array(id) AS l, timestamp_seconds(id) AS t, repeat('ä', 50) AS s FROM range(600000) FORMAT {form}"
    )
    with httpx.stream("POST", f"{node.url}/v1/sql", content=query.encode(), timeout=180, trust_env=False) as response:
        assert '"rows": -1' in response.headers["X-Tilth-Summary"]
        assert sum(piece.count(b"\n") for piece in response.iter_bytes()) == lines
    wait_clean(node)


def is_streamed(node: NodeProcess, query: str) -> bool:
    """Return whether the rows come as a stream, whose head does not know their number."""
    answer = httpx.post(f"{node.url}/v1/sql", content=f"{query} FORMAT CSV", timeout=180, trust_env=False)
    assert answer.status_code == 200
    return '"rows": -1' in answer.headers["X-Tilth-Summary"]


def test_a_result_whose_size_is_known_goes_by_it_and_not_by_the_estimate(node: NodeProcess) -> None:
    """By Spark's estimate a join multiplies its tables, and what repeat() makes is short."""
    node.connection.sql("CREATE DATABASE sized")
    node.connection.sql("CREATE TABLE sized.t (k Int64, s String) ENGINE = MergeTree ORDER BY k")
    node.connection.sql("INSERT INTO sized.t SELECT id, 'x' FROM range(1000)")
    joins = " JOIN ".join(f"sized.t AS t{number}" for number in range(4))
    keys = " AND ".join(f"t0.k = t{number}.k" for number in range(1, 4))
    small = f"SELECT t0.k % 3 AS g, count(*) AS c FROM {joins} ON {keys} GROUP BY g ORDER BY g"
    large = "SELECT k, repeat(s, 30000) FROM sized.t WHERE k < 700"
    assert [is_streamed(node, small) for _ in range(3)] == [True, False, False]
    assert [is_streamed(node, large) for _ in range(3)] == [False, True, True]
    assert node.connection.sql(small).rows == [(0, 334), (1, 333), (2, 333)]
    assert len(node.connection.sql(large).rows) == 700
    with pytest.raises(ServerError) as refused:
        node.connection.sql(large, {"max_result_bytes": "10 MiB"})
    assert refused.value.code == "RESULT_TOO_LARGE"
    # Other files are another plan, of which nothing is known.
    node.connection.sql("INSERT INTO sized.t VALUES (0, 'y')")
    assert [is_streamed(node, small) for _ in range(2)] == [True, False]
    wait_clean(node)


def test_json_is_one_document_that_ends_with_the_summary(node: NodeProcess) -> None:
    query = (
        "SELECT id, id AS id, void_ FROM (SELECT id, NULL AS void_ FROM range(3000000)) WHERE id < 10 OR id > 2999990"
    )
    answer = httpx.post(f"{node.url}/v1/sql", content=query, timeout=180, trust_env=False).json()
    assert answer["summary"]["rows"] == len(answer["rows"]) == 19
    assert answer["rows"][0] == [0, 0, None]
    assert [column["name"] for column in answer["columns"]] == ["id", "id", "void_"]


def test_an_error_behind_the_first_rows_is_an_error(node: NodeProcess) -> None:
    """Partition 0 is sent while the last row of another one fails."""
    rows = ROWS // 2
    failing = f"SELECT id, repeat('x', 100) AS s, IF(id = {rows - 1}, raise_error('too far'), 1) FROM range({rows})"
    seen: list[int] = []

    def take() -> None:
        with node.connection.stream(failing) as found:
            seen.extend(batch.num_rows for batch in found)

    def take_raw() -> None:
        body = f"{failing} FORMAT CSV".encode()
        with httpx.stream("POST", f"{node.url}/v1/sql", content=body, timeout=180, trust_env=False) as raw:
            assert raw.status_code == 200
            list(raw.iter_bytes())

    with pytest.raises(ServerError, match="too far"):
        take()
    assert sum(seen) < rows
    with pytest.raises(httpx.RemoteProtocolError):
        take_raw()
    with pytest.raises(ServerError) as refused:
        node.connection.sql(LARGE, {"max_result_bytes": "20 MiB"})
    assert refused.value.code == "RESULT_TOO_LARGE"
    wait_clean(node)


def test_a_client_that_leaves_early_leaves_nothing_behind(node: NodeProcess) -> None:
    with node.connection.stream(LARGE) as rows:
        next(iter(rows))
    wait_clean(node)
    logged = "SELECT error_code FROM system.query_log ORDER BY started DESC LIMIT 100"
    assert ("QUERY_WAS_CANCELLED",) in node.connection.sql(logged).rows
