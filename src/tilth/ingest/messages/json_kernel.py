"""Compiled kernel: JSON objects of a block of messages to values of columns, each byte read once.

Covers: objects, keys in any order, columns of each kind, entries of maps, copying of texts. Does not cover: reading
one value (json_values.py), the layout of the arrays (json_cells.py), using the kernel (json_blocks.py).
Always holds: a message is read only where msgspec and `to_stored` read the same values; every other message is
doubtful. Each message in the buffer ends with a zero byte, on which every loop ends, so no loop reads beyond it.

numba compiles the functions here: plain loops over arrays, without objects of Python.

Tests: tests/property/test_json_kernel.py.
"""

from __future__ import annotations

import numpy as np
from numba import njit, uint64

from tilth.ingest.messages.json_cells import (
    ALLOWS_NULL,
    BOOLEAN,
    DATE,
    DOUBLE,
    ENDS_ROW,
    ESCAPED,
    FOUND,
    GREATEST,
    INSTANT,
    INTEGER,
    IS_REQUIRED,
    KIND,
    LEAST,
    MISSING,
    NEEDS_ZONE,
    NULL,
    SPAN,
    TEXT,
)
from tilth.ingest.messages.json_values import (
    NO_TIME,
    NO_ZONE,
    after_colon,
    after_space,
    after_value,
    after_word,
    bytes_at,
    end_of_text,
    read_days,
    read_double,
    read_hex,
    read_integer,
    read_time,
)

#: Slots of the keys of maps that are searched for one; where a producer's keys collide on purpose, all would be.
_PROBES_MAX = 64


@njit
def _hash(buffer, start, end):
    """FNV-1a."""
    found = uint64(0xCBF29CE484222325)
    for at in range(start, end):
        found = (found ^ uint64(buffer[at])) * uint64(0x100000001B3)
    return found


@njit
def _is_key(buffer, start, keys, first, end):
    for offset in range(end - first):
        if buffer[start + offset] != keys[first + offset]:
            return False
    return buffer[start + end - first] == 34


@njit(cache=True)
def fill_slots(keys, key_offsets, slots):
    """Fill an open hash table, a power of two and larger than the number of keys, with the numbers of the keys."""
    mask = uint64(len(slots) - 1)
    names = bytes_at(keys.ctypes.data)
    for column in range(len(key_offsets) - 1):
        slot = _hash(names, key_offsets[column], key_offsets[column + 1]) & mask
        while slots[slot] >= 0:
            slot = (slot + uint64(1)) & mask
        slots[slot] = column


@njit
def _find_key(buffer, start, end, keys, key_offsets, slots):
    """Return the number of the key in the buffer; -1: it is none."""
    mask = uint64(len(slots) - 1)
    slot = _hash(buffer, start, end) & mask
    while slots[slot] >= 0:
        column = slots[slot]
        if _is_key(buffer, start, keys, key_offsets[column], key_offsets[column + 1]):
            return column
        slot = (slot + uint64(1)) & mask
    return -1


@njit
def _read_cell(buffer, at, kind, least, greatest, needs_zone):
    """Return the value of a cell, the position of the end of its text, its state, and the position behind it."""
    value, end, state = np.int64(0), np.int64(0), FOUND
    if kind == INTEGER:
        value, at = read_integer(buffer, at)
        if at >= 0 and (value < least or value > greatest):
            at = -1
    elif kind == DOUBLE:
        value, at = read_double(buffer, at)
    elif kind == SPAN:
        value = np.int64(at)
        at = after_value(buffer, at)
        end = np.int64(at)
    elif kind == BOOLEAN:
        value = np.int64(1 if buffer[at] == 116 else 0)
        at = after_word(buffer, at)
    elif buffer[at] != 34:
        at = -1
    else:
        value = np.int64(at + 1)
        last, is_escaped = end_of_text(buffer, at + 1)
        end, at = np.int64(last), (last + 1 if last >= 0 else -1)
        if kind == TEXT:
            state = ESCAPED if is_escaped else FOUND
        elif is_escaped:
            at = -1
        elif kind == DATE:
            value = read_days(buffer, value) if end - value == 10 else NO_TIME
            if value == NO_TIME:
                at = -1
        else:
            value, ahead = read_time(buffer, value, end)
            if value == NO_TIME or (ahead == NO_ZONE and needs_zone != 0):
                at = -1
            elif kind == INSTANT and ahead != NO_ZONE:
                value -= np.int64(ahead) * 60_000_000
    return value, end, state, at


