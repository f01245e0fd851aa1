"""One run: a started subject, clients, rounds of blows, the final state; all of it from one seed.

Covers: the order of these steps, their time limits. Does not cover: starting a subject (servers.py, single.py), blows
(nemesis.py), the checks of the final state (final.py).
Always holds: a failing run prints its seed, the round and the lines of the history around it.
"""

from __future__ import annotations

import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from tools.jepsen import tables
from tools.jepsen.clients import Client, PastReader, Probe, Reader, Seen, inserting, update, upsert
from tools.jepsen.definitions import Definitions
from tools.jepsen.final import judge
from tools.jepsen.harm import Blow, load_factor
from tools.jepsen.history import History, Outcome
from tools.jepsen.messages import Messages, RenewedTopic, Sent
from tools.jepsen.nemesis import draw_round, perform
from tools.jepsen.report import Report
from tools.jepsen.servers import asynchronous, synchronous, two_servers
from tools.jepsen.single import hdfs, rocksdb, s3
from tools.jepsen.subjects import Subject

#: Workloads that must go on after each round, with the kinds of operations that show it.
WORKLOADS = {
    "insert": ("insert",),
    "upsert": ("upsert", "delete"),
    "update": ("update",),
    "read": ("read",),
    "past": ("past",),
    "consume": ("consume",),
    "define": ("define", "fill_partition", "drop_partition", "undrop_partition"),
}
GO_ON_SECONDS_MAX = 120.0
POLL_SECONDS = 0.05
LINES_SHOWN = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Subject, length and seed of a run."""

    subject: str
    rounds: int
    seed: int
    #: Longest time from a blow to its mending.
    blow_seconds_max: float = 100.0
    #: Factor of the pauses of clients: a larger one makes less load.
    pause_factor: float = 1.0
    #: Parts of names: only blows with one of them are struck; empty: all.
    only: Sequence[str] = ()


Maker = Callable[[Path, random.Random, ExitStack, History], Subject]
SUBJECTS: dict[str, Maker] = {
    "servers": asynchronous,
    "servers-sync": synchronous,
    "two-servers": two_servers,
    "rocksdb": rocksdb,
    "s3": s3,
    "hdfs": hdfs,
}


@dataclass
class Run:
    """A run in progress."""

    order: Order
    subject: Subject
    history: History
    sent: Sent
    clients: list[Client]
    seen: Seen
    report: Report
    rng: random.Random
    blows_by_round: dict[int, str] = field(default_factory=dict)

    def rounds(self) -> None:
        blows = [blow for blow in self.subject.blows() if _is_wanted(blow, self.order.only)]
        self._go_on("the first steps")
        while self.report.rounds < self.order.rounds and self._is_right():
            self.history.round += 1
            self._round(blows)
            self.report.rounds += 1
            self.report.by_subject[self.order.subject] += 1

    def _round(self, blows: Sequence[Blow]) -> None:
        strikes = draw_round(blows, self.rng, seconds_max=self.order.blow_seconds_max)
        names = " + ".join(each.blow.name for each in strikes)
        self.blows_by_round[self.history.round] = names
        began = time.monotonic()
        perform(strikes, self.history.note)
        self.report.ended += self.subject.recover()
        seconds = self._go_on(names)
        print_progress(
            f"{self.order.subject} {self.history.round:3} {time.monotonic() - began:5.1f} s, on {seconds:4.1f}: {names}"
        )

    def _go_on(self, after: str) -> float:
        """Wait until each workload has gone on, add the seconds of each to the report, and return the total."""
        began = time.monotonic()
        missing = dict(WORKLOADS)
        while missing and self._is_right():
            now = time.monotonic()
            if now - began > GO_ON_SECONDS_MAX * load_factor():
                last = {op.kind: op.error[:150] or "no answer" for op in self.history.recent(began)}
                why = {kind: last.get(kinds[0], "nothing sent") for kind, kinds in missing.items()}
                self.report.faults.found(f"did not go on after: {after}; last: {why}")
                break
            for kind, kinds in list(missing.items()):
                done = [
                    op.completed
                    for op in self.history.recent(began)
                    if op.kind in kinds and op.outcome is Outcome.OK and op.completed is not None
                ]
                if done:
                    del missing[kind]
                    self.report.go_on_s.setdefault(kind, []).append(min(done) - began)
            self.report.ended += self.subject.recover()
            time.sleep(POLL_SECONDS)
        return time.monotonic() - began

    def _is_right(self) -> bool:
        return self.report.is_right and all(client.faults.is_none for client in self.clients)


def run_jepsen(folder: Path, order: Order) -> Report:
    """Make a run and return its report; an error that breaks the run off is a fault of its own."""
    report = Report(order.seed)
    try:
        _run(folder, order, report)
    except Exception as error:
        traceback.print_exc()
        report.faults.found(f"{order.subject} seed {order.seed}: the run ended: {type(error).__name__}: {error}")
    return report


def _run(folder: Path, order: Order, report: Report) -> None:
    rng = random.Random(f"{order.seed} {order.subject}")
    history, seen = History(folder / "history.jsonl"), Seen()
    with ExitStack() as stack:
        stack.enter_context(history.open())
        subject = SUBJECTS[order.subject](folder, rng, stack, history)
        subject.start_all()
        for statement in tables.statements(subject.storage):
            subject.sql(statement)
        renewed = RenewedTopic(subject.broker) if subject.keeps_commits else None
        sent = Sent(Messages(subject.broker), renewed)
        clients = _clients(subject, history, sent, seen, order)
        run = Run(order, subject, history, sent, clients, seen, report, rng)
        sent.messages.start()
        for client in clients:
            client.start()
        try:
            run.rounds()
        finally:
            for client in clients:
                client.over.set()
            for client in clients:
                client.stop()
            sent.messages.stop()
        _end(run)


def _end(run: Run) -> None:
    report, subject, history = run.report, run.subject, run.history
    report.ended += subject.recover()
    report.ended += subject.wait_all_there()
    for client in run.clients:
        report.faults.add(client.faults)
    report.faults.add(judge(subject, history, run.sent, run.seen))
    report.operations = Counter(f"{op.kind} {op.outcome}" for op in history.ops)
    if not report.is_right:
        _print_failure(run)


def _print_failure(run: Run) -> None:
    order, number = run.order, run.history.round
    blows = run.blows_by_round.get(number, "-")
    print_progress(f"FAILED: subject {order.subject} seed {order.seed} round {number}: {blows}")
    for line in run.report.faults.about:
        print_progress(f"  {line}")
    for line in run.history.lines_around(number)[-LINES_SHOWN:]:
        print_progress(f"  {line}")


def _clients(subject: Subject, history: History, sent: Sent, seen: Seen, order: Order) -> list[Client]:
    urls = subject.urls_by_name
    definitions = Definitions(sent.messages, sent.renewed, subject.replicas)
    steps: dict[str, tuple[Callable[[Client], None], float]] = {
        "insert-1": (inserting(1), 0.15),
        "insert-2": (inserting(2), 0.25),
        "upsert": (upsert, 0.25),
        "update": (update, 0.4),
        "read": (Reader(lambda: sent.messages.sent).step, 0.2),
        "past": (PastReader(seen).step, 0.5),
        "probe": (Probe(seen).step, 0.25),
        "define": (definitions.step, 0.6),
    }
    return [
        Client(
            name,
            history,
            urls,
            random.Random(f"{order.seed} {name}"),
            step,
            pause_seconds=pause * order.pause_factor,
        )
        for name, (step, pause) in steps.items()
    ]


def _is_wanted(blow: Blow, only: Sequence[str]) -> bool:
    return not only or any(each in blow.name for each in only)


def print_progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
