"""ClickHouse's functions as Spark SQL expressions.

Covers: which functions there are, the expression that each one stands for. Does not cover: registering them in the JVM
(warehouse/allowed/function_registry.py), functions that Spark has under the same name, what queries in ClickHouse's
dialect are written with (exact.py), functions of times (times.py).
Always holds: an expression consists of allowed functions only; a name that Spark has too is extended, never changed; a
name that only ClickHouse has answers as it does there, is an error, or differs by a rule of tools/function_cases.py.
"""

from __future__ import annotations

from tilth.clickhouse.functions.exact import exact_functions
from tilth.clickhouse.functions.times import time_functions
from tilth.clickhouse.functions.variants import ArgumentKind, Lines, Variant, literal, raised

_ANY, _NUMBER, _TEXT, _DATE = ArgumentKind.ANY, ArgumentKind.NUMBER, ArgumentKind.TEXT, ArgumentKind.DATE
_WHOLE, _LONG, _FLOAT, _TIME = ArgumentKind.WHOLE, ArgumentKind.LONG, ArgumentKind.FLOAT, ArgumentKind.TIME

_TIMESTAMP = "CAST($1 AS TIMESTAMP)"
_DAY = "CAST($1 AS DATE)"

#: Expressions by name, for arguments of any type; several expressions differ in the number of arguments.
_PLAIN: dict[str, str | tuple[str, ...]] = {
    # Conversions.
    "toBool": "CAST($1 AS BOOLEAN)",
    "toFloat32": "CAST($1 AS FLOAT)",
    "toFloat64": "CAST($1 AS DOUBLE)",
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
    "toUnixTimestamp64Milli": f"unix_millis({_TIMESTAMP})",
    "toUnixTimestamp64Micro": f"unix_micros({_TIMESTAMP})",
    "fromUnixTimestamp": "timestamp_seconds($1)",
    "fromUnixTimestamp64Milli": "timestamp_millis($1)",
    "fromUnixTimestamp64Micro": "timestamp_micros($1)",
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
    # NULL and choices.
    "toNullable": "$1",
    "materialize": "$1",
    # Numbers.
    "plus": "$1 + $2",
    "multiply": "$1 * $2",
    "negate": "-$1",
    "bitAnd": "$1 & $2",
    "bitOr": "$1 | $2",
    "bitXor": "$1 ^ $2",
    "bitNot": "~$1",
    # Texts.
    "lengthUTF8": "char_length($1)",
    "lowerUTF8": "lower($1)",
    "upperUTF8": "upper($1)",
    "reverseUTF8": "reverse($1)",
    "positionUTF8": "instr($1, $2)",
    "replaceAll": "replace($1, $2, $3)",
    "trimLeft": "ltrim($1)",
    "trimRight": "rtrim($1)",
    "trimBoth": "trim($1)",
    "base64Encode": "base64(CAST($1 AS BINARY))",
    "generateUUIDv4": "uuid()",
    # Arrays and maps.
    "arrayJoin": "explode($1)",
    "arrayReverse": "reverse($1)",
    "arrayPushBack": "array_append($1, $2)",
    "arrayPushFront": "array_prepend($1, $2)",
    "arrayMap": "transform($2, $1)",
    "arrayFilter": "filter($2, $1)",
    "range": (
        "CASE WHEN $1 <= 0 THEN CAST(array() AS ARRAY<BIGINT>) ELSE sequence(0L, CAST($1 AS BIGINT) - 1) END",
        "CASE WHEN $2 <= $1 THEN CAST(array() AS ARRAY<BIGINT>) "
        "ELSE sequence(CAST($1 AS BIGINT), CAST($2 AS BIGINT) - 1) END",
    ),
    "arrayCompact": "filter($1, (item, i) -> i = 0 OR NOT item <=> element_at($1, i))",
    "arrayExists": "exists($2, $1)",
    "arrayAll": "forall($2, $1)",
    "mapContains": "coalesce(map_contains_key($1, $2), false)",
    "mapKeys": "map_keys($1)",
    "mapValues": "map_values($1)",
    # Aggregates.
    "groupArray": "collect_list($1)",
    "groupUniqArray": "collect_set($1)",
    "anyLast": "last($1, true)",
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
    "groupArrayIf": "collect_list(CASE WHEN $2 THEN $1 END)",
}
#: Spark's names for functions that take the same arguments, however many there are.
_RENAMED = {
    "multiIf": "when",
    "tuple": "struct",
}
#: Bits, the type that stores it, smallest and largest value.
_UNSIGNED = {
    8: ("SMALLINT", 2**8 - 1),
    16: ("INT", 2**16 - 1),
    32: ("BIGINT", 2**32 - 1),
    64: ("DECIMAL(20, 0)", 2**64 - 1),
}
_SIGNED = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
#: Text that is a day, with or without a time of day, and a time.
_DAY_TEXT = "^[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}$|^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?$"
_TIME_TEXT = "^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}:[0-9]{2})?$"
#: Days that are written with anything else between their numbers.
_OTHER_DAY_TEXT = "^[0-9]{4}[^0-9][0-9]{1,2}[^0-9][0-9]{1,2}([T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]+)?)?$"
_IN_HOST = r"[^ \t<>%{}|\\^~\[\];=&:/?#@]"
#: The host of an address, which has a dot, but not at its end.
_HOST = (
    rf"(?s)^(?:(?:[a-zA-Z0-9+.-]+:)?//)?+(?=[^:/?#]*[.])(?:{_IN_HOST}*@)*"
    rf"({_IN_HOST}*{_IN_HOST.replace('@]', '@.]')})(?:[:/?#].*)?$"
)
#: Keys that a path into JSON cannot have.
_REFUSED_KEYS = r"""^$|['"?\[\]\\]"""
#: Values that concatWithSeparator takes.
_SEPARATED_MAX = 9
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
    "totypename": "use typeof(x), which returns Spark's name of the type",
    **dict.fromkeys(
        (
            *("simplejsonextractstring", "simplejsonextractint", "simplejsonextractuint", "simplejsonextractfloat"),
            *("simplejsonextractbool", "simplejsonextractraw", "simplejsonhas"),
            *("visitparamextractstring", "visitparamextractint", "visitparamextractuint", "visitparamextractfloat"),
            *("visitparamextractbool", "visitparamextractraw", "visitparamhas"),
        ),
        "use JSONExtractString(j, 'a'), JSONExtractInt(j, 'a') and so on, which read the text as JSON",
    ),
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
            count = max((number for number in range(1, 4) if f"${number}" in expression), default=0)
            found.setdefault(name, []).append(Variant(arguments=(_ANY,) * count, expression=expression))
    for name, other in _RENAMED.items():
        found[name] = [Variant(arguments=None, expression=other)]
    parts = (_conversions, _texts_as_times, _times, time_functions, _numbers, _texts, _json, _aggregates, _others)
    for part in parts:
        for name, kinds, expression in part():
            found.setdefault(name, []).append(Variant(arguments=kinds, expression=expression))
    for name, variant in exact_functions():
        found.setdefault(name, []).append(variant)
    return {name: tuple(variants) for name, variants in found.items()}


