"""Dead letters that go through their views again: what a worker does of SYSTEM REPLAY DEAD LETTERS.

Covers: orders and answers (orders.py), the Spark jobs (spark.py). Does not cover: the letters' files
(tilth.ingest.rounds.letters), the transactions (tilth.ingest.service.letter_replay).
"""
