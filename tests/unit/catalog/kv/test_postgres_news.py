"""News to other servers: none is lost while they cannot be sent, and pending ones are sent in one notification."""

from __future__ import annotations

import threading
from contextlib import closing

from tilth.base.clock import SystemClock
from tilth.catalog import ALL_NEWS, CatalogAwayError
from tilth.catalog.kv.postgres_news import NewsSender


class Channel:
    """A sender that fails a few times, and then records the news."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.sent: list[str] = []
        self.has_sent = threading.Event()

    def send(self, text: str) -> None:
        if self.failures:
            self.failures -= 1
            raise CatalogAwayError(catalog="c") if self.failures % 2 else OSError("a defect")
        self.sent.append(text)
        self.has_sent.set()


def test_news_that_could_not_be_sent_go_with_the_next_ones() -> None:
    channel = Channel(failures=2)
    with closing(NewsSender(SystemClock(), channel.send)) as sender:
        sender.add(["b"])
        sender.add(["a"])
        sender.add([])
        assert channel.has_sent.wait(20)
    assert ",".join(channel.sent) == "a,b"


def test_what_is_pending_at_the_end_is_sent() -> None:
    channel = Channel()
    sender = NewsSender(SystemClock(), channel.send)
    sender.add(["a"])
    sender.close()
    assert channel.sent == ["a"]
    sender.close()


def test_too_many_are_any() -> None:
    channel = Channel()
    with closing(NewsSender(SystemClock(), channel.send)) as sender:
        sender.add([f"{number:032x}" for number in range(1000)])
        assert channel.has_sent.wait(20)
    assert channel.sent == [ALL_NEWS]
