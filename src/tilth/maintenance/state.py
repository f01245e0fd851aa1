"""Waits after failures, and the state of a service. Pure.

idle -> waiting -> running -> idle
            ^         \\-> failed -> waiting   after the back-off
any -> stopped -> idle                        by the user's switch
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilth.base.errors import ErrorKind, TilthError
from tilth.base.retry import Retry, backoff_ms, retry_rule
from tilth.model.service import ServiceState, Switch, SwitchState

#: Later than any time.
NEVER_MS = 1 << 62
#: 1 s, 2 s, 4 s ... 256 s.
FAILURE_BACKOFF_BASE_MS = 1000
FAILURE_BACKOFF_DOUBLINGS_MAX = 8
#: The least wait where the same would fail again until somebody helps.
FAILURE_LONG_WAIT_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Work that failed, and until when it is left alone."""

    #: Number of consecutive failures.
    count: int
    reason: str
    at_ms: int
    until_ms: int
    #: `True` if it would fail again until somebody intervenes.
    is_lasting: bool = False


def rule_of(error: Exception) -> Retry:
    """Return the rule that follows from an error, the rule of all background services (tilth.base.retry)."""
    # An error that is none of ours is a defect.
    return retry_rule(error.kind if isinstance(error, TilthError) else ErrorKind.INTERNAL)


def is_failure(error: Exception) -> bool:
    """True if it counts: not where what was planned is out of date, or somebody else's now, or may have landed."""
    return rule_of(error) in (Retry.BACK_OFF, Retry.WAIT_LONG)


def failed_again(before: Failure | None, error: Exception, *, now_ms: int, about: str = "") -> Failure:
    """Each failure in a row doubles the wait, up to a bound; it is long at once where waiting alone heals nothing.

    What is no failure waits as short as can be and adds nothing up; nor do those that come together, as of all tasks
    of a worker that dies. `about` stands before the error.
    """
    if before is None or not is_failure(error):
        count = 1
    else:
        count = before.count + (now_ms >= before.until_ms)
    wait = backoff_ms(count - 1, base_ms=FAILURE_BACKOFF_BASE_MS, doublings_max=FAILURE_BACKOFF_DOUBLINGS_MAX)
    if rule_of(error) is Retry.WAIT_LONG:
        wait = max(wait, FAILURE_LONG_WAIT_MS)
    reason = f"{about}: {error}" if about else str(error)
    return Failure(count=count, reason=reason, at_ms=now_ms, until_ms=now_ms + wait)


def standing(failure: Failure | None, now_ms: int) -> Failure | None:
    """Return the failure. One in the future comes from a clock that was ahead and is ignored: its wait would be as long
    as that."""
    return None if failure is None or failure.at_ms > now_ms else failure


def newest(failures: Iterable[Failure]) -> Failure | None:
    return max(failures, key=lambda failure: failure.at_ms, default=None)


def is_on(switch: Switch | None, *, now_ms: int) -> bool:
    """True if the user wants the service to run: no switch, switched on, or its pause is over."""
    if switch is None or switch.state is SwitchState.RUNNING:
        return True
    return 0 < switch.until_ms <= now_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceWork:
    """The work of a service, in numbers and in its own words."""

    running: int
    waiting: int
    failure: Failure | None
    running_reason: str
    waiting_reason: str
    idle_reason: str


def service_status(
    switch: Switch | None, work: ServiceWork, *, now_ms: int
) -> tuple[ServiceState, str, Failure | None]:
    """Return the content of `system.bg_threads`: the first state that holds, why, and the last failure that stands."""
    if not is_on(switch, now_ms=now_ms):
        because = "" if switch is None else switch.because
        return ServiceState.STOPPED, because or "stopped by the user", work.failure
    if work.running:
        return ServiceState.RUNNING, work.running_reason, work.failure
    if work.failure is not None:
        return failed_status(work.failure, now_ms)
    if work.waiting:
        return ServiceState.WAITING, work.waiting_reason, None
    return ServiceState.IDLE, work.idle_reason, None


def failed_status(failure: Failure, now_ms: int) -> tuple[ServiceState, str, Failure]:
    """Return what `system.bg_threads` has of a service whose work has failed."""
    wait = max(0, failure.until_ms - now_ms) / 1000
    text = f"{failure.reason}; failed {failure.count} times, next try in {wait:.0f} s"
    return ServiceState.FAILED, text, failure
