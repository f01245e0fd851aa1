"""Errors of rows and of their formats."""

from __future__ import annotations

from tilth.base.errors import InvalidInputError


class BadValueError(InvalidInputError):
    """a value does not fit its column"""

    code = "BAD_VALUE"
