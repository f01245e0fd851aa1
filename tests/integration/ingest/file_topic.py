"""A topic of files, which Spark's tasks read instead of a broker's; it counts fetches.

Always holds: it imports no more than the process from which Python workers are forked; they import this module.
"""

from __future__ import annotations

import os
import pickle
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilth.base.clock import Clock
from tilth.ingest.batch import MessageBatch, Texts
from tilth.ingest.kafka.fetch import Fetched
from tilth.ingest.settings import KafkaConfig
from tilth.model.offset import OffsetRange

#: A batch of `fetch`, so that a round has several.
BATCH = 50


@dataclass(frozen=True, slots=True)
class FileMessage:
    number: int
    content: bytes | None

    def key(self) -> bytes | None:
        return f"k{self.number}".encode()


def batch_of(messages: Sequence[FileMessage]) -> MessageBatch:
    return MessageBatch(
        Texts([each.content for each in messages]),
        offsets=np.array([each.number for each in messages], np.int64),
        keys=Texts([each.key() for each in messages]),
        times=np.array([1_735_689_601_500 + each.number for each in messages], np.int64),
    )


@dataclass(frozen=True, slots=True)
class FileTopic:
    """A topic as Spark's tasks see it; goes to them."""

    folder: Path
    name: str = "topic"

    def put(self, partitions: Sequence[Sequence[bytes | None]]) -> None:
        """Write all messages, by partition; an empty text instead of a message is a hole."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for number, values in enumerate(partitions):
            messages = [FileMessage(offset, value) for offset, value in enumerate(values)]
            (self.folder / f"{number}").write_bytes(pickle.dumps(messages))

    def messages(self, partition: int) -> list[FileMessage]:
        found: list[FileMessage] = pickle.loads((self.folder / f"{partition}").read_bytes())
        return found

    def fetch(
        self, clock: Clock, config: KafkaConfig, ranges: Iterable[OffsetRange], *, has_headers: bool
    ) -> Iterator[Fetched]:
        """Read the messages of the ranges from the files, as kafka.fetch does from a broker."""
        for each in ranges:
            with open(self.folder / "fetches", "a") as log:
                log.write(f"{each.partition} {each.start} {each.end} {os.getpid()}\n")
            messages = [m for m in self.messages(each.partition)[each.start : each.end] if m.content != b""]
            for start in range(0, len(messages), BATCH):
                yield Fetched(
                    topic=self.name, partition=each.partition, messages=batch_of(messages[start : start + BATCH])
                )

    def fetched(self) -> Counter[tuple[int, int]]:
        """Count the fetches of each offset of each partition."""
        counts: Counter[tuple[int, int]] = Counter()
        for line in (self.folder / "fetches").read_text().splitlines():
            partition, start, end, _ = map(int, line.split())
            counts.update((partition, offset) for offset in range(start, end))
        return counts

    def fetchers(self) -> set[int]:
        """Return the processes that fetched."""
        return {int(line.split()[-1]) for line in (self.folder / "fetches").read_text().splitlines()}
