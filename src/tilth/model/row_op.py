"""Operation of a row that comes into a table with a UNIQUE KEY: it becomes the row of its key, or deletes that row.
Pure.

Covers: the names of the operations. Does not cover: their form in files (storage/parts/segments.py).
"""

from __future__ import annotations

#: A hidden column of what is inserted: what each row does.
OP_COLUMN = "_op"
#: The same as a flag: 1 deletes. ByteHouse's name.
DELETE_FLAG_COLUMN = "_delete_flag_"
OP_UPSERT = 0
OP_DELETE = 1
#: Words and numbers that users and change streams write, in lower case.
UPSERT_WORDS = ("0", "false", "c", "r", "u", "i", "insert", "update", "upsert")
DELETE_WORDS = ("1", "true", "d", "delete")

_OPS = dict.fromkeys(UPSERT_WORDS, OP_UPSERT) | dict.fromkeys(DELETE_WORDS, OP_DELETE)


def is_op_name(name: str) -> bool:
    """True if a column of this name holds operations of rows."""
    return name.lower() in (OP_COLUMN, DELETE_FLAG_COLUMN)


def op_of(value: object) -> int:
    """OP_UPSERT or OP_DELETE; raises ValueError that says what was expected."""
    found = _OPS.get(str(value).lower())
    if found is None:
        raise ValueError("expected 0, c, r, u, i, insert, update or upsert; or 1, d or delete")
    return found
