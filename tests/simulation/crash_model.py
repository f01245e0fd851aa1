"""What the crash suite sends and asks for, and the rows that must come of it.

A mutation changes what was committed before it and nothing else. Which messages those are follows from two system
tables: the ledger tells when each offset was committed, system.mutations when each mutation was. So it does not matter
whether the answer to an ALTER was lost.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, Producer

TOPIC = "crash"
TOPIC_PARTITIONS = 2
#: Id, key, text, value.
Row = tuple[int, int, str, int]


@dataclass(frozen=True, slots=True)
class Change:
    """One mutation: the even ones update parts here and there, the odd ones delete a few rows everywhere.

    An update done twice, left out, or done in another order gives another value.
    """

    number: int

    @property
    def command(self) -> str:
        if self.number % 2:
            return f"DELETE WHERE id % 199 = {self.number}"
        return f"UPDATE v = (v * 3 + {self.number}) % 1000003 WHERE id % 1600 < 400"

    def applied(self, row: Row) -> Row | None:
        """None: the row is deleted."""
        id, k, s, v = row
        if self.number % 2:
            return None if id % 199 == self.number else row
        return (id, k, s, (v * 3 + self.number) % 1000003) if id % 1600 < 400 else row


@dataclass(slots=True)
class Model:
    """All that was sent and asked for so far."""

    #: Place in the topic, and what lies there; None is a broken message.
    sent: dict[tuple[int, int], Row | None] = field(default_factory=dict)
    #: By command, and those commands that were answered, so that they must have been committed.
    changes: dict[str, Change] = field(default_factory=dict)
    answered: set[str] = field(default_factory=set)

    @property
    def broken(self) -> int:
        return sum(row is None for row in self.sent.values())

    def produce(self, bootstrap: str, count: int) -> None:
        """Sends so many messages and a broken one."""
        producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
        first = len(self.sent) - self.broken
        for id in range(first, first + count):
            row = (id, id % 97, f"s{id}", 0)
            text = json.dumps(dict(zip(("id", "k", "s", "v"), row, strict=True)))
            producer.produce(TOPIC, text, partition=id % TOPIC_PARTITIONS, on_delivery=self._noted(row))
        producer.produce(TOPIC, b"{broken", partition=0, on_delivery=self._noted(None))
        assert producer.flush(30) == 0

    def new_change(self) -> Change:
        """One that was not asked for yet."""
        change = Change(len(self.changes) + 1)
        self.changes[change.command] = change
        return change

    def rows(self, ledger: Iterable[tuple[int, int, int, int]], mutations: Sequence[tuple[int, str]]) -> list[Row]:
        """What the table must show, by id.

        `ledger`: partition, start, end and commit of each stretch that was stored; it must hold each message once.
        `mutations`: commit and command of each; it must hold each that was answered, and none twice.
        """
        committed = [
            ((partition, offset), commit_ts)
            for partition, start, end, commit_ts in ledger
            for offset in range(start, end)
        ]
        assert sorted(place for place, _ in committed) == sorted(self.sent), "the ledger is not what was sent"
        commands = [command for _, command in mutations]
        assert len(commands) == len(set(commands)), "an ALTER was committed twice"
        assert self.answered <= set(commands), "an ALTER was answered and is not there"
        ordered = [(commit_ts, self.changes[command]) for commit_ts, command in sorted(mutations)]
        rows: list[Row] = []
        for place, stored_ts in committed:
            row = self.sent[place]
            for commit_ts, change in ordered:
                if row is not None and stored_ts < commit_ts:
                    row = change.applied(row)
            if row is not None:
                rows.append(row)
        return sorted(rows)

    def _noted(self, row: Row | None) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            assert error is None, error
            assert partition is not None
            assert offset is not None
            assert (partition, offset) not in self.sent
            self.sent[partition, offset] = row

        return note
