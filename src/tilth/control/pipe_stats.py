"""The report of pipes: a state of each, and counts of all. Frozen snapshots.

Covers: the two nouns. Does not cover: who fills them (statements/files/pipe_manager.py).

Tests: tests/unit/statements/files/test_pipe_manager.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilth.base.metrics import counter, gauge
from tilth.model.pipe import Pipe
from tilth.model.service import ServiceState


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeState:
    """State of a pipe on the server that hosts its table. Counts are those since this server began to host it."""

    pipe: Pipe
    database: str
    table: str
    state: ServiceState
    #: Reason for the state, in words.
    reason: str
    polls: int = 0
    last_poll_ms: int = 0
    #: Time of the next poll; 0: none is due until somebody starts the pipe.
    next_poll_ms: int = 0
    #: Files that the last poll found, after the pattern.
    files_found: int = 0
    #: Files among them that are to be loaded.
    files_waiting: int = 0
    #: Files among them that could not be loaded.
    files_failed: int = 0
    files_loaded: int = 0
    rows_loaded: int = 0
    last_load_ms: int = 0
    #: Id of the statement that loaded files last, or loads them now.
    last_query_id: str = ""
    #: Failed polls in a row.
    failures: int = 0
    last_error_code: str = ""
    last_error: str = ""
    last_error_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeStats:
    """Counts of all pipes of a server since its start."""

    pipes: int = gauge("tilth_pipes", "Pipes of the tables that this server hosts.")
    waiting: int = gauge("tilth_pipe_files_waiting", "Files that pipes have found and not loaded yet.")
    failing: int = gauge("tilth_pipe_files_failing", "Files that pipes could not load, and that are still there.")
    polls: int = counter("tilth_pipe_polls_total", "Polls of folders by pipes.")
    failures: int = counter("tilth_pipe_poll_failures_total", "Polls of pipes that failed as a whole.")
    loads: int = counter("tilth_pipe_loads_total", "Loads of files by pipes, a commit each.")
    files: int = counter("tilth_pipe_files_loaded_total", "Files that pipes have loaded.")
    rows: int = counter("tilth_pipe_rows_loaded_total", "Rows of those files.")
    failed: int = counter("tilth_pipe_files_failed_total", "Files that a pipe could not load, each time that it tried.")
