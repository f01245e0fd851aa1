"""Verification: a table's ledgers, counts and files, compared with each other.

Covers: SYSTEM VERIFY, a list of checks that hold or do not; SYSTEM CHECK FILES, stored files that the catalog lacks.
Does not cover: mending; damage that queries and merges meet on their way (tilth.maintenance).
Always holds: reads only, except that CHECK FILES .. REPAIR removes orphans; each check is reported, those that hold
too; what merges and rounds do meanwhile is no fault.
See also: docs/policies/consumers.md, docs/operate/recovery.md.
"""

from typing import TYPE_CHECKING

from tilth.base.doors import door

if TYPE_CHECKING:
    from tilth.verify.reading import DeletesOrder, FilesOrder, KeysOrder, Reads, ReadsHere, Wrong
    from tilth.verify.report import CheckResult, VerifyReport
    from tilth.verify.stored import TROUBLES, FileRow, FileState, StoredReport, check_stored
    from tilth.verify.table import verify
else:
    __getattr__ = door(__name__)