def _conversions() -> Lines:
    for bits, stored in _SIGNED.items():
        yield f"toInt{bits}", (_DATE,), "unix_date($1)"
        yield f"toInt{bits}", (_ANY,), f"CAST($1 AS {stored})"
    for bits, (stored, largest) in _UNSIGNED.items():
        name, value = f"toUInt{bits}", f"CAST($1 AS {stored})"
        wrong = raised(f"{name}: the value is not from 0 to {largest}", stored)
        yield name, (_DATE,), "unix_date($1)"
        fits = f"BETWEEN 0 AND {largest}"
        yield name, (_ANY,), f"CASE WHEN {value} IS NULL OR {value} {fits} THEN {value} ELSE {wrong} END"
    for bits in _SIGNED:
        signed, unsigned = f"TRY_CAST($1 AS {_SIGNED[bits]})", f"TRY_CAST($1 AS {_UNSIGNED[bits][0]})"
        fits = f"{unsigned} BETWEEN 0 AND {_UNSIGNED[bits][1]}"
        # Spark takes blanks around a number, which are no part of one there.
        for name, test, value in (
            (f"toInt{bits}", "$1 RLIKE '^[+-]?[0-9]+$'", signed),
            (f"toUInt{bits}", f"$1 RLIKE '^[+]?[0-9]+$' AND {fits}", unsigned),
        ):
            yield f"{name}OrNull", (_TEXT,), f"CASE WHEN {test} THEN {value} END"
            missing = "WHEN $1 IS NOT NULL THEN 0"
            yield f"{name}OrZero", (_TEXT,), f"CASE WHEN {test} AND {value} IS NOT NULL THEN {value} {missing} END"
    number = r"$1 RLIKE '^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$'"
    word = "lower($1) RLIKE '^[+-]?(nan|inf|infinity)$'"
    for stored, name in (("FLOAT", "toFloat32"), ("DOUBLE", "toFloat64")):
        tried = f"WHEN {number} THEN TRY_CAST($1 AS {stored})"
        tried += f" WHEN {word} THEN TRY_CAST(replace(replace(lower($1), '+', ''), '-nan', 'nan') AS {stored})"
        yield f"{name}OrNull", (_TEXT,), f"CASE {tried} END"
        yield f"{name}OrZero", (_TEXT,), f"CASE {tried} WHEN $1 IS NOT NULL THEN CAST(0 AS {stored}) END"


