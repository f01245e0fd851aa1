"""SYSTEM VERIFY: proves from the ledger, the catalog and the files that everything is in exactly once.

Covers: which checks a table of rows or a Kafka table gets, the counts of its rows. Does not cover: its files
(files.py), its ledgers (ledgers.py). Always holds: reads only.

Tests: tests/unit/recovery/test_files_alone.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tilth.catalog import Catalog
from tilth.model.offset import FOLDED, LedgerEntry
from tilth.model.table import KafkaDef, TableDef, full_name
from tilth.storage import Roots
from tilth.verify.files import check_files
from tilth.verify.ledgers import check_ledger, check_twice, feeding, ledgers_into
from tilth.verify.reading import Reads, ReadsHere
from tilth.verify.report import TRIES_MAX, CheckResult, VerifyReport


def verify(catalog: Catalog, root: Roots, relation: TableDef | KafkaDef, reads: Reads | None = None) -> VerifyReport:
    """Verify the counts and files of a table of rows and the ledgers that feed it, or the ledger of a Kafka table.

    `reads` reads the files; None: this process does.
    """
    if isinstance(relation, KafkaDef):
        return VerifyReport(table=full_name(relation), checks=tuple(check_ledger(catalog, relation)))
    ledgers = ledgers_into(catalog, relation)
    checks = [*_check_counts(catalog, relation, ledgers), *check_files(catalog, root, relation, reads or ReadsHere())]
    checks.append(check_twice(catalog, relation, ledgers))
    for kafka in feeding(catalog, relation):
        checks.extend(check_ledger(catalog, kafka))
    return VerifyReport(table=full_name(relation), checks=tuple(checks))


def _check_counts(
    catalog: Catalog, table: TableDef, ledgers: Mapping[str, Sequence[LedgerEntry]]
) -> Iterator[CheckResult]:
    snapshot, version = catalog.parts.snapshot(table.uuid), catalog.parts.version(table.uuid)
    for _ in range(TRIES_MAX):
        if snapshot.version == version.counter:
            break
        snapshot, version = catalog.parts.snapshot(table.uuid), catalog.parts.version(table.uuid)
    expected = version.inserted_rows - version.removed_rows
    yield CheckResult(
        subject=full_name(table),
        check="the visible rows are those inserted less those removed",
        is_ok=snapshot.rows == expected,
        detail=f"visible {snapshot.rows}, inserted {version.inserted_rows}, removed {version.removed_rows}",
    )
    fed = 0
    for ledger in ledgers.values():
        # A folded entry is older than any version read here; its time is that of the last round in it, of any table.
        old = (each for each in ledger if each.consumer == FOLDED or each.commit_ts <= version.last_commit_ts)
        fed += sum(each.stored.get(table.uuid, 0) for each in old)
    yield CheckResult(
        subject=full_name(table),
        check="the rows of the ledgers were inserted",
        is_ok=fed <= version.inserted_rows,
        detail=f"from Kafka {fed}, from other inserts {version.inserted_rows - fed}",
    )
