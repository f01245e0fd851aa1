"""The cache of queries: a value is found where all that it depends on is the same, and bounds hold."""

from __future__ import annotations

import msgspec
import pytest

from tilth.model.part import DataFile, Part, PartName
from tilth.model.snapshot import Snapshot
from tilth.model.table import Column, Schema, TableDef
from tilth.model.types import Kind, Simple
from tilth.query.snapshots.protocol import Resolved, Source
from tilth.query.worker import query_cache
from tilth.query.worker.query_cache import CachedPlan, PlanBasis, Preparation, QueryCache, QueryKey, may_cache_plan
from tilth.query.worker.relations import Relations
from tilth.storage import local_root
from tilth.warehouse import PlanNode

SCHEMA = Schema(columns=(Column(id=1, name="k", type=Simple(Kind.INT64)),))
RESOLVED = [Resolved(database="d", table="t", schema=SCHEMA)]
CONTEXT = object()


def key(text: str = "SELECT k FROM t", **settings: str) -> QueryKey:
    return QueryKey(text, tuple(settings.items()))


def relations(nodes: int = 1) -> Relations:
    return Relations("", [], [PlanNode("Project", "", 0, 0, "", None) for _ in range(nodes)], frozenset())


def source(*files: str, uuid: str = "a" * 32) -> Source:
    table = TableDef(uuid=uuid, database="d", name="t", schema=SCHEMA, order_by=("k",))
    parts = tuple(
        Part(name=PartName("all", n, n, 0, n), schema_version=1, rows=1, file=DataFile(name=file, size=1, checksum=0))
        for n, file in enumerate(files)
    )
    return Source(snapshot=Snapshot(table=table, ts=1, version=1, parts=parts), root=local_root("/x"))


def basis(*sources: Source, tasks: int = 2, context: object = CONTEXT) -> PlanBasis:
    return PlanBasis(sources=list(sources), tasks=tasks, context=context)


def prepared(resolved: list[Resolved]) -> Preparation:
    return Preparation(resolved=resolved, views=[], shown=[], edits=[], needs=None)


def test_a_text_is_found_by_its_settings() -> None:
    queries, found = QueryCache(), relations()
    queries.add_relations(key(zone="UTC"), found)
    assert queries.relations(key(zone="UTC")) is found
    assert queries.relations(key()) is None
    assert queries.relations(key(zone="CET")) is None


def test_a_preparation_is_of_the_same_columns() -> None:
    queries = QueryCache()
    queries.add_preparation(key(), prepared(RESOLVED))
    assert queries.preparation(key(), RESOLVED) is None
    queries.add_relations(key(), relations())
    queries.add_preparation(key(), prepared(RESOLVED))
    wider = Schema(columns=(*SCHEMA.columns, Column(id=2, name="v", type=Simple(Kind.INT64))))
    other = [msgspec.structs.replace(RESOLVED[0], schema=wider)]
    assert queries.preparation(key(), other) is None
    assert queries.preparation(key(), RESOLVED) is not None
    stats = queries.stats()
    assert (stats.texts_reused, stats.texts_prepared) == (1, 2)


@pytest.mark.parametrize(
    "other",
    [
        basis(source("a", "b")),
        basis(source("b")),
        basis(source("a", uuid="b" * 32)),
        basis(source("a"), source("a")),
        basis(source("a"), tasks=3),
        basis(source("a"), context=object()),
    ],
)
def test_a_plan_is_of_the_same_files_tasks_and_jvm(other: PlanBasis) -> None:
    queries, handle = QueryCache(), object()
    queries.add_plan(key(), RESOLVED, basis(source("a")), handle)
    found = queries.plan(key(), RESOLVED, basis(source("a")))
    assert found is not None
    assert found.handle is handle
    assert queries.plan(key(), RESOLVED, other) is None
    # No query will have the former basis again.
    assert queries.stats().plans == 0


def test_plans_of_a_lost_jvm_go() -> None:
    queries = QueryCache()
    queries.add_plan(key("a"), RESOLVED, basis(source("a")), object())
    queries.add_plan(key("b"), RESOLVED, basis(source("a"), context=object()), object())
    assert queries.stats().plans == 1


