"""A catalog moved to another store: a node's folder to a database, and back.

Covers: copying all records of one snapshot, comparing both, the mark in the old catalog. Does not cover: files of
tables, which stay where they are. Always holds: the copy becomes a catalog at once or not at all; a catalog that a
server uses is not copied; the old catalog is marked before the copy is reported, so that no two servers use different
catalogs.

Tests: tests/integration/catalog/test_catalog_copy.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from tilth.base.clock import Clock, SystemClock
from tilth.base.errors import ConflictError, CorruptError, NotFoundError
from tilth.base.ids import random_id
from tilth.base.logs import Log
from tilth.catalog import MOVED, Catalog, CatalogMovedError, PostgresKV, RocksKV, parse_postgres
from tilth.catalog.kv import Landed, ReadView, ViewUse
from tilth.catalog.kv.protocol import FIRST_KEY
from tilth.recovery.restore import check_no_catalog, new_catalog

#: A server that lives has proved it again within this.
IN_USE_SECONDS = 3.5
_BATCH_BYTES = 1 << 20

_log = Log("recovery")


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """A copy that was made."""

    records: int
    bytes: int


def copy_catalog(source: str, target: str, *, keeps_source: bool = False) -> CopyReport:
    """Make the catalog at the target from that at the source, compare both, and mark the source as moved.

    A location is a node's folder or the address of a database. `keeps_source`: no mark, for a copy that is only read.
    Raises NotFoundError (CATALOG_NOT_FOUND), ConflictError (CATALOG_IN_USE), CatalogMovedError, CatalogExistsError,
    BadCatalogAddressError, and the errors of a store that does not answer: then nothing was made.
    """
    clock = SystemClock()
    if not _is_address(target):
        check_no_catalog(Path(target))
    with closing(_open_store(clock, source)) as store:
        catalog = Catalog(store, clock, "copy", random_id)
        _check_free(clock, store, catalog, source)
        with nullcontext() if keeps_source else _moving(store, catalog, _shown(target)):
            with store.view(use=ViewUse.EXPORT) as view, _target(clock, target) as written:
                expected = _write_records(view, written)
                with written.view(use=ViewUse.EXPORT) as copied:
                    found = _checksum_records(copied)
            if found != expected:
                raise CorruptError(
                    "the copy differs from its source", source=source, records=expected[0], copied=found[0]
                )
    _log.info("catalog_copied", source=_shown(source), target=_shown(target), records=expected[0])
    return CopyReport(records=expected[0], bytes=expected[1])


def _is_address(location: str) -> bool:
    return "://" in location


def _shown(location: str) -> str:
    return parse_postgres(location).shown if _is_address(location) else str(Path(location).absolute())


def _open_store(clock: Clock, location: str) -> PostgresKV | RocksKV:
    """Raises NotFoundError (CATALOG_NOT_FOUND)."""
    if _is_address(location):
        return PostgresKV(clock, parse_postgres(location))
    folder = Path(location) / "catalog"
    if not folder.is_dir() or not any(folder.iterdir()):
        raise NotFoundError.coded(
            "CATALOG_NOT_FOUND",
            "there is no catalog",
            folder=location,
            hint="give the folder of a node, or the address of a database",
        )
    return RocksKV(str(folder))


@contextmanager
def _moving(store: PostgresKV | RocksKV, catalog: Catalog, to: str) -> Iterator[None]:
    """Mark the source as moved if the body succeeds. A database refuses commits from the beginning: a live server that
    was not noticed would otherwise commit records that the copy lacks.
    """
    if isinstance(store, PostgresKV):
        with store.moves().moving(to):
            yield
        return
    yield
    catalog.state.put(MOVED, to.encode())


def _check_free(clock: Clock, store: PostgresKV | RocksKV, catalog: Catalog, location: str) -> None:
    """Raises ConflictError (CATALOG_IN_USE) and CatalogMovedError; a folder's catalog is open nowhere else."""
    moved = catalog.state.get(MOVED)
    if moved:
        raise CatalogMovedError(catalog=_shown(location), to=moved.decode(), hint="copy it from there")
    if not isinstance(store, PostgresKV):
        return
    store.moves().check(may_begin=True)
    before = {each.id: each.renewed_ms for each in catalog.servers.live()}
    shown = {each for each in before if store.moves().is_locked(each)}
    if before and not shown:
        clock.sleep(IN_USE_SECONDS)
    proved = [each for each in catalog.servers.live() if each.id in shown or before.get(each.id) != each.renewed_ms]
    if proved:
        names = ", ".join(f"{each.name} at {each.url or 'no address'}" for each in proved)
        raise ConflictError.coded(
            "CATALOG_IN_USE",
            "a server uses the catalog",
            catalog=_shown(location),
            servers=names,
            hint="stop these servers first",
        )


class _Target:
    """A store without keys that is filled."""

    def __init__(self, store: PostgresKV | RocksKV) -> None:
        self._store = store
        self.view = store.view

    def fill(self, pairs: Iterator[tuple[bytes, bytes]]) -> None:
        """Raises CatalogExistsError."""
        if isinstance(self._store, PostgresKV):
            self._store.fill(pairs)
            return
        batch: dict[bytes, bytes] = {}
        size = 0
        for key, value in pairs:
            batch[key] = value
            size += len(key) + len(value)
            if size >= _BATCH_BYTES:
                self._commit(batch)
                batch, size = {}, 0
        self._commit(batch)

    def _commit(self, batch: dict[bytes, bytes]) -> None:
        outcome = self._store.commit([], batch, [])
        # Nobody else has the store.
        assert isinstance(outcome, Landed), outcome


@contextmanager
def _target(clock: Clock, location: str) -> Iterator[_Target]:
    if _is_address(location):
        with closing(PostgresKV(clock, parse_postgres(location))) as shared:
            yield _Target(shared)
        return
    with new_catalog(Path(location)) as store:
        yield _Target(store)


def _write_records(view: ReadView, target: _Target) -> tuple[int, int, bytes]:
    """Copy all records; return what `_summed` gives of them."""
    summed = _Sum()
    target.fill(summed.over((key, found.value) for key, found in view.scan(FIRST_KEY, None)))
    return summed.result()


def _checksum_records(view: ReadView) -> tuple[int, int, bytes]:
    """Return number, bytes and checksum of all records."""
    summed = _Sum()
    for _ in summed.over((key, found.value) for key, found in view.scan(FIRST_KEY, None)):
        pass
    return summed.result()


class _Sum:
    """A checksum of records in order."""

    def __init__(self) -> None:
        self._digest = blake2b(digest_size=16)
        self._records = self._bytes = 0

    def over(self, pairs: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        for key, value in pairs:
            self._digest.update(len(key).to_bytes(4, "big") + len(value).to_bytes(4, "big") + key + value)
            self._records += 1
            self._bytes += len(key) + len(value)
            yield key, value

    def result(self) -> tuple[int, int, bytes]:
        return self._records, self._bytes, self._digest.digest()
