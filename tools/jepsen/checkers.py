"""Checkers: functions of a history and of what was read that return faults. Pure.

Covers: rows of INSERTs, keys that are upserted and deleted, columns that are updated, messages and their views,
offsets, files in replicas, hosts and their epochs, versions of tables. Does not cover: reading any of it (final.py,
clients.py).
Always holds: an operation of unknown outcome excuses its own possible effects, and nothing else; a row that a failover
to a standby without the end of the log may have lost is counted apart.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from tools.jepsen.history import Op, Outcome, Window

SHOWN_MAX = 5

_Item = TypeVar("_Item")
_ItemKey = TypeVar("_ItemKey")


@dataclass(slots=True)
class Faults:
    """Numbers of each kind of fault, and sentences about some of them."""

    lost: int = 0
    #: Acknowledged operations lost by a failover to a standby without the end of the log.
    lost_by_failover: int = 0
    #: Files of transactions whose records and whose server such a failover and a kill have lost together: they may have
    #: the only copy of acknowledged rows, so nothing but SYSTEM CHECK FILES names them.
    files_by_failover: int = 0
    twice: int = 0
    torn: int = 0
    unknown_files: int = 0
    #: Faults of other kinds.
    wrong: int = 0
    about: list[str] = field(default_factory=list)

    def add(self, other: Faults) -> None:
        self.lost += other.lost
        self.lost_by_failover += other.lost_by_failover
        self.files_by_failover += other.files_by_failover
        self.twice += other.twice
        self.torn += other.torn
        self.unknown_files += other.unknown_files
        self.wrong += other.wrong
        self.about += other.about

    def found(self, what: str) -> None:
        """Count a fault without a kind of its own."""
        self.wrong += 1
        self.about.append(what)

    @property
    def is_none(self) -> bool:
        return not (self.lost or self.twice or self.torn or self.unknown_files or self.wrong)


# --- rows of INSERTs -------------------------------------------------------------------------------------------------


def check_set(
    inserts: Sequence[Op], rows: Mapping[int, int], *, at: float | None = None, windows: Sequence[Window] = ()
) -> Faults:
    """Compare INSERTs without labels with the rows that a read which began at that time has found, by id.

    Each row of an acknowledged INSERT is there once, no row of a refused one is there, and of an INSERT that is running
    or has an unknown outcome all rows are there or none.
    """
    faults = Faults()
    known = set[int]()
    for op in inserts:
        known.update(op.keys)
        there = [key for key in op.keys if rows.get(key, 0)]
        doubled = [key for key in op.keys if rows.get(key, 0) > 1]
        if doubled:
            faults.twice += len(doubled)
            faults.about.append(f"twice: {_of(op)} rows {doubled[:SHOWN_MAX]}")
        is_torn = bool(there) and len(there) < len(op.keys)
        if is_torn:
            faults.torn += 1
            faults.about.append(f"torn: {_of(op)} has {len(there)} of {len(op.keys)} rows")
        elif not op.was_settled(at):
            continue
        elif op.outcome is Outcome.OK and not there:
            if any(window.covers(op) for window in windows):
                faults.lost_by_failover += 1
            else:
                faults.lost += len(op.keys)
                faults.about.append(f"lost: {_of(op)}")
        elif op.outcome is Outcome.REFUSED and there:
            faults.found(f"refused, but there: {_of(op)} error={op.error[:120]}")
    strange = [key for key in rows if key not in known]
    if strange:
        faults.found(f"rows that nobody inserted: {strange[:SHOWN_MAX]} of {len(strange)}")
    return faults


# --- keys that are upserted and deleted ------------------------------------------------------------------------------


@dataclass(slots=True)
class _Key:
    """History of one key, which one client writes."""

    #: Last operation that was acknowledged.
    last: Op | None = None
    #: Numbers of upserts with an unknown outcome: they may take effect now or later.
    maybe: set[int] = field(default_factory=set)
    #: Greatest number of a delete with an unknown outcome, which removes rows up to that number; -1: there is none.
    maybe_deleted: int = -1
    #: `True` where a failover may have lost the last acknowledged operation.
    is_in_window: bool = False
    #: Numbers of all acknowledged upserts, any of which a failover may have brought back.
    acknowledged: set[int] = field(default_factory=set)


def check_keys(
    writes: Sequence[Op],
    found: Mapping[int, Sequence[tuple[int, int]]],
    *,
    at: float | None = None,
    windows: Sequence[Window] = (),
) -> Faults:
    """Compare upserts `(key, n, -n)` and deletes of rows up to n with the rows of a read that began at that time.

    Of each key the table keeps the row with the greatest n. An upsert whose outcome is unknown may be committed late,
    even after a delete.
    """
    faults = Faults()
    histories = _by_key(writes, at, windows)
    for key, rows in found.items():
        if len(rows) > 1:
            faults.twice += 1
            faults.about.append(f"twice: key {key} has {list(rows)[:SHOWN_MAX]}")
        for n, m in rows:
            if n + m:
                faults.torn += 1
                faults.about.append(f"torn: key {key} has n={n} m={m}")
        if key not in histories:
            faults.found(f"a key that nobody has written: {key}")
    for key, history in histories.items():
        _check_key(key, history, [n for n, _ in found.get(key, ())], faults)
    _check_batches(writes, {key: rows[0][0] for key, rows in found.items() if rows}, faults)
    return faults


def _by_key(writes: Sequence[Op], at: float | None, windows: Sequence[Window]) -> dict[int, _Key]:
    histories: dict[int, _Key] = defaultdict(_Key)
    for op in writes:
        is_settled = op.was_settled(at)
        if is_settled and op.outcome is Outcome.REFUSED:
            continue
        is_delete = op.kind == "delete"
        for key in op.keys:
            history = histories[key]
            if is_settled:
                history.last = op
                history.is_in_window = any(window.covers(op) for window in windows)
                if not is_delete:
                    history.acknowledged.add(op.number)
            elif is_delete:
                history.maybe_deleted = max(history.maybe_deleted, op.number)
            else:
                history.maybe.add(op.number)
    return histories


def _check_key(key: int, history: _Key, numbers: Sequence[int], faults: Faults) -> None:
    last = history.last
    if last is None or last.kind == "delete":
        allowed, may_be_absent = history.maybe, True
    else:
        newer = {n for n in history.maybe if n > last.number}
        may_be_absent = history.maybe_deleted >= last.number
        # An older upsert that is committed after a late delete is there.
        allowed = {last.number} | (history.maybe if may_be_absent else newer)
    is_right = all(n in allowed for n in numbers) if numbers else may_be_absent
    if is_right:
        return
    if history.is_in_window and all(n in history.acknowledged | history.maybe for n in numbers):
        faults.lost_by_failover += 1
        return
    shown = list(numbers) or "nothing"
    what = f"key {key} has {shown}, should have one of {sorted(allowed)[-SHOWN_MAX:]}"
    is_lost = last is not None and last.kind != "delete" and all(n < last.number for n in numbers)
    if is_lost:
        faults.lost += 1
        faults.about.append(f"lost: {what}; last: {_of(last)}" if last else what)
    else:
        faults.found(f"{what}; last: {_of(last) if last else 'nothing was answered'}")


def _check_batches(writes: Sequence[Op], now: Mapping[int, int], faults: Faults) -> None:
    """Add a fault for each upsert of several keys that only some of them have, and none of the others newer."""
    deletes: dict[int, list[Op]] = defaultdict(list)
    for op in writes:
        if op.kind == "delete" and op.outcome is not Outcome.REFUSED:
            for key in op.keys:
                deletes[key].append(op)
    for op in writes:
        if op.kind != "upsert" or not any(now.get(key) == op.number for key in op.keys):
            continue
        missing = [
            key
            for key in op.keys
            if now.get(key, -1) < op.number and not any(each.number >= op.number for each in deletes[key])
        ]
        if missing:
            faults.torn += 1
            faults.about.append(f"torn: {_of(op)} is not there for keys {missing[:SHOWN_MAX]}")


# --- columns that are updated ----------------------------------------------------------------------------------------


def check_updates(
    updates: Sequence[Op],
    found: Sequence[tuple[int, int, int]],
    ids: int,
    *,
    at: float | None = None,
    windows: Sequence[Window] = (),
) -> Faults:
    """Compare `SET a = n, b = -n WHERE .. a < n` with rows `(id, a, b)`: each has its greatest n in both columns."""
    faults = Faults()
    counts = Counter(id_ for id_, _, _ in found)
    faults.twice += sum(count - 1 for count in counts.values())
    missing = [id_ for id_ in range(ids) if id_ not in counts]
    faults.lost += len(missing)
    if missing or len(found) != len(counts):
        faults.about.append(f"updated rows: missing {missing[:SHOWN_MAX]}, {len(found)} rows of {len(counts)} ids")
    least: dict[int, Op | None] = dict.fromkeys(range(ids))
    allowed: dict[int, set[int]] = {id_: {0} for id_ in range(ids)}
    for op in updates:
        is_settled = op.was_settled(at)
        if is_settled and op.outcome is Outcome.REFUSED:
            continue
        for id_ in op.keys:
            allowed[id_].add(op.number)
            if is_settled:
                least[id_] = op
    for id_, a, b in found:
        if a + b:
            faults.torn += 1
            faults.about.append(f"torn: id {id_} has a={a} b={b}")
        last = least.get(id_)
        if a not in allowed.get(id_, ()):
            faults.found(f"id {id_} has a={a}, which nobody wrote")
        elif last is not None and a < last.number:
            if any(window.covers(last) for window in windows):
                faults.lost_by_failover += 1
            else:
                faults.lost += 1
                faults.about.append(f"lost: id {id_} has a={a}; last: {_of(last)}")
    return faults


# --- partitions that are dropped and brought back ---------------------------------------------------------------------


def check_partitions(
    changes: Sequence[Op], rows: Mapping[int, int], rows_each: int, *, windows: Sequence[Window] = ()
) -> Faults:
    """Compare INSERT, DROP and UNDROP of the partition `op.number` with the count of rows of each partition."""
    faults = Faults()
    states: dict[int, set[bool]] = defaultdict(lambda: {False})
    for op in changes:
        if op.outcome is Outcome.REFUSED:
            continue
        after = op.kind != "drop_partition"
        is_sure = op.outcome is Outcome.OK and not any(window.covers(op) for window in windows)
        states[op.number] = {after} if is_sure else states[op.number] | {after}
    for partition, count in rows.items():
        if count > rows_each:
            faults.twice += 1
            faults.about.append(f"twice: partition {partition} has {count} rows of {rows_each}")
        elif 0 < count < rows_each:
            faults.torn += 1
            faults.about.append(f"torn: partition {partition} has {count} rows of {rows_each}")
        if partition not in states:
            faults.found(f"a partition that nobody filled: {partition}")
    for partition, allowed in states.items():
        is_there = rows.get(partition, 0) > 0
        if is_there in allowed:
            continue
        if is_there:
            faults.found(f"partition {partition} was dropped and is there")
        else:
            faults.lost += rows_each
            faults.about.append(f"lost: partition {partition}")
    return faults


# --- messages --------------------------------------------------------------------------------------------------------


def check_messages(acknowledged: Iterable[int], sent: int, rows: Mapping[int, int], table: str) -> Faults:
    """Compare messages, numbered from 0, with a table in which each acknowledged one must be once."""
    faults = Faults()
    missing = [number for number in acknowledged if number not in rows]
    doubled = [number for number, count in rows.items() if count > 1]
    strange = [number for number in rows if not 0 <= number < sent]
    faults.lost, faults.twice = len(missing), len(doubled)
    if missing:
        faults.about.append(f"lost: {len(missing)} messages in {table}, as {missing[:SHOWN_MAX]}")
    if doubled:
        faults.about.append(f"twice: {len(doubled)} messages in {table}, as {doubled[:SHOWN_MAX]}")
    if strange:
        faults.found(f"rows of {table} that nobody sent: {strange[:SHOWN_MAX]}")
    return faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Offsets of one topic partition that one round has consumed."""

    topic_id: str
    partition: int
    start: int
    end: int
    txn: int


