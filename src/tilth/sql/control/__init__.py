"""Statements under way: slots, cancelling, small inserts that meet, the query log.

Covers: who runs, who waits, who ends. Does not cover: what statements do.
Always holds: every queue is bounded; nothing here reads or writes the catalog.
"""
