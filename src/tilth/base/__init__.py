"""What every room stands on and what knows no domain: errors, settings, clocks, ids, logs, units.

Covers: the words that any program needs. Does not cover: tables, parts, offsets (tilth.model).
Always holds: imports the standard library only. See also: ARCHITECTURE.md, "The house".
"""
