"""Result of a task that ended well. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilth.model.task import Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """Result of a task that ended well."""

    #: For whoever submitted it.
    payload: bytes = b""
    #: What was measured; the worker fills in the seconds if they are 0.
    actual: Cost = field(default_factory=Cost)
