"""Statements under way: slots, cancelling, small inserts that meet, the query log; what each statement needs.

Covers: who runs, who waits, who ends; the services of a node and the call itself (context). Does not cover: what
statements do (tilth.statements, tilth.introspection).
Always holds: every queue is bounded; nothing here knows a statement. See also: context/services.py.
"""
