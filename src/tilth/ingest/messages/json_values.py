"""Compiled functions: values of JSON in bytes, by position.

Covers: whole numbers, doubles, texts with their escapes, times and dates in their usual forms, the end of any value.
Does not cover: objects, keys, columns (json_kernel.py).
Always holds: msgspec and `to_stored` read the same value wherever one is returned; a position of -1 stands for a
doubtful value. A zero byte ends the bytes, and every loop. Doubles are the nearest ones: by Clinger's exact products,
else by the method of Lemire, "Number parsing at a gigabyte per second" (2021), whose undecided cases are doubtful.

numba compiles the functions here: plain loops over arrays, without objects of Python.

Tests: tests/property/test_json_kernel.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types, uint64
from numba.extending import intrinsic

_DEPTH_MAX = 60
_EXPONENT_MAX = 320
NO_ZONE = 100_000
NO_TIME = np.iinfo(np.int64).min
_NO_DOUBLE = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_LOW_32 = np.uint64(0xFFFF_FFFF)
_EXACT_MAX = np.uint64(1 << 53)
_SIGN = np.uint64(1 << 63)
_POWERS = np.array([10.0**power for power in range(23)])


def _powers_of_five() -> tuple[list[int], list[int]]:
    """Return the high and low halves of 5^q for q from -320 to 320, as 128 bits with the highest one set.

    Rounded as the method demands: down, but up where the reciprocal of a power would have to be exact.
    """
    found = []
    for exponent in range(-_EXPONENT_MAX, _EXPONENT_MAX + 1):
        power = 5 ** abs(exponent)
        length = power.bit_length()
        if exponent >= 0:
            found.append(power << 128 >> length)
        elif exponent >= -27:
            found.append((1 << (length + 127)) // power + 1)
        else:
            reciprocal = (1 << (2 * length + 128)) // power + 1
            found.append(reciprocal >> (reciprocal.bit_length() - 128))
    return [each >> 64 for each in found], [each & ((1 << 64) - 1) for each in found]


_HIGH, _LOW = (np.array(each, np.uint64) for each in _powers_of_five())


# Any: types and builders of numba.
@intrinsic
def bytes_at(typing_context: Any, address: Any) -> Any:
    """Return a pointer to bytes, of which numba counts no references and which has no indices from its end."""

    def make(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

    return types.CPointer(types.uint8)(types.uintp), make


@njit
def _product_high(one, other):
    """Return the upper 64 bits of a product."""
    one_low, one_high = one & _LOW_32, one >> uint64(32)
    other_low, other_high = other & _LOW_32, other >> uint64(32)
    middle = one_high * other_low + ((one_low * other_low) >> uint64(32))
    rest = one_low * other_high + (middle & _LOW_32)
    return one_high * other_high + (middle >> uint64(32)) + (rest >> uint64(32))


@njit
def _leading_zeros(number):
    count = 0
    for step in (32, 16, 8, 4, 2, 1):
        if number >> uint64(64 - step) == uint64(0):
            count += step
            number <<= uint64(step)
    return count


@njit
def _nearest_double(digits, exponent):
    """Return the bits of digits * 10^exponent; _NO_DOUBLE: undecided, or no normal number."""
    if digits == uint64(0):
        return uint64(0)
    if exponent < -_EXPONENT_MAX or exponent > _EXPONENT_MAX:
        return _NO_DOUBLE
    zeros = _leading_zeros(digits)
    scaled = digits << uint64(zeros)
    high = _product_high(scaled, _HIGH[exponent + _EXPONENT_MAX])
    low = scaled * _HIGH[exponent + _EXPONENT_MAX]
    if high & uint64(0x1FF) == uint64(0x1FF):
        more = _product_high(scaled, _LOW[exponent + _EXPONENT_MAX])
        low = low + more
        if more > low:
            high = high + uint64(1)
        if low == _NO_DOUBLE and (exponent < -27 or exponent > 55):
            return _NO_DOUBLE
    upper = high >> uint64(63)
    shift = upper + uint64(9)
    mantissa = high >> shift
    binary = ((217_706 * exponent) >> 16) + 63 + np.int64(upper) - zeros + 1023
    if binary <= 0 or binary >= 2046:
        return _NO_DOUBLE
    is_tie = low <= uint64(1) and exponent >= -4 and exponent <= 23 and mantissa & uint64(3) == uint64(1)
    if is_tie and mantissa << shift == high:
        mantissa = mantissa & ~uint64(1)
    mantissa = (mantissa + (mantissa & uint64(1))) >> uint64(1)
    if mantissa >= uint64(1) << uint64(53):
        mantissa = uint64(1) << uint64(52)
        binary += 1
    return (mantissa & ~(uint64(1) << uint64(52))) | (uint64(binary) << uint64(52))


@njit
def after_space(buffer, at):
    while buffer[at] == 32 or buffer[at] == 10 or buffer[at] == 13 or buffer[at] == 9:
        at += 1
    return at


@njit
def _after_digits(buffer, at):
    while buffer[at] >= 48 and buffer[at] <= 57:
        at += 1
    return at


@njit
def read_integer(buffer, at):
    """Return a whole number of at most 18 digits, or 19 that 64 bits hold, and the position behind it."""
    is_negative = buffer[at] == 45
    start = at + 1 if is_negative else at
    at, value = start, np.int64(0)
    while buffer[at] >= 48 and buffer[at] <= 57:
        value = value * 10 + (np.int64(buffer[at]) - 48)
        at += 1
    length = at - start
    # 19 digits beyond 64 bits make a negative number; the least number of 64 bits is doubtful, too.
    if length == 0 or length > 19 or value < 0:
        return value, -1
    if buffer[start] == 48 and length > 1:
        return value, -1
    if buffer[at] == 46 or buffer[at] == 101 or buffer[at] == 69:
        return value, -1
    return (-value if is_negative else value), at


@njit
def read_double(buffer, at):
    """Return the bits of a number and the position behind it."""
    is_negative = buffer[at] == 45
    start = at + 1 if is_negative else at
    at, digits, exponent = start, uint64(0), 0
    while buffer[at] >= 48 and buffer[at] <= 57:
        digits = digits * uint64(10) + uint64(buffer[at] - 48)
        at += 1
    whole = at - start
    if whole == 0 or (buffer[start] == 48 and whole > 1):
        return np.int64(0), -1
    count, is_whole = (0 if buffer[start] == 48 else whole), True
    if buffer[at] == 46:
        fraction = at + 1
        at, is_whole = fraction, False
        while buffer[at] >= 48 and buffer[at] <= 57:
            digits = digits * uint64(10) + uint64(buffer[at] - 48)
            count += 1 if count > 0 or digits != uint64(0) else 0
            at += 1
        if at == fraction:
            return np.int64(0), -1
        exponent = fraction - at
    # 64 bits hold any 19 digits.
    if count > 19:
        return np.int64(0), -1
    if buffer[at] == 101 or buffer[at] == 69:
        at, is_whole = at + 1, False
        is_below = buffer[at] == 45
        if is_below or buffer[at] == 43:
            at += 1
        first, given = at, 0
        while buffer[at] >= 48 and buffer[at] <= 57:
            given = given * 10 + (np.int64(buffer[at]) - 48) if given < 10_000 else given
            at += 1
        if at == first:
            return np.int64(0), -1
        exponent += -given if is_below else given
    if digits == uint64(0) and is_negative and is_whole:
        return np.int64(0), -1
    bits = _bits_of(digits, exponent)
    if bits == _NO_DOUBLE:
        return np.int64(0), -1
    return np.int64(bits | _SIGN) if is_negative else np.int64(bits), at


@njit
def _bits_of(digits, exponent):
    if digits <= _EXACT_MAX and exponent >= -22 and exponent <= 22:
        number = np.float64(digits)
        number = number / _POWERS[-exponent] if exponent < 0 else number * _POWERS[exponent]
        return np.float64(number).view(np.uint64)
    return _nearest_double(digits, exponent)


@njit
def read_hex(buffer, at):
    """Return the number of four hexadecimal digits; -1: there are none."""
    value = 0
    for index in range(4):
        byte = np.int64(buffer[at + index])
        if byte >= 48 and byte <= 57:
            digit = byte - 48
        elif byte | 32 >= 97 and byte | 32 <= 102:
            digit = (byte | 32) - 87
        else:
            return -1
        value = value * 16 + digit
    return value


@njit
def _after_escape(buffer, at):
    """Return the position behind the escape at a backslash."""
    byte = buffer[at + 1]
    if byte == 34 or byte == 92 or byte == 47 or byte == 98 or byte == 102 or byte == 110 or byte == 114 or byte == 116:
        return at + 2
    if byte != 117:
        return -1
    code = read_hex(buffer, at + 2)
    if code < 0 or (code >= 0xDC00 and code <= 0xDFFF):
        return -1
    if code < 0xD800 or code > 0xDFFF:
        return at + 6
    if buffer[at + 6] != 92 or buffer[at + 7] != 117:
        return -1
    low = read_hex(buffer, at + 8)
    return at + 12 if low >= 0xDC00 and low <= 0xDFFF else -1


@njit
def end_of_text(buffer, at):
    """Return the position of the quote that ends a text, and whether there are escapes in it."""
    is_escaped = False
    while True:
        byte = buffer[at]
        if byte == 34:
            return at, is_escaped
        if byte == 92:
            is_escaped = True
            at = _after_escape(buffer, at)
            if at < 0:
                return -1, True
        elif byte < 32:
            return -1, True
        else:
            at += 1


@njit
def _two_digits(buffer, at):
    """Return the number of two digits; negative: there are none."""
    one, other = np.int64(buffer[at]) - 48, np.int64(buffer[at + 1]) - 48
    return one * 10 + other if one >= 0 and one <= 9 and other >= 0 and other <= 9 else -100_000


@njit
def read_days(buffer, at):
    """Return the days since 1970 of a date as in 2026-01-31; NO_TIME: there is none, or not in the years 2 to 9998."""
    year = _two_digits(buffer, at) * 100 + _two_digits(buffer, at + 2)
    month, day = _two_digits(buffer, at + 5), _two_digits(buffer, at + 8)
    if buffer[at + 4] != 45 or buffer[at + 7] != 45 or year < 2 or year > 9998 or month < 1 or month > 12 or day < 1:
        return NO_TIME
    length = 31
    if month == 4 or month == 6 or month == 9 or month == 11:
        length = 30
    elif month == 2:
        length = 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    if day > length:
        return NO_TIME
    # Years begin in March; eras of 400 years have 146,097 days.
    shifted = year - 1 if month <= 2 else year
    era = shifted // 400
    of_era = shifted - era * 400
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


@njit
def read_time(buffer, at, end):
    """Return the microseconds since 1970 that the clock shows, and the minutes that its zone is ahead of UTC."""
    if end - at < 19 or buffer[at + 13] != 58 or buffer[at + 16] != 58:
        return NO_TIME, 0
    days = read_days(buffer, at)
    hour, minute, second = _two_digits(buffer, at + 11), _two_digits(buffer, at + 14), _two_digits(buffer, at + 17)
    is_clock = hour >= 0 and hour <= 23 and minute >= 0 and minute <= 59 and second >= 0 and second <= 59
    if days == NO_TIME or not is_clock or (buffer[at + 10] != 84 and buffer[at + 10] != 32):
        return NO_TIME, 0
    at += 19
    micros = 0
    if buffer[at] == 46:
        first = at + 1
        at = first
        while buffer[at] >= 48 and buffer[at] <= 57 and at - first < 6:
            micros = micros * 10 + (np.int64(buffer[at]) - 48)
            at += 1
        if at == first:
            return NO_TIME, 0
        for _ in range(6 - (at - first)):
            micros *= 10
    found = (days * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000_000 + micros
    if at == end:
        return found, NO_ZONE
    if buffer[at] == 90 and at + 1 == end:
        return found, 0
    if (buffer[at] != 43 and buffer[at] != 45) or at + 6 != end or buffer[at + 3] != 58:
        return NO_TIME, 0
    hours, minutes = _two_digits(buffer, at + 1), _two_digits(buffer, at + 4)
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
        return NO_TIME, 0
    ahead = hours * 60 + minutes
    return found, (-ahead if buffer[at] == 45 else ahead)


@njit
def after_word(buffer, at):
    """Return the position behind true, false or null."""
    byte = buffer[at]
    if byte == 116 and buffer[at + 1] == 114 and buffer[at + 2] == 117 and buffer[at + 3] == 101:
        return at + 4
    if byte == 110 and buffer[at + 1] == 117 and buffer[at + 2] == 108 and buffer[at + 3] == 108:
        return at + 4
    if (
        byte == 102
        and buffer[at + 1] == 97
        and buffer[at + 2] == 108
        and buffer[at + 3] == 115
        and buffer[at + 4] == 101
    ):
        return at + 5
    return -1


@njit
def _after_number(buffer, at):
    if buffer[at] == 45:
        at += 1
    first = at
    at = _after_digits(buffer, at)
    if at == first or (buffer[first] == 48 and at - first > 1):
        return -1
    if buffer[at] == 46:
        first = at + 1
        at = _after_digits(buffer, first)
        if at == first:
            return -1
    if buffer[at] == 101 or buffer[at] == 69:
        first = at + 2 if buffer[at + 1] == 43 or buffer[at + 1] == 45 else at + 1
        at = _after_digits(buffer, first)
        if at == first:
            return -1
    return at


@njit
def _after_scalar(buffer, at):
    """Return the position behind a text, a number or a word."""
    byte = buffer[at]
    if byte == 34:
        end, _ = end_of_text(buffer, at + 1)
        return end + 1 if end >= 0 else -1
    if byte == 45 or (byte >= 48 and byte <= 57):
        return _after_number(buffer, at)
    return after_word(buffer, at)


@njit
def after_colon(buffer, at):
    at = after_space(buffer, at)
    return after_space(buffer, at + 1) if buffer[at] == 58 else -1


@njit
def _after_key(buffer, at):
    """Return the position of the value behind a key and its colon."""
    at = after_space(buffer, at)
    if buffer[at] != 34:
        return -1
    end, _ = end_of_text(buffer, at + 1)
    return after_colon(buffer, end + 1) if end >= 0 else -1


@njit
def after_value(buffer, at):
    """Return the position behind any value, at most _DEPTH_MAX levels deep."""
    # Bit of each open level: 1 for an object.
    levels, depth = uint64(0), 0
    while True:
        byte = buffer[at]
        if byte == 123 or byte == 91:
            is_object = byte == 123
            depth += 1
            if depth > _DEPTH_MAX:
                return -1
            levels = (levels << uint64(1)) | uint64(1 if is_object else 0)
            at = after_space(buffer, at + 1)
            if buffer[at] != (125 if is_object else 93):
                if is_object:
                    at = _after_key(buffer, at)
                    if at < 0:
                        return -1
                continue
        else:
            at = _after_scalar(buffer, at)
            if at < 0:
                return -1
            if depth == 0:
                return at
            at = after_space(buffer, at)
        while buffer[at] == (125 if levels & uint64(1) else 93):
            depth -= 1
            levels >>= uint64(1)
            at += 1
            if depth == 0:
                return at
            at = after_space(buffer, at)
        if buffer[at] != 44:
            return -1
        at = after_space(buffer, at + 1)
        if levels & uint64(1):
            at = _after_key(buffer, at)
            if at < 0:
                return -1
