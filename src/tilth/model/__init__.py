"""The nouns that rooms share: tables, parts, offsets, leases, transactions, tasks.

Covers: frozen values, what is kept in the catalog and what goes over the wire among them. Does not cover: behaviour.
Always holds: no I/O, no clock; imports `tilth.base` and msgspec only. See also: docs/glossary.md.
"""
