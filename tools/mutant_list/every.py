"""All mutants of the project."""

from __future__ import annotations

from tools.mutant_list.catalog import CATALOG
from tools.mutant_list.catalog_commits import CATALOG_COMMITS
from tools.mutant_list.maintenance import MAINTENANCE
from tools.mutant_list.membership import MEMBERSHIP
from tools.mutant_list.mutant import Mutant
from tools.mutant_list.others import OTHERS
from tools.mutant_list.statements import STATEMENTS
from tools.mutant_list.storage import STORAGE

MUTANTS: tuple[Mutant, ...] = (*CATALOG, *CATALOG_COMMITS, *MEMBERSHIP, *STORAGE, *MAINTENANCE, *STATEMENTS, *OTHERS)