def _texts_as_times() -> Lines:
    other = raised("toDateOrNull and toDateTimeOrNull take days that are written as 2026-01-31", "{0}")
    letters = "left($1, 4) || '-' || substring($1, 5, 2) || '-' || substring($1, 7)"
    yield (
        "toDateOrNull",
        (_TEXT,),
        f"CASE WHEN $1 RLIKE '{_DAY_TEXT}' THEN TRY_CAST($1 AS DATE) "
        f"WHEN $1 RLIKE '^[0-9]{{8}}$' THEN TRY_CAST({letters} AS DATE) "
        f"WHEN $1 RLIKE '{_OTHER_DAY_TEXT}' THEN {other.format('DATE')} END",
    )
    yield (
        "toDateTimeOrNull",
        (_TEXT,),
        f"CASE WHEN $1 RLIKE '{_TIME_TEXT}' THEN TRY_CAST($1 AS TIMESTAMP) "
        f"WHEN $1 RLIKE '^[0-9]{{5,10}}$' THEN timestamp_seconds(CAST($1 AS BIGINT)) "
        f"WHEN $1 RLIKE '^[0-9]{{4}}[^0-9][0-9]{{2}}[^0-9][0-9]{{2}}$' AND $1 RLIKE '{_OTHER_DAY_TEXT}' "
        f"THEN {other.format('TIMESTAMP')} END",
    )


def _times() -> Lines:
    """Conversions to times. Small numbers are days, others seconds, as in ClickHouse; a DateTime has whole seconds."""
    of_seconds = "CAST(timestamp_seconds($1) AS DATE)"
    days = f"CASE WHEN $1 <= 65535 THEN date_from_unix_date(CAST($1 AS INT)) ELSE {of_seconds} END"
    yield "toDate", (_NUMBER,), days
    yield "toDate", (_ANY,), _DAY
    for kind in (_TEXT, _DATE):
        yield "toDate", (kind, _ANY), f"CASE WHEN $2 IS NOT NULL THEN {_DAY} END"
    yield "toDate", (_ANY, _ANY), "CAST(convert_timezone($2, CAST($1 AS TIMESTAMP_NTZ)) AS DATE)"
    yield "toDate32", (_ANY,), _DAY
    seconds, whole = "timestamp_seconds(CAST($1 AS BIGINT))", f"date_trunc('SECOND', {_TIMESTAMP})"
    for name in ("toDateTime", "toDateTime32"):
        yield name, (_NUMBER,), seconds
        yield name, (_ANY,), whole
        yield name, (_TEXT, _ANY), f"date_trunc('SECOND', {_in_zone('$2')})"
        yield name, (_NUMBER, _ANY), f"CASE WHEN $2 IS NOT NULL THEN {seconds} END"
        yield name, (_ANY, _ANY), f"CASE WHEN $2 IS NOT NULL THEN {whole} END"
    yield "toDateTime64", (_NUMBER, _ANY), _with_digits("timestamp_seconds($1)", "$2")
    yield "toDateTime64", (_ANY, _ANY), _with_digits(_TIMESTAMP, "$2")
    yield "toDateTime64", (_TEXT, _ANY, _ANY), _with_digits(_in_zone("$3"), "$2")
    yield "now64", (), _with_digits("current_timestamp()", "3")
    yield "now64", (_ANY,), _with_digits("current_timestamp()", "$1")
    # A day counts from 1970 in UTC, whatever the zone.
    yield "toUnixTimestamp", (_DATE,), "unix_date($1) * 86400L"
    yield "toUnixTimestamp", (_ANY,), f"unix_seconds({_TIMESTAMP})"


