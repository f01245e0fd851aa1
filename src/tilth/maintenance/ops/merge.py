"""MERGE of one table: choose ranges of parts, merge each in one task, commit.

Covers: looking, taking parts, running, the wait after failures, OPTIMIZE. Does not cover: which ranges are worth it
(merge_choice.py, policy), one merge and its commit (merge_work.py, attempt.py), EXPLAIN (merge_explain.py), the slot it
runs in (manager.py).
Always holds: a part is taken by one merge at a time and given back when its outcome is known; the set of taken parts is
copied before parts are read (docs/policies/size-tiered.md#inputs); bytes first, truth second.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from tilth.base.cancel import raise_if_cancelled
from tilth.base.clock import Clock
from tilth.base.errors import TilthError, UnknownOutcomeError
from tilth.base.logs import Log
from tilth.base.rand import Rng
from tilth.base.retry import Retry
from tilth.base.units import show_bytes
from tilth.catalog import Catalog
from tilth.maintenance.cleaner import Cleaner
from tilth.maintenance.op import NotPrepared, OpKind, OpStats, Prepared, op_name
from tilth.maintenance.ops.attempt import Attempts, Translator, translation_of
from tilth.maintenance.ops.failures import PartitionFailures
from tilth.maintenance.ops.merge_choice import MergeChoice
from tilth.maintenance.ops.merge_explain import (
    MergeMoment,
    explain_damaged,
    explain_held,
    explain_history,
    explain_now,
    policy_named,
)
from tilth.maintenance.ops.merge_work import Merge, MergeRecipe, is_repeated
from tilth.maintenance.ops.sources import PartsNow, changes_of, parts_by_partition, parts_now
from tilth.maintenance.owner import Owner
from tilth.maintenance.places import RewritePlaces
from tilth.maintenance.policy import (
    EVENTS_MAX,
    BackOff,
    Effort,
    MergeSelection,
    MergeSpec,
    PartitionStats,
    PartitionStrategy,
    Refusal,
    Rotation,
    postpone,
    replay,
    select_for_merge,
    submittable,
)
from tilth.maintenance.state import Failure, ServiceState, ServiceWork, is_failure, newest, rule_of, service_told
from tilth.maintenance.stats import MergeCandidateRow
from tilth.maintenance.tally import Tally
from tilth.maintenance.watch import FAR_MS, TableWatch
from tilth.model.delta import Delta
from tilth.model.part import Part, PartEvent
from tilth.model.service import ServiceKind
from tilth.warehouse import Dispatcher, TaskCancelledError

#: Between two looks at a table that changes, and the bounds of the wait while it does not: ranges become worth merging
#: by age too, the more slowly the older they are.
LOOK_BUSY_MS = 1_000
LOOK_QUIET_MIN_MS = 10_000
LOOK_QUIET_MAX_MS = 600_000
#: The longest wait once all partitions were looked at.
LOOK_SETTLED_MAX_MS = 6 * 3_600_000
#: Parts of one partition that are weighed in a look, the oldest; the rest waits until these are fewer.
PARTS_MAX = 20_000
#: After these the parts differ from what the last look saw.
_TELLING_EVENTS = frozenset({"new", "merge", "flush", "remove_deleted", "hide", "undrop", "mutate"})
_DISABLED = "disable_compaction is on"

_log = Log("maintenance")


class MergeOp:
    """`tilth.maintenance.op.Op` for the merges of one table."""

    kind = OpKind.MERGE
    service = ServiceKind.MERGE

    def __init__(
        self,
        clock: Clock,
        catalog: Catalog,
        dispatcher: Dispatcher,
        root: str,
        rng: Rng,
        *,
        watch: TableWatch,
        owner: Owner,
        cleaner: Cleaner,
        workers: Callable[[], int],
        places: RewritePlaces,
        told: Callable[[str, str], None],
        tally: Tally,
        translator: Translator = translation_of,
    ) -> None:
        """`workers`: how many there are now; `told(partition, reason)` takes refusals for the record; `translator`
        brings over what changes in parts while they are merged.
        """
        self._clock = clock
        self._catalog = catalog
        self._rng = rng
        self._watch = watch
        self._choice = MergeChoice(watch, workers)
        recipe = MergeRecipe(clock, root, watch=watch, ttl=lambda: self._choice.ttl)
        self._attempts = Attempts(
            clock,
            catalog,
            dispatcher,
            root,
            recipe,
            watch=watch,
            owner=owner,
            cleaner=cleaner,
            translator=translator,
        )
        self._workers = workers
        self._places = places
        self._told = told
        self._tally = tally
        self._rotation = Rotation()
        self._postponed: dict[str, BackOff] = {}
        self._pending: list[Merge] = []
        #: The one of them that the last look at what could run was about.
        self._next: Merge | None = None
        self._running = 0
        self._failures = PartitionFailures(self.kind, watch)
        self._visible_bytes: dict[str, float] = {}
        self._refusals: dict[str, Refusal] = {}
        self._has_news = True
        #: Whether the last look found a merge.
        self._is_fruitful = False
        self._looked_ms = 0
        self._next_look_ms = 0
        self._news_ms = 0
        #: Partitions that were looked at since the last news.
        self._seen: set[str] = set()
        self._is_cancelled = threading.Event()
        #: Looks so far, and when the last one was.
        self.wakeups = 0

    @property
    def last_wakeup_ms(self) -> int:
        return self._looked_ms

    @property
    def table(self) -> str:
        return self._watch.name

    @property
    def name(self) -> str:
        return op_name(self.kind, self._watch.name)

    @property
    def running(self) -> int:
        """Merges under way."""
        return self._running

    @property
    def live_txns(self) -> set[int]:
        """Transactions that this op works on, or whose outcome it still has to find out."""
        return self._attempts.txns

    @property
    def due_ms(self) -> int:
        """When `stats` may say something new, if nothing is noticed before."""
        with self._watch.lock:
            is_open = bool(self._pending)
        if self._attempts.has_unknown or is_open:
            return 0
        if self._watch.knobs.merge.is_disabled:
            return FAR_MS
        return self._looked_ms + LOOK_BUSY_MS if self._has_news else self._next_look_ms

    def observe(self, event: PartEvent, partition: str) -> None:
        """A line of the part log about this table."""
        if event.event in _TELLING_EVENTS:
            self._notice(event.at_ms)

    def notice_all(self) -> None:
        """News were lost, or definition, settings or mutations have changed."""
        self._notice()

    def cancel(self) -> None:
        """The table is gone or the server stops: no new merge, running ones are asked to end."""
        self._is_cancelled.set()
        self._attempts.cancel_all()

    def cancel_partition(self, partition: str | None) -> int:
        """Merges of the partition that run are asked to end, those that wait are forgotten; returns how many ran."""
        with self._watch.lock:
            gone = [merge for merge in self._pending if partition in (None, merge.spec.partition)]
            self._pending = [merge for merge in self._pending if merge not in gone]
        for merge in gone:
            self._give_back(merge)
        return self._attempts.cancel(lambda merge: partition in (None, merge.spec.partition))

    def stats(self) -> OpStats | None:
        now_ms = self._clock.now_ms()
        if self._is_cancelled.is_set():
            return None
        if not self._watch.is_on(ServiceKind.MERGE, now_ms):
            self._release_pending()
            return OpStats.idle("stopped by the user")
        self._resolve_unknown()
        if self._watch.knobs.merge.is_disabled:
            self._release_pending()
            return OpStats.idle(_DISABLED)
        if self._is_look_due(now_ms):
            self._look(now_ms)
        with self._watch.lock:
            first = self._next = self._first_allowed()
            waiting = self._pending[0].spec if self._pending else None
        if waiting is None:
            return OpStats.idle("nothing worth merging")
        if first is None:
            kept = "the last place is kept for small merges while rows come in"
            return OpStats.idle(f"{waiting.partition}: {show_bytes(waiting.size)} are to be merged, {kept}")
        spec = first.spec
        # Waiting merges are counted already; what may be submitted is asked as if the first one were not.
        room = submittable(workers=self._workers(), pending=0, running=self._running, settings=self._watch.knobs.merge)
        if room == 0:
            return OpStats.idle(f"{self._running} merges are running, more are not allowed")
        return OpStats(
            is_runnable=True,
            perf_improvement=self._choice.gain(spec, visible_bytes=self._visible_bytes, now=now_ms / 1000),
            priority=self._watch.knobs.priority,
            about=f"{spec.partition}: {spec.reason}",
        )

    def prepare(self) -> Prepared | NotPrepared:
        with self._watch.lock:
            taken, self._next = self._next, None
            if taken is None or taken not in self._pending:
                return NotPrepared("no merge is waiting")
            self._pending.remove(taken)
        merge = self._with_sources(taken)
        if merge is None:
            return NotPrepared(f"{taken.spec.partition}: the parts are not visible any more")
        return Prepared(about=f"{merge.spec.partition}: {merge.spec.reason}", work=merge)

    def abandon(self, prepared: Prepared) -> None:
        merge = _work_of(prepared)
        with self._watch.lock:
            self._running -= 1
        self._give_back(merge)

    def perform(self, prepared: Prepared) -> str:
        merge = _work_of(prepared)
        try:
            with self._tally.run(self.kind):
                return self._run(merge)
        finally:
            with self._watch.lock:
                self._running -= 1

    def state(self, now_ms: int) -> tuple[ServiceState, str, Failure | None]:
        failure = newest(each for each in (self._failures.newest(), self._watch.damaged.newest()) if each is not None)
        with self._watch.lock:
            running, waiting = self._running, len(self._pending)
            refusals = list(self._refusals.values())
        idle_reason = f"{refusals[0].partition}: {refusals[0].reason}" if refusals else "nothing worth merging"
        work = ServiceWork(
            running=running,
            waiting=waiting,
            failure=failure,
            running_reason=f"{running} merges are running, {waiting} are waiting",
            waiting_reason=f"{waiting} merges wait for a free thread",
            idle_reason=_DISABLED if self._watch.knobs.merge.is_disabled else idle_reason,
        )
        return service_told(self._watch.switch(self.service, now_ms), work, now_ms=now_ms)

    def explain(self, policy: str | None = None) -> list[MergeCandidateRow]:
        """Every candidate as of now: what would be merged, what is not and why.

        With a policy: what that one would do with the parts as they are, then what it would have made of the history
        that the part log still has, beside what really happened. Raises InvalidInputError for an unknown policy.
        """
        wanted = self._choice.policy if policy is None else policy_named(policy)
        now_ms = self._clock.now_ms()
        with self._watch.lock:
            being = self._watch.taken.now()
            damaged = self._watch.damaged.left_out(now_ms)
            moment = MergeMoment(
                now_ms=now_ms,
                next_look_ms=self._next_look_ms,
                waiting=frozenset(name for merge in self._pending for name in merge.spec.parts),
                failures=self._failures.all(),
                damaged=self._watch.damaged.all(),
                postponed={
                    name: each.since + self._watch.knobs.merge_partitions.postpone_time
                    for name, each in self._postponed.items()
                },
            )
        there = parts_now(self._catalog, self._watch.uuid)
        candidates = self._choice.explain(
            there.parts, there.changes, being_merged=being | damaged, policy=wanted, now_ms=now_ms
        )
        merging = [part for part in there.parts if str(part.name) in being and not part.is_segment]
        left_out = [part for part in there.parts if str(part.name) in damaged - being]
        rows = [*explain_now(candidates, merging, moment), *explain_damaged(left_out, moment)]
        why, until_ms = self._held(now_ms)
        if why:
            rows = explain_held(rows, why, until_ms)
        if policy is None:
            return rows
        events = self._catalog.part_log.recent(table=self._watch.uuid, limit=EVENTS_MAX)
        found = replay(events, ask=self._choice.asking(wanted), keys_of=self._choice.keys_of)
        return rows + explain_history(found, wanted)

    def _held(self, now_ms: int) -> tuple[str, int]:
        """Why no merge begins in the background, empty where some may; and until when, 0: until somebody says so."""
        switch = self._watch.switch(self.service, now_ms)
        if switch is not None and not self._watch.is_on(self.service, now_ms):
            because = f" ({switch.because})" if switch.because else ""
            return f"merges are {switch.state.value} by the user{because}", switch.until_ms
        return (_DISABLED, 0) if self._watch.knobs.merge.is_disabled else ("", 0)

    def separated(self, partitions: Sequence[str]) -> str:
        """Which of these partitions a pending mutation keeps in several parts; empty if none."""
        pending = self._watch.mutations
        if not pending:
            return ""
        now_ms = self._clock.now_ms()
        apart = [name for name in partitions if self._choice.is_separated(self._parts(name).parts, now_ms)]
        told = f"{apart[0]} and {len(apart) - 1} more" if len(apart) > 1 else "".join(apart)
        return f"a pending mutation ({pending[0].command}) keeps parts of {told} apart" if apart else ""

    def optimize(self, partition: str, effort: Effort, *, deadline_ms: int) -> list[tuple[int, int, int]]:
        """Merges the partition's parts until nothing is left to merge; waits for merges under way there.

        Returns sources, rows and bytes of each merge. Raises the error of a merge that failed.
        """
        done: list[tuple[int, int, int]] = []
        #: Blocks of parts that were written anew alone: as time goes on, more of their rows expire.
        rewritten: set[tuple[int, int]] = set()
        while not self._is_cancelled.is_set():
            raise_if_cancelled()
            being = self._watch.taken.now()
            there = self._parts(partition)
            now_ms = self._clock.now_ms()
            left_out = being | self._watch.damaged.left_out(now_ms)
            selection = self._choice.select(
                there.parts, there.changes, being_merged=left_out, effort=effort, now_ms=now_ms
            )
            specs = [spec for spec in selection.specs if not is_repeated(spec, there, rewritten)]
            if not specs:
                is_busy = any(str(part.name) in being for part in there.parts)
                if not is_busy or self._clock.now_ms() >= deadline_ms:
                    return done
                self._watch.taken.wait()
                self._resolve_unknown()
                continue
            taken = self._take(specs[0])
            merge = None if taken is None else self._with_sources(taken)
            if merge is None:
                continue
            self.perform(Prepared(about="optimize", work=merge))
            sources = merge.sources
            rewritten.update(part.name.blocks for part in sources if merge.spec.is_lone)
            done.append((len(sources), sum(part.rows for part in sources), sum(part.bytes for part in sources)))
        return done

    # --- looking ---

    def _is_look_due(self, now_ms: int) -> bool:
        if self._is_fruitful and not self._pending:
            # While looks lead to merges, the next one follows at once.
            return True
        if self._has_news:
            return now_ms - self._looked_ms >= LOOK_BUSY_MS
        return not self._pending and now_ms >= self._next_look_ms

    def _look(self, now_ms: int) -> None:
        """One round of selection; what it finds waits in order, its parts taken."""
        self.wakeups += 1
        self._has_news = False
        try:
            self._select_pending(now_ms)
        except TilthError:
            # What was not read is still news: the next look reads it.
            self._has_news = True
            raise

    def _select_pending(self, now_ms: int) -> None:
        self._looked_ms = now_ms
        failing = self._failures.waiting(now_ms)
        # Older choices give way: with more parts there are better ranges.
        self._release_pending()
        settings = self._watch.knobs.merge_partitions
        left_out = self._watch.taken.now() | self._watch.damaged.left_out(now_ms)
        with self._watch.lock:
            stats = dict(self._watch.stats)
        counts = self._catalog.parts.counts(self._watch.uuid)
        everything = list(counts)
        if settings.strategy is PartitionStrategy.PARTS:
            stats = self._choice.with_counts(stats, counts)
        chosen = select_for_merge(
            stats,
            all_partitions=everything,
            expired=failing.keys(),
            postponed=self._postponed,
            counts=counts,
            rotation=self._rotation,
            is_ready=True,
            settings=settings,
            now=now_ms / 1000,
            rng=self._rng,
        )
        self._rotation = chosen.rotation
        self._seen.update(chosen.partitions)
        self._next_look_ms = min(
            [
                self._quiet_look_ms(now_ms, everything),
                *(failure.until_ms for failure in failing.values()),
                *self._watch.damaged.next_try_ms(now_ms),
            ]
        )
        parts: list[Part] = []
        changes: dict[str, tuple[Delta, ...]] = {}
        expired: list[Refusal] = []
        # One look at the catalog for all of them.
        there = parts_by_partition(self._catalog, self._watch.uuid, chosen.partitions, parts_max=PARTS_MAX)
        for partition, members in there.items():
            self._watch.damaged.keep(partition, {str(part.name) for part in members.parts})
            self._visible_bytes[partition] = float(sum(part.bytes for part in members.parts))
            if self._choice.is_expired(members.parts, now_ms):
                expired.append(Refusal(partition=partition, reason="all its rows have expired", should_postpone=True))
            else:
                parts += members.parts
                changes |= members.changes
        found = self._choice.select(parts, changes, being_merged=left_out, effort=Effort.NORMAL, now_ms=now_ms)
        selection = MergeSelection(specs=found.specs, refusals=(*found.refusals, *expired))
        self._remember(selection, counts=counts, stats=stats, partitions=chosen.partitions, parts=parts, now_ms=now_ms)
        room = submittable(workers=self._workers(), pending=0, running=self._running, settings=self._watch.knobs.merge)
        self._is_fruitful = bool(selection.specs[:room])
        for spec in selection.specs[:room]:
            merge = self._take(spec)
            if merge is not None:
                with self._watch.lock:
                    self._pending.append(merge)

    def _quiet_look_ms(self, now_ms: int, everything: Sequence[str]) -> int:
        """When the next look is if nothing is told until then: by then ages have changed noticeably."""
        quiet_ms = now_ms - self._news_ms
        if self._seen.issuperset(everything):
            return now_ms + max(LOOK_QUIET_MIN_MS, min(quiet_ms // 4, LOOK_SETTLED_MAX_MS))
        return now_ms + max(LOOK_QUIET_MIN_MS, min(quiet_ms // 10, LOOK_QUIET_MAX_MS))

    def _remember(
        self,
        selection: MergeSelection,
        *,
        counts: Mapping[str, int],
        stats: Mapping[str, PartitionStats],
        partitions: Sequence[str],
        parts: Sequence[Part],
        now_ms: int,
    ) -> None:
        there = {part.name.partition for part in parts}
        empty = [partition for partition in partitions if partition not in there]
        postponed = [refusal.partition for refusal in selection.refusals if refusal.should_postpone]
        self._postponed = postpone(
            self._postponed,
            [*empty, *postponed],
            stats=stats,
            now=now_ms / 1000,
            postpone_time=self._watch.knobs.merge_partitions.postpone_time,
        )
        wanted = {spec.partition for spec in selection.specs}
        known, looked_at = counts.keys(), set(partitions)
        self._failures.keep(lambda name, _: name in known and (name not in looked_at or name in wanted))
        before = self._refusals
        self._refusals = {refusal.partition: refusal for refusal in selection.refusals}
        for partition, refusal in self._refusals.items():
            if before.get(partition) != refusal:
                self._told(partition, refusal.reason)

    def _parts(self, partition: str) -> PartsNow:
        return parts_by_partition(self._catalog, self._watch.uuid, [partition], parts_max=PARTS_MAX)[partition]

    def _notice(self, at_ms: int | None = None) -> None:
        """Parts of the table came or went, or what may be done with them has changed, now or at that time."""
        self._has_news = True
        self._seen.clear()
        self._news_ms = self._clock.now_ms() if at_ms is None else max(self._news_ms, at_ms)
        self._watch.is_woken = True

    # --- taking and giving back ---

    def _take(self, spec: MergeSpec) -> Merge | None:
        """None when another merge has taken one of the parts meanwhile."""
        return Merge(spec=spec) if self._watch.taken.take(spec.parts) else None

    def _first_allowed(self) -> Merge | None:
        """The best merge that may start now. Hold the table's lock."""
        bytes_max = self._places.merge_bytes_max()
        return next((each for each in self._pending if bytes_max is None or each.spec.size <= bytes_max), None)

    def _give_back(self, merge: Merge) -> None:
        self._watch.taken.give_back(merge.spec.parts)

    def _release_pending(self) -> None:
        with self._watch.lock:
            pending, self._pending = self._pending, []
        for merge in pending:
            self._give_back(merge)

    def _with_sources(self, taken: Merge) -> Merge | None:
        """The merge with its parts, counted as running. Gives them back if one is not visible or cannot be read."""
        merge: Merge | None = None
        try:
            merge = self._read(taken.spec)
        finally:
            if merge is None:
                self._give_back(taken)
                self._notice()
        if merge is None:
            return None
        with self._watch.lock:
            self._running += 1
        return merge

    def _read(self, spec: MergeSpec) -> Merge | None:
        """The parts as the catalog has them now; None if one is not visible."""
        there = parts_now(self._catalog, self._watch.uuid, [spec.partition])
        found = there.named(spec.parts)
        if len(found) < len(spec.parts):
            return None
        return Merge(spec=spec, sources=found, changes=changes_of(found, there.changes))

    # --- doing ---

    def _run(self, merge: Merge) -> str:
        partition = merge.spec.partition
        keeps_parts = False
        try:
            told = self._attempts.perform(merge)
            self._failures.succeeded(partition)
            self._watch.damaged.read(merge.spec.parts)
            return told
        except UnknownOutcomeError:
            keeps_parts = True
            raise
        # Whatever it was, it is told.
        except Exception as error:
            self._missed(merge, error)
            raise
        finally:
            if not keeps_parts:
                self._give_back(merge)
            self._notice()

    def _resolve_unknown(self) -> None:
        for merge, error in self._attempts.resolve():
            if error is not None:
                self._missed(merge, error)
            self._give_back(merge)
            self._notice()

    def _missed(self, merge: Merge, error: Exception) -> None:
        """What follows from a merge that did not land; a failure stands in `system.bg_threads` and waits.

        Where a file of one part is damaged, that part alone waits.
        """
        partition, now_ms = merge.spec.partition, self._clock.now_ms()
        if isinstance(error, TaskCancelledError):
            # By a drop or a stop of the server.
            self._told(partition, "the merge was cancelled")
            return
        if not is_failure(error):
            # The table went on without us. What we know of it is old: no haste.
            self._is_fruitful = False
            self._told(partition, str(error))
            if rule_of(error) is Retry.STOP:
                self._release_pending()
            return
        name = self._watch.damaged.found(error, merge.sources, merge.changes, now_ms)
        if name is None:
            self._failures.failed(partition, error, now_ms)
        else:
            self._told(partition, f"part {name} is left out: {error}")


def _work_of(prepared: Prepared) -> Merge:
    assert isinstance(prepared.work, Merge)
    return prepared.work
