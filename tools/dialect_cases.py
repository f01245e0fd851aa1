"""Expressions of ClickHouse's dialect over hostile values, which both systems must answer the same.

Covers: constants, expressions over the columns of a table, whole queries. Does not cover: the comparison
(dialect_oracle.py). A case that is refused stands in the lists too: what is refused today can be answered later.
"""

from __future__ import annotations

#: Name, type in ClickHouse, type in Spark, can be NULL.
COLUMNS = (
    ("id", "Int32", "INT", False),
    ("i8", "Int8", "TINYINT", True),
    ("i32", "Int32", "INT", True),
    ("i64", "Int64", "BIGINT", True),
    ("n", "Int32", "INT", False),
    ("f", "Float64", "DOUBLE", True),
    ("g", "Float64", "DOUBLE", False),
    ("s", "String", "STRING", True),
    ("w", "String", "STRING", False),
    ("m", "Decimal(18, 4)", "DECIMAL(18, 4)", True),
    ("d", "Date", "DATE", True),
    ("t", "DateTime", "TIMESTAMP", True),
    ("u", "DateTime", "TIMESTAMP", False),
    ("b", "UInt64", "DECIMAL(20, 0)", True),
)
ROWS = (
    "1, 0, 0, 0, 0, 0.0, 0.0, '', '', 0, '1970-01-01', '1970-01-01 00:00:00', '1970-01-01 00:00:00', 0",
    "2, 1, 1, 1, 1, 1.5, 2.5, 'a', 'abc', 1.5, '2026-01-04', '2026-01-04 10:47:33', '2026-03-29 01:30:00', 1",
    "3, -1, -1, -1, -3, -1.5, -2.5, 'Abc', 'Hello World', -1.5, '2024-02-29', '2024-02-29 23:59:59', "
    "'2024-02-29 00:00:00', 255",
    "4, 127, 2147483647, 9223372036854775807, 7, 1e300, 1e-300, 'äöü ß', 'naïve 日本 x', 99999999999999.9999, "
    "'2149-06-06', '2106-02-07 06:28:15', '2038-01-19 03:14:08', 18446744073709551615",
    "5, -128, -2147483648, -9223372036854775808, -7, '-0.0', -0.5, '  pad  ', '%_\\\\', -0.0001, '2000-12-31', "
    "'2000-12-31 12:00:00', '2026-10-25 01:30:00', 9223372036854775808",
    "6, NULL, NULL, NULL, 10, NULL, 0.1, NULL, 'z', NULL, NULL, NULL, '1999-12-31 23:59:59', NULL",
    "7, 7, 100, 1000, 3, 'nan', 'nan', 'NULL', '123', 10, '2027-01-01', '2027-01-01 00:00:01', "
    "'2027-01-01 00:00:00', 7",
    "8, -7, -100, -1000, 2, 'inf', '-inf', 'ABC', 'a,b,,c', 0.1, '2026-12-31', '2026-06-30 00:00:00', "
    "'2026-06-30 06:00:59', 300",
)

