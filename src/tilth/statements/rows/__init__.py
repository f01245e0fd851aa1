"""Rows that are there: SELECT, and DELETE and UPDATE, which wait until they are done."""
