"""The maintenance manager: the loop, its observations, its choices, its runs. See also: docs/policies/scheduling.md.

Covers: tables that come and go, the poller, the scheduler, the decision log, commands. Does not cover: the ops.
"""
