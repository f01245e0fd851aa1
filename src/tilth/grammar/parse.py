"""Text to a statement. Pure.

Covers: which statement it is, the short ones, queries. Does not cover: the long ones (create.py, alter.py, insert.py,
system.py), scripts (text/script.py). Always holds: the whole text is read or an error names where it stops making
sense; `parse(render(s)) == s`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilth.grammar.alter import parse_alter
from tilth.grammar.create import parse_create
from tilth.grammar.insert import parse_insert
from tilth.grammar.literals import parse_setting_value, parse_settings, skip_settings, take_settings
from tilth.grammar.phrases import (
    parse_assignments,
    parse_name,
    parse_table_name,
    parse_where,
    refuse_alias,
    refuse_list,
    skip_on_cluster,
    take_if_exists,
)
from tilth.grammar.statements import (
    BackupCatalog,
    DeleteRows,
    Describe,
    DrillFailover,
    DropDatabase,
    DropTable,
    DropView,
    ExistsTable,
    ExplainGc,
    ExplainMerge,
    Name,
    Query,
    RenameTable,
    SetSettings,
    SettingTexts,
    ShowCreate,
    ShowDatabases,
    ShowFunctions,
    ShowPartitions,
    ShowProcesses,
    ShowSettings,
    ShowTables,
    Statement,
    TruncateTable,
    UndropTable,
    UpdateRows,
    UseDatabase,
)
from tilth.grammar.storage_statements import DropStorage
from tilth.grammar.storages import (
    parse_alter_storage,
    parse_drop_storage,
    parse_show_create_storage,
    parse_show_storages,
)
from tilth.grammar.system import parse_kill, parse_optimize, parse_system
from tilth.grammar.text.cursor import Cursor, listed, nearest
from tilth.grammar.text.tokens import Token, TokenKind
from tilth.grammar.warehouse_statements import (
    DropWarehouse,
)
from tilth.grammar.warehouses import (
    parse_alter_server,
    parse_alter_warehouse,
    parse_alter_worker,
    parse_drop_warehouse,
    parse_show_create_warehouse,
    parse_show_warehouse,
    parse_show_warehouses,
)

#: A rehearsal longer than this was not meant to be one.
DRILL_SECONDS_MAX = 3600
#: First words of a query; a bracket is possible, too.
_QUERY_WORDS = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")
_REFUSED = {
    "EXCHANGE": "RENAME TABLE a TO b, one after the other",
    "ATTACH": "tables are in the catalog; CREATE or UNDROP them",
    "DETACH": "DROP TABLE, and UNDROP TABLE to have it back; SYSTEM STOP .. holds its services",
    "MERGE": "INSERT INTO a table with UNIQUE KEY",
    **dict.fromkeys(
        ("GRANT", "REVOKE"),
        "there are no accounts: who reaches the node's port can run every statement; guard the port",
    ),
    "CHECK": "SYSTEM VERIFY t compares what was consumed with what is stored; reads check each page that they read",
    "RESTORE": "a running node cannot exchange its catalog: tilth catalog restore FILE --data FOLDER makes one in a "
    "new folder, then tilth serve --data FOLDER; tables and partitions that were dropped can be UNDROPped",
    **dict.fromkeys(
        ("BEGIN", "COMMIT", "ROLLBACK", "START"),
        "each statement is a transaction of its own, and all of it is stored or none",
    ),
    "WATCH": "SELECT again, or read the target table of a materialized view",
    "CALL": "there are no procedures: write the statements",
    "REPLACE": "DROP it first, then CREATE",
    "ANALYZE": "statistics are taken while parts are written: leave it out",
    "MSCK": "partitions are in the catalog: leave it out",
    "CACHE": "leave it out: files that are read often stay in the memory of the system",
    "REFRESH": "every query sees what is committed: leave it out",
    "MOVE": "INSERT INTO the other table SELECT .. FROM this one",
    "UNSET": "SET name = its default; SHOW SETTINGS lists the defaults",
}
#: Words before a FORMAT or SETTINGS that is a name and not a clause: `FROM format x`.
_NAME_FOLLOWS_TEXT = "FROM JOIN AS SELECT WHERE BY ON USING AND OR NOT IN LIKE UPDATE INTO TABLE DISTINCT"
_NAME_FOLLOWS = frozenset(_NAME_FOLLOWS_TEXT.split())


def parse(text: str) -> Statement:
    """The statement in the text; a `;` may end it.

    Raises SqlSyntaxError, and of its kinds UnsupportedSqlError for what is understood but not there. Both name line and
    column.
    """
    return parse_noticed(text)[0]


def parse_noticed(text: str) -> tuple[Statement, tuple[str, ...]]:
    """Return the statement, and what was read of it and has no effect, in words for the user. Raises as `parse`."""
    cursor = Cursor(text)
    if cursor.at_end:
        raise cursor.error("there is no statement", hint="write one; docs/reference/sql.md lists them")
    statement = _statement(cursor)
    cursor.end()
    return statement, tuple(cursor.notices)


def _statement(cursor: Cursor) -> Statement:
    if cursor.at("EXIT") or cursor.at("QUIT"):
        raise cursor.refused("EXIT is a command of the shell", hint="in `tilth sql`, exit, quit and \\q leave")
    word = cursor.peek().text.upper() if cursor.peek().kind is TokenKind.WORD else ""
    if word in _QUERY_WORDS or cursor.is_symbol("("):
        return _query(cursor)
    cursor.refuse_elsewhere()
    if word in _REFUSED:
        raise cursor.refused(f"{word} is not supported", hint=_REFUSED[word])
    if word not in _STATEMENTS:
        words = (*_STATEMENTS, *_QUERY_WORDS)
        near = nearest(word, words)
        hint = "" if near else f"statements begin with {listed(words, 'or')}"
        raise cursor.expected("a statement", words=words, hint=hint)
    return _STATEMENTS[word](cursor)


# Queries


def _query(cursor: Cursor) -> Query:
    """Read Spark's text and the FORMAT and SETTINGS behind it, in any order."""
    tokens = _tokens(cursor)
    if not tokens:
        raise cursor.expected("a query")
    for at, token in enumerate(tokens[:-1]):
        if token.text.upper() == "INTO" and tokens[at + 1].text.upper() == "OUTFILE" and token.kind is TokenKind.WORD:
            hint = "the client writes files: tilth sql -c 'SELECT ..' --format csv > x.csv"
            raise cursor.refused("INTO OUTFILE is not supported", at=token, hint=hint)
    format_name: str | None = None
    settings: SettingTexts | None = None
    while True:
        if format_name is None and _ends_in_format(tokens):
            format_name = tokens[-1].text
            del tokens[-2:]
            continue
        found = _settings_at_end(cursor.text, tokens) if settings is None else None
        if found is None:
            break
        begin, settings = found
        del tokens[begin:]
    return Query(text=cursor.text[: tokens[-1].end], format=format_name, settings=settings or ())


