"""Measurements in a process that has nothing in memory yet, and the memory that they need."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def fresh_process(module: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Runs the module; what it prints last is JSON. Raises CalledProcessError."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def peak_memory_mib() -> float:
    """Return the peak of this process alone; `getrusage` starts from that of its parent."""
    lines = Path("/proc/self/status").read_text().splitlines()
    [peak] = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(peak) / 1024
