"""Messages between processes: errors of every class, answers asked for twice, the token, calls that are lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import httpx
import msgspec
import pytest

import tilth.client.errors
import tilth.ingest
import tilth.maintenance
import tilth.query.errors
import tilth.storage  # noqa: F401
from tests.codes import WithCode
from tests.unit.app_transport import AppTransport
from tilth.base.errors import ConflictError, ErrorKind, InvalidInputError, RetryError, TilthError
from tilth.base.units import MIB
from tilth.model.failure import CallFailure, error_of, failure_of
from tilth.model.wire import ErrorAnswer, ErrorBody
from tilth.server import Calls, build_calls_app
from tilth.testing import ManualClock
from tilth.warehouse import SparkRestartingError, TaskCancelledError
from tilth.warehouse.remote.answers import Answers
from tilth.warehouse.remote.channel import CONTROL_BYTES_MAX, Channel
from tilth.warehouse.remote.errors import (
    BadTokenError,
    NoTilthServerError,
    PeerAnswerLostError,
    PeerAnswerTooLargeError,
    PeerAnswerUnreadableError,
    PeerAwayError,
    TokenNotSetError,
    TokenRefusedError,
)
from tilth.warehouse.remote.token import service_token
from tilth.warehouse.remote.wire import MEDIA_TYPE, NameTasks
from tilth.warehouse.remote.workers import handler

TOKEN = "0123456789abcdef"
HOSTILE = "é\u0000'\"\\{}%s\r\n" + "x" * 10_000


def all_errors() -> list[type[TilthError]]:
    found, waiting = list[type[TilthError]](), [TilthError]
    while waiting:
        one = waiting.pop()
        found.append(one)
        waiting += one.__subclasses__()
    return [each for each in found if each.__module__.startswith("tilth") and "code" in vars(each)]


@pytest.mark.parametrize("cls", all_errors(), ids=lambda cls: cls.__name__)
def test_an_error_comes_out_as_it_went_in(cls: type[TilthError]) -> None:
    error = cls.__new__(cls)
    TilthError.__init__(error, HOSTILE, hint="what to do", fact=HOSTILE)
    sent = msgspec.msgpack.encode(failure_of(error))
    got = error_of(msgspec.msgpack.decode(sent, type=CallFailure))
    assert (got.code, got.kind, got.message, got.hint) == (cls.code, cls.kind, error.message, "what to do")
    assert got.facts == {"fact": HOSTILE}
    assert str(got) == str(error)
    assert type(got) is cls


def test_an_error_of_a_class_that_is_not_known_keeps_its_kind_and_code() -> None:
    got = error_of(CallFailure(kind="retry", code="OF_A_NEWER_VERSION", message="m", hint="h"))
    assert (type(got), got.kind, got.code, str(got)) == (RetryError, ErrorKind.RETRY, "OF_A_NEWER_VERSION", "m (h)")
    assert error_of(CallFailure(kind="mystery", code="X", message="m")).kind is ErrorKind.INTERNAL
    # The classes themselves are unchanged.
    assert (TilthError.kind, TilthError.code) == (ErrorKind.INTERNAL, "INTERNAL_ERROR")
    assert (RetryError.kind, RetryError.code) == (ErrorKind.RETRY, "TRY_AGAIN")


def test_calls_with_one_id_act_once_also_at_the_same_time() -> None:
    answers, acted, go = Answers(), list[int](), threading.Event()

    def act() -> bytes:
        acted.append(1)
        go.wait(10)
        return b"answer"

    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(answers.once, "id", act) for _ in range(4)]
        go.set()
        assert {each.result() for each in asked} == {b"answer"}
    assert answers.once("id", act) == b"answer"
    assert acted == [1]
    assert answers.once("other", lambda: b"second") == b"second"


def test_an_error_is_an_answer_too() -> None:
    answers, acted = Answers(), list[int]()

    def act() -> bytes:
        acted.append(1)
        raise RetryError("no")

    for _ in range(3):
        with pytest.raises(RetryError):
            answers.once("id", act)
    assert acted == [1]


def test_answers_are_bounded_in_number_and_bytes() -> None:
    answers = Answers(answers_max=10, bytes_max=1000)
    for number in range(100):
        answers.once(str(number), lambda: bytes(10))
    assert answers.once("99", lambda: b"anew") == bytes(10)
    assert answers.once("5", lambda: b"anew") == b"anew"
    answers.once("large", lambda: bytes(5000))
    assert answers.once("large", lambda: b"anew") == bytes(5000)
    assert answers.once("99", lambda: b"anew") == b"anew"


def test_a_token_comes_from_a_file_before_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(f" {TOKEN}\n")
    environment = {"TILTH_SERVICE_TOKEN": "of-the-environment"}
    assert service_token(str(file), environment) == TOKEN
    assert service_token("", environment) == "of-the-environment"
    assert service_token("", {}) == ""


@pytest.mark.parametrize("content", [b"", b"\n", b"short", b"two words that are long", b"x" * 2000, "é".encode() * 20])
def test_a_token_that_cannot_be_one_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(BadTokenError) as raised:
        service_token(str(file), {})
    shown = content.decode().strip()
    assert not shown or shown not in str(raised.value)
    with pytest.raises(BadTokenError, match="cannot be read"):
        service_token(str(tmp_path / "none"), {})


class Lossy(httpx.BaseTransport):
    """Passes requests on, and does with them first what the test says."""

    def __init__(self, app: httpx.BaseTransport, *fates: str) -> None:
        self._app, self._fates = app, list(fates)
        self.ids: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.ids.append(request.headers["x-tilth-call"])
        fate = self._fates.pop(0) if self._fates else "pass"
        if fate == "refused":
            raise httpx.ConnectError("refused")
        if fate == "lost":
            raise httpx.ReadTimeout("lost")
        answer = self._app.handle_request(request)
        if fate == "answer lost":
            raise httpx.ReadError("cut off")
        if fate == "doubled":
            return self._app.handle_request(request)
        return answer


class Quick(ManualClock):
    """Waits by moving time on."""

    def wait(self, event: threading.Event, seconds: float) -> bool:
        self.advance(seconds)
        return event.is_set()


def channel_to(act: Callable[[NameTasks], object], *fates: str, token: str = TOKEN) -> tuple[Channel, Lossy]:
    app = build_calls_app(Calls(token=TOKEN, handlers={"act": handler(NameTasks, act)}))
    lossy, numbers = Lossy(AppTransport(app), *fates), count()
    ids = lambda: f"id-{next(numbers)}"  # noqa: E731  # shorter than a function
    return Channel(Quick(), ids, "http://tilth.test", token=token, worker="w", transport=lossy), lossy


def test_a_call_is_sent_again_under_its_id_and_acts_once() -> None:
    acted = list[tuple[str, ...]]()

    def act(message: NameTasks) -> tuple[str, ...]:
        acted.append(message.ids)
        return (f"done {len(acted)}",)

    channel, lossy = channel_to(act, "refused", "lost", "answer lost", "answer lost", "doubled")
    assert channel.call("act", NameTasks(ids=(HOSTILE,)), tuple[str, ...]) == ("done 1",)
    assert (acted, len(lossy.ids), set(lossy.ids)) == ([(HOSTILE,)], 5, {"id-0"})
    assert channel.call("act", NameTasks(ids=("next",)), tuple[str, ...]) == ("done 2",)


def test_a_call_that_is_given_up_says_whether_it_may_have_acted() -> None:
    channel, _ = channel_to(lambda _: (), *["refused"] * 100)
    with pytest.raises(PeerAwayError):
        channel.call("act", NameTasks(ids=()), tuple[str, ...])
    channel, _ = channel_to(lambda _: (), "lost", *["refused"] * 100)
    with pytest.raises(PeerAnswerLostError) as raised:
        channel.call("act", NameTasks(ids=()), tuple[str, ...])
    assert raised.value.kind is ErrorKind.UNKNOWN_OUTCOME


def test_a_closed_channel_calls_nobody() -> None:
    channel, lossy = channel_to(lambda _: ())
    channel.close()
    with pytest.raises(PeerAwayError, match="have ended"):
        channel.call("act", NameTasks(ids=()), tuple[str, ...])
    assert lossy.ids == []


def test_a_call_to_one_server_is_never_sent_to_the_next_one() -> None:
    asked = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        if request.url.host == "a":
            # Meanwhile the worker leaves it.
            channel.switch_server()
            raise httpx.ConnectError("refused")
        return httpx.Response(200, content=msgspec.msgpack.encode(("done",)), headers={"content-type": MEDIA_TYPE})

    transport = httpx.MockTransport(answer)
    channel = Channel(Quick(), lambda: "i", "http://a:1/, http://b:2", token=TOKEN, worker="w", transport=transport)
    with pytest.raises(PeerAwayError, match="url=http://a:1 "):
        channel.call("act", NameTasks(ids=()), tuple[str, ...])
    assert (asked, channel.url, channel.worker) == (["a"], "http://b:2", "")
    assert channel.call("act", NameTasks(ids=()), tuple[str, ...]) == ("done",)
    channel.switch_server()
    assert (asked, channel.url) == (["a", "b"], "http://a:1")


def test_what_the_other_side_raises_is_raised_here() -> None:
    def act(message: NameTasks) -> object:
        match message.ids[0]:
            case "cancelled":
                raise TaskCancelledError(task="t")
            case "spark":
                raise SparkRestartingError(hint="wait")
            case "conflict":
                raise ConflictError("so", table=HOSTILE)
        raise ValueError("a defect")

    channel, lossy = channel_to(act)
    for name, cls in (("cancelled", TaskCancelledError), ("spark", SparkRestartingError), ("conflict", ConflictError)):
        with pytest.raises(cls):
            channel.call("act", NameTasks(ids=(name,)), tuple[str, ...])
    with pytest.raises(TilthError, match="ValueError: a defect"):
        channel.call("act", NameTasks(ids=("defect",)), tuple[str, ...])
    with pytest.raises(TilthError, match="cannot be read"):
        channel.call("act", {"ids": 7}, tuple[str, ...])
    with pytest.raises(TilthError, match="nothing is served"):
        channel.call("unknown", NameTasks(ids=()), tuple[str, ...])
    # None of them is sent twice.
    assert len(lossy.ids) == len(set(lossy.ids)) == 6


def test_without_the_right_token_nothing_is_done() -> None:
    acted = list[object]()
    channel, _ = channel_to(acted.append, token="another-token-0123")
    with pytest.raises(TokenRefusedError):
        channel.call("act", NameTasks(ids=()), tuple[str, ...])
    app = build_calls_app(Calls(handlers={"act": handler(NameTasks, acted.append)}))
    closed = Channel(Quick(), lambda: "id", "http://tilth.test", token=TOKEN, transport=AppTransport(app))
    with pytest.raises(TokenNotSetError, match=r"server\.token-file"):
        closed.call("act", NameTasks(ids=()), tuple[str, ...])
    assert acted == []


def test_a_call_without_an_id_is_refused_for_it_could_not_be_known_again() -> None:
    app = build_calls_app(Calls(token=TOKEN, handlers={"act": handler(NameTasks, lambda _: ())}))
    with httpx.Client(transport=AppTransport(app), base_url="http://tilth.test") as client:
        for call_id in ({}, {"x-tilth-call": ""}, {"x-tilth-call": "x" * 101}):
            answer = client.post("/v1/worker/act", headers={"authorization": f"Bearer {TOKEN}"} | call_id)
            assert answer.status_code == 400


@pytest.mark.parametrize(
    "url",
    [
        *("", "host:7411", "http://a:1,", "http://a:1,http://u:hunter2@b", "ftp://host", "http://"),
        *("http://u:hunter2@host", "http://host?token=hunter2", "http://h:x"),
    ],
)
def test_an_address_that_is_none_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(InvalidInputError, check=WithCode("BAD_SERVER_ADDRESS")) as raised:
        Channel(ManualClock(), lambda: "id", url, token=TOKEN)
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_proxy_whose_server_is_away_is_asked_again(status: int) -> None:
    answers = [httpx.Response(status, text="<html>Bad gateway</html>")] * 3
    answers.append(httpx.Response(200, content=msgspec.msgpack.encode(()), headers={"content-type": MEDIA_TYPE}))
    transport = httpx.MockTransport(lambda _: answers.pop(0))
    channel = Channel(Quick(), lambda: "i", "http://x.test", token=TOKEN, transport=transport)
    assert channel.call("act", NameTasks(ids=()), tuple[str, ...]) == ()
    answers.extend([httpx.Response(status)] * 100)
    with pytest.raises(PeerAnswerLostError, match=f"status {status}"):
        channel.call("act", NameTasks(ids=()), tuple[str, ...])


def test_what_a_server_says_before_it_looks_at_a_call_is_passed_on() -> None:
    said = ErrorBody(code="HOST_REFUSED", kind="invalid", message="unknown host: host=db", hint="do this", id="1")
    transport = httpx.MockTransport(lambda _: httpx.Response(403, content=msgspec.json.encode(ErrorAnswer(said))))
    channel = Channel(Quick(), lambda: "i", "http://x.test", token=TOKEN, transport=transport)
    with pytest.raises(NoTilthServerError, match=r"unknown host: host=db.*HOST_REFUSED.*do this"):
        channel.call("act", NameTasks(ids=()), tuple[str, ...])


class Endless(httpx.SyncByteStream):
    """A body that never ends, in pieces of a MiB."""

    def __init__(self) -> None:
        self.pieces = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.pieces += 1
            yield bytes(MIB)


def answering(body: Endless, status: int = 200, **headers: str) -> Channel:
    named = {"content-type": MEDIA_TYPE} | {name.replace("_", "-"): value for name, value in headers.items()}
    transport = httpx.MockTransport(lambda _: httpx.Response(status, headers=named, stream=body))
    return Channel(Quick(), lambda: "i", "http://x.test", token=TOKEN, transport=transport)


def test_no_more_of_an_answer_is_read_than_the_caller_allows() -> None:
    body = Endless()
    with pytest.raises(PeerAnswerTooLargeError) as raised:
        answering(body).call("act", NameTasks(ids=()), tuple[str, ...], bytes_max=3 * MIB)
    assert body.pieces == 4
    assert raised.value.kind is ErrorKind.UNKNOWN_OUTCOME
    assert "url=http://x.test call=act bytes_max=3145728" in raised.value.message
    assert "find out what listens at http://x.test" in raised.value.hint
    # Without a word of the caller, there is a bound too.
    with pytest.raises(PeerAnswerTooLargeError):
        answering(body := Endless()).call("act", NameTasks(ids=()), tuple[str, ...])
    assert body.pieces == CONTROL_BYTES_MAX // MIB + 1


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br", "deflate", "x"])
def test_a_compressed_answer_is_not_unpacked(encoding: str) -> None:
    body = Endless()
    with pytest.raises(PeerAnswerUnreadableError, match=f"encoding={encoding}") as raised:
        answering(body, content_encoding=encoding).call("act", NameTasks(ids=()), tuple[str, ...])
    assert "a proxy between both" in raised.value.hint
    with pytest.raises(NoTilthServerError):
        answering(body, 404, content_encoding=encoding).call("act", NameTasks(ids=()), tuple[str, ...])
    assert body.pieces == 0


def test_an_answer_that_says_that_it_is_too_large_is_not_read() -> None:
    body = Endless()
    with pytest.raises(PeerAnswerTooLargeError):
        answering(body, content_length=str(65 * MIB)).call("act", NameTasks(ids=()), tuple[str, ...])
    assert body.pieces == 0


@pytest.mark.parametrize("kind", [MEDIA_TYPE, "text/html"])
def test_a_refusal_without_an_end_is_no_tilth_servers(kind: str) -> None:
    body = Endless()
    with pytest.raises(NoTilthServerError, match="status=404"):
        answering(body, 404, content_type=kind).call("act", NameTasks(ids=()), tuple[str, ...])
    assert body.pieces == 2


def test_a_call_asks_for_no_compression() -> None:
    asked = list[str]()

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.headers["accept-encoding"])
        return httpx.Response(200, content=msgspec.msgpack.encode(()), headers={"content-type": MEDIA_TYPE})

    channel = Channel(Quick(), lambda: "i", "http://x.test", token=TOKEN, transport=httpx.MockTransport(answer))
    channel.call("act", NameTasks(ids=()), tuple[str, ...])
    assert asked == ["identity"]


def test_something_else_that_answers_is_no_tilth_server() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text="<html>welcome</html>")

    channel = Channel(Quick(), lambda: "i", "http://x.test", token=TOKEN, transport=httpx.MockTransport(answer))
    with pytest.raises(NoTilthServerError):
        channel.call("act", NameTasks(ids=()), tuple[str, ...])
