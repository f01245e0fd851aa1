"""A script of DDL to statements of Tilth, one by one, with a report.

Covers: which system wrote a statement, what Tilth reads word by word, which statements create nothing. Does not cover:
the parts of a CREATE TABLE (clickhouse.py, lake.py, kudu.py). Always holds: every statement that goes out was read by
Tilth's grammar and passed its checks; a text that was written anew is read as the value that it was written from.

Tests: tests/unit/migration/test_translate_clickhouse.py, tests/unit/migration/test_translate_corpus.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tilth.base.errors import TilthError
from tilth.grammar.errors import SqlSyntaxError
from tilth.grammar.render import table_text
from tilth.grammar.statements import (
    AddColumn,
    AlterTable,
    ColumnSpec,
    CreateTable,
    CreateView,
    DescribeColumn,
    DropColumn,
    ModifyColumn,
    ModifySetting,
    ModifyTtl,
    Name,
    RenameColumn,
    Statement,
)
from tilth.grammar.text.script import ranges
from tilth.grammar.text.tokens import Token, TokenKind, name_value, words_of
from tilth.migration.checks import check, spark_defaults
from tilth.migration.clickhouse import check_partition_words, translate_table
from tilth.migration.draft import Draft, RefusedError, is_name, is_word, message_without_position, shown
from tilth.migration.kudu import read_kudu_table
from tilth.migration.lake import read_lake_table
from tilth.migration.meanings import meanings, meanings_of_columns
from tilth.migration.report import (
    OF_CLICKHOUSE,
    DdlFinding,
    DdlReport,
    Difference,
    ForeignSystem,
    StatementVerdict,
    Translated,
)
from tilth.model.table import Engine
from tilth.query.settings import settings_without_effect
from tilth.statements.definitions.databases import CreateDatabase, UseDatabase
from tilth.statements.definitions.storages import CreateStorage
from tilth.statements.definitions.warehouses import CreateWarehouse
from tilth.statements.registry import FORMS

#: Settings under which definitions mean what they do in ClickHouse and ByConity.
CLICKHOUSE_SETTINGS = (("data_type_default_nullable", "0"), ("dialect", "clickhouse"))
#: Operations of ALTER that declare something, and change no rows.
_DECLARING = (AddColumn, ModifyColumn, DescribeColumn, RenameColumn, ModifySetting, ModifyTtl)
#: Operations without which a table has other columns.
_OF_COLUMNS = (*_DECLARING, DropColumn)
#: Settings of a session by which definitions mean something else.
_OF_DEFINITIONS = re.compile(
    r"\b(data_type_default_nullable|default_table_engine|dialect(_type)?|session_timezone"
    r"|spark\.sql\.(timestampType|session\.timeZone)|time\s+zone)\b",
    re.IGNORECASE,
)
#: First words of statements that are not run, and without which names are others.
_RENAMING = ("RENAME", "EXCHANGE")
#: First words of statements that create nothing.
_SKIPPED = {
    **dict.fromkeys(("INSERT", "UPSERT"), "rows are loaded apart from definitions: tilth sql -f FILE"),
    **dict.fromkeys(("SELECT", "WITH", "SHOW", "DESCRIBE", "DESC", "EXPLAIN", "EXISTS", "CHECK"), "it reads"),
    **dict.fromkeys(("DROP", "TRUNCATE", "DETACH", "UNDROP"), "importing DDL drops nothing: run it yourself"),
    **dict.fromkeys(("DELETE", "UPDATE", "MERGE"), "it changes rows: run it yourself"),
    **dict.fromkeys(("RENAME", "EXCHANGE"), "it renames what is there: write the new name in CREATE"),
    **dict.fromkeys(
        ("OPTIMIZE", "SYSTEM", "KILL", "COMPUTE", "INVALIDATE", "REFRESH", "ANALYZE", "MSCK"), "it runs once"
    ),
    "SET": "settings of a session; those of ClickHouse's own defaults are set by import-ddl",
}
#: Beginnings of the engines that store a block of rows once.
_REPLICATED = ("replicated", "shared")
#: Clauses of a view's definition about accounts, by their first word.
_ACCOUNT_CLAUSES = ("DEFINER", "SQL")


@dataclass(slots=True)
class _Script:
    """Tables that earlier statements of the script have created."""

    #: Sources by the name of a table; a view is checked against them.
    engines: dict[str, Engine] = field(default_factory=dict)
    last: ForeignSystem = ForeignSystem.CLICKHOUSE


def translate_script(text: str, source: ForeignSystem | None = None) -> DdlReport:
    """Translate all statements of a script. `source`: the system it was written for; None: each statement shows it."""
    script = _Script(last=source or ForeignSystem.CLICKHOUSE)
    return DdlReport(statements=tuple(_statements(text, source, script)))


def _statements(text: str, source: ForeignSystem | None, script: _Script) -> Iterator[Translated]:
    lines, counted = 0, 0
    begun = ranges(text)
    while True:
        try:
            start, end = next(begun)
        except StopIteration:
            return
        except SqlSyntaxError as error:
            yield _unreadable(error, script.last)
            return
        lines += text.count("\n", counted, start)
        counted = start
        yield _translated(Draft(text[start:end], lines), source, script)


def _unreadable(error: SqlSyntaxError, source: ForeignSystem) -> Translated:
    message = message_without_position(error)
    why = "nothing behind it is read"
    finding = DdlFinding(line=error.line, kind=Difference.REFUSED, what=message, why=why, instead=error.hint)
    return Translated(
        line=error.line,
        what="the rest of the script",
        source=source,
        verdict=StatementVerdict.REFUSED,
        findings=(finding,),
    )


def _translated(draft: Draft, given: ForeignSystem | None, script: _Script) -> Translated:
    tokens = draft.tokens
    found = _source_of(tokens)
    # The words of the statement say more than the name of the script: ByConity has ClickHouse's engines, too.
    source = found or given or script.last
    script.last = source
    statement: str | None = None
    try:
        if given is not None and found is not None and not _agree(given, found):
            hint = f"--from {found}, or leave --from out"
            raise draft.refused(0, f"a statement of {found}", f"the script is read as one of {given}", hint)
        verdict, statement = _verdict(draft, source, script)
    except RefusedError as error:
        verdict = StatementVerdict.REFUSED
        draft.findings.append(error.finding)
    except TilthError as error:
        verdict = StatementVerdict.REFUSED
        draft.findings.append(draft.refused_by(error).finding)
    return Translated(
        line=draft.lines_before + 1,
        what=_described(tokens),
        source=source,
        verdict=verdict,
        statement=statement,
        settings=CLICKHOUSE_SETTINGS if statement is not None and source in OF_CLICKHOUSE else (),
        findings=tuple(sorted(draft.findings, key=lambda each: each.line)),
    )


def _agree(given: ForeignSystem, found: ForeignSystem) -> bool:
    same = (OF_CLICKHOUSE, (ForeignSystem.DELTA, ForeignSystem.ICEBERG))
    return given is found or any(given in each and found in each for each in same)


def _source_of(tokens: Sequence[Token]) -> ForeignSystem | None:
    """Return the system whose words the statement has; None: it could be of several."""
    for index, token in enumerate(tokens[:-1]):
        if token.kind is not TokenKind.WORD:
            continue
        word, behind = token.text.upper(), tokens[index + 1]
        if word == "USING" and behind.text.lower() in ("delta", "iceberg"):
            return ForeignSystem(behind.text.lower())
        if word == "STORED" and index + 2 < len(tokens) and is_word(tokens[index + 2], "KUDU"):
            return ForeignSystem.KUDU
        if word == "ENGINE" and behind.text == "=" and index + 2 < len(tokens):
            is_byconity = tokens[index + 2].text.lower().startswith(("cnch", "ha"))
            return ForeignSystem.BYCONITY if is_byconity else ForeignSystem.CLICKHOUSE
        if word in ("TBLPROPERTIES", "PARTITIONED"):
            return None
    return None


def _engine(tokens: Sequence[Token]) -> str:
    """Name of the engine as it is written; empty: there is none."""
    behind = (at for at in range(2, len(tokens)) if tokens[at - 1].text == "=" and is_word(tokens[at - 2], "ENGINE"))
    return next((tokens[at].text for at in behind), "")


def _described(tokens: Sequence[Token]) -> str:
    """First words of the statement and the name behind them."""
    words: list[str] = []
    for index, token in enumerate(tokens[:12]):
        if is_word(token, "IF", "NOT", "EXISTS"):
            continue
        is_head = token.kind is TokenKind.WORD and token.text.upper() in _HEAD_WORDS
        if not is_head:
            parts = [token]
            at = index
            while at + 2 < len(tokens) and tokens[at + 1].text == "." and len(parts) < 3:
                at += 2
                parts.append(tokens[at])
            name = ".".join(part.text for part in parts if is_name(part))
            return shown(" ".join([*words, name]).strip()) if name or words else shown(token.text)
        words.append(token.text.upper())
    return shown(" ".join(words))


_HEAD_WORDS = frozenset(
    "CREATE OR REPLACE TEMPORARY EXTERNAL TABLE DATABASE SCHEMA MATERIALIZED VIEW DICTIONARY FUNCTION ATTACH ALTER "
    "DROP USE SET INSERT INTO SELECT RENAME TRUNCATE SYSTEM OPTIMIZE UPSERT DELETE FROM UPDATE LIVE WINDOW USER "
    "ROLE".split()
)


# One statement


def _verdict(draft: Draft, source: ForeignSystem, script: _Script) -> tuple[StatementVerdict, str | None]:
    tokens = draft.tokens
    first = tokens[0].text.upper() if tokens[0].kind is TokenKind.WORD else ""
    if first in _SKIPPED:
        _find_skipped(draft, first)
        return StatementVerdict.SKIPPED, None
    if source not in OF_CLICKHOUSE and _creates_table(tokens):
        return _rewritten(draft, source, script)
    return _kept(draft, source, script)


def _find_skipped(draft: Draft, first: str) -> None:
    found = _OF_DEFINITIONS.search(draft.text) if first == "SET" else None
    if found is not None:
        why = "it changes what definitions mean, and those behind it are read without it"
        instead = "write in each definition what the setting stood for, as NULL or a zone"
        draft.find(Difference.LEFT_OUT, 0, f"SET {shown(found[0])} is not run", why, instead)
        return
    kind = Difference.LEFT_OUT if first in _RENAMING else Difference.NOTE
    draft.find(kind, 0, f"{first} is not run", _SKIPPED[first])


def _creates_table(tokens: Sequence[Token]) -> bool:
    head = [token.text.upper() for token in tokens[:4] if token.kind is TokenKind.WORD]
    return head[:1] == ["CREATE"] and "TABLE" in head and "VIEW" not in head and "TEMPORARY" not in head


def _rewritten(draft: Draft, source: ForeignSystem, script: _Script) -> tuple[StatementVerdict, str | None]:
    """Write a table of Spark SQL or Impala anew, from the value that was read."""
    table = read_kudu_table(draft) if source is ForeignSystem.KUDU else read_lake_table(draft)
    text = table_text(table)
    read = FORMS.parse(text)
    if read != table:
        why = "the statement that was written for it is read as another one"
        raise draft.refused(0, shown(str(table.name)), why, "write the CREATE TABLE by hand")
    check(read, is_nullable=True)
    assert isinstance(read, CreateTable)
    _find_meanings(draft, read, source)
    script.engines[_key(read.name)] = read.engine
    return StatementVerdict.CHANGED, text


def _kept(draft: Draft, source: ForeignSystem, script: _Script) -> tuple[StatementVerdict, str | None]:
    """Keep the text as it is where Tilth reads it, else without what Tilth does not have."""
    text = draft.text
    double = next((token for token in draft.tokens if token.text[0] == '"'), None)
    if source not in OF_CLICKHOUSE and double is not None:
        why = "in double quotes Tilth reads a name, where Spark and Impala read a text"
        raise draft.refused(double.start, shown(double.text), why, "write texts in single quotes")
    try:
        statement, notices = FORMS.parse_noticed(text)
        _check(statement, source)
    except TilthError as error:
        text = _mended(draft, error)
        try:
            statement, notices = FORMS.parse_noticed(text)
            _check(statement, source)
        except TilthError as again:
            raise draft.refused_by(again) from again
    for notice in notices:
        kind = Difference.DIFFERS if "is read as" in notice and "UNIQUE KEY" not in notice else Difference.NOTE
        what, _, why = notice.partition(": ")
        draft.find(kind, 0, what, why)
    return _admitted(draft, statement, source, script, text)


def _check(statement: Statement, source: ForeignSystem) -> None:
    check(statement, is_nullable=source not in OF_CLICKHOUSE)


def _admitted(
    draft: Draft, statement: Statement, source: ForeignSystem, script: _Script, text: str
) -> tuple[StatementVerdict, str | None]:
    verdict = StatementVerdict.CHANGED if draft.is_changed else StatementVerdict.UNCHANGED
    match statement:
        case CreateTable():
            if statement.partition_by and source in OF_CLICKHOUSE:
                check_partition_words(draft, is_keyed=bool(statement.unique_key))
            _find_meanings(draft, statement, source)
            script.engines[_key(statement.name)] = statement.engine
        case CreateView():
            _check_view(draft, statement, script)
        case AlterTable(operations=operations) if not all(isinstance(each, _DECLARING) for each in operations):
            kind = Difference.LEFT_OUT if any(isinstance(each, _OF_COLUMNS) for each in operations) else Difference.NOTE
            draft.find(kind, 0, "ALTER TABLE is not run", "it changes or drops rows: run it yourself")
            return StatementVerdict.SKIPPED, None
        case AlterTable(operations=operations):
            columns = [each.column for each in operations if isinstance(each, AddColumn | ModifyColumn)]
            for meaning in meanings_of_columns(columns, source):
                draft.find(meaning.kind, 0, meaning.what, meaning.why, meaning.instead)
            if source in OF_CLICKHOUSE:
                _find_spark_defaults(draft, columns)
        case CreateDatabase() | UseDatabase() | CreateWarehouse() | CreateStorage():
            pass
        case _:
            draft.find(Difference.NOTE, 0, f"{draft.tokens[0].text.upper()} is not run", "it creates nothing here")
            return StatementVerdict.SKIPPED, None
    return verdict, text


def _find_meanings(draft: Draft, table: CreateTable, source: ForeignSystem) -> None:
    for each in meanings(table, source):
        draft.find(each.kind, _position(draft, each.column), each.what, each.why, each.instead)
    for notice in settings_without_effect(name for name, _ in table.settings):
        draft.find(Difference.NOTE, 0, notice)
    if source in OF_CLICKHOUSE:
        _find_spark_defaults(draft, table.columns)
    if not table.unique_key and _engine(draft.tokens).lower().startswith(_REPLICATED):
        what = "an INSERT that is sent again adds its rows again"
        why = "elsewhere the same block of rows is taken once, within replicated_deduplication_window"
        draft.find(Difference.DIFFERS, 0, what, why, "SETTINGS insertion_label = '..' at the INSERT")


def _find_spark_defaults(draft: Draft, columns: Sequence[ColumnSpec]) -> None:
    for name, default in spark_defaults(columns):
        what = f"DEFAULT {shown(default)} of column {shown(name)} is computed by Spark's functions"
        why = "it names no column; ClickHouse's functions of these names may give another value"
        draft.find(Difference.DIFFERS, _position(draft, name), what, why, "write the value")


def _position(draft: Draft, column: str) -> int:
    """Position of a column's definition; the beginning where there is none."""
    for before, token in pairwise(draft.tokens):
        if column and before.text in "(," and is_name(token) and name_value(token) == column:
            return token.start
    return 0


