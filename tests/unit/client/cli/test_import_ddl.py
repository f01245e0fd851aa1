"""`tilth import-ddl`: the real application over fake rooms; files on disk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner, Result

from tests.unit.app_transport import AppTransport
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.base.errors import NotFoundError
from tilth.client import http
from tilth.client.cli.import_ddl import DdlOrigin
from tilth.client.cli.main import app
from tilth.client.script import statements
from tilth.control.running import Origin
from tilth.migration import ForeignSystem
from tilth.query.results.answer import Answer
from tilth.server import build_app

SAME = "CREATE DATABASE d;\nUSE d;\nCREATE TABLE t (a Int8) ENGINE = MergeTree ORDER BY a;\n"
REFUSED = "CREATE DICTIONARY x (a Int8) PRIMARY KEY a;\n"
DIFFERS = "CREATE TABLE u (a IPv4) ENGINE = MergeTree ORDER BY a;\n"


class Rooms(FakeRooms):
    """Fails at one statement."""

    fails_at = ""

    def run(
        self, text: str, *, database: str, settings: Mapping[str, str], origin: Origin, streams: bool = False
    ) -> Answer:
        answer = super().run(text, database=database, settings=settings, origin=origin, streams=streams)
        if text == self.fails_at:
            raise NotFoundError("no such thing", statement=text)
        return answer


@pytest.fixture
def rooms() -> Rooms:
    return Rooms()


@pytest.fixture(autouse=True)
def connection(rooms: Rooms, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every connection of the command line goes to the fake rooms."""

    def connect(url: str, *, database: str) -> http.Connection:
        return http.Connection(url, database=database, transport=AppTransport(build_app(context_of(rooms))))

    monkeypatch.setattr(http, "connect", connect)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "ddl.sql"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["import-ddl", *map(str, arguments)])


def sent_to(rooms: Rooms) -> list[str]:
    return [str(call[1]) for call in rooms.calls]


def test_nothing_is_sent_unless_it_is_said(rooms: Rooms, file: Path) -> None:
    file.write_text(SAME)
    result = run(file)
    assert (result.exit_code, sent_to(rooms)) == (0, [])
    assert "line 3  CREATE TABLE t  (clickhouse)  unchanged" in result.stdout
    assert "statements: 3 unchanged" in result.stdout


def test_what_is_not_the_same_is_exit_code_3(file: Path) -> None:
    for text in (DIFFERS, REFUSED, SAME + REFUSED):
        file.write_text(text)
        assert run(file).exit_code == 3


def test_statements_are_sent_in_their_order_and_to_the_database_of_use(rooms: Rooms, file: Path) -> None:
    file.write_text(SAME)
    result = run(file, "--apply")
    assert result.exit_code == 0, result.stdout
    assert sent_to(rooms) == [one.text for one in statements(SAME)]
    assert [call[2] for call in rooms.calls] == ["default", "default", "d"]
    assert result.stdout.count("ran  ") == 3


def test_none_is_sent_where_one_is_refused(rooms: Rooms, file: Path) -> None:
    file.write_text(SAME + REFUSED)
    result = run(file, "--apply")
    assert (result.exit_code, sent_to(rooms)) == (3, [])
    assert result.stdout.count("not sent") == 3
    assert run(file, "--apply", "--without-refused").exit_code == 3
    assert len(sent_to(rooms)) == 3


def test_none_is_sent_behind_one_that_failed_and_the_answer_says_which(rooms: Rooms, file: Path) -> None:
    file.write_text(SAME)
    rooms.fails_at = "USE d"
    result = run(file, "--apply", "--json")
    assert result.exit_code == 1
    assert [each["fate"] for each in json.loads(result.stdout)["sent"]] == ["ran", "failed", "not sent"]


