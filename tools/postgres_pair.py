"""A primary and a standby of PostgreSQL behind one address, which leads to the new primary after a failover.

    pair = PostgresPair(folder, is_synchronous=False)
    pair.start()                    a primary with its standby
    pair.address(schema="c")        stays the same whoever is the primary
    pair.cut_replication()          the standby receives nothing any more; commits of a synchronous primary wait
    pair.wait_for_standby()         until the standby has replayed all that was written
    pair.fail_over()                the primary dies, the standby is promoted, the address leads there
    pair.add_standby()              a new standby of the current primary, instead of the former primary
    pair.stop()

Covers: physical replication, asynchronous or synchronous, and its link. Does not cover: deciding about a failover.
Always holds: what it starts ends with it.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import psycopg

from tools.postgres import POLL_SECONDS, Postgres
from tools.tcp_link import TcpLink

STANDBY = "standby"
WAIT_SECONDS_MAX = 60.0
_POSITION = "SELECT pg_current_wal_flush_lsn()"
_LAG = (
    "SELECT count(*) FROM pg_stat_replication WHERE application_name = %s AND state = 'streaming' AND replay_lsn >= %s"
)


class PostgresPair:
    """Two servers that change roles."""

    def __init__(self, record_folder: Path, *, is_synchronous: bool = False) -> None:
        self._record_folder = record_folder
        self._is_synchronous = is_synchronous
        self._made = 1
        self.primary = Postgres(record_folder, "postgres-1")
        self.standby: Postgres | None = None
        #: Primary before the last failover; it may run still.
        self.former: Postgres | None = None
        #: Link to which clients connect.
        self.front = TcpLink()
        #: Link through which the standby reads the log.
        self.replication = TcpLink()

    def start(self, *, with_standby: bool = True) -> None:
        """Start the primary and, by default, its standby."""
        self.primary.start()
        self.front.connect(self.primary.port)
        if with_standby:
            self.add_standby()

    def address(self, **options: str) -> str:
        """Return the address of a catalog in the current primary."""
        return self.primary.address(by_port=self.front.port, **options)

    def connect(self) -> psycopg.Connection[tuple[object, ...]]:
        """Return a connection to the primary that goes through no link."""
        return self.primary.connect()

    def add_standby(self) -> None:
        """Copy the primary into a new standby; the former primary, if there is one, ends for good."""
        assert self.standby is None, "it has one"
        if self.former is not None:
            self.former.stop()
            self.former = None
        self._made += 1
        self.standby = Postgres(self._record_folder, f"postgres-{self._made}")
        self.replication.connect(self.primary.port)
        self.replication.mend()
        self.standby.copy(self.replication.port, name=STANDBY)
        self.standby.start()
        self.wait_for_standby()
        if self._is_synchronous:
            self.primary.configure("synchronous_standby_names", STANDBY)

    def cut_replication(self) -> None:
        """Cut the link to the standby, for which a synchronous primary waits in each commit from now on."""
        self.replication.cut()

    def mend_replication(self) -> None:
        self.replication.mend()

    def wait_for_standby(self) -> None:
        """Return when the standby has replayed all that is written now."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        with closing(self.connect()) as connection:
            position = connection.execute(_POSITION).fetchone()
            assert position is not None
            while connection.execute(_LAG, (STANDBY, position[0])).fetchone() != (1,):
                if time.monotonic() > deadline:
                    raise RuntimeError("the standby does not catch up")
                time.sleep(POLL_SECONDS)

    def fail_over(self, *, keeps_former: bool = False) -> None:
        """Promote the standby with the log that it has received, and lead the address there.

        `keeps_former`: the former primary goes on, and answers clients that reach it (`return_to_former`).
        """
        assert self.standby is not None, "there is no standby"
        if not keeps_former:
            self.primary.kill()
        self.front.cut()
        self.replication.cut()
        self.standby.promote()
        # With the settings copied from the former primary it would wait for a standby of its own.
        self.standby.configure("synchronous_standby_names", "")
        self.former, self.primary, self.standby = self.primary, self.standby, None
        self.front.connect(self.primary.port)
        self.front.mend()

    def return_to_former(self) -> None:
        """Lead the address to the former primary, as an outdated name does."""
        assert self.former is not None, "nobody failed over"
        self._lead_to(self.former)

    def return_to_primary(self) -> None:
        self._lead_to(self.primary)

    def _lead_to(self, server: Postgres) -> None:
        self.front.cut()
        self.front.connect(server.port)
        self.front.mend()

    def stop(self) -> None:
        """End all of it, and remove its folders."""
        for each in (self.standby, self.former, self.primary):
            if each is not None:
                each.stop()
        for link in (self.front, self.replication):
            link.close()
