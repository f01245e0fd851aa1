"""CREATE TABLE of ClickHouse and ByConity: parts that Tilth does not have are left out, each with a finding.

Covers: elements among the columns, clauses behind them. Does not cover: types (clickhouse_types.py), statements that
Tilth reads as they are (translate.py). Always holds: what decides which rows there are (engine, key, its expressions)
is never changed: the statement is refused. Pure.

Tests: tests/unit/migration/test_translate_clickhouse.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tilth.base.errors import TilthError
from tilth.base.settings import SettingGroup
from tilth.grammar.errors import SqlSyntaxError
from tilth.grammar.keys import parse_key, parse_partition_by
from tilth.grammar.text.cursor import Cursor
from tilth.grammar.text.tokens import Token, TokenKind, name_value, string_value
from tilth.migration.checks import UUID_CALL
from tilth.migration.clickhouse_types import end_of_type, replace_types
from tilth.migration.draft import (
    Draft,
    depth_change,
    is_name,
    is_word,
    matching,
    shown,
    split_at_commas,
    without_columns,
)
from tilth.migration.report import Difference
from tilth.query.settings import KAFKA_TABLE_SETTINGS, TABLE_SETTINGS

_CLAUSES = ("PARTITION BY", "ORDER BY", "PRIMARY KEY", "UNIQUE KEY", "SAMPLE BY", "CLUSTER BY")
_SINGLE_CLAUSES = ("ENGINE", "TTL", "SETTINGS", "COMMENT", "AS")
#: Engines of ClickHouse's cloud, and what they are elsewhere.
_SHARED = re.compile(r"Shared(\w*MergeTree)", re.IGNORECASE)
#: Functions whose values are in the order of their column.
_MONOTONIC = re.compile(r"(toStartOf\w+|toDate|toDateTime|toYYYYMM(DD)?|toMonday|toYear|date_trunc)", re.IGNORECASE)
#: Partition functions of Spark and Iceberg, by names that ClickHouse has for parts of a date.
_PARTITION_WORDS = ("MONTH", "DAY", "HOUR")
_KAFKA_ENGINE = re.compile(r"(Cnch|Ha)?Kafka", re.IGNORECASE)
_TTL_ACTIONS = ("TO", "GROUP", "RECOMPRESS", "WHERE", "SET")
#: Words behind a column's type that end at the next of them, and what to do instead.
_LEFT_OUT_OF_COLUMN = {
    "TTL": ("values do not expire by themselves", "a TTL of the table, which removes whole rows"),
    "STATISTICS": ("parts have statistics by themselves", ""),
    "COLLATE": ("texts are compared by their bytes", ""),
    "SETTINGS": ("settings are those of a table", ""),
    "AUTO_INCREMENT": ("rows get no numbers", "DEFAULT uuid() makes a key"),
    "KV": ("a Map is stored as it is", ""),
    "BYTEMAP": ("a Map is stored as it is", ""),
}
#: Setting without which no message is read.
_FORMAT = "kafka_format"
_WITHOUT_EFFECT = ("STATISTICS", "SETTINGS", "KV", "BYTEMAP")


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause behind the columns, by the indices of its tokens."""

    words: str
    start: int
    #: Index of the first token behind its words.
    inside: int
    end: int


@dataclass(frozen=True, slots=True)
class _Table:
    """A CREATE TABLE in pieces."""

    draft: Draft
    tokens: Sequence[Token]
    #: Indices of the brackets around the columns.
    opening: int
    closing: int
    clauses: tuple[Clause, ...]

    def clause(self, words: str) -> Clause | None:
        return next((each for each in self.clauses if each.words == words), None)

    def text(self, clause: Clause) -> str:
        """Text behind the words of a clause."""
        if clause.inside >= clause.end:
            return ""
        return self.draft.text[self.tokens[clause.inside].start : self.tokens[clause.end - 1].end]

    @property
    def engine(self) -> str:
        clause = self.clause("ENGINE")
        names = [token for token in self.tokens[clause.inside : clause.end] if token.text != "="] if clause else []
        return name_value(names[0]) if names and names[0].kind is TokenKind.WORD else ""

    @property
    def is_keyed(self) -> bool:
        return "replacing" in self.engine.lower() or self.clause("UNIQUE KEY") is not None

    def leave_out(self, start: int, end: int, what: str, why: str, instead: str = "", *, is_note: bool = False) -> None:
        """Remove the tokens of a range."""
        first, last = self.tokens[start], self.tokens[end - 1]
        self.draft.replace(first.start, last.end, "")
        kind = Difference.NOTE if is_note else Difference.LEFT_OUT
        self.draft.find(kind, first.start, what, why, instead)


