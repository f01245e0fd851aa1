"""A consumer in a process of its own: its passwords come with its order, and no line of that process shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgspec
import pytest

from tests.unit.ingest.decoding import kafka_of
from tilth.base import logs
from tilth.base.logs import Log
from tilth.ingest.consumer.calls import ENCODER, ORDER_DECODER, ConsumeOrder, ConsumerCalls
from tilth.ingest.consumer.task import ResidentConsumer
from tilth.model.lease import Fence
from tilth.model.table import Secrets
from tilth.model.types import Kind
from tilth.testing import ManualClock
from tilth.warehouse import TaskContext

PASSWORD = "correct-horse-battery"


@pytest.fixture(autouse=True)
def log_of_the_tests() -> Iterator[None]:
    yield
    logs.set_up(level="info", path=None)


def test_lines_of_a_process_that_runs_consumers_hide_their_passwords(tmp_path: Path) -> None:
    order = ConsumeOrder(
        kafka=kafka_of({"a": Kind.INT64}, kafka_sasl_password="[HIDDEN]"),
        views=(),
        dead_letters=None,
        consumer=0,
        fence=Fence("consumer/k/0", 1),
        positions=(),
        secrets=Secrets(settings={"kafka_sasl_password": PASSWORD}),
    )
    logs.set_up(level="info", path=str(tmp_path / "worker.log"))
    Log("test").info("before", reason=f"it says {PASSWORD}")
    travelled = ORDER_DECODER.decode(ENCODER.encode(order))
    ResidentConsumer(ManualClock(), cast(ConsumerCalls, None), cast(TaskContext, None), travelled)
    Log("test").info("after", reason=f"it says {PASSWORD}")
    before, after = (tmp_path / "worker.log").read_text().splitlines()
    assert PASSWORD in before
    assert PASSWORD not in after
    assert PASSWORD not in repr(msgspec.structs.astuple(travelled))
