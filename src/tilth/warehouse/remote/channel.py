"""Calls to another process of Tilth over HTTP: sent again until they are answered, each with an id of its own.

Covers: one request, its retries, errors as TilthErrors. Does not cover: routes, messages (wire.py).
Always holds: a call that is sent again carries the id of its first sending; an error says whether the other side may
have acted: PeerAwayError if it certainly has not, PeerAnswerLostError if that is unknown. A call that was begun
to one process is never sent to another one. No more of an answer is held than its caller allows, and none that is
compressed: processes of Tilth compress none, and a few bytes could become any number.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

import msgspec

from tilth.base import tracing
from tilth.base.clock import Clock
from tilth.base.errors import InvalidInputError, TilthError
from tilth.base.ids import IdSource
from tilth.base.logs import Log
from tilth.base.units import MIB
from tilth.model.failure import CallFailure, error_of
from tilth.model.wire import ErrorAnswer
from tilth.warehouse.remote.errors import (
    NoTilthServerError,
    PeerAnswerLostError,
    PeerAnswerTooLargeError,
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
#: Maximum answer of a call that acts or reads little: definitions of tables and their views take a few KiB each, the
#: ids of all tasks that a server has at once some MiB.
CONTROL_BYTES_MAX = 64 * MIB
#: Maximum that is read of a refusal: an error, or the page of something that is no Tilth server.
REFUSAL_BYTES_MAX = 1 * MIB
_PAUSE_SECONDS = 0.1
#: Status codes of proxies while the server behind them is away.
_OF_PROXIES = (502, 503, 504)
_PAUSE_SECONDS_MAX = 1.0
#: Content encoding of a body that is not compressed.
_PLAIN = "identity"

_log = Log("warehouse")

T = TypeVar("T")


class _ProxyAnswerError(Exception):
    """A proxy has answered; it is unknown whether its server has acted."""


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
        """`url`: of a process, or of several with commas between, of which the first is called until `switch_server`.
        `worker`: the id of the worker that calls or is called, as it drew it at its registration.

        Raises InvalidInputError (BAD_SERVER_ADDRESS).
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
            headers={HEADER: header_of(token), "content-type": MEDIA_TYPE, "accept-encoding": _PLAIN},
            limits=httpx.Limits(max_connections=200, max_keepalive_connections=20, keepalive_expiry=30.0),
        )

    def close(self) -> None:
        """End: calls under way are not sent again."""
        self._closed.set()
        self._client.close()

    def switch_server(self) -> None:
        """Call the next process from now on; calls to the former one that are under way are not sent again."""
        # The next process does not know this worker yet.
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
        bytes_max: int = CONTROL_BYTES_MAX,
    ) -> T:
        """Return the answer. Raises what the other side raised, PeerAwayError, PeerAnswerLostError,
        PeerAnswerUnreadableError, PeerAnswerTooLargeError and NoTilthServerError.
        """
        url, body, call_id = self.url, msgspec.msgpack.encode(message), self._ids()
        deadline = self._clock.monotonic() + seconds
        pause, is_unsent = _PAUSE_SECONDS, True
        while True:
            try:
                content = self._send(f"{url}{PATH}{name}", body, call_id, answer_seconds, bytes_max)
                return msgspec.msgpack.decode(content, type=answer)
            except self._failed as error:
                is_unsent = is_unsent and isinstance(error, self._unsent)
                reason = f"{type(error).__name__}: {error}".strip(": ")
            except RuntimeError:
                # A closed client raises this error.
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

    def _send(self, url: str, body: bytes, call_id: str, answer_seconds: float, bytes_max: int) -> bytearray:
        headers = {CALL_HEADER: call_id, WORKER_HEADER: self.worker}
        if trace := tracing.traceparent():
            headers[tracing.TRACE_HEADER] = trace
        timeout = (CONNECT_SECONDS_MAX, answer_seconds, answer_seconds, answer_seconds)
        with self._client.stream("POST", url, content=body, headers=headers, timeout=timeout) as answer:
            address, _, name = url.partition(PATH)
            is_ours = answer.headers.get("content-type") == MEDIA_TYPE
            if answer.status_code == 200 and is_ours:
                return _answer(answer, address, name, bytes_max)
            if answer.status_code in _OF_PROXIES and not is_ours:
                raise _ProxyAnswerError(f"status {answer.status_code}")
            refusal = bytearray() if _encoding(answer) else _read(answer, REFUSAL_BYTES_MAX)
            raise self._refusal(address, answer, refusal or bytearray())

    def _refusal(self, url: str, answer: httpx.Response, content: bytearray) -> TilthError:
        """Return the error that the answer carries."""
        if answer.headers.get("content-type") == MEDIA_TYPE:
            try:
                return error_of(msgspec.msgpack.decode(content, type=CallFailure))
            except msgspec.DecodeError as error:
                _log.warning("answer_unreadable", url=url, reason=error)
        with suppress(msgspec.MsgspecError):
            # A refusal before the server reads the call, as for its Host.
            refusal = msgspec.json.decode(content, type=ErrorAnswer).error
            return NoTilthServerError(refusal.message, url=url, code=refusal.code, hint=refusal.hint)
        hint = "give the address of a Tilth server of this version, as in http://host:7411"
        return NoTilthServerError(url=url, status=answer.status_code, hint=hint)


def _answer(answer: httpx.Response, url: str, call: str, bytes_max: int) -> bytearray:
    """Return the body. Raises PeerAnswerUnreadableError for a compressed one and PeerAnswerTooLargeError."""
    if encoding := _encoding(answer):
        hint = (
            "bodies between processes of Tilth are not compressed: a proxy between both must pass them on as they are"
        )
        raise PeerAnswerUnreadableError(url=url, call=call, encoding=encoding, hint=hint)
    content = _read(answer, bytes_max)
    if content is None:
        hint = f"find out what listens at {url}: a server or worker of this version sends no more than that"
        raise PeerAnswerTooLargeError(url=url, call=call, bytes_max=bytes_max, hint=hint)
    return content


def _encoding(answer: httpx.Response) -> str:
    """Return how the body is compressed; empty: it is not."""
    encoding = str(answer.headers.get("content-encoding", _PLAIN))
    return "" if encoding == _PLAIN else encoding


def _read(answer: httpx.Response, bytes_max: int) -> bytearray | None:
    """Return the body, read piece by piece; None as soon as it is known to be larger than that."""
    length = answer.headers.get("content-length", "0")
    if length.isdecimal() and int(length) > bytes_max:
        return None
    content = bytearray()
    for piece in answer.iter_bytes():
        content += piece
        if len(content) > bytes_max:
            return None
    return content


def check_address(url: str) -> None:
    """Raises InvalidInputError (BAD_SERVER_ADDRESS)."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_plain = parts.username is None and not parts.query and not parts.fragment
    except ValueError:
        is_address = is_plain = False
    if not (is_address and is_plain):
        # It may hold a password.
        raise InvalidInputError.coded(
            "BAD_SERVER_ADDRESS",
            "this is not the address of a server",
            hint="write it as http://host:7411, several with commas between; the service token is not a part of it",
        )
