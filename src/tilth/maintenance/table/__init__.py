"""Knowledge of one table between two observations: settings, switches, parts at work, counts of its partitions.

Covers: the memory that all ops of a table share, settings of tables, the TTL. Does not cover: damaged parts
(maintenance/damage), what is true (catalog).
"""
