"""FLUSH_DELTAS, MINOR_DELTA, MAJOR_DELTA: deltas become fewer. See also: docs/policies/delta-compaction.md."""
