"""A served node with a broker, as the sections of bench_hot use it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from tools.broker import Broker
from tools.node_process import NodeProcess

_POLL_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class HotNode:
    """Both are up."""

    process: NodeProcess
    broker: Broker

    def sql(self, *statements: str) -> None:
        """Runs statements whose answers do not matter."""
        for statement in statements:
            self.process.connection.sql(statement)

    def value(self, query: str) -> int:
        """The single number that the query gives."""
        return self.process.value(query)

    def drain(self, kafka: str, messages: int, *, seconds_max: float) -> float:
        """Starts the stopped consumers of a Kafka table; seconds until so many messages are in the ledger."""
        began = time.perf_counter()
        self.sql(f"SYSTEM START CONSUME {kafka}")
        self.wait(lambda: self.consumed(kafka) >= messages, seconds_max=seconds_max, what=f"{kafka} to be drained")
        return time.perf_counter() - began

    def consumed(self, kafka: str) -> int:
        """Messages of a Kafka table that rounds have committed."""
        return self.value(f"SELECT sum(messages) FROM system.ingest_ledger WHERE table = '{kafka}'")

    def wait(self, is_done: Callable[[], bool], *, seconds_max: float, what: str) -> None:
        """Raises TimeoutError naming what was waited for."""
        deadline = time.monotonic() + seconds_max
        while not is_done():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {seconds_max:.0f} s for {what}")
            time.sleep(_POLL_SECONDS)