@njit
def _after_cell(buffer, at):
    """Return the position of the next key or of the object's end."""
    at = after_space(buffer, at)
    if buffer[at] == 125:
        return at
    if buffer[at] != 44:
        return -1
    at = after_space(buffer, at + 1)
    return at if buffer[at] == 34 else -1


@njit
def _first_key(buffer, at):
    """Return the position of an object's first key or of its end."""
    at = after_space(buffer, at)
    if buffer[at] != 123:
        return -1
    at = after_space(buffer, at + 1)
    return at if buffer[at] == 34 or buffer[at] == 125 else -1


@njit(cache=True, nogil=True)
def read_objects(  # noqa: PLR0913  # numba has no structures of arrays
    buffer, offsets, keys, key_offsets, slots, rules, order, skips_unknown, values, ends, states, doubts
):
    """Read the messages between the offsets, each with a zero byte behind it, but those that are marked as doubtful.

    `rules`, `states`: see json_cells.py. `order`: columns by position in the message before. `values` and `states` get
    the cells, by column and row: of a text or span the position of its first byte, and `ends` the one behind its last.
    """
    # All arrays are in one function, because numba counts the references of each array at a call.
    text, names = bytes_at(buffer.ctypes.data), bytes_at(keys.ctypes.data)
    for row in range(len(doubts)):
        at = -1 if doubts[row] else _first_key(text, offsets[row])
        count, found = 0, 0
        while at >= 0 and text[at] == 34:
            start = at + 1
            # Most messages have their keys in the order of the message before.
            column = order[count] if count < len(order) else -1
            if column >= 0 and _is_key(text, start, names, key_offsets[column], key_offsets[column + 1]):
                at = after_colon(text, start + key_offsets[column + 1] - key_offsets[column] + 1)
            else:
                end, is_escaped = end_of_text(text, start)
                column = -1 if is_escaped else _find_key(text, start, end, names, key_offsets, slots)
                if count < len(order):
                    order[count] = column
                at = -1 if is_escaped else after_colon(text, end + 1)
            count += 1
            if at < 0:
                break
            if column < 0:
                at = after_value(text, at) if skips_unknown else -1
            elif states[column, row] != MISSING:
                at = -1
            elif text[at] == 110:
                at = after_word(text, at) if rules[column, ALLOWS_NULL] else -1
                states[column, row] = NULL
                found += 1
            else:
                kind, least, greatest = rules[column, KIND], rules[column, LEAST], rules[column, GREATEST]
                value, last, state, at = _read_cell(text, at, kind, least, greatest, rules[column, NEEDS_ZONE])
                values[column, row] = value
                states[column, row] = state
                if rules[column, ENDS_ROW] >= 0:
                    ends[rules[column, ENDS_ROW], row] = last
                found += 1
            if at >= 0:
                at = _after_cell(text, at)
        is_read = at >= 0 and after_space(text, at + 1) == offsets[row + 1] - 1
        if is_read and found < len(rules):
            for column in range(len(rules)):
                if rules[column, IS_REQUIRED] and states[column, row] == MISSING:
                    is_read = False
        if not is_read:
            doubts[row] = 1
            states[:, row] = NULL


@njit
def _put_code(code, out, at):
    """Write a character as UTF-8; return the position behind it."""
    if code < 0x80:
        out[at] = code
        return at + 1
    if code < 0x800:
        out[at] = 0xC0 | (code >> 6)
        out[at + 1] = 0x80 | (code & 0x3F)
        return at + 2
    if code < 0x10000:
        out[at] = 0xE0 | (code >> 12)
        out[at + 1] = 0x80 | ((code >> 6) & 0x3F)
        out[at + 2] = 0x80 | (code & 0x3F)
        return at + 3
    out[at] = 0xF0 | (code >> 18)
    out[at + 1] = 0x80 | ((code >> 12) & 0x3F)
    out[at + 2] = 0x80 | ((code >> 6) & 0x3F)
    out[at + 3] = 0x80 | (code & 0x3F)
    return at + 4


