"""Operations of rows that come as words: what `_op` says of each.

Tests: tests/unit/statements/inserts/test_insert.py.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tilth.formats.errors import BadValueError
from tilth.model.table import OP_COLUMN, op_of


def op_array(given: pa.ChunkedArray) -> pa.Array:
    """Return the operation of each row as a number; raises BadValueError naming the word that is none."""
    # Few different words, however many rows.
    try:
        words = pc.cast(given, pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise BadValueError(
            "the values cannot be read as text", column=OP_COLUMN, type=given.type, why=error
        ) from error
    encoded = pa.concat_arrays(words.chunks or [pa.array([], pa.string())]).dictionary_encode()
    ops: list[int] = []
    for value in encoded.dictionary.to_pylist():
        try:
            ops.append(op_of(value))
        except ValueError as error:
            raise BadValueError(column=OP_COLUMN, given=value, why=error) from error
    return pa.array(ops, pa.int8()).take(encoded.indices)