def test_a_server_that_is_away_fails_the_first(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    def connect(url: str, *, database: str) -> http.Connection:
        return http.Connection(url, database=database, transport=httpx.MockTransport(refuse))

    monkeypatch.setattr(http, "connect", connect)
    file.write_text(SAME)
    result = run(file, "--apply", "--json")
    assert result.exit_code == 1
    sent = json.loads(result.stdout)["sent"]
    assert [each["fate"] for each in sent] == ["failed", "not sent", "not sent"]
    assert sent[0]["error"].startswith("SERVER_UNREACHABLE")


def test_json_has_every_statement_and_finding(file: Path) -> None:
    file.write_text(DIFFERS)
    answer = json.loads(run(file, "--json").stdout)
    (statement,) = answer["statements"]
    assert (answer["is_same"], answer["sent"], statement["verdict"]) == (False, None, "changed")
    assert statement["statement"] == "CREATE TABLE u (a String) ENGINE = MergeTree ORDER BY a"
    assert statement["findings"][0]["kind"] == "differs"


def test_the_script_runs_under_the_settings_that_its_statements_need(file: Path, tmp_path: Path) -> None:
    written = tmp_path / "tilth.sql"
    file.write_text("CREATE TABLE a (x Int8) ENGINE = MergeTree ORDER BY x; CREATE TABLE b (y INT) USING delta;")
    assert run(file, "-o", written).exit_code == 3
    assert [one.text.split("\n")[0] for one in statements(written.read_text())] == [
        "SET data_type_default_nullable = '0'",
        "SET dialect = 'clickhouse'",
        "CREATE TABLE a (x Int8) ENGINE = MergeTree ORDER BY x",
        "SET data_type_default_nullable = '1'",
        "SET dialect = 'spark'",
        "CREATE TABLE b",
    ]
    again = run(file, "-o", written)
    assert (again.exit_code, "DDL_NOT_WRITTEN" in again.stderr) == (1, True)


@pytest.mark.parametrize(
    ("content", "code"), [(b"\xff\xfe", "DDL_NOT_UTF8"), (None, "DDL_UNREADABLE"), (b"CREATE \xc3", "DDL_NOT_UTF8")]
)
def test_a_file_that_cannot_be_read(file: Path, content: bytes | None, code: str) -> None:
    if content is not None:
        file.write_bytes(content)
    result = run(file)
    assert (result.exit_code, code in result.stderr) == (1, True)


def test_a_file_that_is_too_large(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilth.client.cli.import_ddl._BYTES_MAX", 10)
    file.write_text(SAME)
    result = run(file)
    assert (result.exit_code, "DDL_TOO_LARGE" in result.stderr) == (1, True)


def test_a_byte_order_mark_is_no_statement(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + SAME.encode())
    assert run(file).exit_code == 0


def test_standard_input_is_a_file() -> None:
    result = CliRunner().invoke(app, ["import-ddl", "-"], input=SAME)
    assert (result.exit_code, "3 unchanged" in result.stdout) == (0, True)


def test_a_terminal_obeys_nothing_of_the_file(file: Path) -> None:
    file.write_text(
        "CREATE TABLE `\x1b[31mt\x07` (`a\x9b2J` IPv4 COMMENT '\x1b]0;x\x07') ENGINE = MergeTree ORDER BY tuple()"
    )
    result = run(file)
    assert not any(mark in result.stdout for mark in "\x1b\x07\x9b")
    assert "\\x1b[31mt" in result.stdout


def test_a_long_statement_is_cut_for_people_and_whole_in_json(file: Path) -> None:
    columns = ",\n".join(f"c{number} IPv4" for number in range(100))
    file.write_text(f"CREATE TABLE wide (\n{columns}) ENGINE = MergeTree ORDER BY c1 COMMENT '{'x' * 1_000_000}'")
    result = run(file)
    assert "lines more; -o FILE writes all" in result.stdout
    assert len(result.stdout) < 100_000
    assert len(json.loads(run(file, "--json").stdout)["statements"][0]["statement"]) > 1_000_000


def test_an_installation_for_clients_says_what_is_missing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilth.base.installed.SERVER_MODULES", ("no_such_library",))
    file.write_text(SAME)
    result = run(file)
    assert (result.exit_code, "NOT_INSTALLED" in result.stderr) == (1, True)


def test_a_wrong_command_line_is_exit_code_2() -> None:
    assert run().exit_code == 2
    assert run("x.sql", "--from", "oracle").exit_code == 2


def test_every_system_can_be_named() -> None:
    assert {origin.value for origin in DdlOrigin} == {"auto", *ForeignSystem}
