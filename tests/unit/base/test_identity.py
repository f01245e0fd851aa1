"""A cache by identity: the same object, not an equal one, and no other that gets its address later."""

from __future__ import annotations

from tilth.base.identity import by_identity


def test_an_object_is_asked_for_once_and_an_equal_one_again() -> None:
    made: list[tuple[list[int], int]] = []

    @by_identity(10)
    def total(numbers: list[int], factor: int) -> int:
        made.append((numbers, factor))
        return sum(numbers) * factor

    one, equal = [1, 2], [1, 2]
    assert [total(one, 1), total(one, 1), total(one, 2), total(equal, 1)] == [3, 3, 6, 3]
    assert len(made) == 3


def test_an_object_that_is_gone_lends_its_address_to_no_other() -> None:
    @by_identity(1000)
    def first(numbers: list[int]) -> int:
        return numbers[0]

    assert [first([number]) for number in range(500)] == list(range(500))