def check_offsets(stretches: Iterable[Stretch]) -> Faults:
    """Check that the stretches of each topic partition follow on one another without holes and overlaps."""
    faults = Faults()
    for partition, found in _items_by(stretches, lambda each: (each.topic_id, each.partition)).items():
        found.sort(key=lambda each: (each.start, each.end))
        for before, after in pairwise(found):
            if after.start < before.end:
                faults.twice += before.end - after.start
                faults.about.append(f"offsets twice: {partition} {before} {after}")
            elif after.start > before.end:
                faults.lost += after.start - before.end
                faults.about.append(f"offsets missing: {partition} {before} {after}")
    return faults


# --- files -----------------------------------------------------------------------------------------------------------


def check_files(
    named: Mapping[str, set[str]],
    copies: Sequence[Mapping[str, Mapping[str, str]]],
    quorum: int,
    *,
    lost: Collection[str] = (),
    may_stay: Callable[[str], bool] = lambda name: False,
) -> Faults:
    """Compare the files that the catalog names, by table, with checksums of files by replica, table and name.

    Each named file is in a quorum of replicas with equal checksums, and no other file is there, but for those of `lost`
    commits. A row map or filter beside a named file counts as named. Of a file that `may_stay` nobody has to know.
    """
    faults = Faults()
    for table, names in named.items():
        stems = {name.rpartition(".")[0] for name in (*names, *lost)}
        for number, replica in enumerate(copies):
            strange = [
                name
                for name in replica.get(table, {})
                if name not in names
                and name not in lost
                and not (name.endswith((".map", ".filter")) and name.rpartition(".")[0] in stems)
            ]
            kept = [name for name in strange if may_stay(name)]
            faults.files_by_failover += len(kept)
            strange = [name for name in strange if name not in kept]
            if strange:
                faults.unknown_files += len(strange)
                faults.about.append(f"unknown files: {table} replica {number}: {sorted(strange)[:SHOWN_MAX]}")
        for name in names:
            sums = [replica[table][name] for replica in copies if name in replica.get(table, {})]
            best = Counter(sums).most_common(1)[0][1] if sums else 0
            if best < quorum:
                faults.found(f"file {table}/{name} has {best} good copies of {quorum}: {sums}")
    return faults


