"""Tables and the one function of a catalog in PostgreSQL, as text of SQL. Pure.

Covers: what a schema has, and how a commit is done in one round trip. Does not cover: who calls it (postgres.py).
Always holds: a commit locks the rows that it needs in the order of their keys before it reads their versions, and
draws its own version after that, so versions of a key rise; a key that must be absent is inserted, even if only to be
removed again, for there is no row that could be locked: of two such commits the second waits for the first, and fails.
Keys that many commits pin at once are guarded by advisory locks, which those commits share: exclusive row locks would
let them pass only one by one, and shared row locks are written to the row by each of them.
"""

from __future__ import annotations

#: `{schema}` is replaced by the quoted name, `{channel}` by the name itself.
_TABLES = """
CREATE SCHEMA IF NOT EXISTS {schema};
-- `moved` is the address that the catalog moves to, or has moved to; while it is set, no commit is applied here.
CREATE TABLE {schema}.format (
    id int PRIMARY KEY, format int NOT NULL, moved text NOT NULL DEFAULT '', is_copied boolean NOT NULL DEFAULT false);
CREATE TABLE {schema}.kv (k bytea PRIMARY KEY, v bytea NOT NULL, ver bigint NOT NULL);
-- The last commit of each connection: shows its outcome when the answer was lost.
CREATE TABLE {schema}.writers (
    id uuid PRIMARY KEY, last_commit uuid, ver bigint, seen timestamptz NOT NULL DEFAULT now());
CREATE SEQUENCE {schema}.version;
-- The incarnations of the catalog; the last one is the current one.
CREATE TABLE {schema}.incarnation (
    number int PRIMARY KEY, token uuid NOT NULL, system bigint NOT NULL, timeline int NOT NULL,
    opened timestamptz NOT NULL DEFAULT clock_timestamp());
INSERT INTO {schema}.format VALUES (1, 0);
"""

_COMMIT_FUNCTION = """
CREATE OR REPLACE FUNCTION {schema}.kv_commit(
    format_ int, writer_ uuid, commit_ uuid, time_ms bigint, pre_keys bytea[], pre_vers bigint[],
    pin_keys bytea[], pin_vers bigint[], own_pins bytea[], guard_keys bytea[],
    new_keys bytea[], new_values bytea[], put_keys bytea[], put_values bytea[], del_keys bytea[],
    requires_sync boolean, OUT outcome text, OUT conflict bytea, OUT version_ bigint) AS $body$
BEGIN
    SELECT format, convert_to(nullif(moved, ''), 'UTF8') INTO version_, conflict FROM {schema}.format WHERE id = 1;
    IF conflict IS NOT NULL THEN
        outcome := 'moved';
        RETURN;
    END IF;
    IF version_ > format_ THEN
        outcome := 'upgraded';
        RETURN;
    END IF;
    IF requires_sync AND current_setting('synchronous_standby_names') = '' THEN
        outcome := 'alone';
        RETURN;
    END IF;
    version_ := extract(epoch FROM clock_timestamp()) * 1000;
    IF version_ < time_ms THEN
        outcome := 'early';
        RETURN;
    END IF;
    -- Advisory locks come before all row locks, so that no commit waits for one while it holds a row lock.
    IF cardinality(own_pins) > 0 THEN
        PERFORM pg_advisory_xact_lock(hashtextextended('{channel}/' || encode(o.k, 'hex'), 1))
            FROM (SELECT k FROM unnest(own_pins) AS u(k) ORDER BY k) AS o;
    END IF;
    IF cardinality(pin_keys) > 0 THEN
        PERFORM pg_advisory_xact_lock_shared(hashtextextended('{channel}/' || encode(o.k, 'hex'), 1))
            FROM (SELECT k FROM unnest(pin_keys) AS u(k) ORDER BY k) AS o;
    END IF;
    PERFORM 1 FROM {schema}.kv WHERE k = ANY(pre_keys || new_keys || put_keys || del_keys) ORDER BY k FOR UPDATE;
    SELECT p.k INTO conflict FROM unnest(pre_keys || pin_keys, pre_vers || pin_vers) WITH ORDINALITY AS p(k, ver, n)
        LEFT JOIN {schema}.kv AS now_ ON now_.k = p.k
        WHERE now_.ver IS DISTINCT FROM nullif(p.ver, 0) ORDER BY p.n LIMIT 1;
    IF FOUND THEN
        outcome := 'conflict';
        RETURN;
    END IF;
    version_ := nextval('{schema}.version');
    IF cardinality(guard_keys) > 0 THEN
        INSERT INTO {schema}.kv SELECT k, ''::bytea, version_ FROM unnest(guard_keys) AS n(k) ORDER BY k;
        DELETE FROM {schema}.kv WHERE k = ANY(guard_keys);
    END IF;
    IF cardinality(del_keys) > 0 THEN
        DELETE FROM {schema}.kv WHERE k = ANY(del_keys);
    END IF;
    IF cardinality(new_keys) > 0 THEN
        INSERT INTO {schema}.kv SELECT k, v, version_ FROM unnest(new_keys, new_values) AS n(k, v) ORDER BY k;
    END IF;
    IF cardinality(put_keys) > 0 THEN
        INSERT INTO {schema}.kv SELECT k, v, version_ FROM unnest(put_keys, put_values) AS n(k, v) ORDER BY k
            ON CONFLICT (k) DO UPDATE SET v = excluded.v, ver = excluded.ver;
    END IF;
    UPDATE {schema}.writers SET last_commit = commit_, ver = version_, seen = now() WHERE id = writer_;
    outcome := 'landed';
END $body$ LANGUAGE plpgsql;
"""

