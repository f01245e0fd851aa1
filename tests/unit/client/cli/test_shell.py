"""The shell with a keyboard of text, and statements run for scripts: the real application over fake rooms."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.console import Console
from typer.testing import CliRunner

from tests.unit.app_transport import AppTransport
from tests.unit.fake_rooms import FakeRooms, context_of
from tilth.base.errors import ErrorKind, NotFoundError, TilthError
from tilth.client import Connection
from tilth.client.cli.main import app
from tilth.client.exit_codes import EXIT_CODES
from tilth.client.http import Reply
from tilth.client.options import OutputFormat
from tilth.client.rows import show
from tilth.client.shell import conversation
from tilth.client.shell.conversation import converse
from tilth.client.shell.run import run
from tilth.model.wire import Summary
from tilth.query.results.answer import Answer
from tilth.server import build_app
from tilth.testing.clock import ManualClock

if TYPE_CHECKING:
    from _typeshed import TraceFunction

Type = Callable[[str], tuple[str, str]]


@pytest.fixture
def rooms() -> FakeRooms:
    return FakeRooms()


@pytest.fixture
def connection(rooms: FakeRooms) -> Connection:
    return Connection("http://tilth.test", transport=AppTransport(build_app(context_of(rooms))))


@pytest.fixture
def typed(connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Type:
    """Types the text into a shell and leaves; returns what stands on the screen and what on standard error."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def type_in(text: str) -> tuple[str, str]:
        console, errors = (Console(file=io.StringIO(), width=100) for _ in range(2))
        with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
            keyboard.send_bytes((text + "\\q\n").encode("utf-8", "surrogateescape"))
            converse(connection, console, errors, OutputFormat.TABLE)
        assert isinstance(console.file, io.StringIO)
        assert isinstance(errors.file, io.StringIO)
        return console.file.getvalue(), errors.file.getvalue()

    return type_in


def calls_of_user(rooms: FakeRooms) -> list[tuple[object, ...]]:
    """Calls without those of completion and progress, which the shell sends in the background."""
    return [call for call in rooms.calls if "log_queries" not in str(call[3])]


def sent(rooms: FakeRooms) -> list[object]:
    return [call[1] for call in calls_of_user(rooms)]


def printed(table: pa.Table, *, message: str = "") -> str:
    console = Console(file=io.StringIO(), width=100)
    show(console, table, Summary(query_id="q", elapsed_ms=1234, rows=table.num_rows, message=message))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_statements_may_span_lines_and_share_them(typed: Type, rooms: FakeRooms) -> None:
    out, _ = typed("SELECT\n 1;\nSELECT ';'; SELECT 3;\n")
    assert sent(rooms) == ["SELECT\n 1", "SELECT ';'", "SELECT 3"]
    assert out.count("1 row, 0.002 s") == 3


@pytest.mark.parametrize("word", ["exit", "quit;", "EXIT"])
def test_words_of_other_shells_leave(typed: Type, rooms: FakeRooms, word: str) -> None:
    typed(f"SELECT 1;\n{word}\nSELECT 2;\n")
    assert sent(rooms) == ["SELECT 1"]


def test_texts_of_several_lines_are_printed_as_they_are() -> None:
    long = "x" * 500
    shown = printed(pa.table({"statement": [f"CREATE TABLE t\n(\n  a INT, -- {long}\n)\x07"]}))
    assert f"CREATE TABLE t\n(\n  a INT, -- {long}\n)\\x07\n" in shown
    assert printed(pa.table({"a": [long], "b": [1]})).count("x") == len(long)


def test_notices_are_shown() -> None:
    console = Console(file=io.StringIO(), width=100)
    summary = Summary(query_id="q", elapsed_ms=1, rows=0, message="done", notices=("CODEC has no effect",))
    show(console, pa.table({}), summary)
    assert isinstance(console.file, io.StringIO)
    assert "notice: CODEC has no effect" in console.file.getvalue()


def test_a_notebook_shows_three_lines() -> None:
    assert NotFoundError("no such table", table="t", hint="SHOW TABLES")._render_traceback_() == [
        "NOT_FOUND: no such table: table=t",
        "  what to do: SHOW TABLES",
        "  see: docs/errors/NOT_FOUND.md",
    ]
    with pytest.raises(TilthError):
        TilthError("a defect")._render_traceback_()


