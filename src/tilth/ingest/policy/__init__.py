"""Rules for the partitions of consumers, the ranges of rounds, and care after failures.

Covers: pure rules. Does not cover: asking brokers. Always holds: values in, values out. See also:
docs/policies/consumers.md.
"""
