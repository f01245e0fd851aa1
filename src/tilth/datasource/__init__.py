"""The data source `tilth` of a user's own Spark: tables read and written by the user's executors, without a jar.

Covers: what runs in the user's driver and executors by PySpark's Python Data Source API. Does not cover: the native
scan (storage/read/spark.py), the server's side of snapshots (query/snapshots/pins.py). Always holds: executors get no
token of a server, and its address only where it is an option of the read; a snapshot that is read is held by a lease
which the driver renews.
See also: docs/spark.md, docs/design/decisions-datasource.md.
"""
