"""An installation for clients: what needs a server's libraries says so, all else works without them.

The processes of these tests see the distributions that `pip install 'tilth[client]'` brings, by links, and no others;
each takes half a second.
"""

from __future__ import annotations

import importlib
import io
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import distribution
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tilth
from tests.codes import WithCode
from tilth.base.errors import ErrorKind, UnavailableError
from tilth.base.installed import SERVER_MODULES, require, require_server
from tilth.model.wire import Health, Summary

PACKAGE = Path(tilth.__file__).parent
PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
SECONDS_MAX = 60
#: The folders with the package and with its libraries come first among the arguments.
PROGRAM = "import sys; sys.path += [sys.argv.pop(1), sys.argv.pop(1)]\n"
COMMAND = "from tilth.client.cli.main import app\napp(prog_name='tilth')"
ROWS = pa.table(
    {
        "name": ["ada", None],
        "at": pa.array([0, None], pa.timestamp("us", "UTC")),
        "amount": pa.array(["12.50", None]).cast(pa.decimal128(10, 2)),
        "tags": pa.array([["a"], []]),
    }
)


class _Answers(BaseHTTPRequestHandler):
    """The answers of a server: the same rows to every statement."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = io.BytesIO()
        with pa.ipc.new_stream(body, ROWS.schema) as writer:
            writer.write_table(ROWS)
        summary = Summary(query_id="q", elapsed_ms=1.0, rows=-1)
        self._answer(body.getvalue(), "application/vnd.apache.arrow.stream", msgspec.json.encode(summary).decode())

    def do_GET(self) -> None:
        health = Health(status="ok", version="1.2.3", server="s", components={"catalog": "ok"})
        self._answer(msgspec.json.encode(health), "application/json")

    def _answer(self, body: bytes, media_type: str, summary: str = "") -> None:
        self.send_response(200)
        for name, value in (("Content-Type", media_type), ("X-Tilth-Summary", summary)):
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """A test has nobody who reads it."""


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the libraries of a client alone."""
    folder = tmp_path_factory.mktemp("client")
    for name in required(PROJECT["dependencies"] + EXTRAS["client"]):
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or () if file.parts[0] != ".."}:
            source = Path(str(found.locate_file(top)))
            if source.exists() and not (folder / top).exists() and top != "__pycache__":
                (folder / top).symlink_to(source)
    return folder