CONSTANTS = """
dateAdd(HOUR, 1, toDateTime('2026-01-01 10:00:00'))
dateAdd(MINUTE, 5, toDateTime('2026-01-01 00:00:00'))
dateSub(MINUTE, 30, toDateTime('2026-01-01 00:00:00'))
dateAdd(DAY, 1, toDateTime('2026-01-01 10:00:00'))
date_trunc('hour', toDateTime('2026-01-01 10:47:33'))
dateTrunc('week', toDateTime('2026-01-04 10:47:33'))
toDayOfWeek(toDate('2026-01-04'))
toDayOfWeek(toDate('2026-01-05'))
toStartOfInterval(toDateTime('2026-01-07 10:00:00'), INTERVAL 1 WEEK)
toStartOfInterval(toDateTime('2026-01-07 10:47:00'), INTERVAL 15 MINUTE)
JSONExtractInt('{"a":[5,6]}', 'a', 1)
JSONExtractRaw('{"a":"x"}', 'a')
format('{0}-{1}', 'a', 'b')
hex(SHA256('a'))
CAST(300 AS UInt8)
CAST(200 AS UInt8)
toUInt8(200)
toHour(toDateTime('2026-01-01 05:00:00', 'Asia/Shanghai'))
round(2.5)
round(3.5)
round(-2.5)
round(2.675, 2)
round(1.005, 2)
round(-0.4)
round(25)
round(25, -1)
round(toFloat64('nan'))
substring('hello', 0, 2)
substring('hello', 2)
substring('hello', -3)
substring('hello', -3, 2)
substring('hello', 10)
substring('hello', 2, 100)
substring('äöü', 1, 2)
toString(1.0)
toString(1e20)
toString(toDateTime('2026-01-01 05:00:00'))
toString(toDate('2026-01-01'))
toString(NULL)
toString(1 = 1)
splitByString('', 'abc')
hasAny([1, NULL], [2])
has([1, NULL], 2)
has([1, 2], 2)
has([1, 2], 3)
has(['a'], 'a')
map('a', 1)['b']
map('a', 1)['a']
map(1, 'x', 2, 'y')[2]
[10, 20, 30][2]
[10, 20, 30][-1]
[10, 20, 30][indexOf([10, 20, 30], 20)]
arrayMap(i -> i + 1, [1, 2])
toDate('2026-01-03') - toDate('2026-01-01')
formatDateTime(toDateTime('2026-01-02 03:04:05'), '%Y-%m-%d %H:%i:%S')
formatDateTime(toDateTime('2026-01-02 03:04:05'), '%F %T %R %j %y')
formatDateTime(toDateTime('2026-01-02 03:04:05'), '%H:%M:%S')
arrayReverse([1, 2])
length([1, 2])
length('äöü')
length('')
5 MOD 2
-5 % 3
5 DIV 2
-5 DIV 2
1 / 2
1 / 0
0 / 0
toDate('1960-01-01')
toDate('2149-06-06')
toDateTime('2106-02-07 06:28:15')
toDateTime('1960-01-01 00:00:00')
1 IN (NULL, 2)
3 NOT IN (NULL, 2)
NULL IN (1)
2 IN (NULL, 2)
toFloat64('nan') = toFloat64('nan')
toFloat64('nan') > 1
toFloat64('nan') <> toFloat64('nan')
lower('ÄBC')
upper('äbc')
lowerUTF8('ÄBC')
upperUTF8('äbc')
position('äb', 'b')
position('abc', '')
position('', 'a')
locate('b', 'abc')
concat('a', 1, 'b')
'a' || 'b'
concat('a', NULL)
concat(1.5, 'a')
log(0)
log(-1)
log2(8)
log10(1000)
sqrt(-1)
floor(1e300)
floor(-1.5)
ceil(1.2)
ceil(-0.5)
floor(2.5)
intDiv(-7, 2)
modulo(-7, 2)
abs(-5)
negate(5)
if(NULL, 1, 2)
if(1 = 1, 'a', 'b')
multiIf(1 = 2, 'a', 2 = 2, 'b', 'c')
CASE WHEN 1 = 2 THEN 'a' WHEN 2 = 2 THEN 'b' END
CASE 3 WHEN 1 THEN 'a' ELSE 'z' END
coalesce(NULL, 2)
ifNull(NULL, 3)
nullIf(1, 1)
nullIf(1, 2)
isNull(NULL)
isNotNull(1)
toInt8('12')
toInt32('-7')
toInt64('9223372036854775807')
toInt32(1.9)
toInt32(-1.9)
toInt32OrNull('x')
toInt32OrZero('x')
toInt8OrNull('300')
toInt8OrZero('300')
toUInt8OrNull('-1')
toInt32OrZero('')
toInt32OrNull('1.5')
toInt32OrNull(' 12')
toFloat64('1.5')
toFloat64OrZero('x')
toFloat64OrNull('')
toFloat64OrNull('1e5')
toFloat64OrNull('inf')
toUnixTimestamp(toDateTime('2026-01-01 00:00:00'))
fromUnixTimestamp(1767225600)
toYYYYMM(toDate('2026-01-04'))
toYYYYMMDD(toDate('2026-01-04'))
toYYYYMMDDhhmmss(toDateTime('2026-01-04 01:02:03'))
toISOWeek(toDate('2026-01-01'))
toISOYear(toDate('2027-01-01'))
toStartOfWeek(toDate('2026-01-04'))
toStartOfWeek(toDate('2026-01-04'), 1)
toMonday(toDate('2026-01-04'))
toLastDayOfMonth(toDate('2024-02-10'))
addMonths(toDate('2026-01-31'), 1)
addMonths(toDateTime('2026-01-31 10:00:00'), 1)
subtractMonths(toDate('2026-03-31'), 1)
addYears(toDate('2024-02-29'), 1)
addDays(toDate('2026-01-01'), -1)
addWeeks(toDate('2026-01-01'), 1)
addHours(toDateTime('2026-01-01 10:00:00'), 25)
toDateTime('2026-01-01 10:00:00') + INTERVAL 1 HOUR
toDateTime('2026-01-01 10:00:00') - INTERVAL 1 DAY
toDate('2026-01-31') + INTERVAL 1 MONTH
dateDiff('hour', toDateTime('2026-01-01 10:59:00'), toDateTime('2026-01-01 11:01:00'))
dateDiff('month', toDate('2026-01-31'), toDate('2026-02-01'))
dateDiff('week', toDate('2026-01-04'), toDate('2026-01-05'))
dateDiff('day', toDateTime('2026-01-01 23:59:59'), toDateTime('2026-01-02 00:00:00'))
replaceAll('aaa', 'a', 'bb')
replaceOne('aaa', 'a', 'b')
replaceAll('abc', '', 'x')
startsWith('abc', 'ab')
endsWith('abc', '')
trimBoth('  a ')
trimLeft('  a ')
trim('  a ')
base64Encode('abc')
repeat('ab', 3)
repeat('ab', -1)
empty('')
notEmpty('a')
empty([1])
reverseUTF8('äb')
lengthUTF8('äöü')
'abc' LIKE 'a%'
'a_c' LIKE 'a\\_c'
'äb' LIKE '_b'
'abc' NOT LIKE '%z%'
2 BETWEEN 1 AND 3
NULL AND 0 = 1
NOT NULL
indexOf([1, 2, 3], 2)
indexOf([1, 2], 5)
arrayDistinct([1, 1, NULL, 2])
arrayFilter(x -> x > 1, [1, 2, 3])
arrayExists(x -> x > 1, [1, 2, 3])
arrayAll(x -> x > 1, [1, 2, 3])
arrayPushBack([1], 2)
arrayPushFront([1], 2)
range(3)
range(0)
range(1, 4)
mapKeys(map('a', 1))
mapValues(map('a', 1))
mapContains(map('a', 1), 'a')
tuple(1, 'a').1
(1, 'x').2
pow(2, 10)
pow(0, -1)
exp(1)
cbrt(27)
pi()
atan2(1, 2)
hypot(3, 4)
bitAnd(5, 3)
bitOr(5, 3)
bitXor(5, 3)
sign(-3)
"""