def _tokens(cursor: Cursor) -> list[Token]:
    tokens: list[Token] = []
    while not cursor.at_end:
        tokens.append(cursor.advance())
    return tokens


def _ends_in_format(tokens: list[Token]) -> bool:
    return len(tokens) > 2 and tokens[-1].kind is TokenKind.WORD and _is_clause(tokens, len(tokens) - 2, "FORMAT")


def _settings_at_end(text: str, tokens: list[Token]) -> tuple[int, SettingTexts] | None:
    """Find the last SETTINGS, when it is a clause that fills the rest; return where it begins and its settings."""
    begin = next((i for i in range(len(tokens) - 4, 0, -1) if _is_clause(tokens, i, "SETTINGS")), None)
    if (
        begin is None
        or tokens[begin + 1].kind not in (TokenKind.WORD, TokenKind.QUOTED)
        or tokens[begin + 2].text != "="
    ):
        return None
    inner = Cursor(text[: tokens[-1].end], tokens[begin + 1].start)
    settings = parse_settings(inner)
    inner.end()
    return begin, settings


def _is_clause(tokens: list[Token], index: int, word: str) -> bool:
    """True if this word begins a clause behind a complete query."""
    token, before = tokens[index], tokens[index - 1]
    if token.kind is not TokenKind.WORD or token.text.upper() != word:
        return False
    if before.kind is TokenKind.SYMBOL:
        return before.text in (")", "]", "*")
    return before.text.upper() not in _NAME_FOLLOWS


