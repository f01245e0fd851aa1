"""INSERT: rows in, by value, as text or from a query.

Covers: reading rows, defaults of columns, the transaction of an INSERT, upserts. Does not cover: who waits for whom
(control), the computing of queries (worker).
Always holds: files first, then one commit of rows, changes and labels.
"""
