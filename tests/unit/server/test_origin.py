"""Who may come in, by the headers that browsers and programs really send."""

from __future__ import annotations

import httpx
import msgspec
import pytest

from tests.unit.app_transport import client_of
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.base.settings import BadSettingError, read_settings
from tilth.model.wire import ErrorAnswer
from tilth.server import ServerSettings, build_app
from tilth.server.origin import admission
from tilth.server.stats import Answered

OWN = "http://tilth.test"
EVIL = "http://evil.example"
#: As Chrome and Firefox send them.
CROSS_FETCH = {"Origin": EVIL, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "empty"}
CROSS_FORM = {
    "Origin": EVIL,
    "Sec-Fetch-Site": "cross-site",
    "Sec-Fetch-Mode": "navigate",
    "Content-Type": "application/x-www-form-urlencoded",
}
SANDBOXED = {"Origin": "null", "Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}
IMAGE = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}
SUBDOMAIN = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}


def ask(
    method: str, path: str, headers: dict[str, str] | httpx.Headers, settings: ServerSettings | None = None
) -> tuple[httpx.Response, FakeRooms]:
    rooms = FakeRooms()
    with client_of(build_app(context_of(rooms, settings))) as client:
        content = b"DROP TABLE t" if method == "POST" else None
        return client.request(method, path, content=content, headers=headers), rooms


def code_of(response: httpx.Response) -> str:
    return msgspec.json.decode(response.content, type=ErrorAnswer).error.code