def _check_view(draft: Draft, view: CreateView, script: _Script) -> None:
    """Raises RefusedError for a view that reads a table of this script that is none of Kafka."""
    words = words_of(view.select)
    read = {name: engine for name, engine in script.engines.items() if name.rpartition(".")[2] in words}
    if Engine.KAFKA in read.values():
        return
    at = draft.text.find(view.select)
    what = f"view {view.name} reads no Kafka table"
    why = "a view makes rows of messages, not of rows that an INSERT brings"
    instead = "a view of the Kafka table that fills the other one, or INSERT .. SELECT"
    if read:
        raise draft.refused(max(at, 0), f"{what} of this script", why, instead)
    draft.find(Difference.DIFFERS, max(at, 0), f"{what} of this script: the server decides", why, instead)


def _key(name: Name) -> str:
    return str(name).lower()


# Texts that Tilth does not read


def _mended(draft: Draft, error: TilthError) -> str:
    """Return the text without what Tilth does not have. Raises RefusedError where nothing can be left out."""
    tokens = draft.tokens
    _mend_head(draft)
    if _creates_table(tokens) or _attaches_table(tokens):
        translate_table(draft)
    elif any(is_word(token, "VIEW") for token in tokens[:4]):
        _mend_view(draft)
    elif any(is_word(token, "DATABASE", "SCHEMA") for token in tokens[:2]):
        _mend_database(draft)
    if not draft.is_changed:
        raise draft.refused_by(error) from error
    return draft.changed_text()


