"""Errors that are no Exceptions."""

from __future__ import annotations


class PanicError(BaseException):
    """Stands for a panic of a library in Rust."""
