"""Back-pressure on writers by the number of parts of a partition (docs/policies/throttling.md#parts). Pure.

Covers: how long a writer waits and when it is refused, by the limits of a table. Does not cover: counting parts
(parts/parts.py), waiting (the writers), the refusal at commit (commit/commit.py, requirement `PartsBelow`).
Always holds: below the first limit nothing is felt; the wait grows exponentially and never exceeds its maximum; a
refusal applies nothing and may be tried again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilth.base.settings import BadSettingError, cached_settings
from tilth.catalog.errors import TooManyPartsError
from tilth.catalog.settings import PressureSettings

TOO_MANY_HINT = (
    "try again later, write fewer and larger inserts, or see EXPLAIN MERGE and system.bg_threads for why merges lag"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertDelay:
    """Wait of a writer, and the partition that is the cause."""

    milliseconds: float
    partition: str
    parts: int
    #: Noun for what `parts` counts.
    noun: str = "parts"

    @property
    def reason(self) -> str:
        return f"{self.parts:,} {self.noun} in partition {self.partition}"


def pressure_settings(given: Mapping[str, str]) -> PressureSettings:
    """The limits in a table's settings, others left out. Raises BadSettingError, also where the two limits contradict
    each other: a table would refuse before it slows anybody down.
    """
    read = cached_settings(PressureSettings, given)
    if read.delay and read.throw and read.throw <= read.delay:
        raise BadSettingError(
            "parts_to_throw_insert must be more than parts_to_delay_insert",
            parts_to_throw_insert=read.throw,
            parts_to_delay_insert=read.delay,
            hint="set both in one statement; 0 switches either off",
        )
    return read


def insert_delay_ms(parts: int, *, delay: int, throw: int, max_delay_seconds: float) -> float:
    """Compute how long a writer into a partition of so many parts waits (docs/policies/throttling.md#parts).

    `(max_delay * 1000) ** ((parts - delay + 1) / (throw - delay))` ms from `delay` parts on. Raises TooManyPartsError
    from `throw` parts on. A limit of 0 is none; without `throw` the wait is at its maximum at twice `delay`.
    """
    if throw and parts >= throw:
        raise TooManyPartsError(parts=parts, parts_to_throw_insert=throw, hint=TOO_MANY_HINT)
    if not delay or parts < delay or max_delay_seconds <= 0:
        return 0.0
    share = (parts - delay + 1) / ((throw or 2 * delay) - delay)
    return float((max_delay_seconds * 1000) ** min(share, 1.0))


def round_delay_ms(unmerged: int, *, rounds: int, max_delay_seconds: float) -> float:
    """Compute how long a round waits that writes into a partition with so many parts that no merge has touched yet.

    It rises in even steps from `rounds` parts on, to the longest wait at twice as many. A limit of 0 is none.
    """
    if not rounds or unmerged < rounds:
        return 0.0
    return max_delay_seconds * 1000 * min(1.0, (unmerged - rounds + 1) / rounds)


def check_counts(counts: Mapping[str, int], partitions: Iterable[str], settings: PressureSettings) -> None:
    """Raises TooManyPartsError for the first of the partitions, or the table, that has no room for another part."""
    total = sum(counts.values())
    if settings.total and total >= settings.total:
        raise TooManyPartsError(parts=total, max_parts_in_total=settings.total, hint=TOO_MANY_HINT)
    for partition in partitions:
        parts = counts.get(partition, 0)
        if settings.throw and parts >= settings.throw:
            raise TooManyPartsError(
                partition=partition, parts=parts, parts_to_throw_insert=settings.throw, hint=TOO_MANY_HINT
            )


def worst_delay(counts: Mapping[str, int], partitions: Iterable[str], settings: PressureSettings) -> InsertDelay | None:
    """The longest wait among the partitions that are written to, the maximum where the next part is refused.

    None: no wait.
    """
    worst: InsertDelay | None = None
    for partition in partitions:
        parts = counts.get(partition, 0)
        wait = insert_delay_ms(
            min(parts, settings.throw - 1) if settings.throw else parts,
            delay=settings.delay,
            throw=settings.throw,
            max_delay_seconds=settings.max_delay_seconds,
        )
        if wait > 0 and (worst is None or wait > worst.milliseconds):
            worst = InsertDelay(milliseconds=wait, partition=partition, parts=parts)
    return worst
