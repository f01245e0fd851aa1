"""The text of a Float64 as ClickHouse writes it: the fewest digits that mean this number. Part of exact.py.

Covers: the expression. Does not cover: Float32. Always holds: of all texts with the fewest digits it is the nearest
one; where that cannot be computed exactly, an error. Java writes some numbers with more digits.

Tests: tests/unit/clickhouse/functions/test_functions.py.
"""

from __future__ import annotations

from tilth.clickhouse.functions.variants import bound, raised

#: Digits by which two texts never mean the same number, and those that any number has at most.
_CERTAIN, _DIGITS_MAX = 15, 17
#: Positions of the point between which numbers are written without an exponent.
_PLAIN_FROM, _PLAIN_TO = -5, 21
#: Positions of the point between which all digits are computed with decimals of 38 digits.
_EXACT_FROM, _EXACT_TO = -5, 38
_WIDE = "DECIMAL(38, 0)"


def digits_of(value: str) -> str:
    """Return the expression for the text of a value."""
    wrong = raised("toString of this Float has more digits than are computed here: CAST it to a Decimal")
    written = bound("f", f"named_struct('x', abs({value}), 's', CAST(abs({value}) AS STRING))", _shortest(wrong))
    sign = f"CASE WHEN left(CAST({value} AS STRING), 1) = '-' THEN '-' ELSE '' END"
    return (
        f"CASE WHEN {value} IS NULL THEN NULL WHEN isnan({value}) THEN 'nan' "
        f"WHEN abs({value}) = CAST('Infinity' AS DOUBLE) THEN {sign} || 'inf' WHEN {value} = 0 THEN {sign} || '0' "
        f"ELSE {sign} || {written} END"
    )


def _shortest(wrong: str) -> str:
    """The text of `f.x`, from `f.s`: digits, a point among them, and an exponent."""
    mantissa = "substring_index(f.s, 'E', 1)"
    exponent = "CASE WHEN instr(f.s, 'E') > 0 THEN CAST(substring_index(f.s, 'E', -1) AS INT) ELSE 0 END"
    stripped = f"ltrim('0', replace({mantissa}, '.', ''))"
    zeros = f"length({mantissa}) - 1 - length({stripped})"
    # The number is 0.DIGITS times 10 to the power of `p`.
    point = f"instr({mantissa}, '.') - 1 + {exponent} - ({zeros})"
    found = bound("d", f"named_struct('d', rtrim('0', {stripped}), 'p', {point})", _fewest(wrong))
    return bound("r", found, _with_point())


def _fewest(wrong: str) -> str:
    """A struct of the fewest digits and the position of the point, of `f.x` and Java's digits `d.d`."""
    cut = f"CAST(left(d.d, {_CERTAIN}) AS BIGINT)"
    few = " ".join(
        f"WHEN {_means(each, 'd.p', _CERTAIN)} THEN {_struct(each, 'd.p', _CERTAIN)}" for each in (cut, f"{cut} + 1")
    )
    unknown = f"named_struct('d', {wrong}, 'p', 0)"
    # Numbers below the normal ones have fewer digits than Java writes.
    return (
        f"CASE WHEN f.x < 2.2250738585072014E-308D THEN {unknown} "
        f"WHEN length(d.d) <= {_CERTAIN} THEN named_struct('d', d.d, 'p', d.p) {few} "
        f"WHEN d.p BETWEEN {_EXACT_FROM} AND {_EXACT_TO} THEN {_all_digits()} ELSE {unknown} END"
    )


def _means(digits: str, point: str, count: int) -> str:
    return f"CAST(concat({digits}, 'E', {point} - {count}) AS DOUBLE) = f.x"


def _struct(digits: str, point: str, count: int) -> str:
    """Rounding up may give one more digit."""
    text = f"CAST({digits} AS STRING)"
    return f"named_struct('d', rtrim('0', {text}), 'p', {point} + length({text}) - {count})"


def _all_digits() -> str:
    """16 or 17 digits, from the number as a fraction of whole numbers."""
    hexadecimal = "format_string('%a', f.x)"
    bits = f"rpad(substring_index(substring_index({hexadecimal}, 'p', 1), '.', -1), 13, '0')"
    whole = f"CAST(4503599627370496 + CAST(conv({bits}, 16, 10) AS BIGINT) AS DECIMAL(16, 0))"
    power = f"CAST(substring_index({hexadecimal}, 'p', -1) AS INT) - 52"
    parts = f"named_struct('m', {whole}, 'q', {power}, 'k', {_DIGITS_MAX} - d.p)"
    top = f"CAST(m.m * {_ten('m.k')} AS {_WIDE})"
    top = f"CAST({top} * {_two('m.q')} AS {_WIDE})"
    under = f"CAST({_two('-m.q')} * {_ten('-m.k')} AS {_WIDE})"
    divided = bound(
        "n", f"named_struct('t', {top}, 'u', {under})", "named_struct('w', n.t div n.u, 'r', n.t % n.u, 'u', n.u)"
    )
    return bound("m", parts, bound("w", divided, _nearest()))


def _ten(power: str) -> str:
    return f"CAST(concat('1', repeat('0', greatest(0, {power}))) AS DECIMAL(38, 0))"


def _two(power: str) -> str:
    low, high = f"least(40, greatest(0, {power}))", f"greatest(0, {power} - 40)"
    return f"CAST(CAST(shiftleft(1L, {low}) AS {_WIDE}) * CAST(shiftleft(1L, {high}) AS {_WIDE}) AS {_WIDE})"


def _nearest() -> str:
    """`w.w`: 17 digits, behind which are `w.r` parts of `w.u`."""
    low, high = "w.w div 10", "w.w div 10 + 1"
    low_means, high_means = (_means(each, "d.p", _DIGITS_MAX - 1) for each in (low, high))
    low_text, high_text = (_struct(each, "d.p", _DIGITS_MAX - 1) for each in (low, high))
    is_high = "w.w % 10 > 5 OR w.w % 10 = 5 AND w.r > 0"
    tie = f"named_struct('d', {raised('toString of this Float lies between two texts: CAST it to a Decimal')}, 'p', 0)"
    last = _struct("CASE WHEN w.r * 2 > w.u THEN w.w + 1 ELSE w.w END", "d.p", _DIGITS_MAX)
    return (
        f"CASE WHEN {low_means} AND {high_means} AND w.w % 10 = 5 AND w.r = 0 THEN {tie} "
        f"WHEN {high_means} AND ({is_high} OR NOT {low_means}) THEN {high_text} WHEN {low_means} THEN {low_text} "
        f"WHEN w.r * 2 = w.u THEN {tie} ELSE {last} END"
    )


def _with_point() -> str:
    """The digits `r.d` with the point at `r.p`."""
    count = "length(r.d)"
    rest = f"CASE WHEN {count} > 1 THEN '.' || substring(r.d, 2) ELSE '' END"
    return (
        f"CASE WHEN r.p NOT BETWEEN {_PLAIN_FROM} AND {_PLAIN_TO} THEN left(r.d, 1) || {rest} || 'e' || (r.p - 1) "
        f"WHEN r.p <= 0 THEN '0.' || repeat('0', -r.p) || r.d "
        f"WHEN r.p >= {count} THEN r.d || repeat('0', r.p - {count}) "
        f"ELSE left(r.d, r.p) || '.' || substring(r.d, r.p + 1) END"
    )
