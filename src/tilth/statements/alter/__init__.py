"""ALTER TABLE: which of its operations it is, and each from the parsed statement to its commit.

Covers: settings and TTL (alter.py), columns, partitions, rows, the entry among the mutations. Does not cover: what the
columns become (definitions/columns.py), Kafka tables (definitions/kafka.py), work on parts (tilth.maintenance).
"""