OVER_COLUMNS = """
i8 + 1
i32 - 1
n * 3
n / 2
n % 3
n DIV 3
modulo(n, -3)
-n
abs(n)
i8 = 1
f = 1.5
f > 1
f >= 1.5
f < 1
f <> 1.5
f = f
f > g
g > f
f < g
f <= g
f != g
g BETWEEN -3 AND 3
i32 IN (1, 100, NULL)
i32 NOT IN (1, 100, NULL)
s = 'a'
s < 'b'
s LIKE '%b%'
s IN ('a', 'ABC')
length(s)
length(w)
lengthUTF8(w)
lower(s)
upper(w)
lowerUTF8(w)
upperUTF8(w)
substring(w, 2)
substring(w, 2, 3)
substring(w, -3)
substring(w, n, 2)
position(w, 'b')
positionUTF8(w, '日')
replaceAll(w, 'b', 'XY')
replaceOne(w, 'l', 'L')
trimBoth(s)
startsWith(w, 'a')
endsWith(w, 'c')
empty(s)
notEmpty(w)
concat(s, '-', w)
s || w
concat(w, n)
reverseUTF8(w)
base64Encode(w)
repeat(w, 2)
toString(i64)
toString(n)
toString(b)
toString(m)
toString(d)
toString(t)
toString(f)
m::Nullable(String)
round(f)
round(g)
round(g, 1)
round(m)
round(m, 2)
floor(f)
ceil(g)
floor(m)
ceil(m)
sqrt(g)
exp(n)
log(g)
log(n)
abs(g)
isNaN(g)
isNaN(f)
toInt32(n)
toInt64(i8)
toFloat64(n)
toFloat64(m)
toDate(t)
toDate(u)
toDateTime(d)
toYear(d)
toMonth(t)
toDayOfMonth(u)
toDayOfWeek(d)
toDayOfYear(t)
toISOWeek(d)
toISOYear(d)
toQuarter(d)
toHour(u)
toMinute(u)
toSecond(u)
toYYYYMM(d)
toYYYYMMDD(t)
toUnixTimestamp(t)
toStartOfMinute(u)
toStartOfFiveMinutes(u)
toStartOfFifteenMinutes(u)
toStartOfHour(u)
toStartOfDay(u)
toStartOfMonth(u)
toStartOfQuarter(u)
toStartOfYear(u)
toMonday(u)
toInt32OrZero(s)
toFloat64OrZero(w)
toLastDayOfMonth(d)
toStartOfWeek(u)
toLastDayOfMonth(u)
addDays(d, -1)
addDays(u, 1)
addMonths(u, 1)
addHours(u, -1)
subtractYears(u, 1)
u + INTERVAL 1 HOUR
u - INTERVAL 1 MONTH
dateDiff('day', u, toDateTime('2026-01-01 00:00:00'))
dateDiff('month', d, u)
dateTrunc('month', u)
toStartOfInterval(u, INTERVAL 6 HOUR)
formatDateTime(u, '%Y-%m-%d %H:%i:%S')
if(n > 0, 'p', 'n')
if(i8 > 0, 1, 0)
multiIf(n < 0, 'n', n = 0, 'z', 'p')
coalesce(i32, n)
ifNull(s, w)
nullIf(n, 3)
isNull(s)
isNotNull(f)
i8 IS NULL
i8 > 0 AND f > 0
i8 > 0 OR f > 0
NOT (i8 > 0)
d = '2026-01-04'
d > toDate('2026-01-01')
t > toDateTime('2026-01-01 00:00:00')
d - toDate('2026-01-01')
[n, 1]
[n, 1][1]
has([n, 1], 1)
arrayMap(x -> x + n, [1, 2])
map('a', n)['a']
tuple(n, w).2
bitAnd(n, 3)
sign(n)
b + 1
b > 255
"""

