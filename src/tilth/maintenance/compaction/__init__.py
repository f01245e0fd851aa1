"""Compactions of deltas on workers.

Covers: the task of a compaction and its runner (spark.py). Does not cover: which deltas are compacted and the commit
(maintenance/ops), the bytes (tilth.storage).
Always holds: nothing here knows the catalog, so that executors can load it.
See also: tilth/storage/compact.py.
"""
