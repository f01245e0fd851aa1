"""Every statement survives its own text: `parse(render(s)) == s`, and scripts fall apart where they were joined.

Names are drawn from plain ones, from all of the grammar's own words, and from texts with every kind of quote.
"""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.long import examples
from tests.statement_texts import render
from tilth.grammar import statements as g
from tilth.grammar.errors import SqlSyntaxError
from tilth.grammar.text.script import split
from tilth.introspection.statements.explain import ExplainGc, ExplainMerge
from tilth.introspection.statements.show import (
    Describe,
    ExistsTable,
    ShowCreate,
    ShowDatabases,
    ShowPartitions,
    ShowSettings,
    ShowTables,
)
from tilth.model import types as ty
from tilth.model.literal import ArrayValue, MapValue, TupleValue, Value
from tilth.model.service import ServiceKind
from tilth.model.table import ColumnKind, Engine, Transform, TransformKind
from tilth.query.snapshots.protocol import FileFormat
from tilth.statements.definitions.databases import CreateDatabase, DropDatabase, UseDatabase
from tilth.statements.definitions.dropped import DropTable, DropView, TruncateTable, UndropTable
from tilth.statements.definitions.warehouses import (
    AlterServer,
    AlterWarehouse,
    AlterWorker,
    CreateWarehouse,
    DropWarehouse,
    ShowCreateWarehouse,
    ShowWarehouses,
)
from tilth.statements.files.copy_into import CopyInto
from tilth.statements.files.export import Export
from tilth.statements.files.pipes import (
    CreatePipe,
    DropPipe,
    ExplainPipe,
    RefreshPipe,
    ShowCreatePipe,
    ShowPipes,
    pipe_text,
)
from tilth.statements.operate.backup import BackupCatalog
from tilth.statements.operate.drill import DrillFailover
from tilth.statements.operate.kill import KillMutation
from tilth.statements.operate.replay import ReplayDeadLetters
from tilth.statements.operate.reset_offset import (
    OffsetKeyword,
    PartitionOffset,
    ResetConsumeOffset,
    ResetToMark,
    ResetToOffsets,
    ResetToTimestamp,
)
from tilth.statements.operate.session import SetSettings
from tilth.statements.operate.system import OptimizeTable, RunService, RunVerb, SwitchService, SwitchVerb
from tilth.statements.registry import parse

_WORDS_TEXT = """ADD AFTER ALL ALTER AS ASC BECAUSE BEGIN BY CLONE CLUSTER CODEC COLUMN COMMENT CONSTRAINT CONSUME
CREATE DATE DEFAULT DELETE DESC DROP DISTRIBUTED END ENGINE EXISTS FALSE FINAL FIRST FLUSH FOR FORMAT FROM FUNCTION GC
ID IF IN INDEX INF SYNC LOGS SAMPLE INSERT INTERVAL INTO KEY LIKE MAP MATERIALIZED MERGE MODIFY NAN NOT NULL OFFSETS
ON OR ORDER PARTITION POLICY POPULATE PRIMARY PROJECTION REFRESH RENAME RESET SELECT SET SETTINGS STRUCT SYSTEM TABLE
TIMESTAMP TO TRUE TTL TUPLE TYPE UNIQUE UPDATE VALUES VIEW WHERE WITH toDate bucket truncate array"""
WORDS = _WORDS_TEXT.split()

plain = st.from_regex(r"[a-z_][a-z0-9_]{0,6}", fullmatch=True)
wild = st.text(st.sampled_from("aZ0 _.`\"'\\;,()-/*\n\té"), min_size=1, max_size=8)
names = plain | st.sampled_from(WORDS) | wild
texts = st.text(st.characters(codec="utf-8"), max_size=12) | wild
table_names = st.builds(g.Name, st.none() | names, names)

