"""Text to a statement. Pure.

Covers: which statement it is, the short ones, queries. Does not cover: the long ones (create.py, alter.py, insert.py,
system.py), scripts (script.py). Always holds: the whole text is read or an error tells where it stops making sense;
`parse(render(s)) == s`.
"""

from __future__ import annotations

from collections.abc import Callable

from tilth.sql.grammar.alter import parse_alter
from tilth.sql.grammar.create import parse_create
from tilth.sql.grammar.cursor import Cursor, listed, nearest
from tilth.sql.grammar.insert import parse_insert
from tilth.sql.grammar.literals import parse_settings, take_settings
from tilth.sql.grammar.phrases import (
    parse_assignments,
    parse_name,
    parse_table_name,
    parse_where,
    skip_on_cluster,
    take_if_exists,
)
from tilth.sql.grammar.statements import (
    DeleteRows,
    Describe,
    DropDatabase,
    DropTable,
    DropView,
    ExistsTable,
    ExplainGc,
    ExplainMerge,
    Query,
    RenameTable,
    SettingTexts,
    ShowCreate,
    ShowDatabases,
    ShowProcesses,
    ShowSettings,
    ShowTables,
    Statement,
    TruncateTable,
    UndropTable,
    UpdateRows,
    UseDatabase,
)
from tilth.sql.grammar.system import parse_kill, parse_optimize, parse_system
from tilth.sql.grammar.tokens import Token, TokenKind

#: What a query may begin with; a bracket, too.
_QUERY_WORDS = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")
_REFUSED = {
    "EXCHANGE": "RENAME TABLE a TO b, one after the other",
    "ATTACH": "tables are in the catalog; CREATE or UNDROP them",
    "DETACH": "DROP TABLE, and UNDROP TABLE to have it back; SYSTEM STOP .. holds its services",
    "MERGE": "INSERT INTO a table with UNIQUE KEY",
    "SET": "put settings behind the query: SELECT .. SETTINGS a = 1",
    "GRANT": "",
    "REVOKE": "",
}
#: What may stand before a FORMAT or SETTINGS that is no clause but a name: `FROM format x`.
_NAME_FOLLOWS_TEXT = "FROM JOIN AS SELECT WHERE BY ON USING AND OR NOT IN LIKE UPDATE INTO TABLE DISTINCT"
_NAME_FOLLOWS = frozenset(_NAME_FOLLOWS_TEXT.split())


def parse(text: str) -> Statement:
    """The statement in the text; a `;` may end it.

    Raises SqlSyntaxError, and of its kinds UnsupportedSqlError for what is understood but not there. Both tell line and
    column.
    """
    cursor = Cursor(text)
    if cursor.at_end:
        raise cursor.error("there is no statement")
    statement = _statement(cursor)
    cursor.end()
    return statement


def _statement(cursor: Cursor) -> Statement:
    word = cursor.peek().text.upper() if cursor.peek().kind is TokenKind.WORD else ""
    if word in _QUERY_WORDS or cursor.is_symbol("("):
        return _query(cursor)
    if word in _REFUSED:
        raise cursor.refused(f"{word} is not supported", hint=_REFUSED[word])
    if word not in _STATEMENTS:
        words = (*_STATEMENTS, *_QUERY_WORDS)
        near = nearest(word, words)
        hint = f"did you mean {near}?" if near else f"statements begin with {listed(words, 'or')}"
        raise cursor.expected("a statement", hint=hint)
    return _STATEMENTS[word](cursor)


# Queries


def _query(cursor: Cursor) -> Query:
    """Spark's text, and what stands behind it for us: FORMAT and SETTINGS, in any order."""
    tokens = _tokens(cursor)
    if not tokens:
        raise cursor.expected("a query")
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
    """Where the last SETTINGS begins and what it says, when it is a clause that fills the rest."""
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
    """Whether this word begins a clause behind a complete query."""
    token, before = tokens[index], tokens[index - 1]
    if token.kind is not TokenKind.WORD or token.text.upper() != word:
        return False
    if before.kind is TokenKind.SYMBOL:
        return before.text in (")", "]", "*")
    return before.text.upper() not in _NAME_FOLLOWS


# Short statements


def _drop(cursor: Cursor) -> DropDatabase | DropTable | DropView:
    cursor.expect("DROP")
    cursor.take("MATERIALIZED")
    kind = cursor.choose("TABLE", "VIEW", "DATABASE", "SCHEMA")
    if_exists = take_if_exists(cursor)
    if kind in ("DATABASE", "SCHEMA"):
        database = cursor.name("the name of a database")
        skip_on_cluster(cursor)
        return DropDatabase(database=database, if_exists=if_exists)
    name = parse_table_name(cursor)
    if kind == "VIEW":
        return DropView(name=name, if_exists=if_exists)
    return DropTable(name=name, if_exists=if_exists)


def _use(cursor: Cursor) -> UseDatabase:
    cursor.expect("USE")
    return UseDatabase(database=cursor.name("the name of a database"))


def _show(cursor: Cursor) -> ShowDatabases | ShowTables | ShowSettings | ShowProcesses | ShowCreate:
    cursor.expect("SHOW")
    match cursor.choose("DATABASES", "TABLES", "SETTINGS", "PROCESSLIST", "CREATE"):
        case "DATABASES":
            return ShowDatabases(like=_like(cursor))
        case "TABLES":
            is_elsewhere = cursor.take("FROM") or cursor.take("IN")
            database = cursor.name("the name of a database") if is_elsewhere else None
            return ShowTables(database=database, like=_like(cursor))
        case "SETTINGS":
            return ShowSettings(like=_like(cursor))
        case "PROCESSLIST":
            return ShowProcesses()
        case _:
            if not cursor.take("TABLE"):
                cursor.take("VIEW")
            return ShowCreate(name=parse_name(cursor))


def _like(cursor: Cursor) -> str | None:
    return cursor.string("a pattern") if cursor.take("LIKE") else None


def _describe(cursor: Cursor) -> Describe:
    cursor.choose("DESCRIBE", "DESC")
    cursor.take("TABLE")
    return Describe(name=parse_name(cursor))


def _exists(cursor: Cursor) -> ExistsTable:
    cursor.expect("EXISTS")
    cursor.take("TABLE")
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
    cursor.expect("DELETE", "FROM")
    name = parse_table_name(cursor)
    predicate = parse_where(cursor)
    return DeleteRows(name=name, predicate=predicate, settings=take_settings(cursor))


def _update(cursor: Cursor) -> UpdateRows:
    cursor.expect("UPDATE")
    name = parse_table_name(cursor)
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
    return _query(cursor)


def _refuse_partition(cursor: Cursor, what: str) -> None:
    if cursor.at("PARTITION"):
        hint = "leave it out: the answer has a row for each partition, with its name in the column partition"
        raise cursor.refused(f"{what} of one partition is not supported", hint=hint)


_STATEMENTS: dict[str, Callable[[Cursor], Statement]] = {
    "CREATE": parse_create,
    "DROP": _drop,
    "USE": _use,
    "SHOW": _show,
    "DESCRIBE": _describe,
    "DESC": _describe,
    "EXISTS": _exists,
    "ALTER": parse_alter,
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
