"""CONSUME on the server: one service for each Kafka table, its consumers, their commits, their reports.

Covers: which consumers run (state.py, service.py), their fences, rounds and commits (consumers.py), orders
(definitions.py), what is shown of them (activity.py, reporter.py, stats.py). Does not cover: the consumer itself
(tilth.ingest.consumer), offsets that no round moves (tilth.ingest.offsets).
"""
