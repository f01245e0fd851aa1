"""Names, keys, values, the store and visibility against models that are too simple to be wrong."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.catalog_world import World
from tests.long import examples
from tilth.catalog import InsertPart, KeyValue, MemoryKV, RocksKV
from tilth.catalog.kv import Absent, AtVersion, Conflict, Landed, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, entry_key, pack, span, unpack
from tilth.catalog.rules.visibility import end_times, visible
from tilth.model.part import (
    LEVEL_MAX,
    ColumnRange,
    DataFile,
    DropRange,
    Entry,
    Mark,
    Part,
    PartName,
    parse_part_name,
)
from tilth.testing import ManualClock

INT64 = st.integers(0, 2**63 - 1)
PARTITIONS = st.text("abcXYZ019-", min_size=1, max_size=8)
NAMES = st.builds(PartName, PARTITIONS, INT64, INT64, st.integers(0, 2**32 - 1), INT64)
BOUNDS = st.none() | st.booleans() | INT64 | st.floats(allow_nan=False) | st.text()
FILES = st.builds(DataFile, name=st.text(), size=INT64, checksum=st.integers(0, 2**32 - 1))
PARTS = st.builds(
    Part,
    name=NAMES,
    schema_version=st.integers(1, 9),
    rows=INT64,
    file=FILES,
    values=st.lists(BOUNDS, max_size=3).map(tuple),
    ranges=st.dictionaries(st.text(), st.builds(ColumnRange, BOUNDS, BOUNDS, INT64), max_size=3),
    min_row_ts=INT64,
    max_row_ts=INT64,
    commit_ts=INT64,
    columns_commit_ts=INT64,
    mutation_ts=INT64,
    is_rewritten=st.booleans(),
)
RANGES = st.builds(DropRange, name=NAMES, commit_ts=INT64, parts=INT64)
ENTRIES = PARTS | st.builds(Mark, name=NAMES, commit_ts=INT64) | RANGES
FIELDS = st.text(max_size=5) | INT64
SMALL_KEYS = st.binary(max_size=2).map(lambda tail: b"k" + tail)


@given(NAMES)
def test_names_parse_as_they_were_written(name: PartName) -> None:
    assert parse_part_name(str(name)) == name


@given(ENTRIES)
def test_entries_decode_as_they_were_encoded(entry: Entry) -> None:
    assert codec.ENTRIES.decode(b"E", codec.ENTRIES.encode(entry)) == entry


@given(NAMES, NAMES)
def test_keys_sort_as_names_do(first: PartName, second: PartName) -> None:
    assert (entry_key("t", first) < entry_key("t", second)) == (first < second)


@given(st.lists(FIELDS, max_size=4))
def test_keys_unpack_as_they_were_packed(fields: list[str | int]) -> None:
    kinds = "".join("i" if isinstance(field, int) else "s" for field in fields)
    assert unpack(pack(Space.STATE, *fields), kinds) == fields


@given(st.text(max_size=5), st.text(max_size=5), FIELDS)
def test_a_range_holds_the_keys_of_its_field_only(one: str, other: str, rest: str | int) -> None:
    start, end = span(Space.STATE, one)
    assert (start <= pack(Space.STATE, other, rest) < end) == (one == other)


@st.composite
def histories(draw: st.DrawFn) -> list[Entry]:
    """Entries as commits make them: inserts, merges of neighbours, rewrites, drops, each at a rising time."""
    entries: list[Entry] = []
    shown: dict[str, list[Part]] = {"a": [], "b": []}
    for step in range(draw(st.integers(0, 12))):
        ts = 10 * (step + 1)
        partition = draw(st.sampled_from("ab"))
        parts = shown[partition]
        action = draw(st.sampled_from(["insert", "insert", "merge", "rewrite", "vanish", "drop"]))
        file = DataFile(name=f"f{ts}", size=1, checksum=0)
        if action == "insert":
            part = Part(name=PartName(partition, ts, ts, 0, ts), schema_version=1, rows=1, file=file, commit_ts=ts + 1)
            entries.append(part)
            parts.append(part)
        elif action == "merge" and len(parts) >= 2:
            first = draw(st.integers(0, len(parts) - 2))
            chosen = parts[first : first + draw(st.integers(2, 4))]
            level = max(part.name.level for part in chosen) + 1
            name = PartName(partition, chosen[0].name.min_block, chosen[-1].name.max_block, level, ts)
            result = Part(name=name, schema_version=1, rows=len(chosen), file=file, commit_ts=ts + 1)
            entries.append(result)
            for source in chosen:
                hidden = PartName(partition, *source.name.blocks, source.name.level + 1, ts)
                entries.append(Mark(name=hidden, commit_ts=ts + 1))
            parts[first : first + len(chosen)] = [result]
        elif action in ("rewrite", "vanish") and parts:
            chosen_one = draw(st.integers(0, len(parts) - 1))
            source = parts.pop(chosen_one)
            name = PartName(partition, *source.name.blocks, source.name.level + 1, ts)
            if action == "vanish":
                entries.append(Mark(name=name, commit_ts=ts + 1))
                continue
            result = Part(name=name, schema_version=1, rows=1, file=file, commit_ts=ts + 1, is_rewritten=True)
            entries.append(result)
            parts.insert(chosen_one, result)
        elif action == "drop" and parts:
            last = max(part.name.max_block for part in parts)
            entries.append(DropRange(name=PartName(partition, 0, last, LEVEL_MAX, ts), commit_ts=ts + 1))
            parts.clear()
    return draw(st.permutations(entries))


def naive_visible(entries: list[Entry], at: int) -> list[Part]:
    """docs/policies/visibility.md#visible-parts, word by word; a rewritten part hides its source as a mark does."""
    known = [entry for entry in entries if entry.commit_ts <= at]
    hiding = [e for e in known if isinstance(e, Mark) or (isinstance(e, Part) and e.is_rewritten)]
    marks = {(e.name.partition, e.name.blocks, e.name.level - 1) for e in hiding}
    ranges = [e for e in known if isinstance(e, DropRange)]
    found = [
        e
        for e in known
        if isinstance(e, Part)
        and (e.name.partition, e.name.blocks, e.name.level) not in marks
        and not any(r.name.partition == e.name.partition and e.name.max_block <= r.name.max_block for r in ranges)
    ]
    return sorted(found, key=lambda part: part.name)


