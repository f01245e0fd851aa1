"""Functions of JSON that answer exactly as ClickHouse's do. Part of exact.py.

Covers: a value at a path as a text, a number, a truth value, whether it exists, its length. Does not cover: which path
the arguments of a call mean (clickhouse/dialect_json.py).
Always holds: a text that is no JSON has no value in it; where the answer depends on what Spark's parser does not keep,
an error: which of two equal keys came first, how a number was written.

Tests: tests/unit/clickhouse/functions/test_functions.py.
"""

from __future__ import annotations

from tilth.clickhouse.functions.exact_floats import digits_of
from tilth.clickhouse.functions.variants import ArgumentKind, Lines, bound, raised

#: Sentinel behind the text while it is parsed: Spark's parser ignores what follows a value.
_END = "tilth-end-of-text"
#: Numbers that Spark's parser does not keep as they are: beyond a double, of many digits, zeros with a sign.
_UNKEPT = r"[0-9][eE][+]?[0-9]{3,}|[0-9]{39,}|(^|[:\\[,])\\s*-0[.]?0*([^.0-9]|$)"
#: Texts that mean numbers to ClickHouse, or might.
_LIKE_NUMBER = r"^[+-]?[.]?[0-9]|^[+-]?([nN][aA][nN]|[iI][nN][fF])"
#: Letters that a JSON text writes as they are.
_PLAIN_LETTERS = r"^[^\\x00-\\x1f\\x7f\\\\\"\\u2028\\u2029]*$"
_HAS_FRACTIONS = "v.t RLIKE '[0-9][.eE]'"
_DOUBLE = "CAST(v.x AS DOUBLE)"
_UNSIGNED = "DECIMAL(20, 0)"


def json_functions() -> Lines:
    """Functions of a text and of a path in an array, whose first element is the text's value."""
    for name, kind, missing, value in (
        ("string", "STRING", "''", _string()),
        ("raw", "STRING", "''", _raw()),
        ("int", "BIGINT", "0L", _int()),
        ("uint", _UNSIGNED, f"CAST(0 AS {_UNSIGNED})", _uint()),
        ("float", "DOUBLE", "0D", _float()),
        ("bool", "BOOLEAN", "false", _bool()),
        ("has", "BOOLEAN", "false", "true"),
        ("length", "BIGINT", "0L", _length()),
    ):
        yield f"json_{name}", (ArgumentKind.TEXT, ArgumentKind.ANY), _of_path(kind, missing, value)
    # A number is an index into an array, or into the keys of an object, whose order Spark's parser loses.
    wrong = raised("an index into a JSON object: name the key")
    is_object = "schema_of_variant(v.x) LIKE 'OBJECT%'"
    yield (
        "json_array_at",
        (ArgumentKind.TEXT, ArgumentKind.ANY),
        _of_path("STRING", "v.t", f"CASE WHEN {is_object} THEN {wrong} ELSE v.t END"),
    )


def _of_path(kind: str, missing: str, value: str) -> str:
    """The value of `v.x` at the path, of the kind `v.k`, in the text `v.t`."""
    parsed = f"named_struct('t', $1, 'd', try_parse_json(concat('[', $1, ', \"{_END}\"]')))"
    unkept = raised("this JSON has a number that is not kept as it is written here", kind)
    twice = raised("this JSON has a key twice, or more than JSON around it", kind)
    is_whole = f"coalesce(variant_get(j.d, '$[1]', 'string') = '{_END}', false) AND instr(j.t, '{_END}') = 0"
    found = "named_struct('t', j.t, 'x', variant_get(j.d, $2, 'variant'))"
    known = "named_struct('t', x.t, 'x', x.x, 'k', schema_of_variant(x.x))"
    inner = bound("v", known, f"CASE WHEN v.x IS NULL THEN {missing} ELSE {value} END")
    checked = (
        f"CASE WHEN j.t IS NULL THEN CAST(NULL AS {kind}) WHEN j.t RLIKE '{_UNKEPT}' THEN {unkept} "
        f"WHEN {is_whole} THEN {bound('x', found, inner)} "
        f"WHEN get_json_object(j.t, '$') IS NOT NULL THEN {twice} ELSE {missing.replace('v.t', 'j.t')} END"
    )
    return bound("j", parsed, checked)


def _string() -> str:
    whole = raised("this JSON has a number of many digits beside others with a fraction")
    inner = raised("JSONExtractString of an object or an array: name a key of it")
    text = "variant_get(v.x, '$', 'string')"
    return (
        f"CASE WHEN v.k = 'VOID' THEN '' WHEN v.k IN ('STRING', 'BOOLEAN', 'BIGINT') THEN {text} "
        f"WHEN {_is_long()} THEN CASE WHEN {_HAS_FRACTIONS} THEN {whole} ELSE {text} END "
        f"WHEN {_is_fraction()} THEN {bound('n', _DOUBLE, digits_of('n'))} ELSE {inner} END"
    )


