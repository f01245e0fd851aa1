"""Mutations in the catalog: what ALTER commits, what rewrites may do, how entries end; and who wins which race."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from tests.catalog_world import SCHEMA, WIDER, Racing, World
from tests.oracle import Row, oracle
from tilth.base.errors import InvalidInputError, TilthError
from tilth.catalog import (
    BadMergeError,
    HidePartition,
    InsertPart,
    MutationEndedError,
    MutationNotFoundError,
    PartsGoneError,
    ReplaceParts,
    RestorePartition,
    RewritePart,
    SchemaChangedError,
    SchemaIs,
    StartMutation,
    TableNotFoundError,
    WrongEngineError,
    visibility,
)
from tilth.model.mutation import Mutation, MutationKind, MutationState, needs
from tilth.model.part import DataFile, Mark, Part, PartName
from tilth.model.table import Column, Schema
from tilth.model.types import Kind, Simple

WIDEST = Schema(columns=(*WIDER.columns, Column(id=3, name="c", type=Simple(Kind.INT32))))


@pytest.fixture
def world() -> World:
    return World()


def entry(kind: MutationKind, commit_ts: int) -> Mutation:
    schema = World().definition().schema_now
    return Mutation(table="t", id=commit_ts - 1, commit_ts=commit_ts, kind=kind, command="", schema=schema)


def part_of(*, columns: int, mutation: int, min_block: int) -> Part:
    return Part(
        name=PartName("all", min_block, min_block, 0, 1),
        schema_version=1,
        rows=1,
        file=DataFile(name="f", size=1, checksum=0),
        columns_commit_ts=columns,
        mutation_ts=mutation,
    )


@pytest.mark.parametrize("row", oracle("mutations", "Which part needs which entry"))
def test_which_part_needs_which_entry(row: Row) -> None:
    columns, mutation, min_block, at = (int(row[name]) for name in ("columns", "mutation", "min_block", "entry at"))
    part = part_of(columns=columns, mutation=mutation, min_block=min_block)
    assert needs(part, entry(MutationKind.COLUMNS, at)) is (row["needs columns"] == "yes")
    for kind in (MutationKind.UPDATE, MutationKind.DELETE):
        assert needs(part, entry(kind, at)) is (row["needs data"] == "yes")


def test_new_columns_are_there_at_once(world: World) -> None:
    [old] = world.insert()
    counter = world.catalog.parts.version(world.t).counter
    mutation = world.alter(WIDER)
    definition = world.definition()
    assert (definition.schema, definition.schema_version, definition.next_column_id) == (WIDER, 2, 3)
    assert definition.columns_commit_ts == mutation.commit_ts > old.commit_ts
    assert definition.schema_of(1) == SCHEMA
    assert definition.mutation_ts == 0
    assert mutation.schema == definition.schema_now
    assert (mutation.state, mutation.kind, mutation.created_ms) == (
        MutationState.PENDING,
        MutationKind.COLUMNS,
        world.clock.now_ms(),
    )
    assert world.catalog.parts.version(world.t).counter == counter + 1
    assert world.catalog.parts.snapshot(world.t).table == definition
    [new] = world.insert()
    assert (new.schema_version, new.columns_commit_ts, new.mutation_ts) == (2, mutation.commit_ts, 0)
    assert needs(old, mutation)
    assert not needs(new, mutation)
    assert world.catalog.mutations.pending(world.t) == [mutation]


def test_an_update_is_asked_of_what_was_there(world: World) -> None:
    [old] = world.insert()
    mutation = world.alter()
    [new] = world.insert()
    assert world.definition().mutation_ts == new.mutation_ts == mutation.commit_ts
    assert (world.definition().schema_version, world.definition().older_schemas) == (1, ())
    assert needs(old, mutation)
    assert not needs(new, mutation)
    assert (mutation.command, mutation.assignments, mutation.predicate) == ("update it", (("a", "a + 1"),), "a > 0")


def test_an_alter_that_was_planned_for_other_columns_is_refused(world: World) -> None:
    late, late_update = world.start(WIDEST), world.start()
    world.alter(WIDER)
    for update in (late, late_update):
        with pytest.raises(SchemaChangedError, match="planned_for=1 now=2"):
            world.commit(update)
    with pytest.raises(InvalidInputError):
        world.commit(StartMutation(table=world.t, from_version=2, kind=MutationKind.COLUMNS, command=""))
    with pytest.raises(InvalidInputError):
        world.commit(world.start(), world.start())
    assert len(world.catalog.mutations.all(world.t)) == 1


def test_a_rewrite_replaces_its_source(world: World) -> None:
    [old] = world.insert(rows=10)
    before = world.catalog.parts.version(world.t)
    mutation = world.alter()
    [new] = world.rewrite(mutation, old, rows=7)
    name = old.name
    assert new.name == PartName("all", name.min_block, name.max_block, 1, new.name.mutation)
    assert new.is_rewritten
    assert (new.min_row_ts, new.max_row_ts) == (old.min_row_ts, old.max_row_ts)
    assert (new.mutation_ts, new.schema_version, new.columns_commit_ts) == (mutation.commit_ts, 1, 0)
    assert world.names() == [new.name]
    assert world.names(at=old.commit_ts) == [old.name]
    assert world.catalog.parts.counts(world.t) == {"all": 1}
    version = world.catalog.parts.version(world.t)
    assert (version.removed_rows, version.parts_added, version.parts) == (3, 2, 1)
    assert version.counter == before.counter + 2
    event = world.catalog.part_log.recent(limit=1)[0]
    assert (event.event, event.part, event.sources, event.rows) == ("mutate", str(new.name), 1, 7)
    assert visibility.end_times(world.catalog.parts.entries(world.t, "all")) == [(old, new.commit_ts)]


def test_a_rewrite_that_leaves_no_row_is_a_mark(world: World) -> None:
    old, kept = world.insert("a", "b")
    mutation = world.alter()
    assert world.rewrite(mutation, old, rows=0) == []
    assert world.names() == [kept.name]
    assert world.catalog.parts.counts(world.t) == {"a": 0, "b": 1}
    [mark] = [each for each in world.catalog.parts.entries(world.t, "a") if isinstance(each, Mark)]
    assert (mark.name.blocks, mark.name.level) == (old.name.blocks, 1)
    assert world.catalog.parts.version(world.t).removed_rows == 10
    assert visibility.end_times(world.catalog.parts.entries(world.t, "a")) == [(old, mark.commit_ts)]


def test_new_columns_go_into_parts_one_after_the_other(world: World) -> None:
    [old] = world.insert()
    first, second = world.alter(WIDER), world.alter(WIDEST)
    with pytest.raises(PartsGoneError, match="does not wait"):
        world.rewrite(second, old)
    [wider] = world.rewrite(first, old)
    assert (wider.schema_version, wider.columns_commit_ts) == (2, first.commit_ts)
    assert not world.catalog.mutations.finish(world.t, second.id)
    [widest] = world.rewrite(second, wider)
    assert (widest.schema_version, widest.columns_commit_ts, widest.name.level) == (3, second.commit_ts, 2)
    assert not world.catalog.mutations.finish(world.t, second.id), "the first comes first"
    assert world.catalog.mutations.finish(world.t, first.id)
    assert world.catalog.mutations.finish(world.t, second.id)


def test_parts_without_a_matching_row_only_say_so(world: World) -> None:
    parts = [*world.insert("a", "b"), *world.insert("a")]
    mutation = world.alter()
    world.accept(mutation, *parts)
    assert world.names() == sorted(part.name for part in parts)
    shown = world.catalog.parts.snapshot(world.t).parts
    assert {part.mutation_ts for part in shown} == {mutation.commit_ts}
    assert {part.file.name for part in shown} == {part.file.name for part in parts}
    assert world.catalog.parts.counts(world.t) == {"a": 2, "b": 1}
    with pytest.raises(PartsGoneError):
        world.accept(mutation, parts[0])
    with pytest.raises(PartsGoneError):
        world.rewrite(mutation, parts[0])
    assert world.catalog.mutations.finish(world.t, mutation.id)
    columns = world.alter(WIDER)
    with pytest.raises(InvalidInputError):
        world.accept(columns, *shown)


def test_what_a_rewrite_needs(world: World) -> None:
    first, second = [*world.insert("a"), *world.insert("a")]
    mutation = world.alter()
    [late] = world.insert("a")
    with pytest.raises(PartsGoneError):
        world.rewrite(mutation, late)
    with pytest.raises(InvalidInputError):
        world.commit(RewritePart(table=world.t, source=first.name, written=world.written("b"), mutation=mutation.id))
    with pytest.raises(MutationNotFoundError):
        world.commit(RewritePart(table=world.t, source=first.name, written=None, mutation=77))
    [new] = world.rewrite(mutation, first)
    with pytest.raises(PartsGoneError):
        world.rewrite(mutation, first)
    with pytest.raises(PartsGoneError):
        world.rewrite(mutation, new)
    world.commit(HidePartition(table=world.t, partition="a"))
    with pytest.raises(PartsGoneError):
        world.rewrite(mutation, second)
    assert world.names() == []


def test_neighbours_on_two_sides_of_a_mutation_are_not_merged(world: World) -> None:
    [old] = world.insert()
    mutation = world.alter()
    [young] = world.insert()
    with pytest.raises(BadMergeError, match="a mutation stands between"):
        world.merge([old, young])
    [mutated] = world.rewrite(mutation, old)
    assert mutated.mutation_ts == young.mutation_ts == mutation.commit_ts
    merged = world.merge([mutated, young])
    assert merged.mutation_ts == mutation.commit_ts
    assert world.names() == [merged.name]


def test_parts_of_different_columns_are_not_merged(world: World) -> None:
    [old] = world.insert()
    mutation = world.alter(WIDER)
    [young] = world.insert()
    with pytest.raises(BadMergeError):
        world.merge([old, young])
    [wide] = world.rewrite(mutation, old)
    merged = world.merge([wide, young])
    assert (merged.schema_version, merged.columns_commit_ts) == (2, mutation.commit_ts)


def test_a_merge_goes_on_over_an_alter(world: World) -> None:
    """Its result has the columns of its sources, and still needs what they needed."""
    parts = [*world.insert(), *world.insert()]
    names = tuple(part.name for part in parts)
    txn = world.catalog.transactions.open("merge")
    columns, update = world.alter(WIDER), world.alter()
    merge = ReplaceParts(table=world.t, sources=names, written=world.written(rows=20))
    [(_, merged)] = txn.commit([merge]).parts
    assert (merged.schema_version, merged.mutation_ts) == (1, 0)
    assert needs(merged, columns)
    assert needs(merged, update)
    assert world.mutate_all(columns)
    assert world.mutate_all(update)


def test_a_killed_mutation_keeps_nobody_apart(world: World) -> None:
    first, second = [*world.insert(), *world.insert()]
    mutation = world.alter()
    [rewritten] = world.rewrite(mutation, first)
    killed = world.catalog.mutations.kill(world.t, mutation.id, "a mistake")
    assert (killed.state, killed.reason, killed.ended_ms) == (
        MutationState.KILLED,
        "a mistake",
        world.clock.now_ms(),
    )
    assert world.catalog.mutations.kill(world.t, mutation.id, "again") == killed
    assert world.definition().killed_mutation_ts == mutation.commit_ts
    for call in (lambda: world.rewrite(mutation, second), lambda: world.accept(mutation, second)):
        with pytest.raises(MutationEndedError, match="state=killed"):
            call()
    assert not world.catalog.mutations.finish(world.t, mutation.id)
    merged = world.merge([rewritten, second])
    assert merged.mutation_ts == mutation.commit_ts
    assert world.catalog.mutations.pending(world.t) == []


def test_a_killed_alter_of_columns_leaves_old_parts_to_the_next(world: World) -> None:
    [old] = world.insert()
    killed = world.alter(WIDER)
    world.catalog.mutations.kill(world.t, killed.id, "too slow")
    assert world.definition().killed_mutation_ts == 0
    following = world.alter(WIDEST)
    [new] = world.rewrite(following, old)
    assert (new.schema_version, new.columns_commit_ts) == (3, following.commit_ts)
    assert world.catalog.mutations.finish(world.t, following.id)


def test_finishing(world: World) -> None:
    mutations = world.catalog.mutations
    [old] = world.insert()
    mutation = world.alter(WIDER)
    assert not mutations.finish(world.t, mutation.id)
    assert world.mutate_all(mutation)
    done = mutations.get(world.t, mutation.id)
    assert (done.state, done.ended_ms) == (MutationState.DONE, world.clock.now_ms())
    assert mutations.finish(world.t, mutation.id)
    assert mutations.kill(world.t, mutation.id, "too late") == done
    assert world.definition().schema_of(1) == SCHEMA, "the replaced part still has it"
    world.collect()
    assert world.mutate_all(world.alter())
    assert world.definition().schema_of(1) == SCHEMA, "and in the trash it has it too"
    world.catalog.trash.remove(world.t, world.catalog.trash.items(world.t, limit=9)[0])
    assert world.mutate_all(world.alter())
    assert world.definition().schema_of(1) is None
    assert old.name not in world.names()
    with pytest.raises(MutationNotFoundError):
        mutations.get(world.t, 5)
    with pytest.raises(MutationNotFoundError):
        mutations.finish(world.t, 5)


def test_columns_that_a_pending_entry_will_write_are_kept(world: World) -> None:
    [_] = world.insert()
    columns, update, columns_again = world.alter(WIDER), world.alter(), world.alter(WIDEST)
    assert world.mutate_all(columns)
    world.collect()
    world.catalog.trash.remove(world.t, world.catalog.trash.items(world.t, limit=9)[0])
    assert world.mutate_all(update)
    assert world.mutate_all(columns_again)
    assert [part.schema_version for part in world.catalog.parts.snapshot(world.t).parts] == [3]


def test_old_entries_are_forgotten(world: World) -> None:
    ended = [world.alter() for _ in range(5)]
    for mutation in ended:
        assert world.mutate_all(mutation)
    pending = world.alter()
    assert world.catalog.mutations.trim(world.t, keep=2) == 3
    assert [each.id for each in world.catalog.mutations.all()] == [ended[3].id, ended[4].id, pending.id]
    assert world.catalog.mutations.trim(world.t, keep=2) == 0


def test_entries_go_with_their_table(world: World) -> None:
    mutation = world.alter()
    world.catalog.tables.drop(world.t)
    for call in (world.catalog.mutations.finish, lambda table, id: world.catalog.mutations.kill(table, id, "x")):
        with pytest.raises(TableNotFoundError):
            call(world.t, mutation.id)
    world.catalog.tables.undrop("default", "t")
    assert world.catalog.mutations.pending(world.t) == [mutation]
    world.catalog.tables.drop(world.t)
    world.catalog.tables.forget(world.t)
    assert world.catalog.mutations.all() == []


def test_an_entry_counts_the_parts_that_it_has_reached(world: World) -> None:
    parts = world.insert("a", "b", "c", "d")
    mutation = world.alter()
    assert (mutation.parts_done, mutation.parts_left) == (0, -1)
    world.rewrite(mutation, *parts[:2])
    world.accept(mutation, parts[2])
    again = world.reopened().mutations
    assert again.get(world.t, mutation.id).parts_done == 3
    killed = again.kill(world.t, mutation.id, "a mistake")
    assert (killed.parts_done, killed.parts_left) == (3, 1)
    assert killed.parts_summary == "3 of 4 parts were done before and stay so"
    following = world.alter()
    assert world.mutate_all(following)
    done = world.catalog.mutations.get(world.t, following.id)
    assert (done.parts_done, done.parts_left) == (4, 0)


def test_a_done_entry_that_is_due_again_counts_on(world: World) -> None:
    [part] = world.insert("a")
    world.commit(HidePartition(table=world.t, partition="a"))
    mutation = world.alter()
    [_] = world.insert("b")
    assert world.catalog.mutations.finish(world.t, mutation.id)
    world.commit(RestorePartition(table=world.t, partition="a"))
    due = world.catalog.mutations.get(world.t, mutation.id)
    assert (due.state, due.parts_done, due.parts_left) == (MutationState.PENDING, 0, -1)
    assert world.mutate_all(due)
    assert part.name not in world.names()
    assert world.catalog.mutations.get(world.t, mutation.id).parts_done == 1


def test_ttl(world: World) -> None:
    changed = world.catalog.tables.modify_ttl(world.t, "a + INTERVAL 1 DAY")
    assert world.definition() == changed
    assert changed.ttl == "a + INTERVAL 1 DAY"
    assert world.catalog.tables.modify_ttl(world.t, None).ttl is None
    with pytest.raises(WrongEngineError):
        world.catalog.tables.modify_ttl(world.kafka(), "a")


# --- races: the other one lands between the view of the first and its commit ---


def raced(act: Callable[[World, Mutation, Part], object], meanwhile: Callable[[World, Mutation, Part], object]) -> None:
    """A table with one part and a pending UPDATE; `meanwhile` lands just before what `act` commits."""
    kv = Racing()
    world = World(kv)
    [part] = world.insert()
    mutation = world.alter()
    # The first commit of `act` only begins its transaction.
    kv.before = lambda: setattr(kv, "before", lambda: meanwhile(World(kv), mutation, part))
    act(world, mutation, part)
    assert kv.before is None, "the race happened"


def kill(world: World, mutation: Mutation, _: Part) -> object:
    return world.catalog.mutations.kill(world.t, mutation.id, "no")


def rewrite(world: World, mutation: Mutation, part: Part) -> object:
    return world.rewrite(mutation, part)


def accept(world: World, mutation: Mutation, part: Part) -> None:
    world.accept(mutation, part)


def drop(world: World, _: Mutation, part: Part) -> object:
    return world.commit(HidePartition(table=world.t, partition=part.name.partition))


@pytest.mark.parametrize(
    ("act", "meanwhile", "error"),
    [
        pytest.param(rewrite, kill, MutationEndedError, id="rewrite, kill"),
        pytest.param(accept, kill, MutationEndedError, id="accept, kill"),
        pytest.param(rewrite, drop, PartsGoneError, id="rewrite, drop"),
        pytest.param(accept, drop, PartsGoneError, id="accept, drop"),
        pytest.param(rewrite, rewrite, PartsGoneError, id="rewrite, rewrite"),
        pytest.param(rewrite, accept, PartsGoneError, id="rewrite, accept"),
        pytest.param(accept, rewrite, PartsGoneError, id="accept, rewrite"),
    ],
)
def test_a_rewrite_loses_against(
    act: Callable[[World, Mutation, Part], object],
    meanwhile: Callable[[World, Mutation, Part], object],
    error: type[TilthError],
) -> None:
    with pytest.raises(error):
        raced(act, meanwhile)


@pytest.mark.parametrize("merges_first", [True, False])
def test_of_a_merge_and_a_rewrite_one_wins(merges_first: bool) -> None:
    kv = Racing()
    world = World(kv)
    parts = [*world.insert(), *world.insert()]
    mutation = world.alter()

    def merge_them(world: World) -> object:
        return world.merge(parts)

    def rewrite_one(world: World) -> object:
        return world.rewrite(mutation, parts[0])

    first, second = (merge_them, rewrite_one) if merges_first else (rewrite_one, merge_them)
    # The first commit only begins the transaction.
    kv.before = lambda: setattr(kv, "before", lambda: first(World(kv)))
    with pytest.raises(PartsGoneError):
        second(world)
    assert len(world.names()) == (1 if merges_first else 2)


def test_killing_loses_nothing_that_was_rewritten_meanwhile() -> None:
    kv = Racing()
    world = World(kv)
    [part] = world.insert()
    mutation = world.alter()
    kv.before = lambda: World(kv).rewrite(mutation, part)
    assert world.catalog.mutations.kill(world.t, mutation.id, "no").state is MutationState.KILLED
    [rewritten] = world.catalog.parts.snapshot(world.t).parts
    assert rewritten.is_rewritten


def test_of_finish_and_kill_one_wins() -> None:
    kv = Racing()
    world = World(kv)
    first = world.alter()
    kv.before = lambda: World(kv).catalog.mutations.finish(world.t, first.id)
    assert world.catalog.mutations.kill(world.t, first.id, "no").state is MutationState.DONE
    assert world.definition().killed_mutation_ts == 0
    second = world.alter()
    kv.before = lambda: World(kv).catalog.mutations.kill(world.t, second.id, "no")
    assert not world.catalog.mutations.finish(world.t, second.id)
    assert world.catalog.mutations.get(world.t, second.id).state is MutationState.KILLED


def test_a_finish_over_an_alter_keeps_the_new_columns() -> None:
    kv = Racing()
    world = World(kv)
    first = world.alter(WIDER)
    kv.before = lambda: World(kv).alter(WIDEST)
    assert world.catalog.mutations.finish(world.t, first.id)
    definition = world.definition()
    assert (definition.schema, definition.schema_version) == (WIDEST, 3)
    assert [each.version for each in definition.older_schemas] == []


def test_an_insert_over_an_update_does_not_need_it() -> None:
    kv = Racing()
    world = World(kv)
    txn = world.catalog.transactions.open("insert")
    done: list[Mutation] = []
    kv.before = lambda: done.append(World(kv).alter())
    insert = InsertPart(table=world.t, written=world.written())
    [(_, part)] = txn.commit([insert]).parts
    [mutation] = done
    assert part.mutation_ts == mutation.commit_ts < part.name.min_block
    assert not needs(part, mutation)


# --- defaults and comments ---


def described(schema: Schema, default: str) -> Schema:
    """With another default of the last column."""
    last = msgspec.structs.replace(schema.columns[-1], default=default, comment="for people")
    return Schema(columns=(*schema.columns[:-1], last))


def test_a_new_default_needs_nothing_of_the_parts(world: World) -> None:
    [old] = world.insert()
    counter = world.catalog.parts.version(world.t).counter
    now = world.catalog.tables.describe_columns(world.t, 1, described(SCHEMA, "5"))
    assert now == world.definition()
    assert (now.schema, now.schema_version, now.columns_commit_ts) == (described(SCHEMA, "5"), 2, 0)
    assert now.schema_of(1) == SCHEMA
    assert world.catalog.mutations.all(world.t) == []
    assert world.catalog.parts.version(world.t).counter == counter
    [new] = world.insert()
    assert (new.schema_version, new.columns_commit_ts) == (2, 0)
    merged = world.merge([old, new])
    assert (merged.schema_version, merged.columns_commit_ts) == (2, 0)
    mutation = world.alter(WIDER)
    assert world.mutate_all(mutation)
    assert [part.columns_commit_ts for part in world.catalog.parts.visible(world.t, "all")] == [mutation.commit_ts]


def test_columns_of_other_files_are_no_description(world: World) -> None:
    with pytest.raises(InvalidInputError):
        world.catalog.tables.describe_columns(world.t, 1, WIDER)
    with pytest.raises(SchemaChangedError, match="planned_for=2 now=1"):
        world.catalog.tables.describe_columns(world.t, 2, described(SCHEMA, "5"))
    with pytest.raises(WrongEngineError):
        world.catalog.tables.describe_columns(world.kafka(), 1, SCHEMA)
    assert world.definition().schema_version == 1


@pytest.mark.parametrize("is_first", [True, False])
def test_an_alter_does_not_undo_a_description_that_came_between(is_first: bool) -> None:
    kv = Racing()
    world, other = World(kv), World(kv)
    late = world.start(WIDER)
    if is_first:
        kv.before = lambda: other.catalog.tables.describe_columns(world.t, 1, described(SCHEMA, "5"))
        with pytest.raises(SchemaChangedError):
            world.catalog.transactions.apply("alter", [late])
        assert world.definition().schema == described(SCHEMA, "5")
    else:
        kv.before = lambda: other.commit(late)
        with pytest.raises(SchemaChangedError):
            world.catalog.tables.describe_columns(world.t, 1, described(SCHEMA, "5"))
        assert world.definition().schema == WIDER


def test_an_insert_that_was_written_before_a_new_default_is_taken(world: World) -> None:
    world.insert()
    for version, is_taken in ((1, True), (2, False)):
        txn = world.catalog.transactions.open("insert")
        updates = [InsertPart(table=world.t, written=world.written())]
        required = [SchemaIs(table=world.t, schema_version=version)]
        if is_taken:
            world.catalog.tables.describe_columns(world.t, version, described(SCHEMA, "5"))
            [(_, part)] = txn.commit(updates, required).parts
            assert part.schema_version == 2
        else:
            world.alter(WIDER)
            with pytest.raises(SchemaChangedError):
                txn.commit(updates, required)


def test_descriptions_that_no_part_has_are_forgotten(world: World) -> None:
    world.insert()
    for number in range(5):
        world.catalog.tables.describe_columns(world.t, number + 1, described(SCHEMA, str(number)))
    assert [each.version for each in world.definition().older_schemas] == [1]


def test_the_default_that_a_column_came_with_outlives_its_parts(world: World) -> None:
    """Rows that lack the column still stand for it: here of parts that nobody will bring along."""
    world.insert()
    added = world.alter(described(WIDER, "'first'"))
    world.catalog.mutations.kill(world.t, added.id, "no")
    world.catalog.tables.describe_columns(world.t, 2, described(WIDER, "'second'"))
    world.catalog.tables.describe_columns(world.t, 3, described(WIDER, "'third'"))
    assert [each.version for each in world.definition().older_schemas] == [1, 2]
