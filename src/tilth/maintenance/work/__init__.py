"""Ops that run: what all have in common, work that writes files and commits, rounds that come due by time or news.

Covers: the op as the manager sees it (op.py), MERGE, MUTATE, FLUSH and the compactions of deltas (part_work.py), which
call a planner (planner.py) and go from files to commit (attempt.py), routines (routine.py), failures, what all of them
are given (context.py). Does not cover: what is worth doing and how it is done, which the folders of the kinds say.
Always holds: this folder knows no kind of work.
"""
