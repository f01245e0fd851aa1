"""Final state of a subject, read when all blows are mended and all clients have stopped.

Covers: waiting until services have caught up, reading rows, offsets, files and logs, comparing them with the history.
Does not cover: the comparisons (checkers.py).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from tilth import Result
from tools.jepsen.checkers import (
    Faults,
    Hosting,
    Stretch,
    check_files,
    check_growing,
    check_hosts,
    check_keys,
    check_messages,
    check_offsets,
    check_partitions,
    check_past,
    check_set,
    check_updates,
)
from tools.jepsen.clients import Seen, keyed
from tools.jepsen.history import History, may_stay
from tools.jepsen.messages import Sent
from tools.jepsen.subjects import Store, Subject, wait_until
from tools.jepsen.tables import PARTITION_ROWS, STORED, UPDATED_IDS, VIEW_KEYS, in_the_end

SETTLE_SECONDS_MAX = 120.0
_OPEN_GAPS = "SELECT table FROM system.ingest_gaps WHERE table = 'ko' AND resolution IS NULL"
_ACQUIRED = re.compile(r"action=table_lease_acquired cause_id=(\S+) server=(\S+) epoch=(\d+)")
_STARTED = re.compile(r"action=consumer_started .*table=(\S+) consumer=(\d+) server=(\S+) epoch=(\d+)")


def judge(subject: Subject, history: History, sent: Sent, seen: Seen) -> Faults:
    """Return all faults that the final state and the whole history show."""
    faults = Faults()
    for statement in in_the_end():
        subject.sql(statement)
    _wait_consumed(subject, sent, faults)
    _judge_rows(subject, history, faults)
    _judge_messages(subject, sent, faults)
    _judge_verify(subject, faults)
    _judge_files(subject, faults, history)
    faults.add(check_hosts([*seen.hostings, *_logged(subject.logs().values())]))
    faults.add(check_growing(seen.growing, history.windows))
    faults.add(check_past(seen.past))
    return faults


def _wait_consumed(subject: Subject, sent: Sent, faults: Faults) -> None:
    wanted = {"k": len(sent.messages.acknowledged)}
    if sent.renewed is not None:
        # The consumer notices a topic made anew a little later. It consumes these messages only after that, and after
        # the decision about the gap, which VERIFY would report otherwise.
        sent.renewed.send()
        wanted["ko"] = len(sent.renewed.acknowledged)

    def missing() -> dict[str, int]:
        found = dict(subject.sql("SELECT table, sum(messages) FROM system.ingest_ledger GROUP BY table").rows)
        return {table: count for table, count in wanted.items() if int(found.get(table) or 0) < count}

    def is_done() -> bool:
        if sent.renewed is not None and subject.sql(_OPEN_GAPS).rows:
            # The topic was made anew when all of its messages had been read: the new ones begin at the first offset.
            subject.sql("SYSTEM RESET CONSUME OFFSET d.ko TO BEGIN")
        return not missing()

    if not wait_until(is_done, "all messages", SETTLE_SECONDS_MAX):
        why = subject.sql(
            "SELECT table, state, reason, last_exception FROM system.bg_threads WHERE service = 'consume'"
        ).rows
        faults.found(f"the consumer stands still: {missing()} messages; {why}")


def _judge_rows(subject: Subject, history: History, faults: Faults) -> None:
    for table in ("d.s", "d.s2"):
        rows = _counted(subject.sql(f"SELECT id FROM {table}"), "id")
        faults.add(check_set(history.of("insert", table=table), rows, windows=history.windows))
    found = keyed(subject.sql("SELECT k, n, m FROM d.u").rows)
    faults.add(check_keys(history.of("upsert", "delete", table="d.u"), found, windows=history.windows))
    updated = [(int(id_), int(a), int(b)) for id_, a, b in subject.sql("SELECT id, a, b FROM d.c").rows]
    faults.add(check_updates(history.of("update"), updated, UPDATED_IDS, windows=history.windows))
    partitions = {int(p): int(rows) for p, rows in subject.sql("SELECT p, count(*) FROM d.p GROUP BY p").rows}
    changes = history.of("fill_partition", "drop_partition", "undrop_partition")
    faults.add(check_partitions(changes, partitions, PARTITION_ROWS, windows=history.windows))


def _judge_messages(subject: Subject, sent: Sent, faults: Faults) -> None:
    acknowledged, count = sent.messages.acknowledged, sent.messages.sent
    rows = _counted(subject.sql("SELECT id FROM d.t"), "id")
    faults.add(check_messages(acknowledged, count, rows, "d.t"))
    thirds = [number for number in acknowledged if number % 3 == 0]
    faults.add(check_messages(thirds, count, _counted(subject.sql("SELECT id FROM d.f"), "id"), "d.f"))
    faults.add(check_messages(acknowledged, count, _counted(subject.sql("SELECT id FROM d.g"), "id"), "d.g"))
    if sent.renewed is not None:
        rows_of_other = _counted(subject.sql("SELECT id FROM d.o"), "id")
        found = check_messages(sent.renewed.acknowledged, sent.renewed.sent, rows_of_other, "d.o")
        found.twice = 0 if sent.renewed.may_repeat else found.twice
        faults.add(found)
    query = "SELECT count_if(w <> upper(concat('value ', id)) OR n <> length(w)) FROM d.g"
    faults.torn += int(subject.sql(query).rows[0][0] or 0)
    newest = {number % VIEW_KEYS: number for number in sorted(rows)}
    unique = [(int(key), int(id_)) for key, id_ in subject.sql("SELECT k, id FROM d.q").rows]
    if sorted(unique) != sorted(newest.items()):
        wrong = sorted(set(unique) ^ set(newest.items()))
        faults.found(f"d.q differs from the newest messages: {wrong[:6]}")
    dead = int(subject.sql("SELECT count(*) FROM d.k_dead_letters").rows[0][0] or 0)
    if dead:
        faults.found(f"{dead} dead letters")


def _judge_verify(subject: Subject, faults: Faults) -> None:
    query = (
        "SELECT topic_id, partition, start, end, txn FROM system.ingest_ledger "
        "WHERE table = 'k' AND consumer <> -1 AND end >= 0"
    )
    stretches = [
        Stretch(topic_id=str(topic), partition=partition, start=start, end=end, txn=txn)
        for topic, partition, start, end, txn in subject.sql(query).rows
    ]
    faults.add(check_offsets(stretches))
    for table in STORED:
        report = subject.sql(f"SYSTEM VERIFY d.{table}")
        bad = [row for row in report.rows if not row[report.names.index("ok")]]
        if bad:
            faults.found(f"VERIFY of d.{table}: {bad}")


def _judge_files(subject: Subject, faults: Faults, history: History) -> None:
    """Wait until all copies are made and files without use are removed; count what is still wrong as faults."""
    for store in subject.stores():
        if store.storage:
            query = f"SELECT sum(queue_size) FROM system.replicas WHERE storage = '{store.storage}'"
            wait_until(lambda query=query: not subject.sql(query).rows[0][0], "all copies", SETTLE_SECONDS_MAX)  # type: ignore[misc]
        found = _settled_files(subject, store, history)
        if not found.is_none:
            found.about += _why_files_stay(subject)
        faults.add(found)


def _settled_files(subject: Subject, store: Store, history: History) -> Faults:
    """Return the faults of the last check of a store's files, which is repeated until it has none, or for too long
    without fewer unknown files than before: after the last blow many transactions wait to be cleaned.

    No check comes after one without faults: files that are removed while it reads would look missing.
    """
    found = _files(subject, store, history)

    def has_fewer(before: int) -> bool:
        nonlocal found
        found = _files(subject, store, history)
        return found.is_none or found.unknown_files < before

    while not found.is_none and wait_until(partial(has_fewer, found.unknown_files), "files", SETTLE_SECONDS_MAX):
        pass
    return found


def _why_files_stay(subject: Subject) -> list[str]:
    """Return rows of system tables that explain why files are not removed."""
    queries = (
        "SELECT database, table, holder, snapshot, opened FROM system.readers",
        "SELECT * FROM system.transactions LIMIT 10",
        "SELECT table, service, state, reason, last_exception FROM system.bg_threads WHERE service = 'gc' "
        "AND (state <> 'idle' OR last_exception IS NOT NULL)",
        "SELECT name, uuid FROM system.tables WHERE storage_policy IS NOT NULL",
    )
    return [f"{query[7:60]}: {subject.sql(query).rows}"[:1500] for query in queries]


def _files(subject: Subject, store: Store, history: History) -> Faults:
    policy = f"= '{store.storage}'" if store.storage else "= 'default'"
    tables = subject.sql(f"SELECT name, uuid FROM system.tables WHERE storage_policy {policy}").rows
    uuids = dict(tables)
    named: dict[str, set[str]] = {uuid: set() for uuid in uuids.values()}
    for kind in ("parts", "segments", "deltas", "trash"):
        for table, file in subject.sql(f"SELECT table, file FROM system.{kind}").rows:
            if table in uuids and file:
                named[uuids[table]].add(file)
    # The files of commits that a failover has lost are kept.
    rows = subject.sql("SELECT files FROM system.lost_transactions").rows
    lost = {name for [names] in rows for name in names}
    # The copies are read after the catalog, so a file that was removed in between looks missing until the next try.
    stays = partial(may_stay, windows=history.windows, events=history.events)
    return check_files(named, store.copies(), store.quorum, lost=lost, may_stay=stays)


def _counted(result: Result, column: str) -> Mapping[int, int]:
    return Counter(result.arrow().column(column).to_pylist())


def _logged(logs: Iterable[Path]) -> Sequence[Hosting]:
    """Return the tables and consumers that servers host by their logs, which name the process that acquired a lease."""
    found = []
    for path in logs:
        with suppress(OSError):
            for line in path.read_text(errors="replace").splitlines():
                if acquired := _ACQUIRED.search(line):
                    uuid, holder, epoch = acquired.groups()
                    found.append(Hosting(thing=f"table/{uuid}", epoch=int(epoch), holder=holder))
                elif started := _STARTED.search(line):
                    table, consumer, holder, epoch = started.groups()
                    found.append(Hosting(thing=f"consumer {table}/{consumer}", epoch=int(epoch), holder=holder))
    return found
