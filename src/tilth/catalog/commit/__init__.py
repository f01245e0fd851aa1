"""Transactions from begin to outcome: the state that a commit needs, the one commit, transactions under way.

Covers: loading (load.py), the optimistic loop (commit.py), records of transactions (transactions.py), abort, rebase and
sweep (txn_handle.py), what each commit leaves beside it (part_log.py, visible_parts.py). Does not cover: what updates
mean (tilth.catalog.rules).
"""
