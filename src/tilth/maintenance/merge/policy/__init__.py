"""Choice of the ranges of parts that are merged, decided purely: by size, by key, and what another policy would have
done.

Covers: candidates weighed, the ranges, their gain, EXPLAIN and replay. Does not cover: the nouns, which settings need
too (maintenance/policy/candidates.py), partitions of a round (maintenance/policy/partitions.py).
See also: docs/policies/size-tiered.md, docs/policies/key-range.md.
"""
