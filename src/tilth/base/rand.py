"""Random draws, as something that is handed in, so that a run can be repeated from its seed."""

from __future__ import annotations

import random
from collections.abc import MutableSequence
from typing import Any, Protocol


class Rng(Protocol):
    """Source of random draws; `random.Random(seed)` is one."""

    def random(self) -> float:
        """A draw from 0 (included) to 1 (excluded)."""

    def shuffle(self, x: MutableSequence[Any]) -> None:
        """Shuffle the items of the list."""


def new_rng(seed: int | None = None) -> Rng:
    """A generator; without a seed, one that nobody can foresee."""
    return random.Random(seed)
