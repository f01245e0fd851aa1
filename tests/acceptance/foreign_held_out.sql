-- Statements that were held out: written before anybody looked at what Tilth answers, after those of foreign_wider.sql
-- had been mended. `python -m tools.foreign tests/acceptance/foreign_held_out.sql` runs them one by one.

-- setup
CREATE TABLE d.orders (id UInt64, customer String, amount Decimal(18, 2), created DateTime, day Date) ENGINE = MergeTree PARTITION BY toYYYYMM(day) ORDER BY (customer, id);
CREATE TABLE d.stock (sku String, qty Int64, ver UInt64) ENGINE = MergeTree(ver) UNIQUE KEY sku;
CREATE TABLE d.stream (id UInt64, customer String, amount String) ENGINE = Kafka('127.0.0.1:1', 'orders', 'grp9', 'JSONEachRow');
INSERT INTO d.orders VALUES (1, 'ada', 10.50, '2026-03-01 10:00:00', '2026-03-01'), (2, 'bob', 3.25, '2026-04-02 10:00:00', '2026-04-02');
INSERT INTO d.stock VALUES ('a', 5, 1), ('b', 7, 1);

-- tables
CREATE TABLE d.h1 (id UInt64, name String, dt Date) ENGINE = HaUniqueMergeTree('/clickhouse/d/h1/{shard}', '{replica}') PARTITION BY dt ORDER BY id UNIQUE KEY id SETTINGS partition_level_unique_keys = 1;
CREATE TABLE d.h2 (`id` UInt64 NOT NULL COMMENT 'key', `tags` Array(LowCardinality(String)), `m` Map(String, Float64)) ENGINE = CnchMergeTree PARTITION BY (toHour(now()), id) ORDER BY id;
CREATE TABLE d.h3 (id UInt64, payload String) ENGINE = MergeTree ORDER BY id SETTINGS index_granularity = 1024, storage_policy = 'default', disk = disk(type = s3, endpoint = 'https://x');
CREATE TABLE d.h4 (id UInt64, ts DateTime) ENGINE = MergeTree ORDER BY id TTL ts + INTERVAL 3 MONTH TO DISK 'cold', ts + INTERVAL 1 YEAR DELETE;
CREATE TABLE d.h5 (id UInt64, v String STATISTICS(tdigest), w UInt8 DEFAULT 1 SETTINGS (max_compress_block_size = 65536)) ENGINE = MergeTree ORDER BY id;
CREATE TABLE d.h6 (id UInt64, d Dynamic, t Time64(3), f Float64 CODEC(Gorilla, LZ4)) ENGINE = MergeTree ORDER BY id;
CREATE TABLE d.h7 (x Int32) ENGINE = S3Queue('https://b.s3.amazonaws.com/*', 'CSV') SETTINGS mode = 'unordered';
CREATE TABLE d.h8 (id UInt64, name String, PRIMARY KEY id, INDEX i name TYPE tokenbf_v1(256, 2, 0)) ENGINE = MergeTree;
CREATE TABLE d.h9 (id UInt64) ENGINE = MergeTree PARTITION BY intDiv(id, 100000) ORDER BY id SETTINGS max_partitions_to_read = 10;
CREATE TABLE d.h10 EMPTY AS SELECT * FROM d.orders;
CREATE TABLE d.h11 (`c1` Int64, `c2` Nullable(Int64) CODEC(AUTO), ORDER BY c1) ENGINE = ReplicatedMergeTree;
ALTER TABLE d.orders ADD INDEX bf customer TYPE bloom_filter(0.01) GRANULARITY 1 AFTER id, MATERIALIZE INDEX bf;
ALTER TABLE d.orders MODIFY COLUMN customer LowCardinality(String) FIRST;
ALTER TABLE d.orders MODIFY COLUMN amount Decimal(20, 2) COMMENT 'with tax', COMMENT COLUMN customer 'who';
ALTER TABLE d.orders UPDATE amount = 0 WHERE customer = 'bob' SETTINGS mutations_sync = 2;
ALTER TABLE d.orders PREATTACH PARTITION '202603';
ALTER TABLE d.orders DROP PARTITION ALL;
ALTER TABLE d.orders PAUSE MERGES;
ALTER TABLE d.orders MODIFY SQL SECURITY INVOKER;
ALTER TABLE d.stream RESET SETTING kafka_num_consumers;
ALTER TABLE d.orders PARTITION BY toYYYYMMDD(day);
ALTER TABLE d.orders MODIFY UNIQUE KEY id;
OPTIMIZE TABLE d.orders PARTITION tuple(202603) FINAL SETTINGS optimize_throw_if_noop = 1;
OPTIMIZE d.orders FINAL;
MOVE PARTITION 202603 FROM d.orders TO d.h1;
DROP VIEW IF EXISTS d.nope SYNC;
DROP DATABASE IF EXISTS gone ON CLUSTER main;
CREATE DATABASE IF NOT EXISTS d_lake ENGINE = DataLakeCatalog('http://rest:8181');
RENAME TABLE d.h8 TO d.h8b ON CLUSTER main;

