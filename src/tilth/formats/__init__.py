"""Rows as text: every format of messages, of INSERT and of answers, and the one judge of what a value is.

Covers: a file for each family of formats in `kinds/`, which nothing lists; values of a column's type. Does not cover:
defaults and keys of INSERT (statements/inserts), blocks of messages (ingest/messages), HTTP (tilth.server).
Always holds: a text means the same to every road by which rows come: what is a BIGINT, a time, NULL. See also:
docs/extend.md#a-format.
"""

from typing import TYPE_CHECKING

from tilth.base.doors import door

if TYPE_CHECKING:
    from tilth.formats.cell_values import json_cells
    from tilth.formats.errors import BadValueError
    from tilth.formats.format import ABSENT, ROWS_PER_PIECE, Cutter, Format, RowOptions, TextRows, Values, wrong_width
    from tilth.formats.registry import (
        FORMATS,
        accepted_format,
        answer_format,
        body_format,
        body_types,
        find_format,
        format_names,
        rows_format,
    )
    from tilth.formats.row_operations import op_array
    from tilth.formats.texts import cells_values, is_text, texts_array
    from tilth.formats.values import Given, Reading, Stored, check_array, column_array, number_digits, shown, to_stored
else:
    __getattr__ = door(__name__)
