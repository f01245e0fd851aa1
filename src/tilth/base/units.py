"""Bytes, counts, durations and times: from text and to text. Pure.

Tests: tests/unit/base/test_sources.py.
"""

from __future__ import annotations

import datetime
import re

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_BYTES = {
    "": 1,
    "b": 1,
    "k": KIB,
    "kb": KIB,
    "kib": KIB,
    "m": MIB,
    "mb": MIB,
    "mib": MIB,
    "g": GIB,
    "gb": GIB,
    "gib": GIB,
}
_SECONDS = {"ms": 0.001, "s": 1.0, "sec": 1.0, "second": 1.0, "m": 60.0, "min": 60.0, "minute": 60.0}
_SECONDS |= {"h": 3600.0, "hour": 3600.0, "d": 86400.0, "day": 86400.0, "": 1.0}
#: The last time that a date can express.
_LAST_MS = 253_402_300_799_000
_MILLION, _BILLION = 1_000_000, 1_000_000_000
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")


def parse_bytes(text: str) -> int:
    """`5242880`, `5 MiB`, `1g`: bytes, by powers of two. Raises ValueError."""
    number, unit = _split(text)
    return int(number * _BYTES[_known(unit, _BYTES)])


def parse_seconds(text: str) -> float:
    """`30`, `500 ms`, `2 hours`: seconds. Raises ValueError."""
    number, unit = _split(text)
    return number * _SECONDS[_known(unit.rstrip("s") if len(unit) > 2 else unit, _SECONDS)]


def show_bytes(size: int) -> str:
    """`5.0 MiB`."""
    for unit, scale in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size} B"


def show_count(count: int) -> str:
    """`41,200`, `1.2 million`."""
    for word, scale in (("billion", _BILLION), ("million", _MILLION)):
        if count >= scale:
            return f"{count / scale:.1f} {word}"
    return f"{count:,}"


def show_time(at_ms: int) -> str:
    """Milliseconds since 1970 as `2026-01-31 12:00:00 UTC`."""
    time = datetime.datetime.fromtimestamp(min(at_ms, _LAST_MS) // 1000, datetime.UTC)
    return f"{time:%Y-%m-%d %H:%M:%S} UTC"


def _split(text: str) -> tuple[float, str]:
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return float(found[1]), found[2].lower()


def _known(unit: str, units: dict[str, float] | dict[str, int]) -> str:
    if unit not in units:
        raise ValueError(unit)
    return unit
