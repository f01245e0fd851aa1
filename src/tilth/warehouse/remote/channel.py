"""Calls to another process of Tilth over HTTP: sent again until they are answered, each with an id of its own.

Covers: one request, its retries, errors as TilthErrors. Does not cover: routes, what is said (wire.py).
Always holds: a call that is sent again carries the id of its first sending; an error says whether the other side may
have acted: PeerAwayError where it certainly has not, PeerAnswerLostError where nobody knows. A call that was begun
to one process is never sent to another one.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec

from tilth.base.clock import Clock
from tilth.base.errors import TilthError
from tilth.base.ids import IdSource
from tilth.base.logs import Log
from tilth.model.failure import CallFailure, error_of
from tilth.model.wire import ErrorAnswer
from tilth.warehouse.remote.errors import (
    BadAddressError,
    NoTilthServerError,
    PeerAnswerLostError,
    PeerAnswerUnreadableError,
    PeerAwayError,
)
from tilth.warehouse.remote.token import HEADER, header_of
from tilth.warehouse.remote.wire import CALL_HEADER, MEDIA_TYPE, PATH, WORKER_HEADER

if TYPE_CHECKING:
    import httpx

#: A call is retried for this many seconds.
CALL_SECONDS_MAX = 30.0
#: Timeout of one attempt; a commit may wait in the commit queue.
ANSWER_SECONDS_MAX = 15.0
CONNECT_SECONDS_MAX = 1.0
_PAUSE_SECONDS = 0.1
#: Status codes of proxies while the server behind them is away.
_OF_PROXIES = (502, 503, 504)
_PAUSE_SECONDS_MAX = 1.0

_log = Log("warehouse")

T = TypeVar("T")


class _ProxyAnswerError(Exception):
    """A proxy has answered, and nobody knows whether its server has acted."""


class Channel:
    """Calls to one process, or to one of several at a time. For any thread."""

    def __init__(
        self,
        clock: Clock,
        ids: IdSource,
        url: str,
        *,
        token: str,
        worker: str = "",
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`url`: of a process, or of several with commas between, of which the first is called until `go_on`.
        `worker`: the id of the worker that calls or is called, as it drew it at its registration.

        Raises BadAddressError.
        """
        # Imported where there are workers: a node without them starts sooner.
        import httpx

        self.urls = tuple(each.strip().rstrip("/") for each in url.split(","))
        for each in self.urls:
            check_address(each)
        self._clock = clock
        self._ids = ids
        #: The process that is called now.
        self.url = self.urls[0]
        #: Set anew at each registration.
        self.worker = worker
        self._closed = threading.Event()
        self._failed: tuple[type[Exception], ...] = (httpx.TransportError, _ProxyAnswerError)
        self._unsent: tuple[type[Exception], ...] = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
        # No proxy and no netrc of the environment gets to see the token.
        self._client = httpx.Client(
            trust_env=False,
            transport=transport,
            headers={HEADER: header_of(token), "content-type": MEDIA_TYPE},
            limits=httpx.Limits(max_connections=200, max_keepalive_connections=20, keepalive_expiry=30.0),
        )

    def close(self) -> None:
        """End: calls under way are not sent again."""
        self._closed.set()
        self._client.close()

    def go_on(self) -> None:
        """Call the next process from now on; calls to the former one that are under way are not sent again."""
        # Nobody there knows this worker yet.
        self.worker = ""
        self.url = self.urls[(self.urls.index(self.url) + 1) % len(self.urls)]

    def call(
        self,
        name: str,
        message: object,
        answer: type[T],
        *,
        seconds: float = CALL_SECONDS_MAX,
        answer_seconds: float = ANSWER_SECONDS_MAX,
    ) -> T:
        """Return the answer. Raises what the other side raised, PeerAwayError, PeerAnswerLostError,
        PeerAnswerUnreadableError and NoTilthServerError.
        """
        url, body, call_id = self.url, msgspec.msgpack.encode(message), self._ids()
        deadline = self._clock.monotonic() + seconds
        pause, is_unsent = _PAUSE_SECONDS, True
        while True:
            try:
                return msgspec.msgpack.decode(
                    self._send(f"{url}{PATH}{name}", body, call_id, answer_seconds), type=answer
                )
            except self._failed as error:
                is_unsent = is_unsent and isinstance(error, self._unsent)
                reason = f"{type(error).__name__}: {error}".strip(": ")
            except RuntimeError:
                # Its client has words of its own for being closed.
                if not self._closed.is_set():
                    raise
                reason = "the calls to this process have ended"
            except msgspec.MsgspecError as error:
                hint = "both processes need the same version of tilth"
                raise PeerAnswerUnreadableError(url=url, call=name, reason=error, hint=hint) from error
            left = deadline - self._clock.monotonic()
            if left <= pause or self._clock.wait(self._closed, pause) or self.url != url:
                lost = PeerAwayError if is_unsent else PeerAnswerLostError
                raise lost(url=url, call=name, reason=reason)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    def _send(self, url: str, body: bytes, call_id: str, answer_seconds: float) -> bytes:
        headers = {CALL_HEADER: call_id, WORKER_HEADER: self.worker}
        timeout = (CONNECT_SECONDS_MAX, answer_seconds, answer_seconds, answer_seconds)
        answer = self._client.post(url, content=body, headers=headers, timeout=timeout)
        if answer.status_code == 200 and answer.headers.get("content-type") == MEDIA_TYPE:
            return answer.content
        if answer.status_code in _OF_PROXIES and answer.headers.get("content-type") != MEDIA_TYPE:
            raise _ProxyAnswerError(f"status {answer.status_code}")
        raise self._refusal(url.partition(PATH)[0], answer)

    def _refusal(self, url: str, answer: httpx.Response) -> TilthError:
        """Return the error that the answer carries."""
        if answer.headers.get("content-type") == MEDIA_TYPE:
            try:
                return error_of(msgspec.msgpack.decode(answer.content, type=CallFailure))
            except msgspec.DecodeError as error:
                _log.warning("answer_unreadable", url=url, reason=error)
        with suppress(msgspec.MsgspecError):
            # What a server refuses before it looks at the call, as for its Host.
            said = msgspec.json.decode(answer.content, type=ErrorAnswer).error
            return NoTilthServerError(said.message, url=url, code=said.code, hint=said.hint)
        hint = "give the address of a Tilth server of this version, as in http://host:7411"
        return NoTilthServerError(url=url, status=answer.status_code, hint=hint)


def check_address(url: str) -> None:
    """Raises BadAddressError."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_plain = parts.username is None and not parts.query and not parts.fragment
    except ValueError:
        is_address = is_plain = False
    if not (is_address and is_plain):
        # It may hold a password.
        raise BadAddressError(
            hint="write it as http://host:7411, several with commas between; the service token is not a part of it"
        )
