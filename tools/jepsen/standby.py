"""The subject `servers` with a standby of the database, asynchronous or synchronous."""

from __future__ import annotations

import random
from contextlib import ExitStack
from pathlib import Path

from tools.jepsen.servers import Servers
from tools.jepsen.subjects import Subject


def asynchronous(folder: Path, rng: random.Random, stack: ExitStack) -> Subject:
    return stack.enter_context(Servers(folder, rng))


def synchronous(folder: Path, rng: random.Random, stack: ExitStack) -> Subject:
    return stack.enter_context(Servers(folder, rng))
