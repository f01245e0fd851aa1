-- Queries as people write them, one a line; each has an answer.
SELECT DISTINCT s FROM t WHERE id=1 AND x<>2 OR NOT id!=3 AND x<=>4 AND id BETWEEN 1 AND 2 AND id NOT IN (1,2)
SELECT id FROM t WHERE s LIKE 'a%' ESCAPE '!' OR s RLIKE 'x' OR s ILIKE 'ONE' OR s IS NULL AND s IS NOT NULL
SELECT id FROM t WHERE s IS DISTINCT FROM 'one' AND (x > 1) IS TRUE AND (x > 1) IS NOT FALSE OR (x > 1) IS UNKNOWN
SELECT id FROM t WHERE (x > 1) IS NOT UNKNOWN AND s LIKE ANY ('o%', 'tw%') OR s LIKE ALL ('o%') OR s NOT LIKE ANY ('b%')
SELECT id FROM t WHERE s NOT LIKE ALL ('q%') AND id >= 1 AND id <= 3 AND id > 0 AND id < 9
SELECT s, count(*), sum(DISTINCT id), avg(x) FILTER (WHERE id > 1), count(DISTINCT s, id) FROM t GROUP BY s HAVING count(*) > 0 ORDER BY s DESC NULLS LAST, 2 ASC NULLS FIRST LIMIT 10 OFFSET 1
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY x), mode() WITHIN GROUP (ORDER BY id), listagg(s, ',') WITHIN GROUP (ORDER BY s) FROM t
SELECT first(s IGNORE NULLS), last(s) IGNORE NULLS, any_value(s), max_by(s, id), collect_list(id), approx_count_distinct(id), percentile(x, 0.5) FROM t
SELECT day, s, grouping(day), grouping_id(), count(*) FROM t GROUP BY day, s WITH ROLLUP
SELECT day, s FROM t GROUP BY CUBE(day, s)
SELECT day, s FROM t GROUP BY GROUPING SETS ((day), (s), ())
SELECT id % 2, count(*) FROM t GROUP BY ALL ORDER BY ALL LIMIT ALL
SELECT row_number() OVER (PARTITION BY day ORDER BY id), sum(x) OVER w, lag(x, 1) IGNORE NULLS OVER (ORDER BY id), ntile(2) OVER (ORDER BY id) FROM t WINDOW w AS (PARTITION BY day)
SELECT avg(x) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), max(x) OVER (ORDER BY id RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) FROM t
SELECT min(x) OVER (ORDER BY ts RANGE BETWEEN INTERVAL 1 DAY PRECEDING AND INTERVAL '1' DAY FOLLOWING) FROM t
SELECT id FROM t QUALIFY row_number() OVER (ORDER BY id) = 1
SELECT id, y, p, q FROM t LATERAL VIEW OUTER explode(a) v AS y LATERAL VIEW posexplode(a) z AS p, q
SELECT t.id, v.y FROM t, LATERAL explode(a) AS v(y)
SELECT t.id, l.name FROM t JOIN LATERAL (SELECT name FROM u WHERE u.id = t.id) l ON true
SELECT * FROM (SELECT id, day, x FROM t) PIVOT (sum(x) AS s, avg(x) FOR id IN (1 AS k, 2))
SELECT * FROM (SELECT id, x, x * 2 AS y FROM t) UNPIVOT INCLUDE NULLS (v FOR n IN (x, y AS why))
SELECT transform(a, e -> e + 1), filter(a, (e, i) -> i > 0), aggregate(a, 0L, (s, e) -> s + e, s -> s * 2), exists(a, e -> e > 1), map_filter(m, (k, v) -> v > 1), zip_with(a, a, (l, r) -> l + r) FROM t
SELECT get_json_object(j, '$.a'), from_json(j, 'a INT').a, to_json(named_struct('a', id)), schema_of_json('{"a": 1}'), json_array_length('[1]') FROM t
SELECT variant_get(parse_json(j), '$.a', 'int'), parse_json(j):a::int, is_variant_null(parse_json(j)), try_parse_json('{') IS NULL FROM t WHERE id < 3
SELECT from_csv('1,a', 'x INT, y STRING'), to_csv(named_struct('a', 1)), schema_of_csv('1,a'), to_xml(named_struct('a', 1))
SELECT CAST(id AS STRING), id::string, try_cast(s AS DATE), INTERVAL 1 DAY, day + INTERVAL '1-2' YEAR TO MONTH, DATE '2020-01-01', TIMESTAMP '2020-01-01 00:00:00', X'1F', 1.5BD, 1L, 1S, 1Y, 1F, 1D, 1e3, NULL, TRUE, r'raw' FROM t
SELECT CASE id WHEN 1 THEN 'a' WHEN 2 THEN 'b' ELSE 'c' END, CASE WHEN id > 1 THEN 1 END, if(id > 1, 1, 2), coalesce(s, 'x'), nvl(s, 'y'), decode(id, 1, 'one', 'more'), a[0], m['k'], element_at(a, 1), (id, s) FROM t WHERE id < 3
SELECT CASE (SELECT max(id) FROM u) WHEN 1 THEN 'a' WHEN 2 THEN 'b' END, (SELECT max(id) FROM u) BETWEEN 1 AND 5
SELECT id, (SELECT max(name) FROM u WHERE u.id = t.id), EXISTS (SELECT 1 FROM u WHERE u.id = t.id), id IN (SELECT id FROM u), (id, id) IN (SELECT id, id FROM u) FROM t
SELECT EXTRACT(YEAR FROM day), trim(BOTH 'o' FROM s), trim(LEADING FROM s), trim(TRAILING 'x' FROM s), substring(s FROM 2 FOR 3), position('n' IN s), overlay(s PLACING 'x' FROM 1 FOR 2), ceil(1.5), floor(1.55, 1), left(s, 1), right(s, 2) FROM t
SELECT timestampadd(DAY, 1, ts), timestampdiff(HOUR, ts, ts), dateadd(DAY, 1, day), datediff(DAY, day, day), date_add(day, 1), date_trunc('DAY', ts), day + INTERVAL 1 MONTH, date_format(ts, 'yyyy-MM'), to_date('2020-01-01'), unix_timestamp(ts), last_day(day), months_between(ts, ts), make_date(2020, 1, 1), next_day(day, 'MON') FROM t
SELECT -id, +id, ~id, id + x - id * x / 2 % 3, id DIV 2, id & 1 | 2 ^ 3, id << 1, id >> 1, id >>> 1, s || 'x', !true FROM t
SELECT current_date, current_timestamp, now(), current_date(), localtimestamp(), current_user, user, session_user, current_timezone()
SELECT count(*) FROM t TABLESAMPLE (100 PERCENT) REPEATABLE (1)
SELECT count(*) FROM t TABLESAMPLE (5 ROWS)
SELECT count(*) FROM t TABLESAMPLE (BUCKET 1 OUT OF 4)
SELECT * FROM VALUES (1, 'a'), (2, 'b') AS v(x, y)
VALUES (1, now()), (2, current_timestamp())
WITH a AS (SELECT 1 AS x), b(y) AS (SELECT x FROM a) SELECT * FROM a, b
WITH RECURSIVE r(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT sum(n) FROM r
SELECT 1 UNION SELECT 2 UNION ALL SELECT 3 EXCEPT SELECT 4 INTERSECT SELECT 5
(SELECT id FROM t) UNION ALL (SELECT id FROM u ORDER BY 1 LIMIT 1)
SELECT count(*) FROM range(10) r
SELECT * FROM stack(2, 1, 2, 3, 4)
SELECT * FROM inline(array(struct(1, 'a'))) AS v(x, y)
SELECT stack(2, 1, 'a', 2, 'b') AS (n, s)
SELECT explode(m) AS (k, v) FROM t
SELECT /*+ BROADCAST(u), COALESCE(3), REPARTITION(3, t.id) */ t.id FROM t JOIN u ON t.id = u.id
SELECT id FROM t DISTRIBUTE BY id SORT BY id
SELECT id FROM t CLUSTER BY id
SELECT * EXCEPT (a, m) FROM t
SELECT t.* EXCEPT (a, m) FROM t
SELECT shop.t.id, `t`.`s` FROM shop.t
FROM t |> WHERE id > 1 |> EXTEND id + 1 AS b |> SET b = 2 |> DROP x |> AGGREGATE sum(b) AS s GROUP BY id |> ORDER BY s |> LIMIT 1
FROM t |> AS q |> JOIN u ON q.id = u.id |> SELECT q.id, name |> UNION ALL VALUES (9, 'x')
TABLE u
SELECT id FROM t VERSION AS OF 1
SELECT id FROM t@v1
SELECT id FROM t TIMESTAMP AS OF now() + INTERVAL 0 SECONDS
SELECT s COLLATE UTF8_LCASE = 'ONE', collation(s) FROM t ORDER BY s COLLATE UTF8_LCASE
SELECT window(ts, '1 hour').start, count(*) FROM t GROUP BY window(ts, '1 hour')
SELECT session_window(ts, '5 minutes').start, count(*) FROM t GROUP BY session_window(ts, '5 minutes')
SELECT regexp_replace(s, 'o', 'x'), regexp_extract(s, '(.)', 1), split(s, 'n'), concat_ws(',', s, s), format_string('%d', id), sha2(s, 256), md5(s), base64(encode(s, 'utf-8')), lpad(s, 5, '.'), initcap(s), soundex(s), levenshtein(s, 'one') FROM t
SELECT map_keys(m), map_from_arrays(array(1), array(2)), sort_array(a), array_distinct(a), flatten(array(a, a)), sequence(1, 3), arrays_zip(a, map_keys(m)), size(a), array_contains(a, 1), slice(array(1, 2, 3), 1, 2) FROM t
SELECT hex(aes_encrypt('a', '0000111122223333')), url_encode('a b'), parse_url('http://h/p?q=1', 'QUERY', 'q'), crc32('a'), uuid() IS NOT NULL, typeof(1), rand(1) < 2, monotonically_increasing_id(), spark_partition_id() >= 0, assert_true(true)
SELECT t.id FROM t LEFT JOIN u USING (id) FULL OUTER JOIN u v ON v.id = t.id CROSS JOIN u w
SELECT t.id FROM t LEFT SEMI JOIN u ON u.id = t.id UNION ALL SELECT t.id FROM t LEFT ANTI JOIN u ON u.id = t.id UNION ALL SELECT u.id FROM t RIGHT JOIN u ON t.id = u.id
SELECT id FROM t NATURAL JOIN u
SELECT * FROM JSON_TABLE('[{"a": 1}]', '$[*]' COLUMNS (a INT PATH '$.a'))
SELECT v FROM UNNEST(array(1, 2)) AS q(v)
SELECT mask(lowerChar => 'q', str => 'AbC'), nth_value(id, 2) RESPECT NULLS OVER (ORDER BY id) FROM t
SELECT cast(named_struct('a', 1) AS struct<a: bigint>), cast(map('k', 1) AS map<string, bigint>), cast(INTERVAL 1 DAY AS interval day to second)
SELECT * FROM t a, t b WHERE a.id = b.id AND a.id IN (1)
EXPLAIN SELECT * FROM t WHERE id = 1
EXPLAIN FORMATTED SELECT count(*) FROM t
EXPLAIN EXTENDED SELECT 1
EXPLAIN COST SELECT 1
SELECT system.builtin, `count`(1) FROM (SELECT 1 AS builtin) AS system GROUP BY 1
