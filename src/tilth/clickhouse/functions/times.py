"""ClickHouse's functions of times as Spark expressions: starts of intervals, addition, differences, formatting.

Covers: toStartOfInterval, addDays and the like, dateDiff, dateName, formatDateTime. Does not cover: parts of times
(functions.py), times in the dialect, which end in 2106 there (exact.py).
Always holds: what ClickHouse computes otherwise is an error that says what to write.

Tests: tests/unit/clickhouse/functions/test_functions.py.
"""

from __future__ import annotations

from tilth.clickhouse.functions.variants import ArgumentKind, Lines, literal, raised

_ANY, _DATE = ArgumentKind.ANY, ArgumentKind.DATE
_TIMESTAMP = "CAST($1 AS TIMESTAMP)"
_DAY = "CAST($1 AS DATE)"
_MONTHS = {"Month": 1, "Quarter": 3, "Year": 12}
_DAYS = {"Day": 1, "Week": 7}
_SECONDS = {"Second": 1, "Minute": 60, "Hour": 3600}
#: Java's pattern letters by ClickHouse's.
_FORMAT_LETTERS = {
    "Y": "yyyy",
    "m": "MM",
    "c": "MM",
    "d": "dd",
    "e": "d",
    "D": "MM/dd/yy",
    "H": "HH",
    "k": "HH",
    "i": "mm",
    "S": "ss",
    "s": "ss",
    "y": "yy",
    "F": "yyyy-MM-dd",
    "T": "HH:mm:ss",
    "R": "HH:mm",
    "r": "hh:mm a",
    "j": "DDD",
    "Q": "Q",
    "I": "hh",
    "h": "hh",
    "l": "hh",
    "p": "a",
    "a": "EEE",
    "W": "EEEE",
    "b": "MMM",
    "M": "MMMM",
    "f": "SSSSSS",
}
#: Part of the error for pattern letters that Java lacks: the functions that return the same.
_FORMAT_REFUSED = "toISOWeek, toISOYear and toDayOfWeek return what %V, %G, %u and %w mean"
_NAMES = {
    "year": "CAST(year({0}) AS STRING)",
    "quarter": "CAST(quarter({0}) AS STRING)",
    "month": "date_format({0}, 'MMMM')",
    "week": "CAST(weekofyear({0}) AS STRING)",
    "dayofyear": "CAST(dayofyear({0}) AS STRING)",
    "day": "CAST(dayofmonth({0}) AS STRING)",
    "weekday": "date_format({0}, 'EEEE')",
    "hour": "CAST(hour({0}) AS STRING)",
    "minute": "CAST(minute({0}) AS STRING)",
    "second": "CAST(CAST(second({0}) AS INT) AS STRING)",
}


def time_functions() -> Lines:
    yield from _starts()
    yield from _interval_starts()
    yield from _steps()
    yield "formatDateTime", (_ANY, _ANY), _formatted()
    yield "dateName", (_ANY, _ANY), _named()
    # Calls of `dateDiff` and `date_diff` with a text as unit are parsed as calls of these, because Spark has functions
    # of those names.
    for name in ("unitDiff", "unit_diff"):
        yield name, (_ANY, _ANY, _ANY), _unit_diff()


def _starts() -> Lines:
    for name, minutes in (("Five", 5), ("Ten", 10), ("Fifteen", 15)):
        start = _whole_lengths(str(minutes * 60))
        yield f"toStartOf{name}Minutes", (_ANY,), start
        if name == "Five":
            yield "toStartOfFiveMinute", (_ANY,), start


def _whole_lengths(seconds: str) -> str:
    """Return SQL that rounds the time down to a multiple of so many seconds since 1970 in UTC."""
    return f"timestamp_seconds(unix_seconds({_TIMESTAMP}) - pmod(unix_seconds({_TIMESTAMP}), {seconds}))"


