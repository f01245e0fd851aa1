"""Text to tokens, and what every parser does with them. Pure.

Covers: tokens, a cursor over them, scripts to statements, a function that Spark's parser misreads. Does not cover: what
a statement says (the files above). Always holds: knows no statement.
"""
