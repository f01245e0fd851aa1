"""What a task that ended well hands back. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilth.model.task import Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskResult:
    """What a task that ended well hands back."""

    #: For whoever submitted it.
    payload: bytes = b""
    #: What was measured; the worker fills in the seconds if they are 0.
    actual: Cost = field(default_factory=Cost)
