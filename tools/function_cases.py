"""Calls of ClickHouse's functions in Spark's SQL, without `dialect = 'clickhouse'`, and where their answers may differ.

Covers: the rules by which answers differ, at least one call of every function. Does not cover: the table of hostile
values (dialect_cases.py), the comparison (dialect_oracle.py).
Always holds: a call answers as ClickHouse does, or stands under a rule, or is an error.
"""

from __future__ import annotations

#: Behaviour of ClickHouse, and behaviour here.
RULES = {
    "fits": (
        "a result that does not fit its type begins at the other end of it",
        "it is an error, or has a larger type; of texts, `OrNull` and `OrZero` return NULL and 0",
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
        "`toStartOfInterval` counts weeks from a Monday, days from 1970-01-01 and hours from midnight; "
        "`t + toIntervalHour(24)` adds hours",
        "7 days are a week and 24 hours a day, in whichever unit they are written: whole weeks begin on Mondays, days "
        "count from 1970-01-01, and `t + toIntervalHour(24)` adds a day of the calendar; `addHours` adds hours",
    ),
    "rows": (
        "an aggregate over no rows is 0, '' or NaN, unless its argument can be NULL",
        "it is NULL, as in Spark; `argMin`, `argMax` and those that end with `If` answer as ClickHouse does where "
        "Spark knows that their argument is never NULL, as a column that cannot be",
    ),
    "tests": (
        "`arrayExists` and `arrayAll` take a test that is NULL for false",
        "the answer is NULL where such a test decides it, as in Spark",
    ),
    "patterns": (
        "regular expressions are those of RE2",
        "they are those of Java: `$` matches before a last `\\n`, too",
    ),
    "conditions": ("a condition is a number: 0 or 1", "it is a BOOLEAN: its text is `true` or `false`"),
}

