"""One mutant, and a file's text with its patch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A patch of one file that breaks a promise."""

    name: str
    #: Defect of the source with the patch.
    breaks: str
    path: str
    #: Text that the file has exactly once.
    old: str
    new: str
    #: Ids of tests, as pytest takes them: each fails with the patch, for one of its parameters at least.
    tests: tuple[str, ...]


def mutated(text: str, mutant: Mutant) -> str:
    """Return the file's text with the patch; raises ValueError where it does not fit exactly once."""
    count = text.count(mutant.old)
    if count != 1:
        raise ValueError(f"{mutant.name}: {mutant.path} has {count} places instead of 1 for:\n{mutant.old}")
    return text.replace(mutant.old, mutant.new)
