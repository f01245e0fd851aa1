"""The side of SQL that runs beside Spark, on a worker.

Covers: the runners of QUERY and INSERT tasks (spark.py), what Spark's parser and optimizer say of a statement, jobs
that write files. Does not cover: which snapshot is read and what is committed, which the server says (query).
Always holds: nothing here touches the catalog; a worker learns of tables by the calls of snapshots/protocol.py only.
"""
