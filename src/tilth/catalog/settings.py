"""The knobs of the catalog."""

from __future__ import annotations

from tilth.base.settings import Scope, Setting, SettingGroup
from tilth.base.units import GIB, MIB, parse_bytes

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
