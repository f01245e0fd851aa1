"""The hands: a connection to a server from Python, and the command line.

Covers: HTTP calls, results as Arrow, pandas and Polars, the `tilth` command. Does not cover: what a server does.
Always holds: knows the wire types of `tilth.model` and no other room; `cli/serve.py` alone starts a node.
"""

from tilth.client.http import Connection, Result, ServerError, connect

__all__ = ["Connection", "Result", "ServerError", "connect"]
