"""Alarms of pipes: what is not loaded.

Covers: their declarations and thresholds. Does not cover: polls (statements/files/pipe_poll.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from tilth.introspection.alarms.alarm import Alarm, AlarmFinding, Severity
from tilth.introspection.alarms.observation import Observation
from tilth.model.service import ServiceState

#: Failed polls in a row: a store that is busy, or a Spark that starts again, is over by then.
FAILURES_MIN = 3


def _failing(seen: Observation) -> Iterator[AlarmFinding]:
    for each in seen.pipes:
        if each.state is ServiceState.FAILED and each.failures >= FAILURES_MIN:
            yield AlarmFinding(
                database=each.database,
                table=each.table,
                subject=each.pipe.name,
                sentence=f"pipe {each.pipe.name} of {each.database}.{each.table} loads nothing, after "
                f"{each.failures} failed polls in a row: {each.reason}",
                since_ms=each.last_error_ms,
            )


def _failed_files(seen: Observation) -> Iterator[AlarmFinding]:
    for each in seen.pipes:
        if each.files_failed and each.state is not ServiceState.STOPPED:
            last = f", the last one because of {each.last_error_code}: {each.last_error}" if each.last_error else ""
            yield AlarmFinding(
                database=each.database,
                table=each.table,
                subject=each.pipe.name,
                sentence=f"pipe {each.pipe.name} of {each.database}.{each.table} could not load {each.files_failed} "
                f"files{last or ': see system.pipe_errors'}",
                since_ms=each.last_error_ms,
            )


PIPE_ALARMS = (
    Alarm(
        name="pipe_fails",
        severity=Severity.WARNING,
        meaning="A pipe cannot list its folder or cannot load anything, several times in a row.",
        todo="Repair what the sentence names: the folder, storage.file-locations, the store or Spark; the pipe goes on "
        "by itself.",
        page="docs/operate/background-tasks.md#pipes",
        minutes=5,
        find=_failing,
    ),
    Alarm(
        name="pipe_files_failed",
        severity=Severity.WARNING,
        meaning="Files in the folder of a pipe could not be loaded; the others are.",
        todo="Read system.pipe_errors, then correct or remove the files, or load them by COPY INTO.",
        page="docs/operate/background-tasks.md#pipes",
        minutes=5,
        find=_failed_files,
    ),
)