# Short statements


def _drop(cursor: Cursor) -> DropDatabase | DropTable | DropView | DropWarehouse | DropStorage:
    cursor.expect("DROP")
    for word, hint in _DROP_REFUSED.items():
        if cursor.at(word):
            raise cursor.refused(f"DROP {word} is not supported", hint=hint)
    if cursor.take("WAREHOUSE"):
        return parse_drop_warehouse(cursor)
    if cursor.take("STORAGE"):
        return parse_drop_storage(cursor)
    cursor.take("MATERIALIZED")
    kind = cursor.choose("TABLE", "VIEW", "DATABASE", "SCHEMA")
    if_exists = take_if_exists(cursor)
    if kind in ("DATABASE", "SCHEMA"):
        database = cursor.name("the name of a database")
        skip_on_cluster(cursor)
        _skip_sync(cursor)
        skip_settings(cursor)
        if cursor.at("CASCADE"):
            hint = "DROP TABLE each table and view first; SHOW TABLES FROM the database lists them"
            raise cursor.refused("DROP DATABASE .. CASCADE is not supported", hint=hint)
        return DropDatabase(database=database, if_exists=if_exists)
    name = parse_table_name(cursor)
    _skip_sync(cursor)
    skip_settings(cursor)
    refuse_list(cursor, f"DROP {kind}")
    if kind == "VIEW":
        return DropView(name=name, if_exists=if_exists)
    return DropTable(name=name, if_exists=if_exists)


def _skip_sync(cursor: Cursor) -> None:
    """Skip words about when files go, which the catalog does not need."""
    for words in (("SYNC",), ("ASYNC",), ("NO", "DELAY"), ("PERMANENTLY",), ("PURGE",)):
        if cursor.take(*words):
            cursor.notice(
                f"{' '.join(words)} has no effect: the name is free at once, and UNDROP TABLE works for a while"
            )


def _set(cursor: Cursor) -> SetSettings:
    cursor.expect("SET")
    for word, hint in _SET_REFUSED.items():
        if cursor.at(word):
            raise cursor.refused(f"SET {word} is not supported", hint=hint)
    settings: dict[str, str] = {}
    while True:
        token = cursor.peek()
        name = cursor.name("the name of a setting")
        while cursor.take_symbol("."):
            name = f"{name}.{cursor.name('the name of a setting')}"
        if name in settings:
            raise cursor.error(f"setting {name} is given twice", at=token)
        if not cursor.take_symbol("="):
            raise cursor.expected("'='", hint="write SET name = value; SHOW SETTINGS lists the settings")
        settings[name] = parse_setting_value(cursor)
        if not cursor.take_symbol(","):
            return SetSettings(settings=tuple(settings.items()))


def _alter(cursor: Cursor) -> Statement:
    cursor.expect("ALTER")
    if cursor.take("WAREHOUSE"):
        return parse_alter_warehouse(cursor)
    if cursor.take("WORKER"):
        return parse_alter_worker(cursor)
    if cursor.take("SERVER"):
        return parse_alter_server(cursor)
    if cursor.take("STORAGE"):
        return parse_alter_storage(cursor)
    return parse_alter(cursor)


def _backup(cursor: Cursor) -> BackupCatalog:
    cursor.expect("BACKUP")
    if not cursor.at("CATALOG"):
        hint = "BACKUP CATALOG TO 'name' keeps what is known of all tables; their files are copied beside it"
        raise cursor.refused("BACKUP of single tables is not supported", hint=hint)
    cursor.expect("CATALOG", "TO")
    return BackupCatalog(path=cursor.string("a file's name"))


