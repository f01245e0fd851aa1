"""Declaration of an alarm, and what it finds.

Covers: the two nouns. Does not cover: the alarms (streams.py, tables.py, stores.py, servers.py), all of them
(alarms.py). Always holds: `system.alarms`, the console, rules of Prometheus and docs have their sentences from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from tilth.introspection.alarms.observation import Observation


class Severity(StrEnum):
    """Urgency of an alarm."""

    #: Rows are not read, not stored or at risk: somebody acts at once.
    CRITICAL = "critical"
    #: Somebody acts within hours, before it becomes critical.
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class AlarmFinding:
    """One fault that is there now."""

    #: A whole sentence with names and numbers, without a full stop.
    sentence: str
    #: The table that it concerns; empty: none.
    database: str = ""
    table: str = ""
    #: Name of the part, topic partition, mutation, worker, server, folder or the like; empty: the table as a whole.
    subject: str = ""
    #: Start time; 0: not known.
    since_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """A kind of fault that needs a person."""

    #: Name in snake case, in `system.alarms`, in the metric and on the page.
    name: str
    severity: Severity
    #: Sentence: what is wrong when the alarm is there.
    meaning: str
    #: Sentence: what a person does.
    todo: str
    #: Page of the documentation, with its heading.
    page: str
    #: Minutes for which it has to last before Prometheus notifies somebody.
    minutes: int
    find: Callable[[Observation], Iterable[AlarmFinding]]
