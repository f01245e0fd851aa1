"""Spark's errors in Tilth's words: what is wrong, where, and what was meant; never a Java stack. Pure.

Always holds: a TilthError goes through unchanged; positions are those of the text that the user wrote.

Tests: tests/unit/query/test_sql_pure.py, tests/unit/statements/test_sql_answers.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import takewhile

from tilth.base.errors import TilthError
from tilth.clickhouse.dialect import refusal_of
from tilth.clickhouse.dialect_words import refused
from tilth.grammar.errors import SqlSyntaxError, UnsupportedSqlError, line_and_column
from tilth.model.text.quotes import double_quoted
from tilth.query.errors import BadQueryError, QueryFailedError, UnknownColumnError
from tilth.query.language.foreign_clauses import HOW_TO_READ, clause_of
from tilth.warehouse import UnknownFunctionError, memory_loss_in

_MESSAGE_LENGTH_MAX = 600
_POSITION = re.compile(r"[;,]?\s*\(?line (\d+),? pos(?:ition)? (\d+)\)?;?")
#: Token at which Spark's parser gave up; empty: the end of the text.
_AT = re.compile(r"Syntax error at or near (?:end of input|'([^']*)')")
_STATE = re.compile(r"\s*SQLSTATE: [0-9A-Z]{5}")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_NESTED = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] (.+)")
_PLAN_LINE = re.compile(r"\s*('|\+-|:|==|Search path)")
_DOUBLE_QUOTES = "double quotes name columns and tables: put texts in single quotes"
#: Spark's errors for a text with more levels than its parser, or a later stage, can follow.
_TOO_DEEP = ("StackOverflowError", "FAILED_TO_PARSE_TOO_COMPLEX")
_VIEW = re.compile(r"`?__tilth_[0-9a-f]+_\d+`?\.")
#: A table in a part of the sent text that a message repeats.
_VIEW_AS = re.compile(r"`?__tilth_[0-9a-f]+_\d+`?(?:\s+AS\s+(`[^`]+`|\w+))?")
#: Messages of our functions while a query is analyzed (clickhouse/functions/ClickHouseFunctions.java).
_REFUSED_CALL = re.compile(r"refused: ([^\n]+)")
_UNTAKEN = re.compile(r"(clickhouse_)?(\w+?)(?:_of_computed)? does not take these arguments")
_HINTS = {
    "DATATYPE_MISMATCH": "CAST one of both; of a time, subtract an interval: now() - INTERVAL 10 MINUTES",
    "CAST_INVALID_INPUT": "TRY_CAST, or toInt64OrNull and its kin, return NULL instead",
    "CAST_OVERFLOW": "CAST to a larger type, or TRY_CAST, which returns NULL",
    "ARITHMETIC_OVERFLOW": "CAST to a larger type, or use try_add, try_multiply and their kin",
    "DIVIDE_BY_ZERO": "use try_divide, or nullif(x, 0) below the line",
    "UNSUPPORTED_DATATYPE": "use Spark's types: TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, STRING, DATE, TIMESTAMP",
    "MISSING_AGGREGATION": "add the column to GROUP BY, or take any(column)",
    "MISSING_GROUP_BY": "add GROUP BY",
    "AMBIGUOUS_REFERENCE": "put the table's name or alias before the column",
    "INVALID_ARRAY_INDEX": "a[n] counts from 0, and from 1 with SETTINGS dialect = 'clickhouse'; get(a, n) and "
    "try_element_at(a, n) return NULL where there is none",
    "NON_FOLDABLE_ARGUMENT": "extract(field FROM t) takes parts of times: regexp_extract(s, '(a)') is ClickHouse's "
    "extract(s, '(a)'); other functions need a constant there",
    "NUM_COLUMNS_MISMATCH": "give both sides the same columns",
}


def from_spark(
    error: BaseException, original: str, to_original: Callable[[int], int], sent: str, *, is_whole: bool = True
) -> TilthError:
    """The error of a query; `sent` is the text that Spark got, `to_original` maps its positions to the user's.

    Not `is_whole`: the text is an expression of a statement, so that its positions are not the statement's."""
    if isinstance(error, TilthError):
        return error
    memory_loss = memory_loss_in(error)
    if memory_loss is not None:
        return memory_loss
    text = str(error)
    if isinstance(error, RecursionError) or any(word in text for word in _TOO_DEEP):
        return nested_too_deep()
    condition, named = _condition(error), _parameters(error)
    if is_whole and condition.startswith(("PARSE_", "UNSUPPORTED_DATATYPE")):
        refusal, hint = refusal_of(original)
        if refusal:
            line, column = _position_of(text, original, to_original, sent) or (1, 1)
            return UnsupportedSqlError(refusal, line=line, column=column, hint=hint)
    of_types = _of_types(text)
    if of_types is not None:
        return of_types
    message = _message(text)
    where = _position_of(text, original, to_original, sent)
    if condition.startswith("PARSE_"):
        return _unread(message, original, where or (1, 1), is_whole=is_whole)
    facts = {"at": f"{where[0]}:{where[1]}"} if where is not None and is_whole else {}
    if not is_whole:
        facts = {"expression": original}
    if condition.startswith("UNRESOLVED_COLUMN"):
        hint = _DOUBLE_QUOTES if any(double_quoted(original)) else _meant(named.get("proposal", ""))
        return UnknownColumnError(hint=hint, column=_plain(named.get("objectName", "?")), **facts)
    if condition.startswith("UNRESOLVED_ROUTINE"):
        return UnknownFunctionError(function=_plain(named.get("routineName", "?")), **facts)
    if condition or _is_analysis(error):
        return BadQueryError(message, hint=_hint_of(condition), reason=condition or "ANALYSIS", **facts)
    return _runtime_error(text)