def _raw() -> str:
    special = raised("JSONExtractRaw of an object, an array or a text with special letters")
    text = "variant_get(v.x, '$', 'string')"
    quoted = f"CASE WHEN {text} RLIKE '{_PLAIN_LETTERS}' THEN concat('\"', {text}, '\"') ELSE {special} END"
    return (
        f"CASE WHEN v.k = 'VOID' THEN 'null' WHEN v.k = 'STRING' THEN {quoted} "
        f"WHEN v.k IN ('BOOLEAN', 'BIGINT') THEN {text} "
        f"WHEN {_is_fraction()} AND NOT {_is_long()} THEN {bound('n', _DOUBLE, digits_of('n'))} ELSE {special} END"
    )


def _is_fraction() -> str:
    return "(v.k LIKE 'DECIMAL%' OR v.k = 'DOUBLE')"


def _is_long() -> str:
    """Return the test of a number that may be a whole one of more than 64 bits with a sign."""
    return r"v.k RLIKE '^DECIMAL[(](19|[23][0-9]),0[)]$'"


def _int() -> str:
    wrong = raised("JSONExtractInt of this text or number", "BIGINT")
    whole = (
        f"CASE WHEN abs({_DOUBLE}) < 9.2E18D THEN CAST({_DOUBLE} AS BIGINT) WHEN {_DOUBLE} > 0 THEN 0L ELSE {wrong} END"
    )
    return (
        f"CASE WHEN v.k = 'BIGINT' THEN variant_get(v.x, '$', 'bigint') WHEN {_is_fraction()} THEN {whole} "
        f"WHEN v.k = 'STRING' THEN {_number_in_text('^[+-]?[0-9]{1,18}$', 'BIGINT', '0L', wrong)} ELSE 0L END"
    )


def _uint() -> str:
    wrong = raised("JSONExtractUInt of this text or number", _UNSIGNED)
    zero = f"CAST(0 AS {_UNSIGNED})"
    long = "variant_get(v.x, '$', 'decimal(38, 0)')"
    fits = f"CASE WHEN {long} BETWEEN 0 AND {2**64 - 1} THEN CAST({long} AS {_UNSIGNED}) ELSE {zero} END"
    small = f"CASE WHEN {_DOUBLE} > -1 AND {_DOUBLE} < 9.2E18D THEN CAST(CAST({_DOUBLE} AS BIGINT) AS {_UNSIGNED})"
    return (
        f"CASE WHEN v.k = 'BIGINT' THEN CAST(greatest(0L, variant_get(v.x, '$', 'bigint')) AS {_UNSIGNED}) "
        f"WHEN {_is_long()} THEN CASE WHEN {_HAS_FRACTIONS} THEN {wrong} ELSE {fits} END "
        f"WHEN {_is_fraction()} THEN {small} WHEN {_DOUBLE} < 0 THEN {zero} ELSE {wrong} END "
        f"WHEN v.k = 'STRING' THEN {_number_in_text('^[+]?[0-9]{1,18}$', _UNSIGNED, zero, wrong)} ELSE {zero} END"
    )


def _float() -> str:
    wrong = raised("JSONExtractFloat of this text", "DOUBLE")
    written = "^-?[0-9]{1,15}([.][0-9]{1,15})?$"
    return (
        f"CASE WHEN v.k = 'BIGINT' OR {_is_fraction()} THEN {_DOUBLE} "
        f"WHEN v.k = 'STRING' THEN {_number_in_text(written, 'DOUBLE', '0D', wrong)} ELSE 0D END"
    )


def _number_in_text(pattern: str, kind: str, missing: str, wrong: str) -> str:
    text = "variant_get(v.x, '$', 'string')"
    return (
        f"CASE WHEN {text} RLIKE '{pattern}' THEN CAST({text} AS {kind}) "
        f"WHEN {text} RLIKE '{_LIKE_NUMBER}' THEN {wrong} ELSE {missing} END"
    )


def _bool() -> str:
    wrong = raised("JSONExtractBool of a number with a fraction", "BOOLEAN")
    return (
        "CASE WHEN v.k = 'BOOLEAN' THEN variant_get(v.x, '$', 'boolean') "
        "WHEN v.k = 'BIGINT' THEN variant_get(v.x, '$', 'bigint') <> 0 "
        f"WHEN {_is_fraction()} THEN {wrong} ELSE false END"
    )


def _length() -> str:
    return (
        "CASE WHEN v.k LIKE 'ARRAY%' THEN CAST(size(CAST(v.x AS ARRAY<VARIANT>)) AS BIGINT) "
        "WHEN v.k LIKE 'OBJECT%' THEN CAST(size(CAST(v.x AS MAP<STRING, VARIANT>)) AS BIGINT) ELSE 0L END"
    )