#: Each brings a schema one version further; what a released version had is never changed, a new step is added.
STEPS = (_TABLES + _COMMIT_FUNCTION,)
FORMAT = len(STEPS)

_ARGUMENTS = ("int", "uuid", "uuid", "bigint", *["bytea[]", "bigint[]"] * 2, *["bytea[]"] * 7, "boolean")
COMMIT = (
    "SELECT * FROM {schema}.kv_commit("
    + ", ".join(f"${number}::{kind}" for number, kind in enumerate(_ARGUMENTS, 1))
    + ")"
)
#: Sends a notification in a transaction that flushes nothing, so that it holds the lock of all notifications briefly.
NOTIFY = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1::text, $2::text)"
FIND_MOVE = "SELECT moved, is_copied FROM {schema}.format WHERE id = 1"
LOCK_MOVE = "LOCK TABLE {schema}.format IN ACCESS EXCLUSIVE MODE"
SET_MOVE = "UPDATE {schema}.format SET moved = %s, is_copied = %s WHERE id = 1"
FIND_SYNCHRONOUS = "SELECT current_setting('synchronous_standby_names')"
FIND_FORMAT = "SELECT format FROM {schema}.format WHERE id = 1"
SET_FORMAT = "UPDATE {schema}.format SET format = %s WHERE id = 1"
#: A table of the schema, where it is not one of ours.
FIND_OTHER = (
    "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) AND relkind IN ('r', 'p', 'v') LIMIT 1"
)
REMOVE_OLD_WRITERS = "DELETE FROM {schema}.writers WHERE seen < now() - interval '1 day'"
FIND_COMMIT = "SELECT ver FROM {schema}.writers WHERE id = %s AND last_commit = %s"
LOCK_KEYS = "LOCK TABLE {schema}.kv IN EXCLUSIVE MODE"
FIND_ANY = "SELECT 1 FROM {schema}.kv LIMIT 1"
NEXT_VERSION = "SELECT nextval('{schema}.version')"
COPY_KEYS = "COPY {schema}.kv (k, v, ver) FROM STDIN (FORMAT BINARY)"
GET = "SELECT v, ver FROM {schema}.kv WHERE k = $1::bytea"
GET_ALL = "SELECT k, v, ver FROM {schema}.kv WHERE k = ANY($1::bytea[])"
SCAN = "SELECT k, v, ver FROM {schema}.kv WHERE k >= %b AND k < %b ORDER BY k LIMIT %b"
SCAN_TO_END = "SELECT k, v, ver FROM {schema}.kv WHERE k >= %b ORDER BY k LIMIT %b"
SCAN_BACK = "SELECT k, v, ver FROM {schema}.kv WHERE k >= %b AND k < %b ORDER BY k DESC LIMIT %b"
SCAN_BACK_FROM_END = "SELECT k, v, ver FROM {schema}.kv WHERE k >= %b ORDER BY k DESC LIMIT %b"
#: Ends a backend that may still apply a commit that was sent to it. A backend that waits for its standby is left alone:
#: ending it would show its commit, which no standby has.
END_BACKEND = """
SELECT CASE WHEN wait_event = 'SyncRep' THEN NULL ELSE pg_terminate_backend(pid) END
    FROM pg_stat_activity WHERE pid = %s AND backend_start = %s"""
#: Facts by which a new connection is checked. The timeline is that of the log's current file, because control data show
#: it only after the next checkpoint.
_FACTS = """
SELECT pg_backend_pid(), current_setting('enable_seqscan'),
    a.backend_start, current_setting('synchronous_commit'), s.system_identifier,
    ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int,
    (SELECT coalesce(max(ver), 0) FROM {schema}.writers),
    i.number, i.token, i.system, i.timeline, (extract(epoch FROM i.opened) * 1000)::bigint
    FROM pg_control_system() AS s
    LEFT JOIN pg_stat_activity AS a ON a.pid = pg_backend_pid()
    LEFT JOIN (SELECT * FROM {schema}.incarnation ORDER BY number DESC LIMIT 1) AS i ON true"""
FIND_FACTS = _FACTS
#: Inserts the row of a connection without waiting for disk or standby: it need not survive the database's end.
ADD_WRITER_AND_FIND_FACTS = (
    "WITH added AS (INSERT INTO {schema}.writers (id) VALUES (%s) RETURNING id), found AS ("
    + _FACTS
    + ") SELECT found.*, set_config('synchronous_commit', 'off', true) FROM found, added"
)
#: Lock of the processes that open an incarnation, in a transaction that waits for no standby.
LOCK_INCARNATION = (
    "SELECT set_config('synchronous_commit', 'local', true), pg_advisory_xact_lock(hashtext('tilth schema'))"
)
ADD_INCARNATION = """
INSERT INTO {schema}.incarnation (number, token, system, timeline) VALUES (%s, %s, %s, %s)
    RETURNING (extract(epoch FROM opened) * 1000)::bigint"""
#: Sets the sequence above all versions that the lost end of the log may have had.
RAISE_VERSION = "SELECT setval('{schema}.version', greatest(last_value, %s, %s)) FROM {schema}.version"
#: A commit whose durability proves that of all commits before it.
CONFIRM = "UPDATE {schema}.writers SET seen = now() WHERE id = '{writer}'"
