"""Notes of copies of files that replicas of a storage lack."""

from __future__ import annotations

import msgspec

from tilth.model.part import DataFile


class CopyNote(msgspec.Struct, frozen=True, kw_only=True):
    """A file of which a replica of its storage has no good copy."""

    #: The table's uuid.
    table: str
    #: Its number in the storage's list, from 0.
    replica: int
    #: None: any file of the table, for the replica is made anew.
    file: DataFile | None
    since_ms: int
    #: Reason why the replica has no good copy.
    reason: str
    #: Tries to copy it that failed, and the last of them.
    failures: int = 0
    error: str = ""
    failed_ms: int = 0

    @property
    def bytes(self) -> int:
        return 0 if self.file is None else self.file.size
