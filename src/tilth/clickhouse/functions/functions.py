"""ClickHouse's functions as Spark SQL expressions.

Covers: which functions there are, the expression that each one stands for. Does not cover: registering them in the JVM
(registry.py), functions that Spark has under the same name, what differs from ClickHouse and is
exact in its dialect only (exact.py), queries in that dialect (clickhouse/dialect.py).
Always holds: an expression consists of allowed functions only; a name that Spark has too is extended, never changed:
what worked before returns the same.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.clickhouse.functions.exact import exact_functions
from tilth.clickhouse.functions.variants import ArgumentKind, Variant

_ANY, _NUMBER, _TEXT, _DATE = ArgumentKind.ANY, ArgumentKind.NUMBER, ArgumentKind.TEXT, ArgumentKind.DATE

_TIMESTAMP = "CAST($1 AS TIMESTAMP)"
_DAY = "CAST($1 AS DATE)"

#: Expressions by name, for arguments of any type; several expressions differ in the number of arguments.
_PLAIN: dict[str, str | tuple[str, ...]] = {
    # Conversions.
    "toString": "CAST($1 AS STRING)",
    "toBool": "CAST($1 AS BOOLEAN)",
    "toFloat32": "CAST($1 AS FLOAT)",
    "toFloat64": "CAST($1 AS DOUBLE)",
    "toFloat32OrZero": "COALESCE(TRY_CAST($1 AS FLOAT), CAST(0 AS FLOAT))",
    "toFloat64OrZero": "COALESCE(TRY_CAST($1 AS DOUBLE), 0D)",
    "toFloat32OrNull": "TRY_CAST($1 AS FLOAT)",
    "toFloat64OrNull": "TRY_CAST($1 AS DOUBLE)",
    "toDateOrNull": "TRY_CAST($1 AS DATE)",
    "toDateTimeOrNull": "TRY_CAST($1 AS TIMESTAMP)",
    "toTypeName": "typeof($1)",
    # Parts of times.
    "toYear": f"year({_DAY})",
    "toQuarter": f"quarter({_DAY})",
    "toMonth": f"month({_DAY})",
    "toDayOfMonth": f"dayofmonth({_DAY})",
    "toDayOfWeek": f"weekday({_DAY}) + 1",
    "toDayOfYear": f"dayofyear({_DAY})",
    "toISOWeek": f"weekofyear({_DAY})",
    "toISOYear": f"date_part('YEAROFWEEK', {_DAY})",
    "toHour": f"hour({_TIMESTAMP})",
    "toMinute": f"minute({_TIMESTAMP})",
    "toSecond": f"CAST(second({_TIMESTAMP}) AS INT)",
    "toYYYYMM": f"year({_DAY}) * 100 + month({_DAY})",
    "toYYYYMMDD": f"year({_DAY}) * 10000 + month({_DAY}) * 100 + dayofmonth({_DAY})",
    "toYYYYMMDDhhmmss": f"CAST(date_format({_TIMESTAMP}, 'yyyyMMddHHmmss') AS BIGINT)",
    "toUnixTimestamp": f"unix_seconds({_TIMESTAMP})",
    "toUnixTimestamp64Milli": f"unix_millis({_TIMESTAMP})",
    "toUnixTimestamp64Micro": f"unix_micros({_TIMESTAMP})",
    "fromUnixTimestamp": "timestamp_seconds($1)",
    "fromUnixTimestamp64Milli": "timestamp_millis($1)",
    "fromUnixTimestamp64Micro": "timestamp_micros($1)",
    "formatDateTime": f"date_format({_TIMESTAMP}, @FORMAT)",
    "dateName": "date_format(CAST($2 AS TIMESTAMP), 'EEEE')",
    # Beginnings of times.
    "toStartOfSecond": f"date_trunc('SECOND', {_TIMESTAMP})",
    "toStartOfMinute": f"date_trunc('MINUTE', {_TIMESTAMP})",
    "toStartOfHour": f"date_trunc('HOUR', {_TIMESTAMP})",
    "toStartOfDay": f"date_trunc('DAY', {_TIMESTAMP})",
    "toMonday": f"trunc({_DAY}, 'WEEK')",
    "toStartOfWeek": (
        f"date_sub({_DAY}, dayofweek({_DAY}) - 1)",
        f"CASE WHEN $2 % 2 = 1 THEN trunc({_DAY}, 'WEEK') ELSE date_sub({_DAY}, dayofweek({_DAY}) - 1) END",
    ),
    "toStartOfMonth": f"trunc({_DAY}, 'MONTH')",
    "toLastDayOfMonth": f"last_day({_DAY})",
    "toStartOfQuarter": f"trunc({_DAY}, 'QUARTER')",
    "toStartOfYear": f"trunc({_DAY}, 'YEAR')",
    # Now.
    "today": "current_date()",
    "yesterday": "date_sub(current_date(), 1)",
    "now64": ("current_timestamp()", "current_timestamp()"),
    "toStartOfInterval": f"time_bucket($2, {_TIMESTAMP})",
    # NULL and choices.
    "assumeNotNull": "$1",
    "toNullable": "$1",
    "materialize": "$1",
    # Numbers.
    "plus": "$1 + $2",
    "minus": "$1 - $2",
    "multiply": "$1 * $2",
    "divide": "CAST($1 AS DOUBLE) / CAST($2 AS DOUBLE)",
    "negate": "-$1",
    "intDiv": "$1 div $2",
    "intDivOrZero": "COALESCE($1 div nullif($2, 0), 0)",
    "modulo": "$1 % $2",
    "moduloOrZero": "COALESCE($1 % nullif($2, 0), 0)",
    "positiveModulo": "pmod($1, $2)",
    "bitAnd": "$1 & $2",
    "bitOr": "$1 | $2",
    "bitXor": "$1 ^ $2",
    "bitNot": "~$1",
    "bitShiftLeft": "shiftleft($1, $2)",
    "bitShiftRight": "shiftright($1, $2)",
    "equals": "$1 = $2",
    "notEquals": "$1 <> $2",
    "less": "$1 < $2",
    "lessOrEquals": "$1 <= $2",
    "greater": "$1 > $2",
    "greaterOrEquals": "$1 >= $2",
    "formatReadableSize": "format_string('%.2f', $1 / power(1024, @POWER)) || ' ' || "
    "element_at(array('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'), CAST(@POWER AS INT) + 1)",
    # Texts.
    "lengthUTF8": "char_length($1)",
    "lowerUTF8": "lower($1)",
    "upperUTF8": "upper($1)",
    "substringUTF8": ("substring($1, $2)", "substring($1, $2, $3)"),
    "reverseUTF8": "reverse($1)",
    "positionUTF8": "instr($1, $2)",
    "positionCaseInsensitive": "instr(lower($1), lower($2))",
    "replaceAll": "replace($1, $2, $3)",
    "replaceOne": "CASE WHEN instr($1, $2) = 0 THEN $1 ELSE "
    "left($1, instr($1, $2) - 1) || $3 || substring($1, instr($1, $2) + char_length($2)) END",
    "match": "$1 RLIKE $2",
    "trimLeft": "ltrim($1)",
    "trimRight": "rtrim($1)",
    "trimBoth": "trim($1)",
    "leftPad": ("lpad($1, $2)", "lpad($1, $2, $3)"),
    "rightPad": ("rpad($1, $2)", "rpad($1, $2, $3)"),
    "base64Encode": "base64(CAST($1 AS BINARY))",
    "base64Decode": "CAST(unbase64($1) AS STRING)",
    "domain": "parse_url($1, 'HOST')",
    "splitByChar": r"split($2, '\\Q' || $1 || '\\E')",
    "splitByString": r"split($2, '\\Q' || $1 || '\\E')",
    "generateUUIDv4": "uuid()",
    # Arrays and maps.
    "has": "array_contains($1, $2)",
    "hasAny": "arrays_overlap($1, $2)",
    "hasAll": "size(array_except($2, $1)) = 0",
    "indexOf": "array_position($1, $2)",
    "arrayElement": "element_at($1, $2)",
    "arrayJoin": "explode($1)",
    "arrayDistinct": "array_distinct($1)",
    "arrayReverse": "reverse($1)",
    "arrayCompact": "array_compact($1)",
    "arraySlice": "slice($1, $2, $3)",
    "arraySum": "aggregate($1, CAST(0 AS DOUBLE), (total, item) -> total + CAST(item AS DOUBLE))",
    "arrayUniq": "size(array_distinct($1))",
    "arrayStringConcat": ("array_join($1, '')", "array_join($1, $2)"),
    "arrayPushBack": "array_append($1, $2)",
    "arrayPushFront": "array_prepend($1, $2)",
    "arrayMap": "transform($2, $1)",
    "arrayFilter": "filter($2, $1)",
    "arrayExists": "exists($2, $1)",
    "arrayAll": "forall($2, $1)",
    "arrayMin": "array_min($1)",
    "arrayMax": "array_max($1)",
    "range": (
        "CASE WHEN $1 <= 0 THEN CAST(array() AS ARRAY<BIGINT>) ELSE sequence(0L, CAST($1 AS BIGINT) - 1) END",
        "CASE WHEN $2 <= $1 THEN CAST(array() AS ARRAY<BIGINT>) "
        "ELSE sequence(CAST($1 AS BIGINT), CAST($2 AS BIGINT) - 1) END",
    ),
    "mapContains": "map_contains_key($1, $2)",
    "mapKeys": "map_keys($1)",
    "mapValues": "map_values($1)",
    # Aggregates.
    "uniq": "approx_count_distinct($1, 0.01D)",
    "uniqCombined": "approx_count_distinct($1, 0.01D)",
    "uniqCombined64": "approx_count_distinct($1, 0.01D)",
    "uniqHLL12": "approx_count_distinct($1, 0.01D)",
    "uniqExact": "count(DISTINCT $1)",
    "countDistinct": "count(DISTINCT $1)",
    "anyLast": "last($1)",
    "argMax": "max_by($1, $2)",
    "argMin": "min_by($1, $2)",
    "groupArray": "collect_list($1)",
    "groupUniqArray": "collect_set($1)",
    "groupBitAnd": "bit_and($1)",
    "groupBitOr": "bit_or($1)",
    "groupBitXor": "bit_xor($1)",
    "stddevPop": "stddev_pop($1)",
    "stddevSamp": "stddev_samp($1)",
    "varPop": "var_pop($1)",
    "varSamp": "var_samp($1)",
    "covarPop": "covar_pop($1, $2)",
    "covarSamp": "covar_samp($1, $2)",
    "countIf": "count_if($1)",
    "sumIf": "sum(CASE WHEN $2 THEN $1 ELSE 0 END)",
    "avgIf": "avg(CASE WHEN $2 THEN $1 END)",
    "minIf": "min(CASE WHEN $2 THEN $1 END)",
    "maxIf": "max(CASE WHEN $2 THEN $1 END)",
    "anyIf": "any_value(CASE WHEN $2 THEN $1 END, true)",
    "uniqIf": "approx_count_distinct(CASE WHEN $2 THEN $1 END, 0.01D)",
    "uniqExactIf": "count(DISTINCT CASE WHEN $2 THEN $1 END)",
    "argMaxIf": "max_by($1, CASE WHEN $3 THEN $2 END)",
    "argMinIf": "min_by($1, CASE WHEN $3 THEN $2 END)",
    "groupArrayIf": "collect_list(CASE WHEN $2 THEN $1 END)",
}
#: Spark's names for functions that take the same arguments, however many there are.
_RENAMED = {
    "multiIf": "when",
    "tuple": "struct",
    "arrayConcat": "concat",
    "concatWithSeparator": "concat_ws",
    "arraySort": "array_sort",
}
#: Bits, the type that stores it, smallest and largest value.
_UNSIGNED = {
    8: ("SMALLINT", 2**8 - 1),
    16: ("INT", 2**16 - 1),
    32: ("BIGINT", 2**32 - 1),
    64: ("DECIMAL(20, 0)", 2**64 - 1),
}
_SIGNED = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
_MONTHS = {"Month": 1, "Quarter": 3, "Year": 12}
_DAYS = {"Day": 1, "Week": 7}
_SECONDS = {"Second": 1, "Minute": 60, "Hour": 3600}
_FORMAT_LETTERS = {
    "%Y": "yyyy",
    "%m": "MM",
    "%d": "dd",
    "%H": "HH",
    "%i": "mm",
    "%S": "ss",
    "%s": "ss",
    "%y": "yy",
    "%F": "yyyy-MM-dd",
    "%T": "HH:mm:ss",
    "%R": "HH:mm",
    "%j": "DDD",
    "%I": "hh",
    "%p": "a",
    "%a": "EEE",
    "%W": "EEEE",
    "%b": "MMM",
    "%M": "MMMM",
    "%f": "SSSSSS",
    "%%": "%",
}
#: Alternatives to functions that are not here.
INSTEAD = {
    **dict.fromkeys(
        ("cityhash64", "siphash64", "farmhash64", "murmurhash3_32", "murmurhash3_64", "inthash32", "inthash64"),
        "use xxhash64(..); its values differ from those of ClickHouse",
    ),
    **dict.fromkeys(("retention", "windowfunnel", "sequencematch", "sequencecount"), "use window functions"),
    **dict.fromkeys(
        ("quantile", "quantiles", "quantileexact", "quantiletdigest", "quantiletiming"),
        "use percentile_approx(x, 0.9), or write quantile(0.9)(x) and SETTINGS dialect = 'clickhouse'",
    ),
    **dict.fromkeys(("todecimal32", "todecimal64", "todecimal128"), "use CAST(x AS DECIMAL(18, 2))"),
    **dict.fromkeys(("hostname", "uptime"), "SELECT server, uptime_seconds FROM system.servers"),
    **dict.fromkeys(("remote", "cluster", "mysql", "postgresql"), "load the rows, for example by INSERT or from Kafka"),
    **dict.fromkeys(
        ("file", "url", "s3", "hdfs", "read_files"),
        "queries read no files and no addresses: load the rows with `tilth sql`, over HTTP or from Kafka",
    ),
    "tupleelement": "write the field's name behind a dot: t.col1",
    "toipv4": "addresses are texts: compare and cut them as texts",
    "dictget": "create a table and join it",
    "columns": "write the columns' names, or * EXCEPT (a, b)",
    **dict.fromkeys(
        ("bitmapbuild", "bitmapcardinality", "bitmapcontains", "groupbitmap", "bitmapcount"),
        "use count(DISTINCT x) of a column, size(array_distinct(a)) and array_contains(a, x) of an array",
    ),
    **dict.fromkeys(
        ("runningdifference", "neighbor", "runningaccumulate"),
        "use a window: lag(x) OVER (ORDER BY t), lead(x) OVER (ORDER BY t), sum(x) OVER (ORDER BY t)",
    ),
    **dict.fromkeys(
        ("summap", "minmap", "maxmap"),
        "take the map apart: SELECT k, sum(v) FROM (SELECT explode(m) AS (k, v) FROM t) GROUP BY k",
    ),
}
#: Functions in FROM with their queries.
TABLE_FUNCTIONS = {
    "numbers": ("SELECT id AS number FROM range(0, $1)", "SELECT id AS number FROM range($1, $1 + $2)"),
}


def functions() -> dict[str, tuple[Variant, ...]]:
    """Return the variants of every function; the first that fits a call is taken."""
    found: dict[str, list[Variant]] = {}
    for name, expressions in _PLAIN.items():
        for expression in (expressions,) if isinstance(expressions, str) else expressions:
            full = expression.replace("@FORMAT", _format()).replace("@POWER", _power())
            found.setdefault(name, []).append(_variant(full))
    for name, other in _RENAMED.items():
        found[name] = [Variant(arguments=None, expression=other)]
    for name, variant in (*_conversions(), *_starts(), *_arithmetic(), *_json(), *_others(), *exact_functions()):
        found.setdefault(name, []).append(variant)
    return {name: tuple(variants) for name, variants in found.items()}


def _variant(expression: str, *kinds: ArgumentKind) -> Variant:
    count = max((number for number in range(1, 6) if f"${number}" in expression), default=0)
    return Variant(arguments=kinds or (_ANY,) * count, expression=expression)


def _conversions() -> Iterator[tuple[str, Variant]]:
    for bits, stored in _SIGNED.items():
        yield f"toInt{bits}", _variant("unix_date($1)", _DATE)
        yield f"toInt{bits}", _variant(f"CAST($1 AS {stored})")
        yield f"toInt{bits}OrZero", _variant(f"COALESCE(TRY_CAST($1 AS {stored}), CAST(0 AS {stored}))")
        yield f"toInt{bits}OrNull", _variant(f"TRY_CAST($1 AS {stored})")
    for bits, (stored, largest) in _UNSIGNED.items():
        name, value, tried = f"toUInt{bits}", f"CAST($1 AS {stored})", f"TRY_CAST($1 AS {stored})"
        wrong = f"CAST(raise_error('{name}: the value is not from 0 to {largest}') AS {stored})"
        yield name, _variant("unix_date($1)", _DATE)
        fits = f"BETWEEN 0 AND {largest}"
        yield name, _variant(f"CASE WHEN {value} IS NULL OR {value} {fits} THEN {value} ELSE {wrong} END")
        yield f"{name}OrZero", _variant(f"CASE WHEN {tried} {fits} THEN {tried} ELSE CAST(0 AS {stored}) END")
        yield f"{name}OrNull", _variant(f"CASE WHEN {tried} {fits} THEN {tried} END")
    # Small numbers are days, others seconds, as in ClickHouse.
    of_seconds = "CAST(timestamp_seconds($1) AS DATE)"
    yield (
        "toDate",
        _variant(f"CASE WHEN $1 <= 65535 THEN date_from_unix_date(CAST($1 AS INT)) ELSE {of_seconds} END", _NUMBER),
    )
    yield "toDate", _variant(_DAY)
    yield "toDate", _variant("CAST(convert_timezone($2, CAST($1 AS TIMESTAMP_NTZ)) AS DATE)")
    yield "toDate32", _variant(_DAY)
    for name in ("toDateTime", "toDateTime32"):
        yield name, _variant("timestamp_seconds($1)", _NUMBER)
        yield name, _variant(_TIMESTAMP)
        yield name, _variant(_in_zone("$2"), _TEXT, _ANY)
        yield name, _variant("CASE WHEN $2 IS NULL THEN NULL ELSE timestamp_seconds($1) END", _NUMBER, _ANY)
        yield name, _variant(f"CASE WHEN $2 IS NULL THEN NULL ELSE {_TIMESTAMP} END")
    yield "toDateTime64", _variant("CASE WHEN $2 < 0 THEN NULL ELSE timestamp_seconds($1) END", _NUMBER, _ANY)
    yield "toDateTime64", _variant(f"CASE WHEN $2 < 0 THEN NULL ELSE {_TIMESTAMP} END")
    yield (
        "toDateTime64",
        _variant(f"CASE WHEN $2 < 0 THEN NULL ELSE {_in_zone('$3')} END", _TEXT, _ANY, _ANY),
    )


def _in_zone(zone: str) -> str:
    """The instant of a time of day in a zone."""
    return f"CAST(convert_timezone({zone}, current_timezone(), CAST($1 AS TIMESTAMP_NTZ)) AS TIMESTAMP)"


def _starts() -> Iterator[tuple[str, Variant]]:
    for name, minutes in (("Five", 5), ("Ten", 10), ("Fifteen", 15)):
        seconds = minutes * 60
        start = _variant(f"timestamp_seconds(floor(unix_seconds({_TIMESTAMP}) / {seconds}) * {seconds})")
        yield f"toStartOf{name}Minutes", start
        yield f"toStartOf{name}Minute", start


def _arithmetic() -> Iterator[tuple[str, Variant]]:
    for verb, sign in (("add", ""), ("subtract", "-")):
        number = f"{sign}CAST($2 AS INT)"
        for unit, months in _MONTHS.items():
            yield f"{verb}{unit}s", _variant(f"add_months($1, {number} * {months})", _DATE, _ANY)
            yield f"{verb}{unit}s", _variant(f"{_TIMESTAMP} + make_ym_interval(0, {number} * {months})")
        for unit, days in _DAYS.items():
            yield f"{verb}{unit}s", _variant(f"date_add($1, {number} * {days})", _DATE, _ANY)
            # Of the calendar: a day may have 23 hours.
            yield f"{verb}{unit}s", _variant(f"{_TIMESTAMP} + make_interval(0, 0, 0, {number} * {days})")
        for unit, seconds in _SECONDS.items():
            # Spark takes 24 hours of an interval for a day, which may have 23.
            micros = f"{sign}CAST($2 AS BIGINT) * {seconds * 1_000_000}"
            yield f"{verb}{unit}s", _variant(f"timestamp_micros(unix_micros({_TIMESTAMP}) + {micros})")
    for unit, months in _MONTHS.items():
        yield f"toInterval{unit}", _variant(f"make_ym_interval(0, CAST($1 AS INT) * {months})")
    for unit, seconds in (*_SECONDS.items(), ("Day", 86400), ("Week", 7 * 86400)):
        yield f"toInterval{unit}", _variant(f"make_dt_interval(0, 0, 0, CAST($1 AS BIGINT) * {seconds})")


def _json() -> Iterator[tuple[str, Variant]]:
    results = {
        "JSONExtractString": "COALESCE({0}, '')",
        "JSONExtractRaw": "COALESCE({0}, '')",
        "JSONExtractInt": "COALESCE(TRY_CAST({0} AS BIGINT), 0L)",
        "JSONExtractUInt": "COALESCE(TRY_CAST({0} AS DECIMAL(20, 0)), CAST(0 AS DECIMAL(20, 0)))",
        "JSONExtractFloat": "COALESCE(TRY_CAST({0} AS DOUBLE), 0D)",
        "JSONExtractBool": "COALESCE(TRY_CAST({0} AS BOOLEAN), false)",
        "JSONHas": "{0} IS NOT NULL",
    }
    for name, result in results.items():
        for depth in (1, 2, 3):
            keys = " || ".join(f"'[''' || ${number + 1} || ''']'" for number in range(1, depth + 1))
            yield name, _variant(result.format(f"get_json_object($1, '$' || {keys})"))
    for name in ("String", "Int", "UInt", "Float", "Bool"):
        value = results[f"JSONExtract{name}"].format("get_json_object($1, '$' || '[''' || $2 || ''']')")
        yield f"simpleJSONExtract{name}", _variant(value)
        yield f"visitParamExtract{name}", _variant(value)


def _others() -> Iterator[tuple[str, Variant]]:
    yield "empty", _variant("size($1) = 0", ArgumentKind.COLLECTION)
    yield "empty", _variant("char_length($1) = 0")
    yield "notEmpty", _variant("size($1) > 0", ArgumentKind.COLLECTION)
    yield "notEmpty", _variant("char_length($1) > 0")
    yield "count", Variant(arguments=(), expression="count(1)")
    yield "any", _variant("bool_or($1)", ArgumentKind.BOOLEAN)
    yield "any", _variant("any_value($1, true)")
    # What `dateDiff` and `date_diff` with a text are read as: Spark has functions of these names.
    yield "unitDiff", _variant(_unit_diff())
    yield "unit_diff", _variant(_unit_diff())


def _unit_diff() -> str:
    """Return SQL that counts the borders of a unit between two times; Spark counts whole units."""
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


def _format() -> str:
    """The pattern of Java for ClickHouse's; letters that mean themselves are quoted first."""
    # The reference to a group is put together: `$1` is the first argument here.
    pattern = "regexp_replace($2, '(?<!%)([A-Za-z]+)', '''' || chr(36) || '1''')"
    for written, letters in _FORMAT_LETTERS.items():
        pattern = f"replace({pattern}, '{written}', '{letters}')"
    return pattern


def _power() -> str:
    return "greatest(0, least(6, floor(log(1024, greatest(abs($1), 1)))))"