@njit
def _put_unescaped(buffer, start, end, out, at):
    while start < end:
        byte = buffer[start]
        if byte != 92:
            out[at] = byte
            at += 1
            start += 1
            continue
        letter = buffer[start + 1]
        if letter == 117:
            code = read_hex(buffer, start + 2)
            start += 6
            if code >= 0xD800 and code <= 0xDBFF:
                code = 0x10000 + ((code - 0xD800) << 10) + (read_hex(buffer, start + 2) - 0xDC00)
                start += 6
            at = _put_code(code, out, at)
            continue
        if letter == 98:
            letter = 8
        elif letter == 102:
            letter = 12
        elif letter == 110:
            letter = 10
        elif letter == 114:
            letter = 13
        elif letter == 116:
            letter = 9
        out[at] = letter
        at += 1
        start += 2
    return at


@njit(cache=True, nogil=True)
def copy_texts(buffer, starts, ends, states, bases, out, offsets):
    """Copy the texts of columns, those of each behind its base and without their escapes, and write where each begins
    behind the base.
    """
    text, target = bytes_at(buffer.ctypes.data), bytes_at(out.ctypes.data)
    rows = starts.shape[1]
    positions = bases.copy()
    # Row by row, for locality: the stride between two texts of a column is a whole message.
    for row in range(rows):
        for column in range(len(bases)):
            at = positions[column]
            offsets[column, row] = at - bases[column]
            if states[column, row] == ESCAPED:
                at = _put_unescaped(text, starts[column, row], ends[column, row], target, at)
            elif states[column, row] == FOUND:
                for source in range(starts[column, row], ends[column, row]):
                    target[at] = text[source]
                    at += 1
            positions[column] = at
    for column in range(len(bases)):
        offsets[column, rows] = positions[column] - bases[column]


@njit(cache=True, nogil=True)
def read_maps(  # noqa: PLR0913  # numba has no structures of arrays
    buffer, starts, rule, slots, key_spans, seen, order, states, doubts, offsets, keys, key_ends, values, ends, found
):
    """Read the objects of one column that begin at `starts`, those of `states` that are found, to entries of maps.

    `rule`: the column's, with the kind and bounds of its values. `slots`: an open hash table as of `fill_slots`, four
    times as large as the entries can be, 0 where it is empty; `key_spans`: positions of the distinct keys; `seen`: the
    last row, counted from 1, that has each of them; `order`: the keys by position in the object before. `offsets` gets
    the first entry of each row; `keys` and `key_ends` the keys end to end; `values`, `ends` and `found` the values as
    `read_objects` writes cells. Keys with escapes and keys that are given twice make a message doubtful.
    """
    text, out = bytes_at(buffer.ctypes.data), bytes_at(keys.ctypes.data)
    mask = uint64(len(slots) - 1)
    count, known, key_at = 0, 0, 0
    for row in range(len(doubts)):
        offsets[row] = count
        if states[row] < FOUND or doubts[row]:
            continue
        first, first_key_at = count, key_at
        at = _first_key(text, starts[row])
        while at >= 0 and text[at] == 34:
            start = at + 1
            # Most objects have their keys in the order of the object before.
            number = order[count - first] - 1
            if number < 0 or not _is_key(text, start, text, key_spans[number, 0], key_spans[number, 1]):
                end, is_escaped = end_of_text(text, start)
                number = -1
                if not is_escaped:
                    slot = _hash(text, start, end) & mask
                    for _ in range(_PROBES_MAX):
                        if slots[slot] == 0:
                            key_spans[known, 0], key_spans[known, 1] = start, end
                            known += 1
                            slots[slot] = known
                        other = slots[slot] - 1
                        if _is_key(text, start, text, key_spans[other, 0], key_spans[other, 1]):
                            number = other
                            break
                        slot = (slot + uint64(1)) & mask
                if number < 0:
                    at = -1
                    break
                order[count - first] = number + 1
            if seen[number] == row + 1:
                at = -1
                break
            seen[number] = row + 1
            for source in range(key_spans[number, 0], key_spans[number, 1]):
                out[key_at] = text[source]
                key_at += 1
            at = after_colon(text, start + key_spans[number, 1] - key_spans[number, 0] + 1)
            if at < 0:
                break
            if text[at] == 110:
                at = after_word(text, at)
                values[count], found[count] = 0, NULL
            else:
                value, last, state, at = _read_cell(text, at, rule[KIND], rule[LEAST], rule[GREATEST], rule[NEEDS_ZONE])
                values[count], ends[count], found[count] = value, last, state
            count += 1
            key_ends[count] = key_at
            if at >= 0:
                at = _after_cell(text, at)
        if at < 0:
            doubts[row] = 1
            states[row] = NULL
            count, key_at = first, first_key_at
    offsets[len(doubts)] = count
