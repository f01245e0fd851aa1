"""Parts with rows that have expired by the table's TTL: when they are written anew without them. Pure.

Covers: single rows of a part. Does not cover: partitions that have expired as a whole (table/ttl.py, gc/policy.py),
leaving rows out (storage).
Always holds: where it is not known when rows expire, the part stays.
"""

from __future__ import annotations

from tilth.base.hybrid import milliseconds
from tilth.maintenance.table.settings import MergeSettings
from tilth.maintenance.table.ttl import TableTtl, last_of_part, range_of, shown
from tilth.model.part import Part
from tilth.model.ttl import ends_ms


def judge_rows(table: TableTtl, part: Part, *, settings: MergeSettings, now_ms: int) -> str:
    """Describe the TTL's effect on rows of a part, which go with its next merge; empty where nothing is known."""
    known = range_of(table, part)
    if known is None or isinstance(known.low, bool) or not isinstance(known.low, int):
        return ""
    at = shown(ends_ms(table.ttl, known.low, table.column.type))
    if known.low < table.below(now_ms):
        due_ms = rewrite_due_ms(table, part, settings=settings)
        when = "" if due_ms is None else f" at {shown(due_ms)} at the latest"
        return (
            f"some of its rows expired from {at} on; they go with its next merge{when}, or by OPTIMIZE TABLE .. FINAL"
        )
    return f"its first row expires at {at}"


def has_expired_rows(table: TableTtl, part: Part, now_ms: int) -> bool:
    """True if the part says that some of its rows have expired; False where that is not known."""
    known = range_of(table, part)
    return known is not None and isinstance(known.low, int) and known.low < table.below(now_ms)


def rewrite_due_ms(table: TableTtl, part: Part, *, settings: MergeSettings) -> int | None:
    """Return when the part is written anew without its expired rows if no other merge takes it: when it is old enough,
    or when all its rows have expired. None: its rows do not expire, or it is not known when.
    """
    known = range_of(table, part)
    if known is None or isinstance(known.low, bool) or not isinstance(known.low, int):
        return None
    last = last_of_part(table, part)
    ends = [] if last is None else [ends_ms(table.ttl, last, table.column.type)]
    if not settings.ttl_only_drop_parts:
        old_ms = milliseconds(part.commit_ts) + round(settings.lone_age_min * 1000)
        ends.append(max(old_ms, ends_ms(table.ttl, known.low, table.column.type)))
    return min(ends, default=None)
