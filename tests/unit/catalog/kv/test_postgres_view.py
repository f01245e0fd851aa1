"""Views of a catalog in a database: the time limit of each kind, for readers that go on and for idle ones."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import cast

import pytest
from psycopg.rows import TupleRow

from tests.codes import WithCode
from tilth.base.errors import RetryError
from tilth.catalog.kv import Versioned, ViewUse
from tilth.catalog.kv.postgres_connect import Writer
from tilth.catalog.kv.postgres_view import PostgresView

CONNECTION = cast("Writer", SimpleNamespace())


class Source:
    """A store with one key, and a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.idle_seconds: list[float] = []

    def begin(self, connection: Writer, idle_seconds: float) -> None:
        self.idle_seconds.append(idle_seconds)

    def record(self, connection: Writer, key: bytes) -> Versioned | None:
        return Versioned(b"v", 1)

    def records(self, connection: Writer, keys: Collection[bytes]) -> dict[bytes, Versioned | None]:
        return dict.fromkeys(keys, Versioned(b"v", 1))

    def rows(self, connection: Writer, query: str, arguments: tuple[object, ...]) -> list[TupleRow]:
        return [(b"%06d" % number, b"v", 1) for number in range(100)]

    def monotonic(self) -> float:
        return self.now

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        yield


@pytest.mark.parametrize(("use", "seconds"), [(ViewUse.BRIEF, 60), (ViewUse.LISTING, 60), (ViewUse.EXPORT, 900)])
def test_a_view_lasts_as_long_as_its_use_allows(use: ViewUse, seconds: int) -> None:
    source = Source()
    view = PostgresView(source, CONNECTION, (), use)
    scan = view.scan(b"0", None)
    source.now = seconds - 1
    assert view.get(b"k") is not None
    assert len([next(scan) for _ in range(100)]) == 100
    source.now = seconds + 1
    with pytest.raises(RetryError, check=WithCode("VIEW_TOO_LONG"), match=f"seconds_max={seconds}"):
        view.get(b"k")
    with pytest.raises(RetryError, check=WithCode("VIEW_TOO_LONG")):
        next(scan)
    # The database ends the transaction of a reader that stands still.
    assert source.idle_seconds == [seconds]


def test_a_view_of_known_keys_holds_up_nothing_before_it_asks_for_more() -> None:
    source = Source()
    view = PostgresView(source, CONNECTION, [b"k"], ViewUse.LISTING)
    source.now = 1000.0
    assert view.get(b"k") is not None
    assert source.idle_seconds == []
    assert view.get(b"other") is not None
    assert source.idle_seconds == [60]