QUERIES = """
SELECT sum(n), min(n), max(n), count() FROM h
SELECT sum(i32), min(i32), max(i32), count(i32) FROM h
SELECT sum(n) FROM h WHERE n > 1000
SELECT sum(i32) FROM h WHERE n > 1000
SELECT min(n) FROM h WHERE n > 1000
SELECT max(w) FROM h WHERE n > 1000
SELECT min(u) FROM h WHERE n > 1000
SELECT count() FROM h WHERE n > 1000
SELECT avg(n) FROM h WHERE n > 1000
SELECT min(g), max(g) FROM h
SELECT min(f), max(f) FROM h
SELECT min(s), max(s), min(d), max(t) FROM h
SELECT avg(n), avg(i8) FROM h
SELECT uniqExact(n), uniqExact(s), countIf(n > 0) FROM h
SELECT sumIf(n, n > 1000), sumIf(n, n > 0) FROM h
SELECT argMax(w, n), argMin(w, n) FROM h
SELECT quantile(0.5)(n) FROM h
SELECT quantiles(0.25, 0.75)(n) FROM h
SELECT max(addMinutes(u, 1)) FROM h WHERE n > 1000
SELECT max(addMinutes(u, 1)), min(toDate(u)), sum(length(w)) FROM h
SELECT sumIf(n, empty(w)) FROM h WHERE n > 1000
SELECT sumIf(n, empty(w)), sumIf(n, n > 1 AND n < 9) FROM h
SELECT max(x) FROM (SELECT toDate(u) AS x FROM h WHERE n > 1000)
SELECT max(x) FROM (SELECT toDate(u) AS x FROM h)
WITH c AS (SELECT length(w) AS x FROM h WHERE n > 1000) SELECT sum(x), avg(x) FROM c
SELECT n > 3 AS k, max(toDate(t)) FROM h GROUP BY k ORDER BY k
SELECT id, g FROM h ORDER BY g DESC, id
SELECT id, g FROM h ORDER BY g, id
SELECT id, f FROM h ORDER BY f DESC, id
SELECT id, f FROM h ORDER BY f, id
SELECT id, s FROM h ORDER BY s DESC, id
SELECT id, s FROM h ORDER BY s, id
SELECT id FROM h WHERE f > 1 ORDER BY id
SELECT id FROM h WHERE NOT (f > 1) ORDER BY id
SELECT id FROM h PREWHERE n > 0 WHERE i8 > 0 ORDER BY id
SELECT n > 0 AS k, count() AS c FROM h GROUP BY k ORDER BY k
SELECT n + 1 AS n FROM h WHERE n > 3 ORDER BY n
SELECT toStartOfYear(u) AS u, count() AS c FROM h GROUP BY u ORDER BY u
SELECT id AS x, x + 1 AS y FROM h WHERE y > 5 ORDER BY x
SELECT n % 2 AS k, id FROM h ORDER BY id LIMIT 1 BY k
SELECT n > 0 AS k, id FROM h ORDER BY id LIMIT 2 BY k LIMIT 3
SELECT id FROM h ORDER BY id LIMIT 2, 3
SELECT id FROM h ORDER BY id LIMIT 3 OFFSET 2
SELECT arrayJoin([1, 2, 2]) AS tag, count() AS c GROUP BY tag ORDER BY tag
WITH (SELECT max(n) FROM h) AS last SELECT id FROM h WHERE n = last ORDER BY id
WITH 3 AS k SELECT id FROM h WHERE n = k ORDER BY id
WITH c AS (SELECT id, n FROM h WHERE n > 2) SELECT sum(n) FROM c
SELECT a.1, a.2 FROM (SELECT (1, 'x') AS a)
SELECT arr[n] FROM (SELECT [10, 20, 30] AS arr, 2 AS n)
SELECT i FROM (SELECT [1, 2] AS a) ARRAY JOIN a AS i ORDER BY i
SELECT id FROM h WHERE n IN (SELECT i32 FROM h) ORDER BY id
SELECT id FROM h WHERE n NOT IN (SELECT i32 FROM h) ORDER BY id
SELECT id FROM h WHERE n NOT IN (SELECT i32 FROM h WHERE i32 > 5) ORDER BY id
SELECT DISTINCT n > 0 AS k FROM h ORDER BY k
SELECT l.id, r.n FROM h AS l JOIN h AS r ON l.n = r.i32 ORDER BY l.id, r.n
SELECT l.id FROM h AS l JOIN h AS r ON l.f = r.f ORDER BY l.id
SELECT id, row_number() OVER (PARTITION BY n > 0 ORDER BY id) AS r FROM h ORDER BY id
SELECT id FROM (SELECT id FROM h WHERE id < 3 UNION ALL SELECT id FROM h WHERE id > 7) ORDER BY id
SELECT max(id) AS m FROM h HAVING m > 3
SELECT n > 0 AS k, sum(id) AS s FROM h GROUP BY k HAVING s > 20 ORDER BY k
"""


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]
