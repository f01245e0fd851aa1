"""Which partitions a consumer takes, and how a round is cut into ranges.

Covers: pure rules. Does not cover: asking brokers. Always holds: values in, values out. See also:
docs/policies/consumers.md.
"""
