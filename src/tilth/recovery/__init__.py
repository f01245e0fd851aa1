"""Recovery: catalogs of lost or new nodes.

Covers: the journal that a node writes beside the files of its tables, making a catalog of it and of these files, or of
the files alone, making a catalog from a backup.
Does not cover: writing backups (tilth.statements), whether tables hold what they should (tilth.verify).
Always holds: catalogs are made in folders that no node has open; a catalog exists when it is whole, or not at all;
none is ever written over another.
See also: docs/operate/recovery.md.
"""

from tilth.recovery.copy import CopyReport, copy_catalog
from tilth.recovery.found import has_tables
from tilth.recovery.journal import Journal
from tilth.recovery.rebuild import rebuild_catalog
from tilth.recovery.report import Finding, FindingKind, RebuildOptions, RebuildReport, RebuiltTable
from tilth.recovery.restore import has_catalog, restore_catalog
from tilth.recovery.txn_notes import TxnNotes
