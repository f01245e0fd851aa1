"""Pipes: files of a folder that are loaded into a table as they come.

Covers: what the catalog keeps of a pipe. Does not cover: who polls (statements/files/pipe_manager.py), the files that
were loaded (loaded_file.py).

Tests: tests/unit/statements/files/test_pipe_manager.py.
"""

from __future__ import annotations

import msgspec


class Pipe(msgspec.Struct, frozen=True, kw_only=True):
    """A COPY INTO that is repeated for new files: it belongs to its table."""

    #: Uuid of the table.
    table: str
    #: Name, unique in its table.
    name: str
    #: Id that is drawn at CREATE PIPE: a pipe that is dropped and created again knows nothing of the former one.
    id: str
    columns: tuple[str, ...] = ()
    address: str
    #: Name of the files' format.
    format: str
    #: Pattern of paths below the address; empty: all.
    pattern: str = ""
    options: tuple[tuple[str, str], ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    #: Time between two polls of the folder.
    every_ms: int
    created_ms: int
    #: Id of the statement that created it.
    query_id: str
    #: Time of the last ALTER PIPE .. REFRESH; 0: none.
    refreshed_ms: int = 0


class FailedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a pipe could not load, and does not try again while file and columns are the same."""

    #: Address of the file.
    file: str
    size: int
    #: Mark of the file's content from its store; empty where the store has none.
    tag: str = ""
    #: Time of its last change, by the clock of its store.
    modified_ms: int
    #: Version of the table's columns that it does not fit.
    schema_version: int
    #: Code and text of the error.
    code: str
    error: str
    failed_ms: int
    #: Id of the statement that failed; empty: none was run.
    query_id: str = ""
