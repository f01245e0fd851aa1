"""Foundation of every room, without domain words: errors, settings, clocks, ids, logs, units.

Covers: the words that any program needs. Does not cover: tables, parts, offsets (tilth.model).
Always holds: imports the standard library only. See also: ARCHITECTURE.md, "The house".
"""