def _drill(cursor: Cursor) -> DrillFailover:
    cursor.expect("DRILL", "FAILOVER")
    cursor.take("TABLE")
    name = parse_name(cursor)
    if not cursor.take("FOR"):
        return DrillFailover(name=name)
    cursor.expect("SECONDS")
    token = cursor.peek()
    seconds = cursor.integer("a number of seconds")
    if not 1 <= seconds <= DRILL_SECONDS_MAX:
        raise cursor.error("not a useful time", at=token, hint=f"from 1 to {DRILL_SECONDS_MAX} seconds")
    return DrillFailover(name=name, seconds=seconds)


def _use(cursor: Cursor) -> UseDatabase:
    cursor.expect("USE")
    return UseDatabase(database=cursor.name("the name of a database"))


def _show(cursor: Cursor) -> Statement:
    cursor.expect("SHOW")
    for word, hint in _SHOW_REFUSED.items():
        if cursor.at(word):
            raise cursor.refused(f"SHOW {word} is not supported", hint=hint)
    cursor.take("FULL")
    if cursor.take("STORAGES"):
        return parse_show_storages(cursor)
    if cursor.take("WAREHOUSES"):
        return parse_show_warehouses(cursor)
    if cursor.take("WAREHOUSE"):
        return parse_show_warehouse(cursor)
    match cursor.choose(
        "DATABASES", "TABLES", "SETTINGS", "PROCESSLIST", "CREATE", "COLUMNS", "PARTITIONS", "FUNCTIONS", "SETTING"
    ):
        case "COLUMNS":
            return Describe(name=_name_from(cursor))
        case "PARTITIONS":
            return ShowPartitions(name=_name_from(cursor))
        case "FUNCTIONS":
            return ShowFunctions(like=_like(cursor))
        case "DATABASES":
            return ShowDatabases(like=_like(cursor))
        case "TABLES":
            is_elsewhere = cursor.take("FROM") or cursor.take("IN")
            database = cursor.name("the name of a database") if is_elsewhere else None
            like = _like(cursor)
            limit = cursor.integer("a number of tables") if cursor.take("LIMIT") else None
            return ShowTables(database=database, like=like, limit=limit)
        case "SETTINGS":
            return ShowSettings(like=_like(cursor))
        case "SETTING":
            return ShowSettings(like=cursor.name("the name of a setting"))
        case "PROCESSLIST":
            return ShowProcesses()
        case _:
            if cursor.is_name(1) and (cursor.at("DATABASE") or cursor.at("SCHEMA")):
                hint = "CREATE DATABASE name makes it: a database has nothing but its name"
                raise cursor.refused("SHOW CREATE DATABASE is not supported", hint=hint)
            if cursor.is_name(1) and cursor.take("WAREHOUSE"):
                return parse_show_create_warehouse(cursor)
            if cursor.is_name(1) and cursor.take("STORAGE"):
                return parse_show_create_storage(cursor)
            if not cursor.take("TABLE"):
                cursor.take("VIEW")
            return ShowCreate(name=parse_name(cursor))


def _name_from(cursor: Cursor) -> Name:
    """`FROM db.t`, `FROM t FROM db` or the name alone."""
    if not cursor.take("FROM"):
        cursor.take("IN")
    name = parse_name(cursor)
    if cursor.take("FROM") or cursor.take("IN"):
        return Name(cursor.name("the name of a database"), name.table)
    return name


def _like(cursor: Cursor) -> str | None:
    return cursor.string("a pattern") if cursor.take("LIKE") else None


