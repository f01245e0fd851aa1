"""System tables: a module for each room, found by introspection/registry.py. A new table is a `SystemTable` in one."""
