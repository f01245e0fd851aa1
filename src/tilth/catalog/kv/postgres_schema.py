"""Tables and the one function of a catalog in PostgreSQL, as text of SQL. Pure.

Covers: what a schema has, and how a commit is done in one round trip. Does not cover: who calls it (postgres.py).
Always holds: a commit locks the rows that it needs in the order of their keys before it looks at their versions, and
takes its own version after that, so versions of a key rise; a key that must be absent is inserted, even if only to be
removed again, for there is no row that could be locked: of two such commits the second waits for the first, and fails.
Keys that many commits pin at once are guarded by advisory locks, which those commits share: row locks would let the
commits of a server pass one by one, or be written for each of them.
"""

from __future__ import annotations

#: `{schema}` is replaced by the quoted name, `{channel}` by the name itself.
_TABLES = """
CREATE SCHEMA IF NOT EXISTS {schema};
-- With the place that the catalog moves to, or has moved to: then nothing is committed here.
CREATE TABLE {schema}.format (
    id int PRIMARY KEY, format int NOT NULL, moved text NOT NULL DEFAULT '', is_copied boolean NOT NULL DEFAULT false);
CREATE TABLE {schema}.kv (k bytea PRIMARY KEY, v bytea NOT NULL, ver bigint NOT NULL);
-- The last commit of each connection: says what became of it when the answer was lost.
CREATE TABLE {schema}.writers (
    id uuid PRIMARY KEY, last_commit uuid, ver bigint, seen timestamptz NOT NULL DEFAULT now());
CREATE SEQUENCE {schema}.version;
-- The histories of the database that this schema was written in; the last one is the one of now.
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
    -- Before all row locks, so that nobody who holds one waits for these.
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
#: A transaction that flushes nothing: it holds the lock of all notifications for a moment only.
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
#: A backend that may still commit what was sent to it. One that waits for its standby is left alone: to end it would
#: show its commit, which no standby has.
END_BACKEND = """
SELECT CASE WHEN wait_event = 'SyncRep' THEN NULL ELSE pg_terminate_backend(pid) END
    FROM pg_stat_activity WHERE pid = %s AND backend_start = %s"""
#: Facts that a new connection is judged by. The timeline is the one that is written now, which control data show only
#: after the next checkpoint.
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
#: The row of a connection need not outlive the database's process, and must not wait for a standby that is away.
ADD_WRITER_AND_FIND_FACTS = (
    "WITH added AS (INSERT INTO {schema}.writers (id) VALUES (%s) RETURNING id), found AS ("
    + _FACTS
    + ") SELECT found.*, set_config('synchronous_commit', 'off', true) FROM found, added"
)
#: Whoever opens an incarnation waits for nobody but for others who do.
LOCK_INCARNATION = (
    "SELECT set_config('synchronous_commit', 'local', true), pg_advisory_xact_lock(hashtext('tilth schema'))"
)
ADD_INCARNATION = """
INSERT INTO {schema}.incarnation (number, token, system, timeline) VALUES (%s, %s, %s, %s)
    RETURNING (extract(epoch FROM opened) * 1000)::bigint"""
#: Behind everything that a lost tail of the sequence may have given out.
RAISE_VERSION = "SELECT setval('{schema}.version', greatest(last_value, %s, %s)) FROM {schema}.version"
#: A commit of a connection's row that is shown is durable as the database is set up once this one is.
CONFIRM = "UPDATE {schema}.writers SET seen = now() WHERE id = '{writer}'"