def _describe(cursor: Cursor) -> Describe:
    cursor.choose("DESCRIBE", "DESC")
    cursor.take("TABLE")
    if cursor.is_symbol("(") or cursor.at("SELECT"):
        hint = "over HTTP, SELECT .. LIMIT 0 FORMAT JSON answers its names and types; DESCRIBE t those of a table"
        raise cursor.refused("DESCRIBE of a query is not supported", hint=hint)
    name = parse_name(cursor)
    if cursor.is_symbol("("):
        hint = "DESCRIBE takes the name of a table: queries read no files and no addresses"
        raise cursor.refused(f"DESCRIBE of {name}(..) is not supported", hint=hint)
    skip_settings(cursor)
    return Describe(name=name)


def _exists(cursor: Cursor) -> ExistsTable:
    cursor.expect("EXISTS")
    if cursor.is_name(1) and (cursor.at("DATABASE") or cursor.at("DICTIONARY")):
        hint = "SELECT name FROM system.databases" if cursor.at("DATABASE") else "create a table and join it"
        raise cursor.refused(f"EXISTS {cursor.peek().text.upper()} is not supported", hint=hint)
    cursor.take("TEMPORARY")
    if not cursor.take("TABLE"):
        cursor.take("VIEW")
    return ExistsTable(name=parse_name(cursor))


def _undrop(cursor: Cursor) -> UndropTable:
    cursor.expect("UNDROP")
    if cursor.at("DATABASE") or cursor.at("SCHEMA"):
        hint = "CREATE DATABASE it, then UNDROP TABLE each table; system.dropped_tables lists them"
        raise cursor.refused("UNDROP DATABASE is not supported", hint=hint)
    cursor.expect("TABLE")
    return UndropTable(name=parse_table_name(cursor))


def _truncate(cursor: Cursor) -> TruncateTable:
    cursor.expect("TRUNCATE")
    cursor.take("TABLE")
    if_exists = take_if_exists(cursor)
    name = parse_table_name(cursor)
    if cursor.at("PARTITION"):
        hint = "ALTER TABLE t DROP PARTITION p empties one partition"
        raise cursor.refused("TRUNCATE of a partition is not supported", hint=hint)
    _skip_sync(cursor)
    skip_settings(cursor)
    refuse_list(cursor, "TRUNCATE TABLE")
    return TruncateTable(name=name, if_exists=if_exists)


def _rename(cursor: Cursor) -> RenameTable:
    cursor.expect("RENAME", "TABLE")
    old = parse_name(cursor)
    cursor.expect("TO")
    new = parse_table_name(cursor)
    if cursor.is_symbol(","):
        raise cursor.refused("RENAME of several tables is not supported", hint="write one RENAME for each")
    return RenameTable(old=old, new=new)


def _delete(cursor: Cursor) -> DeleteRows:
    cursor.expect("DELETE")
    if not cursor.at("FROM"):
        hint = "write DELETE FROM t WHERE .., with a condition of the table's own columns"
        raise cursor.refused("DELETE without FROM is not supported: expected FROM, found " + cursor.found(), hint=hint)
    cursor.expect("FROM")
    name = parse_table_name(cursor)
    if not cursor.at("IN", "PARTITION"):
        refuse_alias(cursor, "WHERE", "SETTINGS")
    predicate = parse_where(cursor)
    return DeleteRows(name=name, predicate=predicate, settings=take_settings(cursor))


def _update(cursor: Cursor) -> UpdateRows:
    cursor.expect("UPDATE")
    name = parse_table_name(cursor)
    refuse_alias(cursor, "SET")
    cursor.expect("SET")
    assignments = parse_assignments(cursor)
    predicate = parse_where(cursor)
    return UpdateRows(name=name, assignments=assignments, predicate=predicate, settings=take_settings(cursor))