numbers = (
    st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False)
    | st.decimals(allow_nan=False, allow_infinity=False, places=3)
)
moments = (
    st.dates()
    | st.datetimes()
    | st.datetimes(timezones=st.just(datetime.UTC))
    | st.datetimes(timezones=st.just(datetime.timezone(datetime.timedelta(hours=-5, minutes=-30))))
)
scalars = st.none() | st.booleans() | numbers | texts | moments
values = st.recursive(
    scalars,
    lambda inner: (
        st.builds(ArrayValue, st.lists(inner, max_size=3).map(tuple))
        | st.builds(TupleValue, st.lists(inner, max_size=3).map(tuple))
        | st.builds(MapValue, st.lists(st.tuples(inner, inner), max_size=3).map(tuple))
    ),
    max_leaves=8,
)
partitions = st.builds(g.PartitionId, texts) | st.builds(g.PartitionValues, st.lists(scalars, max_size=3).map(tuple))

setting_texts = st.lists(
    st.tuples(names, texts | st.sampled_from(["1", "-2", "1.5", "true", "false", "1e5"])),
    min_size=1,
    max_size=3,
    unique_by=lambda pair: pair[0],
).map(tuple)
maybe_settings = st.just(()) | setting_texts

operands = st.sampled_from(
    ["a", "1", "1.5", "'it''s; (x'", "`b,`", '"c)"', "f(a, b)", "[1, 2]", "(a + 1)", "/* , */ d"]
)
expressions = (
    st.lists(operands, min_size=1, max_size=3)
    .flatmap(
        lambda parts: st.sampled_from([" + ", " AND ", " IS NOT NULL OR ", " -- , (\n * "]).map(
            lambda op: op.join(parts)
        )
    )
    .map(lambda text: text.removeprefix("/* , */ "))
)
queries = expressions.map(lambda expression: f"SELECT {expression} FROM t WHERE x = ';'")

simple_types = st.sampled_from([ty.Simple(kind) for kind in ty.Kind]) | st.builds(
    lambda p, s: ty.Decimal(p, min(p, s)), st.integers(1, 38), st.integers(0, 38)
)
data_types = st.recursive(
    simple_types,
    lambda inner: (
        st.builds(ty.Array, inner)
        | st.builds(ty.Map, inner.filter(lambda key: not isinstance(key, ty.Map)), inner)
        | st.builds(
            ty.Struct,
            st.lists(st.builds(ty.Field, names, inner), min_size=1, max_size=3, unique_by=lambda f: f.name.lower()).map(
                tuple
            ),
        )
    ),
    max_leaves=6,
)
#: Types whose names promise more than what stores them keeps.
promising_types = st.sampled_from(
    [
        "UInt8",
        "Array(UInt64)",
        "Enum8('it\\'s' = 1, 'b' = -2)",
        "FixedString( 3 )",
        "VARCHAR(5)",
        "UUID",
        "DateTime",
        "DateTime64(3, 'Asia/Shanghai')",
        "Map(UUID, Tuple(a DateTime('UTC'), `b c` UInt16))",
    ]
)


def written_type(text: str) -> g.ColumnSpec:
    """A column of the type that is written so."""
    statement = parse(f"CREATE TABLE t (c {text}) ENGINE = MergeTree")
    assert isinstance(statement, g.CreateTable)
    return statement.columns[0]


def with_kind(column: g.ColumnSpec, kind: ColumnKind) -> g.ColumnSpec:
    """The column; the kind is the word in front of its expression."""
    return column if column.default is None else replace(column, kind=kind)


plain_columns = st.builds(
    replace,
    (data_types.map(ty.spark_name) | promising_types).map(written_type),
    name=names,
    nullable=st.booleans(),
    default=st.none() | expressions,
    codec=st.none() | st.sampled_from(["ZSTD(1)", "Delta, LZ4"]),
    comment=texts,
)
kinds = st.sampled_from(ColumnKind)
columns = st.builds(with_kind, plain_columns, kinds)
distinct_columns = st.lists(columns, min_size=1, max_size=4, unique_by=lambda column: column.name.lower()).map(tuple)
name_lists = st.lists(names, max_size=3, unique_by=str.lower).map(tuple)
some_names = name_lists.filter(bool)

