"""Storages as users define them."""

from __future__ import annotations

import msgspec

#: The node's own storage, which always exists.
DEFAULT_STORAGE = "default"
#: The setting by which a table names its storage.
STORAGE_SETTING = "storage_policy"


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """A named storage of tables; tilth.storage defines the addresses."""

    name: str
    #: Root address with references to secrets, without secrets.
    root: str
    created_ms: int = 0
    #: Id of each replica, drawn when its address became a replica: an address that is added again gets a new one. Empty
    #: in a storage without replicas.
    replica_ids: tuple[str, ...] = ()