#: Calls that answer as ClickHouse does in all rows.
SAME = r"""
toString(s)
toString(n)
toString(b)
toString(m)
toString(d)
toString(u)
toString(f)
toString(n / 7)
toBool(n)
toBool('true')
toFloat32(n)
toFloat64(m)
toFloat32OrNull('1.5')
toFloat32OrNull('1e39')
toFloat32OrZero(w)
toFloat64OrNull(w)
toFloat64OrNull(' 1')
toFloat64OrNull('1d')
toFloat64OrNull('+nan')
toFloat64OrNull('-Infinity')
toFloat64OrZero('infx')
toFloat64OrZero(s)
toInt8(i8)
toInt16(i8)
toInt32(d)
toInt32(1.9)
toInt64(CAST(-1.5 AS Decimal(9, 2)))
toInt8OrNull('300')
toInt8OrZero(s)
toInt16OrNull(s)
toInt16OrZero(w)
toInt32OrNull(' 12')
toInt32OrNull('1.5')
toInt32OrZero(w)
toInt64OrNull('9223372036854775808')
toInt64OrZero(s)
toUInt8(id)
toUInt16(id)
toUInt32(id)
toUInt64(id)
toUInt8OrNull('-1')
toUInt8OrZero('+5')
toUInt16OrNull('70000')
toUInt16OrZero(s)
toUInt32OrNull(w)
toUInt32OrZero(s)
toUInt64OrNull('18446744073709551615')
toUInt64OrZero(w)
toDateOrNull('2026-1-2')
toDateOrNull('20260102')
toDateOrNull('2026')
toDateOrNull('2026-01-02T03:04:05')
toDateOrNull(w)
toDateTimeOrNull('2026-01-02 03:04:05')
toDateTimeOrNull('2026-01-02 03:04')
toDateTimeOrNull('1774735200')
toDateTimeOrNull(w)
toDate(u)
toDate('2026-01-02')
toDate(1773830853)
toDate('2026-01-01 23:00:00', 'Asia/Shanghai')
toDate(u, 'Asia/Shanghai')
toDate32('1960-01-01')
toDateTime('2026-01-02 03:04:05.5')
toDateTime(1.5)
toDateTime(toDateTime64('2026-01-02 03:04:05.7', 1))
toDateTime('2026-01-01 00:00:00', 'Asia/Shanghai')
toDateTime32(u)
toDateTime64('2026-01-02 03:04:05.98765', 3)
toDateTime64('1975-01-02 03:04:05.98765', 0)
toDateTime64(1.55557, 2)
toYear(d)
toQuarter(d)
toMonth(u)
toDayOfMonth(u)
toDayOfWeek(d)
toDayOfYear(u)
toISOWeek(d)
toISOYear(d)
toHour(u)
toMinute(u)
toSecond(u)
toYYYYMM(d)
toYYYYMMDD(u)
toYYYYMMDDhhmmss(u)
toUnixTimestamp(u)
toUnixTimestamp('2026-01-01 00:00:00')
toUnixTimestamp64Milli(toDateTime64(u, 3))
toUnixTimestamp64Micro(toDateTime64(u, 6))
fromUnixTimestamp(id)
fromUnixTimestamp64Milli(toInt64(id * 1000))
fromUnixTimestamp64Micro(toInt64(id * 1000))
formatDateTime(u, '%Y-%m-%d %H:%i:%S')
formatDateTime(u, '%Y%m%d%d today %T')
formatDateTime(u, '%%Y [x] {y} # %%%m')
formatDateTime(u, '%e|%D|%c|%h|%k|%l|%r|%Q|%I|%j')
formatDateTime(u, '%a %b %W %M %p %f %s %y %R %F')
dateName('year', u)
dateName('quarter', u)
dateName('month', u)
dateName('week', u)
dateName('dayofyear', u)
dateName('day', u)
dateName('weekday', u)
dateName('hour', u)
dateName('minute', u)
dateName('second', u)
dateDiff('hour', u, toDateTime('2026-01-01 00:00:00'))
date_diff('month', u, toDateTime('2026-01-01 00:00:00'))
toStartOfSecond(toDateTime64('2026-01-02 03:04:05.7', 1))
toStartOfMinute(u)
toStartOfFiveMinutes(u)
toStartOfFiveMinute(u)
toStartOfTenMinutes(u)
toStartOfFifteenMinutes(u)
toStartOfHour(u)
toStartOfDay(u)
toMonday(toDateTime('2026-03-08 05:06:07'))
toStartOfWeek(toDate('2026-03-08'))
toStartOfWeek(toDate('2026-03-08'), 1)
toStartOfMonth(u)
toLastDayOfMonth(u)
toStartOfQuarter(u)
toStartOfYear(u)
toStartOfInterval(u, INTERVAL 1 DAY)
toStartOfInterval(u, INTERVAL 3 DAY)
toStartOfInterval(u, INTERVAL 1 HOUR)
toStartOfInterval(u, INTERVAL 6 HOUR)
toStartOfInterval(u, INTERVAL 7 MINUTE)
toStartOfInterval(u, INTERVAL 90 MINUTE)
toStartOfInterval(u, INTERVAL 7 SECOND)
toStartOfInterval(u, toIntervalMinute(5))
toDate(toStartOfInterval(toDateTime('2026-03-08 05:06:07'), INTERVAL 1 WEEK))
toDate(toStartOfInterval(toDateTime('2026-03-08 05:06:07'), INTERVAL 2 WEEK))
toDate(toStartOfInterval(toDateTime('2026-03-08 05:06:07'), INTERVAL 5 MONTH))
toDate(toStartOfInterval(toDateTime('2026-03-08 05:06:07'), INTERVAL 5 YEAR))
toDate(toStartOfInterval(toDateTime('2026-03-08 05:06:07'), toIntervalQuarter(2)))
today() >= toDate('2026-01-01')
yesterday() = today()
toUnixTimestamp(now64()) > toUnixTimestamp(u)
addSeconds(u, 1)
addMinutes(u, n * n)
addHours(u, 25)
addDays(u, 1)
addWeeks(u, 2)
addMonths(u, 1)
addQuarters(u, 1)
addYears(u, 1)
subtractSeconds(u, -1)
subtractMinutes(u, -90)
subtractHours(u, -25)
subtractDays(u, -31)
subtractWeeks(u, -1)
subtractMonths(u, -1)
subtractQuarters(u, -1)
subtractYears(u, -1)
u + toIntervalSecond(id)
u + toIntervalMinute(10)
u + toIntervalHour(id)
u + toIntervalDay(1)
u + toIntervalWeek(1)
u + toIntervalMonth(1)
u + toIntervalYear(1)
assumeNotNull(i32)
assumeNotNull(f)
assumeNotNull(m)
assumeNotNull(s)
assumeNotNull(d)
assumeNotNull(t)
toNullable(n)
materialize(n)
multiIf(n > 1, 'a', n > 2, 'b', 'c')
multiIf(i32 > 1, 'a', 'c')
plus(n, 1)
minus(n, 1)
minus(d, toDate('2026-01-01'))
minus(u, toDateTime('2026-01-01 00:00:00'))
multiply(n, -3)
negate(n)
divide(n, 0)
divide(f, g)
intDiv(n, 2)
intDivOrZero(n, 0)
intDivOrZero(i32, 0)
modulo(n, -3)
moduloOrZero(i32, 0)
positiveModulo(n, -3)
positiveModulo(i32, 7)
bitAnd(n, 3)
bitOr(n, 3)
bitXor(n, 3)
bitNot(n)
bitShiftLeft(n, 3)
bitShiftRight(n, 1)
equals(f, f)
notEquals(f, g)
less(f, g)
lessOrEquals(i64, toFloat64(i64))
greater(g, f)
greaterOrEquals(i32, 2)
formatReadableSize(n * 1000)
formatReadableSize(1048576)
formatReadableSize(1e25)
lengthUTF8(w)
lowerUTF8(w)
upperUTF8(w)
reverseUTF8(w)
substringUTF8(w, n)
substringUTF8(w, -5, 3)
positionUTF8(w, '日')
positionCaseInsensitive(w, 'X')
positionCaseInsensitive(s, '')
replaceAll(w, 'l', 'L')
replaceOne(w, 'l', 'L')
replaceOne(w, s, 'x')
match(w, 'l+')
match('a\nb', 'a.b')
match('É', '(?i)é')
trimLeft(s)
trimRight(s)
trimBoth(s)
leftPad(w, 2, '*')
leftPad(w, 20)
leftPad(w, 20, '')
rightPad(w, 20, 'ab')
leftPadUTF8(w, 20, '*')
rightPadUTF8(w, 5)
base64Encode(w)
base64Decode('YWJj')
domain(w)
domain('x.org/a')
domain('http://www.x.org:80/a?b')
domain('https://user:pw@x.org/')
domain('a.b@c.d')
domain('http://a.b./c')
domain('//x.org')
splitByChar(',', w)
splitByChar(',', s)
splitByString('l', w)
splitByString('\\E', 'a\\Eb')
concatWithSeparator('-', w, s)
concatWithSeparator('-', w, n, f)
length(toString(generateUUIDv4()))
has(array(n, 2), 2)
has(array(i32, 2), 100)
hasAny(array(n, 2), array(3, 7))
hasAny(array(s), array(w, NULL))
hasAll(array(n, 2, 3), array(2, 7))
indexOf(array(n, 2, 7), 7)
arrayElement(array(n, 2, 3), -1)
arrayDistinct(array(i32, 2, 2, NULL))
arrayDistinct(array(g, 2, 2))
arrayReverse(array(n, 2, 3))
arrayCompact(array(n, n, 1, n))
arrayCompact(array(i32, NULL, 1, g))
arraySlice(array(n, 2, 3), -2, 2)
arraySum(array(toInt64(9007199254740993), 1, n))
arraySum(array(CAST(1.5 AS Decimal(9, 2)), CAST(id AS Decimal(9, 2))))
arraySum(array(g, 1.5))
arrayAvg(array(n, 1))
arrayUniq(array(f, g, 0))
arrayStringConcat(array(w, 'x'), ',')
arrayStringConcat(array(n, 1))
arrayPushBack(array(n, 2), 5)
arrayPushFront(array(n, 2), 5)
arrayMap(x -> x * 2, array(n, 2))
arrayFilter(x -> x > 1, array(n, i32))
arrayExists(x -> x > 1, array(n))
arrayAll(x -> x > 1, array(n, 2))
arrayMin(array(f, g))
arrayMax(array(g, 2.0))
arraySort(array(n, 2, i32))
arrayReverseSort(array(g, f, 1))
arrayConcat(array(n), array(1, 2))
range(id)
range(2, n)
range(3)
mapContains(map('a', n), 'b')
mapKeys(map('a', n))
mapValues(map('a', n))
tuple(n, w)
empty(s)
notEmpty(w)
empty(array(n))
JSONHas('{"a": null}', 'a')
JSONHas(w, 'a')
JSONExtractString('{"a": {"b c": "y"}}', 'a', 'b c')
JSONExtractString('{"a": 5}', 'a')
JSONExtractRaw('{"a": "x"}', 'a')
JSONExtractInt('{"a": 1.5}', 'a')
JSONExtractInt(concat('{"a":', toString(i64), '}'), 'a')
JSONExtractUInt('{"a": -1}', 'a')
JSONExtractFloat('{"a": "1.5"}', 'a')
JSONExtractBool('{"a": 1}', 'a')
"""

