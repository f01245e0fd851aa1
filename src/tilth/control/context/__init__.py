"""Context of every statement: one node's rooms, the call itself, names, the audit log.

Covers: the rooms below with the methods that statements call, and what statements and system tables share. Does not
cover: who makes the services (node.py).
Always holds: this folder knows no statement.
"""
