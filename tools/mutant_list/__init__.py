"""The mutants of the project: patches of its source, each of which breaks a promise, with the tests that fail then.

Covers: the patches, in a file for each room. Does not cover: running them (mutants.py). A tidy test checks that each
patch still fits its file exactly once: a change of such a line comes with a new patch, with which the tests fail.
"""

from tools.mutant_list.every import MUTANTS
from tools.mutant_list.mutant import Mutant, mutated

__all__ = ["MUTANTS", "Mutant", "mutated"]
