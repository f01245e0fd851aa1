"""Files of Avro as another library writes them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import fastavro


def flat(**types: object) -> dict[str, Any]:
    """Return the schema of a record with these fields."""
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    return {"type": "record", "name": "Row", "fields": fields}


def avro_file(schema: dict[str, Any], rows: Sequence[object], **options: Any) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, schema, rows, **options)
    return file.getvalue()


def avro_file_of_values(schema: Mapping[str, object], stored: dict[str, Any], rows: Sequence[object]) -> bytes:
    """Return a file of one block that has a schema, and values of another one."""
    file, data = io.BytesIO(), io.BytesIO()
    for row in rows:
        fastavro.schemaless_writer(data, stored, row)
    fastavro.schemaless_writer(file, {"type": "map", "values": "bytes"}, {"avro.schema": json.dumps(schema).encode()})
    marker = bytes(16)
    file.write(marker)
    fastavro.schemaless_writer(file, "long", len(rows))
    fastavro.schemaless_writer(file, "bytes", data.getvalue())
    return b"Obj\x01" + file.getvalue() + marker
