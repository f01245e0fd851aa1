"""Settings of the catalog: those of the node and those of each table."""

from __future__ import annotations

from dataclasses import dataclass

from tilth.base.settings import SWITCH, SettingCheck, SettingGroup, node_setting, settings_of, table_setting, within
from tilth.base.units import GIB, MIB, parse_bytes, parse_seconds
from tilth.catalog.kv.postgres_address import parse_postgres

#: Values of `audit.literals`.
AUDIT_FULL, AUDIT_HIDDEN = "full", "hidden"


def _checked_url(text: str) -> str:
    if text:
        parse_postgres(text)
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogSettings:
    """Settings of the node."""

    url: str = node_setting(
        "catalog.url",
        "",
        SettingCheck(_checked_url, "postgresql://user@host:5432/database?password=file:/path"),
        "Where the catalog is: the address of a PostgreSQL database, which several servers may share; its password is "
        "named as file:/path or env:NAME. Empty: in the node's folder, for this server alone.",
    )
    require_sync: bool = node_setting(
        "catalog.require-sync",
        False,
        SWITCH,
        "On: a server commits nothing, and does not start, while the catalog's database waits for no synchronous "
        "standby (synchronous_standby_names is empty), so that no failover to it loses a commit. Off: commits go on "
        "without one, and the last ones are lost with the database, or by a failover to a standby that lags.",
    )
    cache_bytes: int = node_setting(
        "catalog.cache-bytes",
        64 * MIB,
        within(parse_bytes, MIB, 64 * GIB, "1 MiB to 64 GiB"),
        "Memory for the catalog's blocks. More: planning over many partitions reads the disk less. Less: more memory "
        "is left for Spark.",
        unit="bytes",
    )
    backup_folder: str = node_setting(
        "catalog.backup-folder",
        "",
        SettingCheck(str, "a folder, or an address like s3://bucket/prefix?key=env:NAME&secret=file:/path"),
        "Where BACKUP CATALOG writes, and nowhere else: a folder, or an address of an object store or an HDFS. Best on "
        "another disk than the data. Empty: `backups` in the data folder.",
    )
    journal_seconds: float = node_setting(
        "catalog.journal-seconds",
        1.0,
        SettingCheck(parse_seconds, "0, or 100 ms to 1 hour", lambda seconds: seconds == 0 or 0.1 <= seconds <= 3600),
        "Between two writes of what has changed in the catalog to a journal beside the tables' files, from which "
        "`tilth catalog rebuild` makes a lost catalog again. Longer: fewer small files, and more of the last changes "
        "is not known then. Nothing is written while nothing changes. 0: no journal; a lost catalog is made of the "
        "files alone, which contain less.",
        unit="s",
    )
    commit_attempts_max: int = node_setting(
        "catalog.commit-attempts-max",
        64,
        within(int, 1, 10_000),
        "Times that one commit is folded anew because another came first. More: fewer tasks have to start again. "
        "Fewer: a task fails sooner when its table is busy.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditSettings:
    """Settings of the node for the literals of statements in its logs."""

    literals: str = node_setting(
        "audit.literals",
        AUDIT_FULL,
        SettingCheck(
            lambda text: text.strip().lower(),
            f"{AUDIT_FULL} or {AUDIT_HIDDEN}",
            lambda text: text in (AUDIT_FULL, AUDIT_HIDDEN),
        ),
        "What `system.audit_log` and `system.query_log` store of the literals in statements. full: everything but "
        "passwords and keys, to see what was deleted. hidden: each literal is masked as `?`, and an error is reduced "
        "to its code, so that no personal data is logged.",
    )
    literals_days: float = node_setting(
        "audit.literals-days",
        30.0,
        within(float, 0),
        "With `audit.literals = full`, literals are masked and errors reduced to their codes after this time. Longer: "
        "the logs show for longer what was deleted. Shorter: erased data is gone from the logs sooner. 0: never.",
        unit="days",
    )

    @property
    def is_masking(self) -> bool:
        """Return whether literals are masked from the beginning."""
        return self.literals == AUDIT_HIDDEN


NODE_SETTINGS = SettingGroup((*settings_of(CatalogSettings), *settings_of(AuditSettings)))


@dataclass(frozen=True, slots=True, kw_only=True)
class PressureSettings:
    """Back-pressure on the writers of one table; 0 means no limit."""

    delay: int = table_setting(
        "parts_to_delay_insert",
        1000,
        within(int, 0),
        "Parts of a partition from which on a writer into it waits before it writes, the longer the more there are. "
        "More: writers are slowed later, queries open more files. Less: merges get time to catch up sooner. 0: never.",
        unit="parts",
    )
    throw: int = table_setting(
        "parts_to_throw_insert",
        3000,
        within(int, 0, words="0, or more than parts_to_delay_insert"),
        "Parts that a partition may have: a commit that would leave it with more is refused with TOO_MANY_PARTS. More: "
        "a burst goes through, and queries suffer for it. Less: the table stays quick, and writers must try again. 0: "
        "never.",
        unit="parts",
    )
    max_delay_seconds: float = table_setting(
        "max_delay_to_insert",
        1.0,
        SettingCheck(parse_seconds, "0, or 1 ms to 60 s", lambda seconds: seconds == 0 or 0.001 <= seconds <= 60),
        "The longest wait of one write, reached just below parts_to_throw_insert. Longer: merges catch up with more "
        "eager writers. Shorter: a writer is refused sooner instead.",
        unit="s",
    )
    rounds: int = table_setting(
        "parts_to_slow_rounds",
        12,
        within(int, 0),
        "Parts of a partition that no merge has touched yet from which on a consumer's round waits before it begins, "
        "if the last one wrote there; longest at twice as many. Rounds become fewer and larger. More: rows are seen "
        "sooner while merges fall behind. Less: merges keep up with faster topics. 0: never.",
        unit="parts",
    )
    total: int = table_setting(
        "max_parts_in_total",
        100_000,
        within(int, 0),
        "Parts that the table may have in all its partitions: a commit that would leave it with more is refused with "
        "TOO_MANY_PARTS. More: tables with very many partitions. Less: a mistake in PARTITION BY shows itself sooner. "
        "0: no limit.",
        unit="parts",
    )


PRESSURE_SETTINGS = SettingGroup(settings_of(PressureSettings))