_with_argument = (TransformKind.TRUNCATE, TransformKind.BUCKET, TransformKind.MODULO)
transforms = st.builds(
    Transform,
    kind=st.sampled_from([kind for kind in TransformKind if kind not in _with_argument]),
    column=names,
) | st.builds(
    Transform, kind=st.sampled_from(_with_argument), column=names, argument=st.integers(min_value=1, max_value=2**40)
)

merge_tree_tables = st.builds(
    g.CreateTable,
    name=table_names,
    columns=distinct_columns,
    engine=st.just(Engine.MERGE_TREE),
    if_not_exists=st.booleans(),
    partition_by=st.lists(transforms, max_size=3).map(tuple),
    order_by=name_lists,
    unique_key=name_lists,
    ttl=st.none() | expressions,
    settings=maybe_settings,
    comment=texts,
).flatmap(
    lambda table: st.integers(0, len(table.order_by)).map(lambda n: replace(table, primary_key=table.order_by[:n]))
)
kafka_tables = st.builds(
    g.CreateTable,
    name=table_names,
    columns=distinct_columns,
    engine=st.just(Engine.KAFKA),
    settings=maybe_settings,
    comment=texts,
)
views = st.builds(
    g.CreateView,
    name=table_names,
    target=table_names,
    select=queries,
    columns=name_lists,
    if_not_exists=st.booleans(),
    comment=texts,
)

assignments = st.lists(
    st.tuples(names, expressions), min_size=1, max_size=3, unique_by=lambda pair: pair[0].lower()
).map(tuple)
column_operations = (
    st.builds(g.AddColumn, column=columns, if_not_exists=st.booleans(), after=st.none() | names)
    | st.builds(g.AddColumn, column=columns, first=st.booleans())
    | st.builds(g.DropColumn, column=names, if_exists=st.booleans())
    | st.builds(g.ModifyColumn, column=columns, if_exists=st.booleans())
    | st.builds(
        g.DescribeColumn,
        column=names,
        default=expressions,
        kind=kinds,
        comment=st.none() | texts,
        if_exists=st.booleans(),
    )
    | st.builds(g.DescribeColumn, column=names, comment=texts, if_exists=st.booleans())
    | st.builds(
        g.DescribeColumn,
        column=names,
        kind=st.sampled_from((ColumnKind.DEFAULT, ColumnKind.MATERIALIZED)),
        no_default=st.just(True),
        if_exists=st.booleans(),
    )
    | st.builds(g.RenameColumn, old=names, new=names, if_exists=st.booleans())
)
other_operations = (
    st.builds(g.ModifySetting, settings=setting_texts)
    | st.builds(g.ResetSetting, names=some_names)
    | st.builds(g.ModifyTtl, ttl=expressions)
    | st.just(g.RemoveTtl())
    | st.builds(g.MutateUpdate, assignments=assignments, predicate=expressions)
    | st.builds(g.MutateDelete, predicate=expressions)
    | st.builds(g.DropPartition, partition=partitions)
    | st.builds(g.UndropPartition, partition=partitions)
)
alters = st.builds(
    g.AlterTable,
    name=table_names,
    operations=st.lists(column_operations, min_size=1, max_size=3).map(tuple) | st.tuples(other_operations),
    settings=maybe_settings,
)

formats = st.sampled_from(["JSONEachRow", "CSV", "TSV"])
inserts = (
    st.integers(1, 3).flatmap(
        lambda width: st.builds(
            g.InsertValues,
            name=table_names,
            rows=st.lists(st.tuples(*[values] * width), min_size=1, max_size=3).map(tuple),
            columns=st.just(()) | st.lists(names, min_size=width, max_size=width, unique_by=str.lower).map(tuple),
            settings=maybe_settings,
        )
    )
    | st.builds(g.InsertQuery, name=table_names, query=queries, columns=name_lists, settings=maybe_settings)
    | st.builds(
        g.InsertData,
        name=table_names,
        format=formats,
        data=texts.filter(lambda text: text.strip() != ";"),
        columns=name_lists,
        settings=maybe_settings,
    )
)