def _interval_starts() -> Lines:
    """Yield the variants of toStartOfInterval; an interval of 7 days may have been written as a week."""
    wrong = raised("toStartOfInterval takes whole seconds above 0", "TIMESTAMP")
    hours = "write hours that divide a day, or whole days"
    uneven = raised(f"toStartOfInterval of hours that a day is no multiple of: {hours}", "TIMESTAMP")
    parts = (("DAY", 86400), ("HOUR", 3600), ("MINUTE", 60))
    interval = "CAST($2 AS INTERVAL DAY TO SECOND)"
    length = " + ".join(f"date_part('{part}', {interval}) * {size}L" for part, size in parts)
    second = f"date_part('SECOND', {interval})"
    length = f"({length} + CAST({second} AS BIGINT))"
    days = f"({length} div 86400)"
    origin = f"CASE WHEN {days} % 7 = 0 THEN 4 ELSE 0 END"
    start = f"date_sub({_DAY}, CAST(pmod(unix_date({_DAY}) - {origin}, {days}) AS INT))"
    local = raised("toStartOfInterval of several hours in another zone than UTC: use toStartOfHour", "TIMESTAMP")
    is_utc = "current_timezone() IN ('UTC', 'Etc/UTC', 'GMT', 'Z', '+00:00')"
    yield (
        "toStartOfInterval",
        (_ANY, ArgumentKind.DAYS),
        f"CASE WHEN $2 IS NULL THEN CAST(NULL AS TIMESTAMP) "
        f"WHEN {length} <= 0 OR {second} <> floor({second}) THEN {wrong} "
        f"WHEN {length} % 86400 = 0 THEN CAST({start} AS TIMESTAMP) "
        f"WHEN {length} = 3600 THEN date_trunc('HOUR', {_TIMESTAMP}) "
        f"WHEN {length} % 3600 <> 0 THEN {_whole_lengths(length)} WHEN 86400 % {length} <> 0 THEN {uneven} "
        f"WHEN {is_utc} THEN {_whole_lengths(length)} ELSE {local} END",
    )
    interval = "CAST($2 AS INTERVAL YEAR TO MONTH)"
    months = f"(date_part('YEAR', {interval}) * 12 + date_part('MONTH', {interval}))"
    wrong = raised("toStartOfInterval takes months above 0", "TIMESTAMP")
    years = raised(
        "toStartOfInterval of these years, which are not counted as their months are: use toYear", "TIMESTAMP"
    )
    month = f"((year({_DAY}) - 1900) * 12 + month({_DAY}) - 1)"
    start = f"add_months(DATE'1900-01-01', CAST({month} - pmod({month}, {months}) AS INT))"
    yield (
        "toStartOfInterval",
        (_ANY, ArgumentKind.MONTHS),
        f"CASE WHEN $2 IS NULL THEN CAST(NULL AS TIMESTAMP) WHEN {months} <= 0 THEN {wrong} "
        f"WHEN {months} % 12 = 0 AND 1900 % nullif({months} div 12, 0) <> 0 THEN {years} "
        f"ELSE CAST({start} AS TIMESTAMP) END",
    )


def _steps() -> Lines:
    for verb, sign in (("add", ""), ("subtract", "-")):
        number = f"{sign}CAST($2 AS INT)"
        for unit, months in _MONTHS.items():
            yield f"{verb}{unit}s", (_DATE, _ANY), f"add_months($1, {number} * {months})"
            yield f"{verb}{unit}s", (_ANY, _ANY), f"{_TIMESTAMP} + make_ym_interval(0, {number} * {months})"
        for unit, days in _DAYS.items():
            yield f"{verb}{unit}s", (_DATE, _ANY), f"date_add($1, {number} * {days})"
            # A day of the calendar may have 23 or 25 hours.
            yield f"{verb}{unit}s", (_ANY, _ANY), f"{_TIMESTAMP} + make_interval(0, 0, 0, {number} * {days})"
        for unit, seconds in _SECONDS.items():
            # Seconds are added as microseconds: an interval of 24 hours would be a day of the calendar to Spark.
            micros = f"{sign}CAST($2 AS BIGINT) * {seconds * 1_000_000}"
            yield f"{verb}{unit}s", (_ANY, _ANY), f"timestamp_micros(unix_micros({_TIMESTAMP}) + {micros})"
    for unit, months in _MONTHS.items():
        yield f"toInterval{unit}", (_ANY,), f"make_ym_interval(0, CAST($1 AS INT) * {months})"
    for unit, seconds in (*_SECONDS.items(), ("Day", 86400), ("Week", 7 * 86400)):
        yield f"toInterval{unit}", (_ANY,), f"make_dt_interval(0, 0, 0, CAST($1 AS BIGINT) * {seconds})"


