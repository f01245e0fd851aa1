"""The store of any root: its backend, or one store over its replicas."""

from __future__ import annotations

from tilth.storage.store.backends.backend import backend_of
from tilth.storage.store.protocol import Store
from tilth.storage.store.replicas.replicated import ReplicatedStore
from tilth.storage.store.root import StoreRoot


def store_of(root: StoreRoot) -> Store:
    """Return the store of the root; for an object store the same one each time. Raises StoreSecretError."""
    return ReplicatedStore(root) if root.replicas else backend_of(root)