option_names = st.sampled_from(["ON_ERROR", "FORCE", "HEADER"])
copies = st.builds(
    CopyInto,
    name=table_names,
    columns=name_lists,
    address=texts,
    format=st.sampled_from(FileFormat),
    pattern=texts,
    options=st.dictionaries(option_names, texts, max_size=2).map(lambda found: tuple(found.items())),
    is_check=st.booleans(),
    settings=maybe_settings,
)

export_formats = st.sampled_from(FileFormat)
exports = st.builds(
    Export,
    query=st.just(""),
    name=table_names,
    address=texts,
    format=export_formats,
    options=st.dictionaries(option_names, texts, max_size=2).map(lambda found: tuple(found.items())),
    settings=maybe_settings,
) | st.builds(Export, query=queries, address=texts, format=export_formats, settings=maybe_settings)

created_pipes = st.builds(
    CreatePipe,
    pipe=names,
    if_not_exists=st.booleans(),
    every_ms=st.integers(1_000, 86_400_000),
    copy=copies.map(lambda copy: replace(copy, is_check=False)),
)
pipes = (
    created_pipes
    | st.builds(DropPipe, pipe=names, if_exists=st.booleans(), name=table_names)
    | st.builds(RefreshPipe, pipe=names, name=table_names)
    | st.builds(ShowCreatePipe, pipe=names, name=table_names)
    | st.builds(ExplainPipe, pipe=names, name=table_names)
    | st.builds(ShowPipes, name=table_names)
    | st.builds(ShowPipes, database=st.none() | names)
)

services = st.sampled_from([service for service in ServiceKind if service is not ServiceKind.CONSUME])
durations = st.none() | st.integers(1, 10**10)
switches = st.builds(
    SwitchService,
    verb=st.sampled_from([SwitchVerb.START, SwitchVerb.STOP]),
    service=services,
    name=st.none() | table_names,
    duration_ms=durations,
    because=texts,
) | st.builds(
    SwitchService,
    verb=st.sampled_from(SwitchVerb),
    service=st.just(ServiceKind.CONSUME),
    name=table_names,
    because=texts,
)
naturals = st.integers(0, 2**63)
targets = (
    st.builds(ResetToMark, st.sampled_from(OffsetKeyword))
    | st.builds(ResetToTimestamp, naturals)
    | st.builds(
        ResetToOffsets,
        st.lists(
            st.builds(PartitionOffset, texts, naturals, naturals),
            min_size=1,
            max_size=3,
            unique_by=lambda o: (o.topic, o.partition),
        ).map(tuple),
    )
)
others = (
    st.builds(CreateDatabase, database=names, if_not_exists=st.booleans(), comment=texts)
    | st.builds(DropDatabase, database=names, if_exists=st.booleans())
    | st.builds(UseDatabase, database=names)
    | st.builds(ShowDatabases, like=st.none() | texts)
    | st.builds(ShowTables, database=st.none() | names, like=st.none() | texts)
    | st.builds(ShowSettings, like=st.none() | texts)
    | st.one_of([st.builds(cls, name=table_names) for cls in (ShowCreate, Describe, ExistsTable, UndropTable)])
    | st.one_of(
        [st.builds(cls, name=table_names, if_exists=st.booleans()) for cls in (DropTable, DropView, TruncateTable)]
    )
    | st.builds(g.RenameTable, old=table_names, new=table_names)
    | st.builds(g.DeleteRows, name=table_names, predicate=expressions, settings=maybe_settings)
    | st.builds(g.UpdateRows, name=table_names, assignments=assignments, predicate=expressions, settings=maybe_settings)
    | st.builds(OptimizeTable, name=table_names, partition=st.none() | partitions, final=st.booleans())
    | st.builds(KillMutation, mutation=texts)
    | st.builds(ShowPartitions, name=table_names)
    | st.builds(SetSettings, settings=maybe_settings.filter(bool))
    | st.builds(KillMutation, predicate=expressions)
    | st.builds(RunService, verb=st.sampled_from(RunVerb), name=table_names, partition=st.none() | partitions)
    | st.builds(
        RunService,
        verb=st.just(RunVerb.GC),
        name=table_names,
        partition=st.none() | partitions,
        is_forced=st.booleans(),
    )
    | st.builds(ResetConsumeOffset, name=table_names, target=targets)
    | st.builds(ReplayDeadLetters, name=table_names, predicate=st.just("") | expressions)
    | st.builds(ExplainMerge, name=table_names, policy=st.none() | names)
    | st.builds(ExplainGc, name=table_names)
    | st.builds(BackupCatalog, path=texts)
    | st.builds(DrillFailover, name=table_names, seconds=st.none() | st.integers(1, 3600))
    | st.builds(CreateWarehouse, warehouse=names, if_not_exists=st.booleans(), settings=maybe_settings)
    | st.builds(AlterWarehouse, warehouse=names, settings=maybe_settings.filter(bool))
    | st.builds(AlterWarehouse, warehouse=names, reset=st.lists(names, min_size=1, max_size=3).map(tuple))
    | st.builds(DropWarehouse, warehouse=names, if_exists=st.booleans())
    | st.builds(ShowWarehouses, like=st.none() | texts)
    | st.builds(ShowWarehouses, warehouse=names)
    | st.builds(ShowCreateWarehouse, warehouse=names)
    | st.builds(AlterServer, server=names, drains=st.booleans(), because=texts)
    | st.builds(AlterWorker, worker=names, drains=st.booleans(), because=texts)
    | st.builds(g.Query, text=queries, format=st.none() | formats, settings=maybe_settings)
)
statements = merge_tree_tables | kafka_tables | views | alters | inserts | copies | pipes | exports | switches | others


