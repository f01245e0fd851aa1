"""SELECT: over system tables in this process, over anything else by Spark."""

from __future__ import annotations

import msgspec
import pyarrow as pa

from tilth.base.errors import UnavailableError
from tilth.model.task import TaskKind
from tilth.sql.answer import Outcome
from tilth.sql.errors import BadQueryError
from tilth.sql.grammar import Query
from tilth.sql.protocol import QueryTask
from tilth.sql.services import Call, Services
from tilth.sql.system_lane import NotForThisLaneError, answer_from_system, system_tables_of
from tilth.sql.system_tables import find_system_table
from tilth.warehouse import QUERY_WAREHOUSE


def run_query(services: Services, call: Call, statement: Query) -> Outcome:
    names = system_tables_of(statement.text, call.database)
    if names is None:
        return _by_spark(services, call, statement.text)
    for name in names:
        # A name that is wrong is told before anything is computed.
        find_system_table(name)
    try:
        return Outcome(table=answer_from_system(statement.text, lambda name: find_system_table(name).build(services)))
    except NotForThisLaneError as refused:
        try:
            return _by_spark(services, call, statement.text)
        except UnavailableError as error:
            raise BadQueryError(
                str(refused), hint="without a worker, system tables are read with what DataFusion's SQL offers"
            ) from error


def _by_spark(services: Services, call: Call, text: str) -> Outcome:
    task = QueryTask(
        query_id=call.query_id,
        text=text,
        spark=dict(call.settings.spark),
        result_bytes_max=call.settings.max_result_bytes,
    )
    spec = services.dispatcher.new_spec(
        TaskKind.QUERY, warehouse=QUERY_WAREHOUSE, table="", payload=msgspec.msgpack.encode(task)
    )
    with services.desk.opened(call.query_id, database=call.database, prune=call.settings.prune_parts) as query:
        result = services.dispatcher.run(spec)
    with pa.ipc.open_stream(result.payload) as reader:
        table = reader.read_all()
    return Outcome(table=table, parts_read=query.parts_read, parts_pruned=query.parts_pruned)
