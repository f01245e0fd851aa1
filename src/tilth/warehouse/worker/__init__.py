"""The worker: tasks on threads, and a watch on the Spark below them.

Covers: running and cancelling (embedded.py), JVMs that hang (pulse.py, heartbeat.py), tasks without progress
(stalls.py), lost memory and lost JVMs (losses.py), progress to show (progress.py). Does not cover: which task runs
where (tilth.warehouse.tasks).
"""
