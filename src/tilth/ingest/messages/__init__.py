"""Messages to rows: envelopes, blocks of messages as Arrow, and the dead letters of what is broken.

Covers: one message to records (envelope.py), records to columns (arrays.py, decode.py), the dead-letter table
(dead.py). Does not cover: fetching (tilth.ingest.kafka), what views make of rows (tilth.ingest.views).
"""