PATHS = [
    ("POST", "/v1/sql"),
    ("POST", "/v1/insert/shop/orders"),
    ("POST", "/v1/snapshot/shop/orders"),
    ("POST", "/v1/readers/r1"),
    ("DELETE", "/v1/readers/r1"),
    ("GET", "/v1/health"),
    ("GET", "/metrics"),
    ("GET", "/maintenance-manager"),
    ("GET", "/"),
    ("GET", "/nowhere"),
    ("OPTIONS", "/v1/sql"),
]


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("headers", [CROSS_FETCH, CROSS_FORM, SANDBOXED, {"Origin": f"{OWN}.evil.example"}])
def test_a_page_of_another_origin_reaches_nothing(method: str, path: str, headers: dict[str, str]) -> None:
    response, rooms = ask(method, path, headers)
    assert (response.status_code, code_of(response)) == (403, "ORIGIN_REFUSED")
    assert rooms.calls == []
    assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7411", "tilth.test.evil.example", "", "127.0.0.1.evil.example"]
)
def test_a_name_that_was_made_to_lead_here_is_refused(method: str, path: str, host: str) -> None:
    """DNS rebinding: for the browser the page and the node are of one origin then."""
    headers = {"Host": host, "Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    response, rooms = ask(method, path, headers)
    assert (response.status_code, code_of(response)) == (403, "HOST_REFUSED")
    assert rooms.calls == []
    assert ask(method, path, {"Host": host})[0].status_code == 403


@pytest.mark.parametrize("path", ["/metrics", "/maintenance-manager", "/v1/health", "/"])
@pytest.mark.parametrize("headers", [IMAGE, SUBDOMAIN])
def test_a_page_of_another_site_loads_nothing(path: str, headers: dict[str, str]) -> None:
    response, _ = ask("GET", path, headers)
    assert (response.status_code, code_of(response)) == (403, "ORIGIN_REFUSED")


def test_a_link_of_another_site_may_be_followed_but_not_shown_inside_it() -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    response, _ = ask("GET", "/maintenance-manager", headers)
    assert response.status_code == 200
    assert response.headers["X-Frame-Options"] == "DENY"
    assert ask("POST", "/v1/sql", headers)[0].status_code == 403


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "",
    ],
)
@pytest.mark.parametrize(
    "browser", [{"Origin": OWN}, {"Origin": OWN, "Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}]
)
def test_a_browser_sends_no_type_that_others_can_send_unasked(content_type: str, browser: dict[str, str]) -> None:
    headers = browser | ({"Content-Type": content_type} if content_type else {})
    response, rooms = ask("POST", "/v1/sql", headers)
    assert (response.status_code, code_of(response)) == (403, "CONTENT_TYPE_REFUSED")
    assert rooms.calls == []


@pytest.mark.parametrize("origin", [OWN, f"{OWN}:80", "https://tilth.test"])
def test_a_page_of_the_node_itself_may_post(origin: str) -> None:
    headers = {"Origin": origin, "Sec-Fetch-Site": "same-origin", "Content-Type": "application/sql"}
    if origin.endswith(":80"):
        headers["Host"] = "tilth.test:80"
    response, rooms = ask("POST", "/v1/sql", headers)
    assert response.status_code == 200
    assert rooms.texts == ["DROP TABLE t"]


def test_another_port_is_another_origin() -> None:
    response, _ = ask("POST", "/v1/sql", {"Origin": f"{OWN}:8080", "Content-Type": "application/sql"})
    assert (response.status_code, code_of(response)) == (403, "ORIGIN_REFUSED")


@pytest.mark.parametrize(
    "headers",
    [
        {"User-Agent": "curl/8.5.0", "Content-Type": "application/x-www-form-urlencoded"},
        {"User-Agent": "curl/8.5.0", "Content-Type": "multipart/form-data; boundary=x"},
        {"User-Agent": "python-httpx/0.28"},
        {"User-Agent": "Prometheus/3.0", "Host": "127.0.0.1:7411"},
        {"Host": "localhost:7411"},
        {"Host": "LOCALHOST"},
        {"Host": "localhost."},
        {"Host": "[::1]:7411"},
        {"Host": "127.8.9.1"},
    ],
)
def test_programs_go_on_as_they_did(headers: dict[str, str]) -> None:
    response, rooms = ask("POST", "/v1/sql", headers)
    assert response.status_code == 200, response.text
    assert rooms.texts == ["DROP TABLE t"]
    assert ask("GET", "/metrics", headers)[0].status_code == 200


def test_names_and_pages_that_the_operator_allows() -> None:
    given = {"server.allowed-hosts": "db.example, Other.Example", "server.allowed-origins": "https://Dash.example:443/"}
    settings = read_settings(ServerSettings, given)
    assert settings.allowed_origins == ("https://dash.example",)
    for host in ("db.example:7411", "other.example"):
        assert ask("POST", "/v1/sql", {"Host": host}, settings)[0].status_code == 200
    headers = {"Origin": "https://dash.example", "Sec-Fetch-Site": "cross-site", "Content-Type": "application/sql"}
    response, rooms = ask("POST", "/v1/sql", headers, settings)
    assert response.status_code == 200
    assert response.headers["Access-Control-Allow-Origin"] == "https://dash.example"
    assert rooms.texts == ["DROP TABLE t"]
    before = headers | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    asked, _ = ask("OPTIONS", "/v1/sql", before, settings)
    assert asked.status_code == 200
    assert "POST" in asked.headers["Access-Control-Allow-Methods"]
    assert ask("POST", "/v1/sql", CROSS_FETCH, settings)[0].status_code == 403
    # Allowed is the page, not what any page may send in its name.
    unasked, _ = ask("POST", "/v1/sql", headers | {"Content-Type": "text/plain"}, settings)
    assert code_of(unasked) == "CONTENT_TYPE_REFUSED"


@pytest.mark.parametrize("text", ["*", "dash.example", "https://dash.example/page", "ftp://x", "null", "https://"])
def test_an_origin_is_named_as_browsers_write_it(text: str) -> None:
    with pytest.raises(BadSettingError, match="allowed-origins"):
        read_settings(ServerSettings, {"server.allowed-origins": text})


@pytest.mark.parametrize("text", ["*", "http://db.example", "db.example:7411", "a b"])
def test_a_host_is_named_without_its_port(text: str) -> None:
    with pytest.raises(BadSettingError, match="allowed-hosts"):
        read_settings(ServerSettings, {"server.allowed-hosts": text})


@pytest.mark.parametrize(
    ("listen", "host", "is_own"),
    [
        ("127.0.0.1", "10.0.0.5", False),
        ("127.0.0.1", "box", False),
        ("10.0.0.5", "10.0.0.5:7411", True),
        ("10.0.0.5", "10.0.0.6", False),
        ("0.0.0.0", "10.0.0.6:7411", True),
        ("0.0.0.0", "BOX:7411", True),
        ("0.0.0.0", "other", False),
        ("::", "[2001:db8::1]:7411", True),
        ("::", "box", True),
        ("node.example", "node.example:7411", True),
        ("node.example", "localhost:7411", True),
        ("node.example", "10.0.0.5:7411", True),
        ("node.example", "box", False),
        ("localhost", "10.0.0.5:7411", False),
        ("localhost", "127.0.0.1:7411", True),
        ("0.0.0.0", "10.0.0.6:notaport", True),
        ("0.0.0.0", "[::1", False),
    ],
)
def test_the_names_of_a_node_follow_from_where_it_listens(listen: str, host: str, is_own: bool) -> None:
    admitted = admission(listen, "box", hosts=(), origins=())
    assert (admitted.problem("GET", {"host": host}) is None) == is_own


@pytest.mark.parametrize(
    "origin", ["http://[", "http://[::1", "http://tilth.test:port", "http://[v1.x]:99999", "]", "é"]
)
@pytest.mark.parametrize("allowed", [(), ("https://dash.example",)])
def test_an_origin_that_cannot_be_parsed_is_a_foreign_one(origin: str, allowed: tuple[str, ...]) -> None:
    settings = ServerSettings(allowed_origins=allowed)
    headers = httpx.Headers({"Origin": origin, "Content-Type": "application/sql"}, encoding="latin-1")
    response, rooms = ask("POST", "/v1/sql", headers, settings)
    assert (response.status_code, code_of(response), rooms.calls) == (403, "ORIGIN_REFUSED", [])
    assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize(
    "broken",
    [
        "tilth.server.origin.Admission.problem",
        "tilth.server.app.CORSMiddleware.__call__",
        "tilth.server.origin.Guard.__call__",
    ],
)
def test_a_layer_that_is_broken_has_an_answer_and_is_counted(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("a layer is broken")

    monkeypatch.setattr(broken, fail)
    context = context_of(FakeRooms(), ServerSettings(allowed_origins=("https://dash.example",)))
    with client_of(build_app(context)) as client:
        response = client.post("/v1/sql", content=b"SELECT 1")
    check_defect(response)
    assert context.counters.stats().requests == {Answered("POST", "-", 500): 1}


def test_counters_that_are_broken_have_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a layer is broken")

    monkeypatch.setattr("tilth.server.stats.HttpCounters.begin", fail)
    check_defect(ask("GET", "/", {})[0])


def check_defect(response: httpx.Response) -> None:
    assert (response.status_code, code_of(response)) == (500, "INTERNAL_ERROR")
    assert "a layer is broken" in response.text
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["X-Frame-Options"] == "DENY"
    assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"


def test_every_answer_protects_itself() -> None:
    for response, _ in (ask("GET", "/", {}), ask("GET", "/nowhere", {}), ask("POST", "/v1/sql", CROSS_FETCH)):
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cross-Origin-Resource-Policy"] == "same-origin"
