"""Facts about a catalog in PostgreSQL, read without making or changing anything.

Covers: whether it answers, the version of the database, the format of the schema, its clock, what it waits for. Does
not cover: opening a catalog (postgres.py).
Always holds: one short connection that only reads; a schema that is not there stays so.

Tests: tests/integration/catalog/test_postgres_watch.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

import psycopg
from psycopg import Connection, sql
from psycopg.rows import TupleRow

from tilth.base.clock import Clock
from tilth.catalog.errors import CatalogAwayError
from tilth.catalog.kv import postgres_schema as text
from tilth.catalog.kv.postgres_address import PostgresAddress
from tilth.catalog.kv.postgres_connect import Connector, SessionLimits, first_line

_CLOCK = "SELECT extract(epoch FROM clock_timestamp()) * 1000"
_FACTS = """
SELECT current_setting('server_version'), current_setting('synchronous_standby_names'), current_setting('fsync'),
    (SELECT count(*) FROM pg_stat_replication), to_regclass(%s) IS NOT NULL,
    has_database_privilege(current_database(), 'CREATE')"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseFacts:
    """Facts of the database of a catalog."""

    version: str
    #: Format of the catalog's schema; 0: there is none yet.
    format: int
    #: True if the user can make the schema.
    may_create: bool
    #: Address that the catalog was moved to; empty: it was not.
    moved: str
    #: `synchronous_standby_names`; empty: commits wait for no standby.
    synchronous: str
    is_synced: bool
    standbys: int
    #: Time by which this machine's clock is ahead of the database's, in milliseconds, and its greatest error.
    ahead_ms: float
    error_ms: float

    @property
    def is_newer(self) -> bool:
        """True if a newer version of Tilth has written the schema."""
        return self.format > text.FORMAT


def inspect_postgres(
    clock: Clock, address: PostgresAddress, environment: Mapping[str, str], *, seconds_max: float
) -> DatabaseFacts:
    """Connect and read the facts. Raises CatalogAwayError, CatalogSecretError, UnavailableError (CATALOG_POOLER)."""
    share = seconds_max / 2
    limits = SessionLimits(connect=share, statement=share, wait=share, decide=share, silence=share)
    try:
        connection: Connection[TupleRow] = Connector(address, environment).connect(Connection, limits)
        with closing(connection):
            found = connection.execute(_FACTS, (f"{address.schema}.format",)).fetchone()
            assert found is not None
            known, moved = 0, ""
            if found[4]:
                query = sql.SQL("SELECT format, moved FROM {}.format WHERE id = 1")
                row = connection.execute(query.format(sql.Identifier(address.schema))).fetchone()
                known, moved = row or (0, "")
            ahead_ms, error_ms = clock_ahead(clock, connection)
    except psycopg.Error as error:
        hint = "check that the database runs, its address, the user and the password"
        raise CatalogAwayError(catalog=address.shown, reason=first_line(error), hint=hint) from None
    return DatabaseFacts(
        version=found[0],
        synchronous=found[1],
        is_synced=found[2] == "on",
        standbys=found[3],
        may_create=found[5],
        format=known,
        moved=moved,
        ahead_ms=ahead_ms,
        error_ms=error_ms,
    )


def clock_ahead(clock: Clock, connection: Connection[TupleRow]) -> tuple[float, float]:
    """Return by how many milliseconds this machine's clock is ahead of the database's, and the greatest error of
    that.
    """
    began, began_ms = clock.monotonic(), clock.now_ms()
    row = connection.execute(_CLOCK).fetchone()
    took_ms = (clock.monotonic() - began) * 1000
    assert row is not None
    # The database has read its clock between the two readings; their middle has the smallest error.
    return began_ms + took_ms / 2 - float(row[0]), took_ms / 2 + 1