def required(requirements: Sequence[str]) -> set[str]:
    """Return the distributions that pip would install for them here."""
    found: set[str] = set()
    left = [Requirement(each) for each in requirements]
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        if name not in found:
            found.add(name)
            inner = [Requirement(each) for each in distribution(name).requires or ()]
            left += [each for each in inner if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def run(libraries: Path, program: str, *arguments: str, exit_code: int = 0) -> str:
    """Return what the program prints."""
    # Without site-packages, the environment and the folder of this process.
    command = [sys.executable, "-I", "-S", "-c", PROGRAM + program, str(PACKAGE.parent), str(libraries), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == exit_code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_client_needs_none_of_the_libraries_of_a_server() -> None:
    for_clients = required(PROJECT["dependencies"] + EXTRAS["client"])
    assert for_clients & {canonicalize_name(module) for module in SERVER_MODULES} == set()
    assert {"httpx", "pyarrow", "typer"} <= for_clients


def test_the_modules_of_a_server_are_those_of_its_extra() -> None:
    in_extra = {canonicalize_name(Requirement(each).name) for each in EXTRAS["server"]}
    assert {canonicalize_name(module) for module in SERVER_MODULES} == in_extra


def test_the_distribution_for_servers_is_this_one_with_its_extra() -> None:
    other = tomllib.loads((PACKAGE.parents[1] / "packages" / "server" / "pyproject.toml").read_text())["project"]
    assert other["version"] == PROJECT["version"]
    assert other["dependencies"] == [f"tilth[server]=={PROJECT['version']}"]
    assert other["requires-python"] == PROJECT["requires-python"]


def test_what_is_missing_is_named_with_the_way_to_install_it() -> None:
    require(("json", "sys"), extra="server", purpose="this test")
    require_server("this test")
    with pytest.raises(UnavailableError) as refused:
        require(("json", "no_such_library", "nor_this"), extra="server", purpose="this test")
    assert (refused.value.kind, refused.value.code) == (ErrorKind.UNAVAILABLE, "NOT_INSTALLED")
    assert refused.value.facts == {"needed_by": "this test", "missing": "no_such_library, nor_this"}
    assert refused.value.hint == "pip install 'tilth[server]'"


def test_a_folder_of_the_name_of_a_library_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "no_such_library"
    folder.mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnavailableError, check=WithCode("NOT_INSTALLED"), match="missing=no_such_library"):
        require((folder.name,), extra="server", purpose="this test")
    (folder / "__init__.py").touch()
    importlib.invalidate_caches()
    require((folder.name,), extra="server", purpose="this test")


def test_the_command_line_starts_without_the_libraries_of_a_server(libraries: Path) -> None:
    assert "serve" in run(libraries, COMMAND, "--help")
    assert run(libraries, COMMAND, "--version").startswith("tilth ")


def test_statements_and_the_state_of_a_server(libraries: Path, url: str) -> None:
    told = run(libraries, COMMAND, "sql", "--url", url, "-c", "SELECT 1; SELECT 2")
    assert told.count("ada") == 2
    assert told.count("12.50") == 2
    assert "catalog: ok" in run(libraries, COMMAND, "status", "--url", url)


def test_a_connection_gives_rows_and_says_what_frames_need(libraries: Path, url: str) -> None:
    program = f"""
import tilth
from tilth.base.errors import TilthError

with tilth.connect({url!r}) as connection:
    result = connection.sql("SELECT 1")
    print(result.rows, result.arrow().num_rows, connection.health().status)
    print(connection.insert("a.b", [{{"a": 1}}]).summary.query_id)
    for frame in (result.pandas, result.polars):
        try:
            frame()
        except TilthError as error:
            print(error.code, error)
"""
    told = run(libraries, program).splitlines()
    assert told[0].startswith("[('ada', datetime.datetime(1970, 1, 1, 0, 0, tzinfo=")
    assert told[0].endswith("(None, None, None, [])] 2 ok")
    assert told[1] == "q"
    [pandas, polars] = told[2:]
    assert pandas.startswith("NOT_INSTALLED")
    assert pandas.endswith("needed_by=Result.pandas missing=pandas (pip install 'tilth[pandas]')")
    assert polars.endswith("needed_by=Result.polars missing=polars (pip install 'tilth[polars]')")


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve", "--data", "nowhere"),
        ("worker", "--server", "http://127.0.0.1:1", "--warehouse", "w"),
        ("catalog", "copy", "nowhere", "nor-here"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_commands_of_a_server_say_what_to_install(libraries: Path, arguments: tuple[str, ...]) -> None:
    told = run(libraries, COMMAND, *arguments, exit_code=1)
    assert told.startswith(f"NOT_INSTALLED libraries that this needs are not installed: needed_by=tilth {arguments[0]}")
    assert "pyspark" in told
    assert "  what to do: pip install 'tilth[server]'" in told.splitlines()


def test_a_node_and_a_table_in_python_say_what_to_install(libraries: Path) -> None:
    program = """
import tilth
from tilth.base.errors import TilthError

for call in (
    lambda: tilth.open("nowhere"),
    lambda: tilth.read(None, "a.b"),
    lambda: tilth.attach(None),
    lambda: tilth.sql(None, "SELECT 1"),
    lambda: tilth.write(None, "a.b"),
):
    try:
        call()
    except TilthError as error:
        print(error)
"""
    node, table, *others = run(libraries, program).splitlines()
    assert "needed_by=tilth.open" in node
    assert "needed_by=tilth.read" in table
    assert node.endswith("(pip install 'tilth[server]')")
    assert table.endswith("(pip install 'tilth[server]')")
    for line, name in zip(others, ("attach", "sql", "write"), strict=True):
        assert f"needed_by=tilth.{name}" in line
