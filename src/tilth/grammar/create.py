"""CREATE TABLE and MATERIALIZED VIEW. Pure.

Covers: ClickHouse's, ByConity's and ByteHouse's spellings of what Tilth has. Does not cover: whether the names exist.
Always holds: what Tilth does not have is refused by name; what has no meaning here is read and dropped with a notice;
the types behind a view's TO are dropped without.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tilth.grammar.keys import parse_key, parse_partition_by
from tilth.grammar.literals import parse_settings, read_settings_clause
from tilth.grammar.phrases import at_settings, parse_column, parse_table_name, read_if_not_exists, skip_on_cluster
from tilth.grammar.statements import ColumnSpec, CreateTable, CreateView, SettingTexts
from tilth.grammar.text.cursor import Cursor, listed, nearest
from tilth.grammar.text.tokens import Token
from tilth.grammar.types import parse_type
from tilth.model.table import ColumnKind, Engine, Transform

_ENGINES: dict[str, Engine] = {
    "MergeTree": Engine.MERGE_TREE,
    "CnchMergeTree": Engine.MERGE_TREE,
    "HaMergeTree": Engine.MERGE_TREE,
    "HaUniqueMergeTree": Engine.MERGE_TREE,
    "ReplicatedMergeTree": Engine.MERGE_TREE,
    "ReplacingMergeTree": Engine.MERGE_TREE,
    "ReplicatedReplacingMergeTree": Engine.MERGE_TREE,
    "Kafka": Engine.KAFKA,
    "CnchKafka": Engine.KAFKA,
    "HaKafka": Engine.KAFKA,
}
_ENGINES_INSTEAD = {
    "collapsingmergetree": "use MergeTree with UNIQUE KEY",
    "versionedcollapsingmergetree": "use MergeTree with UNIQUE KEY",
    "summingmergetree": "use MergeTree and aggregate when reading",
    "aggregatingmergetree": "use MergeTree and aggregate when reading",
    "distributed": "one table is enough, no engine stands before it: every worker reads it",
    **dict.fromkeys(("log", "tinylog", "stripelog", "memory", "null", "set", "join"), "use MergeTree"),
    "buffer": "use MergeTree SETTINGS memory_buffer = 1",
    "merge": "read the tables with UNION ALL",
    "graphitemergetree": "use MergeTree and aggregate when reading",
    "coalescingmergetree": "use MergeTree with UNIQUE KEY SETTINGS enable_unique_partial_update = 1",
    **dict.fromkeys(
        ("mysql", "postgresql", "mongodb", "sqlite", "odbc", "jdbc", "redis", "remote", "materializedpostgresql"),
        "use MergeTree, and load the rows: INSERT INTO t FORMAT CSV, or Kafka with its connectors",
    ),
    **dict.fromkeys(
        (
            "s3",
            "s3queue",
            "hdfs",
            "cnchhdfs",
            "cnchs3",
            "azureblobstorage",
            "file",
            "url",
            "hive",
            "cnchhive",
            "iceberg",
        ),
        "use MergeTree, and load the rows with `tilth sql`, over HTTP or from Kafka",
    ),
    **dict.fromkeys(("rabbitmq", "nats", "filelog"), "use MergeTree, and load the rows by INSERT or from Kafka"),
    **dict.fromkeys(("embeddedrocksdb", "keepermap"), "use MergeTree with UNIQUE KEY"),
    **dict.fromkeys(("dictionary", "view", "liveview", "materializedview"), "use MergeTree, and join the table"),
    **dict.fromkeys(("generaterandom", "executable", "executablepool"), "use MergeTree, and INSERT .. SELECT the rows"),
    **dict.fromkeys(
        ("innodb", "myisam", "kudu", "parquet", "delta"), "use MergeTree, with UNIQUE KEY where rows have keys"
    ),
}
#: Positional arguments of `Kafka('..', ..)`.
_KAFKA_ARGUMENTS = ("kafka_broker_list", "kafka_topic_list", "kafka_group_name", "kafka_format")

_CLAUSES_REFUSED = {
    "PARTITIONED": ("PARTITIONED BY", "write PARTITION BY"),
    "USING": ("USING", "write ENGINE = MergeTree"),
    "TBLPROPERTIES": ("TBLPROPERTIES", "write SETTINGS a = 1"),
    "LOCATION": ("LOCATION", "files live in the node's store; leave it out"),
}
_CLAUSES = (
    "ENGINE",
    "PARTITION BY",
    "ORDER BY",
    "PRIMARY KEY",
    "UNIQUE KEY",
    "TTL",
    "SETTINGS",
    "COMMENT",
    "CLUSTER BY",
    "SAMPLE BY",
)
_TTL_HINT = "a TTL deletes rows by the age of one column: TTL at + INTERVAL 30 DAY"
_TTL_REFUSED = ("TO", "GROUP", "RECOMPRESS", "WHERE", "SET")


# Tables


@dataclass(slots=True)
class _Clauses:
    """Clauses of a table that have been read; each clause with the token that began it."""

    engine: Engine | None = None
    engine_name: str = ""
    partition_by: tuple[Transform, ...] = ()
    order_by: tuple[str, ...] = ()
    primary_key: tuple[str, ...] = ()
    unique_key: tuple[str, ...] = ()
    version_column: str | None = None
    ttl: str | None = None
    settings: SettingTexts = ()
    comment: str = ""
    seen: dict[str, Token] = field(default_factory=dict)
    #: True until the brackets around the columns are closed.
    is_among_columns: bool = True


def parse_create_table(cursor: Cursor) -> CreateTable:
    """Read what follows CREATE TABLE."""
    if_not_exists = read_if_not_exists(cursor)
    name = parse_table_name(cursor)
    if cursor.at("UUID") and cursor.is_string(1):
        cursor.expect("UUID")
        cursor.string("a UUID")
        skip_on_cluster(cursor)
        cursor.notice("UUID has no effect: the catalog gives each table its own")
    clauses = _Clauses()
    if any(cursor.at(word) for word in ("AS", "CLONE", "LIKE", "EMPTY")):
        hint = "SHOW CREATE TABLE the other one, write its columns, then INSERT .. SELECT"
        raise cursor.refused(f"CREATE TABLE .. {cursor.peek().text.upper()} is not supported", hint=hint)
    if any(cursor.at(word) for word in ("ENGINE", "COMMENT", "USING")) or cursor.at("ORDER", "BY"):
        hint = "write the columns in brackets, then INSERT .. SELECT"
        raise cursor.refused(
            "CREATE TABLE without columns, as in CREATE TABLE .. AS SELECT, is not supported", hint=hint
        )
    columns = _columns(cursor, clauses)
    clauses.is_among_columns = False
    while not cursor.at_end:
        _clause(cursor, clauses)
    _check_together(cursor, clauses)
    assert clauses.engine is not None
    return CreateTable(
        name=name,
        columns=columns,
        engine=clauses.engine,
        if_not_exists=if_not_exists,
        partition_by=clauses.partition_by,
        order_by=clauses.order_by,
        primary_key=clauses.primary_key,
        unique_key=clauses.unique_key,
        version_column=clauses.version_column,
        ttl=clauses.ttl,
        settings=clauses.settings,
        comment=clauses.comment,
    )


def _columns(cursor: Cursor, clauses: _Clauses) -> tuple[ColumnSpec, ...]:
    if not cursor.accept_symbol("("):
        raise cursor.expected("the columns in brackets")
    columns: list[ColumnSpec] = []
    seen: set[str] = set()
    while True:
        token = cursor.peek()
        if cursor.at("PRIMARY", "KEY") or cursor.at("UNIQUE", "KEY"):
            _clause(cursor, clauses)
        else:
            _refuse_elements(cursor)
            if cursor.at("INDEX") and cursor.is_name(1) and _has_type(cursor):
                _skip_index(cursor)
                if cursor.accept_symbol(")"):
                    break
                if not cursor.accept_symbol(","):
                    raise cursor.expected("',' or ')' after the index")
                continue
            column = parse_column(cursor)
            if column.name.lower() in seen:
                raise cursor.error(f"column {column.name} is there twice", at=token)
            seen.add(column.name.lower())
            columns.append(column)
        if cursor.accept_symbol(")"):
            break
        if not cursor.accept_symbol(","):
            raise cursor.expected("',' or ')' after the column", words=("NOT NULL", *ColumnKind, "CODEC", "COMMENT"))
    if not columns:
        raise cursor.error("a table needs at least one column")
    return tuple(columns)


def _refuse_elements(cursor: Cursor) -> None:
    """Refuse what ClickHouse allows among the columns and Tilth does not. A column may have such a name, too."""
    if cursor.at("PROJECTION") and cursor.is_symbol("(", 2):
        raise cursor.refused("PROJECTION is not supported", hint="write to a second table by a second view")
    if cursor.at("CONSTRAINT") and (cursor.is_word("CHECK", 2) or cursor.is_word("ASSUME", 2)):
        raise cursor.refused("CONSTRAINT is not supported", hint="filter in the materialized view's SELECT")


def _skip_index(cursor: Cursor) -> None:
    cursor.expect("INDEX")
    name = cursor.name("the name of an index")
    cursor.expression("an index", stop_at_comma=True)
    cursor.notice(f"INDEX {name} has no effect: parts carry the range of each sort key and partition column")


def _has_type(cursor: Cursor) -> bool:
    """True if the word TYPE comes before this element ends."""
    depth = 0
    ahead = 1
    while depth >= 0 and cursor.peek(ahead).text not in ("", ";"):
        if depth == 0 and (cursor.is_symbol(",", ahead) or cursor.is_word("TYPE", ahead)):
            return cursor.is_word("TYPE", ahead)
        depth += cursor.is_symbol("(", ahead) - cursor.is_symbol(")", ahead)
        ahead += 1
    return False


def _clause(cursor: Cursor, clauses: _Clauses) -> None:
    token = cursor.peek()
    words = next((clause for clause in _CLAUSES if cursor.at(*clause.split())), None)
    if words is None:
        raise _no_clause(cursor)
    if words in clauses.seen:
        raise cursor.error(f"{words} is given twice", at=token)
    clauses.seen[words] = token
    cursor.expect(*words.split())
    _READ[words](cursor, clauses)


def _no_clause(cursor: Cursor) -> Exception:
    if cursor.at("AS"):
        return cursor.refused(
            "CREATE TABLE .. AS SELECT is not supported", hint="create the table, then INSERT .. SELECT"
        )
    for word, (clause, hint) in _CLAUSES_REFUSED.items():
        if cursor.at(word):
            return cursor.refused(f"{clause} is not supported", hint=hint)
    return cursor.expected(listed(_CLAUSES, "or"), words=[clause.split()[0] for clause in _CLAUSES])


def _read_engine(cursor: Cursor, clauses: _Clauses) -> None:
    cursor.accept_symbol("=")
    token = cursor.peek()
    written = cursor.name("the name of an engine")
    known = {name.lower(): name for name in _ENGINES}
    if written.lower() not in known:
        raise cursor.refused(f"engine {written} is not supported", at=token, hint=_engine_hint(written))
    clauses.engine_name = known[written.lower()]
    clauses.engine = _ENGINES[clauses.engine_name]
    arguments, clauses.version_column = _engine_arguments(cursor)
    if clauses.version_column is not None and clauses.engine is Engine.KAFKA:
        raise cursor.refused(f"{clauses.engine_name} takes strings", at=token, hint="put them in quotes")
    is_replicated = clauses.engine_name.startswith(("Ha", "Replicated"))
    if is_replicated:
        cursor.notice(
            f"{clauses.engine_name} makes no replicas: a table has those of its storage, which CREATE STORAGE .. "
            "REPLICAS makes and storage_policy or the node's storage.default names"
        )
    if not arguments:
        return
    is_path = is_replicated and arguments[0].startswith("/")
    if is_path and len(arguments) == 2:
        cursor.notice(f"the path of {clauses.engine_name} has no effect: every server sees the one catalog")
        return
    if clauses.engine is Engine.MERGE_TREE:
        hint = (
            "write the clauses PARTITION BY, ORDER BY, SETTINGS; with UNIQUE KEY an engine takes a version column; Ha "
            "engines may have ('/path', '{replica}') before it"
        )
        raise cursor.refused(f"these arguments of {clauses.engine_name} are not supported", at=token, hint=hint)
    if len(arguments) > len(_KAFKA_ARGUMENTS):
        raise cursor.refused(
            "Kafka takes brokers, topics, group and format", at=token, hint="write the rest as SETTINGS"
        )
    given = tuple(zip(_KAFKA_ARGUMENTS, arguments, strict=False))
    _add_settings(cursor, clauses, given, token)


def _engine_hint(written: str) -> str:
    listing = f"known: {listed(tuple(_ENGINES), 'and')}"
    if written.lower() in _ENGINES_INSTEAD:
        return f"{_ENGINES_INSTEAD[written.lower()]}; {listing}"
    near = nearest(written, tuple(_ENGINES))
    return f"did you mean {near}? {listing}" if near else listing


def _engine_arguments(cursor: Cursor) -> tuple[tuple[str, ...], str | None]:
    """Return the strings, and the column that may stand last."""
    if not cursor.accept_symbol("("):
        return (), None
    arguments: list[str] = []
    while not cursor.accept_symbol(")"):
        if arguments:
            cursor.expect_symbol(",")
        if cursor.is_name() and cursor.is_symbol(")", 1):
            column = cursor.name("a column")
            cursor.expect_symbol(")")
            return tuple(arguments), column
        if cursor.at_end:
            raise cursor.expected("a string, a column or ')'")
        if not cursor.is_string():
            hint = (
                "engines take strings, and last the version column of a table with UNIQUE KEY; write columns and keys "
                "as clauses: PARTITION BY toYYYYMM(d) ORDER BY (a, b)"
            )
            raise cursor.refused("such an argument of an engine is not supported", hint=hint)
        arguments.append(cursor.string("a string"))
    return tuple(arguments), None


def _read_settings(cursor: Cursor, clauses: _Clauses) -> None:
    token = cursor.peek()
    _add_settings(cursor, clauses, parse_settings(cursor), token)


def _add_settings(cursor: Cursor, clauses: _Clauses, given: SettingTexts, token: Token) -> None:
    known = dict(clauses.settings)
    for name, _ in given:
        if name in known:
            raise cursor.error(f"setting {name} is given twice", at=token)
    clauses.settings += given


def _read_partition_by(cursor: Cursor, clauses: _Clauses) -> None:
    clauses.partition_by = parse_partition_by(cursor)


def _read_order_by(cursor: Cursor, clauses: _Clauses) -> None:
    clauses.order_by = parse_key(cursor, "ORDER BY")


def _read_primary_key(cursor: Cursor, clauses: _Clauses) -> None:
    clauses.primary_key = parse_key(cursor, "PRIMARY KEY", is_element=clauses.is_among_columns)


def _read_unique_key(cursor: Cursor, clauses: _Clauses) -> None:
    clauses.unique_key = parse_key(cursor, "UNIQUE KEY", is_element=clauses.is_among_columns)


def _read_cluster_by(cursor: Cursor, clauses: _Clauses) -> None:
    """Accept ByConity's buckets, which would be further partitions here."""
    parse_key(cursor, "CLUSTER BY")
    if cursor.accept("INTO"):
        cursor.integer("a number of buckets")
        cursor.expect("BUCKETS")
        if cursor.accept("SPLIT_NUMBER"):
            cursor.integer("a number")
        cursor.accept("WITH_RANGE")
    cursor.notice("CLUSTER BY has no effect: PARTITION BY bucket(n, column) spreads rows over partitions")


