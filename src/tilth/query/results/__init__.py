"""A query's rows, from Spark to the client.

Covers: collecting them in Spark as Arrow or as files (spark.py, files.py), the stream that follows files (stream.py),
clients that read slowly (waiting.py), the answer (answer.py). Does not cover: running the query (worker), the form of
an answer for a client (server). Always holds: what is held in memory is bounded.
"""
