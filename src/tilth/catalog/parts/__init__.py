"""Content of tables: entries and snapshots, versions and their times, the trash (phases 1 and 2 of GC)."""
