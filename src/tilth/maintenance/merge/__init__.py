"""MERGE: ranges of parts become one part. See also: docs/policies/size-tiered.md, docs/policies/key-range.md."""
