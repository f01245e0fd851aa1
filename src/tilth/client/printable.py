"""Texts that are safe on a terminal: characters that it would obey are shown, not sent. Pure.

Covers: control characters of both sets, marks that reverse the direction of a line, halves of characters that no
encoding has. Does not cover: colours, which rich adds behind this.
"""

from __future__ import annotations

import re

_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_OBEYED_IN_LINES = re.compile(_OBEYED.pattern.replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))
_NAMED = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def printable(text: str) -> str:
    """Return the text on one line."""
    return _OBEYED.sub(_shown, text)


def printable_lines(text: str) -> str:
    """Return the text with its line breaks and tabs."""
    return _OBEYED_IN_LINES.sub(_shown, text)


def _shown(found: re.Match[str]) -> str:
    letter = found[0]
    code = ord(letter)
    return _NAMED.get(letter) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
