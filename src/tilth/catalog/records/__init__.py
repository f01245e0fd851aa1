"""Records of the catalog: keys, encoded values, and small commits of one or two of them.

Covers: the layout of keys (keys.py), values with their version (codec.py), records that the catalog alone writes
(nouns.py), hybrid times (hybrid_clock.py), small commits of the repositories (small_commit.py). Does not cover: the
commit of a transaction (tilth.catalog.commit).
"""
