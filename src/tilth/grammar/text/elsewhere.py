"""Hints for the keywords of other systems that no statement here has: what to write instead. Pure.

Covers: ClickHouse, ByConity, ByteHouse, Impala, Kudu, MySQL. Does not cover: what a parser refuses by itself (parse.py,
create.py, alter.py). Always holds: a key is the keywords that a statement begins with, with `..` for names, literals
and expressions between them; the longest key that fits is used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: Placeholder of names, literals and expressions between the words of a statement.
BETWEEN = ".."
_NO_ACCOUNTS = "there are no accounts: guard the node's port"
_STATISTICS = "leave it out: statistics are taken while parts are written, and system.parts has them"
_WAREHOUSES = "processes make a warehouse large: tilth worker --warehouse name starts one, and ends by SIGTERM"
_CLIENT_FORMAT = "leave it out: the client chooses its form, tilth sql --format json; SELECT accepts FORMAT"
_ONE_BY_ONE = "write a statement for each table"
_EXPLAIN = "EXPLAIN SELECT .. shows Spark's plan; system.query_log has the time, rows and parts of queries that ran"
_DROPPED = "dropped partitions go by themselves after a while; ALTER TABLE t UNDROP PARTITION p brings one back"
_NO_DICTIONARIES = "there are no dictionaries: create a table and join it"
_NO_FUNCTIONS = "there are no functions of users; SHOW FUNCTIONS lists those that queries have"
_RESOURCES = "settings of the node named warehouse.* bound what queries use"
_RANGES = "leave it out: parts carry the range of each sort key and partition column"
_ONE_TRANSACTION = "leave it out: each statement is a transaction of its own"
_UPSERT = "INSERT INTO t: in a table with UNIQUE KEY a new row replaces the one with its key"
_REPLACED = "leave it out: in a table with UNIQUE KEY a new row replaces the one with its key"
_LOAD = "INSERT INTO t FORMAT CSV, with the file's text behind it: tilth sql < file"
_METRICS = "GET /metrics has the numbers"
_CLIENT_FILES = "the client writes files: tilth sql -c 'SELECT ..' --format csv > x.csv"

#: Hints by the prefix of a statement that ends with the keyword of another system.
_BY_PREFIX: dict[str, str] = {
    # Statements.
    "UPSERT": _UPSERT,
    "COMPUTE": _STATISTICS,
    "INVALIDATE": "leave it out: every query sees what is committed",
    "PROFILE": "SELECT * FROM system.query_log ORDER BY started DESC",
    "SUMMARY": "SELECT * FROM system.query_log ORDER BY started DESC",
    "PREPARE": "send the statement with its values; the clients of HTTP and Python quote nothing for you",
    "EXECUTE": "send the statement with its values",
    "LOAD": _LOAD,
    "IMPORT": _LOAD,
    "DO": "write SELECT",
    "LOCK": _ONE_TRANSACTION,
    "UNLOCK": _ONE_TRANSACTION,
    "SUSPEND": _WAREHOUSES,
    "RESUME": _WAREHOUSES,
    "STOP": "write SYSTEM STOP MERGES t, and so on",
    "REPAIR": "SYSTEM CHECK FILES t REPAIR repairs a table; partitions are in the catalog",
    "COMMENT": "ALTER TABLE t COMMENT COLUMN c '..'; CREATE TABLE .. COMMENT '..' for the table",
    "PURGE": "DROP TABLE t: its files go when dropped_table_keep_seconds are over",
    "RECOVER": "UNDROP TABLE t, or ALTER TABLE t UNDROP PARTITION p",
    "EXCHANGE": "RENAME TABLE a TO b, one after the other",
    "INSERT IGNORE": _UPSERT,
    "INSERT INTO .. ON": _REPLACED,
    "INSERT INTO .. VALUES .. ON": _REPLACED,
    "INSERT INTO .. INFILE": "send the file's text behind FORMAT: tilth sql < file",
    "INSERT INTO .. WATCH": "INSERT INTO t SELECT .. once, or a materialized view of a Kafka table",
    "REPLACE INTO": _UPSERT,
    "ATTACH TABLE": "tables are in the catalog: CREATE it, or UNDROP TABLE one that was dropped",
    "REFRESH MATERIALIZED": "a view runs for each round of its Kafka table; SYSTEM START CONSUME k starts them",
    "CACHE TABLE": "leave it out: files that are read often stay in the memory of the system",
    # SHOW.
    "SHOW TABLE": "SHOW TABLES lists tables; SELECT name, rows, bytes FROM system.tables has their numbers",
    "SHOW TABLES NOT": "SELECT name FROM system.tables WHERE name NOT LIKE '..'",
    "SHOW TABLES ILIKE": "SELECT name FROM system.tables WHERE name ILIKE '..'",
    "SHOW TABLES WHERE": "SELECT name FROM system.tables WHERE ..",
    "SHOW TABLES .. NOT": "SELECT name FROM system.tables WHERE name NOT LIKE '..'",
    "SHOW TABLES .. ILIKE": "SELECT name FROM system.tables WHERE name ILIKE '..'",
    "SHOW TABLES .. WHERE": "SELECT name FROM system.tables WHERE ..",
    "SHOW DATABASES NOT": "SELECT name FROM system.databases WHERE name NOT LIKE '..'",
    "SHOW DATABASES ILIKE": "SELECT name FROM system.databases WHERE name ILIKE '..'",
    "SHOW SETTINGS ILIKE": "SELECT name, value FROM system.settings WHERE name ILIKE '..'",
    "SHOW CHANGED": "SELECT name, value FROM system.settings",
    "SHOW VARIABLES": "SHOW SETTINGS LIKE '..' lists settings; GET /v1/health shows the version of Tilth",
    "SHOW STATUS": "SELECT * FROM system.metrics",
    "SHOW SNAPSHOTS": "SELECT version FROM system.table_versions; SELECT .. FROM t VERSION AS OF n reads one",
    "SHOW MUTATIONS": "SELECT * FROM system.mutations",
    "SHOW PARTS": "SELECT * FROM system.parts WHERE active",
    "SHOW REPLICAS": "SELECT * FROM system.replicas",
    "SHOW WORKERS": "SELECT * FROM system.workers",
    "SHOW SERVERS": "SELECT * FROM system.servers",
    "SHOW BACKUPS": "backups are files below catalog.backup-folder",
    "SHOW QUERIES": "SHOW PROCESSLIST",
    "SHOW TRANSACTIONS": "SELECT * FROM system.transactions",
    "SHOW TRANSACTION": "each statement is a transaction of its own",
    "SHOW DISKS": "SHOW STORAGES",
    "SHOW CATALOGS": "there is one catalog; SHOW DATABASES lists its databases",
    "SHOW EXTERNAL": "there is one catalog; SHOW DATABASES lists its databases",
    "SHOW MATERIALIZED": "SELECT name FROM system.tables WHERE engine = 'MaterializedView'",
    "SHOW RANGE": "SHOW PARTITIONS FROM t",
    "SHOW FILES": "SELECT partition, name, file, bytes FROM system.parts WHERE active",
    "SHOW STATS": "SELECT name, rows, bytes FROM system.tables; system.parts has the ranges of columns",
    "SHOW STATISTICS": "SELECT name, rows FROM system.tables; system.parts has the ranges of columns",
    "SHOW COLUMN": "SHOW COLUMNS FROM t lists columns; system.parts has their ranges",
    "SHOW CREATE DICTIONARY": _NO_DICTIONARIES,
    "SHOW CREATE FUNCTION": _NO_FUNCTIONS,
    "SHOW CREATE MATERIALIZED": "write SHOW CREATE VIEW v",
    **dict.fromkeys(
        (f"SHOW {words}" for words in ("PRIVILEGES", "CURRENT", "ENABLED", "ROLE", "PROFILES", "SETTINGS PROFILES")),
        _NO_ACCOUNTS,
    ),
    **dict.fromkeys(
        (f"SHOW CREATE {word}" for word in ("USER", "ROLE", "ROW", "QUOTA", "SETTINGS", "POLICY", "PROFILE")),
        _NO_ACCOUNTS,
    ),
    # EXPLAIN and DESCRIBE.
    "EXPLAIN ANALYZE": _EXPLAIN,
    "DESCRIBE TABLE ..": "DESCRIBE takes the name of a table; queries read no files and no addresses",
    **dict.fromkeys(
        (f"{verb}{word}" for verb in ("DESCRIBE ", "DESC ") for word in ("FORMATTED", "EXTENDED", "HISTORY", "DETAIL")),
        "DESCRIBE t shows columns and keys, SHOW CREATE TABLE t the whole definition, system.tables the numbers",
    ),
    **dict.fromkeys(
        (f"{verb} {word}" for verb in ("DESCRIBE", "DESC") for word in ("DATABASE", "SCHEMA", "CATALOG")),
        "SHOW TABLES FROM the database: a database has nothing but its name",
    ),
    **dict.fromkeys(
        (f"{verb} {word}" for verb in ("DESCRIBE", "DESC") for word in ("FUNCTION", "DICTIONARY", "QUERY", "USER")),
        "DESCRIBE takes the name of a table; SHOW FUNCTIONS lists functions",
    ),
    # ALTER.
    "ALTER TABLE .. FASTDELETE": "DELETE FROM t WHERE .. deletes rows without rewriting parts",
    "ALTER TABLE .. UNFREEZE": "files of parts never change: nothing is frozen",
    "ALTER TABLE .. CREATE": "there are no branches and tags: SELECT .. FROM t VERSION AS OF n reads the past",
    "ALTER TABLE .. APPLY": "OPTIMIZE TABLE t FINAL writes parts anew without their deleted rows",
    "ALTER TABLE .. DROP DETACHED": _DROPPED,
    "ALTER TABLE .. DROP STAGED": "keys of a table with UNIQUE KEY are unique at once: nothing is staged",
    "ALTER TABLE .. DROP RANGE": "ALTER TABLE t DROP PARTITION p; SHOW PARTITIONS FROM t lists them",
    "ALTER TABLE .. ADD RANGE": "leave it out: partitions appear with their rows",
    "ALTER TABLE .. ADD PARTITION": "leave it out: partitions appear with their rows",
    "ALTER TABLE .. RECOVER": "leave it out: partitions are in the catalog",
    "ALTER TABLE .. SET": "ALTER TABLE t MODIFY SETTING name = value; SHOW SETTINGS lists the settings",
    "ALTER TABLE .. UNSET": "ALTER TABLE t RESET SETTING name",
    "ALTER TABLE .. CHANGE": "ALTER TABLE t RENAME COLUMN a TO b, then ALTER TABLE t MODIFY COLUMN b type",
    "ALTER TABLE .. EXECUTE": "OPTIMIZE TABLE t merges parts, SYSTEM GC t removes old ones",
    "ALTER TABLE .. REWRITE": "OPTIMIZE TABLE t FINAL writes parts anew",
    "ALTER TABLE .. SWAP": "RENAME TABLE a TO b, one after the other",
    "ALTER TABLE .. TRUNCATE": "ALTER TABLE t DROP PARTITION p, or TRUNCATE TABLE t",
    "ALTER TABLE .. EXCHANGE": "DROP PARTITION p, then INSERT INTO t SELECT .. FROM the other table",
    "ALTER TABLE .. FORGET": "leave it out: nothing is kept of a partition that is gone",
    "ALTER TABLE .. EXPORT": _CLIENT_FILES,
    "ALTER TABLE .. ALTER COLUMN .. SET": "ALTER TABLE t MODIFY COLUMN name type; columns are compressed by zstd",
    "ALTER TABLE .. ALTER COLUMN .. DROP": "ALTER TABLE t MODIFY COLUMN name type, or REMOVE DEFAULT",
    "ALTER DATABASE": "a database has nothing but its name: there is nothing to change",
    "ALTER VIEW": "DROP VIEW and CREATE MATERIALIZED VIEW again; offsets are kept",
    "ALTER NAMED": "there are no named collections: write the settings where they are used",
    "ALTER FUNCTION": "write the expression where it is used",
    "ALTER RESOURCE": _RESOURCES,
    **dict.fromkeys(
        (f"ALTER {word}" for word in ("USER", "ROLE", "ROW", "POLICY", "QUOTA", "SETTINGS", "PROFILE")), _NO_ACCOUNTS
    ),
    "ALTER WAREHOUSE .. RENAME": "CREATE WAREHOUSE the new name, then DROP WAREHOUSE the old one",
    **dict.fromkeys((f"ALTER WAREHOUSE .. {word}" for word in ("SUSPEND", "RESUME", "START", "STOP")), _WAREHOUSES),
    "ALTER WAREHOUSE .. SET": "ALTER WAREHOUSE w SETTINGS num_workers = 2",
    "CREATE WAREHOUSE .. SIZE": "CREATE WAREHOUSE w SETTINGS num_workers = 2, type = 'Read'",
    "CREATE WAREHOUSE .. WITH": "CREATE WAREHOUSE w SETTINGS num_workers = 2, type = 'Read'",
    # DROP, RENAME, TRUNCATE, KILL, OPTIMIZE, USE, SET.
    "DROP STATS": _STATISTICS,
    "DROP STATISTICS": _STATISTICS,
    "DROP SNAPSHOT": "leave it out: the history of a table is retained for tablet_history_max_age_sec",
    "DROP NAMED": "there are no named collections",
    "DROP RESOURCE": _RESOURCES,
    "DROP EXTERNAL": "there is one catalog; DROP DATABASE drops a database",
    "DROP CATALOG": "there is one catalog; DROP DATABASE drops a database",
    **dict.fromkeys((f"DROP {word}" for word in ("ROW", "POLICY", "QUOTA", "SETTINGS", "PROFILE")), _NO_ACCOUNTS),
    "DROP TABLE IF EMPTY": "SELECT count(*) FROM t first, then DROP TABLE t",
    "RENAME COLUMN": "ALTER TABLE t RENAME COLUMN a TO b",
    "RENAME DATABASE": "CREATE DATABASE b, then RENAME TABLE a.t TO b.t for each table",
    "RENAME DICTIONARY": _NO_DICTIONARIES,
    "RENAME USER": _NO_ACCOUNTS,
    "TRUNCATE DATABASE": _ONE_BY_ONE,
    "TRUNCATE ALL": _ONE_BY_ONE,
    "TRUNCATE TABLES": _ONE_BY_ONE,
    "KILL TRANSACTION": "KILL QUERY WHERE query_id = '..': each statement is a transaction of its own",
    "KILL MERGES": "SYSTEM STOP MERGES t lets the merges that run end, and begins no more",
    "KILL PART": "leave it out: parts do not move",
    "OPTIMIZE TABLE .. FINAL CLEANUP": "leave it out: FINAL writes parts without their deleted rows",
    "OPTIMIZE TABLE .. CLEANUP": "write OPTIMIZE TABLE t FINAL, which writes parts without their deleted rows",
    "OPTIMIZE TABLE .. TRY": "leave it out; EXPLAIN MERGE t shows what would be merged",
    "OPTIMIZE TABLE .. ZORDER": "leave it out: rows are sorted by ORDER BY of the table",
    "USE WAREHOUSE": "SET warehouse = 'name'",
    "USE CATALOG": "there is one catalog: USE database",
    "USE ROLE": _NO_ACCOUNTS,
    "SET GLOBAL": "SET name = value holds for the connection; settings of the node are in its file",
    "SET SESSION": "write SET name = value",
    "SET LOCAL": "write SET name = value, or SETTINGS behind the statement",
    "SET NAMES": "leave it out: texts are UTF-8",
    "SET TRANSACTION": _ONE_TRANSACTION,
    "SET PASSWORD": _NO_ACCOUNTS,
    "UNDROP TABLE .. UUID": "leave it out: UNDROP brings back the one that was dropped last",
    # CREATE.
    "CREATE TABLE .. STORED": "write ENGINE = MergeTree UNIQUE KEY (..): of the rows with one key the newest is there",
    "CREATE TABLE .. PRIMARY": "write the columns in brackets, then ENGINE = MergeTree UNIQUE KEY (..)",
    "CREATE TABLE .. DISTRIBUTED": "write PARTITION BY bucket(n, column)",
    "CREATE TABLE .. DUPLICATE": "write ENGINE = MergeTree ORDER BY (..)",
    "CREATE TABLE .. DEFAULT": "leave it out: texts are UTF-8 and compared by their bytes",
    "CREATE TABLE .. CHARSET": "leave it out: texts are UTF-8",
    "CREATE TABLE .. CLONE": "write the columns, then INSERT .. SELECT",
    "CREATE MATERIALIZED VIEW .. INNER": "create a table first: CREATE MATERIALIZED VIEW v TO t AS SELECT ..",
    "CREATE MATERIALIZED VIEW .. EMPTY": "leave it out: a view takes what comes from now on",
    "CREATE DATABASE .. ENGINE": "leave ENGINE out: rows of other systems are loaded by INSERT or from Kafka",
    "CREATE CATALOG": "load the rows: INSERT INTO t SELECT .., or Kafka",
    "CREATE STREAM": "CREATE TABLE .. ENGINE = Kafka, and a materialized view of it",
    "CREATE POLICY": _NO_ACCOUNTS,
    "CREATE PROFILE": _NO_ACCOUNTS,
    "CREATE MASKING": _NO_ACCOUNTS,
    "CREATE UNIQUE": "give the table a UNIQUE KEY (..)",
    "CREATE WORKLOAD": _RESOURCES,
    # SYSTEM.
    "SYSTEM FETCH": "INSERT INTO t SELECT .. FROM another table",
    "SYSTEM METASTORE": "leave it out: there is one catalog",
    "SYSTEM LOCK": "leave it out: system.leases lists what is held",
    "SYSTEM UNLOCK": "leave it out: system.leases lists what is held",
    "SYSTEM REFRESH": "a view runs for each round of its Kafka table; SYSTEM START CONSUME k starts them",
    "SYSTEM WAIT": "leave it out: statements are answered when they are committed; mutations_sync = 1 waits",
    "SYSTEM CANCEL": "KILL QUERY or KILL MUTATION",
    "SYSTEM PAUSE": "SYSTEM STOP MERGES t FOR 10 minutes, and so on",
    "SYSTEM RECLUSTER": "leave it out: PARTITION BY bucket(n, column) spreads rows",
    "SYSTEM MARK": "leave it out: parts are in the catalog",
    "SYSTEM MANIFEST": "leave it out: parts are in the catalog",
    "SYSTEM OPTIMIZE": "OPTIMIZE TABLE t FINAL",
    "SYSTEM PREWARM": "leave it out: files that are read often stay in the memory of the system",
    "SYSTEM UNLOAD": "leave it out: nothing of a table is kept in memory but its buffered rows",
    "SYSTEM LOAD": "leave it out: nothing of a table has to be loaded",
    "SYSTEM REPLICATION": "SYSTEM START | STOP REPLICATION t says whether missing copies are made",
    "SYSTEM INSTRUMENT": _METRICS,
    "SYSTEM THREAD": _METRICS,
    "SYSTEM JEMALLOC": _METRICS,
    "SYSTEM ENABLE": "there are no failpoints in a node that serves",
    "SYSTEM DISABLE": "there are no failpoints in a node that serves",
    "SYSTEM RESTART DISK": "leave it out: storages are opened by themselves; SHOW STORAGES lists them",
    "SYSTEM SYNC DEDUP": "leave it out: keys of a table with UNIQUE KEY are unique at once",
    "SYSTEM SYNC MERGES": "OPTIMIZE TABLE t merges, and returns when its merges are done",
    "SYSTEM SYNC FILE": "leave it out: each commit is on the disk when it is answered",
    "SYSTEM CLEAN TRASH": "SYSTEM GC t removes the files of t that nobody needs any more",
    "SYSTEM RELOAD DICTIONARY": _NO_DICTIONARIES,
    "SYSTEM RELOAD DICTIONARIES": _NO_DICTIONARIES,
    "SYSTEM RELOAD FUNCTION": _NO_FUNCTIONS,
    "SYSTEM RELOAD FUNCTIONS": _NO_FUNCTIONS,
    "SYSTEM RELOAD MODEL": "there are no models",
    "SYSTEM RELOAD MODELS": "there are no models",
    "SYSTEM RELOAD USERS": _NO_ACCOUNTS,
    "SYSTEM DROP REPLICA": "ALTER STORAGE name REPLACE REPLICA 'address' WITH 'address' replaces one",
    "SYSTEM DROP CONSUME": "SYSTEM RESET CONSUME OFFSET k TO BEGIN, or DROP TABLE k",
    **dict.fromkeys(
        (
            f"SYSTEM {verb} {service}"
            for verb in ("START", "STOP")
            for service in ("RESOURCE", "THREAD", "CLEANUP", "PULLING", "REPLICATION QUEUES", "VIRTUAL", "REDUNDANT")
        ),
        "the services are CONSUME, MERGES, MUTATIONS, GC, FLUSH, DELTAS, REPLICATION and SCRUBS",
    ),
}
#: Hints by the keyword of a clause, in any statement.
_BY_KEYWORD: dict[str, str] = {
    "FORMAT": _CLIENT_FORMAT,
    "SETTINGS": "leave it out, or SET name = value before the statement",
    "SYNC": "leave it out: a statement is answered when it is committed",
    "ASYNC": "leave it out: a statement is answered when it is committed",
    "NO": "leave it out",
    "CASCADE": "drop what depends on it first",
    "RESTRICT": "leave it out: what others depend on is never dropped",
    "PURGE": "leave it out: files go when dropped_table_keep_seconds are over",
    "UUID": "leave it out: the catalog gives each table its own",
    "ENCODING": "leave it out: columns are encoded and compressed by themselves",
    "COMPRESSION": "leave it out: all columns are compressed by zstd",
    "BLOCK_SIZE": "leave it out; parquet_row_group_bytes and its kin are settings of the table",
    "AUTO_INCREMENT": "leave it out, and give each row its number; DEFAULT uuid() makes a key",
    "KV": "leave it out: a Map is stored as it is",
    "BYTEMAP": "leave it out: a Map is stored as it is",
    "BLOOM": _RANGES,
    "BITMAPINDEX": _RANGES,
    "SEGMENTBITMAPINDEX": _RANGES,
    "HIERARCHICAL": "leave it out",
    "REFERENCES": "leave it out: keys of other tables are not checked",
    "FOREIGN": "leave it out: keys of other tables are not checked",
    "CHECK": "filter in the materialized view's SELECT",
    "UNIQUE": "write UNIQUE KEY (..) behind the columns",
    "INCLUDE": "leave it out",
    "PERIOD": "leave it out",
    "TBLPROPERTIES": "write SETTINGS a = 1",
    "WITH": "write SETTINGS a = 1",
    "DEFINER": f"leave it out: {_NO_ACCOUNTS}",
    "SQL": f"leave it out: {_NO_ACCOUNTS}",
    "RETURNING": "SELECT the rows afterwards",
    "LIMIT": "leave it out",
    "BUCKET": "leave it out",
    "TABLESAMPLE": "leave it out",
    "PARTITIONS": "write PARTITION BY bucket(n, column)",
    "RANGE": "write PARTITION BY toYYYYMM(column), or another function: partitions appear with their rows",
    "LIST": "write PARTITION BY column: partitions appear with their rows",
}
#: Syntax of a statement, the hint for keywords that have none of their own.
_FORMS: dict[str, str] = {
    "ALTER TABLE": "operations are ADD | DROP | MODIFY | RENAME | COMMENT COLUMN, MODIFY | RESET SETTING, MODIFY | "
    "REMOVE TTL, DROP | UNDROP PARTITION, UPDATE and DELETE",
    "CREATE TABLE": "CREATE TABLE t (a Int64, b String) ENGINE = MergeTree PARTITION BY a ORDER BY b SETTINGS ..",
    "CREATE MATERIALIZED": "CREATE MATERIALIZED VIEW v TO t AS SELECT .. FROM a Kafka table",
    "CREATE DATABASE": "CREATE DATABASE [IF NOT EXISTS] d",
    "CREATE WAREHOUSE": "CREATE WAREHOUSE w SETTINGS num_workers = 2",
    "DELETE": "DELETE FROM t WHERE ..",
    "DESC": "DESCRIBE t",
    "DESCRIBE": "DESCRIBE t",
    "DROP": "DROP TABLE | VIEW | DATABASE | STORAGE | WAREHOUSE [IF EXISTS] name",
    "EXISTS": "EXISTS TABLE t",
    "INSERT": "INSERT INTO t (a, b) VALUES (1, 'x'), SELECT .., or FORMAT JSONEachRow and the data",
    "KILL": "KILL QUERY | MUTATION 'id', or KILL QUERY | MUTATION WHERE ..",
    "OPTIMIZE": "OPTIMIZE TABLE t [PARTITION p] [FINAL]",
    "RENAME": "RENAME TABLE a TO b",
    "SHOW": "SHOW DATABASES, TABLES, CREATE TABLE t, COLUMNS FROM t, PARTITIONS FROM t, SETTINGS, FUNCTIONS, "
    "PROCESSLIST, STORAGES or WAREHOUSES; system tables have the rest",
    "SYSTEM": "SYSTEM STOP | START a service, RESET CONSUME OFFSET, REPLAY DEAD LETTERS, FLUSH, GC, VERIFY, SCRUB, "
    "CHECK FILES",
    "TRUNCATE": "TRUNCATE TABLE t",
    "UNDROP": "UNDROP TABLE t",
    "UPDATE": "UPDATE t SET a = 1 WHERE ..",
    "USE": "USE d",
}
_SEE = "docs/reference/sql.md lists the statements"
#: Keywords before the refused one that a message repeats.
_SHOWN_MAX = 6


def instead(before: Sequence[str], ahead: Sequence[str]) -> str:
    """Return the hint for the keywords ahead, of a statement that was read up to there; empty: there is none."""
    words = [*before, *ahead]
    _, hint = _longest(_BY_PREFIX, _without_conditions(words), least=len(_without_conditions(before)) + 1)
    if hint:
        return hint
    if not before:
        return ""
    collapsed = " ".join([*before[:2], BETWEEN, ahead[0]])
    return (
        _BY_PREFIX.get(" ".join(words[: len(before) + 1])) or _BY_PREFIX.get(collapsed) or _BY_KEYWORD.get(ahead[0], "")
    )


def instead_of_statement(words: Sequence[str]) -> tuple[int, str]:
    """Return the number of first words that begin a statement of another system, and the hint for it; 0: none do."""
    return _longest(_BY_PREFIX, words, least=2)


def form_of(before: Sequence[str]) -> str:
    """Return the syntax of the statement that begins with these keywords."""
    _, form = _longest(_FORMS, before, least=1)
    return form or _SEE


def phrase(before: Sequence[str], found: str) -> str:
    """Return the keywords of a statement, shortened, and behind them the one that was found."""
    shown = list(before)
    if len(shown) > _SHOWN_MAX:
        last = max(at for at, word in enumerate(shown) if word == BETWEEN) if BETWEEN in shown else len(shown) - 2
        shown = [*shown[:2], BETWEEN, *shown[last + 1 :]]
    return " ".join([*shown, found])


def _longest(table: Mapping[str, str], words: Sequence[str], *, least: int) -> tuple[int, str]:
    """Return the number of words of the longest prefix in the table, of at least so many, and its text; 0: none is."""
    for count in range(len(words), least - 1, -1):
        text = table.get(" ".join(words[:count]))
        if text is not None:
            return count, text
    return 0, ""


def _without_conditions(words: Sequence[str]) -> list[str]:
    """Return the words without IF EXISTS and IF NOT EXISTS."""
    text = f" {' '.join(words)} "
    return text.replace(" IF EXISTS ", " ").replace(" IF NOT EXISTS ", " ").split()