-- background
SYSTEM STOP MERGES ON VOLUME hot;
SYSTEM UNFREEZE WITH NAME 'b';
SYSTEM STOP CNCH MERGES;
SYSTEM CLEAR BROKEN TABLES;
SYSTEM DUMP META d.orders;
SYSTEM FLUSH DISTRIBUTED CACHE;
SYSTEM DROP CHECKSUMS CACHE d.orders;
SYSTEM START DISTRIBUTED SENDS d.orders;
SYSTEM SYNC BITENGINE d.orders;
SHOW CREATE TABLE d.orders INTO OUTFILE 'x.sql';
SHOW TABLES IN d LIKE 'o%' FORMAT JSON;
SHOW DISKS;
SHOW PROCEDURE STATUS;
SHOW WARNINGS;
SHOW BINARY LOGS;
SHOW TABLES HISTORY;
DESCRIBE d.orders FORMAT TSV;
DESC DATABASE d;
EXPLAIN VERBOSE SELECT 1;
EXPLAIN AST optimize = 0 SELECT 1;
KILL QUERY ON CLUSTER main WHERE query_id = 'abc' SYNC;
SET allow_experimental_lightweight_delete = 1;
SET names 'utf8mb4';
SELECT * FROM system.tables WHERE database = 'd' AND engine LIKE '%MergeTree' FORMAT Pretty;
SELECT table, formatReadableSize(sum(bytes)) FROM system.parts WHERE active GROUP BY table;
SELECT name, value, changed FROM system.settings WHERE changed;

-- rows
INSERT INTO d.orders (id, customer, amount) SELECT 9, 'cyd', toDecimal64('4.5', 2);
INSERT INTO d.orders VALUES (3, 'eve', 1.00, now(), today());
INSERT INTO d.stock FORMAT JSONCompactEachRow ["c", 1, 1];
INSERT INTO d.stock SELECT * FROM kafka('k:9092', 'topic', 'g', 'JSONEachRow');
INSERT INTO d.stock COMPRESSION 'gzip' FORMAT CSV;
INSERT INTO `d`.`stock` (`sku`, `qty`, `ver`) VALUES ("x", 1, 1);
DELETE FROM d.stock WHERE sku IN (SELECT customer FROM d.orders);
DELETE FROM d.stock;
UPDATE d.stock SET qty = qty + 1, sku = 'z' WHERE sku = 'a';
UPDATE d.stock AS s SET s.qty = 0 WHERE s.sku = 'b';
SELECT customer, sum(amount) FROM d.orders GROUP BY CUBE(customer) HAVING sum(amount) > 1;
SELECT toStartOfFiveMinutes(created), max(amount) FROM d.orders GROUP BY 1;
SELECT * FROM d.orders WHERE customer ILIKE '%A%' LIMIT 5 OFFSET 1;
SELECT * FROM d.orders SEMI LEFT JOIN d.stock ON customer = sku;
SELECT * FROM d.orders WHERE (id, customer) IN ((1, 'ada'), (2, 'bob'));
SELECT argMin(customer, created), groupConcat(customer) FROM d.orders;
SELECT id, customer FROM d.orders ORDER BY id LIMIT 1 WITH TIES OFFSET 1;
SELECT dictGetOrDefault('d.x', 'n', id, '') FROM d.orders;
SELECT id % 2 ? 'odd' : 'even' FROM d.orders;
SELECT DISTINCT customer FROM d.orders ORDER BY ALL NULLS FIRST;
SELECT * FROM d.orders AS o, d.stock AS s WHERE o.customer = s.sku;
SELECT * FROM VALUES('a Int32', 1, 2);
SELECT bitShiftLeft(1, 3), bitAnd(5, 3), reverse('abc'), position('abc', 'b');
SELECT [1, 2, 3][1], map('a', 1)['a'], tuple(1, 2).2;
SELECT sum(amount) FILTER (WHERE customer = 'ada') FROM d.orders;
SELECT now() - INTERVAL 1 DAY, date_trunc('month', now()), toIntervalHour(1);
SELECT * FROM d.orders WHERE created >= '2026-03-01' AND created < toDateTime('2026-04-01 00:00:00');
