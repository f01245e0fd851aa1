"""The backend of a root without replicas, as this process has it.

Covers: the choice by the kind of the root, clients that are kept. Does not cover: roots with replicas (stores.py).
Always holds: a client of an object store that was used before a fork is not used after it: it would hang for ever.

Tests: tests/integration/storage/test_store_behaviour.py.
"""

from __future__ import annotations

import os
import threading

from tilth.base.errors import TilthError
from tilth.storage.store.backends.local import LocalStore
from tilth.storage.store.protocol import Store
from tilth.storage.store.root import StoreRoot

#: Object stores that a process keeps.
STORES_MAX = 100

_lock = threading.Lock()
_stores: dict[StoreRoot, Store] = {}
#: The process that first used an object store; 0: none has.
_user = 0


def backend_of(root: StoreRoot) -> Store:
    """Return the store of a root without replicas; for an object store the same one each time. Raises
    StoreSecretError.
    """
    assert not root.replicas, root
    if root.is_local:
        return LocalStore(root.uri)
    _check_user(root)
    with _lock:
        found = _stores.get(root)
        if found is None:
            if len(_stores) >= STORES_MAX:
                _stores.clear()
            found = _stores[root] = _new_store(root)
        return found


def _check_user(root: StoreRoot) -> None:
    """Raises TilthError (STORE_FORKED). Takes no lock: another thread of a parent may have held it at the fork."""
    global _user
    _user = _user or os.getpid()
    if _user != os.getpid():
        raise TilthError.coded(
            "STORE_FORKED",
            "an object store cannot be used in a process that was forked from one that used it",
            store=str(root),
            hint="let a process that has used an object store start others anew",
        )


def _new_store(root: StoreRoot) -> Store:
    # Only where they are needed: most processes never use them.
    if root.kind == "hdfs":
        from tilth.storage.store.backends.hdfs import HdfsStore

        return HdfsStore(root)
    from tilth.storage.store.backends.objects import ObjectStore

    return ObjectStore(root)
