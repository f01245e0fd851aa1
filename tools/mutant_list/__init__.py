"""The mutants of the project: patches of its source, each of which breaks a promise, with the tests that fail then.

Covers: the patches, a file for each room. Does not cover: running them (mutants.py). A tidy test checks that each still
fits its file exactly once: who changes such a line writes the patch anew, and sees to it that its tests still fail with
it.
"""

from tools.mutant_list.every import MUTANTS
from tools.mutant_list.mutant import Mutant, mutated

__all__ = ["MUTANTS", "Mutant", "mutated"]
