"""The rules of the heartbeat: silence in, a verdict out; and of tasks without progress."""

from __future__ import annotations

import pytest

from tilth.model.task import TaskKind
from tilth.warehouse import WarehouseSettings
from tilth.warehouse.session.reports import JobProgress, Processes
from tilth.warehouse.worker.pulse import CALLS_PER_JOB, Probe, Pulse, PulseReading, PulseVerdict
from tilth.warehouse.worker.stalls import StallWatch, stall_bound

IDLE = PulseReading(seconds=1.0, cpu_seconds=0.0)
BUSY = PulseReading(seconds=1.0, cpu_seconds=1.5)
#: Tasks that hold both of two slots.
BOTH = frozenset({1, 2})
STOPPED = PulseReading(seconds=1.0, cpu_seconds=0.0, is_stopped=True)


def pulse() -> Pulse:
    return Pulse(interval_seconds=5.0, hang_seconds=30.0)


def verdicts(silent: Pulse, reading: PulseReading, seconds: int) -> list[PulseVerdict]:
    return [silent.observe(reading) for _ in range(seconds)]


def test_a_call_is_asked_at_once_and_then_once_an_interval() -> None:
    jvm = pulse()
    assert jvm.due() == [Probe.CALL, Probe.JOB]
    jvm.record_answer(Probe.CALL)
    jvm.record_answer(Probe.JOB)
    probes = []
    for _ in range(5 * CALLS_PER_JOB):
        assert jvm.observe(IDLE) is PulseVerdict.WELL
        for probe in jvm.due():
            probes.append(probe)
            jvm.record_answer(probe)
    assert probes.count(Probe.CALL) == CALLS_PER_JOB
    assert probes.count(Probe.JOB) == 1


@pytest.mark.parametrize("reading", [IDLE, STOPPED])
def test_an_idle_jvm_that_does_not_answer_hangs_after_the_bound(reading: PulseReading) -> None:
    jvm = pulse()
    jvm.due()
    found = verdicts(jvm, reading, 30)
    assert found[:14] == [PulseVerdict.WELL] * 14
    assert found[14:29] == [PulseVerdict.LATE] * 15
    assert found[29] is PulseVerdict.HUNG
    assert jvm.why.startswith("it has not answered a call for 30 s")
    assert ("stopped" in jvm.why) is reading.is_stopped


def test_a_long_garbage_collection_kills_nothing() -> None:
    jvm = pulse()
    jvm.due()
    assert PulseVerdict.HUNG not in verdicts(jvm, BUSY, 119)
    jvm.record_answer(Probe.CALL)
    jvm.record_answer(Probe.JOB)
    assert jvm.observe(IDLE) is PulseVerdict.WELL


def test_a_jvm_that_collects_garbage_and_nothing_else_is_ended_after_four_bounds() -> None:
    jvm = pulse()
    jvm.due()
    assert verdicts(jvm, BUSY, 120)[-1] is PulseVerdict.HUNG


