"""PART_GC, LOG_GC, HISTORY_GC, DELETED_PART_GC: what nobody needs goes. See also: docs/policies/part-gc.md."""
