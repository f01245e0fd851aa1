"""Expressions of ClickHouse's dialect over hostile values, which both systems must answer the same.

Covers: expressions over the columns of a table, whole queries. Does not cover: constants (dialect_constants.py), the
comparison (dialect_oracle.py). A case that is refused can stand in the lists, too: it may be answered later.
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
toInt16(i8)
toUInt8(id)
toUInt16(id)
toUInt32(id)
toUInt64(id)
toInt16OrNull(s)
toInt64OrNull(w)
toUInt16OrNull(w)
toUInt32OrNull(s)
toUInt64OrNull(w)
toInt16OrZero(s)
toInt64OrZero(w)
toUInt8OrZero(w)
toUInt16OrZero(s)
toUInt32OrZero(w)
toUInt64OrZero(s)
toFloat32(n)
toFloat32(i8)
toStartOfSecond(u)
toStartOfFiveMinute(u)
toStartOfTenMinutes(u)
addSeconds(u, 1)
addQuarters(u, 1)
addQuarters(d, -1)
subtractSeconds(u, -1)
subtractMinutes(u, -90)
subtractHours(u, -25)
subtractDays(u, -31)
subtractWeeks(u, -1)
subtractQuarters(u, -1)
u + toIntervalSecond(n)
u + toIntervalMinute(10)
u + toIntervalHour(n)
u + toIntervalDay(1)
u + toIntervalWeek(1)
u + toIntervalMonth(1)
u + toIntervalQuarter(1)
u + toIntervalYear(1)
makeDate(2024, 2, id)
plus(n, 1)
plus(i32, g)
minus(n, 1)
minus(u, toDateTime('2026-01-01 00:00:00'))
multiply(n, -3)
multiply(f, g)
divide(n, i8)
divide(f, g)
mod(n, 3)
MOD(i8, -3)
modulo(i64, n + 100)
sin(g)
cos(n)
tan(f)
asin(n / 10)
acos(g)
atan(f)
degrees(g)
radians(n)
sinh(n)
cosh(n)
tanh(f)
ln(g)
ceiling(m)
ceiling(f)
power(n, 2)
power(f, g)
e() * n
lcase(w)
ucase(s)
substr(w, 2, 3)
mid(w, -2)
replace(w, 'l', 'ß')
trimRight(s)
ltrim(s)
rtrim(s)
array(n, 1)
array(s, w)
arrayElement([n, 1], -1)
date_add(HOUR, 1, u)
date_sub(DAY, -1, u)
timestampAdd(MONTH, 1, u)
timestampSub(SECOND, -1, u)
timestamp_add(WEEK, 1, u)
timestamp_sub(YEAR, -1, u)
date_diff('minute', u, toDateTime('2026-01-01 00:00:00'))
f / 0 < g
log(n) >= f
(f - f) < sqrt(f)
(f - f) <> f
(f - f) = NULL
toString(g)
toString(f * 3)
toString(n / 3)
toString(n / 7)
toString(i64 / 3)
concat(w, f)
hasAny([n, 1], [3, 1])
hasAll([f, g], [g])
hasAny([f, g], [f])
hasAny([s], [w, NULL])
arraySum([n, 1])
arraySum([g, 1.5])
arrayAvg([n, 1])
arrayAvg([g, n])
arrayMin([f, g])
arrayMax([f, g])
arrayMin([s, w])
arrayMax([d])
arraySort([f, g, 1])
arraySort([s, w, 'b'])
arrayReverseSort([s, w, 'b'])
arrayReverseSort([f, g, 1])
arrayUniq([f, g, 0])
arrayUniq([s, w])
arrayConcat([n], [1, 2])
arrayConcat([s], [w])
arraySlice([n, 1, 2], 2)
arraySlice([n, 1, 2], n)
arraySlice([n, 1, 2], n, 1)
arraySlice([n, 1, 2], 1, n)
arraySlice([n, 1, 2], -3, n)
arrayStringConcat([s, 'x'], ',')
arrayStringConcat([n, 1], ',')
splitByChar(',', w)
splitByChar(',', s)
splitByString('l', w)
splitByString('日', w)
hex(w)
hex(s)
hex(id)
hex(MD5(w))
hex(SHA1(s))
hex(SHA224(w))
lower(hex(SHA256(w)))
hex(SHA384(w))
hex(SHA512(s))
format('{}-{}', w, n)
format('{1}{0}{1}', w, s)
concatWithSeparator('-', w, s)
concat_ws('-', w, n)
round(m, 1)
round(m, -1)
round(n, -1)
round(g, -1)
JSONExtractString(concat('{"a":"', w, '"}'), 'a')
JSONExtractInt(concat('{"a":', toString(i64), '}'), 'a')
JSONExtractUInt(concat('{"a":', toString(b), '}'), 'a')
JSONExtractFloat(concat('{"a":', toString(g), '}'), 'a')
JSONExtractRaw(concat('{"a":', toString(n), '}'), 'a')
JSONHas(s, 'a')
JSONLength(w)
i64 = 9223372036854775808.0
i64 < 9223372036854775808.0
i64 = toFloat64(i64)
i64 >= toFloat64(i64)
b = toFloat64(b)
i64 IN (9223372036854775808.0)
i64 BETWEEN 9223372036854775808.0 AND 1e19
f IN (0, 1.5)
f NOT IN (0.0)
g BETWEEN 0 AND f
nullIf(g, g)
CASE n WHEN 1 THEN 'a' ELSE 'b' END
CASE w WHEN 'abc' THEN 1 ELSE 2 END
CASE g WHEN 2.5 THEN 'a' ELSE 'b' END
(g, 1) = (g, 1)
(s, 1) = (s, 2)
(n, w) <> (7, 'abc')
d >= u
d < t
dateDiff('hour', d, t)
CAST(n AS Decimal(10, 2))
CAST(m AS Decimal(20, 4))
CAST(m AS Decimal(10, 2))
CAST(w AS Decimal(10, 2))
-n
negate(i32)
-b
b - 1
plus(b, 1)
multiply(b, 2)
intDiv(b, 3)
intDiv(b, i8)
atan2(f, g)
replaceOne(w, s, 'x')
makeDate(1960, 1, id)
arrayExists(x -> x > 5, [i8])
arrayAll(x -> x > 5, [i8, 6])
arrayDistinct([f, 0])
round(f, 2)
if(n > 0, d, toDate(u))
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
SELECT count() AS a0, countIf((coalesce(100, 100) <= 3)) AS a1, argMax(w, id) AS a2 FROM h WHERE ('' IN ('a', 'ABC'))
SELECT argMax(s, n), argMin(s, n), argMax(s, i32), argMin(w, i32) FROM h
SELECT argMax(s, n), argMax(n, i32), argMax(w, n), argMin(u, n), argMin(g, w) FROM h WHERE n > 1000
SELECT minIf(n, n > 3), maxIf(n, n > 3), avgIf(n, n > 3), anyIf(n, n = 7), uniqExactIf(n, n > 3) FROM h
SELECT minIf(n, n > 30), maxIf(n, n > 30), avgIf(n, n > 30), anyIf(n, n > 30), uniqExactIf(n, n > 30) FROM h
SELECT minIf(i32, n > 30), maxIf(i32, n > 30), avgIf(i32, n > 30), anyIf(i32, n > 30), uniqExactIf(f, n < 30) FROM h
SELECT minIf(f, n > 0), maxIf(f, n > 0), minIf(g, n = 3), maxIf(g, n = 3), minIf(w, i8 > 1), maxIf(s, i8 > 1) FROM h
SELECT sumIf(n, i8 > 200), minIf(n, i8 > 200), avgIf(n, i8 > 200), anyIf(w, i8 > 200) FROM h
SELECT minIf(d, n > 0), maxIf(t, n > 0), minIf(u, n > 30), maxIf(m, n > 0), minIf(w, n > 30) FROM h
SELECT id, any(s), any(w), any(f), any(g), any(d), any(u), any(m) FROM h GROUP BY id ORDER BY id
SELECT id, anyIf(s, n > 0), anyIf(w, n > 0), anyIf(u, n > 0) FROM h GROUP BY id ORDER BY id
SELECT any(n), any(w), any(u), any(i8) FROM h WHERE n > 1000
SELECT quantileExact(0.5)(n), quantileExact(0.9)(n), quantileExact(0)(n), quantileExact(1)(b) FROM h
SELECT quantileExact(0.5)(i32), quantileExact(0.25)(f), quantileExact(0.75)(g), quantileExact(0.5)(d) FROM h
SELECT quantileExact(0.5)(n), quantileExact(0.5)(i32), quantileExact(0.5)(g), quantileExact(0.5)(u) FROM h WHERE n > 99
SELECT quantilesExact(0, 0.1, 0.5, 0.99, 1)(n), median(n), median(i32) FROM h
SELECT groupArray(s) FROM (SELECT s FROM h ORDER BY id)
SELECT id, rank() OVER (ORDER BY n > 0) AS r, dense_rank() OVER (ORDER BY n > 0) AS q FROM h ORDER BY id
SELECT avg(i64) FROM h
SELECT avg(b) FROM h WHERE id < 4
SELECT quantile(0.5)(f), quantile(0.5)(g), median(f) FROM h
SELECT quantile(0.5)(f) FROM h WHERE id = 7
SELECT id, f FROM h ORDER BY f DESC NULLS FIRST, id
SELECT id, f FROM h ORDER BY f NULLS FIRST, id
SELECT id, s FROM h ORDER BY (s, id)
SELECT id FROM h ORDER BY (f, id) DESC
SELECT id FROM h ORDER BY [n, id]
SELECT l.id FROM h AS l JOIN h AS r USING (f) ORDER BY l.id
SELECT l.id, r.id FROM h AS l JOIN h AS r USING (n) ORDER BY l.id, r.id
SELECT l.id, r.id FROM h AS l, h AS r WHERE l.n = r.i32 ORDER BY l.id, r.id
SELECT id FROM h WHERE f IN (SELECT f FROM h WHERE f < 1) ORDER BY id
SELECT id FROM h WHERE i64 IN (SELECT toFloat64(i64) FROM h) ORDER BY id
SELECT now() >= toDateTime('2026-01-01 00:00:00') AS a, today() >= toDate(now()) AS b, today() - yesterday() AS c
"""


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]