#: Calls whose answers differ in at least one row, or that are an error here, by their rule.
DIFFERENT = {
    "fits": """
plus(b, 1)
multiply(b, 2)
bitShiftLeft(i8, 1)
""",
    "bits": """
bitNot(1) + n
""",
    "dates": """
toMonday(u)
toStartOfWeek(u)
toStartOfDay(d)
addDays(d, 1)
addHours(d, 1)
addYears(d, n)
subtractMonths(u, 1)
toDate(n)
toDateTime(n)
toDateTime(d)
fromUnixTimestamp(n)
toDateOrNull('2026-02-30')
toDateTimeOrNull('2200-01-01 00:00:00')
toUnixTimestamp(d)
""",
    "instants": """
toStartOfInterval(u, INTERVAL 1 MONTH)
toStartOfInterval(u, INTERVAL 1 WEEK)
""",
    "lengths": """
toStartOfInterval(u, INTERVAL 14 DAY)
toStartOfInterval(u, INTERVAL 48 HOUR)
""",
    "tests": """
arrayExists(x -> x > 1, array(i32))
arrayAll(x -> x > 1, array(i32, 2))
""",
    "patterns": r"""
match('a\n', 'a$')
""",
    "conditions": """
toString(n > 1)
""",
}

#: Calls that are an error here, each with what it says.
REFUSED = {
    "toString(array(n))": "write CAST",
    "toTypeName(n)": "toTypeName",
    "toStartOfInterval(u, INTERVAL 7 HOUR)": "hours that divide a day",
    "toStartOfInterval(u, INTERVAL 36 MONTH)": "not counted as their months",
    "formatDateTime(u, '%V')": "toISOWeek",
    "splitByString('', w)": "no empty separator",
    "leftPad(w, 8)": "UTF8",
    "substringUTF8(w, 2, -1)": "no length below 0",
    "toDateOrNull('2026/01/02')": "2026-01-31",
    "divide(m, 2)": "does not take these arguments",
    "minus(toDateTime64('2026-01-01 00:00:00.5', 1), u)": "parts of seconds",
    "toString(toDateTime64('2026-01-01 00:00:00.5', 1))": "parts of seconds",
    "bitShiftLeft(n, 40)": "shift",
    "simpleJSONExtractInt('{}', 'a')": "simpleJSONExtractInt",
    "arrayElement(array(n, 2, 3), 5)": "no such element",
    "plus(i32, 1)": "overflow",
}

