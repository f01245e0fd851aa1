"""Rows stay out of the server: what runs there imports no reader of rows, but for what is small and named here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.sources import PACKAGE, place, python_files, tree_of

#: Functions and classes that read rows: from files of tables, from bodies of requests, from streams.
READERS = {
    "PartRebaser",
    "ScratchWriter",
    "check_bytes",
    "check_file",
    "footer_rows",
    "iter_source",
    "live_hashes",
    "load_changes",
    "merge_parts",
    "open_part",
    "read_copies",
    "read_deletes",
    "read_own",
    "read_part",
    "read_rows",
    "read_scratch",
    "read_segment",
    "read_source",
    "read_stream",
    "repeated_keys",
    "resolve_all",
    "resolve_upserts",
    "states_of",
}
#: Rooms whose functions run in tasks and in processes of clients, too.
BELOW = ("storage", "formats", "datasource", "testing", "client")
#: Modules that may read rows all the same, and why.
ALLOWED = {
    "statements/inserts/arrow_streams.py": "small INSERTs: up to insert.spark-above",
    "statements/inserts/insert.py": "small INSERTs: up to insert.spark-above",
    "server/app.py": "small INSERTs: up to insert.spark-above",
    "statements/inserts/upserts.py": "keys of INSERTs: up to UPSERT_HERE_BYTES_MAX, above that a task",
    "statements/inserts/rows.py": "small INSERTs, and large ones in tasks",
    "statements/rows/select.py": "small results on their way to a client",
    "membership/http_peers.py": "rows of system tables, and answers of other servers",
    "statements/inserts/defaults.py": "defaults that Spark has computed for small INSERTs",
    "query/snapshots/protocol.py": "system tables on their way to a query, and values of defaults",
    "query/language/unpacked.py": "declares the readers of streams",
    "verify/reading.py": "runs in tasks; here for tables up to HERE_BYTES_MAX",
    "maintenance/damage/checks.py": "files that are said to be damaged: up to HERE_BYTES_MAX",
    "maintenance/work/procedure.py": "rebases of changes that came during a merge: up to rebases.HERE_BYTES_MAX",
    "recovery/rebuild.py": "runs where no server does",
    "ingest/rounds/keep.py": "runs in tasks of a round",
    "ingest/rounds/letters.py": "runs in tasks of a round",
    "ingest/rounds/upserts.py": "runs in tasks of a round",
}


def test_what_runs_in_the_server_reads_no_rows() -> None:
    found = {place(path): names for path in _server_files() if (names := sorted(_readers(tree_of(path))))}
    known = {f"src/tilth/{name}" for name in ALLOWED}
    assert {path: names for path, names in found.items() if path not in known} == {}


def test_what_may_read_rows_does() -> None:
    reading = {place(path) for path in _server_files() if any(_readers(tree_of(path)))}
    assert sorted(name for name in ALLOWED if f"src/tilth/{name}" not in reading) == []


@pytest.mark.parametrize("text", ["from tilth.storage import read_part", "from tilth.x import a, read_stream as b"])
def test_an_import_of_a_reader_is_seen(text: str) -> None:
    assert list(_readers(ast.parse(text)))


def _server_files() -> list[Path]:
    files = [path for path in python_files(PACKAGE) if path.relative_to(PACKAGE).parts[0] not in BELOW]
    assert len(files) > 300
    # These run where Spark's driver or tasks do.
    return [path for path in files if path.stem != "spark" and not path.stem.endswith("_spark")]


def _readers(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (each.name for each in node.names if each.name in READERS)
        elif isinstance(node, ast.FunctionDef) and node.name in READERS:
            yield node.name