def _read_sample_by(cursor: Cursor, clauses: _Clauses) -> None:
    cursor.expression("an expression", _at_clause)
    cursor.notice("SAMPLE BY has no effect: SELECT .. FROM t TABLESAMPLE (10 PERCENT) works without")


def _read_ttl(cursor: Cursor, clauses: _Clauses) -> None:
    clauses.ttl = parse_ttl(cursor, _at_clause)


def _read_comment(cursor: Cursor, clauses: _Clauses) -> None:
    clauses.comment = cursor.string("a comment")


_READ: dict[str, Callable[[Cursor, _Clauses], None]] = {
    "ENGINE": _read_engine,
    "PARTITION BY": _read_partition_by,
    "ORDER BY": _read_order_by,
    "PRIMARY KEY": _read_primary_key,
    "UNIQUE KEY": _read_unique_key,
    "TTL": _read_ttl,
    "SETTINGS": _read_settings,
    "COMMENT": _read_comment,
    "CLUSTER BY": _read_cluster_by,
    "SAMPLE BY": _read_sample_by,
}


def parse_ttl(cursor: Cursor, stop: Callable[[Cursor], bool] | None = None) -> str:
    """Return the expression of a TTL whose rows are deleted; the word DELETE may follow it."""

    def ends(at: Cursor) -> bool:
        return at.at("DELETE") or any(at.at(word) for word in _TTL_REFUSED) or (stop is not None and stop(at))

    ttl = cursor.expression("an expression", ends, stop_at_comma=True)
    cursor.accept("DELETE")
    if cursor.is_symbol(","):
        raise cursor.refused("several rules in one TTL are not supported", hint=_TTL_HINT)
    if any(cursor.at(word) for word in _TTL_REFUSED):
        raise cursor.refused(f"{cursor.found()} in a TTL is not supported", hint=_TTL_HINT)
    return ttl


