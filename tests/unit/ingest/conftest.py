"""Fixtures of the tests of ingestion."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.ingest.consume_world import Server


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()
