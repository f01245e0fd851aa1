"""Bound of reads of a table's past (docs/policies/history.md). Pure.

Covers: the ancient history mark, and which reads of the past it refuses. Does not cover: what is collected behind it
(tilth.maintenance). Always holds: what ended after the mark is still there, so a read at or after the mark is whole.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tilth.base.errors import InvalidInputError
from tilth.base.hybrid import counter, milliseconds, pack

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SETTING = "tablet_history_max_age_sec"
_HINT = (
    "no setting brings this past back, a backup may have it; to keep more from now on, consider increasing "
    "tablet_history_max_age_sec, or history_max_age_sec of the table"
)


class SnapshotTooOldError(InvalidInputError):
    """snapshot scan end timestamp is earlier than the ancient history mark"""

    code = "INVALID_SNAPSHOT"


def ancient_mark(now_hybrid: int, max_age_seconds: float) -> int | None:
    """The ancient history mark: reads below it are refused, what ended before it may go; None where no history is
    kept.
    """
    if max_age_seconds < 0:
        return None
    age_ms = round(max_age_seconds * 1000)
    if age_ms > milliseconds(now_hybrid):
        return 0
    return pack(milliseconds(now_hybrid) - age_ms, counter(now_hybrid))


def check_readable(at: int, *, ahm: int | None, now: int, table: str) -> None:
    """Raises SnapshotTooOldError or InvalidInputError (SNAPSHOT_IN_FUTURE) for a read as of `at`; all times are hybrid
    ones.

    `ahm`: the ancient history mark; None: no history is kept, so that no past is sure to be whole.
    """
    if at > now:
        raise InvalidInputError.coded(
            "SNAPSHOT_IN_FUTURE",
            "snapshot scan end timestamp is in the future",
            table=table,
            snapshot=_time_text(at),
            now=_time_text(now),
            difference=_apart(at, now),
            hint="read a time that is over",
        )
    if ahm is None and at < now:
        message = "the table keeps no history"
        raise SnapshotTooOldError(message, table=table, snapshot=_time_text(at), setting=_SETTING, hint=_HINT)
    if ahm is not None and at < ahm:
        raise SnapshotTooOldError(
            table=table,
            snapshot=_time_text(at),
            ancient_history_mark=_time_text(ahm),
            difference=_apart(ahm, at),
            setting=_SETTING,
            hint=_HINT,
        )


def _time_text(ts: int) -> str:
    """A hybrid time as people read it, and the number itself."""
    try:
        when = (_EPOCH + timedelta(milliseconds=milliseconds(ts))).isoformat(timespec="milliseconds")
    except OverflowError:
        return str(ts)
    return f"{when.removesuffix('+00:00')}Z ({ts})"


def _apart(later: int, earlier: int) -> str:
    return f"{(milliseconds(later) - milliseconds(earlier)) / 1000:.3f} s"