def _in_zone(zone: str) -> str:
    """The instant of a time of day in a zone."""
    return f"CAST(convert_timezone({zone}, current_timezone(), CAST($1 AS TIMESTAMP_NTZ)) AS TIMESTAMP)"


def _with_digits(time: str, digits: str) -> str:
    """The time with that number of digits of its second, of which there are at most 6 here."""
    unit = f"CAST(power(10, 6 - least(6, {digits})) AS BIGINT)"
    return f"CASE WHEN {digits} >= 0 THEN timestamp_micros(unix_micros({time}) - pmod(unix_micros({time}), {unit})) END"


def _numbers() -> Lines:
    null = "CASE WHEN $1 IS NULL OR $2 IS NULL THEN NULL WHEN $2 = 0 THEN 0"
    yield "intDivOrZero", (_WHOLE, _WHOLE), f"{null} ELSE $1 div $2 END"
    yield "moduloOrZero", (_WHOLE, _WHOLE), f"{null} ELSE $1 % $2 END"
    yield "positiveModulo", (_WHOLE, _WHOLE), "pmod($1, abs($2))"
    for name, function in (("bitShiftLeft", "shiftleft"), ("bitShiftRight", "shiftright")):
        for kind, bits in ((_LONG, 64), (_WHOLE, 32)):
            wrong = raised(f"{name} takes from 0 to {bits - 1} as the shift of a number of {bits} bits", "INT")
            shift = f"CASE WHEN $2 IS NULL OR $2 BETWEEN 0 AND {bits - 1} THEN CAST($2 AS INT) ELSE {wrong} END"
            yield name, (kind, _WHOLE), f"{function}($1, {shift})"
    power = "CAST(greatest(0, least(8, floor(log(1024, greatest(abs($1), 1))))) AS INT)"
    units = "array('B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB', 'ZiB', 'YiB')"
    wrong = raised("formatReadableSize takes no NaN and nothing infinite")
    readable = f"format_string('%.2f', $1 / power(1024, {power})) || ' ' || element_at({units}, {power} + 1)"
    yield (
        "formatReadableSize",
        (_NUMBER,),
        f"CASE WHEN abs(CAST($1 AS DOUBLE)) < CAST('Infinity' AS DOUBLE) THEN {readable} "
        f"WHEN $1 IS NOT NULL THEN {wrong} END",
    )