def translate_table(draft: Draft) -> None:
    """Leave out of the CREATE TABLE what Tilth does not have. Raises RefusedError."""
    tokens = draft.tokens
    opening = _columns_at(tokens)
    if opening is None:
        raise without_columns(draft, 0)
    closing = matching(tokens, opening)
    table = _Table(draft, tokens, opening, closing, tuple(_clauses(tokens, closing + 1)))
    _change_engine(table)
    _change_elements(table)
    _change_partition_by(table)
    _change_order_by(table)
    _change_ttl(table)
    _change_settings(table)
    source = table.clause("AS")
    if source is not None:
        what = "AS SELECT: the table is created without rows"
        why = "a table is created empty"
        table.leave_out(source.start, source.end, what, why, "INSERT INTO the table SELECT ..")


def check_partition_words(draft: Draft, *, is_keyed: bool) -> None:
    """Find functions in PARTITION BY that are read as others. Raises RefusedError where keys are of a partition."""
    tokens = draft.tokens
    opening = _columns_at(tokens)
    if opening is None:
        return
    clauses = _clauses(tokens, matching(tokens, opening) + 1)
    clause = next((each for each in clauses if each.words == "PARTITION BY"), None)
    if clause is None:
        return
    inside = tokens[clause.inside : clause.end]
    if not any(is_word(word, *_PARTITION_WORDS) and behind.text == "(" for word, behind in pairwise(inside)):
        return
    at = tokens[clause.start].start
    what = f"PARTITION BY {shown(draft.text[inside[0].start : inside[-1].end])}"
    why = "month, day and hour are numbers there, the same in every year; here they say the year and the day, too"
    instead = "toYYYYMM(..), toDate(..), toStartOfHour(..) or toHour(..)"
    if is_keyed:
        raise draft.refused(at, what, why, instead)
    draft.find(Difference.DIFFERS, at, what, why, instead)


def _columns_at(tokens: Sequence[Token]) -> int | None:
    """Index of the bracket before the columns; None: a clause comes first."""
    for index, token in enumerate(tokens):
        if token.text == "(" and token.kind is TokenKind.SYMBOL:
            return index
        if is_word(token, "ENGINE", "SELECT", "SETTINGS", "CLONE", "LIKE"):
            return None
    return None


def _clauses(tokens: Sequence[Token], start: int) -> Iterator[Clause]:
    begun: tuple[str, int, int] | None = None
    depth = 0
    for index in range(start, len(tokens)):
        token = tokens[index]
        depth += depth_change(token)
        words = _clause_at(tokens, index) if depth == 0 else ""
        if not words or (begun is not None and index <= begun[2] and words != "SETTINGS"):
            continue
        if begun is not None:
            yield Clause(begun[0], begun[1], begun[2], index)
            if begun[0] == "AS":
                return
        begun = (words, index, index + len(words.split()))
        if words == "AS":
            break
    if begun is not None:
        yield Clause(begun[0], begun[1], begun[2], len(tokens))


def _clause_at(tokens: Sequence[Token], index: int) -> str:
    token = tokens[index]
    if token.kind is not TokenKind.WORD:
        return ""
    before = tokens[index - 1]
    if before.kind is TokenKind.SYMBOL and before.text not in ")]}":
        return ""
    for words in _CLAUSES:
        first, second = words.split()
        if is_word(token, first) and index + 1 < len(tokens) and is_word(tokens[index + 1], second):
            return words
    word = token.text.upper()
    if word == "COMMENT" and not (index + 1 < len(tokens) and tokens[index + 1].kind is TokenKind.STRING):
        return ""
    return word if word in _SINGLE_CLAUSES else ""