def _explain(cursor: Cursor) -> Statement:
    """EXPLAIN MERGE t and EXPLAIN GC t are ours; any other is Spark's."""
    if cursor.is_word("MERGE", 1) and not cursor.is_word("INTO", 2):
        cursor.expect("EXPLAIN", "MERGE")
        name = parse_name(cursor)
        _refuse_partition(cursor, "EXPLAIN MERGE")
        return ExplainMerge(name=name, policy=cursor.name("a policy") if cursor.take("POLICY") else None)
    if cursor.is_word("GC", 1):
        cursor.expect("EXPLAIN", "GC")
        name = parse_name(cursor)
        _refuse_partition(cursor, "EXPLAIN GC")
        return ExplainGc(name=name)
    hint = "EXPLAIN SELECT .. shows Spark's plan, EXPLAIN MERGE t and EXPLAIN GC t what the background does"
    if cursor.is_name(1) and cursor.is_symbol("=", 2):
        raise cursor.refused("settings of EXPLAIN are not supported", at=cursor.peek(1), hint=hint)
    word = cursor.peek(1).text.upper()
    if word in _EXPLAIN_REFUSED or (cursor.is_name(1) and word not in (*_EXPLAIN_WORDS, *_QUERY_WORDS, *_STATEMENTS)):
        raise cursor.refused(f"EXPLAIN {word} is not supported", hint=hint)
    return _query(cursor)


def _refuse_partition(cursor: Cursor, what: str) -> None:
    if cursor.at("PARTITION"):
        hint = "leave it out: the answer has a row for each partition, with its name in the column partition"
        raise cursor.refused(f"{what} of one partition is not supported", hint=hint)


_DROP_REFUSED = {
    "DICTIONARY": "there are none: DROP TABLE drops a table",
    "FUNCTION": "there are none of users",
    "USER": "there are no accounts",
    "ROLE": "there are no accounts",
    "PARTITION": "write ALTER TABLE t DROP PARTITION p",
    "INDEX": "there are none: parts carry the ranges of their columns",
    "TEMPORARY": "there are no temporary tables: DROP TABLE drops a table",
}
_SET_REFUSED = {
    "ROLE": "there are no accounts",
    "DEFAULT": "there are no accounts",
    "TIME": "write SET spark.sql.session.timeZone = 'Asia/Shanghai'",
    "VAR": "put the value itself into the statement",
    "VARIABLE": "put the value itself into the statement",
}
_SHOW_REFUSED = {
    **dict.fromkeys(
        ("INDEX", "INDEXES", "INDICES", "KEYS"), "SHOW CREATE TABLE t shows the keys; there are no indexes"
    ),
    **dict.fromkeys(
        ("GRANTS", "USERS", "ROLES", "ACCESS", "POLICIES", "QUOTAS"), "there are no accounts: guard the node's port"
    ),
    "DICTIONARIES": "there are none: tables take their place",
    "VIEWS": "SELECT name FROM system.tables WHERE engine = 'MaterializedView'",
    "ENGINES": "the engines are MergeTree and Kafka; docs/reference/sql.md describes them",
    "CLUSTER": "SELECT * FROM system.servers",
    "CLUSTERS": "SELECT * FROM system.servers",
    "MERGES": "SELECT * FROM system.merges",
    "TBLPROPERTIES": "SHOW CREATE TABLE t shows the settings",
}
_EXPLAIN_REFUSED = ("SYNTAX", "TABLE")
#: Keywords behind EXPLAIN that are understood, by Spark or by Tilth.
_EXPLAIN_WORDS = ("MERGE", "EXTENDED", "FORMATTED", "CODEGEN", "COST", "LOGICAL")

_STATEMENTS: dict[str, Callable[[Cursor], Statement]] = {
    "CREATE": parse_create,
    "DROP": _drop,
    "USE": _use,
    "SHOW": _show,
    "BACKUP": _backup,
    "DRILL": _drill,
    "SET": _set,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "EXISTS": _exists,
    "ALTER": _alter,
    "INSERT": parse_insert,
    "DELETE": _delete,
    "UPDATE": _update,
    "OPTIMIZE": parse_optimize,
    "KILL": parse_kill,
    "UNDROP": _undrop,
    "TRUNCATE": _truncate,
    "RENAME": _rename,
    "SYSTEM": parse_system,
    "EXPLAIN": _explain,
}