def _texts() -> Lines:
    wrong = raised("substringUTF8 takes no length below 0")
    yield "substringUTF8", (_ANY, _ANY), "CASE WHEN $2 = 0 THEN '' ELSE substring($1, $2) END"
    cut = f"CASE WHEN $3 < 0 THEN {wrong} WHEN $2 = 0 AND $3 IS NOT NULL THEN '' ELSE substring($1, $2, $3) END"
    yield "substringUTF8", (_ANY, _ANY, _ANY), cut
    position = "clickhouse_position(clickhouse_lower($1), clickhouse_lower($2))"
    yield "positionCaseInsensitive", (_TEXT, _TEXT), position
    # A dot matches a line's end there, and letters of all alphabets have two cases.
    yield "match", (_ANY, _ANY), "$1 RLIKE ('(?su)' || $2)"
    found = "left($1, instr($1, $2) - 1) || $3 || substring($1, instr($1, $2) + char_length($2))"
    yield "replaceOne", (_ANY, _ANY, _ANY), f"CASE WHEN $2 = '' OR instr($1, $2) = 0 THEN $1 ELSE {found} END"
    for side, function in (("left", "lpad"), ("right", "rpad")):
        given = "CASE WHEN $3 = '' THEN ' ' ELSE $3 END"
        for kinds, filler in (((_TEXT, _WHOLE), "' '"), ((_TEXT, _WHOLE, _TEXT), given)):
            # Bytes, and letters.
            padded = f"{function}(CAST($1 AS BINARY), CAST($2 AS INT), CAST({filler} AS BINARY))"
            yield f"{side}Pad", kinds, f"validate_utf8(CAST({padded} AS STRING))"
            yield f"{side}PadUTF8", kinds, f"{function}($1, CAST($2 AS INT), {filler})"
    yield "base64Decode", (_ANY,), "validate_utf8(CAST(unbase64($1) AS STRING))"
    yield "domain", (_ANY,), f"regexp_extract($1, {literal(_HOST)}, 1)"
    wrong = raised("splitByChar and splitByString take no empty separator here", "ARRAY<STRING>")
    # NULL is split like an empty text: an array is never NULL there.
    quoted = r"'\\Q' || replace($1, '\\E', '\\E\\\\E\\Q') || '\\E'"
    split = f"CASE WHEN $1 = '' THEN {wrong} ELSE split(coalesce($2, ''), {quoted}) END"
    yield "splitByChar", (_TEXT, _TEXT), split
    yield "splitByString", (_TEXT, _TEXT), split
    for count in range(1, _SEPARATED_MAX + 1):
        values = ", $1, ".join(f"toString(${number})" for number in range(2, count + 2))
        yield "concatWithSeparator", (_TEXT, *(_ANY,) * count), f"concat({values}, left($1, 0))"


def _json() -> Lines:
    wrong = "JSON functions take keys without quotes, brackets and backslashes"
    for name, kind in (
        *(("String", "STRING"), ("Raw", "STRING"), ("Int", "BIGINT"), ("UInt", "DECIMAL(20, 0)")),
        *(("Float", "DOUBLE"), ("Bool", "BOOLEAN")),
        ("", "BOOLEAN"),
    ):
        exact = f"clickhouse_json_{name.lower() or 'has'}"
        for depth in (1, 2, 3):
            keys = [f"${number}" for number in range(2, depth + 2)]
            path = " || ".join(("'$[0]'", *(f"""'["' || {key} || '"]'""" for key in keys)))
            is_wrong = " OR ".join(f"{key} RLIKE {literal(_REFUSED_KEYS)}" for key in keys)
            value = f"CASE WHEN {is_wrong} THEN {raised(wrong, kind)} ELSE {exact}($1, {path}) END"
            yield f"JSONExtract{name}" if name else "JSONHas", (_TEXT,) * (depth + 1), value


def _aggregates() -> Lines:
    for suffix, kinds, value in (("", (), "$1"), ("If", (ArgumentKind.BOOLEAN,), "CASE WHEN $2 THEN $1 END")):
        for name in ("uniq", "uniqCombined", "uniqCombined64", "uniqHLL12") if not kinds else ("uniq",):
            # -0.0 and 0.0 are two values there.
            text = f"approx_count_distinct(CAST({value} AS STRING), 0.01D)"
            yield f"{name}{suffix}", (_FLOAT, *kinds), text
            yield f"{name}{suffix}", (_ANY, *kinds), f"approx_count_distinct({value}, 0.01D)"


def _others() -> Lines:
    for kind, missing in (
        *((_WHOLE, "0"), (ArgumentKind.DECIMAL, "0"), (_FLOAT, "0D"), (_TEXT, "''"), (_DATE, "DATE'1970-01-01'")),
        *((_TIME, "timestamp_seconds(0)"), (ArgumentKind.BOOLEAN, "false")),
    ):
        yield "assumeNotNull", (kind,), f"coalesce($1, {missing})"
    yield "assumeNotNull", (_ANY,), "$1"
    yield "empty", (ArgumentKind.COLLECTION,), "size($1) = 0"
    yield "empty", (_ANY,), "char_length($1) = 0"
    yield "notEmpty", (ArgumentKind.COLLECTION,), "size($1) > 0"
    yield "notEmpty", (_ANY,), "char_length($1) > 0"
    yield "count", (), "count(1)"
    yield "any", (ArgumentKind.BOOLEAN,), "bool_or($1)"
    yield "any", (_ANY,), "any_value($1, true)"