@given(histories())
def test_visibility_is_what_the_design_says(entries: list[Entry]) -> None:
    for at in range(0, 150, 5):
        assert visible(entries, at) == naive_visible(entries, at)
    assert visible(entries) == naive_visible(entries, 10_000)


@given(histories(), st.integers(0, 150))
def test_collection_takes_nothing_that_a_living_reader_sees(entries: list[Entry], oldest: int) -> None:
    """Round after round of entries that ended at or before the oldest reader's time;
    in the end nothing hidden is left.
    """
    left = list(entries)
    before = {at: visible(entries, at) for at in range(oldest, 160, 5)}
    for _ in range(len(entries) + 1):
        gone = [entry.name for entry, end in end_times(left) if end <= oldest]
        left = [entry for entry in left if entry.name not in gone]
        assert {at: visible(left, at) for at in before} == before
    if oldest >= 140:
        assert sorted(entry.name for entry in left) == [part.name for part in visible(entries)]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 3)), min_size=1, max_size=10))
@settings(max_examples=examples(30))
def test_readers_of_the_past_see_it_before_and_after_merges(steps: list[tuple[int, int]]) -> None:
    world = World()
    seen: dict[int, list[PartName]] = {}
    for inserts, merged in steps:
        for _ in range(inserts):
            world.insert()
        parts = world.catalog.parts.visible(world.t, "all")
        if merged >= 2 and len(parts) >= merged:
            world.merge(parts[:merged])
        snapshot = world.catalog.parts.snapshot(world.t)
        assert snapshot.rows == world.catalog.parts.version(world.t).inserted_rows
        seen[snapshot.ts] = [part.name for part in snapshot.parts]
    for ts, names in seen.items():
        assert [part.name for part in world.catalog.parts.snapshot(world.t, at=ts).parts] == names