def _of_types(text: str) -> TilthError | None:
    """Return the error for a call of a function of ours with values of types that it does not take, if it is one."""
    refusal = _REFUSED_CALL.match(text)
    if refusal is not None:
        return refused(refusal[1], "or write the query in Spark's SQL and leave SETTINGS dialect out")
    untaken = _UNTAKEN.match(text)
    if untaken is None:
        return None
    name = untaken[2].replace("_", " ")
    if untaken[1]:
        return refused(f"{name} of values of these types", "CAST them, or write the query in Spark's SQL")
    return BadQueryError(f"{name} takes no values of these types", hint="CAST them", reason="ARGUMENTS")


def _unread(message: str, original: str, where: tuple[int, int], *, is_whole: bool) -> SqlSyntaxError:
    """Error for a text that Spark's parser does not read; a clause of another system is refused by name."""
    line, column = where
    found = _AT.match(message)
    reason = message
    if found is not None:
        reason = f"at '{found[1]}'" if found[1] else "it ends too soon"
    clause = clause_of(original)
    if not is_whole:
        # Line and column are counted in the expression.
        hint = clause[1] if clause is not None else "expressions are those of Spark's SQL"
        return SqlSyntaxError(
            f"the expression cannot be read: {reason}", line=line, column=column, expression=original, hint=hint
        )
    if clause is not None:
        return UnsupportedSqlError(f"{clause[0]} is not supported", line=line, column=column, hint=clause[1])
    return SqlSyntaxError(f"the query cannot be read: {reason}", line=line, column=column, hint=HOW_TO_READ)


def _hint_of(condition: str) -> str:
    return next((hint for start, hint in _HINTS.items() if condition.startswith(start)), "")


def nested_too_deep() -> BadQueryError:
    """Error for a statement with thousands of brackets or operators."""
    hint = "write it with fewer brackets and operators, for instance a list behind IN"
    return BadQueryError("the statement is nested too deep", hint=hint)


def _runtime_error(text: str) -> TilthError:
    """Error without a condition of its own: a failed job, whose reason is somewhere in the text."""
    nested = _NESTED.search(text)
    if nested is not None and nested[1] not in ("FAILED_READ_FILE", "INTERNAL_ERROR"):
        message = _VIEW_AS.sub(lambda found: found[1] or "the table", _STATE.sub("", nested[2]))
        return BadQueryError(_shortened(message.split(" == SQL")[0]), hint=_hint_of(nested[1]), reason=nested[1])
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("Caused by:")]
    return QueryFailedError(_shortened((causes or lines or ["Spark gave no reason"])[-1 if causes else 0]))


def _condition(error: BaseException) -> str:
    get = getattr(error, "getCondition", None)
    return str((get() if get is not None else None) or "")


def _parameters(error: BaseException) -> Mapping[str, str]:
    get = getattr(error, "getMessageParameters", None)
    return (get() if get is not None else None) or {}


def _is_analysis(error: BaseException) -> bool:
    return any(cls.__name__ == "AnalysisException" for cls in type(error).__mro__)


def _message(text: str) -> str:
    """The first sentence or two, without Spark's codes, plans and positions."""
    first = text.strip().split("\n\n")[0]
    lines = list(takewhile(lambda line: not line.startswith("== SQL"), first.splitlines()))
    kept = lines[:1] + [line for line in lines[1:] if not _PLAN_LINE.match(line)]
    cleaned = _STATE.sub("", _CONDITION.sub("", " ".join(kept).strip()))
    cleaned = _VIEW_AS.sub(lambda found: found[1] or "the table", _VIEW.sub("", _POSITION.sub("", cleaned)))
    return _shortened(cleaned.split(" == SQL")[0].strip(" ;."))


def _position_of(text: str, original: str, to_original: Callable[[int], int], sent: str) -> tuple[int, int] | None:
    """Line and column in the user's text, both counted from 1."""
    found = _POSITION.search(text)
    lines = sent.splitlines(keepends=True)
    if found is None or int(found[1]) > len(lines):
        return None
    offset = sum(map(len, lines[: int(found[1]) - 1])) + int(found[2])
    return line_and_column(original, min(to_original(offset), len(original)))


def _meant(proposal: str) -> str:
    names = _plain(proposal)
    return f"did you mean one of: {names}?" if names else ""


def _plain(name: str) -> str:
    return _VIEW.sub("", name).replace("`", "")


def _shortened(text: str) -> str:
    return text if len(text) <= _MESSAGE_LENGTH_MAX else text[: _MESSAGE_LENGTH_MAX - 3] + "..."
