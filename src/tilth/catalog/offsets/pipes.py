"""Pipes of tables, and the files that they could not load.

Covers: their records. Does not cover: what a pipe loads (tilth.statements), files that were loaded (loaded_files.py).
Always holds: a pipe is created only while its table is there, and goes with it; a file fails only in a pipe that is
there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec

from tilth.base.clock import Clock
from tilth.catalog.errors import TableNotFoundError
from tilth.catalog.kv import KeyValue, ReadView
from tilth.catalog.records import codec
from tilth.catalog.records.keys import Space, pack
from tilth.catalog.records.small_commit import (
    REMOVE_BATCH,
    Plan,
    change,
    read,
    read_all,
    remove_range,
    unchanged,
)
from tilth.model.pipe import FailedFile, Pipe


class Pipes:
    """`catalog.pipes`."""

    def __init__(self, clock: Clock, kv: KeyValue) -> None:
        self._clock = clock
        self._kv = kv

    def all(self) -> list[Pipe]:
        """Return the pipes of all tables, of those that were dropped and may come back too."""
        return list(read_all(self._kv, codec.PIPES, Space.PIPE))

    def of(self, table: str) -> list[Pipe]:
        """Return the pipes of a table by name."""
        return list(read_all(self._kv, codec.PIPES, Space.PIPE, table))

    def find(self, table: str, name: str) -> Pipe | None:
        return read(self._kv, pack(Space.PIPE, table, name), codec.PIPES)

    def create(self, pipe: Pipe) -> bool:
        """Store a new pipe; return False where the table has one of this name. Raises TableNotFoundError."""
        key, value = pack(Space.PIPE, pipe.table, pipe.name), codec.PIPES.encode(pipe)
        relation = pack(Space.RELATION, pipe.table)

        def plan(view: ReadView) -> Plan[bool]:
            found, table = view.get(key), view.get(relation)
            if found is not None:
                # It is ours where the answer to the first attempt was lost.
                return Plan(result=found.value == value)
            if table is None:
                raise TableNotFoundError(uuid=pipe.table, hint="the table was dropped meanwhile")
            return Plan(
                result=True, preconditions=[unchanged(key, found), unchanged(relation, table)], puts={key: value}
            )

        return change(self._kv, self._clock, plan)

    def refresh(self, pipe: Pipe, *, now_ms: int) -> None:
        """Forget the files that failed, and note when. Does nothing for a pipe that is gone."""
        key = pack(Space.PIPE, pipe.table, pipe.name)
        remove_range(self._kv, self._clock, Space.FAILED_FILE, pipe.table, pipe.id)

        def plan(view: ReadView) -> Plan[None]:
            found = view.get(key)
            known = None if found is None else codec.PIPES.decode(key, found.value)
            if known is None or known.id != pipe.id:
                return Plan(result=None)
            new = codec.PIPES.encode(_refreshed(known, now_ms))
            return Plan(result=None, preconditions=[unchanged(key, found)], puts={key: new})

        change(self._kv, self._clock, plan)

    def drop(self, pipe: Pipe) -> bool:
        """Forget the pipe and the files that failed; return False where it is gone already."""
        key = pack(Space.PIPE, pipe.table, pipe.name)

        def plan(view: ReadView) -> Plan[bool]:
            found = view.get(key)
            if found is None or codec.PIPES.decode(key, found.value).id != pipe.id:
                return Plan(result=False)
            return Plan(result=True, preconditions=[unchanged(key, found)], deletes=[key])

        is_dropped = change(self._kv, self._clock, plan)
        remove_range(self._kv, self._clock, Space.FAILED_FILE, pipe.table, pipe.id)
        return is_dropped

    def failed(self, pipe: Pipe) -> dict[str, FailedFile]:
        """Return the files that the pipe could not load, by address."""
        found = read_all(self._kv, codec.FAILED_FILES, Space.FAILED_FILE, pipe.table, pipe.id)
        return {each.file: each for each in found}

    def fail(self, pipe: Pipe, files: Sequence[FailedFile]) -> None:
        """Note files that could not be loaded. Does nothing for a pipe that is gone."""
        for begin in range(0, len(files), REMOVE_BATCH):
            self._change(
                pipe, puts={_failed_key(pipe, each.file): each for each in files[begin : begin + REMOVE_BATCH]}
            )

    def clear(self, pipe: Pipe, files: Iterable[str]) -> None:
        """Forget that these files could not be loaded."""
        keys = [_failed_key(pipe, each) for each in files]
        for begin in range(0, len(keys), REMOVE_BATCH):
            self._change(pipe, deletes=keys[begin : begin + REMOVE_BATCH])

    def _change(
        self, pipe: Pipe, *, puts: dict[bytes, FailedFile] | None = None, deletes: Sequence[bytes] = ()
    ) -> None:
        key = pack(Space.PIPE, pipe.table, pipe.name)
        values = {name: codec.FAILED_FILES.encode(each) for name, each in (puts or {}).items()}

        def plan(view: ReadView) -> Plan[None]:
            found = view.get(key)
            if found is None or codec.PIPES.decode(key, found.value).id != pipe.id:
                return Plan(result=None)
            return Plan(result=None, preconditions=[unchanged(key, found)], puts=values, deletes=deletes)

        change(self._kv, self._clock, plan)


def _refreshed(pipe: Pipe, now_ms: int) -> Pipe:
    # It is later than the last one, whatever the clock does: a change is seen by it.
    return msgspec.structs.replace(pipe, refreshed_ms=max(now_ms, pipe.refreshed_ms + 1))


def _failed_key(pipe: Pipe, file: str) -> bytes:
    """Return the key of a file that failed; addresses may be longer than keys."""
    return pack(Space.FAILED_FILE, pipe.table, pipe.id, hashlib.sha256(file.encode()).hexdigest())
