"""The catalog of a node: in its folder, or in PostgreSQL.

Covers: whether it can be opened, by whom it is open, its format, the clock of its database. Does not cover: what is in
it.

Tests: tests/unit/doctor/test_broken_setups.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tilth.base.clock import Clock
from tilth.doctor.checkup import Checkup, ok
from tilth.model.diagnosis import Diagnosis, Grade

if TYPE_CHECKING:
    from tilth.catalog import DatabaseFacts
    from tilth.storage import StoreRoot

_CLOCK_TODO = "set the clock of this machine right, as by NTP, or raise server.clock-bound on all servers"


def check_local_catalog(
    check: Checkup, folder: Path, root: Callable[[], StoreRoot], *, may_be_open: bool
) -> list[Diagnosis]:
    """Check the catalog in a node's folder; `root`: the location of the tables' files.

    `may_be_open`: a server runs, so that it has the catalog open. Raises StoreIOError, CorruptError, NewerFormatError,
    ConflictError (CATALOG_LOST).
    """
    from tilth.catalog import inspect_rocks
    from tilth.joining import check_not_lost

    path = folder / "catalog"
    facts = inspect_rocks(str(path))
    if facts is None:
        # A start over files of tables that no catalog knows would be refused.
        check_not_lost(root(), is_empty=True)
        return [ok(check.name, f"there is no catalog in {path} yet: the first start makes it")]
    if not facts.holder:
        return [ok(check.name, f"the catalog in {path} can be read, and no process has it open")]
    holder = f"process {facts.holder}" if facts.holder > 0 else "a process of another container"
    sentence = f"the catalog in {path} is open in {holder}"
    if may_be_open:
        return [ok(check.name, f"{sentence}, as of a server that runs")]
    todo = "if that is the server you mean, add --url to check it, too; else stop it, or give another --data folder"
    return [check.found(Grade.ERROR, f"{sentence}, so that no other server can start over it", todo)]


def check_database(
    check: Checkup, facts: DatabaseFacts, address: str, *, requires_sync: bool, clock_bound_seconds: float
) -> list[Diagnosis]:
    """Judge what was read of the catalog's database."""
    name = f"the catalog's database {address}"
    found = []
    if facts.is_newer:
        sentence = f"{name} has a schema of format {facts.format}, which a newer version of Tilth wrote"
        found.append(check.found(Grade.ERROR, sentence, "start the version that wrote it, or a later one"))
    if facts.moved:
        sentence = f"{name} was moved to {facts.moved}"
        found.append(check.found(Grade.ERROR, sentence, "start servers with catalog.url where it was moved to"))
    if not facts.format and not facts.may_create:
        sentence = f"{name} has no schema of Tilth, and this user cannot make one"
        found.append(check.found(Grade.ERROR, sentence, "GRANT CREATE ON DATABASE to this user, or make the schema"))
    if not facts.is_synced:
        sentence = f"{name} runs with fsync off: a crash of its machine may lose commits, or all"
        found.append(check.found(Grade.WARNING, sentence, "set fsync = on in the database"))
    if not facts.synchronous and (requires_sync or facts.standbys):
        grade = Grade.ERROR if requires_sync else Grade.WARNING
        sentence = f"{name} waits for no standby: a failover may lose the last commits"
        found.append(check.found(grade, sentence, "set synchronous_standby_names in the database"))
    found += check_ahead(check, facts.ahead_ms, facts.error_ms, name, clock_bound_seconds)
    return found or [
        ok(
            check.name,
            f"{name} answers: PostgreSQL {facts.version}, {_schema(facts)}, clocks {abs(facts.ahead_ms):.0f} ms apart",
        )
    ]


def check_ahead(check: Checkup, ahead_ms: float, error_ms: float, name: str, bound_seconds: float) -> list[Diagnosis]:
    """Judge by how much a clock is ahead of that of `name`; `error_ms`: the greatest error of that."""
    least_ms = abs(ahead_ms) - error_ms
    if least_ms <= bound_seconds * 500:
        return []
    sentence = (
        f"the clock of this machine is {abs(ahead_ms) / 1000:.1f} s {'ahead of' if ahead_ms > 0 else 'behind'} {name}"
    )
    if least_ms <= bound_seconds * 1000:
        return [check.found(Grade.WARNING, f"{sentence}, {bound_seconds:g} s is the bound", _CLOCK_TODO)]
    return [check.found(Grade.ERROR, f"{sentence}: a server here would host and commit nothing", _CLOCK_TODO)]


def check_postgres_catalog(
    check: Checkup,
    clock: Clock,
    url: str,
    environment: Mapping[str, str],
    *,
    requires_sync: bool,
    clock_bound_seconds: float,
    seconds_max: float,
) -> list[Diagnosis]:
    """Connect to the database and judge it. Raises CatalogAwayError, CatalogSecretError, UnavailableError."""
    from tilth.catalog import inspect_postgres, parse_postgres

    address = parse_postgres(url)
    facts = inspect_postgres(clock, address, environment, seconds_max=seconds_max)
    return check_database(
        check, facts, address.shown, requires_sync=requires_sync, clock_bound_seconds=clock_bound_seconds
    )


def _schema(facts: DatabaseFacts) -> str:
    return f"schema of format {facts.format}" if facts.format else "no schema yet, the first start makes it"
