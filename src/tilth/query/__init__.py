"""A SELECT from its text to its rows, on both sides: the server's and the worker's.

Covers: meaning of texts (language), names, times and pinned parts (snapshots), what runs beside Spark (worker), rows on
their way to the client (results); settings and errors of statements. Does not cover: the text of statements
(tilth.grammar), what other statements do (tilth.statements).
Always holds: a query reads one pinned snapshot of each table; the worker's side knows no catalog.
See also: snapshots/protocol.py for what server and worker say to each other.
"""
