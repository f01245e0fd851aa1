"""Wall clock of a Python process that a test may set wrong; Python imports this by its name when it starts.

Covers: `time.time` and `time.time_ns`, ahead of the machine's clock by the nanoseconds in the file that the environment
names. Does not cover: the monotonic clock, which no setting of a machine's time changes, and Java's.
"""

from __future__ import annotations

import mmap
import os
import struct
import time

VARIABLE = "TILTH_TEST_CLOCK"


def _set_clock(path: str) -> None:
    with open(path, "rb") as file:
        ahead = mmap.mmap(file.fileno(), 8, access=mmap.ACCESS_READ)
    true_ns = time.time_ns
    read = struct.Struct("<q").unpack_from

    def time_ns() -> int:
        return true_ns() + int(read(ahead)[0])

    time.time_ns = time_ns
    time.time = lambda: time_ns() / 1e9


if VARIABLE in os.environ:
    _set_clock(os.environ[VARIABLE])
