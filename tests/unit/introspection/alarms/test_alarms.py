"""All alarms: their declarations, the rows of `system.alarms`, and the price of an evaluation."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.alarm_world import AlarmWorld, FakePeers
from tests.docs.pages import anchors_of
from tests.sql_world import SqlWorld
from tests.tidy.sources import ROOT
from tilth.base.errors import UnavailableError
from tilth.base.memory import MemoryReading
from tilth.base.pressure import MemoryGate
from tilth.base.rand import new_rng
from tilth.catalog import DelegatingKV, KeyValue, MemoryKV, TableVersion
from tilth.catalog.kv.protocol import ReadView, Versioned, ViewUse
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.introspection.alarms.alarm import Severity
from tilth.introspection.alarms.alarms import ALARMS, FINDINGS_MAX, count_findings
from tilth.model.server import ServerRecord
from tilth.model.table import Column, KafkaDef, Schema, TableDef
from tilth.model.task import TaskState
from tilth.model.types import Kind, Simple

TABLES = 10_000
#: Reads of the catalog by one evaluation where all is well; each further one has to be worth it.
READS_MAX = 8


class CountingKV(DelegatingKV):
    """Counts what is read."""

    def __init__(self, inner: KeyValue) -> None:
        super().__init__(inner)
        self.reads = 0

    def get(self, key: bytes) -> Versioned | None:
        self.reads += 1
        return super().get(key)

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        self.reads += 1
        return super().scan(start, end, limit=limit, reverse=reverse)

    def view(self, keys: Collection[bytes] = (), use: ViewUse = ViewUse.LISTING) -> AbstractContextManager[ReadView]:
        return self._counted(super().view(keys, use))

    @contextmanager
    def _counted(self, opening: AbstractContextManager[ReadView]) -> Iterator[ReadView]:
        with opening as view:
            yield _CountingView(self, view)


class _CountingView:
    def __init__(self, kv: CountingKV, view: ReadView) -> None:
        self._kv = kv
        self._view = view

    def get(self, key: bytes) -> Versioned | None:
        self._kv.reads += 1
        return self._view.get(key)

    def scan(
        self, start: bytes, end: bytes | None, *, limit: int | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, Versioned]]:
        self._kv.reads += 1
        return self._view.scan(start, end, limit=limit, reverse=reverse)


def put_tables(kv: KeyValue, *, count: int, parts: int = 2) -> None:
    """Tables with so many parts, each beside a Kafka table, in one commit."""
    schema = Schema(columns=(Column(id=1, name="a", type=Simple(kind=Kind.INT64)),))
    puts: dict[bytes, bytes] = {}
    for number in range(count):
        table = TableDef(uuid=f"t{number}", database="default", name=f"t{number}", schema=schema, next_column_id=2)
        kafka = KafkaDef(uuid=f"k{number}", database="default", name=f"k{number}", schema=schema)
        puts |= {pack(Space.RELATION, each.uuid): codec.RELATIONS.encode(each) for each in (table, kafka)}
        puts[pack(Space.VERSION, table.uuid)] = codec.VERSIONS.encode(TableVersion(counter=1, parts=parts))
    kv.commit([], puts, [])


def test_an_evaluation_reads_no_more_of_ten_thousand_tables_than_of_none(tmp_path: Path) -> None:
    kv = CountingKV(MemoryKV())
    world = AlarmWorld(tmp_path, kv=kv)
    kv.reads = 0
    few = count_findings(world.services)
    reads_of_none, kv.reads = kv.reads, 0
    put_tables(kv, count=TABLES)
    many = count_findings(world.services)
    assert reads_of_none == kv.reads <= READS_MAX
    assert {alarm.name: count for alarm, count in many.items() if count} == {
        alarm.name: count for alarm, count in few.items() if count
    }


def test_findings_are_bounded_where_everything_is_wrong(tmp_path: Path) -> None:
    kv = CountingKV(MemoryKV())
    world = AlarmWorld(tmp_path, kv=kv)
    world.consume.states = SqlWorld(tmp_path).consume.states * (FINDINGS_MAX + 1)
    found = {alarm.name: count for alarm, count in count_findings(world.services).items()}
    assert found["stream_failed"] == FINDINGS_MAX


def test_every_alarm_is_declared_well() -> None:
    assert len({each.name for each in ALARMS}) == len(ALARMS)
    for alarm in ALARMS:
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", alarm.name)
        assert alarm.meaning.endswith(".")
        assert alarm.todo.endswith(".")
        assert alarm.meaning[0].isupper()
        page, _, anchor = alarm.page.partition("#")
        assert page.startswith("docs/operate/")
        assert anchor in anchors_of(ROOT / page), alarm.name


def test_every_alarm_has_a_test_that_it_is_found_and_that_it_is_not() -> None:
    folder = Path(__file__).parent
    texts = "\n".join(path.read_text() for path in folder.glob("test_*.py"))
    called = re.findall(r'(?:found\(|sentences\(world, )"(\w+)"', texts)
    assert {each.name: called.count(each.name) for each in ALARMS if called.count(each.name) < 2} == {}


def test_rows_have_names_sentences_and_what_to_do(tmp_path: Path) -> None:
    world = SqlWorld(tmp_path)
    [row] = world.rows(
        "SELECT alarm, severity, database, table, subject, sentence, since, page, server FROM system.alarms "
        "WHERE alarm = 'stream_failed'"
    )
    assert row == (
        "stream_failed",
        "critical",
        "default",
        "k",
        None,
        "default.k is not read, after 3 failures in a row: the broker does not answer",
        None,
        "docs/operate/questions.md#4-why-is-a-topic-not-read",
        "s1",
    )
    [(todo,)] = world.rows("SELECT todo FROM system.alarms WHERE alarm = 'stream_failed'")
    assert todo == next(each.todo for each in ALARMS if each.name == "stream_failed")


def test_critical_alarms_come_first(tmp_path: Path) -> None:
    severities = [each.severity for each in ALARMS]
    assert severities == sorted(severities, key=list(Severity).index)


def test_what_needs_no_catalog_is_found_while_it_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = AlarmWorld(tmp_path)
    world.change(memory=MemoryGate(lambda: MemoryReading(used=100, hard=100, soft=80), new_rng()))
    world.change(peers=FakePeers(ServerRecord(name="s1", epoch=1, run=""), ServerRecord(name="s2", epoch=1, run="")))
    asked = []

    def away() -> list[object]:
        asked.append(1)
        raise UnavailableError("no connection")

    monkeypatch.setattr(world.catalog.tables, "all", away)
    found = {alarm.name: count for alarm, count in count_findings(world.services).items()}
    assert (found["catalog_away"], found["memory_pressure"]) == (1, 1)
    # Nobody knows whether these are well; the catalog was called once, although it may have hung.
    assert found.keys() & {"inserts_refused", "dead_letters", "transaction_lost"} == set()
    assert len(asked) == 1


def test_a_task_that_has_ended_is_no_alarm(tmp_path: Path) -> None:
    world = AlarmWorld(tmp_path)
    assert {each.state for each in world.dispatch.tasks()} == {TaskState.DONE}
    assert world.found("task_stuck") == []