def _formatted() -> str:
    """Return SQL with Java's pattern for ClickHouse's: literals are quoted, and `[]` separates equal letters."""
    letters = "".join(_FORMAT_LETTERS)
    # The references to the regular expression's groups are built with chr(36): a `$1` is the first argument here.
    groups = "chr(36) || '1''' || chr(36) || '2'''"
    meant = r"\G((?:%.)*+)([^%]+)"
    # chr(1) stands for %% until all other letters are replaced.
    text = "replace(replace($2, '''', ''''''), '%%', chr(1))"
    pattern = f"regexp_replace({text}, {literal(meant)}, {groups})"
    for written, java in _FORMAT_LETTERS.items():
        pattern = f"replace({pattern}, '%{written}', '{java}[]')"
    pattern = f"replace({pattern}, chr(1), '%')"
    wrong = raised(f"formatDateTime takes %% and % before one of {letters}; {_FORMAT_REFUSED}")
    is_known = f"$2 RLIKE {literal(f'(?s)^(?:[^%]|%[%{letters}])*+$')}"
    return f"CASE WHEN NOT {is_known} THEN {wrong} ELSE date_format({_TIMESTAMP}, {pattern}) END"


def _named() -> str:
    cases = " ".join(f"WHEN '{part}' THEN {name.format('CAST($2 AS TIMESTAMP)')}" for part, name in _NAMES.items())
    wrong = raised(f"dateName takes one of {', '.join(_NAMES)}")
    return f"CASE WHEN $1 IS NOT NULL THEN CASE $1 {cases} ELSE {wrong} END END"


def _unit_diff() -> str:
    """Return SQL that counts the starts of units between two times; Spark's functions count complete units."""
    from_, to = "CAST($2 AS TIMESTAMP)", "CAST($3 AS TIMESTAMP)"

    def seconds(unit: str, size: int) -> str:
        begin, end = (f"unix_seconds(date_trunc('{unit}', {time}))" for time in (from_, to))
        return f"({end} - {begin}) div {size}"

    def months(size: int) -> str:
        begin, end = (f"(year({time}) * 12 + month({time}) - 1) div {size}" for time in (from_, to))
        return f"CAST({end} - {begin} AS BIGINT)"

    days = "CAST(datediff({1}, {0}) AS BIGINT)"
    weeks = f"datediff(trunc(CAST({to} AS DATE), 'WEEK'), trunc(CAST({from_} AS DATE), 'WEEK')) div 7"
    cases = {
        "'second', 's', 'ss'": seconds("SECOND", 1),
        "'minute', 'mi', 'n'": seconds("MINUTE", 60),
        "'hour', 'h', 'hh'": seconds("HOUR", 3600),
        "'day', 'd', 'dd'": days.format(f"CAST({from_} AS DATE)", f"CAST({to} AS DATE)"),
        "'week', 'wk', 'ww'": f"CAST({weeks} AS BIGINT)",
        "'month', 'm', 'mm'": months(1),
        "'quarter', 'q', 'qq'": months(3),
        "'year', 'yy', 'yyyy'": months(12),
    }
    whens = " ".join(f"WHEN lower($1) IN ({words}) THEN {value}" for words, value in cases.items())
    return f"CASE {whens} ELSE CAST(raise_error('no such unit of time: ' || $1) AS BIGINT) END"