@settings(max_examples=examples(600))
@given(statements)
def test_a_statement_survives_its_text(statement: g.Statement) -> None:
    assert parse(render(statement)) == statement


@settings(max_examples=examples(200))
@given(st.lists(values, min_size=1, max_size=3).map(tuple))
def test_literals_keep_their_python_types(row: tuple[Value, ...]) -> None:
    parsed = parse(render(g.InsertValues(name=g.Name(None, "t"), rows=(row,))))
    assert isinstance(parsed, g.InsertValues)
    for given_value, read_value in zip(row, parsed.rows[0], strict=True):
        # An integral decimal has no other text than an exact one: `1.0`.
        assert type(read_value) is type(given_value) or isinstance(given_value, Decimal)


@settings(max_examples=examples(150))
@given(
    st.lists(merge_tree_tables | views | alters | others, max_size=4), st.sampled_from([";", " ;\n", "; -- x;\n", ";;"])
)
def test_a_script_falls_apart_where_it_was_joined(script: list[g.Statement], joint: str) -> None:
    pieces = split(joint.join(render(statement) for statement in script))
    assert [parse(piece) for piece in pieces] == script


@settings(max_examples=examples(400))
@given(st.text(st.sampled_from("aAB01 _.`\"'\\;,()[]{}<>-/*=:\n\t"), max_size=30), st.sampled_from(WORDS))
def test_any_text_is_a_statement_or_a_syntax_error_with_a_place(text: str, word: str) -> None:
    for whole in (
        text,
        f"{word} {text}",
        f"CREATE TABLE {text}",
        f"SYSTEM {word} {text}",
        f"ALTER TABLE t {word} {text}",
    ):
        place = place_of_error(whole)
        if place is not None:
            line, column = place
            lines = whole.split("\n")
            assert 1 <= line <= len(lines)
            assert 1 <= column <= len(lines[line - 1]) + 1


def place_of_error(text: str) -> tuple[int, int] | None:
    try:
        parse(text)
    except SqlSyntaxError as error:
        return error.line, error.column
    return None


@settings(max_examples=examples(150))
@given(created_pipes)
def test_a_pipe_is_shown_as_a_statement_that_makes_it(pipe: CreatePipe) -> None:
    assert parse(pipe_text(pipe)) == pipe