def test_cancelled_tasks_that_do_not_end_count_by_the_slots_that_they_hold() -> None:
    for share, seconds in ((1.0, 30), (0.5, 60), (0.25, 120)):
        jvm = pulse()
        found = verdicts(
            jvm,
            PulseReading(
                seconds=1.0,
                cpu_seconds=1.9,
                is_full=share == 1.0,
                slots=4,
                outliving=frozenset(range(round(4 * share))),
                cores=2,
            ),
            seconds,
        )
        assert found[seconds // 2 - 2 : seconds // 2] == [PulseVerdict.WELL, PulseVerdict.LATE]
        assert found[-2:] == [PulseVerdict.LATE, PulseVerdict.HUNG]
        assert jvm.why == "cancelled tasks that do not end have held its task slots for 30 s"


def test_tasks_that_end_late_are_forgiven() -> None:
    jvm = pulse()
    stuck = PulseReading(seconds=1.0, cpu_seconds=1.9, is_full=True, slots=2, outliving=BOTH, cores=2)
    for _ in range(5):
        assert PulseVerdict.HUNG not in verdicts(jvm, stuck, 29)
        assert jvm.observe(IDLE) is PulseVerdict.WELL


def test_tasks_that_end_late_one_after_the_other_are_no_hang() -> None:
    jvm = Pulse(interval_seconds=1.0, hang_seconds=10.0)
    for second in range(1000):
        jvm.record_answer(Probe.CALL)
        jvm.record_answer(Probe.JOB)
        jvm.due()
        late = frozenset({second // 4, 1000 + second // 6})
        verdict = jvm.observe(
            PulseReading(seconds=1.0, cpu_seconds=1.9, is_full=True, slots=2, outliving=late, cores=2)
        )
        assert verdict is not PulseVerdict.HUNG, second


def test_one_that_does_not_end_counts_among_many_that_do() -> None:
    jvm = Pulse(interval_seconds=1.0, hang_seconds=10.0)
    found = []
    for second in range(30):
        jvm.record_answer(Probe.CALL)
        jvm.record_answer(Probe.JOB)
        jvm.due()
        late = frozenset({-1, second // 2})
        found.append(
            jvm.observe(PulseReading(seconds=1.0, cpu_seconds=1.9, is_full=True, slots=2, outliving=late, cores=2))
        )
    assert 17 <= found.index(PulseVerdict.HUNG) <= 19


def test_a_task_that_is_new_was_not_there_while_the_call_waited() -> None:
    jvm = pulse()
    jvm.due()
    old, new = (
        PulseReading(seconds=1.0, cpu_seconds=1.9, is_full=True, slots=1, outliving=frozenset({task}), cores=1)
        for task in (1, 2)
    )
    assert PulseVerdict.HUNG not in verdicts(jvm, old, 40)
    jvm.record_answer(Probe.CALL)
    jvm.record_answer(Probe.JOB)
    assert verdicts(jvm, new, 29) == [PulseVerdict.WELL] * 14 + [PulseVerdict.LATE] * 15
    assert jvm.observe(new) is PulseVerdict.HUNG


@pytest.mark.parametrize("cpu_seconds", [0.2, 0.0], ids=["crowded-machine", "silent-store"])
def test_cancelled_tasks_that_use_little_processor_time_get_the_allowance_of_a_busy_jvm(cpu_seconds: float) -> None:
    slow = PulseReading(seconds=1.0, cpu_seconds=cpu_seconds, is_full=True, slots=2, outliving=BOTH, cores=2)
    jvm = pulse()
    assert PulseVerdict.HUNG not in verdicts(jvm, slow, 119)
    assert jvm.observe(slow) is PulseVerdict.HUNG
    assert jvm.why == "cancelled tasks that do not end have held its task slots for 120 s"


def test_cancelled_tasks_that_use_whole_cores_get_no_allowance() -> None:
    endless = PulseReading(seconds=1.0, cpu_seconds=1.9, is_full=True, slots=2, outliving=BOTH, cores=2)
    assert verdicts(pulse(), endless, 30)[-2:] == [PulseVerdict.LATE, PulseVerdict.HUNG]


def test_cancelled_tasks_count_although_a_call_is_always_under_way() -> None:
    """A call is made with every look at the JVM."""
    jvm = Pulse(interval_seconds=1.0, hang_seconds=30.0)
    stuck = PulseReading(seconds=1.0, cpu_seconds=1.9, is_full=True, slots=2, outliving=BOTH, cores=2)
    found = []
    for _ in range(31):
        jvm.record_answer(Probe.CALL)
        jvm.due()
        found.append(jvm.observe(stuck))
    assert found.index(PulseVerdict.HUNG) == 29


def test_cancelled_tasks_of_the_last_answer_are_not_held_against_a_silent_jvm() -> None:
    """The tasks may have ended long before; the silence counts as silence, with the limit for that."""
    stuck = PulseReading(seconds=1.0, cpu_seconds=1.9, is_full=True, slots=2, outliving=BOTH, cores=2)
    jvm = pulse()
    jvm.due()
    assert PulseVerdict.HUNG not in verdicts(jvm, stuck, 40)
    assert jvm.why.startswith("it has not answered a call")
    jvm.record_answer(Probe.CALL)
    jvm.record_answer(Probe.JOB)
    assert jvm.observe(BUSY) is PulseVerdict.WELL
    # If the answer reports that they still hold the slots, all of the time counts as stuck.
    jvm.due()
    verdicts(jvm, stuck, 30)
    jvm.record_answer(Probe.CALL)
    assert jvm.observe(stuck) is PulseVerdict.HUNG


def test_a_job_that_waits_behind_stuck_cores_is_not_the_reason() -> None:
    jvm = pulse()
    jvm.due()
    jvm.record_answer(Probe.CALL)
    verdicts(jvm, PulseReading(seconds=1.0, cpu_seconds=1.9, is_full=True, slots=2, outliving=BOTH, cores=2), 20)
    assert jvm.why.startswith("cancelled tasks")


def test_time_in_which_this_process_did_not_run_is_not_held_against_the_jvm() -> None:
    jvm = pulse()
    jvm.due()
    assert jvm.observe(PulseReading(seconds=3600.0, cpu_seconds=0.0)) is PulseVerdict.WELL


def test_spark_that_runs_no_job_hangs_although_the_jvm_answers() -> None:
    jvm = pulse()
    jvm.due()
    for second in range(30):
        jvm.record_answer(Probe.CALL)
        jvm.due()
        jvm.record_answer(Probe.CALL)
        verdict = jvm.observe(IDLE)
        assert (verdict is PulseVerdict.HUNG) is (second == 29)
    assert "job of one task" in jvm.why


def test_executors_that_are_cut_off_may_come_back() -> None:
    jvm = pulse()
    jvm.due()
    cut_off = PulseReading(seconds=1.0, cpu_seconds=0.0, is_remote=True)
    for second in range(120):
        jvm.record_answer(Probe.CALL)
        verdict = jvm.observe(cut_off)
        jvm.due()
        assert (verdict is PulseVerdict.HUNG) is (second == 119)
    assert jvm.why == "it answers calls, and has not run a job of one task for 120 s"


def test_a_job_waits_for_ever_while_all_slots_are_taken() -> None:
    jvm = pulse()
    jvm.due()
    for _ in range(1000):
        jvm.record_answer(Probe.CALL)
        assert jvm.observe(PulseReading(seconds=1.0, cpu_seconds=0.0, is_full=True)) is PulseVerdict.WELL
        jvm.due()


def test_spark_that_has_ended_inside_of_a_living_jvm_is_ended_at_once() -> None:
    jvm = pulse()
    jvm.record_end("Spark has ended inside of it")
    assert jvm.observe(IDLE) is PulseVerdict.HUNG


#: Seconds without progress, by task.
BOUNDS = {"a": 60.0}


def stalls() -> StallWatch:
    return StallWatch(step_seconds_max=15.0)


def stalled(watch: StallWatch, progress: JobProgress, *, steps: int, cpu: float = 0.0, stopped: int = 0) -> set[str]:
    found: set[str] = set()
    for step in range(steps):
        processes = Processes(cpu_seconds=step * 5 * cpu, stopped=stopped)
        found |= set(watch.observe({"a": progress}, BOUNDS, processes, seconds=5.0))
    return found


STILL = JobProgress(active=1, counts=(1, 2, 3))


def test_a_task_without_any_progress_is_found_after_the_bound() -> None:
    assert stalled(stalls(), STILL, steps=12) == set()
    assert stalled(stalls(), STILL, steps=13) == {"a"}


def test_each_task_has_a_bound_of_its_own() -> None:
    settings = WarehouseSettings()
    assert [stall_bound(settings, kind) for kind in (TaskKind.CONSUME, TaskKind.MERGE)] == [60.0, 600.0]
    watch, tasks = stalls(), {"round": STILL, "merge": STILL}
    found: list[tuple[str, float]] = []
    for _ in range(14):
        bounds = {"round": 60.0, "merge": 600.0}
        found += watch.observe(tasks, bounds, Processes(cpu_seconds=0), seconds=5.0).items()
    assert found == [("round", 60.0), ("round", 65.0)]


def test_a_task_that_waits_for_a_slot_or_computes_is_left_alone() -> None:
    assert stalled(stalls(), JobProgress(active=0, counts=(0,)), steps=100) == set()
    assert stalled(stalls(), STILL, steps=100, cpu=0.5) == set()


def test_a_stopped_python_worker_is_noticed_while_others_compute() -> None:
    assert stalled(stalls(), STILL, steps=100, cpu=0.5, stopped=1) == {"a"}


def test_progress_of_any_kind_begins_anew() -> None:
    watch = stalls()
    assert stalled(watch, STILL, steps=12) == set()
    later = JobProgress(active=1, counts=(1, 2, 4))
    assert watch.observe({"a": later}, BOUNDS, Processes(cpu_seconds=0), seconds=5.0) == {}
    assert stalled(watch, JobProgress(active=1, counts=(1, 2, 4)), steps=11) == set()


def test_a_node_that_was_stopped_itself_cancels_nothing() -> None:
    watch = stalls()
    stalled(watch, STILL, steps=2)
    assert watch.observe({"a": STILL}, BOUNDS, Processes(cpu_seconds=0), seconds=7200.0) == {}
