"""A bucket that speaks S3 or GCS over HTTP on a loopback port, counts requests, and fails as stores and networks do.

Covers: the requests that Tilth makes; planned faults. Does not cover: signatures, versions, anything else of S3.

Tests: tests/integration/storage/test_store_faults.py.
"""

from __future__ import annotations

import re
import socket
import threading
import zlib
from collections import deque
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

_KEY = re.compile(r"Credential=([^/]+)/")
_KEY_TAG = re.compile(r"<Key>([^<]*)</Key>")
_LIST_MAX = 1000


class BucketFault(StrEnum):
    """Kind of failure of one request."""

    #: 503 SlowDown: nothing was done.
    THROTTLED = "throttled"
    #: Nothing is done and nothing answered, until the client gives up.
    SILENT = "silent"
    #: It is done, and the connection ends without an answer.
    ANSWER_LOST = "answer_lost"
    #: The connection ends in the middle of what the client sends; nothing is done.
    REQUEST_CUT = "request_cut"
    #: The connection ends in the middle of the answer's content.
    ANSWER_CUT = "answer_cut"


@dataclass(frozen=True, slots=True)
class BucketRequest:
    """A request as it came."""

    #: GET, HEAD, PUT, DELETE, POST; LIST for a listing, REMOVE for many names at once.
    verb: str
    #: Below the bucket.
    path: str


@dataclass(slots=True)
class _State:
    objects: dict[str, bytes] = field(default_factory=dict)
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    requests: list[BucketRequest] = field(default_factory=list)
    plan: deque[BucketFault | None] = field(default_factory=deque)
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_closing: threading.Event = field(default_factory=threading.Event)
    #: Name of the bucket, whose requests anybody with the key may make.
    bucket: str = "tilth"
    key: str = "tilthkey"
    #: Objects that nobody may remove.
    kept: set[str] = field(default_factory=set)
    #: Objects that no listing shows.
    unlisted: set[str] = field(default_factory=set)
    #: `True` if it speaks as GCS does, to anybody.
    is_gcs: bool = False
    #: Creation time of the bucket, which it also returns for each of its objects.
    made: datetime = field(default_factory=lambda: datetime.now(UTC).replace(microsecond=0))


