"""Settings of the command `tilth serve`, which are options of their own and no settings of a node, and values
of commands that call a server.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilth.base.settings import TEXT, SettingCheck, SettingGroup, serve_setting, settings_of

#: Default URL of a server, for clients.
DEFAULT_URL = "http://127.0.0.1:7411"
#: Environment variable with the server's address, or with several of them.
URL_VARIABLE = "TILTH_URL"
#: Settings of statements that a command sends by itself: they change nothing, and have no line in the query log.
READING = {"readonly": "1", "log_queries": "0"}
#: The same with a limit of their time on the server, in seconds.
BOUNDED_READING = {**READING, "max_execution_time": "10"}
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """Settings that `tilth serve` needs to start a node."""

    data: str = serve_setting("data", "", TEXT, "The node's folder; made if it is not there. Required.")
    listen: str = serve_setting(
        "listen", "127.0.0.1:7411", TEXT, "Address and port of the HTTP server; port 0 selects a free one."
    )
    log_level: str = serve_setting(
        "log-level",
        "info",
        SettingCheck(lambda text: text.strip().lower(), ", ".join(LOG_LEVELS), lambda level: level in LOG_LEVELS),
        "Level of the log: debug, info, warning or error.",
    )
    log_file: str = serve_setting("log-file", "", TEXT, "Where the log goes. Empty: to standard error.")


SERVE_SETTINGS = SettingGroup(settings_of(ServeSettings))
