"""HTTP/1.1 on one connection: uvicorn's protocol over llhttp, Node's parser in C, which bounds no head by itself.

Covers: the size of heads, trailers and chunk headers. Does not cover: bodies (bodies.py).
Always holds: bytes that are neither body nor complete are bounded; a trailer never becomes a header of its request.

Tests: tests/acceptance/test_http_protocol.py.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tilth.base.units import KIB

#: Limit of a head, of trailers and of the header of a chunk; as h11's.
HEAD_BYTES_MAX = 64 * KIB
_REFUSAL = "The head of the request is too large."


class BoundedHttpProtocol(HttpToolsProtocol):
    """A connection whose heads are bounded."""

    # Any: uvicorn's own arguments.
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        #: Bytes received since the last end of a head, of a message, or bytes of a body.
        self._unfinished = 0
        self._is_head_over = False

    def data_received(self, data: bytes) -> None:
        """Parse the bytes; close the connection where a head does not end."""
        self._unfinished += len(data)
        super().data_received(data)
        if self._unfinished > HEAD_BYTES_MAX and not self.transport.is_closing():
            if self._is_head_over:
                # The answer to this request may be under way.
                self.transport.close()
            else:
                self.send_400_response(_REFUSAL)

    def on_message_begin(self) -> None:
        self._is_head_over = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Note a header. Trailers, which come after the body, are dropped: the request was judged without them."""
        if not self._is_head_over:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._unfinished = 0
        self._is_head_over = True
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished = 0
        super().on_message_complete()