@given(st.lists(st.integers(0, 3), min_size=2, max_size=8), st.integers(0, 2**20))
@settings(max_examples=examples(30))
def test_inserts_never_share_a_name(milliseconds: list[int], start_ms: int) -> None:
    """Begun together, committed in any order, whatever the clock does."""
    world = World(clock=ManualClock(start_ms))
    begun = [world.catalog.transactions.open("insert") for _ in milliseconds]
    names = []
    for txn, step in zip(reversed(begun), milliseconds, strict=True):
        world.clock.set_now_ms(start_ms + step)
        updates = [InsertPart(table=world.t, written=world.written()) for _ in range(2)]
        names += [part.name for _, part in txn.commit(updates).parts]
    assert len({(name.min_block, name.level) for name in names}) == len(names)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), SMALL_KEYS, st.binary(max_size=3)),
        st.tuples(st.just("delete"), SMALL_KEYS, st.just(b"")),
        st.tuples(st.just("insert"), SMALL_KEYS, st.binary(max_size=3)),
        st.tuples(st.just("update"), SMALL_KEYS, st.binary(max_size=3)),
        st.tuples(st.just("view"), SMALL_KEYS, st.just(b"")),
    ),
    max_size=40,
)


@given(OPERATIONS)
def test_the_memory_store_is_a_dictionary(operations: list[tuple[str, bytes, bytes]]) -> None:
    check_against_model(MemoryKV(), operations)


def test_rocksdb_is_a_dictionary(tmp_path_factory: pytest.TempPathFactory) -> None:
    """One store for all examples, emptied between them: opening one takes longer than an example."""
    kv = RocksKV(str(tmp_path_factory.mktemp("kv")))

    @given(OPERATIONS)
    @settings(max_examples=examples(50))
    def check(operations: list[tuple[str, bytes, bytes]]) -> None:
        assert isinstance(kv.commit([], {}, [key for key, _ in kv.scan(b"k", b"l")]), Landed)
        check_against_model(kv, operations)

    check()
    kv.close()


def check_against_model(kv: KeyValue, operations: list[tuple[str, bytes, bytes]]) -> None:
    """Every operation does to the store what it does to a dictionary; views stay as they were."""
    model: dict[bytes, bytes] = {}
    versions: dict[bytes, int] = {}
    with ExitStack() as stack:
        views: list[tuple[ReadView, dict[bytes, bytes]]] = []
        for action, key, value in operations:
            if action == "view":
                views.append((stack.enter_context(kv.view()), dict(model)))
                continue
            if action == "insert":
                outcome = kv.commit([Absent(key)], {key: value}, [])
                applies = key not in model
            elif action == "update":
                outcome = kv.commit([AtVersion(key, versions.get(key, 0))], {key: value}, [])
                applies = key in model
            elif action == "put":
                outcome, applies = kv.commit([], {key: value}, []), True
            else:
                outcome, applies = kv.commit([], {}, [key]), True
            if not applies:
                assert outcome == Conflict(key)
                continue
            assert isinstance(outcome, Landed)
            if action == "delete":
                model.pop(key, None)
            else:
                model[key], versions[key] = value, outcome.version
            check_content(kv, model)
        for view, content in views:
            check_content(view, content)
    check_content(kv, model)


def check_content(view: ReadView, model: dict[bytes, bytes]) -> None:
    start, end = b"k", b"l"
    expected = sorted(model.items())
    assert [(key, found.value) for key, found in view.scan(start, end)] == expected
    assert [(key, found.value) for key, found in view.scan(start, end, reverse=True)] == expected[::-1]
    for key in (b"k", b"k\x00", b"k\x01\x01"):
        found = view.get(key)
        assert (None if found is None else found.value) == model.get(key)