def _attaches_table(tokens: Sequence[Token]) -> bool:
    return is_word(tokens[0], "ATTACH") and len(tokens) > 1 and is_word(tokens[1], "TABLE")


def _mend_head(draft: Draft) -> None:
    tokens = draft.tokens
    for token, behind in pairwise(tokens[:4]):
        if is_word(token, "OR") and is_word(behind, "REPLACE"):
            draft.replace(token.start, behind.end, "")
            why = "an existing table would be lost: nothing is dropped"
            draft.find(Difference.LEFT_OUT, token.start, "OR REPLACE", why, "DROP it first, if it is meant")
    if _attaches_table(tokens):
        draft.replace(tokens[0].start, tokens[0].end, "CREATE")
        why = "the table is created without rows"
        draft.find(Difference.DIFFERS, 0, "ATTACH TABLE is created as CREATE TABLE", why, "load its rows")


def _mend_view(draft: Draft) -> None:
    """Leave DEFINER and SQL SECURITY out, which are about accounts."""
    tokens = draft.tokens
    behind = 0
    for index, token in enumerate(tokens):
        if is_word(token, "AS", "SELECT"):
            return
        if index < behind or not is_word(token, *_ACCOUNT_CLAUSES) or index + 2 >= len(tokens):
            continue
        has_sign = tokens[index + 1].text == "="
        behind = index + (3 if has_sign or not is_word(token, "DEFINER") else 2)
        last = tokens[behind - 1]
        draft.replace(token.start, last.end, "")
        written = shown(draft.text[token.start : last.end])
        draft.find(Difference.LEFT_OUT, token.start, written, "there are no accounts", "guard the port")


def _mend_database(draft: Draft) -> None:
    """Leave ENGINE of a database out, unless its tables would be those of another system."""
    tokens = draft.tokens
    for index, token in enumerate(tokens):
        if is_word(token, "ENGINE") and index + 2 < len(tokens):
            name = tokens[index + 2]
            if name.text.lower() in ("replicated", "shared", "lazy", "memory"):
                last = next((each for each in tokens[index:] if each.text == ")"), name)
                draft.replace(token.start, last.end, "")
                draft.find(
                    Difference.NOTE, token.start, f"ENGINE = {name.text}", "databases are names of the one catalog"
                )
        if is_word(token, "SCHEMA") and index == 1:
            draft.replace(token.start, token.end, "DATABASE")
        if is_word(token, "LOCATION", "MANAGED", "WITH") and index + 1 < len(tokens):
            draft.replace(token.start, tokens[-1].end, "")
            written = shown(draft.text[token.start :])
            draft.find(Difference.LEFT_OUT, token.start, written, "databases are names of the one catalog")
