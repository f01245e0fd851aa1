"""A cache by the identity of an object, for what follows from objects that cannot be hashed and that nobody changes."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache
from typing import Any, Concatenate, ParamSpec, TypeVar

K = TypeVar("K")
P = ParamSpec("P")
R = TypeVar("R")


class _Same:
    """Key that is equal to itself and to a key of the same object."""

    __slots__ = ("thing",)

    def __init__(self, thing: object) -> None:
        self.thing = thing

    def __hash__(self) -> int:
        return id(self.thing)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.thing is other.thing


def by_identity(size: int) -> Callable[[Callable[Concatenate[K, P], R]], Callable[Concatenate[K, P], R]]:
    """Cache the results of a function for so many calls: by its first argument, which must never change, the same
    object, and by its others, which are hashed.
    """

    def decorate(make: Callable[Concatenate[K, P], R]) -> Callable[Concatenate[K, P], R]:
        @lru_cache(size)
        # Any: arguments of every function.
        def cached(key: _Same, *others: Hashable, **named: Hashable) -> Any:
            return make(key.thing, *others, **named)  # type: ignore[arg-type]

        def call(thing: K, /, *others: P.args, **named: P.kwargs) -> R:
            # The cache holds the object, so that its identity stays its own.
            return cached(_Same(thing), *others, **named)  # type: ignore[arg-type, no-any-return]

        return call

    return decorate