def test_use_moves_the_connection_once_the_server_agrees(typed: Type, rooms: FakeRooms, connection: Connection) -> None:
    typed("USE `my db`;\n\\d\n\\d t\n\\l\n\\s\n")
    assert connection.database == "my db"
    assert calls_of_user(rooms)[0] == ("run", "USE `my db`", "default", {})
    assert calls_of_user(rooms)[1] == ("run", "SHOW TABLES", "my db", {})
    assert sent(rooms)[2:4] == ["DESCRIBE t", "SHOW DATABASES"]
    typed('USE /* the other */ "other db";\n\\d\n')
    assert calls_of_user(rooms)[-1] == ("run", "SHOW TABLES", "other db", {})
    typed("USE `my db`;\n")
    rooms.error = NotFoundError(database="nowhere")
    _, errors = typed("\\c nowhere\n")
    assert connection.database == "my db"
    assert "database=nowhere" in errors


def test_an_error_stops_the_line_but_not_the_shell(typed: Type, rooms: FakeRooms) -> None:
    rooms.error = NotFoundError(table="t", hint="SHOW TABLES lists them")
    _, errors = typed("SELECT 1; SELECT 2;\nSELECT 3;\n")
    assert sent(rooms) == ["SELECT 1", "SELECT 3"]
    assert "NOT_FOUND no such thing: table=t" in errors
    assert "what to do: SHOW TABLES lists them" in errors
    assert "  see: docs/errors/NOT_FOUND.md\n" in errors


def test_ctrl_c_forgets_and_ctrl_d_leaves(typed: Type, rooms: FakeRooms) -> None:
    typed("SELECT 'open\n\x03SELECT 2;\n\x04")
    assert sent(rooms) == ["SELECT 2"]


def test_two_ctrl_c_leave(typed: Type, rooms: FakeRooms) -> None:
    typed("SELECT\x03\x03SELECT 2;\n")
    assert sent(rooms) == []


