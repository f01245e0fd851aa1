"""Rules of a column's declared type beyond the type that stores it. Pure.

Covers: the rules, their words, and which rules make others superfluous. Does not cover: applying them to rows
(storage/values/checks.py), reading type names (grammar/types.py).
Always holds: a rule is about single values at one level of the column's type; NULL keeps every rule.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import assert_never

import msgspec

#: The way from a column's type to a type inside of it: `element`, `key`, `value`, or the name of a field.
Path = tuple[str, ...]

ELEMENT, KEY, VALUE = "element", "key", "value"
#: Names of an enum that a message repeats.
_NAMES_SHOWN_MAX = 10


class IntegerRange(msgspec.Struct, frozen=True, tag="range"):
    """Whole numbers from the least to the greatest: UInt8 and its kin, whose stored types hold more."""

    least: int
    greatest: int


class LengthMax(msgspec.Struct, frozen=True, tag="length"):
    """Texts of at most so many characters, VARCHAR(n) and CHAR(n), or bytes of UTF-8, FixedString(n)."""

    length: int
    is_bytes: bool = False


class OneOf(msgspec.Struct, frozen=True, tag="names"):
    """The names of an Enum."""

    names: tuple[str, ...]


class UuidText(msgspec.Struct, frozen=True, tag="uuid"):
    """UUIDs as 32 hexadecimal digits in five groups; capital letters are stored as small ones."""


class SecondDigits(msgspec.Struct, frozen=True, tag="digits"):
    """Times with at most so many digits behind the second: DateTime has none, DateTime64(p) has p."""

    digits: int


Rule = IntegerRange | LengthMax | OneOf | UuidText | SecondDigits


class Check(msgspec.Struct, frozen=True):
    """A rule for the values at one level of a column's type."""

    rule: Rule
    path: Path = ()


def rule_text(rule: Rule) -> str:
    """Describe the values that the rule allows, in words that follow "expected"."""
    match rule:
        case IntegerRange(least=least, greatest=greatest):
            return f"a number from {least} to {greatest}"
        case LengthMax(length=length, is_bytes=is_bytes):
            return f"at most {length} {'bytes of UTF-8' if is_bytes else 'characters'}"
        case OneOf(names=names):
            shown = ", ".join(f"'{name}'" for name in names[:_NAMES_SHOWN_MAX])
            return f"one of {shown}{', ..' if len(names) > _NAMES_SHOWN_MAX else ''}"
        case UuidText():
            return "a UUID, as in '61f0c404-5cb3-11e7-907b-a6006ad3dba0'"
        case SecondDigits(digits=0):
            return "whole seconds; date_trunc('SECOND', ..) cuts a time"
        case SecondDigits(digits=digits):
            return f"at most {digits} digits behind the second"
    assert_never(rule)


def first_stricter(new: Iterable[Check], old: Iterable[Check]) -> Check | None:
    """The first of the new checks that a value which keeps the old ones may break; None: there is no such check."""
    known = list(old)
    return next((each for each in new if not any(_implies(other, each) for other in known)), None)


def _implies(old: Check, new: Check) -> bool:
    if old.path != new.path:
        return False
    match old.rule, new.rule:
        case IntegerRange(), IntegerRange():
            return new.rule.least <= old.rule.least and old.rule.greatest <= new.rule.greatest
        case LengthMax(), LengthMax():
            # A character has at least one byte.
            return old.rule.length <= new.rule.length and (old.rule.is_bytes or not new.rule.is_bytes)
        case OneOf(), OneOf():
            return set(old.rule.names) <= set(new.rule.names)
        case SecondDigits(), SecondDigits():
            return old.rule.digits <= new.rule.digits
    return old.rule == new.rule