def _change_engine(table: _Table) -> None:
    clause = table.clause("ENGINE")
    if clause is None:
        why = "its engine decides which rows there are"
        raise table.draft.refused(0, "CREATE TABLE without ENGINE", why, "write ENGINE = MergeTree ORDER BY ..")
    arguments = table.tokens[clause.inside : clause.end]
    if "replacing" in table.engine.lower() and len(arguments) > 5 and is_name(table.tokens[clause.end - 2]):
        _refuse_deleting(table, clause)
    found = _SHARED.fullmatch(table.engine)
    if found is None:
        return
    token = next(each for each in table.tokens[clause.inside :] if each.kind is TokenKind.WORD)
    table.draft.replace(token.start, token.end, f"Replicated{found[1]}")
    why = "every server sees the files of all tables"
    table.draft.find(Difference.NOTE, token.start, f"{token.text} is created as {found[1]}", why)


def _refuse_deleting(table: _Table, clause: Clause) -> None:
    """Raises RefusedError where the engine names a column by which rows are deleted, behind the version."""
    tokens = table.tokens
    is_second = tokens[clause.end - 3].text == "," and is_name(tokens[clause.end - 4])
    if is_second:
        column = name_value(tokens[clause.end - 2])
        why = "a row that deletes is not hidden by a column of the table"
        hint = "UNIQUE KEY, and rows with _op = 'delete': docs/reference/sql.md"
        raise table.draft.refused(tokens[clause.start].start, f"{table.engine}(.., {column})", why, hint)


# Elements among the columns


def _change_elements(table: _Table) -> None:
    ranges = split_at_commas(table.tokens, table.opening + 1, table.closing)
    kept = 0
    for number, (start, end) in enumerate(ranges):
        if _leaves_out(table, start, end):
            # With the comma before it, or behind the first one.
            comma = ranges[number - 1][1] if kept else end
            if comma < table.closing:
                table.draft.replace(table.tokens[comma].start, table.tokens[comma].end, "")
            continue
        kept += 1
        if not is_word(table.tokens[start], "INDEX", "PRIMARY", "UNIQUE") or not _is_element(table, start, end):
            _change_column(table, start, end)


def _is_element(table: _Table, start: int, end: int) -> bool:
    """True if an index or a key is declared here, and no column of that name."""
    if is_word(table.tokens[start], "INDEX"):
        return any(is_word(token, "TYPE") for token in table.tokens[start + 2 : end])
    return end > start + 1 and is_word(table.tokens[start + 1], "KEY")


def _leaves_out(table: _Table, start: int, end: int) -> bool:
    """Leave an element out that Tilth does not have; return True if it was one."""
    tokens = table.tokens
    name = shown(name_value(tokens[start + 1])) if end > start + 1 else ""
    if is_word(tokens[start], "PROJECTION") and end > start + 2 and tokens[start + 2].text == "(":
        why = "a table has one order of its rows"
        table.leave_out(start, end, f"PROJECTION {name}", why, "a second table, filled by a second view")
        return True
    if is_word(tokens[start], "CONSTRAINT") and end > start + 2 and is_word(tokens[start + 2], "CHECK", "ASSUME"):
        why = "rows are not checked by expressions"
        table.leave_out(start, end, f"CONSTRAINT {name}", why, "filter in the view's SELECT")
        return True
    ephemeral = next((at for at in range(start + 1, end) if is_word(tokens[at], "EPHEMERAL")), None)
    if ephemeral is not None and ephemeral == end_of_type(tokens, start + 1, end):
        why = "a column that an INSERT brings and nothing stores is not there"
        what = f"column {name_value(tokens[start])} EPHEMERAL"
        table.leave_out(start, end, what, why, "compute the others in the view's SELECT")
        return True
    return False


