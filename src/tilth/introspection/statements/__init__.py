"""SHOW, DESCRIBE, EXISTS and EXPLAIN: statements that only say what there is."""
