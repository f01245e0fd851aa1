"""The doors: one HTTP API for clients, monitors and people.

Covers: statements, inserts, snapshots for outside readers, health, metrics; errors as status and body. Does not cover:
what a statement does (tilth.sql). Always holds: async only here; every answer that is an error has the one form of
DESIGN 10 and an id that the log knows. See also: docs/reference/http.md.
"""

from tilth.server.app import Doors, build_app
from tilth.server.serve import HttpServer

__all__ = ["Doors", "HttpServer", "build_app"]
