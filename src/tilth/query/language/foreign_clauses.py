"""Clauses of other systems' SELECT that Spark does not read, or reads as something else. Pure.

Covers: queries in Spark's SQL. Does not cover: queries in ClickHouse's dialect (clickhouse/dialect.py), statements that
are no query (grammar). Always holds: a keyword that changes the answer elsewhere, and that Spark would read as an
alias, is refused before anything runs; all others are named only when Spark has failed.
"""

from __future__ import annotations

import re

from tilth.grammar.errors import unsupported
from tilth.grammar.queries import select_of
from tilth.grammar.statements import Statement
from tilth.grammar.text.tokens import Token, TokenKind, next_token

_DIALECT = "SETTINGS dialect = 'clickhouse' at the query's end reads ClickHouse's SELECT"
_WINDOW = "number the rows: row_number() OVER (PARTITION BY .. ORDER BY ..) = 1 in QUALIFY"
#: Keywords between a table and its JOIN that Spark reads as the table's alias.
_JOINS = {
    "ANY": f"Spark would join all matches. Use LEFT SEMI JOIN, or {_WINDOW}",
    "ASOF": f"Spark would join without order. JOIN ON a.t >= b.t, and {_WINDOW}",
    "ARRAY": f"use LATERAL VIEW explode(column) t AS item, or {_DIALECT}",
    "PASTE": "Spark would join all rows with all. Number the rows of both by row_number(), and join by the number",
    "GLOBAL": "leave it out: every worker reads all tables",
    "ALL": "leave it out: a JOIN gives all matches",
}
_JOIN_WORDS = frozenset(("LEFT", "RIGHT", "INNER", "FULL", "OUTER", "SEMI", "ANTI", "CROSS", "ANY", "ALL", "ASOF"))
#: Last token of a table, if it is no bracket: a name, or the version or time of AS OF.
_ENDS_OF_TABLES = (TokenKind.QUOTED, TokenKind.WORD, TokenKind.NUMBER, TokenKind.STRING)
#: Keywords that a name follows.
_NAME_FOLLOWS = frozenset(("AS", "FROM", "JOIN", "SELECT", "BY", "ON", "AND", "OR", "NOT", "WHERE", "HAVING", "CASE"))
#: Clauses of other systems: pattern, name, hint.
_CLAUSES: tuple[tuple[str, str, str], ...] = (
    (r"\bWITH\s+FILL\b", "WITH FILL", "join a sequence: explode(sequence(first, last, step))"),
    (r"\bINTERPOLATE\b", "INTERPOLATE", "use last_value(x, true) OVER (ORDER BY t)"),
    (r"\bWITH\s+TIES\b", "WITH TIES", "use rank() OVER (ORDER BY ..) <= n in QUALIFY"),
    (r"\bFETCH\s+(FIRST|NEXT)\b", "FETCH", "write LIMIT n OFFSET m"),
    (r"\bOFFSET\s+\d+\s+ROWS?\b", "OFFSET .. ROWS", "write LIMIT n OFFSET m"),
    (r"\bSELECT\s+TOP\s*\(?\d", "TOP", "write LIMIT n at the end"),
    (r"\*\s*REPLACE\s*\(", "* REPLACE", f"write * EXCEPT (a), f(a) AS a; or {_DIALECT}"),
    (r"\bAPPLY\s*\(?\s*\w", "APPLY", "write the function around each column"),
    (r"\b(LEFT|RIGHT|INNER|FULL)\s+(ANY|ASOF|ALL)\s+JOIN\b", "ANY, ALL or ASOF JOIN", _JOINS["ANY"]),
    (r"\b(ANY|ASOF|PASTE)\s+(\w+\s+){0,2}JOIN\b", "ANY, ASOF or PASTE JOIN", _JOINS["ANY"]),
    (r"\b(LEFT\s+)?ARRAY\s+JOIN\b", "ARRAY JOIN", _JOINS["ARRAY"]),
    (r"\b(SEMI|ANTI)\s+(LEFT|RIGHT)\s+JOIN\b", "SEMI LEFT JOIN", "write LEFT SEMI JOIN or LEFT ANTI JOIN"),
    (r"\bSTRAIGHT_JOIN\b", "STRAIGHT_JOIN", "write JOIN: the order is chosen by itself"),
    (r"\bGLOBAL\s+(NOT\s+)?IN\b", "GLOBAL IN", "leave GLOBAL out: every worker reads all tables"),
    (r"\bWITH\s+TOTALS\b", "WITH TOTALS", "use GROUP BY .. WITH ROLLUP"),
    (r"\bLIMIT\s+\d+(\s*,\s*\d+)?\s+BY\b", "LIMIT BY", f"{_DIALECT}; or {_WINDOW}"),
    (r"\bPREWHERE\b", "PREWHERE", "write WHERE: conditions are pushed into the scan by themselves"),
    (r"\bSAMPLE\s+[\d.]", "SAMPLE", "write FROM t TABLESAMPLE (10 PERCENT)"),
    (r"\bBUCKETS?\s+\d", "BUCKET", "leave it out"),
    (r"\bFOR\s+(UPDATE|SHARE)\b", "FOR UPDATE", "leave it out: a query reads one snapshot and locks nothing"),
    (r"\bUSE\s+INDEX\b|\bFORCE\s+INDEX\b", "an index hint", "leave it out: there are no indexes"),
    (r"@@?\w", "variables", "put the value itself into the statement; SHOW SETTINGS lists the settings"),
    (r"\{\w+\s*:\s*\w", "query parameters", "put the value itself into the statement"),
    (r"\bCONNECT\s+BY\b", "CONNECT BY", "use WITH RECURSIVE"),
    (
        r"\bINTO\s+(DUMPFILE|@|OUTFILE)",
        "INTO",
        "the client writes files: tilth sql -c 'SELECT ..' --format csv > x.csv",
    ),
    (r"\bFORMAT\s+\w+\s*$", "FORMAT", "FORMAT stands at the end of a SELECT of its own"),
    (r"\bON\s+CLUSTER\b", "ON CLUSTER", "leave it out: every server sees the one catalog"),
    (r"\bGROUPING\s+SETS\s*\(\s*\)", "empty GROUPING SETS", "leave them out"),
    (r"\bMATCH_RECOGNIZE\b", "MATCH_RECOGNIZE", "use window functions"),
    (r"\bSETTINGS\b", "SETTINGS inside of a query", "write SETTINGS at the end of the statement"),
)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), name, hint) for pattern, name, hint in _CLAUSES)
#: Pairs of patterns; a query that `check_select` refuses has both of a pair.
_SUSPECTED = tuple(
    tuple(re.compile(pattern, re.IGNORECASE) for pattern in pair)
    for pair in ((r"\bJOIN\b", rf"\b(?:{'|'.join(_JOINS)})\b"), (r"\bDISTINCT\b", r"\bON\b"))
)
_TEXTS = re.compile(r"'(?:[^'\\]|\\.|'')*+'|`[^`]*`|--[^\n]*", re.DOTALL)
HOW_TO_READ = f"queries are Spark's SQL; {_DIALECT}"


