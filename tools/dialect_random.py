"""Random expressions and queries of ClickHouse's dialect over the table of dialect_cases.py, from a seed.

Covers: expressions of the listed functions, nested, of fitting types; queries with conditions, groups and orders. Does
not cover: the comparison (dialect_oracle.py). Always holds: a seed gives the same texts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import StrEnum

DEPTH_MAX = 3


class Wanted(StrEnum):
    WHOLE = "whole"
    FLOAT = "float"
    TEXT = "text"
    DAY = "day"
    TIME = "time"
    TEST = "test"


_LEAVES = {
    Wanted.WHOLE: "n i8 i32 id 0 1 -1 7 100 255",
    Wanted.FLOAT: "f g 0.5 -1.5 2.5 1e10",
    Wanted.TEXT: "s w '' 'a' 'äb' 'Hello' '%_'",
    Wanted.DAY: "d toDate('2026-01-04') toDate('2024-02-29')",
    Wanted.TIME: "t u toDateTime('2026-03-29_01:30:00') toDateTime('2024-12-31_23:59:59')",
    Wanted.TEST: "isNull(s) isNotNull(f) empty(w)",
}
#: Templates: `{whole}` is an expression of that type.
_TEMPLATES = {
    Wanted.WHOLE: """
({whole} + {whole}) ({whole} - {whole}) ({whole} * {whole}) ({whole} % 7) intDiv({whole}, 3) abs({whole}) sign({whole})
if({test}, {whole}, {whole}) coalesce({whole}, {whole}) ifNull({whole}, {whole}) nullIf({whole}, {whole})
length({text}) lengthUTF8({text}) position({text}, {text}) toYear({day}) toMonth({time}) toDayOfMonth({day})
toDayOfWeek({day}) toDayOfYear({time}) toISOWeek({day}) toHour({time}) toMinute({time}) toSecond({time})
toYYYYMM({time}) toYYYYMMDD({day}) toUnixTimestamp({time}) dateDiff('day',{day},{time}) dateDiff('hour',{time},{time})
dateDiff('month',{day},{day}) toInt32OrZero({text}) toInt64OrNull({text}) bitAnd({whole}, 12) bitOr({whole}, 1)
({day} - {day}) multiIf({test}, {whole}, {test}, {whole}, {whole}) toInt64({whole}) [{whole}, {whole}][1]
indexOf([{whole}, 1], 1) length([{whole}, {whole}]) round({whole}) toQuarter({day}) toISOYear({day})
""",
    Wanted.FLOAT: """
({whole} / {whole}) ({float} + {float}) ({float} - {float}) ({float} * {float}) sqrt({float}) exp({float}) log({float})
log2({float}) log10({float}) floor({float}) ceil({float}) round({float}) abs({float}) toFloat64({whole})
if({test}, {float}, {float}) coalesce({float}, {float}) pow({float}, 2) atan({float}) sin({whole})
""",
    Wanted.TEXT: """
concat({text}, {text}) ({text} || {text}) lower({text}) upper({text}) lowerUTF8({text}) upperUTF8({text})
trimBoth({text}) trimLeft({text}) replaceAll({text}, 'a', 'bc') replaceOne({text}, 'l', '') reverseUTF8({text})
toString({whole}) toString({day}) toString({time}) if({test}, {text}, {text}) coalesce({text}, {text})
substring({text}, 1) base64Encode({text}) formatDateTime({time}, '%Y-%m-%d') repeat({text}, 2) nullIf({text}, {text})
""",
    Wanted.DAY: """
toDate({time}) addDays({day}, 3) addMonths({day}, 1) addYears({day}, 1) toMonday({day}) toStartOfMonth({time})
toStartOfQuarter({day}) toStartOfYear({time}) toStartOfWeek({time}) toLastDayOfMonth({day}) subtractDays({day}, 2)
if({test}, {day}, {day}) coalesce({day}, {day})
""",
    Wanted.TIME: """
toDateTime({time}) addHours({time}, 5) addMinutes({time}, -7) addDays({time}, 1) addMonths({time}, 1)
toStartOfHour({time}) toStartOfDay({time}) toStartOfMinute({time}) toStartOfFifteenMinutes({time})
subtractSeconds({time}, 1) if({test}, {time}, {time}) coalesce({time}, {time}) ({time} + INTERVAL_1_DAY)
""",
    Wanted.TEST: """
({whole} = {whole}) ({whole} > {whole}) ({whole} <= 3) ({float} > {float}) ({float} = {float}) ({float} <> {float})
({float} >= 1.5) ({text} = {text}) ({text} < {text}) ({text} LIKE '%a%') ({text} IN ('a','ABC')) ({day} > {day})
({time} = {time}) ({whole} IN (1,7,NULL)) ({whole} NOT IN (1,NULL)) ({whole} BETWEEN -1 AND 7) ({test} AND {test})
({test} OR {test}) (NOT {test}) isNull({whole}) isNotNull({text}) startsWith({text}, {text}) endsWith({text}, 'c')
has([{whole}, 1], {whole}) isNaN({float}) notEmpty({text})
""",
}


def expression(draw: random.Random, wanted: Wanted | None = None, depth: int = DEPTH_MAX) -> str:
    wanted = wanted or draw.choice(list(Wanted))
    if depth == 0 or draw.random() < 0.15:
        return draw.choice(_LEAVES[wanted].split()).replace("_0", " 0").replace("_2", " 2")
    text = draw.choice(_templates(wanted))
    return _filled(text, lambda kind: expression(draw, kind, depth - 1))


def query(draw: random.Random) -> str:
    """Return a query of groups, or of rows; the order of its rows is fixed."""
    if draw.random() < 0.5:
        aggregates = ["count()", "uniqExact({whole})", "sum({whole})", "min({whole})", "max({text})", "countIf({test})"]
        aggregates += ["min({float})", "max({time})", "sumIf({whole}, {test})", "min({day})", "argMax(w, id)"]
        chosen = ", ".join(f"{each} AS a{index}" for index, each in enumerate(draw.sample(aggregates, 3)))
        text = f"SELECT {{test}} AS k, {chosen} FROM h WHERE {{test}} GROUP BY k ORDER BY k"
        if draw.random() < 0.4:
            text = f"SELECT {chosen} FROM h WHERE {{test}}"
    else:
        order = draw.choice(["", "DESC"])
        text = f"SELECT id, {{whole}} AS x, {{text}} AS y FROM h WHERE {{test}} ORDER BY x {order}, id LIMIT 5"
    return _filled(text, lambda kind: expression(draw, kind, 2))


def _templates(wanted: Wanted) -> list[str]:
    """A template has blanks after commas and around operators: it ends where its parentheses do."""
    found, begin, depth = [], 0, 0
    text = _TEMPLATES[wanted].replace("\n", " ").strip() + " "
    for index, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == " " and depth == 0:
            found.append(text[begin:index])
            begin = index + 1
    return [each.replace("INTERVAL_1_DAY", "INTERVAL 1 DAY") for each in found if each]


def _filled(text: str, made: Callable[[Wanted], str]) -> str:
    for kind in Wanted:
        while f"{{{kind}}}" in text:
            text = text.replace(f"{{{kind}}}", made(kind), 1)
    return text
