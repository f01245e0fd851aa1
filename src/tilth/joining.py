"""The catalog of a node, opened, and the node's membership among its servers.

Covers: which store the catalog is in, the location of tables' files, which all servers must see. Does not cover: what
is wired to the catalog (node.py), who hosts what (tilth.membership).
Always holds: a server that does not see the files of the catalog's tables is refused before it serves, and so is one
whose catalog does not know the tables that have files there.

Tests: tests/integration/catalog/test_catalog_copy.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tilth.base.clock import Clock
from tilth.base.errors import ConflictError, TilthError
from tilth.catalog import (
    MOVED,
    Catalog,
    CatalogMovedError,
    CatalogSettings,
    FollowedKV,
    GroupedKV,
    KeyValue,
    PostgresKV,
    PostgresWatch,
    RocksKV,
    check_upgrade,
    is_journaled,
    news_of,
    parse_postgres,
)
from tilth.membership import Liveness
from tilth.recovery import has_tables
from tilth.storage import StoreLocationError, StoreRoot, location_text, location_trouble, reserve_location

#: Location of the tables' files, as the first server recorded it.
_LOCATION = "storage/place"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenStore:
    """The store of a catalog."""

    store: KeyValue
    #: Address or folder of the catalog, as errors name it.
    location: str
    #: Its changes as they land; None: nobody follows them.
    followed: FollowedKV | None
    #: None: no other server can have it open.
    liveness: Liveness | None
    #: Monitor of the database; None: the catalog is in no database.
    watch: PostgresWatch | None = None


def open_store(
    clock: Clock, folder: Path, settings: CatalogSettings, *, version: str, gone_seconds: float
) -> OpenStore:
    """Open the catalog's store for a server of this version.

    `gone_seconds`: time after which the other servers count a silent one as gone. Raises UnavailableError and its kind.
    """
    if settings.url:
        upgrade = partial(check_upgrade, version)
        address = parse_postgres(settings.url)
        shared = PostgresKV(
            clock,
            address,
            news_of=news_of,
            check_upgrade=upgrade,
            requires_sync=settings.require_sync,
        )
        try:
            shared.moves().check()
        except TilthError:
            shared.close()
            raise
        # A journal has one follower; the database has backups and standbys of its own.
        return OpenStore(
            store=shared,
            location=address.shown,
            followed=None,
            liveness=shared.liveness(gone_seconds),
            watch=shared.database_watch(),
        )
    own = RocksKV(str(folder / "catalog"), cache_bytes=settings.cache_bytes)
    followed = FollowedKV(own, is_journaled) if settings.journal_seconds else None
    return OpenStore(store=GroupedKV(followed or own), location=own.path, followed=followed, liveness=None)


def check_not_moved(catalog: Catalog) -> None:
    """Raise CatalogMovedError if the catalog of a folder was moved; `open_store` checks a database."""
    moved = catalog.state.get(MOVED)
    if moved:
        hint = "start the server with catalog.url where it was moved to, or copy it back from there"
        raise CatalogMovedError(to=moved.decode(), hint=hint)


def check_not_lost(root: StoreRoot, *, is_empty: bool) -> None:
    """Refuse an empty catalog beside files of tables: no catalog would know them, and a journal begun now would replace
    the one that does. Raises ConflictError (CATALOG_LOST), and the store's errors.
    """
    if is_empty and has_tables(root):
        hint = (
            "make the catalog again by `tilth catalog rebuild`, or restore a backup by `tilth catalog restore`; for a "
            "new node give an empty storage.root"
        )
        raise ConflictError.coded(
            "CATALOG_LOST",
            "the catalog is empty, and there are files of tables that it does not know",
            root=root,
            hint=hint,
        )


def check_location(catalog: Catalog, root: StoreRoot) -> None:
    """Make sure that this server sees the files which the other servers of the catalog see. Raises StoreLocationError,
    ConflictError (CATALOG_LOST), and the store's errors.
    """
    check_not_lost(root, is_empty=catalog.is_unused())
    own = location_text(root)
    if catalog.state.get(_LOCATION) is None:
        reserve_location(root)
    catalog.state.change(_LOCATION, lambda known: known or own.encode())
    known = (catalog.state.get(_LOCATION) or b"").decode()
    if known != own:
        hint = "give all servers of a catalog the same storage.root, which all of them see"
        raise StoreLocationError("the tables of this catalog are somewhere else", chosen=known, given=own, hint=hint)
    trouble = location_trouble(root)
    if trouble:
        hint = "give all servers of a catalog a storage.root that all of them see, as a bucket or a shared folder"
        raise StoreLocationError("the files of the tables are not there", root=root, reason=trouble, hint=hint)
