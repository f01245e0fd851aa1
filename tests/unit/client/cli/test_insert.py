"""`tilth insert`: files of every format, over the real application with fake rooms."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import httpx
import pyarrow as pa
import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from tests.unit.app_transport import AppTransport
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.base.errors import NotFoundError
from tilth.client import http
from tilth.client.cli.insert import PIECE_BYTES, UploadBar
from tilth.client.cli.main import app
from tilth.query.results.answer import Answer
from tilth.server import build_app


@pytest.fixture
def rooms() -> FakeRooms:
    return FakeRooms(
        answer=Answer(query_id="q", columns=[], table=pa.table({}), message="inserted into shop.t: 1 rows")
    )


@pytest.fixture(autouse=True)
def connection(rooms: FakeRooms, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection of the command line goes to the fake rooms."""

    def connect(url: str, *, database: str) -> http.Connection:
        return http.Connection(url, database=database, transport=AppTransport(build_app(context_of(rooms))))

    monkeypatch.setattr(http, "connect", connect)


def run(*arguments: str | Path, given: bytes = b"") -> Result:
    return CliRunner().invoke(app, ["insert", *map(str, arguments)], input=given)


@pytest.mark.parametrize(
    ("name", "options", "form"),
    [
        ("x.csv", (), "CSVWithNames"),
        ("x.CSV.gz", (), "CSVWithNames"),
        ("x.2026.jsonl", (), "JSONEachRow"),
        ("x.json", (), "JSONEachRow"),
        ("x.txt.gz", ("--format", "csv-without-names"), "CSV"),
        ("x", ("--format", "ndjson"), "JSONEachRow"),
    ],
)
def test_files(rooms: FakeRooms, tmp_path: Path, name: str, options: tuple[str, ...], form: str) -> None:
    file = tmp_path / name
    file.write_bytes(gzip.compress(b"rows") if name.endswith(".gz") else b"rows")
    result = run(file, "shop.t", "--label", "a", "--setting", "skip_unknown = 1", *options)
    assert (result.exit_code, result.stdout) == (0, "inserted into shop.t: 1 rows\n")
    # Without a terminal there is no bar.
    assert result.stderr == ""
    settings = {"insertion_label": "a", "skip_unknown": "1"}
    assert rooms.calls == [("insert_text", "shop", "t", form, b"rows", settings)]


def test_standard_input_and_the_database(rooms: FakeRooms) -> None:
    assert run("-", "t", "--format", "ndjson", "-d", "shop", given=b"{}").exit_code == 0
    assert rooms.calls == [("insert_text", "shop", "t", "JSONEachRow", b"{}", {})]


def test_an_arrow_stream(rooms: FakeRooms, tmp_path: Path) -> None:
    file = tmp_path / "x.arrows"
    with pa.ipc.new_stream(file, pa.schema({"a": pa.int64()})) as writer:
        writer.write_table(pa.table({"a": [1]}))
    assert run(file, "shop.t").exit_code == 0
    assert rooms.calls == [("insert_arrow", "shop", "t", [{"a": 1}], {})]


def test_what_cannot_be_sent(rooms: FakeRooms, tmp_path: Path) -> None:
    file = tmp_path / "x.arrow"
    with pa.ipc.new_file(file, pa.schema({"a": pa.int64()})) as writer:
        writer.write_table(pa.table({"a": [1]}))
    for path, word in ((file, "an Arrow file"), (tmp_path / "x.xml", "its name does not show it")):
        path.touch()
        result = run(path, "shop.t")
        assert (result.exit_code, "UNKNOWN_FILE_FORMAT" in result.stderr) == (10, True)
        assert word in result.stderr
    assert run(file, "shop.t", "--setting", "nonsense").exit_code == 2
    assert run(tmp_path / "nope.csv", "shop.t").exit_code == 2
    assert rooms.calls == []


def test_an_error_of_the_server(rooms: FakeRooms, tmp_path: Path) -> None:
    rooms.error = NotFoundError("no such table", table="shop.t")
    file = tmp_path / "x.csv"
    file.touch()
    result = run(file, "shop.t")
    assert (result.exit_code, "no such table" in result.stderr, result.stdout) == (11, True, "")


def test_a_file_is_sent_piece_by_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        assert isinstance(request.stream, httpx.SyncByteStream)
        sizes.extend(len(piece) for piece in request.stream)
        return httpx.Response(500)

    monkeypatch.setattr(
        http, "connect", lambda url, database: http.Connection(url, transport=httpx.MockTransport(answer))
    )
    file = tmp_path / "x.csv"
    file.write_bytes(b"x" * (2 * PIECE_BYTES + 5))
    run(file, "shop.t")
    assert sum(sizes) == 2 * PIECE_BYTES + 5


def test_the_bar_shows_bytes_and_rate() -> None:
    screen = Console(file=io.StringIO(), force_terminal=True, width=120)
    with UploadBar(screen, 4 * PIECE_BYTES) as bar:
        pieces = bar.counted(io.BytesIO(b"x" * (4 * PIECE_BYTES)))
        for _ in range(4):
            next(pieces)
        bar._progress.refresh()
        shown = screen.file.getvalue()  # type: ignore[attr-defined]  # a StringIO
        assert "sending" in shown
        assert "3.0/4.0 MiB" in shown
        assert "/s" in shown
        assert list(pieces) == []
        bar._progress.refresh()
        assert "storing" in screen.file.getvalue()  # type: ignore[attr-defined]