def test_texts_and_plans_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_cache, "TEXT_COST_MAX", 10)
    monkeypatch.setattr(query_cache, "PLANS_MAX", 3)
    monkeypatch.setattr(query_cache, "PLAN_FILES_MAX", 2)
    monkeypatch.setattr(query_cache, "FILES_MAX", 4)
    queries = QueryCache()
    for number in range(9):
        queries.add_relations(key(str(number)), relations(3))
        queries.add_plan(key(str(number)), RESOLVED, basis(source("a")), number)
    stats = queries.stats()
    assert (stats.texts, stats.plans) == (3, 3)
    assert queries.relations(key("8")) is not None
    queries.add_relations(key("many"), relations(11))
    queries.add_relations(key("x" * (query_cache.TEXT_MAX + 1)), relations())
    queries.add_plan(key("files"), RESOLVED, basis(source("a", "b", "c")), "files")
    queries.add_plan(key("x" * (query_cache.TEXT_MAX + 1)), RESOLVED, basis(source("a")), "long")
    assert queries.stats().plans == 3
    assert queries.relations(key("many")) is None
    for number in range(3):
        queries.add_plan(key(f"two {number}"), RESOLVED, basis(source("a", "b")), number)
    # Four files in all.
    assert queries.stats().plans == 2


def test_long_texts_and_wide_tables_cost_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_cache, "TEXT_COST_MAX", 10)
    queries = QueryCache()
    wide = Schema(columns=tuple(Column(id=n, name=f"c{n}", type=Simple(Kind.INT64)) for n in range(1, 5)))
    resolved = [msgspec.structs.replace(RESOLVED[0], schema=wide)]
    for number in range(4):
        queries.add_relations(key(str(number)), relations())
        # Adding it twice costs no more than once.
        queries.add_preparation(key(str(number)), prepared(resolved))
        queries.add_preparation(key(str(number)), prepared(resolved))
    assert queries.stats().texts == 2
    assert queries.preparation(key("3"), resolved) is not None
    queries.add_relations(key("long"), Relations("x" * 512 * 9, [], relations().nodes, frozenset()))
    assert queries.stats().texts == 1
    assert queries.relations(key("long")) is not None
    # Its preparation exceeds the whole cache.
    queries.add_preparation(key("long"), prepared(resolved))
    assert queries.stats().texts == 0


def test_the_plan_used_longest_ago_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_cache, "PLANS_MAX", 2)
    queries, same = QueryCache(), basis(source("a"))
    for text in "ab":
        queries.add_plan(key(text), RESOLVED, same, text)
    assert queries.plan(key("a"), RESOLVED, same) == CachedPlan(RESOLVED, same, "a")
    queries.add_plan(key("c"), RESOLVED, same, "c")
    assert queries.plan(key("b"), RESOLVED, same) is None
    assert queries.plan(key("a"), RESOLVED, same) == CachedPlan(RESOLVED, same, "a")


def test_the_size_of_an_answer_is_that_of_its_plan() -> None:
    queries, first, second = QueryCache(), object(), object()

    def answer_bytes(*files: str) -> int | None:
        found = queries.plan(key(), RESOLVED, basis(source(*files)))
        assert found is not None
        return found.answer_bytes

    queries.note_answer(key(), first, 1)
    queries.add_plan(key(), RESOLVED, basis(source("a")), first)
    assert answer_bytes("a") is None
    queries.note_answer(key(), first, 2)
    queries.note_answer(key("another text"), first, 3)
    assert answer_bytes("a") == 2
    queries.add_plan(key(), RESOLVED, basis(source("a", "b")), second)
    # A query that began before the change ends behind it.
    queries.note_answer(key(), first, 4)
    assert answer_bytes("a", "b") is None
    queries.note_answer(key(), second, 5)
    assert answer_bytes("a", "b") == 5


def test_only_plans_over_plain_files_are_cached() -> None:
    plain = source("a")
    assert plain.snapshot is not None
    assert plain.root is not None
    assert may_cache_plan([plain])
    segment = msgspec.structs.replace(plain.snapshot.parts[0], is_segment=True)
    overlaid = msgspec.structs.replace(plain, snapshot=msgspec.structs.replace(plain.snapshot, parts=(segment,)))
    assert not may_cache_plan([plain, overlaid])
    assert not may_cache_plan([plain, Source(rows=b"")])
    replicated = msgspec.structs.replace(plain.root, replicas=(local_root("/y"),))
    assert not may_cache_plan([msgspec.structs.replace(plain, root=replicated)])
