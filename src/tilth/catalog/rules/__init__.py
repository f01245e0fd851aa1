"""Pure rules of commits and of what readers see: values in, values out.

Covers: updates and requirements, their fold over a state, invariants of the result, visibility, the life of
transactions and leases, back-pressure. Does not cover: loading a state and writing the changes (tilth.catalog.commit).
Always holds: no clock, no I/O.
"""