def check_select(statement: Statement) -> None:
    """Raises UnsupportedSqlError for a clause that Spark would read as an alias or a function."""
    select = select_of(statement)
    # Reading a long query token by token takes longer than parsing it.
    if not any(all(pattern.search(select) for pattern in pair) for pair in _SUSPECTED):
        return
    tokens = _tokens(select)
    for at, token in enumerate(tokens):
        word = token.text.upper()
        if token.kind is TokenKind.WORD and word in _JOINS and _is_join(tokens, at):
            raise unsupported(f"{word} JOIN is not supported", select, token.start, hint=_JOINS[word])
        if word == "DISTINCT" and [each.text.upper() for each in tokens[at + 1 : at + 3]] == ["ON", "("]:
            raise unsupported("DISTINCT ON is not supported", select, token.start, hint=f"{_WINDOW}; or {_DIALECT}")


def clause_of(text: str) -> tuple[str, str] | None:
    """Return the first clause of another system in a query that Spark could not read, and what to write instead."""
    plain = _TEXTS.sub(lambda found: " " if found[0].startswith("--") else "x", text)
    return next(((name, hint) for pattern, name, hint in _COMPILED if pattern.search(plain)), None)


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    position = 0
    while (token := next_token(text, position)).kind is not TokenKind.END:
        tokens.append(token)
        position = token.end
    return tokens


def _is_join(tokens: list[Token], at: int) -> bool:
    """True if the word stands between a table and JOIN."""
    if at == 0:
        return False
    before = tokens[at - 1]
    if (before.text != ")" and before.kind not in _ENDS_OF_TABLES) or before.text.upper() in _NAME_FOLLOWS:
        return False
    following = at + 1
    while following < len(tokens) and tokens[following].text.upper() in _JOIN_WORDS:
        following += 1
    return following < len(tokens) and tokens[following].text.upper() == "JOIN"
