"""One op for all work that writes files and commits: MERGE, MUTATE, FLUSH and the compactions of deltas.

Covers: the op (op.py), what it asks (planner.py), one piece of work from files to commit (attempt.py), reserved
parts, failures, what all work of a table shares (context.py). Does not cover: what is worth doing and how it is done,
which the folders merge, mutate, flush and deltas say.
Always holds: this folder knows no kind of work.
"""
