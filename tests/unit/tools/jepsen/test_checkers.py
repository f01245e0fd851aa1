"""The checkers of jepsen runs find what is planted in a history, and excuse what may have happened."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from tilth.base.hybrid import pack
from tools.jepsen.checkers import (
    Faults,
    Hosting,
    PastRead,
    Sighting,
    Stretch,
    check_files,
    check_growing,
    check_hosts,
    check_keys,
    check_messages,
    check_offsets,
    check_partitions,
    check_past,
    check_set,
    check_updates,
)
from tools.jepsen.history import Event, Op, Outcome, Window, may_stay
from tools.jepsen.subjects import bucket_copies, folder_copies

OK, REFUSED, UNKNOWN = Outcome.OK, Outcome.REFUSED, Outcome.UNKNOWN


def op(kind: str, number: int, keys: tuple[int, ...], outcome: Outcome = OK, at: float = 1.0) -> Op:
    return Op(kind=kind, number=number, keys=keys, outcome=outcome, invoked=at, completed=at + 0.5)


def numbers(faults: Faults) -> tuple[int, int, int, int]:
    return faults.lost, faults.twice, faults.torn, faults.wrong


def test_rows_of_inserts() -> None:
    acknowledged = op("insert", 1, (1, 2))
    unknown = op("insert", 2, (3, 4), UNKNOWN)
    refused = op("insert", 3, (5, 6), REFUSED)
    inserts = [acknowledged, unknown, refused]
    assert numbers(check_set(inserts, {1: 1, 2: 1})) == (0, 0, 0, 0)
    assert numbers(check_set(inserts, {1: 1, 2: 1, 3: 1, 4: 1})) == (0, 0, 0, 0)
    assert numbers(check_set(inserts, {})) == (2, 0, 0, 0)
    assert numbers(check_set(inserts, {1: 2, 2: 1})) == (0, 1, 0, 0)
    assert numbers(check_set(inserts, {1: 1})) == (0, 0, 1, 0)
    assert numbers(check_set(inserts, {1: 1, 2: 1, 3: 1})) == (0, 0, 1, 0)
    assert numbers(check_set(inserts, {1: 1, 2: 1, 5: 1, 6: 1})) == (0, 0, 0, 1)
    assert numbers(check_set(inserts, {1: 1, 2: 1, 9: 1})) == (0, 0, 0, 1)


def test_a_read_sees_what_was_acknowledged_before_it_began() -> None:
    insert = op("insert", 1, (1, 2), at=5.0)
    assert check_set([insert], {}, at=5.2).is_none
    assert check_set([insert], {}, at=6.0).lost == 2
    running = replace(insert, completed=None, outcome=UNKNOWN)
    assert check_set([running], {}, at=6.0).is_none
    assert check_set([running], {1: 1}, at=6.0).torn == 1


def test_rows_that_a_failover_may_lose_are_counted_apart() -> None:
    insert = op("insert", 1, (1, 2), at=5.0)
    faults = check_set([insert], {}, windows=[Window(4.0, 9.0)])
    assert (faults.lost, faults.lost_by_failover) == (0, 1)
    assert check_set([insert], {1: 1}, windows=[Window(4.0, 9.0)]).torn == 1
    assert check_set([insert], {1: 2, 2: 1}, windows=[Window(4.0, 9.0)]).twice == 1
    assert check_set([insert], {}, windows=[Window(6.0, 9.0)]).lost == 2


def test_keys() -> None:
    writes = [op("upsert", 1, (7, 8), at=1), op("upsert", 2, (7, 9), at=2), op("delete", 3, (8,), at=3)]
    good = {7: [(2, -2)], 9: [(2, -2)]}
    assert numbers(check_keys(writes, good)) == (0, 0, 0, 0)
    assert numbers(check_keys(writes, {9: [(2, -2)]})) == (1, 0, 1, 0), "a lost key of a batch is torn, too"
    assert numbers(check_keys(writes, {**good, 7: [(1, -1)]})) == (1, 0, 1, 0)
    assert numbers(check_keys(writes, {**good, 8: [(1, -1)]})) == (0, 0, 0, 1), "a deleted row is back"
    assert numbers(check_keys(writes, {**good, 7: [(2, -2), (1, -1)]}))[1] == 1
    assert numbers(check_keys(writes, {**good, 9: [(2, -1)]})) == (0, 0, 1, 0)
    assert numbers(check_keys(writes, {**good, 30: [(2, -2)]})) == (0, 0, 0, 1)


def test_keys_of_unknown_and_refused_upserts() -> None:
    first = op("upsert", 1, (7, 8), at=1)
    unknown = op("upsert", 2, (7, 8), UNKNOWN, at=2)
    for found in ({7: [(1, -1)], 8: [(1, -1)]}, {7: [(2, -2)], 8: [(2, -2)]}):
        assert check_keys([first, unknown], found).is_none
    torn = check_keys([first, unknown], {7: [(2, -2)], 8: [(1, -1)]})
    assert numbers(torn) == (0, 0, 1, 0), "an upsert of two keys is there with both or with none"
    refused = replace(unknown, outcome=REFUSED)
    assert numbers(check_keys([first, refused], {7: [(2, -2)], 8: [(2, -2)]})) == (0, 0, 0, 2)


def test_a_late_delete_and_a_late_upsert_are_excused() -> None:
    first, second = op("upsert", 1, (7,), UNKNOWN, at=1), op("upsert", 2, (7,), at=2)
    delete = op("delete", 3, (7,), UNKNOWN, at=3)
    for found in ({}, {7: [(2, -2)]}, {7: [(1, -1)]}):
        assert check_keys([first, second, delete], found).is_none
    assert check_keys([first, second], {7: [(1, -1)]}).lost == 1
    assert check_keys([first, second], {}).lost == 1


def test_updates() -> None:
    updates = [op("update", 1, (0,)), op("update", 2, (0, 1), UNKNOWN), op("update", 3, (1,), REFUSED)]
    assert check_updates(updates, [(0, 1, -1), (1, 0, 0)], 2).is_none
    assert check_updates(updates, [(0, 2, -2), (1, 2, -2)], 2).is_none
    assert check_updates(updates, [(0, 0, 0), (1, 0, 0)], 2).lost == 1
    assert check_updates(updates, [(0, 1, 0), (1, 0, 0)], 2).torn == 1
    assert check_updates(updates, [(0, 1, -1), (1, 3, -3)], 2).wrong == 1
    assert check_updates(updates, [(0, 1, -1)], 2).lost == 1
    assert check_updates(updates, [(0, 1, -1), (0, 1, -1), (1, 0, 0)], 2).twice == 1


def test_partitions() -> None:
    fill, drop, undrop = (op(kind, 4, ()) for kind in ("fill_partition", "drop_partition", "undrop_partition"))
    assert check_partitions([fill], {4: 6}, 6).is_none
    assert check_partitions([fill, drop], {}, 6).is_none
    assert check_partitions([fill, drop, undrop], {4: 6}, 6).is_none
    assert check_partitions([fill, replace(drop, outcome=UNKNOWN)], {}, 6).is_none
    assert check_partitions([fill], {}, 6).lost == 6
    assert check_partitions([fill, drop, undrop], {4: 5}, 6).torn == 1
    assert check_partitions([fill], {4: 12}, 6).twice == 1
    assert check_partitions([fill, drop], {4: 6}, 6).wrong == 1
    assert check_partitions([], {4: 6}, 6).wrong == 1


def test_messages() -> None:
    assert check_messages([0, 1], 3, {0: 1, 1: 1}, "t").is_none
    assert check_messages([0, 1], 3, {0: 1, 1: 1, 2: 1}, "t").is_none, "sent, and not acknowledged"
    assert check_messages([0, 1], 3, {0: 1}, "t").lost == 1
    assert check_messages([0, 1], 3, {0: 1, 1: 2}, "t").twice == 1
    assert check_messages([0, 1], 2, {0: 1, 1: 1, 2: 1}, "t").wrong == 1


def test_offsets() -> None:
    def stretch(start: int, end: int, topic: str = "x") -> Stretch:
        return Stretch(topic_id=topic, partition=0, start=start, end=end, txn=start)

    assert check_offsets([stretch(5, 9), stretch(0, 5), stretch(0, 3, "y")]).is_none
    assert check_offsets([stretch(0, 5), stretch(4, 9)]).twice == 1
    assert check_offsets([stretch(0, 5), stretch(7, 9)]).lost == 2
    assert check_offsets([stretch(0, 5), stretch(0, 5)]).twice == 5


def test_files() -> None:
    named = {"t": {"1.parquet", "2.parquet"}}
    whole = {"t": {"1.parquet": "x", "2.parquet": "y", "1.map": "m"}}
    assert check_files(named, [whole, whole, {}], 2).is_none
    assert check_files(named, [whole, {"t": {"1.parquet": "x"}}], 2).wrong == 1
    flipped = {"t": {"1.parquet": "z", "2.parquet": "y"}}
    assert check_files(named, [whole, flipped], 2).wrong == 1
    assert check_files(named, [whole, flipped, whole], 2).is_none
    unknown = {"t": {**whole["t"], "3.parquet": "w", "3.map": "m"}}
    assert check_files(named, [whole, unknown], 2).unknown_files == 2
    assert check_files(named, [whole, unknown], 2, lost={"3.parquet", "4.parquet"}).is_none
    assert check_files(named, [{}], 1).wrong == 2


def test_hosts() -> None:
    one, other = Hosting(thing="t", epoch=3, holder="a#1"), Hosting(thing="t", epoch=4, holder="b#1")
    assert check_hosts([one, one, other]).is_none
    assert check_hosts([one, replace(other, epoch=3)]).wrong == 1


def test_numbers_that_only_grow() -> None:
    def seen(number: int, began: float, thing: str = "version of t") -> Sighting:
        return Sighting(thing=thing, number=number, began=began, ended=began + 1)

    assert check_growing([seen(5, 1), seen(5, 3), seen(6, 5)]).is_none
    assert check_growing([seen(6, 1), seen(5, 1.5)]).is_none, "reads that overlap may be seen in either order"
    assert check_growing([seen(6, 1), seen(5, 3)]).wrong == 1
    assert check_growing([seen(6, 1), seen(5, 3, "version of u")]).is_none
    assert check_growing([seen(6, 1), seen(5, 3)], [Window(0.5, 4)]).is_none
    assert check_growing([seen(6, 1), seen(5, 3)], [Window(7, 8)]).wrong == 1


def test_a_version_has_one_content() -> None:
    first = PastRead(table="t", version=3, content="x", server="a", at=1)
    assert check_past([first, replace(first, server="b", at=2)]).is_none
    assert check_past([first, replace(first, server="b", at=2, content="y")]).wrong == 1
    assert check_past([first, replace(first, server="b", at=2, content="y", version=4)]).is_none


def test_what_the_buckets_server_leaves_of_a_request_that_was_cut_off_is_no_file(tmp_path: Path) -> None:
    data = tmp_path / "t" / "data"
    data.mkdir(parents=True)
    for name in ("7-0.0-0.parquet", "7-0.0-0.parquet-6eef4235-08ff-4703-90e9-cc6c2db15c5e", "7-0.0-0.parquet-copy"):
        (data / name).write_bytes(b"x")
    assert set(bucket_copies(tmp_path)["t"]) == {"7-0.0-0.parquet", "7-0.0-0.parquet-copy"}
    assert len(folder_copies(tmp_path)["t"]) == 3


def test_a_file_may_stay_whose_record_and_whose_server_are_lost_at_once() -> None:
    """Only a kill in the window of a failover that loses commits excuses it; it is counted apart."""
    now = time.monotonic()
    window, killed = Window(now - 4, now), Event(at=now - 3, round=1, what="struck: server b killed, 0.4 s")
    name = f"{pack(int((time.time() - 2) * 1000))}-0.0-0.parquet"
    assert may_stay(name, [window], [killed])
    assert not may_stay(name, [window], [replace(killed, what="struck: server b paused, 0.4 s")])
    assert not may_stay(name, [window], [replace(killed, at=now - 5)])
    assert not may_stay(name, [Window(now - 4, now - 3)], [killed])
    assert not may_stay("strange.parquet", [window], [killed])
    found = check_files({"t": set()}, [{"t": {name: "x", "2.parquet": "x"}}], 1, may_stay=lambda each: each == name)
    assert (found.unknown_files, found.files_by_failover) == (1, 1)
