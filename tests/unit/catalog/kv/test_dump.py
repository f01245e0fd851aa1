"""A dump of a store: what comes back, what is refused, what a writer meanwhile changes."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.catalog_world import World
from tilth.catalog import BadDumpError, DumpHeader, MemoryKV, RocksKV, load_dump
from tilth.catalog.kv import KeyValue, Landed, ReadView, ViewUse
from tilth.catalog.kv.dump import read_dump, write_dump

HEADER = DumpHeader(version="1", server="s", created_ms=5)


def dumped(kv: KeyValue) -> bytes:
    sink = io.BytesIO()
    write_dump(kv, HEADER, sink, between=lambda: None)
    return sink.getvalue()


def pairs(kv: KeyValue) -> list[tuple[bytes, bytes]]:
    with kv.view() as view:
        return [(key, found.value) for key, found in view.scan(b"\x01", None)]


def filled(kv: KeyValue) -> KeyValue:
    """Keys and values of all lengths and bytes, in several frames."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        puts = {b"\x01" + rng.bytes(int(rng.integers(40))): rng.bytes(int(rng.integers(9_000))) for _ in range(60)}
        assert isinstance(kv.commit([], puts, []), Landed)
    assert isinstance(kv.commit([], {b"\x01": b"", b"\xff" * 300: b"\0" * 3_000_000}, []), Landed)
    return kv


def test_all_keys_and_values_come_back(tmp_path: Path) -> None:
    first = filled(RocksKV(str(tmp_path / "a")))
    data = dumped(first)
    for other in (MemoryKV(), RocksKV(str(tmp_path / "b"))):
        header, keys = load_dump(io.BytesIO(data), other)
        assert header == HEADER
        assert pairs(other) == pairs(first)
        assert keys == len(pairs(first))
        # The store goes on by itself.
        assert isinstance(other.commit([], {b"\x02": b"new"}, []), Landed)
        other.close()
    first.close()


def test_an_empty_store_has_an_empty_dump() -> None:
    kv = MemoryKV()
    assert load_dump(io.BytesIO(dumped(MemoryKV())), kv) == (HEADER, 0)
    assert pairs(kv) == []


def test_a_dump_shows_one_snapshot(tmp_path: Path) -> None:
    kv = filled(RocksKV(str(tmp_path / "a")))
    before = pairs(kv)
    sink = io.BytesIO()
    calls = 0

    def change() -> None:
        nonlocal calls
        calls += 1
        kv.commit([], {b"\xf0" + bytes([calls]): b"later", before[0][0]: b"changed"}, [before[-1][0]])

    write_dump(kv, HEADER, sink, between=change)
    restored = MemoryKV()
    load_dump(io.BytesIO(sink.getvalue()), restored)
    assert calls > 2
    assert pairs(restored) == before
    kv.close()


def test_what_was_cut_off_is_refused() -> None:
    data = dumped(filled(MemoryKV()))
    rng = np.random.default_rng(4)
    for length in {0, 1, 15, 16, 20, len(data) - 1, len(data) - 8, *rng.integers(len(data), size=40).tolist()}:
        with pytest.raises(BadDumpError):
            load_dump(io.BytesIO(data[:length]), MemoryKV())


def test_what_was_changed_is_refused() -> None:
    data = dumped(filled(MemoryKV()))
    rng = np.random.default_rng(5)
    for at in {0, 16, 20, 24, len(data) - 1, *rng.integers(len(data), size=40).tolist()}:
        changed = bytearray(data)
        changed[at] ^= 1 << int(rng.integers(8))
        with pytest.raises(BadDumpError):
            load_dump(io.BytesIO(changed), MemoryKV())
    with pytest.raises(BadDumpError):
        load_dump(io.BytesIO(data + b"x"), MemoryKV())


def test_a_writer_that_gives_up_writes_no_end() -> None:
    sink = io.BytesIO()

    def give_up() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_dump(filled(MemoryKV()), HEADER, sink, between=give_up)
    with pytest.raises(BadDumpError):
        load_dump(io.BytesIO(sink.getvalue()), MemoryKV())


def test_a_catalog_comes_back() -> None:
    world = World()
    world.insert("a", "b")
    world.insert("b")
    kv = MemoryKV()
    load_dump(io.BytesIO(dumped(world.kv)), kv)
    restored = World(kv).reopened()
    for partition in ("a", "b"):
        assert restored.parts.visible(world.t, partition) == world.catalog.parts.visible(world.t, partition)
    assert restored.tables.by_id(world.t) == world.catalog.tables.by_id(world.t)


def test_no_view_is_open_while_the_backup_is_stored() -> None:
    """Writes to a slow bucket happen after the view is closed."""
    open_views = 0

    class Viewed(MemoryKV):
        @contextmanager
        def view(self, keys: Collection[bytes] = (), use: ViewUse = ViewUse.LISTING) -> Iterator[ReadView]:
            nonlocal open_views
            assert use is ViewUse.EXPORT
            open_views += 1
            with super().view(keys, use) as view:
                yield view
            open_views -= 1

    class Bucket(io.BytesIO):
        def write(self, data: bytes, /) -> int:  # type: ignore[override]
            assert open_views == 0
            return super().write(data)

    kv, sink = Viewed(), Bucket()
    assert isinstance(kv.commit([], {b"k%d" % number: b"v" * 1000 for number in range(5000)}, []), Landed)
    assert write_dump(kv, HEADER, sink, between=lambda: None) == 5000
    sink.seek(0)
    _, frames = read_dump(sink)
    assert sum(len(pairs) for pairs in frames) == 5000
