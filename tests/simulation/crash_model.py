"""What the crash suite sends and asks for, and the rows that must come of it.

A mutation changes what was committed before it and nothing else. Which messages those are follows from two system
tables: the ledger tells when each offset was committed, system.mutations when each mutation was. So it does not matter
whether the answer to an ALTER was lost.

Of a table with a unique key each key shows what its last message says. And one client says statements of which each
may be said again, the same, until it is answered: labelled INSERTs, an UPDATE to a constant, a DELETE of old rows. What
their tables must show is what they make in their order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, Producer

TOPIC = "crash"
TOPIC_PARTITIONS = 2
#: Id, key, text, value.
Row = tuple[int, int, str, int]
#: Keys of the table with a unique key that messages have; even, so that each is of one partition of the topic.
KEYS = 300
#: One in so many messages deletes its key.
DELETES_EACH = 13
#: The client's own keys in that table, and rows of each of its statements.
FIRST_WRITE_KEY = 1000
WRITE_KEYS = 25
WRITE_ROWS = 5
#: Statements after which a row of theirs is deleted at the latest.
WRITES_KEPT = 48


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
    """All that was sent and asked for since the start."""

    #: Messages by position in the topic; None is a broken one.
    sent: dict[tuple[int, int], Row | None] = field(default_factory=dict)
    #: Changes by command, and the commands that were answered, so that they must have been committed.
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

    def latest(self) -> dict[int, int]:
        """Of each key that is there the id of its last message."""
        latest = {row[0] % KEYS: row[0] for _, row in sorted(self.sent.items()) if row is not None}
        return {key: id for key, id in latest.items() if id % DELETES_EACH}

    def _noted(self, row: Row | None) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            partition, offset = message.partition(), message.offset()
            assert error is None, error
            assert partition is not None
            assert offset is not None
            assert (partition, offset) not in self.sent
            self.sent[partition, offset] = row

        return note


@dataclass(frozen=True, slots=True)
class Write:
    """One statement of the client; by its number what it does."""

    number: int

    @property
    def statement(self) -> str:
        """Of one that is no INSERT; else nothing."""
        if self._is_update:
            return f"UPDATE crash.b SET n = {self.number} WHERE id % 8 = {self.number // 16 % 8}"
        if self._is_delete:
            # Some of the young rows and all old ones: parts of which nothing is left.
            return f"DELETE FROM crash.b WHERE id % 16 = {self.number // 16 % 16} OR id < {self._oldest}"
        return ""

    @property
    def label(self) -> str:
        """By which an INSERT is known when it is said again."""
        return f"write {self.number}"

    @property
    def table(self) -> str:
        """Of an INSERT."""
        return "m" if self._is_upsert else "b"

    @property
    def body(self) -> list[dict[str, object]]:
        """Rows of an INSERT."""
        if not self._is_upsert:
            return [{"id": id, "n": 0} for id in self._ids]
        s = f"s{self.number}"
        return [
            {"key": key, "last": self.number, "s": s, "_op": "d" if is_delete else "u"} for key, is_delete in self._keys
        ]

    def apply(self, rows: dict[int, int], keys: dict[int, int]) -> None:
        """`rows`: n by id, of the table without a key; `keys`: the last write by key."""
        if self._is_update:
            rows.update((id, self.number) for id in rows if id % 8 == self.number // 16 % 8)
        elif self._is_delete:
            for id in [id for id in rows if id % 16 == self.number // 16 % 16 or id < self._oldest]:
                del rows[id]
        elif self._is_upsert:
            for key, is_delete in self._keys:
                if is_delete:
                    keys.pop(key, None)
                else:
                    keys[key] = self.number
        else:
            rows.update((id, 0) for id in self._ids)

    @property
    def _is_update(self) -> bool:
        return self.number % 16 == 15

    @property
    def _is_delete(self) -> bool:
        return self.number % 16 == 7

    @property
    def _is_upsert(self) -> bool:
        return self.number % 2 == 1

    @property
    def _oldest(self) -> int:
        return (self.number - WRITES_KEPT) * WRITE_ROWS

    @property
    def _ids(self) -> range:
        return range(self.number * WRITE_ROWS, (self.number + 1) * WRITE_ROWS)

    @property
    def _keys(self) -> Iterator[tuple[int, bool]]:
        """Keys, and whether they are deleted. Seven shares no divisor with the number of keys: each has its turn."""
        for place in range(WRITE_ROWS):
            turn = self.number * WRITE_ROWS + place
            yield FIRST_WRITE_KEY + turn * 7 % WRITE_KEYS, turn % DELETES_EACH == 0


@dataclass(slots=True)
class Writes:
    """What the client's tables show when `next` was not said yet."""

    next: Write = field(default_factory=lambda: Write(0))
    rows: dict[int, int] = field(default_factory=dict)
    keys: dict[int, int] = field(default_factory=dict)

    def answered(self) -> None:
        """The statement was answered: from now on it must be seen, once."""
        self.next.apply(self.rows, self.keys)
        self.next = Write(self.next.number + 1)

    def shown(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """What the two tables show, in order."""
        return sorted(self.rows.items()), sorted(self.keys.items())
