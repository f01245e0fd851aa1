"""Changes of rows since their part was written: files, their layout, and the rows of a part as they are now.

Covers: change segments, deletion vectors and values (deltas.py, deletes.py), changes laid over a part's rows
(changes.py, sources.py), changes brought onto a merged part (rebase.py). Does not cover: compaction
(tilth.storage.merge).
"""
