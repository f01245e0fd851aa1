"""Files of dead letters that are replayed: what is written comes back as messages, each letter once."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.unit.ingest.decoding import kafka_of
from tilth.ingest import dead_letter_table, read_config
from tilth.ingest.rounds.letters import LETTER_COLUMNS, SAME_MAX, Letters, LettersWritten, LetterWriter
from tilth.ingest.rounds.round import MessageNumbers, joined_ranges
from tilth.model.offset import LedgerRange
from tilth.model.types import Kind
from tilth.storage import TableLayout, layout_of, local_root, read_changes

#: Topic, partition and offset.
Position = tuple[str, int, int]
#: In the order in which letters come; the last one far behind, as where the log has holes.
POSITIONS: list[Position] = [
    ("a", 0, 3),
    ("a", 0, 3),
    ("a", 0, 9),
    ("a", 1, 3),
    ("b", 0, 3),
    ("b", 0, 3),
    ("b", 0, 1 << 47),
]


@pytest.fixture
def layout(tmp_path: Path) -> TableLayout:
    kafka = kafka_of({"id": Kind.INT64})
    table = dead_letter_table(kafka, read_config(kafka), uuid="0" * 32, now_ms=1)
    return layout_of(table, local_root(tmp_path))


def written(layout: TableLayout, positions: list[Position], *, batch: int = 100) -> LettersWritten:
    """Row n is of the file `f(n mod 2)`; every third has neither key nor time."""
    rows = [
        (f"f{n % 2}", n, *position, None if n % 3 == 0 else 1000 + n, None if n % 3 == 0 else b"\xff", b"%d" % n)
        for n, position in enumerate(positions)
    ]
    table = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=[*LETTER_COLUMNS])
    return LetterWriter(layout, 7, 3)(table.to_batches(max_chunksize=batch), task=1, attempt=0)


def read(layout: TableLayout, found: LettersWritten) -> list[list[tuple[object, ...]]]:
    """By file what its messages say."""
    letters = Letters(layout, tuple(each.name for each in found.files))
    return [
        [
            (fetched.topic, fetched.partition, int(sent.offsets[n]), sent.time(n), sent.key(n), sent.values[n])
            for fetched in letters.fetch(split)
            for sent in [fetched.messages]
            for n in range(len(sent))
        ]
        for split in range(len(found.files))
    ]


@pytest.mark.parametrize("batch", [1, 2, 3, 100])
def test_letters_come_back_as_messages_and_no_file_has_two_of_one(layout: TableLayout, batch: int) -> None:
    found = written(layout, POSITIONS, batch=batch)
    first, second = read(layout, found)
    assert [message[:3] for message in first] == [POSITIONS[n] for n in (0, 2, 3, 4, 6)]
    assert [message[:3] for message in second] == [POSITIONS[n] for n in (1, 5)]
    assert first[0][3:] == (-1, None, b"0")
    assert second[0][3:] == (1001, b"\xff", b"1")
    assert [each.letters for each in found.files] == [5, 2]
    assert found.left == 0
    # Each message has a number of its own, by which a view refuses it.
    numbers = MessageNumbers(tuple(each.ranges for each in found.files))
    for split, messages in enumerate((first, second)):
        shifts = numbers.shifts(split)
        for topic, partition, offset, *_ in messages:
            shift = shifts[str(topic), int(str(partition))]
            assert numbers.position(int(str(offset)) + shift) == (topic, partition, offset)


def test_more_letters_of_one_message_than_are_taken_are_left(layout: TableLayout) -> None:
    found = written(layout, [("a", 0, 5)] * (SAME_MAX + 2), batch=2)
    assert [each.letters for each in found.files] == [1] * SAME_MAX
    assert found.left == 2


def test_what_is_deleted_is_what_was_read(layout: TableLayout) -> None:
    found = written(layout, [*POSITIONS[:2], *[("c", 0, 1)] * (SAME_MAX + 1)])
    letters = Letters(layout, tuple(each.name for each in found.files))
    deltas = letters.deletions({"f0": "p", "f1": "q"}, txn=7, first_task=20, attempt=0)
    assert sorted((delta.partition, [t.file for t in delta.targets]) for delta in deltas) == [
        ("p", ["f0"]),
        ("q", ["f1"]),
    ]
    deleted = {
        (row["file"], row["row"]) for delta in deltas for row in read_changes(layout.folder, delta.file).to_pylist()
    }
    # The last one is one letter too many of its message.
    assert deleted == {(f"f{n % 2}", n) for n in range(2 + SAME_MAX)}
    assert sum(target.deleted for delta in deltas for target in delta.targets) == 2 + SAME_MAX
    letters.remove()
    letters.remove()


def test_ranges_of_letters_have_gaps_and_overlap() -> None:
    def ranged(start: int, end: int, messages: int) -> LedgerRange:
        return LedgerRange(topic="a", partition=0, start=start, end=end, messages=messages, rows=1, dead=1)

    [joined] = joined_ranges((ranged(3, 90, 4), ranged(5, 6, 1), ranged(200, 201, 1)), has_gaps=True)
    assert (joined.start, joined.end, joined.messages, joined.rows, joined.dead) == (3, 201, 6, 3, 3)
