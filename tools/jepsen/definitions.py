"""The client that changes definitions: columns, partitions, the topic's partitions, replicas; and OPTIMIZE.

Covers: drawing a change, sending it, recording it. Does not cover: checking its effect (checkers.py).
Always holds: later changes succeed whether or not one of unknown outcome took effect (IF EXISTS, a new name).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from tools.broker import BrokerError
from tools.jepsen.clients import Client
from tools.jepsen.history import Op, Outcome
from tools.jepsen.messages import Messages, RenewedTopic
from tools.jepsen.tables import PARTITION_ROWS, STORED

PARTITIONS_MAX = 6
REPLICAS_MAX = 4
COLUMNS_MAX = 3
#: Codes of errors that are right where an earlier statement of unknown outcome took effect, or did not.
_EXCUSED = ("PARTITION_NOT_FOUND", "NOTHING_TO_UNDROP", "NOT_FOUND")


@dataclass(slots=True)
class Replicas:
    """Replicas of a storage that are added and replaced: folders of this machine."""

    storage: str
    #: Function that returns the path of a new folder below `storage.local-folder`.
    new: Callable[[], str]
    #: Folder that is never replaced.
    kept: str
    #: Folders that system.replicas has listed last.
    folders: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Definitions:
    """Changes of definitions, one after the other."""

    messages: Messages
    #: Topic that is deleted and created anew; None: there is none.
    renewed: RenewedTopic | None
    replicas: Replicas | None
    _columns: int = 0
    _partition: int = 0
    #: Partitions with rows.
    _filled: list[int] = field(default_factory=list)
    _dropped: list[int] = field(default_factory=list)

    def step(self, client: Client) -> None:
        client.count += 1
        steps: list[tuple[Callable[[Client], None], int]] = [
            (self._alter, 4),
            (self._optimize, 4),
            (self._fill, 6),
            (self._drop, 4),
            (self._undrop, 4),
            (self._add_partition, 1),
        ]
        if self.renewed is not None:
            steps += [(self._send, 2), (self._renew, 1), (self._decide, 3)]
        if self.replicas is not None:
            steps.append((self._change_replicas, 1))
        [step] = client.rng.choices([step for step, _ in steps], [weight for _, weight in steps])
        step(client)

    def _alter(self, client: Client) -> None:
        """Add or drop a column that no INSERT names."""
        table = client.rng.choice(("s", "s2", "t"))
        name = f"x{self._columns % COLUMNS_MAX}"
        self._columns += 1
        change = client.rng.choice(
            (f"ADD COLUMN IF NOT EXISTS {name} BIGINT DEFAULT 7", f"DROP COLUMN IF EXISTS {name}")
        )
        client.send(Op(kind="define", table=f"d.{table}"), f"ALTER TABLE d.{table} {change}")

    def _optimize(self, client: Client) -> None:
        table = client.rng.choice(STORED)
        client.send(Op(kind="define", table=f"d.{table}"), f"OPTIMIZE TABLE d.{table}")

    def _fill(self, client: Client) -> None:
        partition = self._partition
        self._partition += 1
        rows = ", ".join(f"({partition}, {id_})" for id_ in range(PARTITION_ROWS))
        op = Op(kind="fill_partition", table="d.p", number=partition)
        if client.send(op, f"INSERT INTO d.p VALUES {rows}") is not None:
            self._filled.append(partition)

    def _drop(self, client: Client) -> None:
        if self._filled:
            partition = self._filled.pop(client.rng.randrange(len(self._filled)))
            op = Op(kind="drop_partition", table="d.p", number=partition)
            client.send(op, f"ALTER TABLE d.p DROP PARTITION {partition}", excused=_EXCUSED)
            self._dropped.append(partition)

    def _undrop(self, client: Client) -> None:
        if self._dropped:
            partition = self._dropped.pop()
            op = Op(kind="undrop_partition", table="d.p", number=partition)
            client.send(op, f"ALTER TABLE d.p UNDROP PARTITION {partition}", excused=_EXCUSED)

    def _add_partition(self, client: Client) -> None:
        messages = self.messages
        if messages.partitions < PARTITIONS_MAX:
            # A blow may have struck the broker.
            with suppress(BrokerError, KafkaException):
                messages.add_partition()
                client.history.note(f"the topic has {messages.partitions} partitions")

    def _send(self, client: Client) -> None:
        if self.renewed is not None:
            with suppress(BrokerError, KafkaException):
                self.renewed.send()

    def _renew(self, client: Client) -> None:
        renewed = self.renewed
        if renewed is None or renewed.is_doubtful:
            return
        op = Op(kind="probe", table="system.ingest_ledger")
        found = client.send(op, "SELECT sum(messages) FROM system.ingest_ledger WHERE table = 'ko'")
        if found is not None and int(found.rows[0][0] or 0) >= len(renewed.acknowledged):
            with suppress(BrokerError, KafkaException):
                renewed.renew()
                client.history.note("the other topic was made anew")

    def _decide(self, client: Client) -> None:
        """Reset the offsets to the first message of the new topic, as an operator does who knows that all was read."""
        renewed = self.renewed
        found = client.send(
            Op(kind="probe", table="system.ingest_gaps"),
            "SELECT count(*) FROM system.ingest_gaps WHERE table = 'ko' AND resolution IS NULL",
        )
        if renewed is None or found is None or not found.rows[0][0]:
            return
        op = Op(kind="define", table="d.ko")
        if client.send(op, "SYSTEM RESET CONSUME OFFSET d.ko TO BEGIN") is None and op.outcome is Outcome.UNKNOWN:
            # A reset that is applied late makes the consumer read messages twice, as documented.
            renewed.may_repeat = True

    def _change_replicas(self, client: Client) -> None:
        replicas = self.replicas
        assert replicas is not None
        new = replicas.new()
        storage = replicas.storage
        others = [folder for folder in replicas.folders if folder != replicas.kept]
        if not others or (len(replicas.folders) < REPLICAS_MAX and client.rng.random() < 0.4):
            statement = f"ALTER STORAGE {storage} ADD REPLICA '{new}'"
        else:
            old = client.rng.choice(others)
            statement = f"ALTER STORAGE {storage} REPLACE REPLICA '{old}' WITH '{new}'"
        op = Op(kind="define", table=storage)
        client.send(op, statement, excused=("BAD_STORE", "STORAGE_EXISTS"))
        found = client.send(
            Op(kind="probe", table="system.replicas"),
            f"SELECT DISTINCT replica_path FROM system.replicas WHERE storage = '{storage}'",
        )
        if found is not None:
            paths = [str(path).removeprefix("file://") for (path,) in found.rows]
            replicas.folders = [path for path in paths if path.startswith("/")]
