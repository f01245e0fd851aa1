"""Clients that do not read their results, on a real node: bounded disk, bounded time, a reason for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import tilth
from tests.waiting import wait_until
from tilth.client import ServerError
from tools.node_process import NodeProcess

pytestmark = pytest.mark.integration

#: About 500 MB.
LARGE = "SELECT id, repeat('x', 100) AS s FROM slow.t"


@contextmanager
def filled_node(folder: Path, **settings: str) -> Iterator[NodeProcess]:
    named = {f"server.{name.replace('_', '-')}": value for name, value in settings.items()}
    node = NodeProcess(folder, settings=named)
    node.start()
    try:
        node.wait_ready()
        node.connection.sql("CREATE DATABASE slow")
        node.connection.sql("CREATE TABLE slow.t (id BIGINT) ENGINE = MergeTree ORDER BY id")
        node.connection.sql("INSERT INTO slow.t SELECT id FROM range(4000000)")
        yield node
    finally:
        node.stop()


def is_clean(node: NodeProcess) -> bool:
    is_over = node.value("SELECT count(*) FROM system.processes") == 1
    leases = node.value("SELECT count(*) FROM system.readers")
    return is_over and not leases and not list((node.data / "spark").glob("result-*"))


def read_on(rows: Iterator[object]) -> None:
    for _ in rows:
        pass


def test_a_client_that_stops_reading_holds_its_result_for_a_while_only(tmp_path: Path) -> None:
    with filled_node(tmp_path, result_read_timeout="3 s") as node, tilth.connect(node.url) as connection:
        with connection.stream(LARGE) as rows:
            batches = iter(rows)
            next(batches)
            states = "SELECT state FROM system.processes WHERE state LIKE 'its client has not read for %on disk'"
            wait_until(lambda: node.connection.sql(states).rows)
            assert node.value("SELECT count(*) FROM system.readers") == 1
            wait_until(lambda: is_clean(node))
            with pytest.raises(ServerError) as refused:
                read_on(batches)
    assert refused.value.code == "RESULT_NOT_READ"
    assert "has not read for" in refused.value.message


@pytest.mark.long
def test_results_on_the_disk_have_a_bound(tmp_path: Path) -> None:
    with filled_node(tmp_path, results_disk_max="100 MiB") as node, tilth.connect(node.url) as connection:
        with connection.stream(LARGE) as rows:
            batches = iter(rows)
            next(batches)
            wait_until(lambda: is_clean(node))
            with pytest.raises(ServerError) as refused:
                read_on(batches)
        logged = node.connection.sql("SELECT error FROM system.query_log WHERE error_code = 'RESULT_NOT_READ'").rows
    assert refused.value.code == "RESULT_NOT_READ"
    assert "100.0 MiB are allowed" in refused.value.message
    assert ["server.results-disk-max" in error for (error,) in logged] == [True]
