"""The knobs of the catalog: those of the node and those of each table."""

from __future__ import annotations

from tilth.base.settings import Scope, Setting, SettingGroup
from tilth.base.units import GIB, MIB, parse_bytes, parse_seconds

CACHE_BYTES = Setting(
    name="catalog.cache-bytes",
    scope=Scope.NODE,
    default=64 * MIB,
    parse=parse_bytes,
    check=lambda size: MIB <= size <= 64 * GIB,
    allowed="1 MiB to 64 GiB",
    unit="bytes",
    doc="Memory for the catalog's blocks. More: planning over many partitions reads the disk less. "
    "Less: more memory is left for Spark.",
)

COMMIT_ATTEMPTS_MAX = Setting(
    name="catalog.commit-attempts-max",
    scope=Scope.NODE,
    default=64,
    parse=int,
    check=lambda count: 1 <= count <= 10_000,
    allowed="1 to 10000",
    doc="Times that one commit is folded anew because another came first. More: fewer tasks have to start again. "
    "Fewer: a task hears sooner that its table is busy.",
)

NODE_SETTINGS = SettingGroup((CACHE_BYTES, COMMIT_ATTEMPTS_MAX))

# A table: back-pressure on its writers.

PARTS_TO_DELAY_INSERT = Setting(
    name="parts_to_delay_insert",
    scope=Scope.TABLE,
    default=1000,
    parse=int,
    check=lambda parts: parts >= 0,
    allowed="0 or more",
    unit="parts",
    doc="Parts of a partition from which on a writer into it waits before it writes, the longer the more there are. "
    "More: writers are slowed later, queries open more files. Less: merges get time to catch up sooner. 0: never.",
)
PARTS_TO_THROW_INSERT = Setting(
    name="parts_to_throw_insert",
    scope=Scope.TABLE,
    default=3000,
    parse=int,
    check=lambda parts: parts >= 0,
    allowed="0, or more than parts_to_delay_insert",
    unit="parts",
    doc="Parts that a partition may have: a commit that would leave it with more is refused with TOO_MANY_PARTS. More: "
    "a burst goes through, and queries suffer for it. Less: the table stays quick, and writers must try again. "
    "0: never.",
)
MAX_DELAY_TO_INSERT = Setting(
    name="max_delay_to_insert",
    scope=Scope.TABLE,
    default=1.0,
    parse=parse_seconds,
    check=lambda seconds: seconds == 0 or 0.001 <= seconds <= 60,
    allowed="0, or 1 ms to 60 s",
    unit="s",
    doc="The longest wait of one write, reached just below parts_to_throw_insert. Longer: merges catch up with more "
    "eager writers. Shorter: a writer is refused sooner instead.",
)
PARTS_TO_SLOW_ROUNDS = Setting(
    name="parts_to_slow_rounds",
    scope=Scope.TABLE,
    default=12,
    parse=int,
    check=lambda parts: parts >= 0,
    allowed="0 or more",
    unit="parts",
    doc="Parts of a partition that no merge has touched yet from which on a consumer's round waits before it begins, "
    "if the last one wrote there; longest at twice as many. Rounds become fewer and larger. More: rows are seen sooner "
    "while merges fall behind. Less: merges keep up with faster topics. 0: never.",
)
MAX_PARTS_IN_TOTAL = Setting(
    name="max_parts_in_total",
    scope=Scope.TABLE,
    default=100_000,
    parse=int,
    check=lambda parts: parts >= 0,
    allowed="0 or more",
    unit="parts",
    doc="Parts that the table may have in all its partitions: a commit that would leave it with more is refused with "
    "TOO_MANY_PARTS. More: tables with very many partitions. Less: a mistake in PARTITION BY shows itself sooner. "
    "0: no limit.",
)

PRESSURE_SETTINGS = SettingGroup(
    (PARTS_TO_DELAY_INSERT, PARTS_TO_THROW_INSERT, MAX_DELAY_TO_INSERT, PARTS_TO_SLOW_ROUNDS, MAX_PARTS_IN_TOTAL)
)