def _change_column(table: _Table, start: int, end: int) -> None:
    tokens = table.tokens
    if not is_name(tokens[start]):
        return
    column = shown(name_value(tokens[start]))
    behind = end_of_type(tokens, start + 1, end)
    replace_types(table.draft, tokens, start + 1, behind, column)
    _replace_uuid_call(table, behind, end)
    index = behind
    while index < end:
        word = tokens[index].text.upper() if tokens[index].kind is TokenKind.WORD else ""
        until = end_of_type(tokens, index, end)
        if word == "PRIMARY":
            until = min(index + 2, end)
            hint = f"ORDER BY ({column}) behind the columns"
            table.leave_out(index, until, f"PRIMARY KEY of column {column}", "keys stand behind the columns", hint)
        elif word in _LEFT_OUT_OF_COLUMN:
            why, instead = _LEFT_OUT_OF_COLUMN[word]
            is_note = word in _WITHOUT_EFFECT
            table.leave_out(index, until, f"{word} of column {column}", why, instead, is_note=is_note)
        index = max(until, index + 1)


def _replace_uuid_call(table: _Table, start: int, end: int) -> None:
    tokens = table.tokens
    for index in range(start, end - 2):
        is_call = tokens[index + 1].text == "(" and tokens[index + 2].text == ")"
        if is_call and tokens[index].text.lower() == "generateuuidv4":
            table.draft.replace(tokens[index].start, tokens[index + 2].end, UUID_CALL)
            table.draft.find(Difference.NOTE, tokens[index].start, f"{tokens[index].text}() is created as {UUID_CALL}")


# Clauses


def _change_partition_by(table: _Table) -> None:
    clause = table.clause("PARTITION BY")
    if clause is None or clause.inside >= clause.end:
        return
    try:
        cursor = Cursor(table.text(clause))
        parse_partition_by(cursor)
        cursor.end()
    except SqlSyntaxError as error:
        what = f"PARTITION BY {shown(table.text(clause))}"
        at = table.tokens[clause.start].start
        if table.is_keyed:
            why = "rows of one key replace each other within a partition, so that another partition is another key"
            raise table.draft.refused(at, what, why, error.hint) from error
        table.leave_out(clause.start, clause.end, what, "no partition function of Tilth", error.hint)


def _change_order_by(table: _Table) -> None:
    clause = table.clause("ORDER BY")
    if clause is None or clause.inside >= clause.end or _is_key(table.text(clause)):
        return
    tokens = table.tokens
    at = tokens[clause.start].start
    written = shown(table.text(clause))
    why = "rows are sorted by columns, ascending"
    if table.is_keyed:
        raise table.draft.refused(at, f"ORDER BY {written}", f"{why}, and this order is the key", "add a column for it")
    is_tuple = tokens[clause.inside].text == "(" and matching(tokens, clause.inside) == clause.end - 1
    start, end = (clause.inside + 1, clause.end - 1) if is_tuple else (clause.inside, clause.end)
    columns: list[str] = []
    for first, last in split_at_commas(tokens, start, end):
        column = _sort_column(table.draft.text, tokens[first:last])
        if column is None:
            break
        if column not in columns:
            columns.append(column)
    key = f"({', '.join(columns)})" if columns else "tuple()"
    table.draft.replace(tokens[clause.inside].start, tokens[clause.end - 1].end, key)
    what = f"ORDER BY {written} is created as ORDER BY {shown(key)}"
    table.draft.find(Difference.DIFFERS, at, what, why, "store an expression as a column of its own, and sort by that")
    primary = table.clause("PRIMARY KEY")
    if primary is not None:
        what = f"PRIMARY KEY {shown(table.text(primary))}"
        table.leave_out(primary.start, primary.end, what, "the sort key was changed", is_note=True)


def _is_key(text: str) -> bool:
    cursor = Cursor(text)
    try:
        parse_key(cursor, "ORDER BY")
        cursor.end()
    except SqlSyntaxError:
        return False
    return True


def _sort_column(text: str, tokens: Sequence[Token]) -> str | None:
    """Name of the column whose order the element has, as it is written; None: there is none."""
    names = [token for token in tokens if is_name(token)]
    if names and is_word(names[-1], "DESC", "ASC"):
        names, tokens = names[:-1], tokens[:-1]
    if len(tokens) == 1 and names:
        return text[names[0].start : names[0].end]
    is_call = len(tokens) == 4 and len(names) == 2 and tokens[1].text == "("
    if is_call and _MONOTONIC.fullmatch(names[0].text):
        return text[names[1].start : names[1].end]
    return None


