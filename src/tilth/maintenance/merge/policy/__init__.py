"""Choice of the ranges of parts that are merged, decided purely: by size, by key, and what another policy would have
done.

Covers: the partitions of a round, candidates weighed, the ranges, their gain, EXPLAIN and replay, rows that have
expired. Does not cover: counts of partitions (table/partition_counts.py).
See also: docs/policies/size-tiered.md, docs/policies/key-range.md.
"""
