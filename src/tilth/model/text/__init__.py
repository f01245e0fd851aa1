"""Values, names and defaults as text, and text as values.

Covers: times, literals of Spark SQL, quotes. Does not cover: the types
(tilth.model.types).
"""
