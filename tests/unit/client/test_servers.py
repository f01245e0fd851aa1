"""A connection to several servers: who is asked, and what is never sent twice."""

from __future__ import annotations

import httpx
import pytest

from tilth.client import connect
from tilth.client.errors import AnswerLostError, BadUrlError, ServerUnreachableError
from tilth.client.http import Connection
from tilth.client.settings import DEFAULT_URL

URLS = "http://a:1,b:2,http://c:3"


class Net(httpx.BaseTransport):
    """Servers by host: what each does with a request."""

    def __init__(self) -> None:
        self.away: dict[str, type[httpx.TransportError]] = {}
        self.seen: list[str] = []

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        assert request.headers["Host"] == f"{request.url.host}:{request.url.port}"
        self.seen.append(request.url.host)
        if request.url.host in self.away:
            raise self.away[request.url.host]("away")
        return httpx.Response(200, text="# metrics")


@pytest.fixture
def net() -> Net:
    return Net()


def asked(net: Net, connection: Connection) -> list[str]:
    net.seen.clear()
    connection.metrics()
    return net.seen


def test_one_server_is_asked_as_long_as_it_answers(net: Net) -> None:
    connection = Connection(URLS, transport=net)
    assert [asked(net, connection) for _ in range(2)] == [["a"], ["a"]]
    assert connection.url == "http://a:1"


def test_the_next_one_is_asked_where_a_request_was_not_sent(net: Net) -> None:
    connection = Connection(URLS, transport=net)
    net.away = {"a": httpx.ConnectError, "b": httpx.ConnectTimeout}
    assert asked(net, connection) == ["a", "b", "c"]
    assert asked(net, connection) == ["c"]
    net.away = {"c": httpx.ConnectError}
    assert asked(net, connection) == ["c", "a"]
    assert connection.url == "http://a:1"


def test_what_may_have_acted_is_not_sent_again(net: Net) -> None:
    connection = Connection(URLS, transport=net)
    net.away = {"a": httpx.ReadError}
    with pytest.raises(AnswerLostError):
        connection.metrics()
    assert net.seen == ["a"]
    assert asked(net, connection) == ["b"]


def test_each_is_asked_once_where_none_answers(net: Net) -> None:
    connection = Connection(URLS, transport=net)
    net.away = dict.fromkeys("abc", httpx.ConnectError)
    with pytest.raises(ServerUnreachableError):
        connection.metrics()
    assert net.seen == ["a", "b", "c"]


@pytest.mark.parametrize("url", ["http://a:1,", "http://a:1,ftp://b", ",", "http://a:x,http://b"])
def test_each_address_is_checked(url: str) -> None:
    with pytest.raises(BadUrlError):
        connect(url)


def test_the_address_comes_from_the_environment_where_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILTH_URL", raising=False)
    assert connect().url == DEFAULT_URL
    monkeypatch.setenv("TILTH_URL", "http://a:1,b:2")
    assert connect().url == "http://a:1"
    assert connect("http://c:3").url == "http://c:3"
