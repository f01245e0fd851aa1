"""Materialized views: the plan of each, and the rows or messages that one cannot take.

Covers: analysis by Spark (views.py, nodes.py), plans (plans.py), refused rows (refusals.py, ops.py), rows that cannot
be computed (probe.py). Does not cover: running plans (tilth.ingest.rounds).
"""
