"""The decision log: what was chosen, what was refused, and why; the newest lines of `system.maintenance_choices`.

Tests: tests/unit/maintenance/manager/test_manager.py.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from tilth.base.clock import Clock
from tilth.base.logs import Log
from tilth.maintenance.kinds import Choice, ChoiceRule
from tilth.maintenance.stats import ChoiceRow

#: Name, in the op column, of giving unused memory back.
RELEASE_MEMORY = "RELEASE_MEMORY"
#: Lines that are kept.
ROWS_MAX = 1_000

_log = Log("maintenance")


class DecisionLog:
    """Last choices and refusals of one manager. Any thread may write and read."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._rows: deque[ChoiceRow] = deque(maxlen=ROWS_MAX)
        self._last_idle = ""

    def rows(self) -> list[ChoiceRow]:
        with self._lock:
            return list(reversed(self._rows))

    def chose(
        self, choice: Choice, table: str, *, about: str, runnable: int, others: Sequence[tuple[str, float]]
    ) -> None:
        """`runnable`: how many ops could have run; `others`: the best of them that were passed over."""
        op, reason = choice.op_name or "", f"{choice.reason}; {about}"
        text = ", ".join(f"{name} {score:.6f}" for name, score in others)
        self._last_idle = ""
        self._add(op, table, choice.rule, reason, score=choice.score, runnable=runnable, others=text)
        _log.info("maintenance_choice", op=op, rule=choice.rule, reason=reason, runnable=runnable, others=text)

    def refused(self, op: str, table: str, reason: str) -> None:
        """Log a piece of work, or a table, that is left alone."""
        self._add(op, table, "refused", reason)
        _log.debug("maintenance_refusal", op=op, table=table, reason=reason)

    def relieved(self, reason: str) -> None:
        """Log a try to give memory back, and what came of it."""
        self._add(RELEASE_MEMORY, "", ChoiceRule.MEMORY_PRESSURE, reason)
        _log.info("maintenance_choice", op=RELEASE_MEMORY, rule=ChoiceRule.MEMORY_PRESSURE, reason=reason)

    def idle(self, choice: Choice) -> None:
        """Log once that nothing was chosen, until the reason changes."""
        if choice.reason != self._last_idle:
            self._last_idle = choice.reason
            self._add("", "", choice.rule, choice.reason)
            _log.debug("maintenance_idle", rule=choice.rule, reason=choice.reason)

    def _add(
        self, op: str, table: str, rule: str, reason: str, *, score: float = 0.0, runnable: int = 0, others: str = ""
    ) -> None:
        row = ChoiceRow(
            at_ms=self._clock.now_ms(),
            op=op,
            table=table,
            rule=rule,
            reason=reason,
            score=score,
            runnable=runnable,
            others=others,
        )
        with self._lock:
            self._rows.append(row)
