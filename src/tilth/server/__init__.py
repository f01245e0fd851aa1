"""The HTTP server: one API for clients, monitors and people.

Covers: statements, inserts, snapshots for outside readers, health, metrics; errors as status and body. Does not cover:
what a statement does (tilth.statements). Always holds: async only here; every answer that is an error has one form and
an id that the log knows; health and metrics never wait for statements. See also: docs/reference/http.md.
"""

from typing import TYPE_CHECKING

from tilth.base.doors import door

if TYPE_CHECKING:
    from tilth.server.address import bind, reachable_url
    from tilth.server.app import AppContext, build_app
    from tilth.server.calls import Calls, build_calls_app
    from tilth.server.metrics import METRICS, Metrics, MetricSources
    from tilth.server.serve import HttpServer
    from tilth.server.settings import SETTINGS, ServerSettings
    from tilth.server.stats import HttpCounters, HttpStats
else:
    __getattr__ = door(__name__)
