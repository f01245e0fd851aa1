"""Which promises of a type make others superfluous."""

from __future__ import annotations

import pytest

from tilth.model.checks import (
    Check,
    IntegerRange,
    LengthMax,
    OneOf,
    Rule,
    SecondDigits,
    UuidText,
    first_stricter,
    rule_text,
)


@pytest.mark.parametrize(
    ("old", "new", "is_stricter"),
    [
        (IntegerRange(0, 255), IntegerRange(0, 65535), False),
        (IntegerRange(0, 65535), IntegerRange(0, 255), True),
        (IntegerRange(0, 255), IntegerRange(1, 300), True),
        (LengthMax(3), LengthMax(4), False),
        (LengthMax(4), LengthMax(3), True),
        (LengthMax(3, is_bytes=True), LengthMax(3), False),
        (LengthMax(3), LengthMax(3, is_bytes=True), True),
        (OneOf(("a",)), OneOf(("b", "a")), False),
        (OneOf(("a", "b")), OneOf(("a",)), True),
        (SecondDigits(0), SecondDigits(3), False),
        (SecondDigits(3), SecondDigits(0), True),
        (UuidText(), UuidText(), False),
        (UuidText(), LengthMax(36), True),
        (None, UuidText(), True),
        (UuidText(), None, False),
    ],
)
def test_what_is_stricter(old: Rule | None, new: Rule | None, is_stricter: bool) -> None:
    before = () if old is None else (Check(old),)
    after = () if new is None else (Check(new),)
    found = first_stricter(after, before)
    assert found == (next(iter(after), None) if is_stricter else None)


def test_a_rule_holds_at_its_level_only() -> None:
    new = Check(IntegerRange(0, 255), ("element",))
    assert first_stricter([new], [Check(IntegerRange(0, 255))]) == new
    assert first_stricter([new], [new]) is None


def test_rules_are_described() -> None:
    assert rule_text(OneOf(tuple("abcdefghijkl"))).endswith("'j', ..")
    assert "whole seconds" in rule_text(SecondDigits(0))
    assert "bytes" in rule_text(LengthMax(2, is_bytes=True))
