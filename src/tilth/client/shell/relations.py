"""Tables that a statement names, and their aliases, also while it is typed; the database of a USE. Pure.

Covers: names behind FROM, JOIN, INTO, TABLE and the like, and finding such a table in system tables. Does not cover:
common table expressions, which are names like others here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from tilth.client.script import Piece, PieceKind, pieces

#: Words before the name of a table.
BEFORE_TABLE = frozenset("FROM JOIN INTO UPDATE TABLE VIEW DESCRIBE DESC MERGE MERGES GC FILES VERIFY FLUSH".split())
_BETWEEN = frozenset(("IF", "NOT", "EXISTS", "TABLE", "ONLY"))
_NO_ALIAS = frozenset(
    """
    WHERE GROUP ORDER HAVING LIMIT OFFSET UNION INTERSECT EXCEPT JOIN LEFT RIGHT FULL INNER CROSS SEMI ANTI NATURAL ON
    USING SET VALUES SELECT SETTINGS FORMAT VERSION TIMESTAMP FOR WINDOW LATERAL PREWHERE ADD DROP MODIFY RENAME UPDATE
    DELETE TO ENGINE PARTITION FINAL QUALIFY CLUSTER DISTRIBUTE SORT TABLESAMPLE PIVOT UNPIVOT POLICY
    """.split()
)

#: Database and table.
TablePath = tuple[str, str]


@dataclass(frozen=True, slots=True)
class MentionedName:
    """A name of one or several parts, without quotes."""

    parts: tuple[str, ...]

    def within(self, database: str) -> TablePath:
        """Return database and table; a name without a database is of this one."""
        return (database, self.parts[0]) if len(self.parts) == 1 else (self.parts[-2], self.parts[-1])


@dataclass(frozen=True, slots=True)
class Mentioned:
    """A table that a statement names."""

    path: MentionedName
    #: Empty: it has none.
    alias: str = ""


def is_name(piece: Piece | None) -> bool:
    return piece is not None and (
        piece.kind is PieceKind.WORD or (piece.kind is PieceKind.QUOTED and piece.text[0] in '`"')
    )


def plain(text: str) -> str:
    """Return a name without its quotes."""
    return text[1:-1].replace(text[0] * 2, text[0]) if text[:1] in ("`", '"') else text


def condition(path: TablePath) -> str:
    """Return the condition for the rows of this table in a system table."""
    database, table = ("'" + name.replace("\\", "\\\\").replace("'", "''") + "'" for name in path)
    return f'database = {database} AND "table" = {table}'


def used_database(statement: str) -> str | None:
    """Return the database of a USE; None: it is another statement."""
    # The first words are enough: an INSERT may have much data behind them.
    match list(islice((piece for piece in pieces(statement) if not piece.is_blank and piece.text != ";"), 3)):
        case [use, name] if use.text.upper() == "USE" and is_name(name):
            return plain(name.text)
    return None


def relations(sql: str) -> list[Mentioned]:
    """Return the tables in the order of the text."""
    shown = [piece for piece in pieces(sql) if not piece.is_blank]
    found: list[Mentioned] = []
    at = 0
    while at < len(shown):
        word = _word(shown, at)
        at += 1
        if word not in BEFORE_TABLE:
            continue
        while _word(shown, at) in _BETWEEN:
            at += 1
        at = _read_one(shown, at, found)
        while word == "FROM" and at < len(shown) and shown[at].text == ",":
            at = _read_one(shown, at + 1, found)
    return found


def _read_one(shown: Sequence[Piece], at: int, found: list[Mentioned]) -> int:
    """Read a name with its alias into `found`; return what follows."""
    # The DESC of an ORDER BY names no table.
    if _word(shown, at) in _NO_ALIAS:
        return at
    parts: list[str] = []
    while at < len(shown) and is_name(shown[at]):
        parts.append(plain(shown[at].text))
        at += 1
        if at >= len(shown) or shown[at].text != ".":
            break
        at += 1
    if not parts:
        return at
    if _word(shown, at) == "AS":
        at += 1
    has_alias = at < len(shown) and is_name(shown[at]) and _word(shown, at) not in _NO_ALIAS
    found.append(Mentioned(MentionedName(tuple(parts)), plain(shown[at].text) if has_alias else ""))
    return at + 1 if has_alias else at


def _word(shown: Sequence[Piece], at: int) -> str:
    return shown[at].text.upper() if at < len(shown) and shown[at].kind is PieceKind.WORD else ""
