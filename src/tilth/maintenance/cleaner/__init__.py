"""Removal of what finished and lost transactions leave, of dropped tables, and of old records."""
