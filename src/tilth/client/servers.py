"""Several servers of one catalog behind one connection: the next one is called if one does not answer.

Covers: which server a request goes to. Does not cover: requests and answers (http.py).
Always holds: a request is sent to another server only where the first certainly has not seen it; one whose answer was
lost is not sent again, for it may have acted, but those after it go to the next server.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import httpx

#: The request was not sent.
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout)


class Failover(httpx.BaseTransport):
    """Transport to the first server that answers, and to that one as long as it does."""

    def __init__(self, urls: Sequence[str], inner: httpx.BaseTransport) -> None:
        self._urls = [httpx.URL(url) for url in urls]
        self._inner = inner
        self._lock = threading.Lock()
        self._current = 0
        #: URL of the server that was called last.
        self.last_url = urls[0]

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        for left in reversed(range(len(self._urls))):
            number = self._current
            self.last_url = str(self._urls[number]).rstrip("/")
            try:
                return self._inner.handle_request(self._for(self._urls[number], request))
            except _UNSENT:
                self._switch(number)
                if not left:
                    raise
            except httpx.TransportError:
                self._switch(number)
                raise
        raise AssertionError("there is at least one server")

    def close(self) -> None:
        self._inner.close()

    def _switch(self, number: int) -> None:
        """Call the next server from now on, unless another thread has switched already."""
        with self._lock:
            if self._current == number:
                self._current = (number + 1) % len(self._urls)

    def _for(self, server: httpx.URL, request: httpx.Request) -> httpx.Request:
        url = request.url.copy_with(scheme=server.scheme, host=server.host, port=server.port)
        headers = httpx.Headers(request.headers)
        headers["Host"] = url.netloc.decode("ascii")
        return httpx.Request(request.method, url, headers=headers, stream=request.stream, extensions=request.extensions)
