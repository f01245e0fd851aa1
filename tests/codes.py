"""The codes of errors that have no class of their own."""

from __future__ import annotations

from dataclasses import dataclass

from tilth.base.errors import TilthError


@dataclass(frozen=True, slots=True)
class WithCode:
    """A check for `pytest.raises(.., check=)`: the error has this code."""

    code: str

    def __call__(self, error: TilthError) -> bool:
        return error.code == self.code
