"""Words that begin statements of other systems, with what to write instead. Pure.

Covers: first words, and words behind the verbs that Tilth has. Does not cover: words further on (text/elsewhere.py).
Always holds: a word that a statement of ours begins with (parse.py) comes first.
"""

from __future__ import annotations

#: First words.
REFUSED = {
    "EXCHANGE": "RENAME TABLE a TO b, one after the other",
    "ATTACH": "tables are in the catalog; CREATE or UNDROP them",
    "DETACH": "DROP TABLE, and UNDROP TABLE to have it back; SYSTEM STOP .. holds its services",
    "MERGE": "INSERT INTO a table with UNIQUE KEY",
    **dict.fromkeys(
        ("GRANT", "REVOKE"),
        "there are no accounts: who reaches the node's port can run every statement; guard the port",
    ),
    "CHECK": "SYSTEM VERIFY t compares what was consumed with what is stored; reads check each page that they read",
    "RESTORE": "a running node cannot exchange its catalog: tilth catalog restore FILE --data FOLDER makes one in a "
    "new folder, then tilth serve --data FOLDER; tables and partitions that were dropped can be UNDROPped",
    **dict.fromkeys(
        ("BEGIN", "COMMIT", "ROLLBACK", "START"),
        "each statement is a transaction of its own, and all of it is stored or none",
    ),
    "WATCH": "SELECT again, or read the target table of a materialized view",
    "CALL": "there are no procedures: write the statements",
    "REPLACE": "DROP it first, then CREATE",
    "ANALYZE": "statistics are taken while parts are written: leave it out",
    "MSCK": "partitions are in the catalog: leave it out",
    "CACHE": "leave it out: files that are read often stay in the memory of the system",
    "REFRESH": "every query sees what is committed: leave it out",
    "VACUUM": "leave it out: GC removes files by itself; SYSTEM GC t removes those of t at once",
    "MOVE": "INSERT INTO the other table SELECT .. FROM this one",
    "UNSET": "SET name = its default; SHOW SETTINGS lists the defaults",
}
_CREATE_REFUSED = {
    "OR REPLACE": "DROP it first",
    "REPLACE": "DROP it first",
    "TEMPORARY": "create a table, and drop it when you are done",
    "VIEW": "write WITH v AS (SELECT ..) in front of queries; only CREATE MATERIALIZED VIEW .. TO is there",
    "LIVE": "only CREATE MATERIALIZED VIEW .. TO is there",
    "WINDOW": "only CREATE MATERIALIZED VIEW .. TO is there",
    "DICTIONARY": "create a table and join it",
    "FUNCTION": "write the expression where it is used; docs/reference/functions.md lists the functions",
    "USER": "there are no accounts: who reaches the node's port can run every statement; guard the port",
    "ROLE": "there are no accounts: who reaches the node's port can run every statement; guard the port",
    "ROW": "there are no accounts: guard the node's port",
    "QUOTA": "there are no accounts; max_result_bytes and other settings bound statements",
    "SETTINGS": "SET name = value, or put SETTINGS behind the statement",
    "RESOURCE": "settings of the node named warehouse.* bound what queries use",
    "NAMED": "write the settings where they are used",
    "EXTERNAL": "load the rows: INSERT INTO t SELECT .., or Kafka",
    "SNAPSHOT": "SELECT .. FROM t TIMESTAMP AS OF '..' reads the past",
    "INDEX": "sort by the column (ORDER BY) instead",
    **dict.fromkeys(("STATS", "STATISTICS"), "leave it out: statistics are taken while parts are written"),
}
_DROP_REFUSED = {
    "DICTIONARY": "there are none: DROP TABLE drops a table",
    "FUNCTION": "there are none of users",
    "USER": "there are no accounts",
    "ROLE": "there are no accounts",
    "PARTITION": "write ALTER TABLE t DROP PARTITION p",
    "INDEX": "there are none: parts carry the ranges of their columns",
    "TEMPORARY": "there are no temporary tables: DROP TABLE drops a table",
}
_SET_REFUSED = {
    "ROLE": "there are no accounts",
    "DEFAULT": "there are no accounts",
    "TIME": "write SET spark.sql.session.timeZone = 'Asia/Shanghai'",
    "VAR": "put the value itself into the statement",
    "VARIABLE": "put the value itself into the statement",
}
_SHOW_REFUSED = {
    **dict.fromkeys(
        ("INDEX", "INDEXES", "INDICES", "KEYS"), "SHOW CREATE TABLE t shows the keys; there are no indexes"
    ),
    **dict.fromkeys(
        ("GRANTS", "USERS", "ROLES", "ACCESS", "POLICIES", "QUOTAS"), "there are no accounts: guard the node's port"
    ),
    "DICTIONARIES": "there are none: use tables instead",
    "VIEWS": "SELECT name FROM system.tables WHERE engine = 'MaterializedView'",
    "ENGINES": "the engines are MergeTree and Kafka; docs/reference/sql.md describes them",
    "CLUSTER": "SELECT * FROM system.servers",
    "CLUSTERS": "SELECT * FROM system.servers",
    "MERGES": "SELECT * FROM system.merges",
    "TBLPROPERTIES": "SHOW CREATE TABLE t shows the settings",
}
_SYSTEM_REFUSED = {
    "CLEAN": "leave it out: what a transaction left behind is removed in the background",
    "CALCULATE": "leave it out: system.parts and system.tables have the numbers, always up to date",
    "RELOAD": "settings of the node are read when it starts: restart it",
    "RESUME": "write SYSTEM START MERGES, or SYSTEM START MERGES t",
    "SUSPEND": "write SYSTEM STOP MERGES, or SYSTEM STOP MERGES t",
    "REMOVE": "write SYSTEM START MERGES, or SYSTEM START MERGES t",
    "SYNC": "leave it out: there is one catalog",
    "SHUTDOWN": "stop the process of `tilth serve` by SIGTERM",
    "KILL": "stop the process of `tilth serve` by SIGTERM",
    "RESTORE": "ALTER STORAGE name RESTORE REPLICA 'address' fills one that has lost its files",
    "UNFREEZE": "files of parts never change: nothing is frozen",
    "DEDUP": "keys of a table with UNIQUE KEY are unique at once; no service works on it",
}
#: Words behind a verb.
REFUSED_BEHIND: dict[str, dict[str, str]] = {
    "CREATE": _CREATE_REFUSED,
    "DROP": _DROP_REFUSED,
    "SET": _SET_REFUSED,
    "SHOW": _SHOW_REFUSED,
    "SYSTEM": _SYSTEM_REFUSED,
}
#: Words behind a verb that say nothing here.
SKIPPED_BEHIND = {"SHOW": ("FULL",)}
