"""Inputs of a query: names, past versions, pinned and pruned snapshots.

Covers: the server's side of a query under way, what server and worker say to each other (protocol.py), the proof that a
part is not needed (prune.py). Does not cover: SELECT from text to answer (statements/rows/select.py), Spark (worker).
Always holds: a lease is there before its snapshot; a part that holds a matching row is never ruled out.
"""
