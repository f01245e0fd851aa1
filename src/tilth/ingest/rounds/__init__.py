"""One round: fetch, decode once, serve every view, write parts, and find what a failing view cannot take.

Covers: orders and reports (round.py), Spark's jobs (spark.py) and their tasks (source.py, write.py, keep.py), views
that have failed (failing_view.py, spark_errors.py), unique keys (upserts.py). Does not cover: which ranges and when
(tilth.ingest.consumer), commits (tilth.ingest.service).
"""
