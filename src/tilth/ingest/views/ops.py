"""Operations of rows on a table with a unique key, as views and messages give them: a column of words or numbers.

Covers: the column as storage wants it. Does not cover: the words (model/table.py).
Always holds: a missing word is an upsert.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from tilth.model.table import OP_DELETE, OP_UPSERT, op_of
from tilth.storage import BadColumnError


def ops_of(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return 0 or 1 for each value; raises BadColumnError with the first one that means nothing."""
    codes = []
    for chunk in values.chunks:
        encoded = _encoded(chunk)
        known = [_op(word) for word in encoded.dictionary.to_pylist()]
        if None in known:
            word = encoded.dictionary[known.index(None)].as_py()
            hint = "0, c, r, u, i, insert, update, upsert; or 1, d, delete"
            raise BadColumnError("a row does not say what it does", column="_op", value=word, hint=hint)
        codes_of_rows = pa.array(known, pa.int8()).take(encoded.indices)
        codes.append(pc.fill_null(codes_of_rows, OP_UPSERT))
    return pa.chunked_array(codes, pa.int8())


def bad_ops(values: pa.Array) -> pa.Array:
    """Mark the values that mean nothing."""
    encoded = _encoded(values)
    is_bad = pa.array([_op(word) is None for word in encoded.dictionary.to_pylist()], pa.bool_())
    return pc.fill_null(is_bad.take(encoded.indices), False)


def are_deletes(values: pa.Array) -> pa.Array:
    """Mark the values that delete a row."""
    encoded = _encoded(values)
    is_delete = pa.array([_op(word) == OP_DELETE for word in encoded.dictionary.to_pylist()], pa.bool_())
    return pc.fill_null(is_delete.take(encoded.indices), False)


def _encoded(values: pa.Array) -> pa.DictionaryArray:
    if pa.types.is_dictionary(values.type):
        values = pc.cast(values, values.type.value_type)
    return pc.dictionary_encode(pc.cast(values, pa.string()))


def _op(word: str) -> int | None:
    try:
        return op_of(word)
    except ValueError:
        return None
