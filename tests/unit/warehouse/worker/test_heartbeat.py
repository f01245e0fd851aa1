"""The heartbeat over a JVM that does what the test says: who is killed, what is started again, what people are told."""

from __future__ import annotations

import threading

from tilth.testing import ManualClock
from tilth.warehouse import SparkStartError, WarehouseSettings
from tilth.warehouse.session.reports import Beat, Outage
from tilth.warehouse.worker.heartbeat import Heartbeat


class FakeSpark:
    """A JVM that answers, hangs, dies, and does not start."""

    def __init__(self) -> None:
        self.settings = WarehouseSettings(heartbeat_seconds=1.0, hang_seconds=10.0)
        self.outage: Outage | None = None
        self.is_on_cluster = False
        self.told: list[str] = []
        self.starts = self.kills = 0
        #: Calls under way, one for each thread.
        self.calls: set[str] = set()
        self.failing_starts = 0
        self.killed_why: list[str] = []
        self._is_alive = True
        self.answers = threading.Event()
        self.answers.set()

    def is_alive(self) -> bool:
        return self._is_alive

    def exit_reason(self) -> str:
        return "the JVM was ended by SIGKILL"

    def beat(self) -> Beat:
        self._wait("beat")
        return Beat(has_ended=False, is_full=False)

    def run_small_job(self) -> bool:
        self._wait("job")
        return True

    def _wait(self, call: str) -> None:
        self.calls.add(call)
        self.answers.wait(30)
        self.calls.discard(call)

    def jvm_usage(self) -> tuple[float, bool]:
        return 0.0, not self.answers.is_set()

    def note_outage(self, outage: Outage | None) -> None:
        self.outage = outage
        if outage is not None:
            self.told.append(str(outage))

    def kill(self, reason: str) -> None:
        self.kills += 1
        self.killed_why.append(reason)
        self.die()

    def die(self) -> None:
        self._is_alive = False

    def restart_if_gone(self) -> bool:
        if self.failing_starts:
            self.failing_starts -= 1
            raise SparkStartError(reason="no memory")
        self.starts += 1
        self._is_alive = True
        self.answers.set()
        return True

    def warm_if_possible(self) -> None:
        """Do nothing."""


def watched(spark: FakeSpark, clock: ManualClock, seconds: int) -> None:
    heartbeat = Heartbeat(clock, spark)  # type: ignore[arg-type]  # does what is called here
    try:
        for _ in range(seconds):
            clock.advance(1)
            heartbeat.step()
            # Answers come on other threads, of a JVM that answers before the next look.
            for _ in range(500):
                threading.Event().wait(0.01)
                is_requested = any(caller._wanted.is_set() for caller in heartbeat._callers.values())
                if not spark.answers.is_set() or not (is_requested or spark.calls):
                    break
    finally:
        spark.answers.set()
        heartbeat.stop()


def test_a_jvm_that_answers_is_left_alone() -> None:
    spark = FakeSpark()
    watched(spark, ManualClock(), 60)
    assert (spark.kills, spark.starts, spark.told, spark.outage) == (0, 0, [], None)


def test_a_jvm_that_hangs_is_killed_once_and_people_are_told_before() -> None:
    spark = FakeSpark()
    spark.answers.clear()
    watched(spark, ManualClock(), 14)
    assert (spark.kills, spark.starts, spark.outage) == (1, 1, None)
    assert "the JVM does not go on: it has not answered a call for 5 s" in spark.told[0]
    why = "the JVM was killed because it hung: it has not answered a call for 10 s; its process is stopped"
    assert (why in spark.told[-1], spark.killed_why) == (True, [why])
    # One outage has one beginning: that of the silence.
    assert len({each.partition(": ")[0] for each in spark.told}) == 1


class Impatient(ManualClock):
    """Waiting takes no time."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.advance(seconds)
        return event.is_set()


def test_a_start_that_fails_is_tried_again_and_the_first_reason_stays() -> None:
    spark = FakeSpark()
    spark.failing_starts = 3
    spark.die()
    watched(spark, Impatient(), 4)
    assert (spark.kills, spark.starts, spark.outage) == (0, 1, None)
    assert all("ended by SIGKILL" in each for each in spark.told)
    assert sum("Spark does not start: " in each and "no memory" in each for each in spark.told) == 3
