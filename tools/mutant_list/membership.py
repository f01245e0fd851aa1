"""Mutants of membership."""

from __future__ import annotations

from tools.mutant_list.mutant import Mutant

MEMBERSHIP: tuple[Mutant, ...] = (
    Mutant(
        name="ends-others-after-a-pause",
        breaks="a process that stood still ends others for what it has not seen",
        path="src/tilth/membership/member.py",
        old="            self._watch = SilenceWatch()\n        silent",
        new="            pass\n        silent",
        tests=(
            "tests/unit/membership/test_member.py::"
            "test_a_process_that_stood_still_ends_nobody_for_what_it_has_not_seen",
        ),
    ),
    Mutant(
        name="hosts-although-ended",
        breaks="a server that was ended hosts its tables until it has joined anew",
        path="src/tilth/membership/member.py",
        old='            self._now = Membership(me="", servers=self._now.servers)\n',
        new="            pass\n",
        tests=("tests/unit/membership/test_member.py::test_who_was_ended_hosts_nothing_as_soon_as_it_knows",),
    ),
    Mutant(
        name="heartbeat-by-the-shared-connections",
        breaks="a heartbeat waits for readers that hold all connections",
        path="src/tilth/membership/member.py",
        old="self._servers = catalog.servers if liveness is None else Servers(clock, liveness.heartbeat_store)",
        new="self._servers = catalog.servers",
        tests=("tests/unit/membership/test_member_threads.py::test_nothing_that_is_slow_delays_a_heartbeat",),
    ),
    Mutant(
        name="one-join-only",
        breaks="a server that is ended before its first heartbeat does not start",
        path="src/tilth/membership/member.py",
        old="for _ in range(JOIN_ATTEMPTS_MAX - 1):",
        new="for _ in range(0):",
        tests=(
            "tests/unit/membership/test_member_threads.py::test_who_is_ended_before_its_first_heartbeat_joins_again",
        ),
    ),
    Mutant(
        name="no-news-and-content",
        breaks="a server that cannot receive the others' changes does not read them again",
        path="src/tilth/membership/member.py",
        old="seconds = DEAF_REREAD_SECONDS",
        new="seconds = REREAD_SECONDS",
        tests=(
            "tests/unit/membership/test_member_threads.py::"
            "test_who_cannot_receive_news_reads_everything_again_and_reports_it",
        ),
    ),
    Mutant(
        name="news-lost-when-not-sent",
        breaks="news of a commit are lost when the database does not accept them at once",
        path="src/tilth/catalog/kv/postgres_news.py",
        old="            self._pending |= pending\n",
        new="            pass\n",
        tests=("tests/unit/catalog/kv/test_postgres_news.py::test_news_that_could_not_be_sent_go_with_the_next_ones",),
    ),
    Mutant(
        name="view-without-end",
        breaks="a view of the database lasts as long as its reader likes, and slows all commits",
        path="src/tilth/catalog/kv/postgres_view.py",
        old="if self._store.monotonic() - self._began > self._seconds_max:",
        new="if self._store.monotonic() < 0:",
        tests=("tests/unit/catalog/kv/test_postgres_view.py::test_a_view_lasts_as_long_as_its_use_allows",),
    ),
    Mutant(
        name="backup-within-its-view",
        breaks="a backup keeps a view open while a slow bucket takes it",
        path="src/tilth/catalog/kv/dump.py",
        old="write_view(view, header, copied, is_kept",
        new="write_view(view, header, sink, is_kept",
        tests=("tests/unit/catalog/kv/test_dump.py::test_no_view_is_open_while_the_backup_is_stored",),
    ),
    Mutant(
        name="ended-by-a-hint",
        breaks="a server whose liveness lock was lost is ended although it sends heartbeats",
        path="src/tilth/membership/member.py",
        old="return silent > GONE_SECONDS and self._liveness",
        new="return self._liveness",
        tests=("tests/unit/membership/test_member.py::test_a_missing_lock_alone_ends_nobody",),
    ),
    Mutant(
        name="watch-on-the-pool",
        breaks="the watch on the others waits for a connection of the pool",
        path="src/tilth/membership/member.py",
        old="self._others = catalog.servers if liveness is None else Servers(clock, liveness.watch_store)",
        new="self._others = catalog.servers",
        tests=(
            "tests/unit/membership/test_member_threads.py::"
            "test_a_server_whose_connections_are_all_in_use_sees_the_others_come_and_go",
        ),
    ),
)
