"""Rules for the partitions of consumers, the ranges of rounds, and how failing views are evaluated.

Covers: pure rules. Does not cover: requests to brokers. Always holds: values in, values out. See also:
docs/policies/consumers.md.
"""