def test_a_ctrl_c_between_any_two_steps_of_the_loop_ends_nothing(
    connection: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace raises it before each instruction of the loop, one for each prompt, two seconds after the last one."""
    clock = ManualClock()
    interrupted: list[int] = []
    prompts = 0

    def step(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        if event == "opcode" and frame.f_lasti not in interrupted and len(interrupted) < prompts:
            interrupted.append(frame.f_lasti)
            signal.raise_signal(signal.SIGINT)
        return step if frame.f_code.co_name == "hold" else None

    def prompt(*_: object, **__: object) -> str:
        nonlocal prompts
        if len(interrupted) < prompts:
            # Each instruction between two prompts was interrupted.
            sys.settrace(None)
            raise EOFError
        prompts += 1
        clock.advance(2.0)
        frame = sys._getframe(2)
        frame.f_trace, frame.f_trace_opcodes = step, True
        sys.settrace(step)
        return ""

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(conversation, "SystemClock", lambda: clock)
    monkeypatch.setattr(PromptSession, "prompt", prompt)
    before = sys.gettrace()
    try:
        with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
            converse(connection, Console(file=io.StringIO()), Console(file=io.StringIO()), OutputFormat.TABLE)
    except KeyboardInterrupt:
        pytest.fail(f"it ended the shell at the instruction {interrupted[-1]}")
    finally:
        sys.settrace(before)
    assert len(interrupted) == prompts - 1 > 5


def test_rows_upright_by_a_terminator_and_by_a_switch(typed: Type, rooms: FakeRooms) -> None:
    out, _ = typed("SELECT 1\\G\nSELECT 2;\n\\x on\nSELECT 3;\n\\x off\nSELECT 4;\n\\x\n\\x\n")
    assert sent(rooms) == ["SELECT 1", "SELECT 2", "SELECT 3", "SELECT 4"]
    assert out.count("row 1 ") == 2
    assert [line for line in out.splitlines() if line.startswith("rows upright")] == [
        "rows upright: on",
        "rows upright: off",
        "rows upright: on",
        "rows upright: auto, where they are wider than the terminal",
    ]


def test_wide_results_are_upright_in_the_shell_only(typed: Type, rooms: FakeRooms, connection: Connection) -> None:
    wide = pa.table({name: [name * 30] for name in "abcdef"})
    rooms.answer = Answer(query_id="q", columns=[], table=wide, elapsed_ms=2.0)
    out, _ = typed("SELECT ..;\n")
    assert "a │ " + "a" * 30 in out
    console = Console(file=io.StringIO(), width=100)
    run(connection, console, Console(file=io.StringIO()), "SELECT ..", OutputFormat.TABLE)
    assert isinstance(console.file, io.StringIO)
    assert "row 1" not in console.file.getvalue()


def test_timing_is_said_when_it_is_wanted(typed: Type) -> None:
    _, errors = typed("\\timing on\nSELECT 1;\n\\timing\nSELECT 1;\n")
    assert errors.count("the server took 0.002 s") == 1


def test_the_last_statement_is_repeated_and_may_only_read(typed: Type, rooms: FakeRooms) -> None:
    out, _ = typed("\\watch\n")
    assert "there is no statement to repeat yet" in out
    answers = iter([rooms.answer] * 3)

    def answered(*call: object) -> Answer:
        if "log_queries" not in str(call[3]) or "SELECT 1" in str(call[1]):
            rooms.calls.append(call)
            found = next(answers, None)
            if found is None:
                raise NotFoundError(table="t")
            return found
        return rooms.answer

    rooms.calls.clear()
    rooms._answered = answered  # type: ignore[method-assign]
    out, errors = typed("SELECT 1;\n\\watch 0.1\n")
    assert [call[3] for call in rooms.calls] == [{}] + [{"readonly": "1", "log_queries": "0"}] * 3
    assert out.count("again in 0.1 s") == 2
    assert "NOT_FOUND" in errors


def test_an_editor_gives_the_next_statement(
    typed: Type, rooms: FakeRooms, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    editor = tmp_path / "editor.sh"
    editor.write_text('sed -i s/1/2/ "$1"\n')
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", f"sh {editor}")
    typed("SELECT 1;\n\\e\n\n")
    assert sent(rooms) == ["SELECT 1", "SELECT 2"]
    monkeypatch.setenv("EDITOR", "/no/such/editor")
    _, errors = typed("\\e\n")
    assert "EDITOR_FAILED" in errors


def test_history_holds_no_secrets(typed: Type, rooms: FakeRooms, tmp_path: Path) -> None:
    secret = "CREATE TABLE k (a Int64) ENGINE = Kafka SETTINGS kafka_sasl_password = 'hunter2';"
    typed(f"SELECT 'one';\n{secret}\nSELECT 'two';\n")
    assert len(sent(rooms)) == 3
    kept = (tmp_path / ".tilth_history").read_text()
    assert "'two'" in kept
    assert "hunter2" not in kept


def test_bytes_that_are_no_text_end_nothing(typed: Type, rooms: FakeRooms) -> None:
    _, errors = typed("SELECT '\udc80';\nSELECT 1;\n")
    assert sent(rooms) == ["SELECT 1"]
    assert "BAD_STATEMENT_TEXT" in errors


def test_escapes_in_messages_are_shown(typed: Type, rooms: FakeRooms) -> None:
    rooms.error = NotFoundError("no such \x1b[31mcolumn", hint="\x1b]0;title\x07")
    _, errors = typed("SELECT 1;\n")
    assert "no such \\x1b[31mcolumn" in errors
    assert "\x1b]" not in errors


def test_help(typed: Type) -> None:
    out, _ = typed("\\?\n")
    assert "Ctrl-D" in out


def test_a_table_for_people() -> None:
    times = pa.array([0, 253_402_300_800_000_000, None], pa.timestamp("us", "UTC"))
    table = pa.table({"n": [1, None, 3], "[red]t": ["[bold]x[/]", "a\x1b[31m\nb", ""], "at": times})
    out = printed(table, message="[note]")
    for text in (
        "[red]t",
        "[bold]x[/]",
        "a\\x1b[31m\\nb",
        "NULL",
        "1970-01-01 00:00:00Z",
        "+10000-01-01 00:00:00Z",
        "[note]",
    ):
        assert text in out
    assert "\x1b" not in out
    assert "3 rows, 1.234 s" in out


def test_a_screen_of_rows_and_a_count_of_the_rest() -> None:
    out = printed(pa.table({"n": list(range(1500))}))
    assert "... and 500 more rows" in out
    assert " 999" in out
    assert " 1000" not in out


def test_the_first_rows_are_printed_while_others_come_and_none_are_kept(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    console, errors = Console(file=io.StringIO(), width=100), Console(file=io.StringIO(), force_terminal=True)
    assert isinstance(console.file, io.StringIO)
    assert isinstance(errors.file, io.StringIO)
    batches = [pa.record_batch({"n": range(start, start + 600)}) for start in range(0, 6_000_000, 600)]
    printed_before: list[str] = []
    allocated: list[int] = []

    def pieces() -> Iterator[bytes]:
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, batches[0].schema) as writer:
            for batch in batches:
                assert isinstance(console.file, io.StringIO)
                printed_before.append(console.file.getvalue())
                writer.write_batch(batch)
                yield sink.getvalue()
                sink.seek(0)
                sink.truncate()
                allocated.append(pa.total_allocated_bytes())
        yield sink.getvalue()

    @contextmanager
    def request(text: str, *, accept: str, settings: Mapping[str, str]) -> Iterator[Reply]:
        yield Reply(media_type=accept, summary=Summary(query_id="q", elapsed_ms=1, rows=0), pieces=pieces())

    monkeypatch.setattr(connection, "request", request)
    run(connection, console, errors, "SELECT n FROM t", OutputFormat.TABLE)
    assert printed_before[1] == ""
    assert " 999" in printed_before[3]
    out = console.file.getvalue()
    assert out.startswith(printed_before[-1])
    assert "... and 5,999,000 more rows" in out
    assert "6,000,000 rows, " in out
    assert max(allocated[100:]) - allocated[100] < 1 << 20
    assert "rows" in errors.file.getvalue()


def test_progress_is_for_terminals(connection: Connection) -> None:
    errors = Console(file=io.StringIO())
    run(connection, Console(file=io.StringIO()), errors, "SELECT 1", OutputFormat.TABLE)
    assert isinstance(errors.file, io.StringIO)
    assert errors.file.getvalue() == ""


@pytest.mark.parametrize(
    ("output", "expected"),
    [(OutputFormat.CSV, '"a"\n1\n'), (OutputFormat.NDJSON, '{"a":1}\n'), (OutputFormat.JSON, '"rows":[[1]]')],
)
def test_other_forms_go_to_standard_output_as_they_come(
    connection: Connection, capfdbinary: pytest.CaptureFixture[bytes], output: OutputFormat, expected: str
) -> None:
    run(connection, Console(file=io.StringIO()), Console(file=io.StringIO()), "SELECT 1", output)
    out = capfdbinary.readouterr().out.decode()
    assert expected in out
    assert out.endswith("\n")


def test_a_format_in_the_statement_wins_over_the_table(
    connection: Connection, rooms: FakeRooms, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    rooms.answer = Answer(query_id="q", columns=[], table=pa.table({"a": [1]}), output_format="CSVWithNames")
    run(
        connection,
        Console(file=io.StringIO()),
        Console(file=io.StringIO()),
        "SELECT 1 FORMAT CSVWithNames",
        OutputFormat.TABLE,
    )
    assert capfdbinary.readouterr().out == b'"a"\n1\n'


@pytest.mark.parametrize(
    "arguments",
    [
        ["sql", "-c", "SELECT 1", "-f", "pyproject.toml"],
        ["sql", "-f", "no such file"],
        ["sql", "--format", "xml"],
        ["serve"],
        ["unheard-of"],
    ],
)
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2


@pytest.mark.parametrize("arguments", [["--help"], ["sql", "--help"], ["serve", "--help"], ["status", "--help"]])
def test_help_of_every_command(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.output.startswith("tilth ")) == (0, True)


def test_an_address_that_is_none() -> None:
    result = CliRunner().invoke(app, ["sql", "--url", "ftp://x", "-c", "SELECT 1"])
    assert result.exit_code == EXIT_CODES[ErrorKind.INVALID]
    assert "BAD_URL" in result.output
