"""The hands: a connection to a server from Python, and the command line.

Covers: HTTP calls, results as Arrow, pandas and Polars, the `tilth` command. Does not cover: what a server does.
Always holds: knows the wire types of `tilth.model` and no other room, but for commands that need a server's libraries
(STYLE.md lists them); `cli/serve.py` alone starts a node; an error says whether the statement may have been applied.
See also: docs/reference/cli.md, docs/reference/http.md.
"""

from typing import TYPE_CHECKING

from tilth.base.doors import door

if TYPE_CHECKING:
    from tilth.client.errors import AnswerLostError, ServerError, ServerUnreachableError
    from tilth.client.http import Connection, Result, connect
else:
    __getattr__ = door(__name__)