class FakeBucket:
    """One bucket in memory; a context manager."""

    def __init__(self, *, is_gcs: bool = False) -> None:
        self._state = _State(is_gcs=is_gcs)
        state = self._state

        class Handler(_Handler):
            """Handler of this bucket's requests."""

            bucket = state

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), name="fake-bucket", daemon=True
        )

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def objects(self) -> dict[str, bytes]:
        """Return the objects by name; a test may change them."""
        return self._state.objects

    @property
    def unlisted(self) -> set[str]:
        """Return the names of objects that no listing shows; a test may change them."""
        return self._state.unlisted

    @property
    def kept(self) -> set[str]:
        """Return the names of objects that nobody may remove; a test may change them."""
        return self._state.kept

    @property
    def uploads(self) -> int:
        """Return how many uploads in pieces have not ended."""
        return len(self._state.uploads)

    def requests(self) -> list[BucketRequest]:
        """Return the requests since the last call."""
        with self._state.lock:
            found, self._state.requests = self._state.requests, []
        return found

    def plan(self, *faults: BucketFault | None) -> None:
        """Faults of the next requests; None: no fault."""
        with self._state.lock:
            self._state.plan.extend(faults)

    def forget_plan(self) -> None:
        with self._state.lock:
            self._state.plan.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._state.is_closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """Threads that do not hold up the end of a test."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Write nothing: a client that has hung up is what some tests are about."""


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    protocol_version = "HTTP/1.1"
    # Else each answer waits for the client to confirm its first line.
    disable_nagle_algorithm = True
    bucket: _State

    def log_message(self, format: str, *args: object) -> None:
        """Write no line for a request."""

    def do_GET(self) -> None:
        self._meet()

    def do_HEAD(self) -> None:
        self._meet()

    def do_PUT(self) -> None:
        self._meet()

    def do_POST(self) -> None:
        self._meet()

    def do_DELETE(self) -> None:
        self._meet()

    def _meet(self) -> None:
        target = urlsplit(self.path)
        name, _, path = unquote(target.path).lstrip("/").partition("/")
        query = parse_qs(target.query, keep_blank_values=True)
        verb = "LIST" if "list-type" in query else "REMOVE" if "delete" in query else self.command
        with self.bucket.lock:
            self.bucket.requests.append(BucketRequest(verb, path))
            fault = self.bucket.plan.popleft() if self.bucket.plan else None
        length = int(self.headers.get("Content-Length") or 0)
        if fault is BucketFault.REQUEST_CUT:
            self.rfile.read(length // 2)
            self._cut()
            return
        body = self.rfile.read(length)
        if fault is BucketFault.THROTTLED:
            self._error(503, "SlowDown")
            return
        if fault is BucketFault.SILENT:
            self.bucket.is_closing.wait(30)
            self._cut()
            return
        credential = _KEY.search(self.headers.get("Authorization") or "")
        if not self.bucket.is_gcs and (credential is None or credential[1] != self.bucket.key):
            self._error(403, "InvalidAccessKeyId")
        elif name != self.bucket.bucket:
            self._error(404, "NoSuchBucket")
        else:
            with self.bucket.lock:
                status, headers, content = self._done(verb, path, query, body)
            if fault is BucketFault.ANSWER_LOST:
                self._cut()
                return
            self._answer(status, headers, content, is_cut=fault is BucketFault.ANSWER_CUT)

    def _done(
        self, verb: str, path: str, query: dict[str, list[str]], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Do what is asked; return status, headers and content."""
        objects = self.bucket.objects
        match verb:
            case "GET" | "HEAD":
                return self._read(path)
            case "PUT" if "uploadId" in query:
                self.bucket.uploads[query["uploadId"][0]][int(query["partNumber"][0])] = body
                return 200, {"ETag": _tag(body)}, b""
            case "PUT":
                is_new = (
                    self.headers.get("If-None-Match") == "*" or self.headers.get("x-goog-if-generation-match") == "0"
                )
                if is_new and path in objects:
                    return 412, {}, _error_text("PreconditionFailed")
                objects[path] = body
                return 200, {"ETag": _tag(body)}, b""
            case "POST" if "uploads" in query:
                upload = f"u{len(self.bucket.requests)}-{len(self.bucket.uploads)}"
                self.bucket.uploads[upload] = {}
                found = f"<UploadId>{upload}</UploadId>"
                return 200, {}, f"<InitiateMultipartUploadResult>{found}</InitiateMultipartUploadResult>".encode()
            case "POST" if "uploadId" in query and query["uploadId"][0] not in self.bucket.uploads:
                return 404, {}, _error_text("NoSuchUpload")
            case "POST" if "uploadId" in query:
                pieces = self.bucket.uploads.pop(query["uploadId"][0])
                objects[path] = b"".join(piece for _, piece in sorted(pieces.items()))
                found = f"<ETag>{escape(_tag(objects[path]))}</ETag>"
                return 200, {}, f"<CompleteMultipartUploadResult>{found}</CompleteMultipartUploadResult>".encode()
            case "REMOVE":
                names = _KEY_TAG.findall(body.decode())
                return 200, {}, f"<DeleteResult>{''.join(map(self._removed, names))}</DeleteResult>".encode()
            case "LIST":
                return 200, {}, self._listed(query)
            case "DELETE" if "uploadId" in query:
                self.bucket.uploads.pop(query["uploadId"][0], None)
                return 204, {}, b""
            case _ if self.bucket.is_gcs and path not in objects:
                return 404, {}, _error_text("NoSuchKey")
            case _:
                objects.pop(path, None)
                return 204, {}, b""

    def _removed(self, name: str) -> str:
        """Remove one of several objects; return what the answer says of it."""
        if name in self.bucket.kept:
            return f"<Error><Key>{name}</Key><Code>AccessDenied</Code><Message>no: {self.bucket.key}</Message></Error>"
        self.bucket.objects.pop(name, None)
        return f"<Deleted><Key>{name}</Key></Deleted>"

    def _read(self, path: str) -> tuple[int, dict[str, str], bytes]:
        found = self.bucket.objects.get(path)
        if found is None:
            return 404, {}, _error_text("NoSuchKey")
        headers = {"ETag": _tag(found), "Last-Modified": format_datetime(self.bucket.made, usegmt=True)}
        wanted = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if wanted is None:
            return 200, headers, found
        first, last = wanted.groups()
        start = int(first) if first else max(0, len(found) - int(last))
        end = min(int(last) + 1, len(found)) if first and last else len(found)
        if start >= len(found):
            return 416, {}, _error_text("InvalidRange")
        return 206, {**headers, "Content-Range": f"bytes {start}-{end - 1}/{len(found)}"}, found[start:end]

    def _listed(self, query: dict[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", query.get("start-after", [""]))[0]
        shown = self.bucket.objects.keys() - self.bucket.unlisted
        names = sorted(name for name in shown if name.startswith(prefix) and name > after)
        page, more = names[:_LIST_MAX], names[_LIST_MAX:]
        made = self.bucket.made.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>{made}</LastModified>"
            f"<ETag>{escape(_tag(b''))}</ETag><Size>{len(self.bucket.objects[name])}</Size></Contents>"
            for name in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        return f"<ListBucketResult>{contents}{token}</ListBucketResult>".encode()

    def _answer(self, status: int, headers: dict[str, str], content: bytes, *, is_cut: bool = False) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command == "HEAD":
            return
        if is_cut:
            self.wfile.write(content[: len(content) // 2])
            self._cut()
            return
        self.wfile.write(content)

    def _error(self, status: int, code: str) -> None:
        self._answer(status, {}, _error_text(code))

    def _cut(self) -> None:
        """End the connection at once."""
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)


def _tag(content: bytes) -> str:
    return f'"{zlib.crc32(content):08x}"'


def _error_text(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
