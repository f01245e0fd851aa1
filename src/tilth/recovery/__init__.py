"""Recovery: catalogs of lost or new nodes.

Covers: making a catalog from a backup.
Does not cover: writing backups (tilth.sql), whether tables hold what they should (tilth.verify).
Always holds: works on folders that no node has open; a catalog is there when it is whole, or not at all; none is ever
written over another.
See also: docs/operate/recovery.md.
"""

from tilth.recovery.restore import CatalogExistsError, restore_catalog

__all__ = [
    "CatalogExistsError",
    "restore_catalog",
]
