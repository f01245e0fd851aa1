"""The tasks that read a topic, without Spark and without a broker: every format, envelope, error mode and way to be
broken, with views that pick columns, and what they keep for views that are computed.

What must come of a message follows from how it was drawn; files are read back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.integration.ingest.file_topic import FileMessage, batch_of
from tests.integration.ingest.ingest_world import schema_of
from tests.integration.ingest.message_kinds import BROKEN, COLUMNS, FORMATS, Planned, good, no_number, without_key
from tests.long import examples
from tests.unit.ingest.decoding import kafka_of
from tilth.base.clock import Clock
from tilth.ingest import dead_letter_table, read_config
from tilth.ingest.kafka.fetch import Fetched
from tilth.ingest.policy.evaluation import Evaluation
from tilth.ingest.rounds.keep import NO_NUMBERS, Kept
from tilth.ingest.rounds.round import DeadLetters, RoundFacts, RoundJob, ViewRefusal
from tilth.ingest.rounds.source import SourceTask, write_refused
from tilth.ingest.settings import KafkaConfig
from tilth.ingest.views.plans import FusedPlan, Picked, SqlPlan, ViewPlan
from tilth.ingest.views.refusals import RowCheck, Wanted
from tilth.model.offset import OffsetRange
from tilth.model.table import TableDef
from tilth.model.types import Kind
from tilth.storage import StoreRoot, data_folder, layout_of, local_root, read_part

FIRST = 1000
PICKS = FusedPlan(
    view="db.picks", target="p", columns=(Picked(target="id", source="id"), Picked(target="s", source="s"))
)
#: Its target needs an id, and it wants one before it looks at anything else.
KEYS = FusedPlan(
    view="db.keys",
    target="n",
    columns=(Picked(target="id", source="id"), Picked(target="at", source="_offset")),
    checks=(RowCheck("id", Wanted.PRESENT, "it is in the unique key of db.n"),),
)
#: Only its target needs one.
NEEDS = FusedPlan(view="db.needs", target="n", columns=KEYS.columns)
COMPUTED = SqlPlan(
    view="db.computed",
    target="p",
    text="",
    projection=(),
    needed=("x", "_offset"),
    checks=(RowCheck("id", Wanted.PRESENT, "it is in a key"),),
)

Messages = list[Planned]
planned = st.integers(0, 40).flatmap(
    lambda number: st.sampled_from(
        [good(number), good(number, rows=3), BROKEN, without_key(number), no_number(number), Planned(())]
    )
)


def target(uuid: str, *required: str, **columns: Kind) -> TableDef:
    schema = schema_of(columns)
    kept = tuple(type(c)(id=c.id, name=c.name, type=c.type, nullable=c.name not in required) for c in schema.columns)
    return TableDef(uuid=uuid, database="db", name=uuid, schema=type(schema)(columns=kept))


TARGETS = {
    "p": target("p", id=Kind.INT64, s=Kind.STRING),
    "n": target("n", "id", id=Kind.INT64, at=Kind.INT64),
}


class Cell:
    """One task over one partition."""

    def __init__(self, root: StoreRoot, messages: Messages, form: str, mode: str, plans: tuple[ViewPlan, ...]) -> None:
        self.root = root
        self.messages = messages
        kafka = kafka_of(COLUMNS, **FORMATS[form].settings, kafka_handle_error_mode=mode)
        config = read_config(kafka)
        dead = dead_letter_table(kafka, config, uuid="d", now_ms=1)
        self.tables = TARGETS | {"d": dead}
        values = [FORMATS[form].encode(each) for each in messages]
        self.sent = [FileMessage(FIRST + place, value) for place, value in enumerate(values)]
        self.job = RoundJob(
            config=config,
            schema=kafka.schema,
            name="k",
            defaults={},
            plans=plans,
            layouts={uuid: layout_of(table, root, fsync=False) for uuid, table in TARGETS.items()},
            dead_letters=None if mode == "throw" else DeadLetters(table="d", layout=layout_of(dead, root, fsync=False)),
            txn=7,
            splits=((OffsetRange(topic="t", partition=0, start=FIRST, end=FIRST + len(messages)),),),
            failing={COMPUTED.view: Evaluation.GUARDED},
            fetch=self._fetch,
        )

    def _fetch(self, clock: Clock, config: KafkaConfig, ranges: Any, *, has_headers: bool) -> Iterator[Fetched]:
        for start in range(0, len(self.sent), 3):
            yield Fetched(topic="t", partition=0, messages=batch_of(self.sent[start : start + 3]))

    def rows(self, facts: RoundFacts, table: str) -> list[dict[str, Any]]:
        folder = data_folder(self.root, table)
        parts = [read_part(folder, each.part.file) for each in facts.parts if each.table == table]
        return [row for part in parts for row in part.to_pylist()]

    def dead(self, facts: RoundFacts) -> Counter[tuple[Any, ...]]:
        """Offsets and views, after a look at what else is kept of them."""
        letters = self.rows(facts, "d")
        for each in letters:
            sent = self.sent[each["offset"] - FIRST]
            assert (each["raw"], each["key"], each["topic"]) == (sent.content, sent.key(), "t")
            assert each["reason"]
        return Counter((each["offset"] - FIRST, each["view"]) for each in letters)


def is_broken(each: Planned) -> bool:
    return each.rows is None


def lacks_key(each: Planned) -> bool:
    return any(row[0] is None for row in each.rows or ())


@pytest.mark.parametrize("mode", ["dead_letter", "stream", "throw"])
@pytest.mark.parametrize("form", FORMATS)
@settings(max_examples=examples(25))
@given(st.lists(planned, max_size=20))
def test_every_message_is_in_each_target_or_a_dead_letter(form: str, mode: str, messages: Messages) -> None:
    if not FORMATS[form].has_many:
        messages = [each for each in messages if each.rows is None or len(each.rows) == 1]
    with TemporaryDirectory() as root:
        cell = Cell(local_root(root), messages, form, mode, (PICKS, KEYS, NEEDS))
        task = SourceTask(cell.job, 0, attempt=0)
        facts = task.run()
        broken = {place for place, each in enumerate(messages) if is_broken(each)}
        keyless = {place for place, each in enumerate(messages) if lacks_key(each)}
        # In stream mode a broken message is a row without an id: of the views that need one it is refused.
        refused = keyless | broken if mode == "stream" else keyless
        expected = [(row[0], row[1]) for each in messages for row in each.rows or ()]
        if mode == "stream":
            expected += [(None, None)] * len(broken)  # type: ignore[list-item]  # as said
        assert Counter((row["id"], row["s"]) for row in cell.rows(facts, "p")) == Counter(expected)
        taken = Counter(
            (row[0], FIRST + place)
            for place, each in enumerate(messages)
            if place not in refused
            for row in each.rows or ()
        )
        assert Counter((row["id"], row["at"]) for row in cell.rows(facts, "n")) == taken + taken
        dead = {(place, view) for place in refused for view in (KEYS.view, NEEDS.view)}
        undecodable = set() if mode == "stream" else {(place, None) for place in broken}
        assert cell.dead(facts) == (Counter() if mode == "throw" else Counter(dead | undecodable))
        [range_] = facts.ranges
        assert (range_.messages, range_.dead, range_.refused) == (len(messages), len(undecodable), len(dead))
        assert range_.rows == len(expected)
        assert bool(facts.broken) == bool(broken or refused)
        assert set(facts.refusing) == ({KEYS.view, NEEDS.view} if refused else set())


@settings(max_examples=examples(25))
@given(st.lists(planned, min_size=1, max_size=20), st.data())
def test_what_is_kept_is_read_back_for_the_view(messages: Messages, data: st.DataObject) -> None:
    with TemporaryDirectory() as root:
        cell = Cell(local_root(root), messages, "json", "dead_letter", (PICKS, COMPUTED))
        facts = SourceTask(cell.job, 0, attempt=0).keep()
        kept = Kept(cell.job, (facts.attempt,))
        keyless = {place for place, each in enumerate(messages) if lacks_key(each)}
        assert facts.ranges[0].refused == len(keyless)
        all_rows = [
            (place, row[2]) for place, each in enumerate(messages) if place not in keyless for row in each.rows or ()
        ]
        numbers = data.draw(st.none() | st.tuples(st.integers(0, 20), st.integers(0, 21)))
        excluded = data.draw(st.sets(st.integers(0, 20), max_size=5))
        window = None if numbers is None else range(*numbers)
        found = [
            tuple(row.values())
            for batch in kept.rows(
                COMPUTED, 0, numbers=window, excluded=np.array(sorted(excluded), np.int64), is_numbered=True
            )
            for row in batch.to_pylist()
        ]
        wanted = [(n, x) for n, x in all_rows if n not in excluded and (window is None or n in window)]
        assert found == [(number, x, FIRST + number) for number, x in wanted]
        plain = list(kept.rows(COMPUTED, 0, numbers=None, excluded=NO_NUMBERS, is_numbered=False))
        assert all(batch.schema.names == ["x", "_offset"] for batch in plain)
        assert sum(batch.num_rows for batch in plain) == len(all_rows)
        # Messages that are refused later become dead letters, once for each verdict.
        refused = data.draw(st.sets(st.sampled_from(sorted({n for n, _ in all_rows}) or [0])))
        refused &= {number for number, _ in all_rows}
        refusals = [ViewRefusal(number=n, view=view, reason="why") for n in refused for view in ("db.a", "db.b")]
        kept.write_refusals(refusals)
        letters = write_refused(kept, 0, attempt=0)
        assert cell.dead(letters) == Counter((n, view) for n in refused for view in ("db.a", "db.b"))
        kept.remove()
        named = {each.part.file.name for each in (*facts.parts, *letters.parts)}
        assert {path.name for path in Path(root).glob("*/data/*")} == named