def _at_clause(cursor: Cursor) -> bool:
    """True if the next clause of the table begins here, rather than an expression going on."""
    if cursor.at("COMMENT"):
        return cursor.is_string(1)
    if at_settings(cursor):
        return True
    return cursor.at("ENGINE") or any(cursor.at(*clause.split()) for clause in _CLAUSES if " " in clause)


def _check_together(cursor: Cursor, clauses: _Clauses) -> None:
    if clauses.engine is None:
        raise cursor.expected("ENGINE", words=("ENGINE",), hint="write ENGINE = MergeTree or ENGINE = Kafka")
    if clauses.engine is Engine.KAFKA:
        for clause in ("PARTITION BY", "ORDER BY", "PRIMARY KEY", "UNIQUE KEY", "TTL"):
            if clause in clauses.seen:
                hint = "a Kafka table stores nothing; write it at the table behind the view"
                raise cursor.refused(f"{clause} of a Kafka table is not supported", at=clauses.seen[clause], hint=hint)
        return
    if clauses.engine_name == "HaUniqueMergeTree" and not clauses.unique_key:
        raise cursor.error("HaUniqueMergeTree needs UNIQUE KEY", at=clauses.seen["ENGINE"], hint="add UNIQUE KEY (..)")
    if "Replacing" in clauses.engine_name and not clauses.unique_key:
        _replace_rows(cursor, clauses)
    if clauses.version_column is not None and not clauses.unique_key:
        hint = "add UNIQUE KEY (..): of the rows with one key the one with the greatest version stays"
        raise cursor.error("a version column needs UNIQUE KEY", at=clauses.seen["ENGINE"], hint=hint)
    if "ORDER BY" not in clauses.seen:
        clauses.order_by = clauses.primary_key or clauses.unique_key
    lowered = [column.lower() for column in clauses.order_by]
    if [column.lower() for column in clauses.primary_key] != lowered[: len(clauses.primary_key)]:
        hint = "PRIMARY KEY names the first columns of ORDER BY"
        raise cursor.error("PRIMARY KEY is not the beginning of ORDER BY", at=clauses.seen["PRIMARY KEY"], hint=hint)


