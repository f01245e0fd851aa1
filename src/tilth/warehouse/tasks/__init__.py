"""Tasks as the server sees them: their worker, their state, their estimates, and the contract with workers.

Covers: from submit to the end of a task. Does not cover: running one (tilth.warehouse.worker).
"""
