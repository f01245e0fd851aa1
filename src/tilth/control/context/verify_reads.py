"""Reads of a table's files for SYSTEM VERIFY: by this server where they are few, else by tasks of a warehouse.

Covers: the choice, the task. Does not cover: what is read (verify/reading.py), what it means (verify/files.py).
Always holds: the findings are the same.

Tests: tests/unit/recovery/test_files_alone.py, tests/integration/sql/test_verify_on_spark.py.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from tilth.base.units import MIB
from tilth.control.context.services import Call, Services
from tilth.model.table import KafkaDef, TableDef, full_name
from tilth.model.task import TaskKind
from tilth.query.snapshots.protocol import VerifyTask
from tilth.verify import DeletesOrder, FilesOrder, KeysOrder, ReadsHere, Wrong
from tilth.warehouse import QUERY_WAREHOUSE, table_warehouses

#: Bytes up to which a server reads files itself: a job of Spark takes longer.
HERE_BYTES_MAX = 64 * MIB


class TaskReads:
    """Carries out the orders of one SYSTEM VERIFY."""

    def __init__(self, services: Services, call: Call, relation: TableDef | KafkaDef) -> None:
        self._services = services
        self._call = call
        self._relation = relation

    def wrong(self, order: FilesOrder | DeletesOrder) -> Sequence[Wrong]:
        if order.size <= HERE_BYTES_MAX:
            return ReadsHere().wrong(order)
        return msgspec.msgpack.decode(self._run(order), type=list[Wrong])

    def repeated(self, order: KeysOrder) -> int:
        if order.size <= HERE_BYTES_MAX:
            return ReadsHere().repeated(order)
        return msgspec.msgpack.decode(self._run(order), type=int)

    def _run(self, order: FilesOrder | DeletesOrder | KeysOrder) -> bytes:
        """Return the answer of a task, which is sent again where Spark was lost: it only reads."""
        services, relation = self._services, self._relation
        named = table_warehouses(relation.settings).queries if isinstance(relation, TableDef) else ""

        def send(is_again: bool) -> bytes:
            spec = services.dispatcher.new_spec(
                TaskKind.QUERY,
                warehouse=self._call.settings.warehouse or named or QUERY_WAREHOUSE,
                table=full_name(relation),
                payload=msgspec.msgpack.encode(VerifyTask(order=msgspec.msgpack.encode(order))),
                input_bytes=order.size,
            )
            return services.dispatcher.run(msgspec.structs.replace(spec, waits_for_spark=True)).payload

        return services.resends.once_more(send)
