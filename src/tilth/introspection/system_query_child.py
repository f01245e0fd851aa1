"""DataFusion over system tables; as a program, for one query that may take long: a process can be killed.

    python -P system_query_child.py     the question on standard input, the rows as an Arrow stream on standard output

Covers: DataFusion's session, the program. Does not cover: which queries, and who starts it (system_queries.py,
system_query_process.py). Always holds: the program imports nothing of Tilth, so that it starts quickly; it ends when
its standard input does, so that it never outlives the node.

Tests: tests/unit/introspection/test_system_query_process.py.
"""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import BinaryIO

import pyarrow as pa
from datafusion import DataFrame, RuntimeEnvBuilder, SessionConfig, SessionContext, SQLOptions
from datafusion.catalog import SchemaProvider, Table
from pyarrow import dataset

SYSTEM_DATABASE = "system"
#: Limits of one query's sorts, joins and aggregates, and of its result.
MEMORY_BYTES_MAX = 512 << 20
RESULT_BYTES_MAX = 512 << 20
_NICE = 5
_LENGTH_BYTES = 8

#: Rows of a system table by its name.
Build = Callable[[str], pa.Table]


class SystemTables(SchemaProvider):
    """System tables on demand."""

    def __init__(self, build: Build) -> None:
        self._build = build
        #: Rows of the requested tables.
        self.made: dict[str, pa.Table] = {}
        #: Error that occurred while rows were made; it cannot pass through DataFusion.
        self.error: Exception | None = None

    def table_names(self) -> set[str]:
        return set(self.made)

    def table_exist(self, name: str) -> bool:
        return self.table(name) is not None

    def table(self, name: str) -> Table | None:
        if name not in self.made:
            try:
                self.made[name] = self._build(name)
            except Exception as error:
                self.error = error
                return None
        return Table(_dataset(self.made[name]))


def _dataset(rows: pa.Table) -> dataset.Dataset:
    """Return the rows as DataFusion reads them."""
    if rows.num_rows:
        return dataset.dataset(rows)
    # Without a row it would have no fragment, over which DataFusion sorts nothing: a file has one.
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist([], schema=rows.schema))
    form = dataset.IpcFileFormat()
    return dataset.FileSystemDataset([form.make_fragment(pa.py_buffer(sink.getvalue()))], rows.schema, form)


def planned(text: str, tables: SystemTables, *, memory_bytes_max: int = 0) -> DataFrame:
    """Plan the query. Raises bare ValueErrors and Exceptions, as DataFusion does. 0: no bound of memory."""
    config = SessionConfig(
        {
            # In the dialect that is nearest to Spark's, texts stand in double quotes too.
            "datafusion.sql_parser.dialect": "databricks",
            # Spark's order: NULL is less than every value, so it comes first, and last with DESC.
            "datafusion.sql_parser.default_null_ordering": "nulls_min",
            "datafusion.catalog.default_schema": SYSTEM_DATABASE,
            "datafusion.catalog.information_schema": "false",
            "datafusion.execution.time_zone": "UTC",
            "datafusion.execution.target_partitions": "1",
        }
    )
    runtime = RuntimeEnvBuilder().with_greedy_memory_pool(memory_bytes_max) if memory_bytes_max else None
    context = SessionContext(config, runtime)
    context.enable_spark_functions()
    context.catalog().register_schema(SYSTEM_DATABASE, tables)
    options = SQLOptions().with_allow_ddl(False).with_allow_dml(False).with_allow_statements(False)
    return context.sql_with_options(text, options)


def question(text: str, tables: Mapping[str, pa.Table]) -> bytes:
    """Encode the input of the program."""
    sink = io.BytesIO()
    _put(sink, json.dumps({"text": text, "tables": list(tables)}).encode())
    for table in tables.values():
        rows = io.BytesIO()
        with pa.ipc.new_stream(rows, table.schema) as writer:
            writer.write_table(table)
        _put(sink, rows.getvalue())
    return sink.getvalue()


def _put(sink: BinaryIO, data: bytes) -> None:
    sink.write(len(data).to_bytes(_LENGTH_BYTES, "big"))
    sink.write(data)


def _read_block(source: BinaryIO) -> bytes:
    return source.read(int.from_bytes(source.read(_LENGTH_BYTES), "big"))


def _table(data: bytes) -> pa.Table:
    with pa.ipc.open_stream(data) as reader:
        return reader.read_all()


def _end_with(source: BinaryIO) -> None:
    source.read()
    os._exit(1)


def main() -> None:
    """Answer one question. The exit code is 1, and the reason on the standard error, where that fails."""
    os.nice(_NICE)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    request = json.loads(_read_block(source))
    tables = {name: _table(_read_block(source)) for name in request["tables"]}
    threading.Thread(target=_end_with, args=(source,), daemon=True).start()
    try:
        frame = planned(request["text"], SystemTables(tables.__getitem__), memory_bytes_max=MEMORY_BYTES_MAX)
        size = 0
        with pa.ipc.new_stream(sink, frame.schema()) as writer:
            for batch in frame.execute_stream():
                rows = batch.to_pyarrow()
                size += rows.nbytes
                if size > RESULT_BYTES_MAX:
                    raise ValueError(f"the result has more than {RESULT_BYTES_MAX} bytes: select fewer rows")
                writer.write_batch(rows)
    # DataFusion raises bare Exceptions; the node names them.
    except Exception as error:
        print(str(error), file=sys.stderr, flush=True)
        os._exit(1)
    sink.flush()
    # The thread that reads would be waited for.
    os._exit(0)


if __name__ == "__main__":
    main()
