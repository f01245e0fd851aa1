"""The consumer on a worker: round after round from its offsets, and its calls to the server.

Covers: the loop (task.py), its position (position.py), the calls (calls.py). Does not cover: one round
(tilth.ingest.rounds), the server's side of the calls (tilth.ingest.service).
"""
