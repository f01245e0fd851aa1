"""Layout of the arrays that json_blocks.py and the compiled kernel exchange.

Covers: kinds of columns, states of cells, the columns of the rules. Does not cover: reading (json_kernel.py), Arrow
arrays (json_blocks.py).
Always holds: it is known without numba, for json_blocks.py needs it before the kernel is loaded.

Tests: tests/property/test_json_kernel.py.
"""

from __future__ import annotations

# Kinds of columns. A span is a value of any other type: its bytes are found, and msgspec reads them.
INTEGER, DOUBLE, TEXT, INSTANT, WALL, DATE, BOOLEAN, SPAN = range(8)

# States of a cell. A text with escapes is found, too.
MISSING, NULL, FOUND, ESCAPED = range(4)

# Columns of the rules, of which each column of the table has a row: kind; whether NULL is allowed; whether the key is
# required; least and greatest whole number; row of `ends` with the ends of its texts or spans (-1: none); whether a
# time needs a zone.
KIND, ALLOWS_NULL, IS_REQUIRED, LEAST, GREATEST, ENDS_ROW, NEEDS_ZONE = range(7)
