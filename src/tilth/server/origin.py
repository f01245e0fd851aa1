"""Refuses requests that web pages of other sites make a browser send.

Covers: Host, Origin, Sec-Fetch-Site and the content type of a request, and the middleware that checks them. Does not
cover: accounts, of which there are none.
Always holds: a page of another origin can neither post a statement nor read an answer, also if its name is made to
resolve to this node (DNS rebinding). Programs send no Origin; only their Host is checked.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tilth.base.errors import TilthError
from tilth.base.ids import IdSource
from tilth.server.errors import ContentTypeRefusedError, HostRefusedError, OriginRefusedError, error_response

#: Content types that a browser sends from any page without a preflight request; a missing one is among them.
_SENT_UNASKED = frozenset({"", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"})
_READING = frozenset({"GET", "HEAD"})
_FOREIGN = frozenset({"cross-site", "same-site"})
_PORTS = {"http": 80, "https": 443}
#: Headers of every answer: no sniffing of its type, no frames, no embedding by other origins.
PROTECTION = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Decides which requests are accepted."""

    #: Names and addresses of the node, in lower case.
    hosts: frozenset[str]
    #: `True` if any IP address is accepted as a host.
    any_address: bool = False
    #: Origins of pages that can call the node, as browsers write them.
    origins: frozenset[str] = frozenset()

    def problem(self, method: str, headers: Mapping[str, str]) -> TilthError | None:
        """Return why the request is refused, or None. Names of headers are in lower case."""
        host = headers.get("host", "")
        if not self._is_own(host):
            hint = "use an address that the node listens on, or add this host to the setting server.allowed-hosts"
            return HostRefusedError(host=host or "none", hint=hint)
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "")
        if origin is not None and not self._is_welcome(origin, host):
            hint = "add the origin to the node's setting server.allowed-origins; programs send no Origin"
            return OriginRefusedError(origin=origin, hint=hint)
        if origin is None and site in _FOREIGN and not _is_navigation(method, headers):
            hint = "open the address in the browser; a page of another site cannot load it"
            return OriginRefusedError(site=site, hint=hint)
        if method not in _READING and (origin is not None or site):
            media_type = headers.get("content-type", "").split(";")[0].strip().lower()
            if method == "POST" and media_type in _SENT_UNASKED:
                hint = "send Content-Type: application/sql, or the type of the rows; programs can omit it"
                return ContentTypeRefusedError(content_type=media_type or "none", hint=hint)
        return None

    def _is_own(self, host: str) -> bool:
        name = _name_of(host)
        if name in self.hosts:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        # DNS rebinding needs a name.
        return address.is_loopback or self.any_address

    def _is_welcome(self, origin: str, host: str) -> bool:
        if origin.lower() in self.origins:
            return True
        try:
            parts = urlsplit(origin)
            default = _PORTS.get(parts.scheme)
            own = urlsplit(f"//{host}")
            return default is not None and _host_and_port(parts.hostname, parts.port, default) == _host_and_port(
                own.hostname, own.port, default
            )
        except ValueError:
            # No browser sends an origin that cannot be parsed.
            return False


def admission(listen_host: str, machine_name: str, *, hosts: Iterable[str], origins: Iterable[str]) -> Admission:
    """Return the rules for a node that listens on this host; `hosts` and `origins` come from its settings."""
    own = {"localhost", listen_host.lower(), *(host.lower() for host in hosts)}
    try:
        any_address = ipaddress.ip_address(listen_host).is_unspecified
        own |= {machine_name.lower()} if any_address else set()
    except ValueError:
        # The addresses of a name are not known here.
        any_address = listen_host.lower() != "localhost"
    return Admission(hosts=frozenset(own), any_address=any_address, origins=frozenset(o.lower() for o in origins))


class Guard:
    """ASGI middleware that refuses requests before their bodies are read."""

    def __init__(self, app: ASGIApp, *, admission: Admission, ids: IdSource) -> None:
        self._app = app
        self._admission = admission
        self._ids = ids

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        problem = self._admission.problem(scope["method"], Headers(scope=scope))
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await error_response(problem, self._ids)(scope, receive, send)


def _is_navigation(method: str, headers: Mapping[str, str]) -> bool:
    """Return whether the user follows a link, which opens a page of its own and changes nothing."""
    return method in _READING and headers.get("sec-fetch-mode") == "navigate"


def _name_of(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _host_and_port(host: str | None, port: int | None, default: int) -> tuple[str, int]:
    return (host or "").rstrip("."), port or default
