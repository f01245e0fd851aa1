"""Calls of ClickHouse's functions in Spark's SQL, without `dialect = 'clickhouse'`, and where their answers may differ.

Covers: the rules by which answers differ, at least one call of every function. Does not cover: the table of hostile
values (dialect_cases.py), the comparison (dialect_oracle.py).
Always holds: a call answers as ClickHouse does, or stands under a rule, or is an error.
"""

from __future__ import annotations

#: Rules: what ClickHouse does, and what happens here.
RULES = {
    "fits": (
        "a result that does not fit its type begins at the other end of it; a division by zero is 0 or infinite",
        "it is an error, or has a larger type; `OrNull` and `OrZero` return NULL and 0",
    ),
    "bits": (
        "types without a sign, and literals of 8 bits: `bitNot(1)` is 254",
        "a whole number has a sign, and a literal 32 bits: `bitNot(1)` is -2",
    ),
    "dates": (
        "dates end in 2149 and times in 2106, none is before 1970: others become the nearest one, or begin anew",
        "all years that Spark has; a day that no calendar has is an error, or NULL",
    ),
    "instants": (
        "the beginning of a week, a month, a quarter or a year by `toStartOfInterval` is a Date",
        "it is a TIMESTAMP",
    ),
    "lengths": (
        "`toStartOfInterval` counts weeks from a Monday and days from 1970-01-01",
        "7 days are a week, in whichever unit they are written: whole weeks begin on Mondays",
    ),
    "rows": (
        "an aggregate over no rows is 0, '' or NaN, unless its argument can be NULL",
        "it is NULL, as in Spark; those that end with `If`, `argMin` and `argMax` answer as ClickHouse does where Spark "
        "knows that their argument is never NULL, as of a column that cannot be",
    ),
    "patterns": (
        "regular expressions are those of RE2",
        "they are those of Java: `$` also matches before the last line's end",
    ),
    "conditions": ("a condition is a number: 0 or 1", "it is a BOOLEAN: its text is `true` or `false`"),
}
