"""Locations of tables: where a node keeps its files, storages by name, the state of each."""