def _change_ttl(table: _Table) -> None:
    clause = table.clause("TTL")
    if clause is None:
        return
    tokens = table.tokens
    rules = split_at_commas(tokens, clause.inside, clause.end)
    others = [each for each in rules if any(is_word(token, *_TTL_ACTIONS) for token in tokens[each[0] : each[1]])]
    plain = [each for each in rules if each not in others]
    why = "a TTL of a table removes rows by the age of one column"
    if len(plain) == 1 and others:
        start, end = plain[0]
        table.draft.replace(
            tokens[clause.inside].start,
            tokens[clause.end - 1].end,
            table.draft.text[tokens[start].start : tokens[end - 1].end],
        )
        for first, last in others:
            rule = shown(table.draft.text[tokens[first].start : tokens[last - 1].end])
            table.draft.find(Difference.LEFT_OUT, tokens[first].start, f"TTL {rule}", why, "rows stay where they are")
    elif others or len(plain) != 1 or not _is_ttl(table.text(clause)):
        what = f"TTL {shown(table.text(clause))}"
        instead = "TTL column + INTERVAL 30 DAY; until then rows stay"
        table.leave_out(clause.start, clause.end, what, why, instead)


_TTL = re.compile(
    r"\s*(\w+\s*\(\s*)?(\w+|`[^`]+`|\"[^\"]+\")\s*\)?(\s*\+\s*(interval\s*'?\s*\d+\s*'?\s*\w+'?|tointerval\w+\s*\(\s*\d+\s*\)))?"
    r"(\s+delete)?\s*",
    re.IGNORECASE,
)


def _is_ttl(text: str) -> bool:
    return _TTL.fullmatch(text) is not None


def _change_settings(table: _Table) -> None:
    clause = table.clause("SETTINGS")
    if clause is None:
        return
    known: SettingGroup = KAFKA_TABLE_SETTINGS if _KAFKA_ENGINE.fullmatch(table.engine) else TABLE_SETTINGS
    tokens = table.tokens
    kept: list[str] = []
    pairs = split_at_commas(tokens, clause.inside, clause.end)
    for start, end in pairs:
        written = table.draft.text[tokens[start].start : tokens[end - 1].end]
        if end - start < 3 or tokens[start + 1].text != "=":
            return
        name = name_value(tokens[start]) if tokens[start].kind is not TokenKind.STRING else ""
        why = _why_not(known, name, tokens[start + 2 : end], table.draft.text)
        if not why:
            kept.append(written)
            continue
        if name == _FORMAT:
            reason = "messages in this format are not read"
            hint = "send JSON, as Kafka Connect's converters do, or RawBLOB with a view that reads the bytes"
            raise table.draft.refused(tokens[start].start, shown(written), reason, hint)
        table.draft.find(
            Difference.LEFT_OUT, tokens[start].start, f"setting {shown(_without_secret(name, written))}", *why
        )
    if len(kept) == len(pairs):
        return
    start, end = tokens[clause.start].start, tokens[clause.end - 1].end
    table.draft.replace(start, end, f"SETTINGS {', '.join(kept)}" if kept else "")


def _why_not(known: SettingGroup, name: str, value: Sequence[Token], text: str) -> tuple[str, str] | tuple[()]:
    """Reason and hint for a setting that is not kept; empty: it is kept."""
    if not known.has(name):
        return ("no setting of Tilth", "docs/reference/settings.md lists the settings of tables")
    is_text = len(value) == 1 and value[0].kind is TokenKind.STRING
    given = string_value(value[0]) if is_text else text[value[0].start : value[-1].end]
    try:
        known.find(name).read(given)
    except TilthError as error:
        return (error.message, error.hint or f"leave {name} out, or give it another value")
    return ()


def _without_secret(name: str, written: str) -> str:
    """The setting without a password that it may hold."""
    return f"{name} = .." if re.search("password|secret|key|config", name, re.IGNORECASE) else written
