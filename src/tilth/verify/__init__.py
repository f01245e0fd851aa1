"""Verification: a table's ledgers, counts and files, compared with each other.

Covers: SYSTEM VERIFY, a list of checks that hold or do not.
Does not cover: mending; damage that queries and merges meet on their way (tilth.maintenance).
Always holds: reads only; each check is reported, those that hold too; what merges and rounds do meanwhile is no fault.
See also: docs/policies/consumers.md, docs/operate/recovery.md.
"""

from tilth.verify.report import CheckResult, VerifyReport
from tilth.verify.table import verify

__all__ = [
    "CheckResult",
    "VerifyReport",
    "verify",
]
