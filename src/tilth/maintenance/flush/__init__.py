"""FLUSH: row segments are sorted into parts. See also: docs/policies/flush.md."""
