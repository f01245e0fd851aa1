"""The ops of the maintenance manager, one module each.

Covers: flushing segments, merging parts, rewriting them for ALTER, compacting deltas, collecting what was replaced.
Does not cover: when one runs (scheduler.py, manager.py), what is worth doing (policy). Always holds: an op follows
`tilth.maintenance.op.Op`; what it takes it gives back.
"""