#: Aggregates that answer as ClickHouse does over the table, and in its row that has NULL in most columns.
AGGREGATES = """
count()
any(i32)
anyLast(i32)
anyLast(n)
anyIf(n, n > 2)
argMax(w, n)
argMax(i32, n)
argMax(w, f)
argMin(s, i64)
argMin(w, g)
argMaxIf(w, n, n < 5)
argMinIf(w, n, n > 100)
avgIf(n, n > 2)
avgIf(i32, n > 2)
sumIf(n, n > 2)
sumIf(n, n > 100)
sumIf(i32, i32 > 1)
countIf(n > 2)
countIf(i32 > 1)
minIf(n, n > 100)
minIf(g, n > 2)
maxIf(i32, i32 > 1)
uniq(i32)
uniq(f)
uniqCombined(n)
uniqCombined64(n)
uniqHLL12(n)
uniqIf(f, n < 100)
uniqExact(f)
uniqExactIf(n, n > 2)
countDistinct(w)
arraySort(groupArray(i32))
arraySort(groupArrayIf(n, n > 2))
arraySort(groupUniqArray(n % 3))
"""

#: Aggregates that are NULL without a row, by the rule `rows`. The samples' ones need two.
NULL_WITHOUT_ROWS = """
anyLast(n)
groupBitAnd(n)
groupBitOr(n)
groupBitXor(n)
stddevPop(n)
varPop(n)
covarPop(n, id)
stddevSamp(n)
varSamp(n)
covarSamp(n, id)
"""

#: Functions that no expression shows.
WHOLE_QUERIES = """
SELECT arrayJoin(array(1, 2, 2)) AS a ORDER BY a
SELECT number FROM numbers(3) ORDER BY number
"""


def all_calls() -> str:
    """Return all cases in one text."""
    queries = (SAME, *DIFFERENT.values(), AGGREGATES, NULL_WITHOUT_ROWS, WHOLE_QUERIES)
    return "\n".join((*queries, *REFUSED))
