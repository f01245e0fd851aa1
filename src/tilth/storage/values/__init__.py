"""Values of columns: Arrow types and checks, order, bounds, keys, partitions, and the shapes in which parts have them.

Covers: rows as Arrow tables in memory. Does not cover: files (tilth.storage.parts, tilth.storage.deltas).
"""
