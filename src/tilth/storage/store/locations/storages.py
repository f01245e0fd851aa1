"""Storages: locations of tables that have a name.

Covers: what a name stands for, which table lies where, what an address from SQL may refer to.
Does not cover: proving a location (location.py), where definitions are kept (tilth.catalog), statements.
Always holds: a table stays where it was made; `default` is there always and is the node's own location; an address from
SQL reads no file and no variable but those that the node has set aside for that, and no rights of the machine go to a
host that it names.

Tests: tests/unit/statements/definitions/test_storages.py, tests/integration/storage/test_storages.py.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import PurePosixPath
from urllib.parse import urlsplit

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import NotFoundError
from tilth.base.hosts import is_host_allowed
from tilth.model.storage import DEFAULT_STORAGE, Storage
from tilth.storage.store.locations.location import location_trouble
from tilth.storage.store.locations.watch import LocationState, LocationWatch
from tilth.storage.store.replicas.health import health_of
from tilth.storage.store.root import SECRET_OPTIONS, BadStoreError, StoreRoot, parse_root
from tilth.storage.store.settings import NodeStorageSettings

_ENVIRONMENT_PREFIX = "TILTH_STORAGE_"
#: Options of which one names whose rights are used; without it, clients find those of the machine.
_CREDENTIAL_OPTIONS: Mapping[str, tuple[str, ...]] = {"s3": ("key",), "gs": ("credentials",), "az": ("key", "sas")}


class NamedRoots:
    """The storages of a node, and which of its tables lies in which. For any thread."""

    def __init__(
        self,
        clock: Clock,
        default: StoreRoot,
        storage_of: Callable[[str], str | None],
        incomplete: Callable[[str], tuple[int, ...]] = lambda table: (),
    ) -> None:
        """`storage_of`: the storage of the table with this uuid; None where there is no such table (yet).
        `incomplete`: the replicas that lack a file of the table.
        """
        self.default = default
        self._watch = LocationWatch(clock, self.all, probe=self._trouble)
        self._storage_of = storage_of
        self._incomplete = incomplete
        self._lock = threading.Lock()
        self._reading = threading.Lock()
        self._roots: dict[str, StoreRoot] = {}
        #: Storage of each table by uuid, cached at the first request: it never changes.
        self._storage_by_table: dict[str, str] = {}

    def declare(self, storages: Mapping[str, StoreRoot]) -> None:
        """Replace the known storages, beside `default`."""
        with self._lock:
            before, self._roots = self._roots, dict(storages)
        known, now = ({one for each in roots.values() for one in each.replicas} for roots in (before, storages))
        for replica in known - now:
            health_of(replica).unwatch()
        for replica in now:
            health_of(replica).watch()

    def follow(self, read: Callable[[], Iterable[Storage]]) -> None:
        """Declare the storages that `read` returns; calls run one after the other, so that an older reading never
        replaces a newer one.
        """
        with self._reading:
            self.declare({each.name: defined_root(each) for each in read()})

    def all(self) -> dict[str, StoreRoot]:
        """Return each storage, `default` first."""
        with self._lock:
            return {DEFAULT_STORAGE: self.default, **self._roots}

    def named(self, name: str) -> StoreRoot:
        """Raises NotFoundError (STORAGE_NOT_FOUND)."""
        storages = self.all()
        if name not in storages:
            raise NotFoundError.coded(
                "STORAGE_NOT_FOUND",
                "no such storage",
                storage=name,
                known=", ".join(storages),
                hint="SHOW STORAGES lists them",
            )
        return storages[name]

    def of(self, table: str) -> StoreRoot:
        """Return the root of the table with this uuid. Raises NotFoundError (STORAGE_NOT_FOUND)."""
        with self._lock:
            storage = self._storage_by_table.get(table)
        if storage is None:
            storage = self._storage_of(table)
            if storage is None:
                return self.default
            with self._lock:
                self._storage_by_table[table] = storage
        root = self.default if storage == DEFAULT_STORAGE else self.named(storage)
        if not root.replicas:
            return root
        away = tuple(number for number, each in enumerate(root.replicas) if health_of(each).trouble)
        return msgspec.structs.replace(root, incomplete=self._incomplete(table), away=away)

    def states(self) -> dict[str, LocationState]:
        """Return by name whether each storage can be used now."""
        return self._watch.states()

    def last_states(self) -> dict[str, LocationState]:
        """Return the same as last known, and wait for no storage; one that was never probed is left out."""
        return self._watch.last_states()

    def _trouble(self, root: StoreRoot) -> str:
        if root == self.default and root.is_local:
            # The node's own folder was not chosen, and has no marker.
            return "" if os.access(root.uri, os.W_OK) else "the folder cannot be written"
        if root.replicas:
            return quorum_trouble(root)
        return location_trouble(root)

    def __str__(self) -> str:
        return str(self.default)


def defined_root(storage: Storage) -> StoreRoot:
    """Return the root of a storage as the catalog defines it."""
    return msgspec.structs.replace(parse_root(storage.root), replica_ids=storage.replica_ids)


def quorum_trouble(root: StoreRoot) -> str:
    """Return why nothing can be written to a root with replicas; empty: a quorum of them answers."""
    away = [f"{each.uri}: {trouble}" for each in root.replicas if (trouble := health_of(each).trouble)]
    answering = len(root.replicas) - len(away)
    if answering >= root.quorum:
        return ""
    return f"{answering} of {len(root.replicas)} replicas answer, the quorum is {root.quorum}; {'; '.join(away)}"


def check_from_sql(text: str, settings: NodeStorageSettings) -> StoreRoot:
    """Read the address of a storage that a statement gives. Raises BadStoreError."""
    root = parse_root(text)
    if root.replicas:
        raise BadStoreError("replicas are named one by one", hint="REPLICAS ('address', 'address') QUORUM 2")
    if root.is_local and not _is_below(root.uri, settings.local_folder):
        hint = f"choose a folder below {settings.local_folder}" if settings.local_folder else "set storage.local-folder"
        raise BadStoreError("statements may use folders of this machine only below storage.local-folder", hint=hint)
    host = named_host(root)
    if host is not None and not is_host_allowed(host, settings.hosts):
        raise BadStoreError("statements may not name this host", host=host, hint="the setting storage.hosts lists them")
    credentials = _CREDENTIAL_OPTIONS.get(root.kind, ())
    if root.option("endpoint") and not any(map(root.option, credentials)):
        # Clients would send the rights of the machine, or of the account that it runs as, to that host.
        hint = f"name the {' or the '.join(credentials)}, too: env:{_ENVIRONMENT_PREFIX}.. or file:/.."
        raise BadStoreError("an address of a statement with an endpoint has credentials of its own", hint=hint)
    for name in SECRET_OPTIONS.get(root.kind, ()):
        kind, _, where = root.option(name).partition(":")
        if kind == "env" and not where.startswith(_ENVIRONMENT_PREFIX):
            hint = f"name the variable {_ENVIRONMENT_PREFIX}.. in the environment of server and workers"
            raise BadStoreError("statements may refer to variables of storages only", option=name, hint=hint)
        if kind == "file" and not _is_below(where, settings.secrets_folder):
            folder = settings.secrets_folder
            hint = f"put it below {folder}" if folder else "set storage.secrets-folder, or use env:TILTH_STORAGE_.."
            raise BadStoreError(
                "statements may refer to files only below storage.secrets-folder", option=name, hint=hint
            )
    return root


def named_host(root: StoreRoot) -> str | None:
    """Return the host that an address names; None: its provider's, or none."""
    return urlsplit(root.option("endpoint") if root.kind != "hdfs" else root.uri).hostname


def _is_below(path: str, folder: str) -> bool:
    """True for a path below the folder, by its name."""
    return bool(folder) and ".." not in PurePosixPath(path).parts and PurePosixPath(path).is_relative_to(folder)
