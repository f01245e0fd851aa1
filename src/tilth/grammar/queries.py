"""Queries: Spark's text, with the FORMAT and SETTINGS behind it. Pure."""

from __future__ import annotations

from tilth.grammar.literals import parse_settings
from tilth.grammar.statements import CreateView, InsertQuery, Query, SettingTexts, Statement
from tilth.grammar.text.cursor import Cursor
from tilth.grammar.text.tokens import Token, TokenKind

#: First words of a query; a bracket is possible, too.
QUERY_WORDS = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")
#: Words before a FORMAT or SETTINGS that is a name and not a clause: `FROM format x`.
_NAME_FOLLOWS_TEXT = "FROM JOIN AS SELECT WHERE BY ON USING AND OR NOT IN LIKE UPDATE INTO TABLE DISTINCT"
_NAME_FOLLOWS = frozenset(_NAME_FOLLOWS_TEXT.split())
_EXPLAIN_REFUSED = ("SYNTAX", "TABLE")
#: Words behind EXPLAIN that are understood: keywords of Spark, and first words of statements that it reads.
_EXPLAIN_WORDS = (
    *("EXTENDED", "FORMATTED", "CODEGEN", "COST", "LOGICAL", *QUERY_WORDS),
    *(
        "ALTER",
        "CREATE",
        "DELETE",
        "DESC",
        "DESCRIBE",
        "DROP",
        "INSERT",
        "MERGE",
        "SET",
        "SHOW",
        "TRUNCATE",
        "UPDATE",
        "USE",
    ),
)


def parse_query(cursor: Cursor) -> Query:
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


def parse_explain(cursor: Cursor) -> Query:
    """Read a query behind EXPLAIN, whose plan is Spark's."""
    hint = "EXPLAIN SELECT .. shows Spark's plan, EXPLAIN MERGE t and EXPLAIN GC t what the background does"
    if cursor.is_name() and cursor.is_symbol("=", 1):
        raise cursor.refused("settings of EXPLAIN are not supported", hint=hint)
    word = cursor.peek().text.upper()
    if word in _EXPLAIN_REFUSED or (cursor.is_name() and word not in _EXPLAIN_WORDS):
        raise cursor.refused(f"EXPLAIN {word} is not supported", hint=hint)
    return parse_query(cursor)


def select_of(statement: Statement) -> str:
    """Return the SELECT of a query, of an INSERT .. SELECT or of a view; empty: there is none."""
    match statement:
        case Query(text=text):
            return text
        case InsertQuery(query=query):
            return query
        case CreateView(select=select):
            return select
        case _:
            return ""