def _replace_rows(cursor: Cursor, clauses: _Clauses) -> None:
    """Make the sort key of a ReplacingMergeTree its unique key: of the rows with one key one is left, and at once."""
    if not clauses.order_by:
        hint = "write ENGINE = MergeTree UNIQUE KEY (..)"
        at = clauses.seen["ENGINE"]
        raise cursor.refused(f"{clauses.engine_name} without ORDER BY is not supported", at=at, hint=hint)
    clauses.unique_key = clauses.order_by
    key = ", ".join(clauses.unique_key)
    cursor.notice(f"{clauses.engine_name} is read as MergeTree with UNIQUE KEY ({key}): a newer row replaces at once")


# Views


def parse_create_view(cursor: Cursor) -> CreateView:
    """Read what follows CREATE MATERIALIZED."""
    cursor.expect("VIEW")
    if_not_exists = read_if_not_exists(cursor)
    name = parse_table_name(cursor)
    if cursor.at("REFRESH"):
        raise cursor.refused("REFRESH is not supported", hint="a view runs for each round of its Kafka table")
    columns = _view_columns(cursor)
    if not cursor.accept("TO"):
        hint = "create a table first: CREATE MATERIALIZED VIEW v TO t AS SELECT .."
        if any(cursor.at(word) for word in ("ENGINE", "ORDER", "PARTITION", "POPULATE")):
            raise cursor.refused("a materialized view without TO is not supported", hint=hint)
        raise cursor.expected("TO and the table that the view writes to", hint=hint)
    target = parse_table_name(cursor)
    columns = columns or _view_columns(cursor)
    comment = cursor.string("a comment") if cursor.accept("COMMENT") else ""
    if cursor.at("POPULATE") or cursor.at("ENGINE"):
        hint = "the table behind TO has the engine, and holds what comes from now on"
        raise cursor.refused(f"{cursor.peek().text.upper()} of a materialized view is not supported", hint=hint)
    cursor.expect("AS")
    if not (cursor.at("SELECT") or cursor.at("WITH")):
        raise cursor.expected("SELECT or WITH", words=("SELECT", "WITH"))
    select = cursor.expression("a SELECT", at_settings)
    return CreateView(
        name=name,
        target=target,
        select=select,
        columns=columns,
        if_not_exists=if_not_exists,
        comment=comment,
        settings=read_settings_clause(cursor),
    )


def _view_columns(cursor: Cursor) -> tuple[str, ...]:
    """`(a, b)` or `(a T, b U)`: the names count, the types are the target's."""
    if not cursor.accept_symbol("("):
        return ()
    names: list[str] = []
    while True:
        token = cursor.peek()
        name = cursor.name("a column")
        if name.lower() in (known.lower() for known in names):
            raise cursor.error(f"column {name} is there twice", at=token)
        names.append(name)
        if not (cursor.is_symbol(",") or cursor.is_symbol(")")):
            parse_type(cursor)
        if cursor.accept_symbol(")"):
            return tuple(names)
        if not cursor.accept_symbol(","):
            raise cursor.expected("',' or ')'")
