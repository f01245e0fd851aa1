"""What Spark's tasks read of a snapshot in Python: parts with new values, row segments, which rows are deleted.

Covers: spark.py, the functions that are shipped to executors, and the frames of what they give. Does not cover: which
parts are read so (lanes.py), the native scan (storage/spark.py). Always holds: several small files share a task; a file
that is damaged or missing is told by its name. See also: sources.py, masks.py.
"""
