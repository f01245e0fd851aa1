"""Bodies of INSERT that are too large for the server's memory: stored in a file, read and written by Spark's tasks.

Covers: storing a body, cutting it into ranges, reading a range, writing its rows. Does not cover: small INSERTs (the
folder above), receiving a body (server/bodies.py).
Always holds: the server reads no row of such a body; what a value means, and what is refused, is as for small INSERTs.
"""