# --- hosts, versions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosting:
    """A server's process that hosted something under an epoch at some time."""

    thing: str
    epoch: int
    holder: str
    at: float = 0.0


def check_hosts(hostings: Iterable[Hosting]) -> Faults:
    """Check that each epoch of a thing belongs to one process."""
    faults = Faults()
    for (thing, epoch), found in _items_by(hostings, lambda each: (each.thing, each.epoch)).items():
        names = {each.holder for each in found}
        if len(names) > 1:
            faults.found(f"two hosts: {thing} epoch {epoch}: {sorted(names)}")
    return faults


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """Value that one read has found of a number that may only grow."""

    thing: str
    number: int
    began: float
    ended: float
    server: str = ""


def check_growing(sightings: Iterable[Sighting], windows: Sequence[Window] = ()) -> Faults:
    """Check that no read finds a smaller number than one that ended before it began, but for failovers in `windows`."""
    faults = Faults()
    for thing, found in _items_by(sightings, lambda each: each.thing).items():
        by_end = sorted(found, key=lambda each: each.ended)
        greatest: Sighting | None = None
        ended = 0
        for each in sorted(found, key=lambda each: each.began):
            while ended < len(by_end) and by_end[ended].ended < each.began:
                if greatest is None or by_end[ended].number > greatest.number:
                    greatest = by_end[ended]
                ended += 1
            if greatest is None or each.number >= greatest.number:
                continue
            if any(window.start <= each.ended and greatest.began <= window.end for window in windows):
                continue
            faults.found(f"went back: {thing} {greatest.number} at {greatest.server}, then {each.number} {each.server}")
            break
    return faults


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRead:
    """Content of a table at one version by the answer of a server."""

    table: str
    version: int
    content: str
    server: str
    at: float


def check_past(reads: Iterable[PastRead]) -> Faults:
    """Check that each version has the same content at all times and servers; lost versions are not used again."""
    faults = Faults()
    first: dict[tuple[str, int], PastRead] = {}
    for each in sorted(reads, key=lambda read: read.at):
        known = first.setdefault((each.table, each.version), each)
        if known.content != each.content:
            faults.found(
                f"not repeatable: {each.table} version {each.version} is {known.content} at {known.server}, "
                f"{each.content} at {each.server}"
            )
    return faults


def _items_by(items: Iterable[_Item], key: Callable[[_Item], _ItemKey]) -> dict[_ItemKey, list[_Item]]:
    found: dict[_ItemKey, list[_Item]] = defaultdict(list)
    for each in items:
        found[key(each)].append(each)
    return found


def _of(op: Op) -> str:
    return (
        f"{op.kind} {op.number} of {op.client or 'a client'} at {op.server or '-'} in round {op.round} ({op.outcome})"
    )
