"""A node where much is wrong at once, and of each thing one table: what docs/operate/questions.md asks about.

Covers: building the mess over HTTP on a real node and a real broker, and what it still holds open. Does not cover: the
questions (questions.md), their answers (test_questions.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import httpx
from confluent_kafka import Producer

from tilth import Result
from tools.broker import Broker
from tools.node_process import NodeProcess

#: An address where nobody listens.
DEAD = "127.0.0.1:1"
#: Gives up what has been replaced at once.
FORGETS = "old_parts_lifetime = 0, tablet_history_max_age_sec = -1, ttl_for_trash_items = 0"
SEND_SECONDS_MAX = 60
#: The broker would end the transaction that is left open; no longer than it allows.
OPEN_MILLISECONDS = 900_000
#: Seconds after which a transaction that stays open has an alarm.
OPEN_BOUND = 30
#: Messages of the topic that lags; a round takes 100 of them.
LAG_MESSAGES = 30_000
#: Steps of a view for each message: slow ones, and so many that its round seems to hang.
SLOW_STEPS = 150
STUCK_STEPS = 1_500
#: A step of these.
STEP = "aggregate(sequence(1, 100000), 0L, (c, d) -> c + (d + id) % 7)"


@dataclass(slots=True)
class Mess:
    """The node, and what keeps the mess as it is."""

    node: NodeProcess
    broker: Broker
    _producer: Producer | None = None

    def sql(self, text: str) -> Result:
        return self.node.connection.sql(text)

    def build(self) -> None:
        """Everything that is wrong, the slow things first."""
        self.sql("CREATE DATABASE shop")
        self._topics()
        for make in (self._maintenance, self._mutations, self._parts, self._readers_and_past):
            make()

    def catch_up(self) -> None:
        """Let the topic that lags be read in one round: its many small ones would use a core until the end."""
        self.sql("ALTER TABLE shop.lagging_topic MODIFY SETTING kafka_max_block_size = 1000000")

    def unstick(self) -> None:
        """End the round that seems to hang: it would use a core for minutes, and its transaction holds files back."""
        self.sql("DROP VIEW shop.stuck_view")
        self.sql("DROP TABLE shop.stuck_topic")

    def close(self) -> None:
        if self._producer is not None:
            self._producer.abort_transaction(SEND_SECONDS_MAX)

    def table(
        self, name: str, *, columns: str = "id BIGINT, s STRING", key: str = "ORDER BY id", more: str = ""
    ) -> None:
        self.sql(f"CREATE TABLE shop.{name} ({columns}) ENGINE = MergeTree {key} {more}")

    def insert(self, name: str, ids: Iterable[int]) -> None:
        rows = ", ".join(f"({each}, 'x')" for each in ids)
        self.sql(f"INSERT INTO shop.{name} SETTINGS async_insert = 0 VALUES {rows}")

    # --- what consumes -----------------------------------------------------------------------------------------------

    def _topics(self) -> None:
        self._consume("lagging", settings="kafka_max_block_size = 100")
        self._send("lagging", range(LAG_MESSAGES))
        for name, steps in (("stuck", STUCK_STEPS), ("slow", SLOW_STEPS)):
            computed = f"CAST(aggregate(sequence(1, {steps}), 0L, (a, b) -> a + b + {STEP}) AS STRING)"
            self._consume(name, select=f"SELECT id, {computed} AS s FROM shop.{name}_topic")
        self._view("quick", "SELECT id, s FROM shop.slow_topic")
        self._send("stuck", [1])
        self._send("slow", range(2))
        self._consume("poisoned")
        self._send_raw("poisoned", [b"{broken"] * 7)
        self._consume("idle")
        self._consume("blocked", settings=f"kafka_open_transaction_bound = {OPEN_BOUND}")
        producer = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "transactional.id": "mess",
                "transaction.timeout.ms": OPEN_MILLISECONDS,
                "log_level": 0,
            }
        )
        producer.init_transactions(SEND_SECONDS_MAX)
        producer.begin_transaction()
        for each in range(5):
            producer.produce("blocked", json.dumps({"id": each}).encode())
        assert producer.flush(SEND_SECONDS_MAX) == 0
        self._producer = producer
        self._consume("unreached", bootstrap=DEAD)

    def _consume(self, name: str, *, select: str = "", settings: str = "", bootstrap: str = "") -> None:
        if not bootstrap:
            self.broker.create_topic(name)
        more = f", {settings}" if settings else ""
        self.sql(
            f"CREATE TABLE shop.{name}_topic (id BIGINT, s STRING) ENGINE = Kafka SETTINGS kafka_broker_list = "
            f"'{bootstrap or self.broker.bootstrap}', kafka_topic_list = '{name}', kafka_group_name = 'shop', "
            f"kafka_format = 'JSONEachRow', stream_flush_interval_ms = 100{more}"
        )
        self._view(name, select or f"SELECT * FROM shop.{name}_topic")

    def _view(self, name: str, select: str) -> None:
        self.table(name)
        self.sql(f"CREATE MATERIALIZED VIEW shop.{name}_view TO shop.{name} AS {select}")

    def _send(self, topic: str, ids: Iterable[int]) -> None:
        self._send_raw(topic, (json.dumps({"id": each, "s": "x"}).encode() for each in ids))

    def _send_raw(self, topic: str, messages: Iterable[bytes]) -> None:
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "queue.buffering.max.messages": 1_000_000})
        for each in messages:
            producer.produce(topic, each)
        assert producer.flush(SEND_SECONDS_MAX) == 0

    # --- what keeps tables in shape ----------------------------------------------------------------------------------

    def _maintenance(self) -> None:
        self.table("stopped")
        self.sql("SYSTEM STOP MERGES shop.stopped BECAUSE 'a copy is being made, ask Ann'")
        self.table("paused")
        self.sql("SYSTEM STOP MERGES shop.paused FOR 10 MINUTES BECAUSE 'the disk is slow'")

    def _mutations(self) -> None:
        self.table("mutated")
        self.insert("mutated", range(3))
        self.sql("ALTER TABLE shop.mutated UPDATE s = CAST(raise_error('no such price') AS STRING) WHERE id = 1")
        self.table("killed")
        self.insert("killed", range(3))
        self.sql("SYSTEM STOP MUTATIONS shop.killed")
        self.sql("ALTER TABLE shop.killed UPDATE s = 'y' WHERE id = 1")
        self.sql("KILL MUTATION WHERE database = 'shop' AND table = 'killed'")

    def _parts(self) -> None:
        limits = "parts_to_delay_insert = 3, parts_to_throw_insert = 5, max_delay_to_insert = 0.01"
        self.table("crowded", more=f"SETTINGS disable_compaction = 1, {limits}")
        for each in range(5):
            self.insert("crowded", [each])
        self.table("large", more="SETTINGS max_bytes_to_merge_at_max_space_in_pool = 1500")
        for each in range(3):
            self.insert("large", range(1000 * each, 1000 * each + 500))
        self.table("expiring", columns="id BIGINT, at TIMESTAMP", more="TTL at + INTERVAL 1 DAY")
        self.sql("INSERT INTO shop.expiring VALUES (1, TIMESTAMP '2020-01-01'), (2, TIMESTAMP '2200-01-01')")
        self._damaged()

    def _damaged(self) -> None:
        """A part whose bytes have changed, among parts that should be merged."""
        self.table("damaged")
        self.sql("SYSTEM STOP MERGES shop.damaged")
        for each in range(8):
            self.insert("damaged", range(100 * each, 100 * each + 50))
        (file,) = self.sql("SELECT file FROM system.parts WHERE table = 'damaged' ORDER BY name LIMIT 1").rows[0]
        (path,) = self.node.data.glob(f"tables/*/data/{file}")
        content = bytearray(path.read_bytes())
        content[len(content) // 4 : len(content) // 2] = bytes(len(content) // 2 - len(content) // 4)
        path.write_bytes(content)
        self.sql("SYSTEM START MERGES shop.damaged")

    def _readers_and_past(self) -> None:
        self.table("pinned", more=f"SETTINGS {FORGETS}")
        self.insert("pinned", [1])
        self.insert("pinned", [2])
        answer = httpx.post(f"{self.node.url}/v1/snapshot/shop/pinned", headers={"User-Agent": "report-builder"})
        answer.raise_for_status()
        self.sql("OPTIMIZE TABLE shop.pinned FINAL")
        self.table("dropped")
        self.insert("dropped", range(100))
        self.sql("DROP TABLE shop.dropped")
        self.table("young", more="SETTINGS tablet_history_max_age_sec = 60")
        self.insert("young", [1])
        for wrong in ("old_part_lifetime", "zzzz"):
            self.refused(f"CREATE TABLE shop.unmade (id BIGINT) ENGINE = MergeTree ORDER BY id SETTINGS {wrong} = 1")

    def refused(self, text: str) -> str:
        """What the server says to a statement that it refuses."""
        answer = httpx.post(f"{self.node.url}/v1/sql", content=text.encode(), timeout=60)
        assert answer.status_code >= 400, text
        message: str = answer.json()["error"]["message"]
        return message
