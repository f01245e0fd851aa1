"""Programs around Tilth: set-up scripts, a Kafka broker for tests and the demo, the demo itself.

Covers: what `make` runs. Does not cover: anything that Tilth itself needs. See also: Makefile.
"""
